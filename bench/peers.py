#!/usr/bin/env python3
"""Measures tilewire on the GPUs of one host beside cuBLAS, NCCL and PyTorch, interleaved in one process group.

  torchrun --nproc-per-node 4 bench/peers.py --library build/release/lib/libtilewire_c.so --json peers.json

Contenders: tilewire through its C interface, with each config that `auto` measures (candidates.py; the fastest is `ours`);
cuBLAS, then NCCL (`sequential`); cuBLAS alone (`gemm`); NCCL alone (`comm`); cuBLAS and copies of the same bytes at once,
independent of each other (`free`); PyTorch's symmetric-memory operators. Contenders with cuBLAS are measured twice, with
PyTorch's call and with the fastest of cuBLASLt's candidates; the faster one counts. bf16, B stored [N, K], sizes over all
ranks.

Method: interleaved (A B C A B C ...), CUDA events around each call. A barrier and a write that empties the L2 cache come
before each call, and the host enqueues ahead. Medians of the slowest rank of every sample; bursts of less than 20 ms with
pauses between. With M <= 512 the competitors are replayed from CUDA graphs, and with --graphs tilewire, too. tilewire's
result is compared with cuBLAS + NCCL on fresh random data, with poison in its output. A contender that fails is reported by
name, and the others continue, unless the GPU is unusable then. Fields of the JSON: docs/bench_json.md.
"""
import argparse
import datetime
import json
import math
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

# NOTE: set before torch is loaded. No contender uses NVLink multicast.
os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"

import torch
import torch.distributed as dist

import result_files
from bars import LINK_BYTES_PER_S, bars_of, fastest_peer, link_us_of, over, overlap_of, text_of
from candidates import OPERATORS, candidates, name_of
from contenders import Case, Ours, Ranks
from result_files import FASTEST, YARDSTICKS
from tilewire_ctypes import Team

BURST_US = 18e3
MOST_GRAPH_ROWS = 512
SHAPES = [
    ["ag", 8192, 49152, 12288], ["ag", 4096, 49152, 12288], ["ag", 2048, 49152, 12288], ["ag", 1024, 49152, 12288],
    ["ag", 512, 49152, 12288], ["ag", 64, 49152, 12288], ["ag", 8192, 57344, 8192], ["ag", 8192, 10240, 8192],
    ["rs", 8192, 12288, 49152], ["rs", 4096, 12288, 49152], ["rs", 2048, 12288, 49152], ["rs", 1024, 12288, 49152],
    ["rs", 512, 12288, 49152], ["rs", 64, 12288, 49152], ["rs", 8192, 8192, 28672], ["rs", 8192, 8192, 8192],
    ["ar", 1024, 8192, 28672], ["ar", 1024, 8192, 8192], ["ar", 64, 8192, 28672], ["ar", 64, 8192, 8192],
]
MOST_ERROR = 0.02


