#!/usr/bin/env python3
"""Results as files: medians, quartiles and their number instead of samples, a row a line.

Used by bench/peers.py and bench/ablations.py; alone it writes files anew in this form:

  bench/result_files.py bench/results/peers_x4.json

A list of samples, `samples_us`, becomes `us` = [lower quartile, median, upper quartile] and `num_samples`. Of a row of peers.py
`us` has such a list by name: of each alternative, and as "ours" of the fastest config, which is the row's `config`.
Needs neither torch nor a GPU.
"""
import json
import math
import pathlib
import statistics
import sys


def quartiles(samples):
    """Of one sample all three are it."""
    if len(samples) == 1:
        return [round(samples[0], 2)] * 3
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return [round(low, 2), round(middle, 2), round(high, 2)]


def condensed(row):
    """A row without samples, and of several configs of ours the fastest alone."""
    row = dict(row)
    samples = row.pop("samples_us", None)
    ours = row.pop("ours", None)
    row.pop("explain", None)
    if isinstance(samples, dict):
        fastest = ours[0]["name"] if ours else None
        others = [name for name in samples if not name.startswith("ours")]
        row["us"] = {name: quartiles(samples[name]) for name in others}
        if fastest in samples:
            row["us"]["ours"] = quartiles(samples[fastest])
        row["num_samples"] = max(map(len, samples.values()), default=0)
        row["configs"] = len(ours or [])
        named = {fastest: "ours"} | {name: name for name in others}
        row["graphs"] = [named[name] for name in row["graphs"] if name in named]
    elif samples:
        row |= {"us": quartiles(samples), "num_samples": len(samples)}
    if isinstance(row.get("rel_error"), list):
        row["rel_error"] = max(row["rel_error"], default=None)
    return {key: rounded(value) for key, value in row.items()}


def rounded(value):
    """To seven digits, which is more than clocks give. JSON has no infinities: they become null."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value


def text_of(result):
    """JSON with a row, or another list's entry, a line."""
    lines = []
    for key, value in result.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n  ".join(json.dumps(condensed(row) if key == "rows" else rounded(row), allow_nan=False) for row in value)
            text = f"[\n  {rows}\n ]"
        else:
            text = json.dumps(rounded(value), allow_nan=False)
        lines.append(f' {json.dumps(key)}: {text}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write(path, result):
    """A result as such a file."""
    pathlib.Path(path).write_text(text_of(result), encoding="utf-8")


def main():
    for path in sys.argv[1:]:
        write(path, json.loads(pathlib.Path(path).read_text(encoding="utf-8")))
    return 0 if len(sys.argv) > 1 else 2


if __name__ == "__main__":
    sys.exit(main())
