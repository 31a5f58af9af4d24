"""Mixture of experts whose experts are spread over the ranks of a process group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import tilewire
from tilewire.torch._gradients import call, needs_gradient
from tilewire.torch._operands import Group, autocast
from tilewire.torch._teams import group_name

_op: Any = torch.ops.tilewire.moe
_dropping_op: Any = torch.ops.tilewire.moe_dropping


def _call(op: Any, x: Tensor, ids: Tensor, weights: Tensor, w13: Tensor, w2: Tensor, group: Group, *others: Any) -> Any:
    x, w13, w2 = autocast(x, w13, w2, weights=2)  # type: ignore[assignment]
    wants = needs_gradient(x, weights, w13, w2)
    if wants and op is _dropping_op:
        raise tilewire.Error("moe_dropping has no gradient: want torch.no_grad()", "unsupported")
    routed = (ids.to(torch.int32), weights.to(torch.float32))
    return call(op.default, wants, x, *routed, w13, w2, group_name(group), *others)


def _list(numbers: Sequence[float]) -> str:
    return ",".join(repr(float(number)) for number in numbers)


def _at_least_one(max_rows: int) -> int:
    if max_rows < 1:
        raise tilewire.Error(f"max_rows = {max_rows}, want at least 1", "invalid_input")
    return max_rows


def moe(
    x: Tensor,
    topk_ids: Tensor,
    topk_weights: Tensor,
    w13: Tensor,
    w2: Tensor,
    group: Group = None,
    *,
    activation: str = "swiglu",
    num_experts: int | None = None,
    shared_experts: int = 0,
    max_rows: int | None = None,
    expert_load: Sequence[float] = (),
) -> Tensor:
    """For each token the sum of weight * (activation(x @ w13[e].T) @ w2[e].T) over its experts e, on whatever rank.

    `x`: [..., K], this rank's tokens, equally many on every rank. `topk_ids`: [..., top_k], different numbers of
    experts among all ranks; `topk_weights`: the same shape. `w13`: [E, 2 F, K] and `w2`: [E, N, F], the weights of this
    rank's E experts: rank 0 has the first ones. The first F rows of `w13[e]` are the gate; with `activation` =
    "swiglu_pairs" rows 2i and 2i + 1 are gate and up, and with "silu", "gelu", "relu" or "none" w13 is [E, F, K].
    `num_experts`: of all ranks, shared ones apart; default: those of a rank times the ranks. The last `shared_experts`
    of `w13` and `w2`, the same on every rank, take all of the rank's tokens with weight 1. `max_rows`: rows that the
    experts of a rank take at most, shared ones apart; default: any number, with memory for the worst routing.
    `expert_load`: the tokens that each of all ranks' experts is expected to take, relative to the others; default:
    equal numbers. The tuner chooses for such a routing; no result depends on it. Returns [..., N] of x's type. No token
    is dropped. The rows of weights must be contiguous.

    The gradients of x, `topk_weights`, `w13` and `w2` are computed from these; nothing else is kept for them. That of a
    shared expert is of this rank's tokens, as of any weight that all ranks have.

    Raises tilewire.Error if shapes, types or devices do not fit. A token must have no
    expert twice, and none that does not exist, such as -1; and no rank may get more than `max_rows` rows. Else the
    group ends, and the error names the token, counted over all ranks' tokens, or the number of rows; on GPUs it comes
    with a later call or check().
    """
    rows = 0 if max_rows is None else _at_least_one(max_rows)
    others = (activation, num_experts or 0, shared_experts, rows, _list(expert_load))
    y: Tensor = _call(_op, x, topk_ids, topk_weights, w13, w2, group, *others)
    return y


def moe_dropping(
    x: Tensor,
    topk_ids: Tensor,
    topk_weights: Tensor,
    w13: Tensor,
    w2: Tensor,
    group: Group = None,
    *,
    max_rows: int,
    activation: str = "swiglu",
    num_experts: int | None = None,
    shared_experts: int = 0,
    expert_load: Sequence[float] = (),
) -> tuple[Tensor, Tensor]:
    """`moe` that leaves out rows beyond `max_rows` of a rank, those of the last tokens, counted over all ranks' tokens.

    Also returns the number of rows that this rank's experts have left out: int32 [1, 1], on the device. No gradient.
    """
    others = (activation, num_experts or 0, shared_experts, _at_least_one(max_rows), _list(expert_load))
    y, dropped = _call(_dropping_op, x, topk_ids, topk_weights, w13, w2, group, *others)
    return y, dropped
