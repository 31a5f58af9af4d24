#!/usr/bin/env python3
"""Draws the figures 4, 6 and 14 to 20 of T3's paper from the simulator's results.

  tilewire-studies t3 --large --units --traffic T-NLG:8:FC-2 --json bench/results/t3_ring.json
  for F in peers_x4 peers_x2 others_x2; do
    tilewire sim --machine h200x4 --compare bench/results/$F.json --json bench/results/sim_$F.json
  done
  bench/result_files.py bench/results/t3_ring.json bench/results/sim_*.json
  bench/plot_t3.py

Called by hand. Needs matplotlib. Draws the files' data and computes only shares and means; a figure without data is left
out.
"""
import argparse
import math
import os
import sys

from plots import Folder, pyplot, style
from result_files import read

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")
COMPARED = ["sim_peers_x4.json", "sim_peers_x2.json", "sim_others_x2.json"]
MIB = 1 << 20

# Keys in the file, names in the legend, colours.
PARTS = {"gemm_ns": ("GEMM", "#0072b2"), "rs_ns": ("reduce-scatter", "#e69f00"), "ag_ns": ("all-gather", "#888888")}
REST = {"other_ns": ("everything else", "#dddddd")}
SPEEDUPS = {"t3": ("T3", "#e69f00"), "t3_mca": ("T3-MCA", "#c1272d"),
            "ideal_overlap": ("Ideal-GEMM-RS-Overlap", "#56b4e9"), "ideal_near": ("Ideal-RS+NMC", "#0072b2")}
TRAFFIC = {"gemm_reads": ("GEMM reads", "#0072b2"), "gemm_writes": ("GEMM writes", "#56b4e9"),
           "rs_reads": ("RS reads", "#e69f00"), "rs_writes": ("RS writes", "#f0c987"),
           "ag_reads": ("AG reads", "#777777"), "ag_writes": ("AG writes", "#bbbbbb")}
STREAMS = {"compute_read_bytes": ("GEMM reads", "#0072b2"), "compute_written_bytes": ("GEMM writes", "#56b4e9"),
           "communication_read_bytes": ("RS reads", "#e69f00"),
           "communication_written_bytes": ("RS writes", "#f0c987")}
FORWARD, ALL_LAYERS = ("OP", "FC-2"), ("OP", "FC-2", "FC-1", "IP")


def name_of(row):
    return f"{row['model']} TP {row['tp']}" + (f"\n{row['layer']}" if "layer" in row else "")


def geomean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def axes_for(labels, width=0.55):
    figure, axes = pyplot.subplots(figsize=(max(5.0, 1.5 + width * len(labels)), 3.6))
    axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.grid(axis="x", visible=False)
    return figure, axes


def finish(figure, axes, title, folder, name):
    axes.set_title(title)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    folder.save(figure, name)


def stack(axes, places, rows, parts, width, value, labelled=True):
    """A bar for each row, stacked of `value` of each part."""
    bottoms = [0.0] * len(places)
    for key, (label, colour) in parts.items():
        heights = [value(row, key) for row in rows]
        axes.bar(places, heights, width, bottom=bottoms, color=colour, label=label if labelled else None)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights)]


def group(axes, rows, bars, value):
    """Bars of each row side by side, beginning at 1."""
    width = 0.8 / len(bars)
    for index, (key, (label, colour)) in enumerate(bars.items()):
        places = [place + (index - (len(bars) - 1) / 2) * width for place in range(len(rows))]
        heights = [value(row, key) - 1 for row in rows]
        axes.bar(places, heights, width * 0.92, bottom=1, color=colour, label=label)
    axes.set_ylabel("speedup over Sequential")


def parts_of_iteration(result, iteration, phase, layers):
    """ns of the parts of an iteration's layer: GEMMs that an all-reduce follows, reduce-scatters, all-gathers."""
    rows = [row for row in result["rows"]
            if (row["model"], row["tp"]) == (iteration["model"], iteration["tp"]) and row["layer"] in layers]
    parts = {key: sum(row[key] for row in rows) for key in PARTS}
    whole = iteration[phase]["sequential_ns"]
    parts["other_ns"] = whole - sum(parts.values())
    return {key: ns / whole for key, ns in parts.items()}


