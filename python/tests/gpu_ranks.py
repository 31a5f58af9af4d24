"""The package on GPUs, with tensors of PyTorch and CuPy. Run by hand:

torchrun --nproc-per-node 2 python/tests/gpu_ranks.py
"""

from __future__ import annotations

import time
from typing import Any

import torch

import tilewire


def rows(total: int, group: tilewire.Group) -> slice:
    """Rows of this rank."""
    each = -(-total // group.num_ranks)
    return slice(group.rank * each, min(total, (group.rank + 1) * each))


def integers(seed: int, *shape: int) -> torch.Tensor:
    """The same data on every rank; sums of products are exact in bf16's fp32 sums."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, shape, generator=generator).to(torch.bfloat16).cuda()


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    """Equal except for the rounding of the result."""
    torch.testing.assert_close(got.float(), want.to(torch.bfloat16).float(), rtol=8e-3, atol=0.5)


def run_all(group: tilewire.Group) -> None:
    """Every operator: results as new objects, in place, in streams, in graphs."""
    m, n, k = 512, 768, 1024
    a, b = integers(1, m, k), integers(2, n, k)
    mine, cols, depth = rows(m, group), rows(n, group), rows(k, group)
    whole = a.float() @ b.float().T
    cases: list[tuple[str, list[torch.Tensor], torch.Tensor]] = [
        ("all_gather_gemm", [a[mine], b[cols]], whole[:, cols]),
        ("gemm_reduce_scatter", [a[:, depth], b[:, depth]], whole[mine]),
        ("gemm_all_reduce", [a[:, depth], b[:, depth]], whole),
    ]
    for name, inputs, want in cases:
        op = group.make_op(name, m, n, k, config="fused")
        close(torch.from_dlpack(op.run(*inputs)), want)
        out = torch.full(want.shape, float("nan"), dtype=torch.bfloat16, device="cuda")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            twice = [x + 0 for x in inputs]
            assert op.run(*twice, out=out, stream=stream.cuda_stream) is out
            close(out, want)
        stream.synchronize()
        out.fill_(float("nan"))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            op.run(*twice, out=out, stream=torch.cuda.current_stream().cuda_stream)
        for _ in range(3):
            out.fill_(float("nan"))
            graph.replay()
            close(out, want)
        op.wait()
        if group.rank == 0:
            print(f"{name}: new, in a stream, in a graph: right", flush=True)


def in_cupy(group: tilewire.Group) -> None:
    """Arrays of CuPy, in place."""
    try:
        import cupy
    except ImportError:
        return
    x = cupy.full((64, 256), group.rank + 1, cupy.float32)
    y = cupy.zeros_like(x)
    op = group.make_op("all_reduce", 64, 256, dtype="fp32", config="fused")
    op.run(x, out=y)
    assert (y == sum(range(1, group.num_ranks + 1))).all()
    if group.rank == 0:
        print("cupy: right", flush=True)


def misuse(group: tilewire.Group) -> None:
    """Errors name the mistake, and the team stays usable."""
    op = group.make_op("all_reduce", 64, 256, dtype="fp32", config="fused")
    x = torch.ones(64, 256, device="cuda")
    for bad, text in ((x.double(), "64 bits"), (x[:, :8], "64 x 256"), (x.T, "contiguous"), (x.cpu(), "CUDA")):
        try:
            op.run(bad, out=torch.empty_like(x))
            raise AssertionError(f"nothing is said of {text}")
        except tilewire.Error as error:
            assert text in str(error), error
    close(torch.from_dlpack(op.run(x)), group.num_ranks * x)
    if group.rank == 0:
        print("misuse is named", flush=True)


def host_time(group: tilewire.Group) -> None:
    """Host time to enqueue a call, in microseconds."""
    op = group.make_op("all_reduce", 8, 8192, config="fused")
    x = torch.ones(8, 8192, dtype=torch.bfloat16, device="cuda")
    y = torch.empty_like(x)
    stream: Any = torch.cuda.current_stream().cuda_stream
    times = []
    for _ in range(50):
        torch.cuda.synchronize()
        group.barrier()
        start = time.perf_counter()
        op.run(x, out=y, stream=stream or 1)
        times.append((time.perf_counter() - start) * 1e6)
    if group.rank == 0:
        print(f"host time of a call: median {sorted(times)[25]:.1f} us, least {min(times):.1f}", flush=True)


def main() -> None:
    """Run all tests."""
    group = tilewire.join("cuda", timeout_s=60)
    torch.cuda.set_device(group.rank)
    for step in (run_all, in_cupy, misuse, host_time):
        step(group)
    group.barrier()
    group.leave()


if __name__ == "__main__":
    main()
