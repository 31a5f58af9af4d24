#!/usr/bin/env python3
"""Measures the worth of each knob: configs that differ in one knob, interleaved; writes one file and one table.

  bench/ablations.py --ranks 4 --json ablations.json

Called by hand on GPUs, about a minute and a half on four; tests/bench calls it with --small on the host. It starts
`tilewire bench` once for each shape, with --configs. bench/plots.py draws the file. Fields of the JSON: docs/bench_json.md.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

import result_files

TILES = {"tile_m": 128, "tile_n": 256, "cluster_m": 2, "group_m": 16}
SMALL_TILES = {"tile_m": 16, "tile_n": 16, "group_m": 2}
# The values of knobs that are set neither by a config nor by a schedule's own choice for GPUs.
DEFAULTS = {"tile_order": "rank_shifted", "direction": "push", "rounds": 1, "algorithm": "direct", "reduce_mode": "staged",
            "reduce_when": "beside", "group_owners": 1}
OTHER_TILES = [(256, 128, 1), (128, 192, 1), (128, 160, 1), (128, 128, 1), (64, 128, 1)]


@dataclass
class Shape:
    """A problem, and groups of configs to compare: title -> label -> knobs besides the tiles, or (schedule, knobs)."""
    operator: str
    m: int
    n: int
    k: int
    flags: list = field(default_factory=list)
    groups: dict = field(default_factory=dict)


def halves(rows, least):
    """rows, rows / 2, rows / 4 ... down to `least`."""
    sizes = []
    while rows >= least:
        sizes.append(rows)
        rows //= 2
    return sizes


def tile_shapes(knobs, small):
    if small:
        return {"16x16": knobs, "32x16": knobs | {"tile_m": 32}}
    others = {f"{m}x{n}": knobs | {"tile_m": m, "tile_n": n, "cluster_m": cluster, "group_m": 2048 // m}
              for m, n, cluster in OTHER_TILES}
    return {"128x256, pairs": knobs, "128x256": knobs | {"cluster_m": 1}} | others


def tiles_of(small):
    return SMALL_TILES if small else TILES


def owners_together(knobs, ranks, shard, small):
    """Numbers of owners whose tiles are one group of the tile order, so that B is read once for them. Large shards
    need no such group."""
    tiles = tiles_of(small)
    if shard >= tiles["tile_m"] * tiles["group_m"]:
        return {"1": knobs}
    return {str(owners): knobs | {"group_owners": owners} for owners in range(1, ranks + 1)}


def gather_groups(ranks, shard, k, small):
    """AllGather + GEMM: copies by copy engines in lockstep, and by storing threads."""
    engines = {"transport": "copy_engine", "pacing": "lockstep"}
    unpaced = engines | {"pacing": "unpaced"}
    store = {"transport": "store", "pacing": "unpaced", "chunk_rows": max(1, shard // 32)}
    least = max(1, shard // 4) if small else 128
    both = {"engines": engines, "store": store}
    return {
        "tile_order": {f"{order}, {name}": knobs | {"tile_order": order} for name, knobs in both.items()
                  for order in ("rank_shifted", "naive")},
        "direction": {f"{direction}, {name}": knobs | {"direction": direction} for name, knobs in both.items()
                      for direction in ("push", "pull")},
        "rows of a copy, engines": {str(rows): engines | {"chunk_rows": rows} for rows in halves(shard, least)},
        "rows of a copy, store": {str(rows): store | {"chunk_rows": rows} for rows in halves(shard, least)},
        "pacing": {pacing: engines | {"pacing": pacing} for pacing in ("unpaced", "lockstep")},
        "pacing, store": {pacing: store | {"pacing": pacing} for pacing in ("unpaced", "lockstep")},
        "owners together": owners_together(engines, ranks, shard, small),
        "rounds": {str(rounds): engines | {"rounds": rounds} for rounds in (1, 2, 4)},
        "columns of a copy, unpaced": {str(cols): unpaced | ({"chunk_cols": cols} if cols < k else {})
                                       for cols in (k, k // 2, k // 4)},
        "way": {"engines": engines, "store": store, "ring": engines | {"algorithm": "ring", "pacing": "unpaced"},
                "sequential": ("sequential", {})},
        "tiles": tile_shapes(engines, small),
    }


def reduction_groups(operator, ranks, shard, tile_transport, small):
    """GEMM + ReduceScatter and GEMM + AllReduce: tiles that are sent when they are finished, and summed as they
    arrive."""
    tiles, store = {"transport": tile_transport}, {"transport": "store"}
    scatters = operator == "gemm_reduce_scatter"
    chunks = {"chunk_rows": max(1, shard // 4)} if scatters else {}
    engines = {"transport": "copy_engine", "pacing": "lockstep"} | chunks
    groups = {
        "tile_order": {order: tiles | {"tile_order": order} for order in ("rank_shifted", "naive")},
        "transport": {"threads store": store, "bulk copies": {"transport": "bulk"},
                      "tensor copies": {"transport": "tma"},
                      "copy engines": engines, "flags in the data": {"transport": "ll"}},
        "reduce_mode": {"staged": tiles, "pull": store | {"reduce_mode": "pull"},
                      "accumulate": tiles | {"reduce_mode": "accumulate"}},
        "rounds": {str(rounds): tiles | {"rounds": rounds} for rounds in (1, 2, 4, 8)},
        "owners together": owners_together(tiles, ranks, shard, small),
        "algorithm": {name: knobs | {"algorithm": name} for name, knobs in
                      (("direct", tiles), ("two_phase", tiles), ("one_shot", tiles), ("ring", store))},
        "sums": {when: tiles | {"reduce_when": when} for when in ("beside", "after")},
        "pacing, engines": {pacing: engines | {"pacing": pacing} for pacing in ("unpaced", "lockstep")},
        "way": {"tiles that leave": tiles, "copy engines": engines, "sequential": ("sequential", {})},
        "tiles": tile_shapes(tiles, small),
    }
    if scatters:
        groups["rows of a copy, engines"] = {str(rows): engines | {"chunk_rows": rows}
                                             for rows in halves(shard, max(1, shard // 4) if small else 128)}
    else:
        groups["way"]["two_stream"] = ("two_stream", {})
    return groups


def shapes(ranks, small, tile_transport):
    if small:
        sizes = [("ag", 64, 64, 32), ("rs", 64, 64, 32), ("ar", 32, 64, 32)]
    else:
        sizes = [("ag", 8192, 10240, 8192), ("ag", 8192, 49152, 12288), ("ag", 1024, 49152, 12288),
                 ("rs", 8192, 8192, 8192), ("rs", 8192, 8192, 28672), ("rs", 1024, 12288, 49152),
                 ("ar", 1024, 8192, 8192)]
    operators = {"ag": "all_gather_gemm", "rs": "gemm_reduce_scatter", "ar": "gemm_all_reduce"}
    flags = {"ag": [], "rs": ["--reduction", "any"], "ar": ["--reduction", "any", "--arena", "c"]}
    for kind, m, n, k in sizes:
        operator, shard = operators[kind], m // ranks
        if kind == "ag":
            groups = gather_groups(ranks, shard, k, small)
        else:
            groups = reduction_groups(operator, ranks, shard, tile_transport, small)
        yield kind, Shape(operator, m, n, k, flags[kind], groups)


def meaning(schedule, knobs):
    """The identity of a config: the same for equal configs, whether or not they set defaults."""
    return schedule, {knob: value for knob, value in knobs.items() if DEFAULTS.get(knob) != value}


def configs_of(shape, tiles):
    """Every config once, in the format of `--configs`, and the groups: title -> [(label, name of its config)]."""
    configs, bars = [], {}
    for title, group in shape.groups.items():
        bars[title] = []
        for label, knobs in group.items():
            schedule, knobs = knobs if isinstance(knobs, tuple) else ("fused", tiles | knobs)
            same = [one["name"] for one in configs
                    if meaning(one["schedule"], one["set"]) == meaning(schedule, knobs)]
            if not same:
                configs.append({"name": f"{title}: {label}", "schedule": schedule, "set": knobs})
            bars[title].append((label, same[0] if same else configs[-1]["name"]))
    return configs, bars


def run_bench(options, shape, configs, folder):
    """The result that `tilewire bench` has written, or the reason why there is none."""
    paths = [os.path.join(folder, name) for name in ("configs.json", "result.json")]
    with open(paths[0], "w", encoding="utf-8") as file:
        json.dump(configs, file)
    if os.path.exists(paths[1]):
        os.remove(paths[1])
    command = [options.command, "bench", shape.operator, "-m", str(shape.m), "-n", str(shape.n), "-k", str(shape.k),
               *shape.flags, "--backend", options.backend, "--ranks", str(options.ranks), "--iters", str(options.iters),
               "--warmup", "1", "--configs", paths[0], "--json", paths[1]]
    command += [] if options.verify else ["--no-verify"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=options.limit_s, check=False)
        error = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
    except subprocess.TimeoutExpired:
        return None, f"not done after {options.limit_s} s"
    if not os.path.exists(paths[1]):
        return None, error
    with open(paths[1], encoding="utf-8") as file:
        return json.load(file), None if ended.returncode == 0 else error


def sizes_of(shape):
    return {"operator": shape.operator, "m": shape.m, "n": shape.n, "k": shape.k}


def print_table(shape, bars, rows, refused):
    print(f"\n{shape.operator} {shape.m} {shape.n} {shape.k}")
    if not rows:
        return
    any_row = next(iter(rows.values()))
    yardsticks = [f"{name} {any_row[name + '_us']:.1f}" for name in ("gemm", "free", "link", "sequential")
                  if any_row.get(name + "_us")]
    print(f"  us: {', '.join(yardsticks)}{', graphs' if any_row.get('graphs') else ''}")
    for title, group in bars.items():
        known = [rows[name]["total_us"] for _, name in group if name in rows]
        print(f"  {title}")
        for label, name in group:
            if name in rows:
                total = rows[name]["total_us"]
                wrong = "  WRONG" if rows[name]["ok"] is False else ""
                print(f"    {label:<28}{total:10.1f}{total / min(known):7.2f}{wrong}")
            else:
                print(f"    {label:<28}         -   {refused.get(name, 'not measured')}")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default="build/release/bin/tilewire", help="the executable")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--iters", type=int, default=11)
    parser.add_argument("--only", choices=["ag", "rs", "ar"], help="the shapes of one operator")
    parser.add_argument("--verify", action="store_true", help="compare each result with the reference: takes long")
    parser.add_argument("--small", action="store_true", help="tiny shapes and tiles, for a test on the host")
    parser.add_argument("--limit-s", type=float, default=120, help="longest time for one shape")
    parser.add_argument("--json", required=True, help="where to write the result")
    return parser.parse_args(arguments)


def main():
    options = parse(sys.argv[1:])
    tiles = tiles_of(options.small)
    result = {"machine": None, "backend": options.backend, "ranks": options.ranks, "shapes": [], "rows": [],
              "refused": [], "errors": []}
    tile_transport = "tma" if options.backend == "cuda" else "store"
    with tempfile.TemporaryDirectory() as folder:
        for kind, shape in shapes(options.ranks, options.small, tile_transport):
            if options.only not in (None, kind):
                continue
            configs, bars = configs_of(shape, tiles)
            measured, error = run_bench(options, shape, configs, folder)
            if error:
                result["errors"].append(sizes_of(shape) | {"error": error})
            measured = measured or {"machine": result["machine"], "rows": [], "refused": []}
            result["machine"] = measured["machine"]
            result["rows"] += measured["rows"]
            result["refused"] += measured["refused"]
            result["shapes"].append(sizes_of(shape) | {"groups": [
                {"title": title, "bars": [{"label": label, "name": name} for label, name in group]}
                for title, group in bars.items()]})
            print_table(shape, bars, {row["name"]: row for row in measured["rows"]},
                        {one["name"]: one["reason"] for one in measured["refused"]})
            if error:
                print(f"  FAILED: {error}")
            sys.stdout.flush()
            result_files.write(options.json, result)
    return 1 if result["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
