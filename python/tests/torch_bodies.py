"""Functions that ranks run with PyTorch in these tests; spawned processes import them."""

from __future__ import annotations

import datetime
import os
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # noqa: F401 - differentiable collectives, to compare with

import tilewire
import tilewire.torch as tt


def start(rank: int, ranks: int, port: int, body: Callable[[], None]) -> None:
    """A rank's main function: make a process group of gloo, then run the body."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    # Ignore winners that earlier runs have stored on this machine.
    os.environ["TILEWIRE_TUNER_FILE"] = os.path.join(tempfile.gettempdir(), f"tilewire-torch-{os.getppid()}-{port}")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=60))
    body()
    dist.barrier()
    tt.clear()
    dist.destroy_process_group()
    if rank == 0 and os.path.exists(os.environ["TILEWIRE_TUNER_FILE"]):
        os.remove(os.environ["TILEWIRE_TUNER_FILE"])


def expect_errors(cases: list[tuple[Callable[[], Any], str]]) -> None:
    """Each call raises a tilewire.Error with the text."""
    for call, text in cases:
        try:
            call()
        except tilewire.Error as error:
            assert text in str(error), (text, str(error))
        else:
            raise AssertionError(f"nothing is said of {text}")


def tensor(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small integers, so that sums are exact. The same seed gives the same tensor on all ranks."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 4, shape, generator=generator).to(dtype)


def gathered(x: torch.Tensor, dim: int) -> torch.Tensor:
    """PyTorch's gather, with its gradient."""
    return torch.cat(torch.distributed.nn.functional.all_gather(x.contiguous()), dim)


def scattered(x: torch.Tensor, dim: int) -> torch.Tensor:
    """PyTorch's reduce-scatter: this rank's part of the sum, with its gradient."""
    whole = torch.distributed.nn.functional.all_reduce(x)
    return whole.chunk(dist.get_world_size(), dim)[dist.get_rank()]


def equal(got: torch.Tensor, want: torch.Tensor) -> None:
    """Assert that both have the same bits."""
    torch.testing.assert_close(got, want, rtol=0, atol=0)


