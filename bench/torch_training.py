#!/usr/bin/env python3
"""Measures a training step, forward and backward, of a Llama block by tilewire.torch beside NCCL and PyTorch's async-TP.

  torchrun --nproc-per-node 2 bench/torch_training.py --json torch_training.json

The block is examples/06_torch/llama_block.py's: tensor and sequence parallel, attention by PyTorch. Contenders: eager and
compiled, NCCL's collectives and tilewire.torch; compiled alone, PyTorch's async-TP (Inductor's pass makes
torch.ops.symm_mem.fused_* of NCCL's collectives) by its own kernels and, after tilewire.torch.enable(), by tilewire's.
Interleaved; ms per step, quartiles of the slowest rank; peak memory of PyTorch's allocator. Gradients are compared with those of
eager NCCL. The package tilewire must be installed.
"""
import argparse
import os
import pathlib
import sys

# NOTE: set before torch is loaded. No contender uses NVLink multicast.
os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"

import torch
import torch._inductor.config
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed._symmetric_memory

import result_files
import tilewire.torch as tt
from contenders import Ranks, ms_in_turn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples" / "06_torch"))
from llama_block import LlamaBlock, Overlapped, Pairs

MOST_ERROR = 0.03


class ByNccl(Pairs):
    """Collectives that PyTorch compiles, and recognises for its async-TP."""

    group = None

    def column(self, x, weight):
        return functional.all_gather_tensor_autograd(x, 0, self.group) @ weight.t()

    def row(self, x, weight):
        return functional.reduce_scatter_tensor_autograd(x @ weight.t(), "sum", 0, self.group)


class Step:
    """A block with its gradients, and a training step of it. All blocks have the same weights."""

    def __init__(self, pairs, options, device, compiled, micro_pipeline=False, by_tilewire=False):
        torch.manual_seed(1 + dist.get_rank())
        # NOTE: with pairs of one type, the second block would run the code that was compiled for the first.
        pairs = type(pairs.__name__, (pairs,), {})
        self.block = LlamaBlock(options.hidden, options.heads, 4 * options.hidden, pairs(), device, torch.bfloat16)
        self._forward, self._micro_pipeline, self._by_tilewire = self.block, micro_pipeline, by_tilewire
        if compiled:
            self._forward = torch.compile(self.block, fullgraph=True)
        self.peak = None

    def __call__(self, x, grad):
        for weight in self.block.parameters():
            weight.grad = None
        with tt.enabled() if self._by_tilewire else torch._inductor.config.patch({}):
            self._forward(x).backward(grad)

    def warm(self, x, grad):
        # Async-TP is a pass of the compiler, which runs at the first call.
        with torch._inductor.config.patch({"_micro_pipeline_tp": self._micro_pipeline}):
            for _ in range(3):
                self(x, grad)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        self(x, grad)
        torch.cuda.synchronize()
        self.peak = torch.cuda.max_memory_allocated() - before

    def gradients(self):
        return [weight.grad.float() for weight in self.block.parameters()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=8192, help="over all ranks")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--tuning", default="full", choices=["off", "quick", "full"])
    parser.add_argument("--json", help="where to write the result")
    parser.add_argument("--commit", default="", help="the commit that is measured")
    options = parser.parse_args()
    ranks = Ranks()
    torch.distributed._symmetric_memory.enable_symm_mem_for_group(ranks.name)
    tt.set_tuning(options.tuning)
    nccl, ours = ByNccl, Overlapped
    ByNccl.group = ranks.name
    steps = {"nccl eager": Step(nccl, options, ranks.device, compiled=False),
             "tilewire.torch eager": Step(ours, options, ranks.device, compiled=False),
             "nccl compiled": Step(nccl, options, ranks.device, compiled=True),
             "async-TP": Step(nccl, options, ranks.device, compiled=True, micro_pipeline=True),
             "async-TP by tilewire": Step(nccl, options, ranks.device, compiled=True, micro_pipeline=True, by_tilewire=True),
             "tilewire.torch compiled": Step(ours, options, ranks.device, compiled=True)}
    torch.manual_seed(100 + ranks.rank)
    shape = (options.tokens // ranks.size, options.hidden)
    x, grad = (torch.randn(shape, device=ranks.device, dtype=torch.bfloat16) for _ in range(2))
    say = print if ranks.rank == 0 else lambda *_, **__: None
    row = {"hidden": options.hidden, "heads": options.heads, "tokens": options.tokens, "ranks": ranks.size,
           "num_samples": options.turns, "rel_error": {}}
    want = None
    for name, step in steps.items():
        step.warm(x, grad)
        got = step.gradients()
        want = want or got
        errors = [((a - b).norm() / b.norm()).item() for a, b in zip(got, want)]
        row["rel_error"][name] = ranks.most([max(errors)])[0]
    calls = {name: lambda step=step: step(x, grad) for name, step in steps.items()}
    row["ms"] = {name: [round(ms, 3) for ms in values] for name, values in ms_in_turn(ranks, calls, options.turns).items()}
    row["peak_bytes"] = {name: int(ranks.most([step.peak])[0]) for name, step in steps.items()}
    say(f"{'ms a step':<26}{'lower':>9}{'median':>9}{'upper':>9}{'peak MiB':>10}{'error':>10}")
    for name, values in row["ms"].items():
        say(f"{name:<26}" + "".join(f"{value:9.3f}" for value in values)
            + f"{row['peak_bytes'][name] / 2**20:10.0f}{row['rel_error'][name]:10.1e}", flush=True)
    say(tt.report())
    if options.json and ranks.rank == 0:
        facts = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "commit": options.commit}
        result_files.write(options.json, {"facts": facts, "rows": [row]})
    tt.clear()
    dist.destroy_process_group()
    return 1 if not all(error < MOST_ERROR for error in row["rel_error"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
