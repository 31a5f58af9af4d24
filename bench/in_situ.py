#!/usr/bin/env python3
"""Measures the cost of a call in a chain, as in an inference engine: graphs of many calls, with and without other kernels.

  torchrun --nproc-per-node 2 bench/in_situ.py --library build/release/lib/libtilewire_c.so --json in_situ.json

For each row and contender, three graphs, interleaved, medians of the slowest rank: 20 calls, 40 calls, and 40 calls with
another kernel after each. `call us` = (40 - 20) / 20. `between us` = (with kernels - 40) / 40 - the kernel's own time, which
graphs of the kernel alone give in the same way. Contenders: tilewire with the library's call order (`any`), with the
caller's (`stream`), NCCL. Results are compared with NCCL's on fresh data. Fields of the JSON: docs/bench_json.md.
"""
import argparse
import json
import math
import os
import statistics
import sys

# NOTE: set before torch is loaded. No contender uses NVLink multicast.
os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"

import torch
import torch.distributed as dist

import result_files
from contenders import Ranks, view_of
from peers import facts, in_words
from tilewire_ctypes import Team

ROWS = [["all_reduce", 1, 8192, 0], ["all_reduce", 16, 8192, 0], ["all_reduce", 64, 8192, 0],
        ["gemm_all_reduce", 1, 8192, 8192], ["gemm_all_reduce", 16, 8192, 8192], ["gemm_all_reduce", 64, 8192, 8192]]
FEW, MANY = 20, 40
ORDERS = {"any": 0, "stream": 1}
MOST_ERROR = 0.02


