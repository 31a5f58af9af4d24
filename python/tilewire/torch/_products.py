"""Products after a gather, or before a scatter. They call torch.ops.tilewire, whose kernels are C++."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor

import tilewire
from tilewire.torch._epilogues import check_activation, finish, fuses_pairs
from tilewire.torch._gradients import call, needs_gradient
from tilewire.torch._operands import Group, allow_tf32, autocast, checked_dim
from tilewire.torch._teams import group_name

_ops = torch.ops.tilewire


@overload
def all_gather_matmul(
    x: Tensor,
    b: Tensor,
    group: Group = ...,
    *,
    gather_dim: int = ...,
    return_gathered: Literal[False] = ...,
    bias: Tensor | None = ...,
    activation: str = ...,
) -> Tensor: ...
@overload
def all_gather_matmul(
    x: Tensor,
    b: Tensor,
    group: Group = ...,
    *,
    gather_dim: int = ...,
    return_gathered: Literal[True],
    bias: Tensor | None = ...,
    activation: str = ...,
) -> tuple[Tensor, Tensor]: ...
@overload
def all_gather_matmul(
    x: Tensor,
    b: Sequence[Tensor],
    group: Group = ...,
    *,
    gather_dim: int = ...,
    return_gathered: Literal[False] = ...,
    bias: Sequence[Tensor] | None = ...,
    activation: str = ...,
) -> list[Tensor]: ...
@overload
def all_gather_matmul(
    x: Tensor,
    b: Sequence[Tensor],
    group: Group = ...,
    *,
    gather_dim: int = ...,
    return_gathered: Literal[True],
    bias: Sequence[Tensor] | None = ...,
    activation: str = ...,
) -> tuple[list[Tensor], Tensor]: ...
def all_gather_matmul(
    x: Tensor,
    b: Tensor | Sequence[Tensor],
    group: Group = None,
    *,
    gather_dim: int = 0,
    return_gathered: bool = False,
    bias: Tensor | Sequence[Tensor] | None = None,
    activation: str = "",
) -> Any:
    """`activation(torch.cat(all ranks' x, gather_dim) @ b + bias)`; products start with the rows that have arrived.

    `x`: [..., K], of the same shape on every rank; if `gather_dim` is the last dimension, [..., K / ranks]. `b`: [K,
    N], this rank's columns; fastest if it is the transpose of a Linear layer's weight. A `gather_dim` that is neither
    the first nor the last dimension costs a copy. `bias`: [N]. `activation`: "gelu" (by erf), "relu" or
    "swiglu_pairs", silu(column 2i) * column 2i + 1, so that N / 2 columns are left. Returns [..., N], and with
    `return_gathered` also the gathered x. With a list of `b` (and of biases), such as projections of one input, x is
    gathered once and a list is returned. Raises tilewire.Error if shapes, types or devices do not fit.
    """
    dim = checked_dim(x, gather_dim)
    check_activation(activation, pairs=True)
    one = isinstance(b, Tensor)
    if bias is not None and isinstance(bias, Tensor) != one:
        raise tilewire.Error("bias: want a tensor for one b, a list for a list", "invalid_input")
    if one:
        # NOTE: no lists here, to keep the host's time per call short.
        x, b, bias = autocast(x, b, bias)  # type: ignore[assignment, arg-type]
        grads = needs_gradient(x, b, bias)  # type: ignore[arg-type]
        weight_asks = b.requires_grad  # type: ignore[union-attr]
        op = _ops.all_gather_matmul.default if dim >= 0 else _ops.all_gather_cols_matmul.default
    else:
        number = len(b)
        x, *operands = autocast(x, *b, *(bias or ()), weights=number)  # type: ignore[assignment]
        b, bias = operands[:number], operands[number:] or None  # type: ignore[assignment]
        grads = needs_gradient(x, *operands)
        weight_asks = needs_gradient(*b)
        op = _ops.all_gather_matmuls.default if dim >= 0 else _ops.all_gather_cols_matmuls.default
    moved = x if dim <= 0 else x.movedim(dim, 0)
    keeps = return_gathered or (grads and weight_asks)
    fuses = not grads
    if fuses and activation == "swiglu_pairs":
        fuses = fuses_pairs(x, [b] if one else b, group, dim, bias, keeps)  # type: ignore[list-item, arg-type]
    fused = activation if fuses else ""
    y, gathered = call(op, grads, moved, b, group_name(group), bias, fused, keeps, allow_tf32(x))

    def finished(y: Tensor) -> Tensor:
        y = y if fuses else finish(y, activation, None)
        return y.movedim(0, dim) if dim > 0 else y

    result = finished(y) if one else [finished(each) for each in y]
    if not return_gathered:
        return result
    return result, gathered.movedim(0, dim) if dim > 0 else gathered


def matmul_reduce_scatter(
    x: Tensor,
    b: Tensor,
    group: Group = None,
    *,
    scatter_dim: int = 0,
    op: str = "sum",
    bias: Tensor | None = None,
    activation: str = "",
    residual: Tensor | None = None,
) -> Tensor:
    """This rank's part, along `scatter_dim`, of the sum over ranks of `x @ b`. Parts are sent as soon as they are made.

    `x`: [..., K]; `b`: [K, N]; K is this rank's shard. The size of `scatter_dim` must be a multiple of the number of
    ranks; a `scatter_dim` that is neither the first nor the last dimension costs a copy. `op`: "sum" or "avg". After a
    sum follow `bias` [N], the same on all ranks (if `scatter_dim` is the last dimension: this rank's [N / ranks]),
    `activation` ("gelu" by erf, or "relu"), and `residual`, of the result's shape. The gradient of the bias covers this
    rank's rows only; `sum_gradients` adds those of the other ranks.
    """
    if op not in ("sum", "avg"):
        raise tilewire.Error(f"op {op!r}: want 'sum' or 'avg'", "invalid_input")
    if op == "avg" and (bias is not None or activation or residual is not None):
        raise tilewire.Error("an average with bias, residual or activation: want the sum", "invalid_input")
    dim = checked_dim(x, scatter_dim)
    check_activation(activation)
    x, b, bias, residual = autocast(x, b, bias, residual)  # type: ignore[assignment]
    moved = x if dim <= 0 else x.movedim(dim, 0)
    added = residual if dim <= 0 or residual is None else residual.movedim(dim, 0)
    grads = needs_gradient(x, b, bias, residual)
    given = (None, "") if grads else (added, activation)
    y: Tensor = call(
        _ops.matmul_reduce_scatter.default if dim >= 0 else _ops.matmul_reduce_scatter_cols.default,
        grads,
        moved,
        b,
        group_name(group),
        bias,
        *given,
        op == "avg",
        torch.are_deterministic_algorithms_enabled(),
        allow_tf32(x),
    )
    if grads:
        y = finish(y, activation, added)
    return y if dim <= 0 else y.movedim(0, dim)


def matmul_all_to_all(
    x: Tensor,
    b: Tensor,
    group: Group = None,
    *,
    bias: Tensor | None = None,
    activation: str = "",
) -> Tensor:
    """This rank's columns of `torch.cat(all ranks' x) @ b + bias`. Tiles are sent as they are made.

    `x`: [..., K], this rank's tokens along the first dimension, equally many on every rank. `b`: [K, N] and `bias`:
    [N], the same on all ranks; N is a multiple of the number of ranks. Returns [..., N / ranks] for all tokens, as
    attention over heads needs after a projection of a sharded sequence. The gradients of `b` and `bias` cover this
    rank's rows only.
    """
    check_activation(activation)
    x, b, bias = autocast(x, b, bias)  # type: ignore[assignment]
    grads = needs_gradient(x, b, bias)
    fused = "" if grads else activation
    tf32 = allow_tf32(x)
    y: Tensor = call(_ops.matmul_all_to_all.default, grads, x, b, group_name(group), bias, fused, tf32)
    return finish(y, activation, None) if grads else y


def matmul_all_to_all_rows(
    x: Tensor,
    b: Tensor,
    group: Group = None,
    *,
    bias: Tensor | None = None,
    activation: str = "",
) -> Tensor:
    """Block r of `x @ b + bias` goes to rank r; returns the blocks of all ranks, in rank order.

    Tiles are sent as they are made. `x`: [..., K], cut into one block for each rank along the first dimension, which is
    a multiple of the number of ranks and the same on every rank. `b`: [K, N] and `bias`: [N] of each rank its own, such
    as its expert's. Returns [..., N], of the shape of `x @ b`: the rows that all ranks made for this one.
    """
    check_activation(activation)
    x, b, bias = autocast(x, b, bias)  # type: ignore[assignment]
    grads = needs_gradient(x, b, bias)
    fused = "" if grads else activation
    tf32 = allow_tf32(x)
    y: Tensor = call(_ops.matmul_all_to_all_rows.default, grads, x, b, group_name(group), bias, fused, tf32)
    return finish(y, activation, None) if grads else y