def communication(result, folder):
    """Figure 4: the share of communication in iterations, training on the left and prompt on the right."""
    iterations = result["end_to_end"]
    figure, axes = axes_for([name_of(each) for each in iterations], 0.8)
    names = PARTS | {"gemm_ns": ("GEMMs before an all-reduce", PARTS["gemm_ns"][1])} | REST
    order = {key: names[key] for key in ("rs_ns", "ag_ns", "gemm_ns", "other_ns")}
    for shift, phase, layers in ((-0.2, "training", ALL_LAYERS), (0.2, "prompt", FORWARD)):
        shares = [parts_of_iteration(result, each, phase, layers) for each in iterations]
        places = [place + shift for place in range(len(iterations))]
        stack(axes, places, shares, order, 0.36, lambda row, key: row[key], phase == "training")
        for place, share in zip(places, shares):
            both = share["rs_ns"] + share["ag_ns"]
            axes.text(place, both + 0.01, f"{100 * both:.0f}", ha="center", fontsize=7, color="white")
    axes.set_ylabel("share of the time of Sequential")
    finish(figure, axes, "Iterations: training (left), prompt (right); % in communication", folder, "t3_communication")


def units_shared(result, folder):
    """Figure 6: GEMM and all-reduce on parts of the compute units, and the possible gain of running both at once."""
    if not result.get("splits"):
        return
    bars = [(split, part) for split in result["splits"] for part in split["parts"]]
    labels = [f"{split['model']}\n{split['layer']}, {part['name']}" for split, part in bars]
    figure, axes = axes_for(labels, 0.5)
    whole = [sum(split["parts"][-1][key] for key in ("gemm_ns", "ar_ns")) for split, _ in bars]
    value = lambda pair, key: (pair[0]["ar_ns"] - pair[0]["rs_ns"] if key == "ag_ns" else pair[0][key]) / pair[1]
    parts = [(part, ns) for (_, part), ns in zip(bars, whole)]
    stack(axes, [place - 0.2 for place in range(len(bars))], parts, {"gemm_ns": PARTS["gemm_ns"]}, 0.36, value)
    both = {key: PARTS[key] for key in ("rs_ns", "ag_ns")}
    stack(axes, [place + 0.2 for place in range(len(bars))], parts, both, 0.36, value)
    for place, (part, ns) in enumerate(parts):
        axes.text(place, max(part["gemm_ns"], part["ar_ns"]) / ns + 0.02, f"{part['speedup']:.2f}x", ha="center",
                  fontsize=7.5)
    axes.set_ylabel("time / GEMM, then all-reduce, on 80 CUs")
    finish(figure, axes, "CUs of the GEMM - CUs of the all-reduce; above: speedup by overlap", folder, "t3_units_shared")


def collective_points(results, operator):
    """(measured us, simulated us, MiB) of a collective alone, for each file."""
    width = "k" if operator == "all_gather_gemm" else "n"
    for result in results:
        rows = [row for row in result["rows"] if row["operator"] == operator and row["measured_comm_us"]
                and row["predicted_comm_us"]]
        yield [(row["measured_comm_us"], row["predicted_comm_us"], 2 * row["m"] * row[width] / MIB) for row in rows]