def graph_of(calls):
    """A CUDA graph of the calls, one after another in the current stream."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    # NOTE: other threads of this process may call CUDA during the capture.
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
        for call in calls:
            call()
    return graph


class Row:
    """One operator and size: inputs, contenders by name, and the kernel that runs between their calls."""

    def __init__(self, ranks, teams, row):
        self._ranks = ranks
        self._kind, self.m, self.n, self.k = row
        size = ranks.size
        bf16 = lambda *shape: torch.randn(*shape, device=ranks.device, dtype=torch.bfloat16)
        self.x = bf16(self.m, self.k // size if self.k else self.n)
        # NOTE: weights must come from memory, so the calls of a graph use more of them than the L2 cache holds.
        copies = max(2, math.ceil(110e6 / (self.n * self.k // size * 2))) if self.k else 0
        self._weights = [bf16(self.n, self.k // size) / self.k**0.5 for _ in range(copies)]
        self.y = torch.empty(self.m, self.n, device=ranks.device, dtype=torch.bfloat16)
        self._other = torch.zeros(1 << 16, device=ranks.device)
        self._ops = []
        self.contenders = {name: self._ours(team) for name, team in teams.items()} | {"nccl": self._nccl()}

    def _ours(self, team):
        """Calls of tilewire, one for each weight."""
        problem = {"op": self._kind, "m": self.m, "n": self.n, "dtype": "bf16"} | ({"k": self.k} if self.k else {})
        op = team.make_op(problem, "auto_again")
        self._ops.append(op)
        inputs = [[view_of(self.x), view_of(weights)] for weights in self._weights] or [[view_of(self.x)]]
        runs = [op.bind(one, [view_of(self.y)]) for one in inputs]
        return [lambda run=run: run(torch.cuda.current_stream().cuda_stream) for run in runs]

    def _nccl(self):
        if not self._weights:
            return [lambda: (self.y.copy_(self.x), dist.all_reduce(self.y))]
        return [lambda weights=weights: (torch.mm(self.x, weights.t(), out=self.y), dist.all_reduce(self.y))
                for weights in self._weights]

    def between(self):
        """The other kernel, on memory that the calls do not use."""
        self._other.add_(1)

    def error(self, name):
        """|ours - NCCL's| / |NCCL's| of the first call, on fresh data, with poison in the output; the worst rank."""
        self.x.normal_()
        self.y.fill_(math.nan)
        self.contenders["nccl"][0]()
        want = self.y.float()
        self.y.fill_(math.nan)
        self.contenders[name][0]()
        torch.cuda.synchronize()
        return self._ranks.most([((self.y.float() - want).norm() / want.norm()).item()])[0]

    def free(self):
        torch.cuda.synchronize()
        for op in self._ops:
            op.free()


def measure(ranks, graphs, turns):
    """Medians in us of the graphs by name, interleaved; of each sample the slowest rank."""
    marks = {name: [] for name in graphs}
    for _ in range(turns + 2):
        for name, graph in graphs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            ranks.meet()
            start.record()
            graph.replay()
            end.record()
            marks[name].append((start, end))
        torch.cuda.synchronize()
    samples = {name: ranks.most([start.elapsed_time(end) * 1e3 for start, end in pairs[2:]]) for name, pairs in marks.items()}
    return {name: statistics.quantiles(values, n=4) for name, values in samples.items()}


def measure_row(ranks, teams, row, turns):
    """The result of a row."""
    case = Row(ranks, teams, row)
    result = {"operator": row[0], "m": row[1], "n": row[2], "k": row[3], "ranks": ranks.size, "dtype": "bf16",
              "n_samples": turns}
    result["rel_error"] = {name: case.error(name) for name in case.contenders}
    graphs = {"between few": graph_of([case.between] * FEW), "between many": graph_of([case.between] * MANY)}
    for name, calls in case.contenders.items():
        chain = [calls[i % len(calls)] for i in range(MANY)]
        graphs |= {f"{name} few": graph_of(chain[:FEW]), f"{name} many": graph_of(chain),
                   f"{name} mixed": graph_of([step for call in chain for step in (call, case.between)])}
    quartiles = measure(ranks, graphs, turns)
    us = {name: values[1] for name, values in quartiles.items()}
    own = (us["between many"] - us["between few"]) / (MANY - FEW)
    result["between_kernel_us"] = own
    result["call_us"] = {name: (us[f"{name} many"] - us[f"{name} few"]) / (MANY - FEW) for name in case.contenders}
    result["between_us"] = {name: (us[f"{name} mixed"] - us[f"{name} many"]) / MANY - own for name in case.contenders}
    result["graph_quartiles_us"] = quartiles
    case.free()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/release/lib/libtilewire_c.so", help="tilewire's C library")
    parser.add_argument("--rows", type=json.loads, default=ROWS,
                        help='JSON: [["all_reduce", M, N, 0], ["gemm_all_reduce", M, N, K]]')
    parser.add_argument("--turns", type=int, default=21)
    parser.add_argument("--json", help="where to write the result")
    parser.add_argument("--commit", help="what to call the commit, where there is no git")
    options = parser.parse_args()
    ranks = Ranks()
    job = f"in-situ-{os.environ['MASTER_PORT']}"
    teams = {name: Team(options.library, "cuda", 1 << 30, order=order, job=f"{job}-{name}") for name, order in ORDERS.items()}
    result = {"facts": facts(ranks, teams["any"], options), "rows": []}
    say = print if ranks.rank == 0 else lambda *_, **__: None
    say(json.dumps(result["facts"]), "us, medians, slowest rank; kernel: the other kernel's own time in a graph", sep="\n")
    say(f"{'operator':<18}{'M':>4}{'N':>7}{'K':>7}{'kernel':>8}"
        + "".join(f"{name:>8}{'between':>9}" for name in (*teams, "nccl")), flush=True)
    wrong = False
    for row in options.rows:
        try:
            one = measure_row(ranks, teams, row, options.turns)
        except Exception as caught:  # continue with the other rows
            say(f"{row}: {in_words(caught)}", flush=True)
            wrong = True
            continue
        result["rows"].append(one)
        bad = max(one["rel_error"].values()) >= MOST_ERROR
        wrong = wrong or bad
        say(f"{row[0]:<18}{row[1]:>4}{row[2]:>7}{row[3]:>7}{one['between_kernel_us']:8.2f}"
            + "".join(f"{one['call_us'][name]:8.2f}{one['between_us'][name]:9.2f}" for name in one["call_us"]) + ("  WRONG" if bad else ""), flush=True)
    if options.json and ranks.rank == 0:
        result_files.write(options.json, result)
    for team in teams.values():
        team.leave()
    dist.destroy_process_group()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
