"""Norms of the rows of a sum, plain and quantised: within the operator, or by PyTorch. Called by the all-reduces."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import tilewire
from tilewire.torch._gradients import call, needs_gradient
from tilewire.torch._operands import Group, check_tensor, rows_of, written
from tilewire.torch._teams import group_name, group_size

#: Rows and columns up to which kernels for few rows have norms; they load 16 bytes at a time. Beside other kernels
#: PyTorch's norm is faster.
MOST_ROWS_OF_PRODUCT = 64
MOST_ROWS_ALONE = 128
_MOST_COLS = 16384

#: Most bytes of a sum that goes to all peers at once, with those of all peers.
_MOST_SENT = 1 << 20

#: Types of quantised rows: tilewire's names, and the largest numbers.
_NORM_DTYPES = {torch.float8_e4m3fn: ("fp8_e4m3", 448.0), torch.int8: ("int8", 127.0)}


def normalise(y: Tensor, weight: Tensor, bias: Tensor | None, eps: float, out: Tensor | None) -> Tensor:
    """The norm of the rows by PyTorch, for gradients and for many rows on GPUs."""
    size = (y.shape[-1],)
    functional = torch.nn.functional
    # NOTE: autocast would make a LayerNorm's result fp32.
    with torch.autocast(y.device.type, enabled=False):
        normed = (
            functional.rms_norm(y, size, weight, eps)
            if bias is None
            else functional.layer_norm(y, size, weight, bias, eps)
        )
    return normed if out is None else out.copy_(normed)


def check_norm(
    y: tuple[int, ...], dtype: torch.dtype, eps: float, rows: dict[str, Tensor | None], wholes: dict[str, Tensor | None]
) -> None:
    """Check what follows a sum of shape `y`: `rows` have its columns, `wholes` its shape. For PyTorch's norm."""
    if not eps > 0:
        raise tilewire.Error(f"norm: eps = {eps:g}: want more than 0", "invalid_input")
    for name, tensor in (*rows.items(), *wholes.items()):
        check_tensor(name, tensor, dtype, y[-1:] if name in rows else y)


def is_short(x: Tensor, cols: int, group: Group) -> bool:
    """Whether the sum of a product of x is short enough for the kernels for few rows."""
    return x.device.type == "cpu" or rows_of(x) * cols * 2 * (group_size(group_name(group)) - 1) <= _MOST_SENT


def fuses_norm(x: Tensor, most_rows: int, weight: Tensor, bias: Tensor | None = None) -> bool:
    if x.device.type == "cpu":
        return True
    rows, cols = rows_of(x), weight.numel()
    if x.element_size() != 2 or rows > most_rows or cols % 8 != 0 or cols > _MOST_COLS:
        return False
    # NOTE: while PyTorch compiles, tensors have no addresses.
    return torch.compiler.is_compiling() or all(row is None or row.data_ptr() % 16 == 0 for row in (weight, bias))


def call_with_norm(
    ops: tuple[Any, Any],
    operands: tuple[Any, ...],
    tail: tuple[Any, ...],
    cols: int,
    out: Tensor | None,
    norm_out: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Call an operator that also normalises, or `ops[1]`, its variant that writes into given tensors."""
    if out is None and norm_out is None:
        both: tuple[Tensor, Tensor] = call(ops[0].default, False, *operands, *tail)
        return both
    x = operands[0]
    y = x.new_empty((*x.shape[:-1], cols)) if out is None else out
    normed = torch.empty_like(y) if norm_out is None else norm_out
    call(ops[1].default, False, *operands, y, normed, *tail)
    return written(y), written(normed)


def check_quantised(dtype: torch.dtype, *given: Tensor | None) -> None:
    if dtype not in _NORM_DTYPES:
        raise tilewire.Error(f"norm_dtype = {dtype}: want torch.float8_e4m3fn or torch.int8", "invalid_input")
    if needs_gradient(*given):
        raise tilewire.Error("norm_dtype excludes a gradient: want torch.no_grad()", "invalid_input")


def check_scale_out(norm_dtype: torch.dtype | None, scale_out: Tensor | None) -> None:
    if norm_dtype is None and scale_out is not None:
        raise tilewire.Error("scale_out without norm_dtype", "invalid_input")


def _check_outs(y: Tensor, dtype: torch.dtype, norm_out: Tensor | None, scale_out: Tensor | None) -> None:
    """Check given tensors for quantised rows and scales of y, as the operator does."""
    check_tensor("norm_out", norm_out, dtype, tuple(y.shape))
    check_tensor("scale_out", scale_out, torch.float32, (*y.shape[:-1], 1))


def quantise(
    y: Tensor, weight: Tensor, eps: float, dtype: torch.dtype, norm_out: Tensor | None, scale_out: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The quantised norm of the rows by PyTorch, for many rows on GPUs."""
    _check_outs(y, dtype, norm_out, scale_out)
    normed = torch.nn.functional.rms_norm(y.float(), (y.shape[-1],), weight.float(), eps)
    most = normed.abs().amax(-1, keepdim=True)
    scale = torch.where(most == 0, 1.0, most / _NORM_DTYPES[dtype][1])
    normed = normed / scale
    normed = (normed.round() if dtype == torch.int8 else normed).to(dtype)
    return (
        y,
        normed if norm_out is None else norm_out.copy_(normed),
        scale if scale_out is None else scale_out.copy_(scale),
    )


def call_quantised(
    ops: tuple[Any, Any],
    operands: tuple[Any, ...],
    norm: tuple[Tensor, float, torch.dtype],
    tail: tuple[Any, ...],
    cols: int,
    outs: tuple[Tensor | None, Tensor | None, Tensor | None],
) -> tuple[Tensor, Tensor, Tensor]:
    """Call an operator that normalises and quantises, or `ops[1]`, its variant that writes into given tensors."""
    weight, eps, dtype = norm
    if all(out is None for out in outs):
        three: tuple[Tensor, Tensor, Tensor]
        three = call(ops[0].default, False, *operands, weight, eps, _NORM_DTYPES[dtype][0], *tail)
        return three
    x = operands[0]
    y = x.new_empty((*x.shape[:-1], cols)) if outs[0] is None else outs[0]
    normed = torch.empty_like(y, dtype=dtype) if outs[1] is None else outs[1]
    scale = x.new_empty((*y.shape[:-1], 1), dtype=torch.float32) if outs[2] is None else outs[2]
    _check_outs(y, dtype, normed, scale)
    call(ops[1].default, False, *operands, y, normed, scale, weight, eps, *tail)
    return written(y), written(normed), written(scale)
