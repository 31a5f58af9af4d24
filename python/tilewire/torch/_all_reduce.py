"""Sums on all ranks: alone or of a product, with or without the norm of their rows."""

from __future__ import annotations

from typing import overload

import torch
from torch import Tensor

import tilewire
from tilewire.torch._epilogues import check_activation, finish
from tilewire.torch._gradients import call, needs_gradient
from tilewire.torch._norms import (
    MOST_ROWS_ALONE,
    MOST_ROWS_OF_PRODUCT,
    call_quantised,
    call_with_norm,
    check_norm,
    check_quantised,
    check_scale_out,
    fuses_norm,
    is_short,
    normalise,
    quantise,
)
from tilewire.torch._operands import Group, allow_tf32, autocast, refuse_gradient, written
from tilewire.torch._teams import group_name

_ops = torch.ops.tilewire


@overload
def matmul_all_reduce(
    x: Tensor,
    b: Tensor,
    group: Group = ...,
    *,
    bias: Tensor | None = ...,
    activation: str = ...,
    residual: Tensor | None = ...,
    norm_weight: None = ...,
    out: Tensor | None = ...,
) -> Tensor: ...
@overload
def matmul_all_reduce(
    x: Tensor,
    b: Tensor,
    group: Group = ...,
    *,
    bias: Tensor | None = ...,
    activation: str = ...,
    residual: Tensor | None = ...,
    norm_weight: Tensor,
    norm_bias: Tensor | None = ...,
    eps: float = ...,
    norm_dtype: None = ...,
    out: Tensor | None = ...,
    norm_out: Tensor | None = ...,
) -> tuple[Tensor, Tensor]: ...
@overload
def matmul_all_reduce(
    x: Tensor,
    b: Tensor,
    group: Group = ...,
    *,
    bias: Tensor | None = ...,
    activation: str = ...,
    residual: Tensor | None = ...,
    norm_weight: Tensor,
    eps: float = ...,
    norm_dtype: torch.dtype,
    out: Tensor | None = ...,
    norm_out: Tensor | None = ...,
    scale_out: Tensor | None = ...,
) -> tuple[Tensor, Tensor, Tensor]: ...
def matmul_all_reduce(
    x: Tensor,
    b: Tensor,
    group: Group = None,
    *,
    bias: Tensor | None = None,
    activation: str = "",
    residual: Tensor | None = None,
    norm_weight: Tensor | None = None,
    norm_bias: Tensor | None = None,
    eps: float = 1e-6,
    norm_dtype: torch.dtype | None = None,
    out: Tensor | None = None,
    norm_out: Tensor | None = None,
    scale_out: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]:
    """The sum over ranks of `x @ b`, on every rank. `x`: [..., K]; `b`: [K, N]; K is this rank's shard.

    After the sum follow `bias` [N], `activation` and `residual`, of the result's shape; bias and residual are the same
    on all ranks. The gradient is that of a tensor-parallel layer: the output's gradient is the same on all ranks.
    Returns a new tensor, or `out`, which may be `residual` itself; `out` excludes a gradient. If `out` comes from
    `tilewire.torch.empty`, the sum is made in it.

    With `norm_weight` [N] it also returns the normalised rows of the result, as the next layer needs them: RMSNorm, or
    with `norm_bias` [N] LayerNorm. The norm takes the rounded result and computes in fp32; `eps` is added to the mean
    of the squares, or to the variance. `norm_out`: a tensor for the normalised rows.

    `norm_dtype` = torch.float8_e4m3fn or torch.int8 quantises the rows of an RMSNorm, and returns a third tensor, the
    scales [..., 1] in fp32: a row is about `normed.float() * scale`. The scale of a row is its largest absolute value
    over 448 or 127 (1 for a row of zeros). `scale_out`: a tensor for the scales. There is no gradient.
    """
    check_activation(activation)
    x, b, bias, residual = autocast(x, b, bias, residual)  # type: ignore[assignment]
    if norm_weight is not None:
        weight, norm_bias = autocast(norm_weight, norm_bias, weights=0)
        grads = needs_gradient(x, b, bias, residual, weight, norm_bias)
        if out is not None or norm_out is not None:
            refuse_gradient(x, b, bias, residual, weight, norm_bias, out, norm_out)
        short = is_short(x, b.shape[-1], group)
        fuses = not grads and short and fuses_norm(x, MOST_ROWS_OF_PRODUCT, weight, norm_bias)  # type: ignore[arg-type]
        options = bias, residual, activation, torch.are_deterministic_algorithms_enabled(), allow_tf32(x)
        operands = x, b, group_name(group)
        check_scale_out(norm_dtype, scale_out)
        if norm_dtype is not None:
            if norm_bias is not None:
                raise tilewire.Error("norm_dtype with norm_bias: a LayerNorm is not quantised", "unsupported")
            check_quantised(norm_dtype, x, b, bias, residual, weight)
            if fuses:
                three = _ops.matmul_all_reduce_norm_quantised, _ops.matmul_all_reduce_norm_quantised_out
                norm = weight, eps, norm_dtype
                return call_quantised(three, operands, norm, options, b.shape[-1], (out, norm_out, scale_out))  # type: ignore[arg-type]
        elif fuses:
            ops = _ops.matmul_all_reduce_norm, _ops.matmul_all_reduce_norm_out
            return call_with_norm(ops, operands, (weight, norm_bias, eps, *options), b.shape[-1], out, norm_out)
        shape = (*x.shape[:-1], b.shape[-1])
        rows = {"norm_weight": weight, "norm_bias": norm_bias}
        wholes = {"residual": residual, "out": out} | ({"norm_out": norm_out} if norm_dtype is None else {})
        check_norm(shape, x.dtype, eps, rows, wholes)
        y = matmul_all_reduce(x, b, group, bias=bias, activation=activation, residual=residual, out=out)
        if norm_dtype is not None:
            return quantise(y, weight, eps, norm_dtype, norm_out, scale_out)  # type: ignore[arg-type]
        return y, normalise(y, weight, norm_bias, eps, norm_out)  # type: ignore[arg-type]
    if any(given is not None for given in (norm_bias, norm_out, norm_dtype, scale_out)):
        raise tilewire.Error("norm_bias, norm_dtype, norm_out or scale_out without norm_weight", "invalid_input")
    if out is not None:
        refuse_gradient(x, b, bias, residual, out)
        repeatable = torch.are_deterministic_algorithms_enabled()
        options = bias, residual, activation, repeatable, allow_tf32(x)
        call(_ops.matmul_all_reduce_out.default, False, x, b, group_name(group), out, *options)
        return written(out)
    grads = needs_gradient(x, b, bias, residual)
    given = (None, "") if grads else (residual, activation)
    y = call(
        _ops.matmul_all_reduce.default,
        grads,
        x,
        b,
        group_name(group),
        bias,
        *given,
        torch.are_deterministic_algorithms_enabled(),
        allow_tf32(x),
    )
    return finish(y, activation, residual) if grads else y