def forward() -> None:
    """Every operator against PyTorch's composition: dimensions, layouts, strides, types."""
    size, rank = dist.get_world_size(), dist.get_rank()
    for dtype in (torch.float32, torch.bfloat16):
        for shape, dim in (((5, 12), 0), ((3, 4, 12), 0), ((3, 4, 12), 1), ((2, 3, 2, 12), -2)):
            x = tensor(10 + rank, *shape, dtype=dtype)
            for b in (tensor(20 + rank, 12, 9, dtype=dtype), tensor(20 + rank, 9, 12, dtype=dtype).t()):
                y, whole = tt.all_gather_matmul(x, b, gather_dim=dim, return_gathered=True)
                want = torch.cat([tensor(10 + r, *shape, dtype=dtype) for r in range(size)], dim)
                equal(whole, want)
                equal(y, want @ b)
                equal(tt.all_gather_matmul(x, b, gather_dim=dim), want @ b)
        for shape, dim in (((6 * size, 12), 0), ((size, 4, 12), 0), ((3, 2 * size, 12), 1)):
            x, b = tensor(30 + rank, *shape, dtype=dtype), tensor(40 + rank, 12, 8, dtype=dtype)
            both = [tensor(30 + r, *shape).float() @ tensor(40 + r, 12, 8).float() for r in range(size)]
            want = sum(both[1:], both[0])
            part = want.chunk(size, dim)[rank]
            equal(tt.matmul_reduce_scatter(x, b, scatter_dim=dim).float(), part.to(dtype).float())
            average = tt.matmul_reduce_scatter(x, b, scatter_dim=dim, op="avg").float()
            torch.testing.assert_close(average, (part / size).to(dtype).float(), rtol=1e-2, atol=1e-3)
            equal(tt.matmul_all_reduce(x, b).float(), want.to(dtype).float())
        # Gather columns, and scatter columns.
        whole = torch.cat([tensor(10 + r, 3, 4, 5, dtype=dtype) for r in range(size)], -1)
        b = tensor(20 + rank, 5 * size, 9, dtype=dtype)
        y, gathered = tt.all_gather_matmul(
            tensor(10 + rank, 3, 4, 5, dtype=dtype), b, gather_dim=-1, return_gathered=True
        )
        equal(gathered, whole)
        equal(y, whole @ b)
        # Several products after one gather, in any layout.
        for dim, depth in ((0, 5), (1, 5), (-1, 5 * size)):
            whole = torch.cat([tensor(10 + r, 3, 4, 5, dtype=dtype) for r in range(size)], dim)
            bs = [tensor(20 + i + rank, depth, 9 + i, dtype=dtype) for i in range(3)]
            bias = [tensor(50 + i + rank, 9 + i, dtype=dtype) for i in range(3)]
            for given in (bs, [b.t().contiguous().t() for b in bs], [bs[0].t().contiguous().t(), *bs[1:]], bs[:1]):
                x = tensor(10 + rank, 3, 4, 5, dtype=dtype)
                ys, gathered = tt.all_gather_matmul(x, given, gather_dim=dim, return_gathered=True)
                equal(gathered, whole)
                for y, b in zip(ys, given, strict=True):
                    equal(y, whole @ b)
                some = bias[: len(given)]
                for y, b, more in zip(
                    tt.all_gather_matmul(x, given, gather_dim=dim, bias=some, activation="relu"),
                    given,
                    some,
                    strict=True,
                ):
                    equal(y, torch.relu(whole.float() @ b.float() + more.float()).to(dtype))
        x, b = tensor(30 + rank, 3, 4, 12, dtype=dtype), tensor(40 + rank, 12, 3 * size, dtype=dtype)
        want = sum(tensor(30 + r, 3, 4, 12).float() @ tensor(40 + r, 12, 3 * size).float() for r in range(size))
        equal(tt.matmul_reduce_scatter(x, b, scatter_dim=2).float(), want.chunk(size, -1)[rank].to(dtype).float())
        strided = tensor(50 + rank, 8, 24, dtype=dtype)[:, ::2]
        equal(tt.all_reduce(strided), sum(tensor(50 + r, 8, 24, dtype=dtype)[:, ::2] for r in range(size)))


