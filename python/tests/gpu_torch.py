"""tilewire.torch on GPUs: results, gradients, graphs, the drop-in, and the host's time of a call. Run by hand:

torchrun --nproc-per-node 2 python/tests/gpu_torch.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import tilewire.torch as tt


def integers(seed: int, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Small integers; the same seed is the same tensor on all ranks."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, shape, generator=generator).to(dtype).cuda()


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    """Equal but for the rounding of results and of partial sums."""
    torch.testing.assert_close(got.float(), want.float(), rtol=2e-2, atol=1.0)


def say(text: str) -> None:
    """Once."""
    if dist.get_rank() == 0:
        print(text, flush=True)


def results(name: str) -> None:
    """The drop-in against PyTorch's composition, in both types, three dimensions, with strides."""
    rank, size = dist.get_rank(), dist.get_world_size()
    fused = torch.ops.symm_mem
    for dtype in (torch.bfloat16, torch.float32):
        for dim in (0, 1):
            a = integers(1 + rank, 8, 64, 128, dtype=dtype)
            bs = [integers(10 * i + rank, 128, 256, dtype=dtype) for i in range(2)] + [
                integers(7 + rank, 192, 128, dtype=dtype).t()
            ]
            got, ours = fused.fused_all_gather_matmul(a, bs, dim, name)
            want, theirs = symm_mem._fused_all_gather_matmul_fallback(a, bs, dim, name)
            for x, y in zip([got, *ours], [want, *theirs], strict=True):
                close(x, y)
                assert x.stride() == y.stride(), (dim, x.stride(), y.stride())
            a, b = integers(1 + rank, 8 * size, 64 * size, 128, dtype=dtype), integers(2 + rank, 128, 256, dtype=dtype)
            for op in ("sum", "avg"):
                x = fused.fused_matmul_reduce_scatter(a, b, op, dim, name)
                y = symm_mem._fused_matmul_reduce_scatter_fallback(a, b, op, dim, name)
                close(x, y)
                assert x.stride() == y.stride(), (dim, x.stride(), y.stride())
    say(f"results are right: {tt.report()}")


def gradients() -> None:
    """Of a layer with sequence parallelism, against a gathered copy of it."""
    rank, size = dist.get_rank(), dist.get_world_size()
    x = integers(1 + rank, 64, 128).requires_grad_()
    w1, w2 = integers(5 + rank, 256, 128).requires_grad_(), integers(9 + rank, 128, 256).requires_grad_()
    y = tt.matmul_reduce_scatter(torch.relu(tt.all_gather_matmul(x, w1.t())), w2.t())
    y.backward(integers(20 + rank, *y.shape))
    whole = torch.cat([integers(1 + r, 64, 128) for r in range(size)]).float().requires_grad_()
    ws = [(integers(5 + r, 256, 128).float(), integers(9 + r, 128, 256).float()) for r in range(size)]
    for pair in ws:
        for w in pair:
            w.requires_grad_()
    z = sum(torch.relu(whole @ a.t()).bfloat16().float() @ b.t() for a, b in ws)
    z.backward(torch.cat([integers(20 + r, *y.shape) for r in range(size)]).float())
    scale = 0.02 * float(z.detach().abs().max())
    for got, want in ((y, z.chunk(size)[rank]), (x.grad, whole.grad.chunk(size)[rank]), (w1.grad, ws[rank][0].grad)):
        torch.testing.assert_close(got.float(), want, rtol=0.03, atol=max(2.0, scale))
    say("gradients are right")


def graphs() -> None:
    """Replays of a captured layer."""
    rank = dist.get_rank()
    x, w1, w2 = integers(1 + rank, 256, 1024), integers(2 + rank, 2048, 1024), integers(3 + rank, 1024, 2048)

    def layer() -> torch.Tensor:
        return tt.matmul_reduce_scatter(torch.relu(tt.all_gather_matmul(x, w1.t())), w2.t())

    layer()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layer()
    for seed in (11, 12, 13):
        x.copy_(integers(seed + rank, 256, 1024))
        graph.replay()
        torch.cuda.synchronize()
        close(y, layer())
    say("replays are right")


def host_time(name: str, call: Callable[[], object]) -> None:
    """Microseconds of the host for a call, the GPU idle."""
    times = []
    for _ in range(40):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    say(f"host time of {name}: median {sorted(times)[20]:.1f} us, least {min(times):.1f}")


def main() -> None:
    """All of it."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    name = tt._teams.group_name(None)
    tt.enable()
    results(name)
    gradients()
    graphs()
    rank = dist.get_rank()
    x, w, big = integers(1 + rank, 128, 1024), integers(2 + rank, 1024, 1024), integers(3 + rank, 256, 1024)
    with torch.no_grad():
        host_time("all_gather_matmul", lambda: tt.all_gather_matmul(x, w))
        host_time("matmul_reduce_scatter", lambda: tt.matmul_reduce_scatter(big, w))
        host_time(
            "fused_all_gather_matmul by tilewire", lambda: torch.ops.symm_mem.fused_all_gather_matmul(x, [w], 0, name)
        )
        tt.disable()
        host_time("PyTorch's", lambda: torch.ops.symm_mem.fused_all_gather_matmul(x, [w], 0, name))
    torch.cuda.synchronize()
    dist.barrier()
    tt.clear()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
