#!/usr/bin/env python3
"""Draws results: times and overlap against M from a file of bench/peers.py, bars from a file of bench/ablations.py.

  bench/plots.py --peers bench/results/peers_x4.json --ablations ablations.json --out docs/images

Called by hand when results are committed. Needs matplotlib, no GPU. Draws the files' data, and the overlap and the link time
that follow from them.
"""
import argparse
import os
import sys

from bars import OPERATORS, fastest_peer, link_us_of, overlap_of
from result_files import read

try:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, MaxNLocator
except ImportError:
    pyplot = None

# One colour and one name for each contender, in all figures.
LINES = {
    "total_us": ("tilewire", "#c1272d", "-", "o"),
    "sequential_us": ("cuBLAS, then NCCL", "#e69f00", "-", "s"),
    "torch_fused": ("PyTorch, fused", "#0072b2", "-", "^"),
    "torch_two_shot": ("PyTorch, two-shot", "#56b4e9", "-", "v"),
    "torch_one_shot": ("PyTorch, one-shot", "#009e73", "-", "D"),
    "free_us": ("free: GEMM beside the copies", "#333333", "--", ""),
    "gemm_us": ("GEMM alone", "#888888", ":", ""),
    "link_us": ("link: bytes / peak", "#b07aa1", "-.", ""),
}
OURS, OTHER, LIMIT = "#c1272d", "#e8a9a9", "#333333"
SHORT = {operator: name for name, operator in OPERATORS.items()}
TITLES = {"all_gather_gemm": "AllGather + GEMM", "gemm_reduce_scatter": "GEMM + ReduceScatter",
          "gemm_all_reduce": "GEMM + AllReduce"}


def style():
    pyplot.rcParams.update({
        "font.size": 9, "axes.titlesize": 10, "axes.spines.top": False, "axes.spines.right": False,
        "axes.grid": True, "grid.color": "#dddddd", "grid.linewidth": 0.6, "axes.axisbelow": True,
        "legend.frameon": False, "lines.linewidth": 1.6, "lines.markersize": 4.5, "figure.dpi": 110,
        # The same input gives the same file.
        "svg.hashsalt": "tilewire", "svg.fonttype": "none"})


class Folder:
    """The folder for figures, and the figures drawn so far."""

    def __init__(self, path, form):
        self._path, self._form, self.written = path, form, []
        os.makedirs(path, exist_ok=True)

    def save(self, figure, name):
        path = os.path.join(self._path, f"{name}.{self._form}")
        metadata = {"Date": None} if self._form == "svg" else {"Software": None}
        figure.savefig(path, metadata=metadata, bbox_inches="tight")
        pyplot.close(figure)
        self.written.append(path)


def value_of(row, name):
    """us of a contender in a row, or None."""
    if name == "link_us":
        return link_us_of(row)
    return row["peers"].get(name) if name.startswith("torch") else row.get(name)


def series(rows):
    """The rows of each operator, N and K that has several M, by M."""
    found = {}
    for row in rows:
        found.setdefault((row["operator"], row["n"], row["k"]), []).append(row)
    return {key: sorted(some, key=lambda row: row["m"]) for key, some in found.items() if len(some) > 1}


def sizes_text(n, k):
    return f"N = {n}, K = {k}"


def where(facts):
    return f"{facts.get('ranks', '?')} x {facts.get('gpu', 'GPU')}, bf16"


def axis_of_m(axes, rows):
    sizes = [row["m"] for row in rows]
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("M, rows over all GPUs")


def draw_lines(axes, rows, scale):
    """A line for each contender: its us times the row's `scale`."""
    for name, (label, colour, dashes, marker) in LINES.items():
        points = [(row["m"], value_of(row, name) * scale(row)) for row in rows if value_of(row, name)]
        if points:
            axes.plot(*zip(*points), dashes, color=colour, marker=marker, label=label,
                      zorder=4 if name == "total_us" else 3)
    axis_of_m(axes, rows)


