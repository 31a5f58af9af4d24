"""Functions that ranks run to test shared memory, results in place, and tuning."""

from __future__ import annotations

import gc

import torch
import torch.distributed as dist
from torch_bodies import equal, tensor

import tilewire
import tilewire.torch as tt


def sums(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The sum of all ranks' tensors."""
    return sum((tensor(seed + r, *shape).to(dtype) for r in range(dist.get_world_size())), torch.zeros(shape)).to(dtype)


def in_place() -> None:
    """The sum over ranks in the memory of x, in any layout; a residual in the memory of the result."""
    rank = dist.get_rank()
    for dtype in (torch.float32, torch.bfloat16):
        for shape in ((5, 24), (3, 4, 8), (7,), ()):
            x = tensor(rank, *shape, dtype=dtype)
            assert tt.all_reduce(x, out=x) is x
            equal(x, sums(0, *shape, dtype=dtype))
        wide = tensor(10 + rank, 6, 24, dtype=dtype)
        left = wide[:, :11].clone()
        tt.all_reduce(wide[:, 11:], out=wide[:, 11:])
        equal(wide[:, :11], left)
        equal(wide[:, 11:], sums(10, 6, 24, dtype=dtype)[:, 11:])
        x, b = tensor(30 + rank, 6, 8, dtype=dtype), tensor(40 + rank, 8, 12, dtype=dtype)
        y = tensor(50, 6, 12, dtype=dtype)
        want = tt.matmul_all_reduce(x, b, residual=y)
        assert tt.matmul_all_reduce(x, b, residual=y, out=y) is y
        equal(y, want)

    def step(x: torch.Tensor) -> torch.Tensor:
        return tt.all_reduce(x, out=x) * 2

    x = tensor(rank, 5, 24)
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    equal(compiled(x), 2 * sums(0, 5, 24))
    equal(x, sums(0, 5, 24))
    # Refused: an `out` that overlaps x in part or does not fit, and a call that would lose a gradient.
    flat = tensor(rank, 20)
    for bad in (
        lambda: tt.all_reduce(flat[:10].view(2, 5), out=flat[5:15].view(2, 5)),
        lambda: tt.all_reduce(flat[:12].view(3, 4), out=tensor(0, 3, 4).t()),
        lambda: tt.all_reduce(flat[:12].view(3, 4), out=tensor(0, 12)),
        lambda: tt.all_reduce(tensor(rank, 5, 4).requires_grad_(), out=tensor(0, 5, 4)),
    ):
        try:
            bad()
        except tilewire.Error as error:
            assert error.kind == "invalid_input", error
        else:
            raise AssertionError("no error")


def versions() -> None:
    """Autograd notices that a tensor it needs has been overwritten."""
    w, buffer = tensor(1, 3, 4).requires_grad_(), tensor(2, 3, 4)
    y = w * buffer
    with torch.no_grad():
        tt.all_reduce(buffer, out=buffer)
    try:
        y.sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
    else:
        raise AssertionError("no error")


def memory() -> None:
    """Tensors that peers address: shapes, types, and operators that use them in place."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for shape in ((3, 4), (2, 3, 4), (5,), (), (0, 4)):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            x = tt.empty(*shape, dtype=dtype)
            assert x.shape == shape and x.dtype == dtype and x.is_contiguous()
            equal(x, torch.zeros(shape, dtype=dtype))
    for dtype in (torch.float32, torch.bfloat16):
        x, y = tt.empty(6, 8, dtype=dtype), tt.empty(6, 12, dtype=dtype)
        x.copy_(tensor(30 + rank, 6, 8))
        b = tensor(40 + rank, 8, 12, dtype=dtype)
        parts = [tensor(30 + r, 6, 8).float() @ tensor(40 + r, 8, 12).float() for r in range(size)]
        want = sum(parts[1:], parts[0]).to(dtype)
        for _ in range(3):
            tt.matmul_all_reduce(x, b, out=y)
            equal(y, want)
            y.zero_()
            dist.barrier()  # no rank clears its tensor while peers write to it
        equal(tt.matmul_all_reduce(x, b), want)
        # A part of such a tensor, and one that is not dense.
        rows = tt.empty(4, 6, 12, dtype=dtype)
        equal(tt.matmul_all_reduce(x, b, out=rows[2]), want)
        equal(rows[2], want)
        wide = tt.empty(6, 16, dtype=dtype)
        equal(tt.matmul_all_reduce(x, b, out=wide[:, 2:14]), want)
        whole = torch.cat([tensor(30 + r, 6, 8, dtype=dtype) for r in range(size)])
        equal(tt.all_gather_matmul(x, b), whole @ b)
        y.copy_(tensor(60 + rank, 6, 12))
        dist.barrier()
        tt.all_reduce(y, out=y)
        equal(y, sums(60, 6, 12, dtype=dtype))
    # Refused: ranks pass different positions.
    parts = tt.empty(size, 5, 8, dtype=torch.float32)
    try:
        tt.all_reduce(tensor(1, 5, 8), out=parts[rank])
    except tilewire.Error as error:
        assert "want the same part of the same tensor" in str(error), error
    else:
        assert size == 1
    # A leaf tensor that needs a gradient.
    x = tt.empty(2 * size, 8, dtype=torch.float32)
    x.copy_(tensor(rank, 2 * size, 8)).requires_grad_()
    b = tensor(40 + rank, 8, 4)
    tt.matmul_reduce_scatter(x, b).sum().backward()
    assert x.grad is not None and x.grad.shape == x.shape
    # The memory is reused after all ranks have released it.
    gc.collect()
    first = tt.empty(100, 100)
    place = first.data_ptr()
    del first
    dist.barrier()
    assert tt.empty(100, 100).data_ptr() == place
    # The tensor outlives the team.
    kept = tt.empty(3, 4, dtype=torch.float32)
    kept.fill_(rank)
    dist.barrier()
    tt.clear()
    equal(kept, torch.full((3, 4), float(rank)))
    equal(tt.all_reduce(kept), torch.full((3, 4), float(size * (size - 1) // 2)))
    try:
        tt.empty(3, 4, dtype=torch.float64)
    except tilewire.Error as error:
        assert "float64" in str(error)
    else:
        raise AssertionError("no error")


def tuning() -> None:
    """The configs of operators, before and after a measurement of another number of rows."""
    rank = dist.get_rank()

    def schedule_of(rows: int) -> str:
        equal(tt.all_reduce(tensor(rank, rows, 8)), sums(0, rows, 8))
        return tt.cached()[0].split()[-1]

    assert schedule_of(64) == "fused"
    tt.set_tuning("quick")
    quick = schedule_of(65)  # in the bucket of up to 128 rows
    tt.set_tuning("off")
    # The nearest bucket is used; a bucket that is too far is not.
    assert schedule_of(200) == quick
    assert schedule_of(8) == "fused"
    tt.set_tuning("full")
    full = schedule_of(66)
    tt.set_tuning("quick")
    assert schedule_of(67) == full
    tt.set_tuning("off")
