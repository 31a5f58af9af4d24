#!/usr/bin/env python3
"""Prints when the tasks of a trace ran (the Chrome JSON that `tilewire bench --trace` writes, or the same as .xz): for each
rank, lane and kind their number, and the least, median and largest of their starts, ends and durations in us, on one clock
from the first start on.

Usage: tools/trace_turns.py TRACE.json[.xz] [--turn TASKS]: each TASKS tasks of a lane, in list order, have a line of their
own, such as the tiles of a wave.
"""
import argparse
import json
import lzma
import re
import statistics
import sys

TASK = re.compile(r"task (\d+) of lane (.*?) on rank")


def events_of(path):
    opened = lzma.open(path, "rt") if path.endswith(".xz") else open(path, encoding="utf-8")
    with opened as file:
        return [event for event in json.load(file)["traceEvents"] if event["ph"] == "X" and "task" in event["args"]]


def spread(values):
    return "".join(f"{value:9.1f}" for value in (min(values), statistics.median(values), max(values)))


def lines_of(events, turn):
    """A line for each rank, lane and kind, or for each group of `turn` tasks of these."""
    begin = min(event["ts"] for event in events)
    groups = {}
    for event in events:
        task, lane = TASK.match(event["args"]["task"]).groups()
        key = (event["pid"], lane, event["name"])
        groups.setdefault(key, []).append((int(task), event["ts"] - begin, event["ts"] - begin + event["dur"]))
    for (rank, lane, kind), tasks in sorted(groups.items()):
        tasks.sort()
        step = turn or len(tasks)
        for first in range(0, len(tasks), step):
            some = tasks[first:first + step]
            starts, ends = [start for _, start, _ in some], [end for _, _, end in some]
            durations = [end - start for _, start, end in some]
            yield f"{rank:>4} {lane:<10} {kind:<10}{len(some):>6}{spread(starts)} {spread(ends)} {spread(durations)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--turn", type=int, default=0, help="tasks of a line (default: all)")
    options = parser.parse_args()
    events = events_of(options.trace)
    if not events:
        print(f"{options.trace}: no tasks", file=sys.stderr)
        return 1
    print(f"{'rank':>4} {'lane':<10} {'kind':<10}{'tasks':>6}{'start: least, median, most':>27} {'end':>27} {'duration':>27}")
    print(*lines_of(events, options.turn), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
