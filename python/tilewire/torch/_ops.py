"""The operators: kernels, fakes and autograd formulas. torch.ops.tilewire takes matrices and the name of a group."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import tilewire
from tilewire.torch._teams import group_name, group_size, team_of

_NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


def _dtype(*tensors: Tensor) -> str:
    devices = {tensor.device for tensor in tensors}
    if len(devices) > 1:
        raise tilewire.Error(f"tensors on {', '.join(sorted(map(str, devices)))}: want one device", "invalid_input")
    kinds = {tensor.dtype for tensor in tensors}
    if len(kinds) > 1 or not kinds <= set(_NAMES):
        names = ", ".join(str(tensor.dtype) for tensor in tensors)
        raise tilewire.Error(f"tensors of {names}: want one of bfloat16, float16 and float32", "invalid_input")
    return _NAMES[tensors[0].dtype]


def _rows(x: Tensor) -> Tensor:
    """The same matrix with contiguous rows."""
    return x if x.shape[1] <= 1 or x.stride(1) == 1 else x.contiguous()


def _weight(b: Tensor) -> tuple[Tensor, str]:
    """B as it lies: [N, K] where columns of [K, N] are contiguous."""
    if b.stride(0) == 1 and b.shape[0] > 1:
        return b.t(), "nk"
    return _rows(b), "kn"


def _reduction() -> str:
    return "repeatable" if torch.are_deterministic_algorithms_enabled() else "any"


def _view(x: Tensor) -> tilewire.Tensor:
    """The matrix where it lies. NOTE: DLPack does the same in five times the time."""
    device = x.get_device() if x.is_cuda else -1
    return tilewire.Tensor.at(x.data_ptr(), _NAMES[x.dtype], x.shape[0], x.shape[1], x.stride(0), device, x)


def _run(op: tilewire.Op, inputs: list[Tensor], outputs: list[Tensor]) -> None:
    stream = torch.cuda.current_stream(inputs[0].device).cuda_stream if inputs[0].is_cuda else None
    op._op.run([_view(x) for x in inputs], [_view(y) for y in outputs], stream)


def _product(name: str, x: Tensor, b: Tensor, m: int, n: int, k: int, group: str, **what: Any) -> tilewire.Op:
    return team_of(group, x.device).op(
        name, m, n, k, dtype=_dtype(x, b), allow_tf32=torch.backends.cuda.matmul.allow_tf32, **what
    )


def _check_product(x: Tensor, b: Tensor) -> None:
    if x.dim() != 2 or b.dim() != 2 or x.shape[1] != b.shape[0]:
        raise tilewire.Error(f"a product of {tuple(x.shape)} and {tuple(b.shape)}", "invalid_input")


def _check_shards(rows: int, size: int) -> None:
    if rows % size != 0:
        raise tilewire.Error(f"{rows} rows over {size} ranks: want a multiple", "invalid_input")


@torch.library.custom_op("tilewire::all_gather_matmul", mutates_args=())
def _all_gather_matmul(x: Tensor, b: Tensor, group: str, gather: bool) -> tuple[Tensor, Tensor]:
    _check_product(x, b)
    size = group_size(group)
    m, k, cols = x.shape[0] * size, x.shape[1], b.shape[1]
    weight, layout = _weight(b)
    op = _product("all_gather_gemm", x, b, m, cols * size, k, group, b_layout=layout, gathered_output=gather)
    y = x.new_empty(m, cols)
    gathered = x.new_empty(m if gather else 0, k)
    _run(op, [_rows(x), weight], [y, gathered] if gather else [y])
    return y, gathered


@_all_gather_matmul.register_fake
def _(x: Tensor, b: Tensor, group: str, gather: bool) -> tuple[Tensor, Tensor]:
    m = x.shape[0] * group_size(group)
    return x.new_empty(m, b.shape[1]), x.new_empty(m if gather else 0, x.shape[1])


def _all_gather_matmul_setup(ctx: Any, inputs: Any, output: Any) -> None:
    _, b, ctx.group, gather = inputs
    _, gathered = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(b, gathered if gather else None)


def _all_gather_matmul_backward(ctx: Any, grad: Tensor | None, grad_gathered: Tensor | None) -> Any:
    b, gathered = ctx.saved_tensors
    grad_x = grad_b = None
    if grad is not None and ctx.needs_input_grad[0]:
        grad_x = torch.ops.tilewire.matmul_reduce_scatter(grad, b.t(), ctx.group, False)
    if grad is not None and ctx.needs_input_grad[1]:
        if gathered is None:
            raise tilewire.Error("all_gather_matmul without gather keeps nothing for it", "invalid_input")
        grad_b = gathered.t() @ grad
    if grad_gathered is not None and ctx.needs_input_grad[0]:
        size = group_size(ctx.group)
        summed = torch.ops.tilewire.all_reduce(grad_gathered, ctx.group)
        rank = dist.get_rank(dist.distributed_c10d._resolve_process_group(ctx.group))
        mine = summed.chunk(size)[rank]
        grad_x = mine.clone() if grad_x is None else grad_x + mine
    return grad_x, grad_b, None, None


torch.library.register_autograd(
    "tilewire::all_gather_matmul", _all_gather_matmul_backward, setup_context=_all_gather_matmul_setup
)


@torch.library.custom_op("tilewire::matmul_reduce_scatter", mutates_args=())
def _matmul_reduce_scatter(x: Tensor, b: Tensor, group: str, average: bool) -> Tensor:
    _check_product(x, b)
    size = group_size(group)
    m, depth, n = x.shape[0], x.shape[1], b.shape[1]
    _check_shards(m, size)
    weight, layout = _weight(b)
    op = _product(
        "gemm_reduce_scatter",
        x,
        b,
        m,
        n,
        depth * size,
        group,
        b_layout=layout,
        reduction=_reduction(),
        epilogue=(("scale", 1 / size),) if average else (),
    )
    y = x.new_empty(m // size, n)
    _run(op, [_rows(x), weight], [y])
    return y


@_matmul_reduce_scatter.register_fake
def _(x: Tensor, b: Tensor, group: str, average: bool) -> Tensor:
    return x.new_empty(x.shape[0] // group_size(group), b.shape[1])


def _matmul_reduce_scatter_setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, b, ctx.group, ctx.average = inputs
    ctx.save_for_backward(x, b)


def _matmul_reduce_scatter_backward(ctx: Any, grad: Tensor) -> Any:
    x, b = ctx.saved_tensors
    if ctx.average:
        grad = grad / group_size(ctx.group)
    grad_x, whole = torch.ops.tilewire.all_gather_matmul(grad.contiguous(), b.t(), ctx.group, True)
    return grad_x, x.t() @ whole, None, None


torch.library.register_autograd(
    "tilewire::matmul_reduce_scatter", _matmul_reduce_scatter_backward, setup_context=_matmul_reduce_scatter_setup
)


@torch.library.custom_op("tilewire::matmul_all_reduce", mutates_args=())
def _matmul_all_reduce(x: Tensor, b: Tensor, group: str) -> Tensor:
    _check_product(x, b)
    weight, layout = _weight(b)
    m, n = x.shape[0], b.shape[1]
    op = _product(
        "gemm_all_reduce",
        x,
        b,
        m,
        n,
        x.shape[1] * group_size(group),
        group,
        b_layout=layout,
        reduction=_reduction(),
    )
    y = x.new_empty(m, n)
    _run(op, [_rows(x), weight], [y])
    return y


@_matmul_all_reduce.register_fake
def _(x: Tensor, b: Tensor, group: str) -> Tensor:
    return x.new_empty(x.shape[0], b.shape[1])


def _matmul_all_reduce_setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, b, _ = inputs
    ctx.save_for_backward(x, b)


def _matmul_all_reduce_backward(ctx: Any, grad: Tensor) -> Any:
    x, b = ctx.saved_tensors
    return grad @ b.t(), x.t() @ grad, None


torch.library.register_autograd(
    "tilewire::matmul_all_reduce", _matmul_all_reduce_backward, setup_context=_matmul_all_reduce_setup
)


@torch.library.custom_op("tilewire::all_reduce", mutates_args=())
def _all_reduce(x: Tensor, group: str) -> Tensor:
    if x.dim() != 2:
        raise tilewire.Error(f"a tensor of {x.dim()} dimensions: want 2", "invalid_input")
    op = team_of(group, x.device).op("all_reduce", x.shape[0], x.shape[1], 0, dtype=_dtype(x), reduction=_reduction())
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    _run(op, [_rows(x)], [y])
    return y


@_all_reduce.register_fake
def _(x: Tensor, group: str) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


torch.library.register_autograd("tilewire::all_reduce", lambda ctx, grad: (grad, None))


def _first(x: Tensor, dim: int) -> Tensor:
    """`dim` first."""
    return x if dim == 0 else x.movedim(dim, 0)


def _flat(x: Tensor) -> Tensor:
    return x if x.dim() == 2 else x.reshape(-1, x.shape[-1])


def _unflat(y: Tensor, moved: Tensor, dim: int) -> Tensor:
    """The rows of a result as those of `moved`, whose first dimension then goes back to `dim`."""
    # NOTE: the number of ranks is not asked for: programs that are compiled cannot.
    middle = moved.shape[1:-1]
    return y.reshape(y.shape[0] // max(1, middle.numel()), *middle, y.shape[1]).movedim(0, dim)


def _dim(x: Tensor, dim: int) -> int:
    """A dimension of rows, counted from 0."""
    found = dim + x.dim() if dim < 0 else dim
    if x.dim() < 2 or not 0 <= found < x.dim() - 1:
        raise tilewire.Error(f"dimension {dim} of {tuple(x.shape)}: want one before the last", "invalid_input")
    return found


def all_gather_matmul(
    x: Tensor,
    b: Tensor,
    group: dist.ProcessGroup | str | None = None,
    *,
    gather_dim: int = 0,
    return_gathered: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """`torch.cat(all ranks' x, gather_dim) @ b`, where products begin with the rows that have come.

    `x`: [..., K], the same shape on every rank; `b`: [K, N], this rank's columns, best the transpose of a Linear
    layer's weight. `gather_dim`: any but the last; one that is not the first costs a copy. Returns [..., N], and with
    `return_gathered` the gathered x. Raises tilewire.Error where shapes, types or devices are not so.
    """
    dim = _dim(x, gather_dim)
    moved = _first(x, dim)
    keeps = return_gathered or (torch.is_grad_enabled() and b.requires_grad)
    y, gathered = torch.ops.tilewire.all_gather_matmul(_flat(moved), b, group_name(group), keeps)
    y = _unflat(y, moved, dim)
    return (y, _unflat(gathered, moved, dim)) if return_gathered else y


def matmul_reduce_scatter(
    x: Tensor,
    b: Tensor,
    group: dist.ProcessGroup | str | None = None,
    *,
    scatter_dim: int = 0,
    op: str = "sum",
) -> Tensor:
    """This rank's part along `scatter_dim` of the sum over ranks of `x @ b`, where parts leave as they are made.

    `x`: [..., K]; `b`: [K, N], K this rank's part. `scatter_dim`: any but the last, a multiple of the number of ranks;
    one that is not the first costs a copy. `op`: "sum" or "avg".
    """
    if op not in ("sum", "avg"):
        raise tilewire.Error(f"op {op!r}: want 'sum' or 'avg'", "invalid_input")
    dim = _dim(x, scatter_dim)
    moved = _first(x, dim)
    if not torch.compiler.is_compiling():
        _check_shards(moved.shape[0], group_size(group_name(group)))
    y = torch.ops.tilewire.matmul_reduce_scatter(_flat(moved), b, group_name(group), op == "avg")
    return _unflat(y, moved, dim)


def matmul_all_reduce(x: Tensor, b: Tensor, group: dist.ProcessGroup | str | None = None) -> Tensor:
    """The sum over ranks of `x @ b`, on every rank. `x`: [..., K]; `b`: [K, N], K this rank's part.

    Its gradient is that of a tensor-parallel layer: the same on all ranks.
    """
    return torch.ops.tilewire.matmul_all_reduce(_flat(x), b, group_name(group)).reshape(*x.shape[:-1], b.shape[1])


def all_reduce(x: Tensor, group: dist.ProcessGroup | str | None = None) -> Tensor:
    """The sum over ranks, as a new tensor. Its gradient is the output's, which is the same on all ranks."""
    flat = _flat(x) if x.dim() >= 2 else x.reshape(1, -1)
    return torch.ops.tilewire.all_reduce(flat, group_name(group)).reshape(x.shape)
