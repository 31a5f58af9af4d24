"""Operands of the public functions: their types, dimensions and gradients. Called by the files of functions."""

from __future__ import annotations

from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

import tilewire
from tilewire.torch._gradients import needs_gradient
from tilewire.torch._teams import has_constant_weights

Group: TypeAlias = dist.ProcessGroup | str | None


def autocast(*given: Tensor | None, weights: int = 1) -> tuple[Tensor | None, ...]:
    """Cast operands as torch.autocast does for a product. The first is followed by so many weights."""
    if not torch._C._is_any_autocast_enabled():
        return given
    kind = given[0].device.type if given[0] is not None else "cpu"
    if not torch.is_autocast_enabled(kind):
        return given
    dtype = torch.get_autocast_dtype(kind)
    if has_constant_weights() and any(x is not None and x.dtype != dtype for x in given[1 : 1 + weights]):
        raise tilewire.Error("constant weights under autocast: it casts them before each call", "unsupported")
    return tuple(
        x if x is None or not x.is_floating_point() or x.dtype == torch.float64 else x.to(dtype) for x in given
    )


def allow_tf32(x: Tensor) -> bool:
    # NOTE: only for fp32, because PyTorch takes a microsecond to answer.
    return x.dtype == torch.float32 and bool(torch.backends.cuda.matmul.allow_tf32)


def checked_dim(x: Tensor, dim: int) -> int:
    """Normalize a dimension: count from 0, but -1 for the last one."""
    found = dim + x.dim() if dim < 0 else dim
    if x.dim() < 2 or not 0 <= found < x.dim():
        raise tilewire.Error(f"dimension {dim} of {tuple(x.shape)}", "invalid_input")
    return found if found < x.dim() - 1 else -1


def rows_of(x: Tensor) -> int:
    return x.numel() // max(1, x.shape[-1])


def check_tensor(name: str, given: Tensor | None, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    if given is not None and (given.dtype != dtype or tuple(given.shape) != tuple(shape)):
        have = f"{given.dtype} {list(given.shape)}"
        raise tilewire.Error(f"{name} is {have}, want {dtype} {list(shape)}", "invalid_input")


def refuse_gradient(*given: Tensor | None) -> None:
    if needs_gradient(*given):
        raise tilewire.Error("out= excludes a gradient: want torch.no_grad(), or no out", "invalid_input")


def written(out: Tensor) -> Tensor:
    """Tell autograd that a C++ operator has written the tensor."""
    if not torch.compiler.is_compiling():
        torch.autograd.graph.increment_version(out)
    return out
