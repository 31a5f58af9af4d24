"""Gradients of mixture of experts: each step's is the mirrored step."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tilewire.torch._expert_products import (
    activated,
    activation_and_gradient,
    grouped_matmul,
    grouped_weight_gradient,
    rows_in_groups,
)
from tilewire.torch._gradients import _asks, _by_torch, _flat, _register_gradient
from tilewire.torch._teams import group_size

_ops: Any = torch.ops.tilewire


def _ones(places: Tensor) -> Tensor:
    """Weights of places for a sum of rows."""
    return (places >= 0).to(torch.float32)


def _by_row(places: Tensor, values: Tensor, rows: int) -> Tensor:
    """Values of places [tokens, width], as one for each row of memory; 0 elsewhere."""
    # NOTE: places without a row write to one more element.
    index = torch.where(places >= 0, places, rows).flatten().long()
    return values.new_zeros(rows + 1).scatter(0, index, values.flatten())[:rows]


def _by_place(places: Tensor, values: Tensor) -> Tensor:
    """Values of rows, as one for each place; 0 where there is no row."""
    if values.shape[0] == 0:
        return values.new_zeros(places.shape)
    return torch.where(places >= 0, values[places.clamp(min=0).long()], 0)


def _weights_at_owners(
    values: Tensor, extents: Tensor, places: Tensor, ids: Tensor, group: str, num_experts: int, shared_experts: int
) -> Tensor:
    """The gradients of the weights of places, as those of the tokens' top_k experts, at the tokens' owners."""
    size, rank = group_size(group), dist.get_rank(dist.distributed_c10d._resolve_process_group(group))
    mine = _flat(ids)
    everyone = _by_torch("all_gather_into_tensor", mine, size, group)
    if extents.shape[1] == 0:
        by_expert = values.new_zeros(everyone.shape)
    else:
        each = -(-num_experts // size)
        first = min(num_experts, rank * each)
        row_group = torch.searchsorted(extents[0].contiguous(), places.contiguous(), right=True) - 1
        # Shared experts have no weight.
        own = (places >= 0) & (row_group < extents.shape[1] - shared_experts)
        expert = torch.where(own, row_group + first, -1)
        same = everyone[:, :, None] == expert[:, None, :]
        by_expert = torch.where(same, values[:, None, :], 0).sum(-1)
    # One rank has the value of an expert; the others have zeros.
    return _by_torch("reduce_scatter_tensor", by_expert, "sum", size, group).reshape(ids.shape)


def _setup_layer(ctx: Any, inputs: Any, output: Any) -> None:
    x, ids, weights, w13, w2, ctx.group, *others = inputs
    defaults: list[Any] = ["swiglu", 0, 0, 0, ""]
    filled = [*others, *defaults[len(others) :]]
    ctx.activation, ctx.numbers = filled[0], filled[1:4]
    ctx.inputs = len(inputs)
    ctx.save_for_backward(x, ids, weights, w13, w2)


def _backward_of_layer(ctx: Any, grad: Tensor) -> Any:
    x, ids, weights, w13, w2 = ctx.saved_tensors
    count, shared, max_rows = ctx.numbers
    count = count or (w13.shape[0] - shared) * group_size(ctx.group)
    routing = ids, weights, ctx.group, count, shared, max_rows
    rows, extents, places, shares = _ops.moe_dispatch(x, *routing)
    grad_rows = _ops.moe_dispatch(grad, *routing)[0]
    share = _by_row(places, shares, rows.shape[0])[:, None]
    product = grouped_matmul(rows, extents, w13.transpose(1, 2))
    grad_x = grad_weights = grad_w13 = grad_w2 = None
    if _asks(ctx, 4):
        hidden = activated(ctx.activation, product).to(x.dtype)
        grad_w2 = grouped_weight_gradient((share * grad_rows).to(x.dtype), hidden, extents)
    if _asks(ctx, 0) or _asks(ctx, 2) or _asks(ctx, 3):
        # The gradient of hidden rows without the weights of the rows.
        unweighed = grouped_matmul(grad_rows, extents, w2)
        hidden, grad_product = activation_and_gradient(ctx.activation, product, share * unweighed)
        grad_product = grad_product.to(x.dtype)
        if _asks(ctx, 2):
            dots = (hidden.to(x.dtype).float() * unweighed.float()).sum(-1)
            grad_weights = _weights_at_owners(_by_place(places, dots), extents, places, ids, ctx.group, count, shared)
        if _asks(ctx, 3):
            grad_w13 = grouped_weight_gradient(grad_product, rows, extents)
        if _asks(ctx, 0):
            back = grouped_matmul(grad_product, extents, w13)
            grad_x = _ops.moe_combine(back, extents, places, _ones(places), *routing[2:]).reshape(x.shape)
    return grad_x, None, grad_weights, grad_w13, grad_w2, *[None] * (ctx.inputs - 5)


def _setup_dispatch(ctx: Any, inputs: Any, output: Any) -> None:
    x, ids, _, ctx.group, ctx.count, *others = inputs
    ctx.others = [*others, *(0, 0)[len(others) :]]
    ctx.inputs, ctx.shape = len(inputs), x.shape
    _, extents, places, _ = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(ids, extents, places)


def _backward_of_dispatch(ctx: Any, grad_rows: Any, _: Any, __: Any, grad_places: Any) -> Any:
    ids, extents, places = ctx.saved_tensors
    grad_x = grad_weights = None
    if grad_rows is not None and _asks(ctx, 0):
        numbers = ctx.group, ctx.count, *ctx.others
        grad_x = _ops.moe_combine(grad_rows, extents, places, _ones(places), *numbers).reshape(ctx.shape)
    if grad_places is not None and _asks(ctx, 2):
        grad_weights = _weights_at_owners(
            torch.where(places >= 0, grad_places, 0), extents, places, ids, ctx.group, ctx.count, ctx.others[0]
        )
    return grad_x, None, grad_weights, *[None] * (ctx.inputs - 3)


def _setup_combine(ctx: Any, inputs: Any, output: Any) -> None:
    rows, extents, places, weights, ctx.group, *_ = inputs
    ctx.inputs = len(inputs)
    ctx.save_for_backward(rows, extents, places, weights)


def _backward_of_combine(ctx: Any, grad: Tensor) -> Any:
    rows, extents, places, weights = ctx.saved_tensors
    everyone = _by_torch("all_gather_into_tensor", grad, group_size(ctx.group), ctx.group)
    numbers = torch.arange(places.shape[0], device=places.device)[:, None].expand_as(places)
    grads = everyone[_by_row(places, numbers, rows.shape[0])] if places.shape[0] > 0 else torch.zeros_like(rows)
    grad_rows = grad_weights = None
    if _asks(ctx, 0):
        share = _by_row(places, weights, rows.shape[0])[:, None]
        grad_rows = torch.where(rows_in_groups(extents, rows.shape[0]), share * grads, 0).to(rows.dtype)
    if _asks(ctx, 3):
        grad_weights = _by_place(places, (grads.float() * rows.float()).sum(-1))
    return grad_rows, None, None, grad_weights, *[None] * (ctx.inputs - 4)


_register_gradient("moe", _backward_of_layer, _setup_layer)
_register_gradient("moe_dispatch", _backward_of_dispatch, _setup_dispatch)
_register_gradient("moe_combine", _backward_of_combine, _setup_combine)
