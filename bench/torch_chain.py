#!/usr/bin/env python3
"""Measures a chain of Llama 3 70B layers through tilewire.torch, eager and in a graph, beside cuBLAS and NCCL.

  torchrun --nproc-per-node 2 bench/torch_chain.py --library build/release/lib/libtilewire_c.so --json torch_chain.json

A layer has tensor and sequence parallelism, and no attention: gather + GEMM (qkv), GEMM + reduce-scatter (o), residual and
RMSNorm, gather + GEMM (gate, up), SwiGLU, GEMM + reduce-scatter (down), residual and RMSNorm.
Contenders: the GEMMs and the glue alone, cuBLAS and NCCL, PyTorch's fused operators, tilewire by its C interface, by the
functions of tilewire.torch, and by its operators that write to given tensors. Interleaved; us per layer, medians of the
slowest rank. Results are compared with NCCL's. The package tilewire must be installed.
"""
import argparse
import json
import os
import sys

# NOTE: set before torch is loaded. No contender uses NVLink multicast.
os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory  # noqa: F401 - it registers symm_mem.fused_*
import torch.nn.functional as F

import result_files
import tilewire.torch as tt
from contenders import Ranks, checked_graphs, ms_in_turn, view_of
from peers import facts
from tilewire_ctypes import Team

HIDDEN, QKV, WIDE, LAYERS = 8192, 10240, 28672, 2
MOST_ERROR = 0.03


