#!/usr/bin/env python3
"""Result files: medians, quartiles and counts instead of samples, five digits, one row per line.

Used by the other scripts of this folder; alone it rewrites files in this form, also those of the C++ programs:

  bench/result_files.py bench/results/peers_x4.json bench/results/t3_ring.json

Samples become [lower quartile, median, upper quartile] and `num_samples`. Left out: empty fields, fields that follow from
others, and values that a program prints in every run; `whole` computes those that readers of peers.py's rows need. A file in
this form stays as it is. Fields: docs/bench_json.md. Needs neither torch nor a GPU.
"""
import json
import math
import pathlib
import statistics
import sys

FASTEST = ", fastest candidate"  # of a contender of peers.py whose GEMM is the fastest of cuBLASLt's candidates
YARDSTICKS = ("gemm", "comm", "free", "sequential")  # of peers.py
# Fields of a row of peers.py. `tilewire sim --compare` needs those from `operator` to `comm_us`.
PEERS = ("operator", "m", "n", "k", "ranks", "config", "total_us", "gemm_us", "comm_us", "configs", "us", "num_samples",
         "graphs", "rel_error", "ok", "errors")
SAMPLES = ("samples_us", "ours_us", "cublaslt_us")
# Ratios and differences of other fields, a field that repeats another one, and prose.
DERIVED = ("ect_us", "overlap", "total_over_free", "total_over_gemm", "total_over_sequential", "after_over_before", "ratio",
           "fused_us", "fused_over_plain", "fused_over_sequential", "sequential_over_plain", "traffic_reduction", "explain")


def quartiles(samples):
    """A single sample is all three of them."""
    return statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3


def of_peers(row):
    """A row of peers.py: of tilewire's configs the fastest, of cuBLAS's two GEMMs the faster, in each contender that
    has one."""
    ours = row["ours"][0]["name"] if row.get("ours") else "ours"
    us = row["us"] if "us" in row else {name: quartiles(samples) for name, samples in row["samples_us"].items()}
    graphs = us if row.get("graphs") is True else row.get("graphs", ())
    measured = {"ours": ours} if ours in us else {}  # contender: its name in `us`
    for name in (one for one in us if not one.startswith("ours")):
        contender = name.removesuffix(FASTEST)
        if contender not in measured or us[name][1] < us[measured[contender]][1]:
            measured[contender] = name
    medians = {name: row.get(f"{name}_us") for name in YARDSTICKS} | {"ours": row.get("total_us")} | row.get("peers", {})
    samples = map(len, row.get("samples_us", {}).values())
    row = {"num_samples": max(samples, default=0), "configs": len(row.get("ours", ()))} | row
    row["us"] = {name: [us[one][0], medians.get(name) or us[one][1], us[one][2]] for name, one in measured.items()}
    row["graphs"] = [name for name, one in measured.items() if one in graphs]
    if row["graphs"] and len(row["graphs"]) == len(measured):
        row["graphs"] = True
    if isinstance(row.get("rel_error"), list):
        row["rel_error"] = max(row["rel_error"], default=None)
    empty = lambda name: row.get(name) in (None, [], {}) and (name not in row or name not in ("config", "us"))
    return {name: row[name] for name in PEERS if not empty(name)}


def without_samples(row):
    """Quartiles and counts instead of lists of samples, and instead of `samples` of bench/report.cpp."""
    lists = {key: row[key] for key in SAMPLES if key in row}
    lists |= {key: value["samples"] for key, value in row.items() if isinstance(value, dict) and "samples" in value}
    if not lists or "num_samples" in row:
        return row
    row = row | {"num_samples": max(map(len, lists.values()))}
    for key, samples in lists.items():
        value = row.pop(key)
        chosen = {"config": value["config"], "quartiles_us": quartiles(samples)} if "config" in value else quartiles(samples)
        row["us" if key == "samples_us" else key] = chosen
    return row


def condensed(row):
    """A row in the form of the file."""
    by_name = isinstance(row.get("samples_us", row.get("us")), dict)
    row = of_peers(row) if by_name else without_samples(row)
    return {key: value for key, value in row.items() if value is not None and key not in DERIVED}


def median_of(us, name):
    """The median of quartiles. Anything else stays as it is, so that a reader refuses it."""
    values = us.get(name)
    return values[1] if isinstance(values, list) and len(values) == 3 else values


def whole(row):
    """A row of peers.py with the times that its file leaves out; any other row as it is."""
    us = row.get("us")
    if not isinstance(us, dict):
        return row
    left_out = {f"{name}_us": median_of(us, name) for name in YARDSTICKS} | {"total_us": median_of(us, "ours")}
    return left_out | {"peers": {name: median_of(us, name) for name in us if name.startswith("torch")}} | row


def read(path):
    """The result in a file, with whole rows."""
    result = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    return result | {"rows": [whole(row) for row in result["rows"]]}


def without(rows, *names):
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def named(machine):
    """Only the machine's name: the simulator's machines are in src/backends/sim/machines."""
    return {"name": machine["name"]}


def of_compare(result):
    """`tilewire sim --compare`: without the configs, which are in the compared file."""
    return result | {"machine": named(result["machine"]), "rows": without(result["rows"], "config")}


def of_t3(result):
    """`tilewire-studies t3`: the data of plot_t3.py. Assumptions and the order of configurations are only printed."""
    kept = {key: value for key, value in result.items() if key not in ("assumed", "out_of_order")}
    kept["machine"] = named(result["machine"])
    if "twice_cu" in result:
        kept["twice_cu"] = without(result["twice_cu"], "traffic", *DERIVED)
    return kept


def of_claims(result):
    """`tilewire-studies claims`: the figures. Assumptions and uncovered claims are only printed; --json has all
    times."""
    kept = {key: value for key, value in result.items() if key not in ("not_covered", "points")}
    kept |= {"machine": named(result["machine"])} if "machine" in result else {}
    return kept | {"machines": [named(machine) for machine in result["machines"]],
                   "claims": without(result["claims"], "assumed", "difference")}


KINDS = {"geometric_mean_error": of_compare, "end_to_end": of_t3, "claims": of_claims}  # by a key of this kind alone


def rounded(value):
    """To five digits, whole numbers without a point. Infinities become null, as JSON has none."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    if isinstance(value, float):
        near = float(f"{value:.5g}") if math.isfinite(value) else None
        return int(near) if near is not None and near.is_integer() else near
    return value


def line_of(value):
    return json.dumps(rounded(value), allow_nan=False, separators=(",", ":"))


def text_of(result):
    """JSON with one line for each row, or for each entry of another list."""
    for key, of_kind in KINDS.items():
        if key in result:
            result = of_kind(result)
    lines = []
    for key, value in result.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n  ".join(line_of(condensed(row) if key == "rows" else row) for row in value)
            text = f"[\n  {rows}\n ]"
        else:
            text = line_of(value)
        lines.append(f' {json.dumps(key)}: {text}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write(path, result):
    """Write a result in this form."""
    pathlib.Path(path).write_text(text_of(result), encoding="utf-8")


def main():
    for path in sys.argv[1:]:
        write(path, json.loads(pathlib.Path(path).read_text(encoding="utf-8")))
    return 0 if len(sys.argv) > 1 else 2


if __name__ == "__main__":
    sys.exit(main())