def captured(call):
    """A replay of the call, as a CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    # NOTE: other threads of this process may call CUDA during the capture.
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
        call()

    # NOTE: keeps the call alive, which owns memory of the graph.
    def replay(_owner=call):
        graph.replay()

    return replay


def in_words(error):
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def prepare(ranks, make, graph):
    """A contender's call, after runs on all ranks, and its cost in us; or the error that stopped it."""
    call, error, events = None, None, [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def begin():
        nonlocal call
        call = make()

    def capture():
        nonlocal call
        call = captured(call)

    def timed():
        events[0].record()
        call()
        events[1].record()

    again = lambda: call()
    for step in (begin, again, again, *((capture, again) if graph else ()), timed, torch.cuda.synchronize):
        ranks.meet()  # every rank equally often, also after an error
        try:
            if error is None:
                step()
        except Exception as caught:  # continue with the other contenders
            error = in_words(caught)
    error = ranks.first_error(error)
    if error:
        return None, 0, error
    return call, ranks.most([events[0].elapsed_time(events[1]) * 1e3])[0], None


def measure(ranks, contenders, turns):
    """Samples in us of every contender, interleaved; of each the slowest rank. A contender that fails is dropped."""
    calls, costs, errors = contenders.calls, contenders.costs, {}
    marks = {name: [] for name in calls}
    spent = math.inf
    for _ in range(turns):
        for name, call in calls.items():
            if spent + costs[name] > BURST_US:
                torch.cuda.synchronize()
                time.sleep(0.03)
                spent = 0
            spent += costs[name] + 50
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            ranks.meet()
            start.record()
            try:
                # A contender that has failed on this rank is not called again on it; the ranks agree below.
                if name not in errors:
                    call()
            except Exception as caught:  # continue with the other contenders
                errors[name] = in_words(caught)
            end.record()
            marks[name].append((start, end))
    torch.cuda.synchronize()
    for name in list(marks):
        contenders.drop(name, ranks.first_error(errors.get(name)))
    return {name: ranks.most([start.elapsed_time(end) * 1e3 for start, end in marks[name]]) for name in calls}


class Contenders:
    """The contenders of one shape, by name, with their costs; and the errors of those that do not run."""

    def __init__(self, ranks, row):
        self._ranks, self._row = ranks, row
        self.calls, self.costs = {}, {}

    def enter(self, name, make, graph):
        """Add a contender if it runs: as a CUDA graph if that is wished and possible."""
        call, cost, error = prepare(self._ranks, make, graph)
        if error and graph:
            self._row["errors"][f"{name} as a graph"] = error
            graph = False
            call, cost, error = prepare(self._ranks, make, graph)
        if error:
            self._row["errors"][name] = error
            return
        self.calls[name], self.costs[name] = call, cost
        if graph:
            self._row["graphs"].append(name)

    def note(self, name, error):
        """Note why a contender is not measured."""
        self._row["errors"][name] = error

    def drop(self, name, error):
        """Drop a contender if there is an error."""
        if error:
            self._row["errors"][name] = error
            del self.calls[name]


class OurConfigs:
    """tilewire's contenders of a shape: one for each of its configs."""

    def __init__(self, ranks, team, case, options):
        self._ranks, self._team, self._case, self._problem = ranks, team, case, options.problem.get(case.kind, {})
        self._refusal = None
        try:
            listed = options.config.get(case.kind) or candidates(options.command, case.kind, *case.sizes, ranks.size,
                                                                 options.all_candidates)
        except (OSError, ValueError) as error:
            listed, self._refusal = [], str(error)
        if options.all_candidates and case.kind not in options.config:
            listed = [*listed, "auto_again"]
        self._configs = {f"ours: {name_of(config)}": config for config in listed}
        self._ours, self._errors = None, {}

    def enter(self, contenders, graphs):
        if self._refusal:
            contenders.note("ours", self._refusal)
        for name, config in self._configs.items():
            contenders.enter(name, lambda name=name, config=config: self._make(name, config), graphs)

    def _make(self, name, config):
        if self._team is None:
            raise RuntimeError("no team")
        self._ours = self._ours or Ours(self._team, self._case, self._problem)
        return self._ours.make(name, config)

    def verify(self, contenders):
        """Errors of all contenders that still run, on fresh data. A contender that fails now is dropped."""
        running = [name for name in self._configs if name in contenders.calls]
        if running:
            self._ours.expect()
        for name in running:
            error, caught_text = math.inf, None
            try:
                error = self._ours.error(contenders.calls[name])
            except Exception as caught:  # continue with the other contenders
                caught_text = in_words(caught)
            contenders.drop(name, self._ranks.first_error(caught_text))
            self._errors.setdefault(name, []).extend(self._ranks.most([error]))

    def describe(self, row, samples):
        """The fields of the row about them, the fastest first. A wrong result, or a failure, makes the row wrong."""
        listed = []
        for name in [name for name in self._configs if name in samples]:
            measured = {"total_us": statistics.median(samples[name]), "rel_error": self._errors[name]}
            listed.append(self._ours.facts(name) | measured)
        row["ours"] = sorted(listed, key=lambda one: one["total_us"])
        row["rel_error"] = [error for errors in self._errors.values() for error in errors]
        failed = any(name.startswith("ours") and "unsupported: " not in text for name, text in row["errors"].items())
        row["ok"] = bool(listed) and not failed and max(row["rel_error"]) < MOST_ERROR
        row["total_us"] = None
        if listed:
            row |= {name: row["ours"][0][name] for name in ("total_us", "config", "explain")}

    def free(self):
        if self._ours:
            self._ours.free()


def measure_case(ranks, teams, shape, options):
    """One row of the result."""
    kind, m, n, k = shape
    row = {"operator": OPERATORS[kind], "m": m, "n": n, "k": k, "ranks": ranks.size, "dtype": "bf16", "graphs": [],
           "errors": {}}
    case = Case(ranks, *shape)
    graphs = m <= MOST_GRAPH_ROWS
    contenders = Contenders(ranks, row)
    ours = OurConfigs(ranks, teams.all, case, options)
    ours.enter(contenders, graphs and options.graphs)
    contenders.enter("comm", lambda: case.comm, graphs)
    fastest = case.fastest_gemm(teams.alone)
    for suffix, gemm in {"": case.gemm, FASTEST: fastest}.items():
        contenders.enter("gemm" + suffix, lambda gemm=gemm: gemm, graphs)
        contenders.enter("sequential" + suffix, lambda gemm=gemm: lambda: case.sequential(gemm), graphs)
        contenders.enter("free" + suffix, lambda gemm=gemm: case.free(gemm), graphs)
    for name, make in case.peers().items():
        contenders.enter(name, make, graphs)
    ours.verify(contenders)
    samples = measure(ranks, contenders, options.turns)
    ours.verify(contenders)
    ours.describe(row, {name: samples[name] for name in samples if name in contenders.calls})
    ours.free()
    fastest.free()
    summarize(row, samples)
    return row


def summarize(row, samples):
    median = {name: statistics.median(values) for name, values in samples.items()}
    for name in YARDSTICKS:
        row[f"{name}_us"] = min((median[one] for one in (name, name + FASTEST) if one in median), default=None)
    row["peers"] = {name: value for name, value in median.items() if name.startswith("torch")}
    row["samples_us"] = samples


def facts(ranks, team, options):
    def output_of(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0].strip()
        except (OSError, subprocess.CalledProcessError):
            return "unknown"

    here = os.path.dirname(os.path.abspath(__file__))
    return {"gpu": torch.cuda.get_device_name(), "ranks": ranks.size,
            "driver": output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
            "limits": output_of("nvidia-smi", "--query-gpu=clocks.max.sm,clocks.max.mem,power.limit", "--format=csv,noheader"),
            "torch": torch.__version__, "cuda": torch.version.cuda,
            "nccl": ".".join(str(part) for part in torch.cuda.nccl.version()),
            "tilewire": team.text("tilewire_version") if team else None,
            "commit": options.commit or output_of("git", "-C", here, "describe", "--always", "--dirty", "--abbrev=12"),
            "link_bytes_per_s": LINK_BYTES_PER_S, "turns": options.turns,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}


HEAD = (f"{'operator':<20}{'M':>6}{'N':>7}{'K':>7}{'ours':>9}{'gemm':>9}{'free':>9}{'comm':>9}{'link':>8}{'seq':>9}"
        f"{'PyTorch':>9}{'/free':>7}{'/gemm':>7}{'/seq':>7}{'overlap':>8}{'error':>9}")


def line(row):
    def number(value, width, digits=1):
        return f"{value:{width}.{digits}f}" if value is not None else " " * (width - 1) + "-"

    error = f"{max(row['rel_error']):9.1e}" if row["rel_error"] else "        -"
    times = (row["total_us"], 9), (row["gemm_us"], 9), (row["free_us"], 9), (row["comm_us"], 9), (link_us_of(row), 8), (
        row["sequential_us"], 9), (fastest_peer(row), 9)
    ratios = *((over(f"{name}_us")(row), 7) for name in ("free", "gemm", "sequential")), (overlap_of(row), 8)
    return (f"{row['operator']:<20}{row['m']:>6}{row['n']:>7}{row['k']:>7}"
            + "".join(number(value, width) for value, width in times)
            + "".join(number(value, width, 2) for value, width in ratios)
            + error + ("" if row["ok"] else "  WRONG" if row["rel_error"] else "  FAILED"))


def details(row):
    """One line for each of tilewire's configs, the fastest first, and for each failure."""
    configs = [f"    {one['total_us']:9.1f}  {one['name']}" for one in row["ours"]]
    return configs + [f"    {name}: {text}" for name, text in row["errors"].items()]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/release/lib/libtilewire_c.so", help="tilewire's C library")
    parser.add_argument("--shapes", type=json.loads, default=SHAPES,
                        help='JSON: [["ag", M, N, K], ["rs", ...], ["ar", ...]]')
    parser.add_argument("--only", choices=list(OPERATORS), help="the shapes of one operator")
    parser.add_argument("--config", type=json.loads, default={},
                        help="JSON of tilewire's config or of a list of configs, for all operators or by operator: "
                        '{"ag": [{...}, {...}], "rs": "auto"}; default: candidates.py')
    parser.add_argument("--command", default="build/release/bin/tilewire", help="the command tilewire, which lists configs")
    parser.add_argument("--all-candidates", action="store_true",
                        help="all candidates, not only those that auto measures, and auto")
    parser.add_argument("--problem", type=json.loads, default={},
                        help='JSON of more fields of the problem by operator: {"ar": {"arena": []}}')
    parser.add_argument("--turns", type=int, default=31)
    parser.add_argument("--graphs", action="store_true",
                        help=f"tilewire from CUDA graphs too, where M <= {MOST_GRAPH_ROWS}")
    parser.add_argument("--json", help="where to write the result")
    parser.add_argument("--commit", help="what to call the commit, where there is no git")
    options = parser.parse_args(arguments)
    by_operator = isinstance(options.config, dict) and set(options.config) <= set(OPERATORS)
    given = options.config if by_operator else dict.fromkeys(OPERATORS, options.config)
    options.config = {kind: config if isinstance(config, list) else [config] for kind, config in given.items()}
    options.shapes = [shape for shape in options.shapes if options.only in (None, shape[0])]
    return options


@dataclass
class Teams:
    """tilewire's teams: of all ranks, and of this rank alone. None if joining has failed."""
    all: Team | None = None
    alone: Team | None = None

    def leave(self):
        for team in (self.all, self.alone):
            if team:
                team.leave()


def join(ranks, options):
    """The teams, and the error if there are none: the other contenders are still measured."""
    teams, error = Teams(), None
    try:
        teams.all = Team(options.library, "cuda", 16 << 30)
        teams.alone = Team(options.library, "cuda", 1 << 28, alone_on=ranks.device.index)
    except Exception as caught:  # measure the other contenders
        error = str(caught)
    return teams, ranks.first_error(error)


def main():
    options = parse(sys.argv[1:])
    ranks = Ranks()
    teams, error = join(ranks, options)
    result = {"facts": facts(ranks, teams.all, options), "rows": []}
    say = print if ranks.rank == 0 else lambda *_, **__: None
    troubles = [f"ours: {error}"] if error else []
    say(json.dumps(result["facts"]), *troubles, "us, medians, slowest rank", HEAD, sep="\n", flush=True)
    for shape in options.shapes:
        if any(size % ranks.size for size in shape[1:]):
            say(f"{shape}: left out, NCCL and PyTorch want multiples of {ranks.size} ranks")
            continue
        torch.manual_seed(1000 + ranks.rank)
        row = measure_case(ranks, teams, shape, options)
        result["rows"].append(row)
        say(line(row), *details(row), sep="\n", flush=True)
        torch.cuda.empty_cache()
        if options.json and ranks.rank == 0:
            result_files.write(options.json, result)
    if result["rows"]:
        say("", text_of(bars_of(result["rows"])), sep="\n", flush=True)
    teams.leave()
    dist.destroy_process_group()
    return 0 if all(row["ok"] for row in result["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