class Chain:
    """The tensors of some rows, and the pass through the layers of each contender."""

    def __init__(self, ranks, team, rows):
        self.ranks, self.rows, size = ranks, rows, ranks.size
        empty = lambda m, n: torch.empty(m, n, device=ranks.device, dtype=torch.bfloat16)
        weight = lambda n, k: torch.randn(n, k, device=ranks.device).mul_(k**-0.5).bfloat16()
        self.layers = [(weight(QKV // size, HIDDEN), weight(HIDDEN, HIDDEN // size), weight(2 * WIDE // size, HIDDEN),
                        weight(HIDDEN, WIDE // size)) for _ in range(LAYERS)]
        self.gamma = torch.ones(HIDDEN, device=ranks.device, dtype=torch.bfloat16)
        self.x = torch.randn(rows // size, HIDDEN, device=ranks.device).bfloat16()
        self.full, self.part = empty(rows, HIDDEN), empty(rows, HIDDEN)
        self.qkv, self.heads = empty(rows, QKV // size), empty(rows, HIDDEN // size)
        self.gate_up, self.act = empty(rows, 2 * WIDE // size), empty(rows, WIDE // size)
        self.mine = empty(rows // size, HIDDEN)
        self._ops, self._team = {}, team

    def contenders(self):
        return {"gemms": self.gemms, "nccl": self.nccl, "torch_fused": self.torch_fused, "c_api": self.c_api(),
                "tilewire.torch": self.functions, "tilewire.torch out": self.out}

    def _attention(self, qkv):
        self.heads.copy_(qkv[:, : self.heads.shape[1]])

    def _norm(self, y):
        self.x.add_(y)
        self.x.copy_(F.rms_norm(self.x, (HIDDEN,), self.gamma, 1e-6))

    def _swiglu(self, gate_up):
        wide = self.act.shape[1]
        torch.mul(F.silu(gate_up[:, :wide]), gate_up[:, wide:], out=self.act)

    def gemms(self):
        for qkv, o, gate_up, down in self.layers:
            torch.mm(self.full, qkv.t(), out=self.qkv)
            self._attention(self.qkv)
            torch.mm(self.heads, o.t(), out=self.part)
            self._norm(self.mine)
            torch.mm(self.full, gate_up.t(), out=self.gate_up)
            self._swiglu(self.gate_up)
            torch.mm(self.act, down.t(), out=self.part)
            self._norm(self.mine)

    def nccl(self):
        def gathered(weight, out):
            dist.all_gather_into_tensor(self.full, self.x)
            torch.mm(self.full, weight.t(), out=out)

        def scattered(x, weight):
            torch.mm(x, weight.t(), out=self.part)
            dist.reduce_scatter_tensor(self.mine, self.part)

        for qkv, o, gate_up, down in self.layers:
            gathered(qkv, self.qkv)
            self._attention(self.qkv)
            scattered(self.heads, o)
            self._norm(self.mine)
            gathered(gate_up, self.gate_up)
            self._swiglu(self.gate_up)
            scattered(self.act, down)
            self._norm(self.mine)

    def _by(self, gather, scatter):
        for qkv, o, gate_up, down in self.layers:
            self._attention(gather(self.x, qkv.t()))
            self._norm(scatter(self.heads, o.t()))
            self._swiglu(gather(self.x, gate_up.t()))
            self._norm(scatter(self.act, down.t()))

    def torch_fused(self):
        fused, name = torch.ops.symm_mem, self.ranks.name
        self._by(lambda x, b: fused.fused_all_gather_matmul(x, [b], 0, name, return_A=False)[1][0],
                 lambda x, b: fused.fused_matmul_reduce_scatter(x, b, "sum", 0, name))

    def functions(self):
        self._by(tt.all_gather_matmul, tt.matmul_reduce_scatter)

    def out(self):
        ops, name = torch.ops.tilewire, self.ranks.name

        def gather(x, b):
            y = self.qkv if b.shape[1] == self.qkv.shape[1] else self.gate_up
            ops.all_gather_matmul_out.default(x, b, name, y, None)
            return y

        def scatter(x, b):
            ops.matmul_reduce_scatter_out.default(x, b, name, self.mine)
            return self.mine

        self._by(gather, scatter)

    def c_api(self):
        """The same by operators of another team, which use the winners that the first team has found."""
        def op(kind, n, k, inputs, output):
            problem = {"op": kind, "m": self.rows, "n": n, "k": k, "dtype": "bf16", "reduction": "any"}
            if (kind, n, k) not in self._ops:
                self._ops[kind, n, k] = self._team.make_op(problem, "auto_again")
            return self._ops[kind, n, k].bind([view_of(tensor) for tensor in inputs], [view_of(output)])

        calls = [(op("all_gather_gemm", QKV, HIDDEN, [self.x, qkv], self.qkv),
                  op("gemm_reduce_scatter", HIDDEN, HIDDEN, [self.heads, o], self.mine),
                  op("all_gather_gemm", 2 * WIDE, HIDDEN, [self.x, gate_up], self.gate_up),
                  op("gemm_reduce_scatter", HIDDEN, WIDE, [self.act, down], self.mine))
                 for qkv, o, gate_up, down in self.layers]

        def run():
            stream = torch.cuda.current_stream().cuda_stream
            for qkv, o, gate_up, down in calls:
                qkv(stream)
                self._attention(self.qkv)
                o(stream)
                self._norm(self.mine)
                gate_up(stream)
                self._swiglu(self.gate_up)
                down(stream)
                self._norm(self.mine)

        return run

    def configs(self):
        return {f"{kind} {n} {k}": op.config() for (kind, n, k), op in self._ops.items()}

    def free(self):
        for op in self._ops.values():
            op.free()


def measure(ranks, calls, turns):
    """Quartiles of us per layer on the slowest rank, by contender."""
    quartiles = ms_in_turn(ranks, calls, turns, repeats=4)
    return {name: [round(ms * 1e3 / LAYERS, 1) for ms in values] for name, values in quartiles.items()}


def measure_rows(ranks, team, rows, turns):
    chain = Chain(ranks, team, rows)
    calls, start = chain.contenders(), chain.x.clone()
    errors, graphs = checked_graphs(ranks, calls, lambda: chain.x.copy_(start), lambda: chain.x)
    row = {"rows": rows, "ranks": ranks.size, "n_samples": turns, "rel_error": errors,
           "graph_us": measure(ranks, {name: graph.replay for name, graph in graphs.items()}, turns),
           "eager_us": measure(ranks, calls, turns), "configs": chain.configs()}
    del graphs
    torch.cuda.synchronize()
    dist.barrier()
    chain.free()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/release/lib/libtilewire_c.so", help="tilewire's C library")
    parser.add_argument("--rows", type=json.loads, default=[1024, 4096], help="JSON: [M, ...]")
    parser.add_argument("--turns", type=int, default=13)
    parser.add_argument("--json", help="where to write the result")
    parser.add_argument("--commit", help="what to call the commit, where there is no git")
    options = parser.parse_args()
    ranks = Ranks()
    torch.manual_seed(1 + ranks.rank)
    torch.set_grad_enabled(False)
    tt.set_tuning("full")
    team = Team(options.library, "cuda", 16 << 30, job="torch-chain")
    result = {"facts": facts(ranks, team, options), "rows": []}
    for rows in options.rows:
        result["rows"].append(measure_rows(ranks, team, rows, options.turns))
        if ranks.rank == 0:
            row = result["rows"][-1]
            for kind in ("graph_us", "eager_us"):
                print(rows, kind, "  ".join(f"{name} {values[1]}" for name, values in row[kind].items()), flush=True)
            print(rows, "errors", " ".join(f"{error:.1e}" for error in row["rel_error"].values()), flush=True)
            if options.json:
                result_files.write(options.json, result)
    wrong = [error for row in result["rows"] for error in row["rel_error"].values() if not error < MOST_ERROR]
    tt.clear()
    team.leave()
    dist.destroy_process_group()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
