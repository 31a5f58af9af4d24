"""Activation and residual after a product. Called by the functions of products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import tilewire
from tilewire.torch._operands import Group, rows_of
from tilewire.torch._teams import group_name, group_size


def _swiglu_pairs(y: Tensor) -> Tensor:
    return torch.nn.functional.silu(y[..., ::2]) * y[..., 1::2]


_ACTIVATIONS = {"gelu": torch.nn.functional.gelu, "relu": torch.relu, "swiglu_pairs": _swiglu_pairs}


def finish(y: Tensor, activation: str, residual: Tensor | None) -> Tensor:
    """Apply the rest of an epilogue by PyTorch, because tilewire has no gradient for it."""
    y = _ACTIVATIONS[activation](y) if activation else y
    if residual is None:
        return y
    if residual.shape != y.shape or residual.dtype != y.dtype:
        given = f"{residual.dtype} {list(residual.shape)}"
        raise tilewire.Error(f"residual is {given}, want {y.dtype} {list(y.shape)}", "invalid_input")
    return y + residual


def check_activation(activation: str, *, pairs: bool = False) -> None:
    """`pairs`: whether the operator has activations that join pairs of columns."""
    if activation and (activation not in _ACTIVATIONS or (activation == "swiglu_pairs" and not pairs)):
        known = [name for name in _ACTIVATIONS if pairs or name != "swiglu_pairs"]
        raise tilewire.Error(f"activation {activation!r}: want one of {', '.join(known)}", "invalid_input")


#: Most rows of the kernel for few rows, which joins pairs of columns.
_MOST_ROWS_OF_GEMV = 16


def _in_units(x: Tensor) -> bool:
    """Whether rows (or columns) of x lie in units of 16 bytes."""
    strides = [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1 and stride > 1]
    if any(stride * x.element_size() % 16 != 0 for stride in strides):
        return False
    # NOTE: while PyTorch compiles, tensors have no addresses.
    return torch.compiler.is_compiling() or x.data_ptr() % 16 == 0


def fuses_pairs(x: Tensor, b: Sequence[Tensor], group: Group, dim: int, bias: Any, keeps: bool) -> bool:
    """Whether the operator joins pairs of columns: on GPUs where the kernel for few rows makes the products."""
    if bias is not None or dim < 0:
        return False
    if x.device.type == "cpu":
        return True
    one = len(b) == 1 and not keeps and group_size(group_name(group)) == 1
    even = x.shape[-1] % 8 == 0 and all(each.shape[-1] % 16 == 0 for each in b)
    return one and even and rows_of(x) <= _MOST_ROWS_OF_GEMV and all(_in_units(each) for each in (x, *b))
