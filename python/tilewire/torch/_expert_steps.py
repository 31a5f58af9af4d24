"""The steps of a layer of experts, each by itself: dispatch and combine, with or without their products."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

import tilewire
from tilewire.torch._gradients import call, needs_gradient
from tilewire.torch._operands import Group, autocast
from tilewire.torch._teams import group_name, group_size

_ops: Any = torch.ops.tilewire


class Handle(NamedTuple):
    """What a routing leaves on this rank. It serves any number of calls of the same ranks."""

    #: int32 [2, groups]: the first row of each of this rank's experts, and the row after its last one.
    extents: Tensor
    #: int32 [tokens of all ranks, top_k + shared_experts]: the rows of each token on this rank, then -1.
    places: Tensor
    #: float32, the same shape: the weights of these rows.
    weights: Tensor
    num_experts: int
    shared_experts: int
    max_rows: int
    #: All sizes of this rank's tokens but the last.
    shape: tuple[int, ...]


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _num_ranks(name: str) -> int:
    return group_size(name)


def _most_rows(max_rows: int | None) -> int:
    if max_rows is not None and max_rows < 1:
        raise tilewire.Error(f"max_rows = {max_rows}, want at least 1", "invalid_input")
    return max_rows or 0


def _refuse_gradient(name: str, *given: Tensor | None) -> None:
    if needs_gradient(*given):
        raise tilewire.Error(f"{name} has no gradient: want torch.no_grad(), moe, or its steps apart", "unsupported")


def moe_dispatch(
    x: Tensor,
    topk_ids: Tensor,
    topk_weights: Tensor,
    group: Group = None,
    *,
    num_experts: int,
    shared_experts: int = 0,
    max_rows: int | None = None,
) -> tuple[Tensor, Handle]:
    """Send this rank's tokens to the ranks of their experts; return the rows of this rank's experts, and a handle.

    The arguments are those of `moe`, with the number of all ranks' experts, shared ones apart. The rows are
    [R, K], the same R on every rank. Those of expert e of this rank (shared experts last) are
    rows[extents[0, e] : extents[1, e]], in the order of the tokens of all ranks; other rows are undefined.
    """
    routed = (topk_ids.to(torch.int32), topk_weights.to(torch.float32))
    numbers = (num_experts, shared_experts, _most_rows(max_rows))
    wants = needs_gradient(x, topk_weights)
    made: tuple[Tensor, ...] = call(_ops.moe_dispatch.default, wants, x, *routed, group_name(group), *numbers)
    rows, extents, places, weights = made
    return rows, Handle(extents, places, weights, *numbers, tuple(x.shape[:-1]))


def moe_combine(rows: Tensor, handle: Handle, group: Group = None) -> Tensor:
    """For each of this rank's tokens the sum of weight * row over its experts' rows [R, N], on whatever rank.

    `handle`: of the dispatch, or with other weights: `handle._replace(weights=...)`. A rank adds in float32, then the
    ranks are added in order. Returns [..., N] of the type of the rows.
    """
    lists = handle.extents, handle.places, handle.weights
    numbers = handle.num_experts, handle.shared_experts, handle.max_rows
    wants = needs_gradient(rows, handle.weights)
    y: Tensor = call(_ops.moe_combine.default, wants, rows, *lists, group_name(group), *numbers)
    return y.reshape(*handle.shape, y.shape[-1])


def moe_dispatch_gemm(
    x: Tensor,
    topk_ids: Tensor,
    topk_weights: Tensor,
    w13: Tensor,
    group: Group = None,
    *,
    activation: str = "swiglu",
    num_experts: int | None = None,
    shared_experts: int = 0,
    max_rows: int | None = None,
) -> tuple[Tensor, Handle]:
    """`moe_dispatch`, then activation(row @ w13[e].T) of each row of an expert e: [R, F], and the handle. No gradient.

    The arguments are those of `moe`.
    """
    x, w13 = autocast(x, w13)  # type: ignore[assignment]
    _refuse_gradient("moe_dispatch_gemm", x, topk_weights, w13)
    routed = (topk_ids.to(torch.int32), topk_weights.to(torch.float32))
    name = group_name(group)
    count = num_experts or (w13.shape[0] - shared_experts) * _num_ranks(name)
    numbers = (count, shared_experts, _most_rows(max_rows))
    made: tuple[Tensor, ...] = call(_ops.moe_dispatch_gemm.default, False, x, *routed, w13, name, activation, *numbers)
    rows, extents, places, weights = made
    return rows, Handle(extents, places, weights, *numbers, tuple(x.shape[:-1]))


def moe_gemm_combine(rows: Tensor, handle: Handle, w2: Tensor, group: Group = None) -> Tensor:
    """`moe_combine` of row @ w2[e].T for each row of an expert e: [..., N]. No gradient."""
    rows, w2 = autocast(rows, w2)  # type: ignore[assignment]
    _refuse_gradient("moe_gemm_combine", rows, handle.weights, w2)
    lists = handle.extents, handle.places, handle.weights
    numbers = handle.num_experts, handle.shared_experts, handle.max_rows
    y: Tensor = call(_ops.moe_gemm_combine.default, False, rows, *lists, w2, group_name(group), *numbers)
    return y.reshape(*handle.shape, y.shape[-1])