def validation(results, folder):
    """Figure 14: reduce-scatters, simulated against measured. All rows of a file have the same number of GPUs."""
    figure, axes = pyplot.subplots(figsize=(5.2, 4.2))
    ends = []
    by_ranks = {}
    for result, points in zip(results, collective_points(results, "gemm_reduce_scatter")):
        by_ranks.setdefault(result["rows"][0]["ranks"], []).extend(points)
    for (ranks, points), (colour, marker) in zip(sorted(by_ranks.items(), reverse=True),
                                                 (("#c1272d", "o"), ("#0072b2", "s"))):
        inside = [max(one / other, other / one) for one, other, mib in points if 6 <= mib <= 192]
        error = 100 * (geomean(inside) - 1)
        label = f"{ranks} x H200, {len(inside)} rows of 6 to 192 MiB: geomean error {error:.0f} %"
        axes.plot([x for x, _, _ in points], [y for _, y, _ in points], marker, color=colour, label=label)
        ends += [us for x, y, _ in points for us in (x, y)]
        seen = set()
        for x, y, mib in points if ranks == max(by_ranks) else []:
            if round(mib) not in seen:
                axes.annotate(f"{mib:.3g}", (x, y), (0, 5), textcoords="offset points", fontsize=7, ha="right")
            seen.add(round(mib))
    ends = [0.8 * min(ends), 1.25 * max(ends)]
    axes.plot(ends, ends, ":", color="#333333", label="simulated = measured")
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="NCCL's reduce-scatter, measured, us",
             ylabel="simulated, us", aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.set_title("Reduce-scatters alone; at points: MiB that each GPU brings")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=8)
    folder.save(figure, "t3_validation")


def runtime(result, folder):
    """Figure 15: the parts of Sequential's time."""
    rows = result["rows"]
    figure, axes = axes_for([name_of(row) for row in rows])
    stack(axes, range(len(rows)), rows, PARTS, 0.75, lambda row, key: row[key] / row["sequential_ns"])
    axes.set_ylabel("share of Sequential")
    finish(figure, axes, f"Time of sub-layers, {result['machine']['name']}", folder, "t3_runtime")


def speedups(result, folder):
    """Figure 16, with the geometric means at the end."""
    rows = list(result["rows"])
    labels = [name_of(row) for row in rows] + [f"{each['title']}\ngeomean" for each in result["summaries"]]
    values = [row["speedups"] for row in rows] + [each["geomean"] for each in result["summaries"]]
    figure, axes = axes_for(labels, 0.6)
    group(axes, values, SPEEDUPS, lambda row, key: row[key])
    finish(figure, axes, f"Speedups of sub-layers, {result['machine']['name']}", folder, "t3_speedups")


