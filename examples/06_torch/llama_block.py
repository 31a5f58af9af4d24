#!/usr/bin/env python3
"""Trains a Llama block with tensor and sequence parallelism, by tilewire and by PyTorch's collectives, and compares.

  torchrun --nproc-per-node 2 examples/06_torch/llama_block.py                     # CPU ranks, or GPUs where there are
  torchrun --nproc-per-node 2 examples/06_torch/llama_block.py --hidden 4096 --tokens 8192 --heads 32 --steps 20

Each rank has the rows of its tokens, a part of the heads, and a part of the feed-forward features. Prints the losses of
both, their largest difference, a step's time, and what decoding a few tokens gives.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as collectives
from torch import Tensor, nn

import tilewire.torch as tt

Device = torch.device


class Pairs:
    """The two products of a parallel layer: one after a gather of rows, by columns, and one before a sum over ranks,
    by rows."""

    name = "PyTorch"

    def column(self, x: Tensor, weight: Tensor) -> Tensor:
        """All rows times this rank's columns."""
        return torch.cat(collectives.all_gather(x)) @ weight.t()

    def row(self, x: Tensor, weight: Tensor) -> Tensor:
        """This rank's rows of the sum over ranks."""
        y = x @ weight.t()
        if y.is_cuda:
            parts = [part.contiguous() for part in y.chunk(dist.get_world_size())]
            return collectives.reduce_scatter(torch.empty_like(parts[0]), parts)
        # NOTE: gloo has no reduce-scatter.
        return collectives.all_reduce(y).chunk(dist.get_world_size())[dist.get_rank()]


class Overlapped(Pairs):
    """The same by tilewire."""

    name = "tilewire"

    def column(self, x: Tensor, weight: Tensor) -> Tensor:
        """All rows times this rank's columns."""
        y = tt.all_gather_matmul(x, weight.t())
        assert isinstance(y, Tensor)
        return y

    def row(self, x: Tensor, weight: Tensor) -> Tensor:
        """This rank's rows of the sum over ranks."""
        return tt.matmul_reduce_scatter(x, weight.t())


class LlamaBlock(nn.Module):
    """Attention and feed-forward of one layer; tokens [tokens / ranks, hidden] in and out."""

    def __init__(self, hidden: int, heads: int, wide: int, pairs: Pairs, device: Device, dtype: torch.dtype) -> None:
        """Random weights, this rank's part."""
        super().__init__()
        size, self.pairs, self.head = dist.get_world_size(), pairs, hidden // heads

        def part(rows: int, cols: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, cols, device=device, dtype=dtype) / cols**0.5)

        self.qkv = part(3 * hidden // size, hidden)
        self.out = part(hidden, hidden // size)
        self.gate_up = part(2 * wide // size, hidden)
        self.down = part(hidden, wide // size)
        self.norms = nn.ParameterList([torch.ones(hidden, device=device, dtype=dtype) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        """One layer."""
        first, second = self.norms
        x = x + self._attend(nn.functional.rms_norm(x, x.shape[-1:], first))
        gate, up = self.pairs.column(nn.functional.rms_norm(x, x.shape[-1:], second), self.gate_up).chunk(2, -1)
        return x + self.pairs.row(nn.functional.silu(gate) * up, self.down)

    def _attend(self, x: Tensor) -> Tensor:
        qkv = self.pairs.column(x, self.qkv)
        # NOTE: a batch of one, as fused attention kernels take four dimensions only.
        q, k, v = (each.view(1, each.shape[0], -1, self.head).transpose(1, 2) for each in qkv.chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.pairs.row(y.transpose(1, 2).reshape(qkv.shape[0], -1), self.out)


def train(block: LlamaBlock, x: Tensor, target: Tensor, steps: int) -> tuple[list[float], float]:
    """The losses over all tokens, and the median seconds of a step."""
    optimizer = torch.optim.SGD(block.parameters(), lr=0.05)
    losses, times = [], []
    for _ in range(steps):
        if x.is_cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        loss = (block(x) - target).float().square().mean()
        loss.backward()
        for norm in block.norms:  # each norm has seen this rank's tokens only
            dist.all_reduce(norm.grad)
        optimizer.step()
        optimizer.zero_grad()
        if x.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / dist.get_world_size())
    return losses, sorted(times)[len(times) // 2]


def main() -> None:
    """Train with both, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64, help="over all ranks")
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    device = Device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else Device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    dtype = torch.bfloat16 if on_gpu else torch.float32
    shape = (options.tokens // size, options.hidden)

    def inputs(seed: int) -> Tensor:
        torch.manual_seed(seed * size + rank)
        return torch.randn(*shape, device=device, dtype=dtype)

    results = {}
    for pairs in (Pairs(), Overlapped()):
        torch.manual_seed(1 + rank)
        block = LlamaBlock(options.hidden, options.heads, 4 * options.hidden, pairs, device, dtype)
        losses, seconds = train(block, inputs(1), inputs(2), options.steps)
        with torch.no_grad():
            decoded = block(inputs(3)).float().norm().item()
        results[pairs.name] = losses
        if rank == 0:
            text = " ".join(f"{loss:.5f}" for loss in losses)
            print(f"{pairs.name:9} losses {text}; {seconds * 1e3:.2f} ms a step; output {decoded:.3f}", flush=True)
    apart = max(abs(a - b) for a, b in zip(results["PyTorch"], results["tilewire"], strict=True))
    if rank == 0:
        print(f"largest difference of losses: {apart:.1e}", flush=True)
    assert apart < (2e-2 if on_gpu else 1e-4), apart
    assert results["tilewire"][-1] < results["tilewire"][0]
    tt.clear()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
