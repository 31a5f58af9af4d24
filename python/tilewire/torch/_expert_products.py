"""Products of the rows of experts by PyTorch, for the gradients. Called by _expert_gradients.py."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_ALIGN = 8  # groups begin at multiples of so many rows


def _has_grouped_products(*given: Tensor) -> bool:
    """Whether torch._grouped_mm takes them."""
    x = given[0]
    return (
        x.is_cuda
        and hasattr(torch, "_grouped_mm")
        and torch.cuda.get_device_capability(x.device)[0] >= 9
        and all(t.dtype == torch.bfloat16 and t.shape[-1] % 8 == 0 and t.shape[-2] % 8 == 0 for t in given)
    )


def _offsets(extents: Tensor) -> Tensor:
    """The ends of the groups with the rows up to the next group."""
    return (extents[1] + (_ALIGN - 1)) // _ALIGN * _ALIGN


def rows_in_groups(extents: Tensor, rows: int) -> Tensor:
    """For each row of memory, whether it is in a group: bool [rows, 1]."""
    if extents.shape[1] == 0:
        return torch.zeros(rows, 1, dtype=torch.bool, device=extents.device)
    numbers = torch.arange(rows, dtype=extents.dtype, device=extents.device)
    # NOTE: of groups that begin at one row only the last can have rows.
    group = torch.searchsorted(extents[0].contiguous(), numbers, right=True) - 1
    return ((group >= 0) & (numbers < extents[1][group.clamp(min=0)]))[:, None]


@torch.library.custom_op("tilewire::grouped_matmul", mutates_args=())
def grouped_matmul(rows: Tensor, extents: Tensor, b: Tensor) -> Tensor:
    """The rows of each group times its own matrix of b [groups, K, N]. Other rows of the result are undefined."""
    if b.shape[0] == 0:
        return rows.new_zeros(rows.shape[0], b.shape[2])
    # NOTE: the rows between groups are a multiple of 8, but not their number in memory.
    whole = rows[: rows.shape[0] // _ALIGN * _ALIGN]
    if _has_grouped_products(whole, b):
        made: Tensor = torch._grouped_mm(whole, b, offs=_offsets(extents))
        return torch.nn.functional.pad(made, (0, 0, 0, rows.shape[0] - whole.shape[0]))
    result = rows.new_zeros(rows.shape[0], b.shape[2])
    for i, (begin, end) in enumerate(extents.t().tolist()):
        result[begin:end] = rows[begin:end] @ b[i]
    return result


@grouped_matmul.register_fake
def _(rows: Tensor, extents: Tensor, b: Tensor) -> Tensor:
    return rows.new_empty(rows.shape[0], b.shape[2])


@torch.library.custom_op("tilewire::grouped_weight_gradient", mutates_args=())
def grouped_weight_gradient(x: Tensor, y: Tensor, extents: Tensor) -> Tensor:
    """x.T @ y over the rows of each group: [groups, columns of x, columns of y]."""
    rows = x.shape[0] // _ALIGN * _ALIGN
    if extents.shape[1] > 0 and _has_grouped_products(x[:rows], y[:rows]):
        inside = rows_in_groups(extents, rows)
        x, y = (torch.where(inside, t[:rows], 0) for t in (x, y))
        made: Tensor = torch._grouped_mm(x.t(), y, offs=_offsets(extents))
        return made
    result = x.new_zeros(extents.shape[1], x.shape[1], y.shape[1])
    for i, (begin, end) in enumerate(extents.t().tolist()):
        result[i] = x[begin:end].t() @ y[begin:end]
    return result


@grouped_weight_gradient.register_fake
def _(x: Tensor, y: Tensor, extents: Tensor) -> Tensor:
    return x.new_empty(extents.shape[1], x.shape[1], y.shape[1])


def _gated(gate: Tensor, up: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """silu(gate) * up, and the gradients of both."""
    s = torch.sigmoid(gate)
    return gate * s * up, grad * up * s * (1 + gate * (1 - s)), grad * gate * s


def activated(activation: str, x: Tensor) -> Tensor:
    """The activation of the columns of a product, in float32."""
    return activation_and_gradient(activation, x, None)[0]


def activation_and_gradient(activation: str, x: Tensor, grad: Tensor | None) -> tuple[Tensor, Tensor]:
    """The activation of the columns of a product, and the gradient of these; in float32 at least."""
    x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    if grad is None:
        grad = x.new_zeros(1)
    if activation == "swiglu":
        gate, up = x.chunk(2, -1)
        y, grad_gate, grad_up = _gated(gate, up, grad)
        return y, torch.cat([grad_gate, grad_up], -1)
    if activation == "swiglu_pairs":
        y, grad_gate, grad_up = _gated(x[..., ::2], x[..., 1::2], grad)
        return y, torch.stack([grad_gate, grad_up], -1).flatten(-2)
    if activation == "silu":
        s = torch.sigmoid(x)
        return x * s, grad * s * (1 + x * (1 - s))
    if activation == "gelu":
        below = 0.5 * (1 + torch.erf(x / math.sqrt(2)))
        return x * below, grad * (below + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi))
    if activation == "relu":
        return x.relu(), grad * (x > 0)
    return x, grad.expand_as(x)
