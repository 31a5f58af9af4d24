"""Mixture of experts whose experts are spread over the ranks of a process group."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import tilewire
from tilewire.torch._gradients import call, needs_gradient
from tilewire.torch._operands import Group, autocast
from tilewire.torch._teams import group_name

_op: Any = torch.ops.tilewire.moe


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
) -> Tensor:
    """For each token the sum of weight * (activation(x @ w13[e].T) @ w2[e].T) over its experts e, on whatever rank.

    `x`: [..., K], this rank's tokens, equally many on every rank. `topk_ids`: [..., top_k], different numbers of
    experts among all ranks; `topk_weights`: the same shape. `w13`: [E, 2 F, K] and `w2`: [E, N, F], the weights of this
    rank's E experts: rank 0 has the first ones. The first F rows of `w13[e]` are the gate; with `activation` =
    "swiglu_pairs" rows 2i and 2i + 1 are gate and up, and with "silu", "gelu", "relu" or "none" w13 is [E, F, K].
    `num_experts`: of all ranks; default: E times the ranks. Returns [..., N] of x's type. No token is dropped. The rows
    of weights must be contiguous. Raises tilewire.Error if shapes, types or devices do not fit, or if a gradient is
    needed. A token must have no expert twice, and none that does not exist, such as -1: this ends the group, and the
    error names the token, counted over all ranks' tokens; on GPUs it comes with a later call or check().
    """
    x, w13, w2 = autocast(x, w13, w2, weights=2)  # type: ignore[assignment]
    if needs_gradient(x, topk_weights, w13, w2):
        raise tilewire.Error("moe has no gradient: want torch.no_grad()", "unsupported")
    ids, weights = topk_ids.to(torch.int32), topk_weights.to(torch.float32)
    y: Tensor = call(_op.default, False, x, ids, weights, w13, w2, group_name(group), activation, num_experts or 0)
    return y
