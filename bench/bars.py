#!/usr/bin/env python3
"""How far a result's rows are from tilewire's goals (bars): each goal, its value, and whether it is met.

Used by bench/peers.py; alone it prints the bars of a file, or with --markdown a table of several machines:

  bench/bars.py peers.json
  bench/bars.py --markdown '4 x H200=bench/results/peers_x4.json' '2 x H200=bench/results/peers_x2.json'

Needs neither torch nor a GPU.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys
from dataclasses import dataclass
from typing import Callable

from result_files import whole

LINK_BYTES_PER_S = 389e9  # copy engine, one direction to one peer, on NVLink 4 with 18 links
FEW_ROWS = 512  # of M: up to here other goals hold
OPERATORS = {"AG": "all_gather_gemm", "RS": "gemm_reduce_scatter", "AR": "gemm_all_reduce"}


def fastest_peer(row):
    """us of the fastest of PyTorch's operators that ran."""
    return min(row["peers"].values(), default=None)


def fastest_other(row):
    """us of the faster of cuBLAS + NCCL and the fastest of PyTorch's operators."""
    return min((value for value in (row["sequential_us"], fastest_peer(row)) if value), default=None)


def link_us_of(row):
    """us that the links need for the bytes that a GPU must send, bf16."""
    width = {"all_gather_gemm": row["k"], "gemm_reduce_scatter": row["n"], "gemm_all_reduce": 2 * row["n"]}[row["operator"]]
    return 2 * (row["m"] * width // row["ranks"]) * (row["ranks"] - 1) / LINK_BYTES_PER_S * 1e6


def overlap_of(row):
    """The share of the communication that is hidden; None if a time is missing, or if there is nothing to hide."""
    total, gemm, sequential = row["total_us"], row["gemm_us"], row["sequential_us"]
    if not (total and gemm and sequential and sequential > gemm):
        return None
    return 1 - (total - gemm) / (sequential - gemm)


def over(yardstick):
    """A row's total divided by a field, or by a function of the row; None if either is missing."""
    def value(row):
        below = yardstick(row) if callable(yardstick) else row.get(yardstick)
        return row["total_us"] / below if row["total_us"] and below else None

    return value


def geomean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


@dataclass(frozen=True)
class Bar:
    text: str
    operators: str
    rows: Callable  # which sizes M it is about
    value: Callable  # of one row
    combine: Callable  # makes one value of the rows' values; max and min: each row counts
    limit: float
    at_least: bool = False


def many(m):
    return m > FEW_ROWS


def few(m):
    return m <= FEW_ROWS


BARS = [
    Bar("AG, M >= 1024: total / free, each row", "AG", many, over("free_us"), max, 1.03),
    Bar("RS, M >= 1024: total / free, geometric mean", "RS", many, over("free_us"), geomean, 1.04),
    Bar("RS, M >= 1024: total / free, each row", "RS", many, over("free_us"), max, 1.08),
    Bar("AR, M >= 1024: total / free, each row", "AR", many, over("free_us"), max, 1.15),
    Bar("AG and RS, M >= 1024: overlap, mean", "AG RS", many, overlap_of, statistics.fmean, 0.85, True),
    Bar("M >= 1024: total / sequential, each row", "AG RS AR", many, over("sequential_us"), max, 1.0),
    Bar("total / PyTorch's fastest, each row", "AG RS AR", lambda m: True, over(fastest_peer), max, 1.0),
    Bar("M <= 512: total / sequential, each row", "AG RS AR", few, over("sequential_us"), max, 1.0),
    Bar("AG, M <= 512: total / gemm, each row", "AG", few, over("gemm_us"), max, 1.10),
    Bar("RS, M <= 512: total / gemm, each row", "RS", few, over("gemm_us"), max, 1.15),
    Bar("AR, M = 64: total / the faster of NCCL and PyTorch, each row", "AR", lambda m: m <= 64, over(fastest_other),
        max, 0.80),
]


def measured(bar, rows):
    """The values of the rows that the goal is about, by the row's sizes; None if a row has no such value."""
    operators = [OPERATORS[name] for name in bar.operators.split()]
    return {f"{row['operator']} {row['m']} {row['n']} {row['k']}": bar.value(row)
            for row in rows if row["operator"] in operators and bar.rows(row["m"])}


def judge(bar, rows):
    """The goal with its value. `met` is None if nothing was measured, and False if a row has no value."""
    values = measured(bar, rows)
    known = {name: value for name, value in values.items() if value is not None}
    worst = (min if bar.at_least else max)(known, key=known.get, default=None)
    value = bar.combine(known.values()) if known else None
    met = None
    if known:
        met = (value >= bar.limit if bar.at_least else value <= bar.limit) and len(known) == len(values)
    return {"bar": bar.text, "limit": bar.limit, "at_least": bar.at_least, "value": value, "met": met,
            "rows": len(values), "rows_without": len(values) - len(known), "worst": worst,
            "worst_value": known.get(worst)}


def means_of(rows):
    """By operator: geometric means of ratios, and the mean overlap; a ratio is left out if no row has it."""
    ratios = {"total_over_free": over("free_us"), "total_over_gemm": over("gemm_us"),
              "total_over_sequential": over("sequential_us"), "total_over_pytorch": over(fastest_peer)}
    means = {}
    for operator in OPERATORS.values():
        chosen = [row for row in rows if row["operator"] == operator]
        if not chosen:
            continue
        means[operator] = {"rows": len(chosen)}
        for name, ratio in ratios.items():
            values = [value for value in map(ratio, chosen) if value is not None]
            if values:
                means[operator][name] = geomean(values)
        overlaps = [value for value in map(overlap_of, chosen) if value is not None]
        if overlaps:
            means[operator]["overlap_mean"] = statistics.fmean(overlaps)
    return means


def bars_of(rows):
    """Each goal judged, and the means."""
    return {"list": [judge(bar, rows) for bar in BARS], "means": means_of(rows)}


def text_of(bars):
    """Both tables, as text."""
    lines = [f"{'':<22}{'rows':>6}{'/free':>8}{'/gemm':>8}{'/seq':>8}{'/PyTorch':>10}{'overlap':>9}   geometric means"]
    number = lambda value, width: f"{value:{width}.3f}" if value is not None else " " * (width - 1) + "-"
    for operator, means in bars["means"].items():
        lines.append(f"{operator:<22}{means['rows']:>6}" + "".join(number(means.get(name), width) for name, width in (
            ("total_over_free", 8), ("total_over_gemm", 8), ("total_over_sequential", 8), ("total_over_pytorch", 10),
            ("overlap_mean", 9))))
    lines.append("")
    for bar in bars["list"]:
        met = {True: "met", False: "MISSED", None: "not measured"}[bar["met"]]
        sign = ">=" if bar["at_least"] else "<="
        worst = f"   worst: {bar['worst']} ({bar['worst_value']:.3f})" if bar["worst"] else ""
        without = f", {bar['rows_without']} of {bar['rows']} rows without" if bar["rows_without"] else ""
        lines.append(f"{bar['bar']:<62}{number(bar['value'], 8)} {sign} {bar['limit']:.2f}  {met}{without}{worst}")
    return "\n".join(lines)


class BadFile(Exception):
    """The fault of a file, in one line."""


# Fields of a row that goals use, and their types.
NUMBER = (int, float, type(None))
FIELDS = {"operator": str, "m": int, "n": int, "k": int, "peers": dict, "total_us": NUMBER, "gemm_us": NUMBER,
          "free_us": NUMBER, "sequential_us": NUMBER}


def rows_of(path):
    """The rows of a file of bench/peers.py."""
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise BadFile(f"{path}: no JSON: {error}") from None
    rows = result.get("rows") if isinstance(result, dict) else None
    if not isinstance(rows, list) or not rows:
        raise BadFile(f"{path}: has no rows, so it is no file of bench/peers.py")
    rows = [whole(row) if isinstance(row, dict) else {} for row in rows]
    for number, row in enumerate(rows):
        for name, kinds in FIELDS.items():
            if name not in row or not isinstance(row[name], kinds):
                what = "is wrong" if name in row else "is missing"
                raise BadFile(f"{path}: `{name}` of row {number} {what}, so it is no file of bench/peers.py")
        times = row["peers"].values()
        if row["operator"] not in OPERATORS.values() or not all(isinstance(time, (int, float)) for time in times):
            raise BadFile(f"{path}: row {number} is not one of bench/peers.py")
    return rows


def short(name):
    """A row's sizes after AG, RS or AR."""
    operator, sizes = name.split(" ", 1)
    return f"{next(key for key, value in OPERATORS.items() if value == operator)} {sizes}"


def missing_rows(bar, judged, rows):
    """Rows of a goal that is not met: those beyond it (of a mean: the worst one), and those without a value."""
    if judged["met"] is not False:
        return []
    beyond = lambda value: value < bar.limit if bar.at_least else value > bar.limit
    each_row = bar.combine in (max, min)
    return [name for name, value in measured(bar, rows).items()
            if value is None or (beyond(value) if each_row else name == judged["worst"])]


def worst_text(judged):
    """The worst row of a judged goal, with its value if the goal is about a mean."""
    if judged["worst"] is None:
        return ""
    of_mean = judged["worst_value"] != judged["value"]
    return short(judged["worst"]) + (f": {judged['worst_value']:.3f}" if of_mean else "")


def value_text(judged):
    if judged["value"] is None:
        return "not measured"
    return f"**{judged['value']:.3f} missed**" if judged["met"] is False else f"{judged['value']:.3f}"


def markdown_of(machines):
    """A Markdown table with a column for each machine, {name: rows}. Each row that misses a goal is a link to the
    heading of its name."""
    first, *_ = machines
    lines = [f"| goal | wanted | {' | '.join(machines)} | worst row, {first} | rows that miss it |",
             "|---" * (len(machines) + 4) + "|"]
    met = {name: [] for name in machines}
    for bar in BARS:
        judged = {name: judge(bar, rows) for name, rows in machines.items()}
        missing = dict.fromkeys(short(row) for name, one in judged.items()
                                for row in missing_rows(bar, one, machines[name]))
        for name, one in judged.items():
            met[name].append(one["met"])
        cells = [bar.text, f"{'>=' if bar.at_least else '<='} {bar.limit:.2f}", *map(value_text, judged.values()),
                 worst_text(judged[first]), ", ".join(f"[{row}](#{row.lower().replace(' ', '-')})" for row in missing)]
        lines.append("|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|")
    counts = [f"{one.count(True)} of {len(one) - one.count(None)}" for one in met.values()]
    return "\n".join([*lines, f"| goals met | | {' | '.join(counts)} | | |"])


def named(argument):
    """(name, path) of NAME=FILE, or of FILE, whose name is that of the file."""
    name, equals, path = argument.partition("=")
    return (name, path) if equals else (pathlib.Path(argument).stem, argument)


def main():
    parser = argparse.ArgumentParser(description="How far results of bench/peers.py are from what tilewire wants.")
    parser.add_argument("--markdown", action="store_true", help="one table of Markdown, a column for each file")
    parser.add_argument("files", nargs="+", metavar="[NAME=]FILE", help="results of bench/peers.py")
    options = parser.parse_args()
    if len(options.files) > 1 and not options.markdown:
        parser.error("several files need --markdown")
    try:
        machines = {name: rows_of(path) for name, path in map(named, options.files)}
    except BadFile as error:
        print(f"bench/bars.py: {error}", file=sys.stderr)
        sys.exit(2)
    if len(machines) < len(options.files):
        parser.error("two files have the same name")
    print(markdown_of(machines) if options.markdown else text_of(bars_of(next(iter(machines.values())))))


if __name__ == "__main__":
    main()
