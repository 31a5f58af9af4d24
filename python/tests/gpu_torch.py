"""tilewire.torch on GPUs: results, gradients, graphs, the drop-in, and the host time of a call. Run by hand:

torchrun --nproc-per-node 2 python/tests/gpu_torch.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import tilewire
import tilewire.torch as tt


def integers(seed: int, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Small integers; the same seed gives the same tensor on all ranks."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, shape, generator=generator).to(dtype).cuda()


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    """Equal except for the rounding of results and partials."""
    torch.testing.assert_close(got.float(), want.float(), rtol=2e-2, atol=1.0)


def near(got: torch.Tensor, want: torch.Tensor) -> None:
    """Equal except for the rounding of normalised rows."""
    torch.testing.assert_close(got.float(), want.float(), rtol=2e-2, atol=2e-2)


def say(text: str) -> None:
    """Print a text on rank 0 only."""
    if dist.get_rank() == 0:
        print(text, flush=True)


def results(name: str) -> None:
    """The drop-in against PyTorch's composition, in both types, three dimensions, with strides."""
    rank, size = dist.get_rank(), dist.get_world_size()
    fused = torch.ops.symm_mem
    for dtype in (torch.bfloat16, torch.float32):
        for dim in (0, 1, 2):
            a = integers(1 + rank, 8, 64, 128, dtype=dtype)
            depth = 128 * size if dim == 2 else 128
            bs = [integers(10 * i + rank, depth, 256, dtype=dtype) for i in range(2)] + [
                integers(7 + rank, 192, depth, dtype=dtype).t()
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
    """Gradients of a layer with sequence parallelism, against a gathered copy of the layer."""
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


def captures() -> None:
    """A captured operator stays in the cache; no new operator is made inside a capture."""
    tt.set_cache_size(2)
    x = integers(dist.get_rank(), 64, 512)
    tt.all_reduce(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = tt.all_reduce(x)
    for rows in range(1, 6):
        tt.all_reduce(x[:rows])
    device = torch.device("cuda", torch.cuda.current_device())
    kept = tt.cached(device=device)
    assert [f"all_reduce {rows} x 512 x 0 fused" in kept for rows in (1, 2, 3, 4, 5, 64)] == [False] * 3 + [True] * 3, (
        kept
    )
    y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    close(y, tt.all_reduce(x))
    refused = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(refused):
            tt.all_reduce(x[:33])
    except tilewire.Error as error:
        assert "all_reduce of 33 x 512 x 0 is new inside a capture" in str(error), error
    else:
        raise AssertionError("an operator was made inside a capture")
    tt.set_cache_size(256)
    say("captured operators stay")


def shared_memory() -> None:
    """Sums in memory that ranks share: tilewire's, PyTorch's, and in place; eager, and in graphs."""
    rank, size = dist.get_rank(), dist.get_world_size()
    x, b = integers(1 + rank, 64, 512), integers(5 + rank, 512, 1024)
    want = torch.zeros(64, 1024, device="cuda")
    for r in range(size):
        want += integers(1 + r, 64, 512).float() @ integers(5 + r, 512, 1024).float()
    theirs = symm_mem.empty(2, 64, 1024, dtype=torch.bfloat16, device="cuda")
    tt.adopt(theirs)
    for y in (tt.empty(64, 1024), theirs[1]):
        tt.matmul_all_reduce(x, b, out=y)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            tt.matmul_all_reduce(x, b, out=y)
        for run in (graph.replay, lambda y=y: tt.matmul_all_reduce(x, b, out=y), graph.replay):
            y.zero_()
            torch.cuda.synchronize()
            dist.barrier()
            run()
            torch.cuda.synchronize()
            close(y, want)
    z = integers(20 + rank, 96, 512)
    want = sum((integers(20 + r, 96, 512).float() for r in range(size)), torch.zeros(96, 512, device="cuda"))
    tt.all_reduce(z, out=z)
    close(z, want)
    say("memory that ranks share is used")


def norms() -> None:
    """Sums, residuals in place and RMSNorms of a few and of many rows, eager and in graphs."""
    rank, size = dist.get_rank(), dist.get_world_size()
    weight = torch.rand(1024, device="cuda").bfloat16()
    dist.broadcast(weight, 0)
    for rows in (1, 5, 16, 300):
        x, b, r = integers(1 + rank, rows, 512), integers(5 + rank, 1024, 512).t(), integers(40, rows, 1024)
        want = r.float()
        for other in range(size):
            want = want + integers(1 + other, rows, 512).float() @ integers(5 + other, 1024, 512).float().t()
        part = integers(60 + rank, rows, 1024)
        total = r.float() + sum((integers(60 + o, rows, 1024).float() for o in range(size)), torch.zeros_like(want))
        y, normed = torch.empty_like(r), torch.empty_like(r)

        def step(x: torch.Tensor = x, b: torch.Tensor = b, y: torch.Tensor = y, normed: torch.Tensor = normed) -> None:
            tt.matmul_all_reduce(x, b, residual=y, norm_weight=weight, out=y, norm_out=normed)

        y.copy_(r)
        step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        for run in (step, graph.replay, graph.replay):
            y.copy_(r)
            normed.fill_(torch.nan)
            run()
            torch.cuda.synchronize()
            close(y, want)
            near(normed, torch.nn.functional.rms_norm(y.float(), (1024,), weight.float(), 1e-6))
        z, last = tt.all_reduce_add_rms_norm(part, r, weight)
        close(z, total)
        near(last, torch.nn.functional.rms_norm(z.float(), (1024,), weight.float(), 1e-6))
    # 8 and 64 rows are quantised by the kernel of the sum, 129 and 300 by PyTorch.
    for rows in (8, 64, 129, 300):
        part, r = integers(60 + rank, rows, 1024), integers(40, rows, 1024)
        total = sum((integers(60 + o, rows, 1024).float() for o in range(size)), r.float())
        for dtype, most, step in ((torch.float8_e4m3fn, 448, 1 / 8), (torch.int8, 127, 0)):
            z, elements, scales = tt.all_reduce_add_rms_norm(part, r, weight, norm_dtype=dtype)
            close(z, total)
            row = torch.nn.functional.rms_norm(z.float(), (1024,), weight.float(), 1e-6)
            torch.testing.assert_close(scales.view(rows, 1), row.abs().amax(1, keepdim=True) / most, rtol=1e-3, atol=0)
            # An element is off by a step of its type: relative for fp8, one scale for int8.
            allowed = step * row.abs() + scales.view(rows, 1)
            assert bool(((elements.float() * scales.view(rows, 1) - row).abs() <= allowed).all()), (rows, dtype)
    say("norms follow sums")


def pairs_of_columns() -> None:
    """SwiGLU within the product of few rows of a rank alone, behind it for more; both layouts, eager and in a graph."""
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        weight = torch.randn(512, 256, device="cuda").mul_(0.1).to(dtype)
        for rows in (1, 7, 16, 17, 300):
            x = torch.randn(rows, 256, device="cuda").to(dtype)
            y = x.float() @ weight.float().t()
            want = torch.nn.functional.silu(y[:, ::2]) * y[:, 1::2]
            for b in (weight.t(), weight.t().contiguous()):

                def step(x: torch.Tensor = x, b: torch.Tensor = b) -> torch.Tensor:
                    return tt.all_gather_matmul(x, b, alone, activation="swiglu_pairs")

                near(step(), want)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    got = step()
                got.fill_(torch.nan)
                graph.replay()
                torch.cuda.synchronize()
                near(got, want)
    say("pairs of columns become one")


def experts() -> None:
    """A layer of experts on all ranks, eager and in a graph with new tokens and routing in every replay."""
    rank, size = dist.get_rank(), dist.get_world_size()
    hidden, ffn, of_rank, top_k = 256, 128, 4, 3
    all_w13 = torch.cat([integers(100 + r, of_rank, 2 * ffn, hidden) for r in range(size)]) * 0.05
    all_w2 = torch.cat([integers(200 + r, of_rank, hidden, ffn) for r in range(size)]) * 0.05
    mine = slice(rank * of_rank, (rank + 1) * of_rank)
    w13, w2 = all_w13[mine].contiguous(), all_w2[mine].contiguous()

    def given(seed: int, rows: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed + rank)
        ids = torch.rand(rows, of_rank * size, generator=generator).topk(top_k).indices
        return [integers(seed + rank, rows, hidden), ids.cuda(), torch.rand(rows, top_k, generator=generator).cuda()]

    def reference(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        gate, up = torch.einsum("tk,tefk->tef", x.float(), all_w13[ids].float()).chunk(2, -1)
        rows = (torch.nn.functional.silu(gate) * up).bfloat16().float()
        return (torch.einsum("tef,tenf->ten", rows, all_w2[ids].float()) * weights[..., None]).sum(1)

    for rows in (1, 40, 300):
        x, ids, weights = given(50, rows)
        near(tt.moe(x, ids, weights, w13, w2), reference(x, ids, weights))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = tt.moe(x, ids, weights, w13, w2)
        for seed in (60, 70, 80):
            for old, new in zip((x, ids, weights), given(seed, rows), strict=True):
                old.copy_(new)
            graph.replay()
            tt.all_reduce(x.clone())  # shares the workspace
            torch.cuda.synchronize()
            near(y, reference(x, ids, weights))
    say("experts are right")


def beside_nccl() -> None:
    """NCCL calls of another group on another stream, before tilewire's calls on some ranks, after them on others."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.cuda.synchronize()
    dist.barrier()
    tt.clear()
    tt.set_sms(100)
    others, side = dist.new_group(list(range(size))), torch.cuda.Stream()
    x, w = integers(1 + rank, 4096, 4096), integers(2 + rank, 4096, 4096)
    tall, part = integers(3 + rank, 4096, 4096), integers(4 + rank, 4096, 4096)
    gradients = torch.ones(64 << 20, dtype=torch.bfloat16, device="cuda")

    def by_nccl() -> None:
        with torch.cuda.stream(side):
            gradients.fill_(1)
            dist.all_reduce(gradients, group=others)

    def by_tilewire() -> list[torch.Tensor]:
        return [tt.all_gather_matmul(x, w.t()), tt.matmul_reduce_scatter(tall, part.t()), tt.all_reduce(x)]

    want = by_tilewire()
    torch.cuda.synchronize()
    for turn in range(60):
        nccl_first = (turn + rank) % 2 == 0
        if nccl_first:
            by_nccl()
        got = by_tilewire()
        if not nccl_first:
            by_nccl()
        if turn % 20 == 19:
            torch.cuda.synchronize()
            for y, z in zip(got, want, strict=True):
                close(y, z)
            assert gradients.min().item() == gradients.max().item() == size
    dist.barrier()
    tt.clear()
    tt.set_sms(0)
    dist.destroy_process_group(others)
    say("NCCL on another stream, in either order, is waited for by nobody")


def host_time(name: str, call: Callable[[], object]) -> float:
    """Host time of a call with an idle GPU, in microseconds: the median of the slowest rank."""
    times = []
    for _ in range(60):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    most = torch.tensor([sorted(times)[30], min(times)], device="cuda")
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    median, least = most.tolist()
    say(f"{name:56} {median:8.1f} {least:8.1f}")
    return float(median)


def host_times(name: str) -> None:
    """Eager calls from Python, the operator alone, and PyTorch's."""
    rank, size = dist.get_rank(), dist.get_world_size()
    say(f"{'host time of a call, us':56} {'median':>8} {'least':>8}")
    stream = torch.cuda.current_stream().cuda_stream
    device = torch.cuda.current_device()
    group = tt._teams._groups[name, True, device][1]
    for m, n, k in ((16, 1024, 1024), (4096, 4096, 4096)):
        x, w = integers(1 + rank, m // size, k), integers(2 + rank, n, k)
        big, part = integers(3 + rank, m, k // size), integers(4 + rank, n, k // size)
        y = x.new_empty(m, n // size)
        op = group.make_op("all_gather_gemm", m, n, k, reduction="any", config="fused")
        views = [
            tilewire.Tensor.at(t.data_ptr(), "bf16", *t.shape, t.stride(0), device, t) for t in (x, w[: n // size], y)
        ]
        host_time(f"Op.run, all_gather_gemm {m} {n} {k}", lambda: op._op.run(views[:2], views[2:], stream))
        with torch.no_grad():
            mine = w[: n // size].t()
            host_time("  tt.all_gather_matmul", lambda: tt.all_gather_matmul(x, mine))
            host_time(
                "  torch.ops.tilewire.all_gather_matmul_out",
                lambda: torch.ops.tilewire.all_gather_matmul_out.default(x, mine, name, y, None),
            )
            host_time("  tt.matmul_reduce_scatter", lambda: tt.matmul_reduce_scatter(big, part.t()))
            tt.enable()
            fused = torch.ops.symm_mem.fused_all_gather_matmul
            host_time("  symm_mem's, by tilewire", lambda: fused(x, [mine], 0, name))
            tt.disable()
            host_time("  symm_mem's, PyTorch's own", lambda: fused(x, [mine], 0, name))
        leaf = x.clone().requires_grad_()
        host_time("  tt.all_gather_matmul with gradient", lambda: tt.all_gather_matmul(leaf, mine))
        op.free()
    x = integers(1, 1, 8192)
    op = group.make_op("all_reduce", 1, 8192, reduction="any", config="fused")
    views = [tilewire.Tensor.at(t.data_ptr(), "bf16", 1, 8192, 8192, device, t) for t in (x, torch.empty_like(x))]
    host_time("Op.run, all_reduce 1 8192", lambda: op._op.run(views[:1], views[1:], stream))
    with torch.no_grad():
        host_time("  tt.all_reduce", lambda: tt.all_reduce(x))
    op.free()


def main() -> None:
    """Run all tests."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    name = tt._teams.group_name(None)
    tt.enable()
    results(name)
    gradients()
    graphs()
    captures()
    shared_memory()
    norms()
    pairs_of_columns()
    experts()
    host_times(name)
    beside_nccl()
    torch.cuda.synchronize()
    dist.barrier()
    tt.clear()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
