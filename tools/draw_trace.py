#!/usr/bin/env python3
"""Draws traces (the Chrome JSON that `tilewire bench --trace` writes) as SVG, one below the other on one scale.

One row per lane worker; lines lead from a post to the wait of another rank that it completed.
Usage: tools/draw_trace.py PICTURE.svg TRACE.json [TRACE.json ...]
"""
import html
import json
import pathlib
import sys

COLOURS = {"gemm": "#4c78a8", "gemv": "#4c78a8", "pool": "#4c78a8", "gemm_call": "#4c78a8", "copy": "#f58518",
           "reduce": "#54a24b", "fill": "#b279a2", "waiting": "#e0e0e0", "sync": "#9d755d",
           "collective_call": "#f58518"}
WIDTH, LEFT, ROW, GAP = 1000, 120, 16, 10


def read(path):
    """Names of the rows (rank, row), the slices of each, and the arrows between them."""
    names, slices, arrows = {}, {}, {}
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    for event in events:
        if event["ph"] == "M" and event["name"] == "thread_name":
            names[event["pid"], event["tid"]] = event["args"]["name"]
        elif event["ph"] == "X":
            slices.setdefault((event["pid"], event["tid"]), []).append(event)
        elif event["ph"] in "sf":
            arrows.setdefault(event["id"], []).append(event)
    return names, slices, arrows


def end_of(slices):
    return max(event["ts"] + event["dur"] for row in slices.values() for event in row)


def box(x, y, width, height, colour, title):
    edge = ' stroke="white" stroke-width="0.4"' if width > 2 else ""
    return (f'<rect x="{x:.2f}" y="{y}" width="{max(width, 0.3):.2f}" height="{height}" fill="{colour}"{edge}>'
            f"<title>{html.escape(title)}</title></rect>")


def text(x, y, words, anchor="start", style=""):
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{style}>{html.escape(words)}</text>'


def draw(title, trace, y, scale):
    """The elements of the picture from y on, and the y below them."""
    names, slices, arrows = trace
    parts = [text(4, y + 12, title, style=' font-weight="bold"'),
             text(LEFT + end_of(slices) * scale, y + 12, f"{end_of(slices) / 1000:.2f} ms", "end")]
    y += 18
    middles, last_rank = {}, None
    for rank, row in sorted(slices):
        y += GAP if last_rank not in (None, rank) else 0
        if rank != last_rank:
            parts.append(text(4, y + ROW - 4, f"rank {rank}"))
        last_rank = rank
        middles[rank, row] = y + ROW / 2 - 1
        parts.append(text(LEFT - 6, y + ROW - 4, names[rank, row], "end"))
        for event in slices[rank, row]:
            words = f'{event["args"].get("task", "")}: {event["name"]} {event["dur"]:.1f} us'
            parts.append(box(LEFT + event["ts"] * scale, y, event["dur"] * scale, ROW - 2,
                             COLOURS.get(event["name"], "#888888"), words))
        y += ROW
    for tail, head in arrows.values():
        if tail["pid"] != head["pid"]:
            ends = [(LEFT + at["ts"] * scale, middles[at["pid"], at["tid"]]) for at in (tail, head)]
            parts.append('<path d="M{:.1f} {:.1f}L{:.1f} {:.1f}" stroke="#d62728" stroke-width="0.5" opacity="0.5"/>'
                         .format(*ends[0], *ends[1]))
    return parts, y + 2 * GAP


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    traces = {pathlib.Path(path).stem: read(path) for path in sys.argv[2:]}
    scale = (WIDTH - LEFT - 10) / max(end_of(slices) for _, slices, _ in traces.values())
    parts, x, y = [], LEFT, 28
    shown = dict.fromkeys(event["name"] for _, slices, _ in traces.values() for row in slices.values() for event in row)
    for name in shown:
        parts += [box(x, 6, 12, 12, COLOURS.get(name, "#888888"), name), text(x + 16, 16, name)]
        x += 90
    for title, trace in traces.items():
        more, y = draw(title, trace, y, scale)
        parts += more
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" '
            'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>')
    pathlib.Path(sys.argv[1]).write_text("\n".join([head, *parts, "</svg>\n"]))


if __name__ == "__main__":
    main()
