#!/usr/bin/env python3
"""Measures a decode step of Llama 3 layers through tilewire.torch in a graph, beside cuBLAS with other all-reduces.

  torchrun --nproc-per-node 2 bench/decode_layer.py --json decode_layer.json

A layer is tensor-parallel and has no attention: qkv, o, all-reduce + residual + RMSNorm, gate and up, SwiGLU, down,
all-reduce + residual + RMSNorm. Contenders: the GEMMs and the glue alone, NCCL, PyTorch's one-shot all-reduce (as vLLM's
custom one), tilewire, and tilewire for qkv, and for gate and up with SwiGLU, too (in a group of this rank alone).
torch.compile makes the glue of all but the last. Interleaved; us per layer, medians of the slowest rank. Results are
compared with NCCL's. The package tilewire must be installed.
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
import torch.distributed._symmetric_memory as symm
import torch.nn.functional as F

import result_files
import tilewire.torch as tt
from contenders import Ranks, checked_graphs, ms_in_turn

#: hidden, columns of qkv, intermediate; layers, so that the weights of a rank are more than 200 MB
MODELS = {"8b": (4096, 6144, 14336, 2), "70b": (8192, 10240, 28672, 2)}
EPS = 1e-5
MOST_ERROR = 0.03


def add_norm(total, residual, gamma):
    """residual += total; its RMSNorm."""
    y = residual + total
    residual.copy_(y)
    return F.rms_norm(y, y.shape[-1:], gamma, EPS)


def swiglu(gate_up):
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


def in_pairs(gate_up):
    """The rows of a weight so that gate and up of a column are neighbours."""
    return torch.stack(gate_up.chunk(2), 1).reshape(gate_up.shape)


class Step:
    """The tensors of one model and batch, and the pass through the layers of each contender."""

    def __init__(self, ranks, model, batch):
        hidden, qkv, wide, layers = MODELS[model]
        self.ranks, self.batch, self.hidden, self.count, size = ranks, batch, hidden, layers, ranks.size
        weight = lambda n, k: torch.randn(n, k, device=ranks.device).mul_(k**-0.5).bfloat16()
        self.layers = [(weight(qkv // size, hidden), weight(hidden, hidden // size), weight(2 * wide // size, hidden),
                        weight(hidden, wide // size)) for _ in range(layers)]
        self.pairs = [in_pairs(gate_up) for _, _, gate_up, _ in self.layers]
        self.gamma = torch.ones(hidden, device=ranks.device, dtype=torch.bfloat16)
        torch.manual_seed(1)
        self.start = torch.randn(batch, hidden, device=ranks.device).bfloat16()
        self.x, self.residual = self.start.clone(), self.start.clone()
        self.alone = [dist.new_group([rank]) for rank in range(size)][ranks.rank]
        self.shared = symm.empty(batch, hidden, device=ranks.device, dtype=torch.bfloat16)
        symm.rendezvous(self.shared, ranks.name)
        self._add_norm, self._swiglu = torch.compile(add_norm), torch.compile(swiglu)

    def reset(self):
        self.x.copy_(self.start)
        self.residual.copy_(self.start)

    def contenders(self):
        return {"gemms": lambda: self._by(lambda x, w: torch.mm(x, w.t(), out=self.shared)), "nccl": self._by_nccl,
                "torch one-shot": self._by_one_shot,
                "tilewire": lambda: self._by_tilewire(False), "tilewire, all products": lambda: self._by_tilewire(True)}

    def _by(self, reduced):
        """A pass with `reduced`, the sum over ranks of a product."""
        for qkv, o, gate_up, down in self.layers:
            heads = torch.mm(self.x, qkv.t())[:, : o.shape[1]]
            x = self._add_norm(reduced(heads, o), self.residual, self.gamma)
            x = self._swiglu(torch.mm(x, gate_up.t()))
            self.x.copy_(self._add_norm(reduced(x, down), self.residual, self.gamma))

    def _by_nccl(self):
        def reduced(x, weight):
            torch.mm(x, weight.t(), out=self.shared)
            dist.all_reduce(self.shared)
            return self.shared

        self._by(reduced)

    def _by_one_shot(self):
        def reduced(x, weight):
            torch.mm(x, weight.t(), out=self.shared)
            return torch.ops.symm_mem.one_shot_all_reduce(self.shared, "sum", self.ranks.name)

        self._by(reduced)

    def _by_tilewire(self, all_products):
        def product(x, weight, activation=""):
            return tt.all_gather_matmul(x, weight.t(), self.alone, activation=activation) if all_products else torch.mm(x, weight.t())

        def reduced(x, weight, out):
            options = {"residual": self.residual, "norm_weight": self.gamma, "eps": EPS, "out": self.residual}
            tt.matmul_all_reduce(x, weight.t(), norm_out=out, **options)

        for (qkv, o, gate_up, down), pairs in zip(self.layers, self.pairs):
            heads = product(self.x, qkv)[:, : o.shape[1]]
            reduced(heads, o, self.x)
            wide = product(self.x, pairs, "swiglu_pairs") if all_products else self._swiglu(torch.mm(self.x, gate_up.t()))
            reduced(wide, down, self.x)


def measure_step(ranks, model, batch, turns):
    step = Step(ranks, model, batch)
    passes = 10 // step.count
    errors, graphs = checked_graphs(ranks, step.contenders(), step.reset, lambda: step.x, passes)
    replays = {name: graph.replay for name, graph in graphs.items()}
    layers = passes * step.count
    quartiles = ms_in_turn(ranks, replays, turns)
    us = {name: [round(ms * 1e3 / layers, 2) for ms in values] for name, values in quartiles.items()}
    ops = tt.cached()
    del graphs, replays
    torch.cuda.synchronize()
    dist.barrier()
    tt.clear()
    return {"model": model, "batch": batch, "ranks": ranks.size, "n_samples": turns, "rel_error": errors,
            "quartiles_us": us, "operators": ops}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS), help="of 8b,70b")
    parser.add_argument("--batches", type=json.loads, default=[1, 16, 64], help="JSON: [rows, ...]")
    parser.add_argument("--turns", type=int, default=13)
    parser.add_argument("--json", help="where to write the result")
    parser.add_argument("--commit", default="", help="what to call the commit")
    options = parser.parse_args()
    ranks = Ranks()
    torch.manual_seed(1 + ranks.rank)
    torch.set_grad_enabled(False)
    tt.set_order("stream")
    tt.set_constant_weights(True)
    result = {"what": "decode step of Llama 3 layers without attention, one graph, us per layer", "commit": options.commit,
              "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": []}
    for model in options.models:
        for batch in options.batches:
            torch.manual_seed(1 + ranks.rank)
            row = measure_step(ranks, model, batch, options.turns)
            result["rows"].append(row)
            if ranks.rank > 0:
                continue
            medians = "  ".join(f"{name} {values[1]}" for name, values in row["quartiles_us"].items())
            print(model, batch, medians, "errors", " ".join(f"{error:.1e}" for error in row["rel_error"].values()), flush=True)
            if options.json:
                result_files.write(options.json, result)
    wrong = [error for row in result["rows"] for error in row["rel_error"].values() if not error < MOST_ERROR]
    dist.destroy_process_group()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
