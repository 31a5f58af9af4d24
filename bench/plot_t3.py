#!/usr/bin/env python3
"""Draws what `tilewire sim t3 --json F` wrote, in the manner of the figures 15, 16, 18 and 19 of T3's paper.

  tilewire sim t3 --large --json t3.json
  bench/plot_t3.py t3.json --out docs/images

Called by hand. Needs matplotlib. Draws what the file says and computes nothing but shares.
"""
import argparse
import json
import os
import sys

from plots import Folder, pyplot, style

# Keys in the file, names in the legend, colours.
PARTS = {"gemm_ns": ("GEMM", "#0072b2"), "rs_ns": ("reduce-scatter", "#e69f00"), "ag_ns": ("all-gather", "#888888")}
SPEEDUPS = {"t3": ("T3", "#e69f00"), "t3_mca": ("T3-MCA", "#c1272d"),
            "ideal_overlap": ("Ideal-GEMM-RS-Overlap", "#56b4e9"), "ideal_near": ("Ideal-RS+NMC", "#0072b2")}
TRAFFIC = {"gemm_reads": ("GEMM reads", "#0072b2"), "gemm_writes": ("GEMM writes", "#56b4e9"),
           "rs_reads": ("RS reads", "#e69f00"), "rs_writes": ("RS writes", "#f0c987"),
           "ag_reads": ("AG reads", "#777777"), "ag_writes": ("AG writes", "#bbbbbb")}


def name_of(row):
    return f"{row['model']} TP {row['tp']}" + (f"\n{row['layer']}" if "layer" in row else "")


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
    """A bar for each row of what `value` says of each part."""
    bottoms = [0.0] * len(places)
    for key, (label, colour) in parts.items():
        heights = [value(row, key) for row in rows]
        axes.bar(places, heights, width, bottom=bottoms, color=colour, label=label if labelled else None)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights)]


def group(axes, rows, bars, value):
    """Bars of each row side by side, from 1 up."""
    width = 0.8 / len(bars)
    for index, (key, (label, colour)) in enumerate(bars.items()):
        places = [place + (index - (len(bars) - 1) / 2) * width for place in range(len(rows))]
        heights = [value(row, key) - 1 for row in rows]
        axes.bar(places, heights, width * 0.92, bottom=1, color=colour, label=label)
    axes.set_ylabel("speedup over Sequential")


def runtime(result, folder):
    """Figure 15: what Sequential's time is made of."""
    rows = result["rows"]
    figure, axes = axes_for([name_of(row) for row in rows])
    stack(axes, range(len(rows)), rows, PARTS, 0.75, lambda row, key: row[key] / row["sequential_ns"])
    axes.set_ylabel("share of Sequential")
    finish(figure, axes, f"Time of sub-layers, {result['machine']['name']}", folder, "t3_runtime")


def speedups(result, folder):
    """Figure 16, with the geometric means behind."""
    rows = list(result["rows"])
    labels = [name_of(row) for row in rows] + [f"{each['title']}\ngeomean" for each in result["summaries"]]
    values = [row["speedups"] for row in rows] + [each["geomean"] for each in result["summaries"]]
    figure, axes = axes_for(labels, 0.6)
    group(axes, values, SPEEDUPS, lambda row, key: row[key])
    finish(figure, axes, f"Speedups of sub-layers, {result['machine']['name']}", folder, "t3_speedups")


def traffic(result, folder):
    """Figure 18: what memory moves, Sequential on the left and T3-MCA on the right."""
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", help="a file of `tilewire sim t3 --json`")
    parser.add_argument("--out", default="docs/images", help="folder for the figures")
    parser.add_argument("--format", choices=["svg", "png"], default="svg")
    options = parser.parse_args()
    if pyplot is None:
        sys.exit("bench/plot_t3.py needs matplotlib: pip install matplotlib")
    style()
    with open(options.result, encoding="utf-8") as file:
        result = json.load(file)
    folder = Folder(options.out, options.format)
    for draw in (runtime, speedups, traffic, end_to_end):
        draw(result, folder)
    for path in folder.written:
        print(f"{path} {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