def all_reduce(x: Tensor, group: Group = None, *, out: Tensor | None = None) -> Tensor:
    """The sum over ranks. The gradient of x is the output's gradient, which is the same on all ranks.

    Returns a new tensor, or `out`, which may be `x` itself; `out` excludes a gradient.
    """
    flat = x if x.dim() > 0 else x.reshape(1)
    repeatable = torch.are_deterministic_algorithms_enabled()
    if out is not None:
        refuse_gradient(x, out)
        given = out if out.dim() > 0 else out.reshape(1)
        call(_ops.all_reduce_out.default, False, flat, group_name(group), given, repeatable)
        return written(out)
    y: Tensor = call(_ops.all_reduce.default, needs_gradient(x), flat, group_name(group), repeatable)
    return y if x.dim() > 0 else y.reshape(())


@overload
def all_reduce_add_rms_norm(
    x: Tensor,
    residual: Tensor,
    norm_weight: Tensor,
    group: Group = ...,
    *,
    eps: float = ...,
    norm_dtype: None = ...,
    out: Tensor | None = ...,
    norm_out: Tensor | None = ...,
) -> tuple[Tensor, Tensor]: ...
@overload
def all_reduce_add_rms_norm(
    x: Tensor,
    residual: Tensor,
    norm_weight: Tensor,
    group: Group = ...,
    *,
    eps: float = ...,
    norm_dtype: torch.dtype,
    out: Tensor | None = ...,
    norm_out: Tensor | None = ...,
    scale_out: Tensor | None = ...,
) -> tuple[Tensor, Tensor, Tensor]: ...
def all_reduce_add_rms_norm(
    x: Tensor,
    residual: Tensor,
    norm_weight: Tensor,
    group: Group = None,
    *,
    eps: float = 1e-6,
    norm_dtype: torch.dtype | None = None,
    out: Tensor | None = None,
    norm_out: Tensor | None = None,
    scale_out: Tensor | None = None,
) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]:
    """`y = residual + the sum over ranks of x`, and the RMSNorm of the rows of y: both on every rank.

    `x` and `residual`: [..., N], `residual` the same on all ranks. `norm_weight`: [N]. The norm takes the rounded y and
    computes in fp32. On CPU ranks, and on GPUs of up to 128 rows of a 16-bit type, y is rounded once if there is no
    gradient; otherwise the sum is rounded before the residual is added, and PyTorch's norm follows. Returns two new
    tensors, or `out` and `norm_out`, which exclude a gradient. `out` may be `residual`, and `norm_out` may be `x`.
    `norm_dtype` and `scale_out` quantise the rows, as in `matmul_all_reduce`.
    """
    if torch._C._is_any_autocast_enabled():
        residual, norm_weight = residual.to(x.dtype), norm_weight.to(x.dtype)
    if out is not None or norm_out is not None:
        refuse_gradient(x, residual, norm_weight, out, norm_out)
    grads = needs_gradient(x, residual, norm_weight)
    check_scale_out(norm_dtype, scale_out)
    if norm_dtype is not None:
        check_quantised(norm_dtype, x, residual, norm_weight)
    if grads or not fuses_norm(x, MOST_ROWS_ALONE, norm_weight):
        wholes = {"residual": residual, "out": out} | ({"norm_out": norm_out} if norm_dtype is None else {})
        check_norm(tuple(x.shape), x.dtype, eps, {"norm_weight": norm_weight}, wholes)
        total = all_reduce(x, group)
        y = total + residual if out is None else torch.add(total, residual, out=out)
        if norm_dtype is not None:
            return quantise(y, norm_weight, eps, norm_dtype, norm_out, scale_out)
        return y, normalise(y, norm_weight, None, eps, norm_out)
    operands = x, group_name(group)
    options = residual, torch.are_deterministic_algorithms_enabled()
    if norm_dtype is not None:
        three = _ops.all_reduce_norm_quantised, _ops.all_reduce_norm_quantised_out
        norm = norm_weight, eps, norm_dtype
        return call_quantised(three, operands, norm, options, x.shape[-1], (out, norm_out, scale_out))
    ops = _ops.all_reduce_norm, _ops.all_reduce_norm_out
    return call_with_norm(ops, operands, (norm_weight, None, eps, *options), x.shape[-1], out, norm_out)