def draw_times(above, below, rows):
    """us on a logarithmic axis; below it us divided by those of the GEMM alone, which shows small differences."""
    draw_lines(above, rows, lambda row: 1)
    above.set_yscale("log")
    above.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    above.set_xlabel("")
    known = [row for row in rows if row["gemm_us"]]
    draw_lines(below, known, lambda row: 1 / row["gemm_us"])
    below.set_ylim(0.9, 2.5)


def times(result, folder):
    """A figure for each operator, with axes for each N and K: us against M."""
    for operator, title in TITLES.items():
        chosen = {key: rows for key, rows in series(result["rows"]).items() if key[0] == operator}
        if not chosen:
            continue
        figure, all_axes = pyplot.subplots(2, len(chosen), figsize=(0.6 + 4.4 * len(chosen), 6), squeeze=False)
        for above, below, ((_, n, k), rows) in zip(*all_axes, chosen.items()):
            draw_times(above, below, rows)
            above.set_title(sizes_text(n, k))
        all_axes[0][0].set_ylabel("time of a call, us")
        all_axes[1][0].set_ylabel("time / GEMM alone")
        handles = {}
        for axes in all_axes[0]:
            handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels())}
        figure.legend(handles.values(), handles.keys(), loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure.suptitle(f"{title}, {where(result['facts'])}")
        figure.tight_layout()
        folder.save(figure, f"times_{SHORT[operator].lower()}")


def overlap(result, folder):
    """Overlap efficiency against M, a line for each operator, N and K."""
    lowest, highest = -0.5, 1.1
    drawn = {key: [(row["m"], overlap_of(row)) for row in rows if overlap_of(row) is not None]
             for key, rows in series(result["rows"]).items()}
    drawn = {key: points for key, points in drawn.items() if points}
    if not drawn:
        return
    figure, axes = pyplot.subplots(figsize=(6.2, 3.8))
    colours = ["#c1272d", "#0072b2", "#009e73", "#e69f00", "#b07aa1", "#56b4e9"]
    for index, ((operator, n, k), points) in enumerate(drawn.items()):
        colour, inside = colours[index % len(colours)], [point for point in points if lowest <= point[1] <= highest]
        axes.plot([m for m, _ in inside], [value for _, value in inside], "-o", color=colour,
                  label=f"{TITLES[operator]}, {sizes_text(n, k)}")
        # A mark at the edge stands for a value outside.
        for m, value in points:
            if not lowest <= value <= highest:
                axes.plot([m], [lowest if value < lowest else highest], "v" if value < lowest else "^", color=colour)
    axis_of_m(axes, [{"m": m} for m in sorted({m for points in drawn.values() for m, _ in points})])
    axes.axhline(1, color=LIMIT, linewidth=0.8)
    axes.axhline(0, color=LIMIT, linewidth=0.8)
    axes.set_ylim(lowest - 0.05, highest + 0.05)
    axes.set_ylabel("1 - (total - gemm) / (sequential - gemm)")
    axes.set_title(f"Overlap efficiency, {where(result['facts'])}")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=8)
    folder.save(figure, "overlap")


