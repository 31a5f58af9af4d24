#!/usr/bin/env python3
"""Writes the figures of peers.py's results into the tables of a document: each row by the sizes in its first column.

  bench/tables.py docs/performance.md

A table below a line `<!-- table: peers_x4 -->` shows bench/results/peers_x4.json. Columns whose headings are not in
COLUMNS stay as they are. tests/bench compares the committed document with this script's. Needs neither torch nor a GPU.
"""
import pathlib
import re
import sys

import result_files
from bars import OPERATORS, fastest_other, fastest_peer, link_us_of, overlap_of

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
MARK = re.compile(r"<!-- table: (\w+) -->")


def us(value):
    return "" if value is None else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def times(row, below):
    return f"{row['total_us'] / below:.2f}" if below else ""


def tile_of(row):
    config = row["config"]
    return "stream-ordered" if config.get("compute") else f"{config.get('tile_m', 128)} x {config.get('tile_n', 256)}"


COLUMNS = {
    "link": lambda row: us(link_us_of(row)),
    "gemm": lambda row: us(row["gemm_us"]),
    "free": lambda row: us(row["free_us"]),
    "tilewire": lambda row: us(row["total_us"]),
    "tile": tile_of,
    "cuBLAS, NCCL": lambda row: us(row["sequential_us"]),
    "PyTorch": lambda row: us(fastest_peer(row)),
    "overlap": lambda row: "" if overlap_of(row) is None else f"{overlap_of(row):.2f}",
    "/ free": lambda row: times(row, row["free_us"]),
    "/ cuBLAS, NCCL": lambda row: times(row, row["sequential_us"]),
    "/ PyTorch": lambda row: times(row, fastest_peer(row)),
    "/ the faster": lambda row: times(row, fastest_other(row)),
    "tilewire / gemm": lambda row: times(row, row["gemm_us"]),
}


def rows_of(name):
    """The rows of a result by their names in tables: "AG 8192 10240 8192"."""
    short = {operator: letters for letters, operator in OPERATORS.items()}
    rows = result_files.read(RESULTS / f"{name}.json")["rows"]
    return {f"{short[row['operator']]} {row['m']} {row['n']} {row['k']}": row for row in rows}


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def cell_of(head, old, row):
    """A cell of the row, with the emphasis of the old cell."""
    if head not in COLUMNS:
        return old
    return f"**{COLUMNS[head](row)}**" if old.startswith("**") else COLUMNS[head](row)


def rewritten(text):
    """The document with the figures of its results. Throws KeyError for a row that its result does not have."""
    lines, rows, heads = [], None, None
    for line in text.split("\n"):
        mark = MARK.fullmatch(line)
        if mark:
            rows, heads = rows_of(mark[1]), None
        elif rows and line.startswith("|") and heads is None:
            heads = cells_of(line)
        elif rows and line.startswith("|") and not line.startswith("|---"):
            cells = cells_of(line)
            row = rows[cells[0]]
            new = [cell_of(head, old, row) for head, old in zip(heads, cells, strict=True)]
            line = re.sub(r" +", " ", "| " + " | ".join(new) + " |")
        elif heads and not line.startswith("|"):
            rows = None
        lines.append(line)
    return "\n".join(lines)


def main():
    for path in map(pathlib.Path, sys.argv[1:]):
        path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0 if len(sys.argv) > 1 else 2


if __name__ == "__main__":
    sys.exit(main())
