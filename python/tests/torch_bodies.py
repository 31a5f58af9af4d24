"""What ranks do with PyTorch, which spawned processes import."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # noqa: F401 - differentiable collectives, to compare with

import tilewire
import tilewire.torch as tt


def start(rank: int, ranks: int, port: int, body: Callable[[], None]) -> None:
    """A rank: a process group of gloo, then the body."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=60))
    body()
    dist.barrier()
    tt.clear()
    dist.destroy_process_group()


def tensor(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small integers, so that sums are exact. The same seed is the same tensor on all ranks."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 4, shape, generator=generator).to(dtype)


def gathered(x: torch.Tensor, dim: int) -> torch.Tensor:
    """PyTorch's own, with its gradient."""
    return torch.cat(torch.distributed.nn.functional.all_gather(x.contiguous()), dim)


def scattered(x: torch.Tensor, dim: int) -> torch.Tensor:
    """PyTorch's own: my part of the sum, with its gradient."""
    whole = torch.distributed.nn.functional.all_reduce(x)
    return whole.chunk(dist.get_world_size(), dim)[dist.get_rank()]


def equal(got: torch.Tensor, want: torch.Tensor) -> None:
    """The same bits."""
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
        strided = tensor(50 + rank, 8, 24, dtype=dtype)[:, ::2]
        equal(tt.all_reduce(strided), sum(tensor(50 + r, 8, 24, dtype=dtype)[:, ::2] for r in range(size)))


def gradients() -> None:
    """Against the gradients of PyTorch's differentiable collectives."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def compare(ours: Callable[..., torch.Tensor], theirs: Callable[..., torch.Tensor], *given: torch.Tensor) -> None:
        results = []
        for function in (ours, theirs):
            leaves = [x.clone().requires_grad_() for x in given]
            y = function(*leaves)
            y.backward(tensor(60 + rank, *y.shape))
            results.append([y, *[leaf.grad for leaf in leaves]])
        for got, want in zip(*results, strict=True):
            equal(got, want)

    x, b = tensor(1 + rank, 3, 4, 12), tensor(5 + rank, 12, 8)
    for dim in (0, 1):
        compare(
            lambda x, b, d=dim: tt.all_gather_matmul(x, b, gather_dim=d), lambda x, b, d=dim: gathered(x, d) @ b, x, b
        )
    x = tensor(1 + rank, 2 * size, 3, 12)
    compare(tt.matmul_reduce_scatter, lambda x, b: scattered(x @ b, 0), x, b)
    # A layer whose input and output lie in parts, as sequence parallelism has them.
    w = tensor(9 + rank, 16, 12)

    def layer(gather: Callable[..., torch.Tensor], scatter: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda x, w, b: scatter(torch.relu(gather(x, w.t())), b)

    compare(
        layer(tt.all_gather_matmul, tt.matmul_reduce_scatter),
        layer(lambda x, b: gathered(x, 0) @ b, lambda x, b: scattered(x @ b, 0)),
        tensor(3 + rank, 2 * size, 12),
        w,
        tensor(7 + rank, 16, 8),
    )


def checked() -> None:
    """torch.library.opcheck, and compiled programs with one graph."""
    rank, size = dist.get_rank(), dist.get_world_size()
    name = tt._teams.group_name(None)
    x, b = tensor(1 + rank, 2 * size, 12).requires_grad_(), tensor(2 + rank, 12, 8).requires_grad_()
    tests = ("test_schema", "test_faketensor", "test_autograd_registration", "test_aot_dispatch_static")
    torch.library.opcheck(torch.ops.tilewire.all_gather_matmul.default, (x, b, name, True), test_utils=tests)
    torch.library.opcheck(torch.ops.tilewire.matmul_reduce_scatter.default, (x, b, name, True), test_utils=tests)
    torch.library.opcheck(torch.ops.tilewire.matmul_all_reduce.default, (x, b, name), test_utils=tests)
    torch.library.opcheck(torch.ops.tilewire.all_reduce.default, (x, name), test_utils=tests)

    def program(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return tt.matmul_reduce_scatter(torch.relu(tt.all_gather_matmul(x, b)), b.t())

    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    for rows in (2, 3, 5):
        given = tensor(rows + rank, rows, 12)
        equal(compiled(given, b.detach()), program(given, b.detach()))


def misuse() -> None:
    """What is wrong is named before anything runs."""
    x, b = tensor(1, 6, 12), tensor(2, 12, 8)
    size = dist.get_world_size()
    cases = [
        (lambda: tt.all_gather_matmul(x, b[:5]), "a product of (6, 12) and (5, 8)"),
        (lambda: tt.all_gather_matmul(x, b.double()), "torch.float64"),
        (lambda: tt.all_gather_matmul(x, b, gather_dim=1), "want one before the last"),
        (lambda: tt.matmul_reduce_scatter(x[: size + 1], b), f"{size + 1} rows over {size} ranks"),
        (lambda: tt.matmul_reduce_scatter(x[:3].reshape(3, 1, 12).expand(3, 2, 12), b), f"3 rows over {size} ranks"),
        (lambda: tt.matmul_reduce_scatter(x, b, op="max"), "want 'sum' or 'avg'"),
        (lambda: tt.set_tuning("slow"), "want one of off, full"),
    ]
    for call, text in cases:
        try:
            call()
        except tilewire.Error as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"nothing is said of {text}")
    equal(tt.all_reduce(x), size * x)


def many_shapes() -> None:
    """Operators go when there are too many; a group that is made anew has a team of its own."""
    tt._teams.MOST_OPS = 4
    # One that a graph has captured stays, and a new one is not made inside a capture.
    equal(tt.all_reduce(tensor(1, 3, 24)), dist.get_world_size() * tensor(1, 3, 24))
    capturing = tt._teams._capturing
    tt._teams._capturing = lambda: True
    equal(tt.all_reduce(tensor(1, 3, 24)), dist.get_world_size() * tensor(1, 3, 24))
    try:
        tt.all_reduce(tensor(1, 5, 24))
        raise AssertionError("an operator was made inside a capture")
    except tilewire.Error as error:
        assert "all_reduce of 5 x 24 x 0 is new inside a capture" in str(error), error
    tt._teams._capturing = capturing
    team = tt._teams.team_of(tt._teams.group_name(None), torch.device("cpu"))
    kept = next(iter(team.ops.values()))
    for rows in (*range(1, 12), 1, 2):
        equal(tt.all_reduce(tensor(rows, rows, 8)), dist.get_world_size() * tensor(rows, rows, 8))
    assert len(team.ops) == 5 and kept in team.ops.values()
    for _ in range(2):
        group = dist.new_group(list(range(dist.get_world_size())))
        equal(tt.all_reduce(tensor(1, 4, 8), group), dist.get_world_size() * tensor(1, 4, 8))
        dist.destroy_process_group(group)


def drop_in() -> None:
    """PyTorch's fused operators by tilewire: results, strides, what falls back, and back again."""
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
            for op in ("sum", "avg") if dim < 2 else ("sum",):
                x = fused.fused_matmul_reduce_scatter(a, b, op, dim, name)
                # NOTE: gloo has no average.
                y = symm_mem._fused_matmul_reduce_scatter_fallback(a, b, "sum", dim, name) / (
                    size if op == "avg" else 1
                )
                torch.testing.assert_close(x, y)
                assert x.stride() == y.stride(), (dim, x.stride(), y.stride())
    rows = tt.report()
    assert rows["fused_all_gather_matmul"]["tilewire"] == 4, rows
    assert "want one before the last" in str(rows["fused_all_gather_matmul"]["pytorch"]), rows
    assert rows["fused_matmul_reduce_scatter"]["tilewire"] == 4, rows
    try:
        fused.fused_matmul_reduce_scatter(tensor(1, 4, 8), tensor(2, 8, 4), "sum", 0, name)
    except NotImplementedError:
        return
    raise AssertionError("PyTorch has no kernel for CPUs, so somebody else answered")
