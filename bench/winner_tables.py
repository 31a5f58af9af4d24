#!/usr/bin/env python3
"""Write src/tuner/tables/*.json, the winners that tilewire ships, from the measured rows of bench/results.

For each machine, each row of the files below gives the fastest config of tilewire for its problem. `auto` takes it
instead of a measurement. Call it after new results: bench/winner_tables.py; with --check it compares and writes nothing.
"""
import argparse
import json
import pathlib
import sys

BENCH = pathlib.Path(__file__).resolve().parent
TABLES = BENCH.parent / "src" / "tuner" / "tables"
MACHINES = {
    "h200x2": ["peers_x2", "others_x2", "ragged_x2"],
    "h200x4": ["peers_x4", "others_x4", "ragged_x4"],
    "h100x2": ["peers_h100_x2"],
}
# Buffers in the arena when bench/peers.py measured (contenders.ARENA).
ARENA = {"gemm_all_reduce": ["c"]}
# The files are older than the GEMV kernel, which `auto` takes for so many rows.
GEMV = ("gemm_all_reduce", 16)


def read(machine, file):
    """The facts and rows of a result file, which is of that machine. Throws ValueError where it is not."""
    result = json.loads((BENCH / "results" / f"{file}.json").read_text())
    facts, rows = result["facts"], [row for row in result["rows"] if "config" in row]
    if f"x{facts['ranks']}" not in machine or any(row["ranks"] != facts["ranks"] for row in rows):
        raise ValueError(f"{file}.json has other numbers of ranks than {machine}")
    if not all(row["ok"] for row in rows):
        raise ValueError(f"{file}.json has rows with a wrong result")
    return facts, rows


def table_of(machine, files):
    """The text of a table, one row a line; the first file that has a problem counts."""
    found, gpus, commits = {}, set(), []
    for file in files:
        facts, rows = read(machine, file)
        gpus.add(facts["gpu"])
        commits.append(facts["commit"])
        for row in rows:
            problem = (row["operator"], row["m"], row["n"], row["k"])
            if problem[0] == GEMV[0] and problem[1] <= GEMV[1]:
                continue
            found.setdefault(problem, {"us": row["total_us"], "config": row["config"]})
    if len(gpus) != 1:
        raise ValueError(f"{machine}: several kinds of GPUs: {sorted(gpus)}")
    lines = []
    for problem in sorted(found):
        row = dict(zip(("op", "m", "n", "k"), problem))
        if problem[0] in ARENA:
            row["arena"] = ARENA[problem[0]]
        lines.append("  " + json.dumps(row | found[problem]))
    head = {"gpu": gpus.pop(), "ranks": int(machine[machine.index("x") + 1:]), "dtype": "bf16",
            "measured": dict(zip(files, commits))}
    return json.dumps(head)[:-1] + ', "rows": [\n' + ",\n".join(lines) + "\n]}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="only say which tables differ, and exit 1 if any does")
    check = parser.parse_args().check
    texts = {f"{machine}.json": table_of(machine, files) for machine, files in MACHINES.items()}
    differ = sorted({path.name for path in TABLES.glob("*.json")} - set(texts))
    for name, text in texts.items():
        path = TABLES / name
        if path.exists() and path.read_text() == text:
            continue
        differ.append(name)
        if not check:
            path.write_text(text)
    print(f"{'differ' if check else 'written, or not of this list'}: {', '.join(differ) or 'none'}")
    return int(check and bool(differ))


if __name__ == "__main__":
    sys.exit(main())
