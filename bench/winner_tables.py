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


def rows_of(files):
    """The rows of one machine, each as (operator, m, n, k, us, config); the first file that has a problem counts."""
    found = {}
    for file in files:
        for row in json.loads((BENCH / "results" / f"{file}.json").read_text())["rows"]:
            problem = (row["operator"], row["m"], row["n"], row["k"])
            found.setdefault(problem, {"us": row["total_us"], "config": row["config"]})
    return [dict(zip(("op", "m", "n", "k"), problem), **found[problem]) for problem in sorted(found)]


def table_of(files):
    """The text of a table: one row a line."""
    lines = ",\n".join("  " + json.dumps(row, sort_keys=False) for row in rows_of(files))
    return '{"from": ' + json.dumps(files) + ', "dtype": "bf16", "rows": [\n' + lines + "\n]}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="only say which tables differ, and exit 1 if any does")
    check = parser.parse_args().check
    differ = []
    for machine, files in MACHINES.items():
        path = TABLES / f"{machine}.json"
        text = table_of(files)
        if path.exists() and path.read_text() == text:
            continue
        differ.append(path.name)
        if not check:
            path.write_text(text)
    print(f"{'differ' if check else 'written'}: {', '.join(differ) or 'none'}")
    return int(check and bool(differ))


if __name__ == "__main__":
    sys.exit(main())