def all_rows(result, folder):
    """Every row: times divided by the time of the GEMM alone."""
    rows = [row for row in result["rows"] if row["gemm_us"]]
    if not rows:
        return
    bars = {"tilewire": ("#c1272d", lambda row: row["total_us"]), "free": ("#333333", lambda row: row["free_us"]),
            "cuBLAS, then NCCL": ("#e69f00", lambda row: row["sequential_us"]),
            "PyTorch, its fastest": ("#0072b2", fastest_peer)}
    figure, axes = pyplot.subplots(figsize=(7.2, 0.6 + 0.55 * len(rows)))
    most, height = 3.0, 0.8 / len(bars)
    for index, (label, (colour, value)) in enumerate(bars.items()):
        ratios = [(value(row) or 0) / row["gemm_us"] for row in rows]
        places = [place + (index - (len(bars) - 1) / 2) * height for place in range(len(rows))]
        axes.barh(places, [min(ratio, most) for ratio in ratios], height * 0.92, color=colour, label=label)
        for place, ratio in zip(places, ratios):
            if ratio > most:
                axes.text(most, place, f" {ratio:.1f}", va="center", fontsize=7, color=colour)
    axes.set_yticks(range(len(rows)), [f"{SHORT[row['operator']]} {row['m']} {row['n']} {row['k']}" for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.axvline(1, color=LIMIT, linewidth=0.8)
    axes.set_xlim(0, most * 1.06)
    axes.set_xlabel("time / time of the GEMM alone")
    axes.set_title(f"M N K over all GPUs, {where(result['facts'])}", pad=24)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(bars), fontsize=8)
    folder.save(figure, "rows")


def draw_group(axes, group, rows, limit):
    """The bars of one group; the shortest is dark; a refused config has text instead of a bar."""
    labels = [bar["label"] for bar in group["bars"]]
    values = [rows[bar["name"]]["total_us"] if bar["name"] in rows else None for bar in group["bars"]]
    known = [value for value in values if value is not None]
    for place, value in enumerate(values):
        if value is None:
            axes.text(0, place, " refused", va="center", fontsize=7.5, color="#777777", style="italic")
            continue
        axes.barh(place, value, 0.7, color=OURS if value == min(known) else OTHER)
        axes.text(value, place, f" {value:.0f}", va="center", fontsize=7.5)
    if limit:
        axes.axvline(limit, color=LIMIT, linestyle="--", linewidth=1)
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_xlim(0, 1.18 * max(known + [limit or 0, 1e-9]))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="y", visible=False)
    axes.set_title(group["title"], loc="left")


def ablations(result, folder):
    """A figure for each shape, with axes for each group of configs."""
    for shape in result["shapes"]:
        same = lambda row, shape=shape: all(row[name] == shape[name] for name in ("operator", "m", "n", "k"))
        rows = {row["name"]: row for row in result["rows"] if same(row)}
        if not rows:
            continue
        columns, groups, first = 3, shape["groups"], next(iter(rows.values()))
        lines = -(-len(groups) // columns)
        heights = [max(len(group["bars"]) for group in groups[line * columns:(line + 1) * columns]) + 2.2
                   for line in range(lines)]
        figure, all_axes = pyplot.subplots(lines, columns, figsize=(10.5, 0.24 * sum(heights) + 0.5), squeeze=False,
                                           gridspec_kw={"height_ratios": heights})
        flat = list(all_axes.flat)
        for axes, group in zip(flat, groups):
            draw_group(axes, group, rows, first.get("free_us"))
        for axes in flat[len(groups):]:
            axes.set_visible(False)
        for axes in flat[max(0, len(groups) - columns):len(groups)]:
            axes.set_xlabel("time of a call, us")
        dashed = f", dashed: free ({first['free_us']:.0f} us)" if first.get("free_us") else ""
        figure.suptitle(f"{TITLES[shape['operator']]} {shape['m']} {shape['n']} {shape['k']}, {result['ranks']} ranks "
                        f"({result['backend']}){dashed}")
        figure.tight_layout()
        folder.save(figure, f"ablation_{SHORT[shape['operator']].lower()}_{shape['m']}_{shape['n']}_{shape['k']}")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", help="a file of bench/peers.py")
    parser.add_argument("--ablations", help="a file of bench/ablations.py")
    parser.add_argument("--out", default="docs/images", help="folder for the figures")
    parser.add_argument("--format", choices=["svg", "png"], default="svg")
    return parser.parse_args(arguments)


def main():
    options = parse(sys.argv[1:])
    if pyplot is None:
        sys.exit("bench/plots.py needs matplotlib: pip install matplotlib")
    style()
    folder = Folder(options.out, options.format)
    if options.peers:
        result = read(options.peers)
        for draw in (times, overlap, all_rows):
            draw(result, folder)
    if options.ablations:
        ablations(read(options.ablations), folder)
    for path in folder.written:
        print(f"{path} {os.path.getsize(path)} bytes")
    return 0 if folder.written else 1


if __name__ == "__main__":
    sys.exit(main())