def over_time(result, folder):
    """Figure 17: the traffic of memory over time, for the GEMM alone and fused."""
    traffic = result.get("traffic_over_time")
    if not traffic:
        return
    titles = {"gemm": "GEMM alone", "t3": "T3", "t3_mca": "T3-MCA"}
    figure, all_axes = pyplot.subplots(len(titles), figsize=(7.2, 6.0), sharex=True, sharey=True)
    step_us = traffic["interval_ns"] * 1e-3
    for axes, (key, title) in zip(all_axes, titles.items()):
        one = traffic[key]
        edges = [step_us * index for index in range(len(one["compute_read_bytes"]) + 1)]
        heights = [0.0] * (len(edges) - 1)
        # GB/s are bytes per ns. A higher stack is drawn behind a lower one.
        for depth, (stream, (label, colour)) in enumerate(STREAMS.items()):
            heights = [height + value / traffic["interval_ns"] for height, value in zip(heights, one[stream])]
            if any(one[stream]):
                axes.stairs(heights, edges, fill=True, color=colour, linewidth=0, label=label, zorder=3 - 0.1 * depth)
        axes.axvline(one["gemm_ns"] * 1e-3, color="#333333", linestyle="--", linewidth=0.9)
        axes.set_title(f"{title}: {one['total_ns'] * 1e-3:.0f} us; its GEMM ends at {one['gemm_ns'] * 1e-3:.0f}",
                       fontsize=9, loc="left")
        axes.set_ylabel("GB/s")
    all_axes[-1].set_xlabel(f"us; intervals of {step_us:g} us")
    all_axes[0].set_xlim(0)
    all_axes[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    figure.suptitle(f"DRAM traffic of one device, {name_of(traffic)}".replace("\n", " "), fontsize=10)
    figure.tight_layout()
    folder.save(figure, "t3_traffic_over_time")


def traffic(result, folder):
    """Figure 18: the traffic of memory, Sequential on the left and T3-MCA on the right."""
    rows = result["rows"]
    figure, axes = axes_for([name_of(row) for row in rows])
    for shift, of in ((-0.2, "sequential"), (0.2, "t3_mca")):
        share = lambda row, key, of=of: row["traffic"][of][key] / max(1, row["traffic"]["sequential"]["total"])
        stack(axes, [place + shift for place in range(len(rows))], rows, TRAFFIC, 0.36, share, of == "sequential")
    axes.set_ylabel("bytes / those of Sequential")
    finish(figure, axes, f"Memory traffic, Sequential | T3-MCA, {result['machine']['name']}", folder, "t3_traffic")


def end_to_end(result, folder):
    """Figure 19: whole iterations."""
    bars = {("training", "t3"): ("training, T3", "#f0c987"), ("training", "t3_mca"): ("training, T3-MCA", "#e69f00"),
            ("prompt", "t3"): ("prompt, T3", "#e8a9a9"), ("prompt", "t3_mca"): ("prompt, T3-MCA", "#c1272d")}
    rows = list(result["end_to_end"])
    figure, axes = axes_for([name_of(row) for row in rows], 0.8)
    group(axes, rows, bars, lambda row, key: row[key[0]]["speedups"][key[1]])
    finish(figure, axes, f"Iterations, {100 * result['attention_share']:g} % attention and others (assumed)", folder,
           "t3_end_to_end")


def twice_the_units(result, folder):
    """Figure 20: OP and FC-2 with 80 and with 160 compute units."""
    if not result.get("twice_cu"):
        return
    same = lambda one, other: all(one[key] == other[key] for key in ("model", "tp", "layer"))
    labels, values = [], []
    for layer in FORWARD:
        twice = [row for row in result["twice_cu"] if row["layer"] == layer]
        once = [next(row for row in result["rows"] if same(row, other)) for other in twice]
        pairs = [{80: row["speedups"], 160: other["speedups"]} for row, other in zip(once, twice)]
        mean = lambda units, key, pairs=pairs: geomean([pair[units][key] for pair in pairs])
        labels += [name_of(row) for row in twice] + [f"{layer}\ngeomean"]
        values += pairs + [{units: {key: mean(units, key) for key in SPEEDUPS} for units in (80, 160)}]
    figure, axes = axes_for(labels, 0.6)
    bars = {(80, "t3_mca"): ("T3-MCA, 80 CUs", "#e8a9a9"), (160, "t3_mca"): ("T3-MCA, 160 CUs", "#c1272d"),
            (80, "ideal_overlap"): ("ideal, 80 CUs", "#b8dcf2"), (160, "ideal_overlap"): ("ideal, 160 CUs", "#0072b2")}
    group(axes, values, bars, lambda row, key: row[key[0]][key[1]])
    finish(figure, axes, "Twice the compute units, the same links", folder, "t3_twice_units")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", nargs="?", default=os.path.join(RESULTS, "t3_ring.json"),
                        help="a file of `tilewire-studies t3 --json`")
    parser.add_argument("--compared", nargs="*", default=[os.path.join(RESULTS, name) for name in COMPARED],
                        help="files of `tilewire sim --compare --json`; none: no figure 14")
    parser.add_argument("--out", default="docs/images", help="folder for the figures")
    parser.add_argument("--format", choices=["svg", "png"], default="svg")
    options = parser.parse_args()
    if pyplot is None:
        sys.exit("bench/plot_t3.py needs matplotlib: pip install matplotlib")
    style()
    folder = Folder(options.out, options.format)
    result = read(options.result)
    for draw in (communication, units_shared, runtime, speedups, over_time, traffic, end_to_end, twice_the_units):
        draw(result, folder)
    if options.compared:
        validation([read(path) for path in options.compared], folder)
    for path in folder.written:
        print(f"{path} {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