def checked() -> None:
    """torch.library.opcheck, and compiled programs with one graph."""
    rank, size = dist.get_rank(), dist.get_world_size()
    name = tt._teams.group_name(None)
    x, b = tensor(1 + rank, 2 * size, 12).requires_grad_(), tensor(2 + rank, 12, 8).requires_grad_()
    tests = ("test_schema", "test_faketensor", "test_autograd_registration", "test_aot_dispatch_static")
    ops, bias = torch.ops.tilewire, tensor(3 + rank, 8).requires_grad_()
    calls = [
        (ops.all_gather_matmul.default, (x, b, name, bias, "", True)),
        (ops.all_gather_matmul.default, (x, b, name)),
        (ops.matmul_reduce_scatter.default, (x, b, name, bias)),
        (
            ops.all_gather_cols_matmul.default,
            (x, tensor(2 + rank, 12 * size, 8).requires_grad_(), name, bias, "", True),
        ),
        (ops.matmul_reduce_scatter_cols.default, (x, b, name, tensor(3, 8 // size).requires_grad_())),
        (ops.all_gather_matmuls.default, (x, [b, tensor(3 + rank, 12, 5)], name, None, "", True)),
        (
            ops.all_gather_cols_matmuls.default,
            (x, [tensor(4 + rank, 12 * size, n).requires_grad_() for n in (8, 3)], name, [bias, tensor(1, 3)]),
        ),
        (ops.matmul_all_reduce.default, (x, b, name, bias, None, "", True)),
        (ops.matmul_all_to_all.default, (x, b, name, bias)),
        (ops.matmul_all_to_all_rows.default, (x, b, name, bias)),
        (ops.all_reduce.default, (x, name)),
        (ops.all_gather_matmul_out.default, (x, b, name, tensor(1, 2 * size * size, 8), None)),
        (
            ops.all_gather_matmuls_out.default,
            (x, [b, b], name, [tensor(i, 2 * size * size, 8) for i in range(2)], tensor(1, 2 * size * size, 12)),
        ),
        (ops.matmul_reduce_scatter_out.default, (x, b, name, tensor(1, 2, 8))),
        (ops.matmul_all_reduce_out.default, (x, b, name, tensor(1, 2 * size, 8))),
        (ops.matmul_all_to_all_out.default, (x, b, name, tensor(1, 2 * size * size, 8 // size))),
        (ops.matmul_all_to_all_rows_out.default, (x, b, name, tensor(1, 2 * size, 8))),
        (ops.all_reduce_out.default, (x, name, tensor(1, 2 * size, 12))),
    ]
    for op, given in calls:
        if "_out" in str(op):
            given = torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, given)
        torch.library.opcheck(op, given, test_utils=tests)

    def program(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return tt.matmul_reduce_scatter(torch.relu(tt.all_gather_matmul(x, b)), b.t())

    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    for rows in (2, 3, 5):
        given = tensor(rows + rank, rows, 12)
        equal(compiled(given, b.detach()), program(given, b.detach()))

    def projections(x: torch.Tensor, b: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        y, z = tt.all_gather_matmul(x, [b.t(), other.t()])
        return torch.cat([torch.relu(y), z], -1)

    compiled = torch.compile(projections, fullgraph=True, backend="aot_eager")
    grads = []
    for function in (compiled, projections):
        leaves = [leaf.requires_grad_() for leaf in (tensor(1 + rank, 4, 12), tensor(2, 8, 12), tensor(3, 5, 12))]
        function(*leaves).sum().backward()
        grads.append([leaf.grad for leaf in leaves])
    for got, want in zip(*grads, strict=True):
        equal(got, want)


def epilogues() -> None:
    """Bias, activation and residual; products whose columns go to their owners; results in given tensors."""
    rank, size = dist.get_rank(), dist.get_world_size()
    name = tt._teams.group_name(None)
    x, b, bias = tensor(1 + rank, 2, 3, 12), tensor(5 + rank, 12, 8), tensor(7 + rank, 8)
    whole = torch.cat([tensor(1 + r, 2, 3, 12) for r in range(size)])
    equal(tt.all_gather_matmul(x, b, bias=bias), whole @ b + bias)
    equal(tt.all_gather_matmul(x, b, bias=bias, activation="relu"), torch.relu(whole @ b + bias))
    got = tt.all_gather_matmul(x, b, activation="gelu")
    torch.testing.assert_close(got, torch.nn.functional.gelu(whole @ b), rtol=1e-5, atol=1e-5)
    # Pairs of columns: gate and up.
    product = whole @ b
    want = torch.nn.functional.silu(product[..., ::2]) * product[..., 1::2]
    for joined in (tt.all_gather_matmul, torch.compile(tt.all_gather_matmul, fullgraph=True, backend="aot_eager")):
        got = joined(x, b, activation="swiglu_pairs")
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(tt.all_gather_matmul(leaf, b, activation="swiglu_pairs"), want, rtol=1e-5, atol=1e-5)
    x = tensor(1 + rank, 2 * size, 3, 12)
    summed = sum(tensor(1 + r, 2 * size, 3, 12) @ tensor(5 + r, 12, 8) for r in range(size))
    same, part, all_rows = tensor(3, 8), tensor(9 + rank, 2, 3, 8), tensor(9, 2 * size, 3, 8)
    got = tt.matmul_reduce_scatter(x, b, bias=same, activation="relu", residual=part)
    equal(got, torch.relu(summed.chunk(size)[rank] + same) + part)
    got = tt.matmul_all_reduce(x, b, bias=same, activation="relu", residual=all_rows)
    equal(got, torch.relu(summed + same) + all_rows)
    # Shard tokens first, then heads.
    x, b = tensor(1 + rank, 3, 2, 12), tensor(5, 12, 4 * size)
    whole = torch.cat([tensor(1 + r, 3, 2, 12) for r in range(size)])
    want = (whole @ b + tensor(3, 4 * size)).chunk(size, -1)[rank]
    equal(tt.matmul_all_to_all(x, b, bias=tensor(3, 4 * size)), want)
    # Write into rows of a larger matrix.
    place = torch.full((3 * size, 2, 9), -1.0)
    torch.ops.tilewire.matmul_all_to_all_out(x, b, name, place[:, :, :4], tensor(3, 4 * size))
    equal(place[:, :, :4], want)
    equal(place[:, :, 4:], torch.full((3 * size, 2, 5), -1.0))
    # Each rank's own b, and blocks of rows to their owners.
    made = [torch.relu(tensor(1 + r, 2 * size, 3, 12) @ tensor(5 + r, 12, 8) + tensor(7 + r, 8)) for r in range(size)]
    got = tt.matmul_all_to_all_rows(
        tensor(1 + rank, 2 * size, 3, 12), tensor(5 + rank, 12, 8), bias=tensor(7 + rank, 8), activation="relu"
    )
    equal(got, torch.cat([each.chunk(size)[rank] for each in made]))
    y, gathered = torch.empty(3 * size, 2, 4 * size), torch.empty(3 * size, 2, 12)
    torch.ops.tilewire.all_gather_matmul_out(x, b, name, y, gathered)
    equal(gathered, whole)
    equal(y, whole @ b)

    # Gradients flow through all arguments.
    def losses(ours: bool) -> list[torch.Tensor | None]:
        leaves = [t.clone().requires_grad_() for t in (tensor(1 + rank, 3, 12), tensor(5, 12, 4 * size))]
        extra = [t.clone().requires_grad_() for t in (tensor(3, 4 * size), tensor(4 + rank, 1, 4 * size))]
        (x, b), (bias, residual) = leaves, extra
        if ours:
            y = tt.all_gather_matmul(x, b, bias=bias, activation="relu")
            z = tt.matmul_all_to_all(x, b, bias=bias)
            u = tt.matmul_reduce_scatter(torch.ones(size, 12), b, bias=bias, activation="relu", residual=residual)
        else:
            everything = gathered_by_torch(x)
            y = torch.relu(everything @ b + bias)
            z = swapped_by_torch(x @ b + bias)
            u = torch.relu(scattered(torch.ones(size, 12) @ b, 0) + bias) + residual
        loss = (y * tensor(30 + rank, *y.shape)).sum() + (z * tensor(31 + rank, *z.shape)).sum() + u.sum()
        loss.backward()
        return [leaf.grad for leaf in (*leaves, *extra)]

    for got, want in zip(losses(True), losses(False), strict=True):
        equal(got, want)


def gathered_by_torch(x: torch.Tensor) -> torch.Tensor:
    return gathered(x, 0)


def swapped_by_torch(y: torch.Tensor) -> torch.Tensor:
    """Exchange [rows, N] of this rank's rows for this rank's columns of all rows, differentiable."""
    size = dist.get_world_size()
    parts = [part.contiguous() for part in y.chunk(size, -1)]
    everything = torch.distributed.nn.functional.all_gather(torch.stack(parts))
    return torch.cat([of_rank[dist.get_rank()] for of_rank in everything])


def misuse() -> None:
    """Errors name the mistake before anything runs."""
    x, b = tensor(1, 6, 12), tensor(2, 12, 8)
    size, name = dist.get_world_size(), tt._teams.group_name(None)
    cases = [
        (lambda: tt.all_gather_matmul(x, b[:5]), "a product of [6, 12] and [5, 8]"),
        (lambda: tt.all_gather_matmul(x, b.double()), "x and b are of different types"),
        (lambda: tt.all_gather_matmul(x.double(), b.double()), "want bfloat16, float16 or float32"),
        (lambda: tt.all_gather_matmul(x, b, bias=tensor(1, 7)), "bias"),
        (lambda: tt.all_gather_matmul(x, b, bias=tensor(1, 1, 8)), "bias has 2 dimensions, want 1"),
        (lambda: tt.all_gather_matmul(x, b, activation="tanh"), "activation 'tanh': want one of gelu, relu"),
        (
            lambda: tt.matmul_all_reduce(x, b, activation="swiglu_pairs"),
            "activation 'swiglu_pairs': want one of gelu, relu",
        ),
        (
            lambda: tt.all_gather_matmul(x, b[:, :7], activation="swiglu_pairs"),
            "activation 'swiglu_pairs' of 7 columns, want an even number",
        ),
        (lambda: tt.matmul_all_to_all(x, b[:, : size + 1]), f"{size + 1} columns over {size} ranks"),
        (lambda: tt.matmul_all_to_all_rows(tensor(1, size + 1, 12), b), f"{size + 1} rows over {size} ranks"),
        (lambda: tt.all_reduce(x, "nobody"), "nobody"),
        (lambda: tt.matmul_all_reduce(x, b, residual=torch.tensor(1.0)), "residual has no dimension"),
        (
            lambda: tt._gradients.call(torch.ops.tilewire.all_reduce_out.default, False, x, name, tensor(1, 5, 12)),
            "y is [5, 12], want [6, 12]",
        ),
        (
            lambda: tt._gradients.call(torch.ops.tilewire.all_reduce_out.default, False, x, name, tensor(1, 12, 6).t()),
            "y: its rows are not contiguous or have no common stride",
        ),
        (
            lambda: tt.matmul_reduce_scatter(x, b, op="avg", activation="relu"),
            "an average with bias, residual or activation",
        ),
        (lambda: tt.all_gather_matmul(x, b, gather_dim=2), "dimension 2 of (6, 12)"),
        (lambda: tt.matmul_reduce_scatter(x[: size + 1], b), f"{size + 1} rows over {size} ranks"),
        (lambda: tt.matmul_reduce_scatter(x[:3].reshape(3, 1, 12).expand(3, 2, 12), b), f"3 rows over {size} ranks"),
        (lambda: tt.matmul_reduce_scatter(x, b, op="max"), "want 'sum' or 'avg'"),
        (lambda: tt.all_gather_matmul(x, b, bias=[b[0]]), "want a tensor for one b, a list for a list"),
        (lambda: tt.all_gather_matmul(x, [b, b], bias=[b[0]]), "1 biases of 2 products"),
        (lambda: tt.all_gather_matmul(x, []), "no b: want one or more"),
        (lambda: tt.set_sms(-1), "sms = -1: want 0 or more"),
        (lambda: tt.set_tuning("slow"), "off, quick, full"),
        (lambda: tt.set_cache_size(0), "a cache of 0 operators"),
    ]
    expect_errors(cases)
    equal(tt.all_reduce(x), size * x)


def many_shapes() -> None:
    """The cache frees operators beyond its size; a new group of an old name has a team of its own."""
    tt.set_cache_size(4)
    for rows in (*range(1, 12), 1, 2):
        equal(tt.all_reduce(tensor(rows, rows, 8)), dist.get_world_size() * tensor(rows, rows, 8))
    assert tt.cached() == [f"all_reduce {rows} x 8 x 0 fused" for rows in (2, 1, 11, 10)], tt.cached()
    for _ in range(2):
        group = dist.new_group(list(range(dist.get_world_size())))
        equal(tt.all_reduce(tensor(1, 4, 8), group), dist.get_world_size() * tensor(1, 4, 8))
        dist.destroy_process_group(group)
    # Use two groups in threads, in different orders on different ranks: their first uses do not block each other.
    groups = [dist.new_group(list(range(dist.get_world_size()))) for _ in range(2)]
    order = groups if dist.get_rank() % 2 == 0 else groups[::-1]
    results: dict[str, torch.Tensor] = {}

    def first_use(group: dist.ProcessGroup) -> None:
        results[group.group_name] = tt.all_reduce(tensor(1, 4, 8), group)

    threads = []
    for group in order:
        threads.append(threading.Thread(target=first_use, args=(group,)))
        threads[-1].start()
        time.sleep(0.2)
    for thread in threads:
        thread.join()
    for group in groups:
        equal(results[group.group_name], dist.get_world_size() * tensor(1, 4, 8))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        tt.all_reduce(tensor(1, 4, 8))
    assert any(event.key == "tilewire::all_reduce fused" for event in profile.key_averages()), profile.key_averages()


def programs() -> None:
    """Autocast, activation checkpointing, export; two teams at once; data loaders; operators made in advance."""
    from torch.utils.checkpoint import checkpoint
    from torch.utils.data import DataLoader

    rank, size = dist.get_rank(), dist.get_world_size()
    x, b = tensor(1 + rank, 2 * size, 12), tensor(2 + rank, 12, 8)
    want = tt.all_gather_matmul(x.bfloat16(), b.bfloat16())
    assert isinstance(want, torch.Tensor)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        equal(tt.all_gather_matmul(x, b), want)
        equal(tt.matmul_reduce_scatter(x, b), tt.matmul_reduce_scatter(x.bfloat16(), b.bfloat16()))

    def layer(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return tt.matmul_reduce_scatter(torch.relu(tt.all_gather_matmul(x, b)), b.t())

    grads = []
    for run in (layer, lambda x, b: checkpoint(layer, x, b, use_reentrant=False)):
        leaves = [x.clone().requires_grad_(), b.clone().requires_grad_()]
        run(*leaves).sum().backward()
        grads.append([leaf.grad for leaf in leaves])
    for got, expected in zip(*grads, strict=True):
        equal(got, expected)

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return layer(x, b)

    exported = torch.export.export(Module(), (x, b)).module()
    equal(exported(x, b), layer(x, b))
    tt.warmup(tt.matmul_reduce_scatter, [(4 * size, 16, 8)], dtype=torch.float32)
    assert f"gemm_reduce_scatter {4 * size} x 8 x {16 * size} fused" in tt.cached()
    if size % 2 == 0:  # both halves work at the same time, on different problems
        halves = [dist.new_group(list(range(half * size // 2, (half + 1) * size // 2))) for half in range(2)]
        half = rank // (size // 2)
        for _ in range(5):
            equal(tt.all_reduce(tensor(1 + half, 3 + half, 8), halves[half]), size // 2 * tensor(1 + half, 3 + half, 8))
    for start in ("fork", "spawn"):
        for rows in DataLoader(list(range(4)), batch_size=2, num_workers=1, multiprocessing_context=start):
            total = tt.all_reduce(rows.float().reshape(1, 2))
            equal(total, size * rows.float().reshape(1, 2))
    tt.check()


def failures() -> None:
    """Errors name both ranks that make different requests, and the team stays usable; ranks notice a lost rank."""
    rank, size = dist.get_rank(), dist.get_world_size()
    try:
        tt.all_reduce(tensor(1, 4 + rank, 8))
        raise AssertionError("ranks asked for different things")
    except tilewire.Error as error:
        assert error.kind == "invalid_input" and "ranks 0 and 1 make different requests" in str(error), error
    equal(tt.all_reduce(tensor(1, 4, 8)), size * tensor(1, 4, 8))
    seen: list[tilewire.Error] = []
    watch = tt.on_failure(seen.append, interval_s=0.05)
    dist.barrier()
    if rank == size - 1:
        os._exit(0)
    try:
        for _ in range(100):
            tt.all_reduce(tensor(1, 4, 8))
        raise AssertionError("a rank is lost")
    except tilewire.Error as error:
        assert error.kind == "rank_lost", error
    for _ in range(100):
        if seen:
            break
        time.sleep(0.05)
    watch.stop()
    assert [error.kind for error in seen] == ["rank_lost"], seen
    tt.clear()
    with tilewire.join("host", 0, 1, job=f"alone-{os.getpid()}") as group:
        x = tensor(1, 4, 8).numpy()
        assert (group.make_op("all_reduce", 4, 8, dtype="fp32").run(x) == x).all()
    os._exit(0)  # the process group is broken


def left_by_wish(fused: Any, name: str) -> None:
    """Calls that PyTorch runs: groups without processes, and programs that request PyTorch's native kernel."""
    import torch.testing._internal.distributed.fake_pg  # noqa: F401 - registers the backend

    fake = dist.new_group(backend="fake")
    x, b = tensor(1, 2048, 8), tensor(2, 8, 4)
    try:
        tt.all_gather_matmul(x, b, fake)
    except tilewire.Error as error:
        assert error.kind == "unsupported" and "fake" in str(error), error
    else:
        raise AssertionError("a group without processes was taken")
    # NOTE: PyTorch's versions have native kernels for different shapes, and none on CPUs.
    os.environ["TORCH_SYMM_MEM_ENABLE_NATIVE_ASYNC_TP"] = "1"
    decides = "_should_use_fused_all_gather_matmul_native"
    with tt.enabled(), mock.patch.object(torch.distributed._symmetric_memory, decides, return_value=True):
        try:
            fused.fused_all_gather_matmul(x, [b], 0, name)
        except RuntimeError:
            pass  # the native kernel does not exist on CPUs
    del os.environ["TORCH_SYMM_MEM_ENABLE_NATIVE_ASYNC_TP"]
    left = tt.report()["fused_all_gather_matmul"]["pytorch"]
    assert [count for reason, count in left.items() if "native kernel" in reason] == [1], left


def drop_in() -> None:
    """PyTorch's fused operators by tilewire: results, strides, calls that fall back, and disable()."""
    import torch.distributed._symmetric_memory as symm_mem

    rank, size = dist.get_rank(), dist.get_world_size()
    name = tt._teams.group_name(None)
    fused = torch.ops.symm_mem
    with tt.enabled():
        for dim in (0, 1, -1):
            a = tensor(1 + rank, 4, 6, 8)
            bs = [tensor(10 * i + rank, 8 * size if dim == -1 else 8, 5 + i) for i in range(3)]
            for returns in (True, False):
                got, ours = fused.fused_all_gather_matmul(a, bs, dim, name, return_A=returns)
                want, theirs = symm_mem._fused_all_gather_matmul_fallback(a, bs, dim, name, return_A=returns)
                assert (got is None) == (want is None)
                for x, y in zip([got, *ours] if returns else ours, [want, *theirs] if returns else theirs, strict=True):
                    equal(x, y)
                    assert x.stride() == y.stride(), (dim, x.shape, x.stride(), y.stride())
        for dim in (0, 1, 2):
            a, b = tensor(1 + rank, 2 * size, 3 * size, 8), tensor(2 + rank, 8, 4 * size)
            for op in ("sum", "avg"):
                x = fused.fused_matmul_reduce_scatter(a, b, op, dim, name)
                # NOTE: gloo has no average.
                y = symm_mem._fused_matmul_reduce_scatter_fallback(a, b, "sum", dim, name) / (
                    size if op == "avg" else 1
                )
                torch.testing.assert_close(x, y)
                assert x.stride() == y.stride(), (dim, x.stride(), y.stride())
    rows = tt.report()
    assert rows["fused_all_gather_matmul"] == {"tilewire": 6, "pytorch": {}}, rows
    assert rows["fused_matmul_reduce_scatter"] == {"tilewire": 6, "pytorch": {}}, rows
    with tt.enabled():
        x, y = (
            f(tensor(1, 4, 8).to(torch.float64), [tensor(2, 8, 4).to(torch.float64)], 0, name)[1][0]
            for f in (fused.fused_all_gather_matmul, symm_mem._fused_all_gather_matmul_fallback)
        )
        equal(x, y)
    left = tt.report()["fused_all_gather_matmul"]["pytorch"]
    assert "want bfloat16, float16 or float32" in str(left) and list(left.values()) == [1], left
    left_by_wish(fused, name)
    try:
        fused.fused_matmul_reduce_scatter(tensor(1, 4, 8), tensor(2, 8, 4), "sum", 0, name)
    except NotImplementedError:
        return
    raise AssertionError("PyTorch has no kernel for CPUs, so somebody else answered")
