"""The public functions, with PyTorch's conventions. They call torch.ops.tilewire, whose kernels are C++."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias, overload

import torch
import torch.distributed as dist
from torch import Tensor

import tilewire
import tilewire.torch._fakes  # noqa: F401 - registers them
from tilewire.torch._gradients import call, needs_gradient
from tilewire.torch._teams import device_of, group_name, group_size, has_constant_weights

_ops = torch.ops.tilewire
Group: TypeAlias = dist.ProcessGroup | str | None


def _swiglu_pairs(y: Tensor) -> Tensor:
    return torch.nn.functional.silu(y[..., ::2]) * y[..., 1::2]


_ACTIVATIONS = {"gelu": torch.nn.functional.gelu, "relu": torch.relu, "swiglu_pairs": _swiglu_pairs}


def _autocast(*given: Tensor | None, weights: int = 1) -> tuple[Tensor | None, ...]:
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


def _allow_tf32(x: Tensor) -> bool:
    # NOTE: only for fp32, because PyTorch takes a microsecond to answer.
    return x.dtype == torch.float32 and bool(torch.backends.cuda.matmul.allow_tf32)


def _dim(x: Tensor, dim: int) -> int:
    """Normalize a dimension: count from 0, but -1 for the last one."""
    found = dim + x.dim() if dim < 0 else dim
    if x.dim() < 2 or not 0 <= found < x.dim():
        raise tilewire.Error(f"dimension {dim} of {tuple(x.shape)}", "invalid_input")
    return found if found < x.dim() - 1 else -1


def _finish(y: Tensor, activation: str, residual: Tensor | None) -> Tensor:
    """Apply the rest of an epilogue by PyTorch, because tilewire has no gradient for it."""
    y = _ACTIVATIONS[activation](y) if activation else y
    if residual is None:
        return y
    if residual.shape != y.shape or residual.dtype != y.dtype:
        given = f"{residual.dtype} {list(residual.shape)}"
        raise tilewire.Error(f"residual is {given}, want {y.dtype} {list(y.shape)}", "invalid_input")
    return y + residual


def _normalise(y: Tensor, weight: Tensor, bias: Tensor | None, eps: float, out: Tensor | None) -> Tensor:
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


def _check_norm(
    y: tuple[int, ...], dtype: torch.dtype, eps: float, rows: dict[str, Tensor | None], wholes: dict[str, Tensor | None]
) -> None:
    """Check what follows a sum of shape `y`: `rows` have its columns, `wholes` its shape. For PyTorch's norm."""
    if not eps > 0:
        raise tilewire.Error(f"norm: eps = {eps:g}: want more than 0", "invalid_input")
    for name, tensor in (*rows.items(), *wholes.items()):
        _check_tensor(name, tensor, dtype, y[-1:] if name in rows else y)


def _check_tensor(name: str, given: Tensor | None, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    if given is not None and (given.dtype != dtype or tuple(given.shape) != tuple(shape)):
        have = f"{given.dtype} {list(given.shape)}"
        raise tilewire.Error(f"{name} is {have}, want {dtype} {list(shape)}", "invalid_input")


#: Rows and columns up to which kernels for few rows have norms; they load 16 bytes at a time. Beside other kernels
#: PyTorch's norm is faster.
_MOST_ROWS_OF_PRODUCT = 64
_MOST_ROWS_ALONE = 128
_MOST_COLS = 16384


#: Most bytes of a sum that goes to all peers at once, with those of all peers.
_MOST_SENT = 1 << 20


def _rows_of(x: Tensor) -> int:
    return x.numel() // max(1, x.shape[-1])


def _is_short(x: Tensor, cols: int, group: Group) -> bool:
    """Whether the sum of a product of x is short enough for the kernels for few rows."""
    return x.device.type == "cpu" or _rows_of(x) * cols * 2 * (group_size(group_name(group)) - 1) <= _MOST_SENT


def _fuses_norm(x: Tensor, most_rows: int, weight: Tensor, bias: Tensor | None = None) -> bool:
    if x.device.type == "cpu":
        return True
    rows, cols = _rows_of(x), weight.numel()
    if x.element_size() != 2 or rows > most_rows or cols % 8 != 0 or cols > _MOST_COLS:
        return False
    # NOTE: while PyTorch compiles, tensors have no addresses.
    return torch.compiler.is_compiling() or all(row is None or row.data_ptr() % 16 == 0 for row in (weight, bias))


def _call_with_norm(
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
    return _written(y), _written(normed)


#: Types of quantised rows: tilewire's names, and the largest numbers.
_NORM_DTYPES = {torch.float8_e4m3fn: ("fp8_e4m3", 448.0), torch.int8: ("int8", 127.0)}


def _check_quantised(dtype: torch.dtype, *given: Tensor | None) -> None:
    if dtype not in _NORM_DTYPES:
        raise tilewire.Error(f"norm_dtype = {dtype}: want torch.float8_e4m3fn or torch.int8", "invalid_input")
    if needs_gradient(*given):
        raise tilewire.Error("norm_dtype excludes a gradient: want torch.no_grad()", "invalid_input")


def _check_scale_out(norm_dtype: torch.dtype | None, scale_out: Tensor | None) -> None:
    if norm_dtype is None and scale_out is not None:
        raise tilewire.Error("scale_out without norm_dtype", "invalid_input")


def _check_outs(y: Tensor, dtype: torch.dtype, norm_out: Tensor | None, scale_out: Tensor | None) -> None:
    """Check given tensors for quantised rows and scales of y, as the operator does."""
    _check_tensor("norm_out", norm_out, dtype, tuple(y.shape))
    _check_tensor("scale_out", scale_out, torch.float32, (*y.shape[:-1], 1))


def _quantise(
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


def _call_quantised(
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
    return _written(y), _written(normed), _written(scale)


def _refuse_gradient(*given: Tensor | None) -> None:
    if needs_gradient(*given):
        raise tilewire.Error("out= excludes a gradient: want torch.no_grad(), or no out", "invalid_input")


def _written(out: Tensor) -> Tensor:
    """Tell autograd that a C++ operator has written the tensor."""
    if not torch.compiler.is_compiling():
        torch.autograd.graph.increment_version(out)
    return out


def _check_activation(activation: str, *, pairs: bool = False) -> None:
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


def _fuses_pairs(x: Tensor, b: Sequence[Tensor], group: Group, dim: int, bias: Any, keeps: bool) -> bool:
    """Whether the operator joins pairs of columns: on GPUs where the kernel for few rows makes the products."""
    if bias is not None or dim < 0:
        return False
    if x.device.type == "cpu":
        return True
    one = len(b) == 1 and not keeps and group_size(group_name(group)) == 1
    even = x.shape[-1] % 8 == 0 and all(each.shape[-1] % 16 == 0 for each in b)
    return one and even and _rows_of(x) <= _MOST_ROWS_OF_GEMV and all(_in_units(each) for each in (x, *b))


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
    dim = _dim(x, gather_dim)
    _check_activation(activation, pairs=True)
    one = isinstance(b, Tensor)
    if bias is not None and isinstance(bias, Tensor) != one:
        raise tilewire.Error("bias: want a tensor for one b, a list for a list", "invalid_input")
    if one:
        # NOTE: no lists here, to keep the host's time per call short.
        x, b, bias = _autocast(x, b, bias)  # type: ignore[assignment, arg-type]
        grads = needs_gradient(x, b, bias)  # type: ignore[arg-type]
        weight_asks = b.requires_grad  # type: ignore[union-attr]
        op = _ops.all_gather_matmul.default if dim >= 0 else _ops.all_gather_cols_matmul.default
    else:
        number = len(b)
        x, *operands = _autocast(x, *b, *(bias or ()), weights=number)  # type: ignore[assignment]
        b, bias = operands[:number], operands[number:] or None  # type: ignore[assignment]
        grads = needs_gradient(x, *operands)
        weight_asks = needs_gradient(*b)
        op = _ops.all_gather_matmuls.default if dim >= 0 else _ops.all_gather_cols_matmuls.default
    moved = x if dim <= 0 else x.movedim(dim, 0)
    keeps = return_gathered or (grads and weight_asks)
    fuses = not grads
    if fuses and activation == "swiglu_pairs":
        fuses = _fuses_pairs(x, [b] if one else b, group, dim, bias, keeps)  # type: ignore[list-item, arg-type]
    fused = activation if fuses else ""
    y, gathered = call(op, grads, moved, b, group_name(group), bias, fused, keeps, _allow_tf32(x))

    def finished(y: Tensor) -> Tensor:
        y = y if fuses else _finish(y, activation, None)
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
    dim = _dim(x, scatter_dim)
    _check_activation(activation)
    x, b, bias, residual = _autocast(x, b, bias, residual)  # type: ignore[assignment]
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
        _allow_tf32(x),
    )
    if grads:
        y = _finish(y, activation, added)
    return y if dim <= 0 else y.movedim(0, dim)


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
    _check_activation(activation)
    x, b, bias, residual = _autocast(x, b, bias, residual)  # type: ignore[assignment]
    if norm_weight is not None:
        weight, norm_bias = _autocast(norm_weight, norm_bias, weights=0)
        grads = needs_gradient(x, b, bias, residual, weight, norm_bias)
        if out is not None or norm_out is not None:
            _refuse_gradient(x, b, bias, residual, weight, norm_bias, out, norm_out)
        short = _is_short(x, b.shape[-1], group)
        fuses = not grads and short and _fuses_norm(x, _MOST_ROWS_OF_PRODUCT, weight, norm_bias)  # type: ignore[arg-type]
        options = bias, residual, activation, torch.are_deterministic_algorithms_enabled(), _allow_tf32(x)
        operands = x, b, group_name(group)
        _check_scale_out(norm_dtype, scale_out)
        if norm_dtype is not None:
            if norm_bias is not None:
                raise tilewire.Error("norm_dtype with norm_bias: a LayerNorm is not quantised", "unsupported")
            _check_quantised(norm_dtype, x, b, bias, residual, weight)
            if fuses:
                three = _ops.matmul_all_reduce_norm_quantised, _ops.matmul_all_reduce_norm_quantised_out
                norm = weight, eps, norm_dtype
                return _call_quantised(three, operands, norm, options, b.shape[-1], (out, norm_out, scale_out))  # type: ignore[arg-type]
        elif fuses:
            ops = _ops.matmul_all_reduce_norm, _ops.matmul_all_reduce_norm_out
            return _call_with_norm(ops, operands, (weight, norm_bias, eps, *options), b.shape[-1], out, norm_out)
        shape = (*x.shape[:-1], b.shape[-1])
        rows = {"norm_weight": weight, "norm_bias": norm_bias}
        wholes = {"residual": residual, "out": out} | ({"norm_out": norm_out} if norm_dtype is None else {})
        _check_norm(shape, x.dtype, eps, rows, wholes)
        y = matmul_all_reduce(x, b, group, bias=bias, activation=activation, residual=residual, out=out)
        if norm_dtype is not None:
            return _quantise(y, weight, eps, norm_dtype, norm_out, scale_out)  # type: ignore[arg-type]
        return y, _normalise(y, weight, norm_bias, eps, norm_out)  # type: ignore[arg-type]
    if any(given is not None for given in (norm_bias, norm_out, norm_dtype, scale_out)):
        raise tilewire.Error("norm_bias, norm_dtype, norm_out or scale_out without norm_weight", "invalid_input")
    if out is not None:
        _refuse_gradient(x, b, bias, residual, out)
        repeatable = torch.are_deterministic_algorithms_enabled()
        options = bias, residual, activation, repeatable, _allow_tf32(x)
        call(_ops.matmul_all_reduce_out.default, False, x, b, group_name(group), out, *options)
        return _written(out)
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
        _allow_tf32(x),
    )
    return _finish(y, activation, residual) if grads else y


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
    _check_activation(activation)
    x, b, bias = _autocast(x, b, bias)  # type: ignore[assignment]
    grads = needs_gradient(x, b, bias)
    fused = "" if grads else activation
    tf32 = _allow_tf32(x)
    y: Tensor = call(_ops.matmul_all_to_all.default, grads, x, b, group_name(group), bias, fused, tf32)
    return _finish(y, activation, None) if grads else y


def warmup(
    function: Callable[..., Any],
    shapes: Iterable[tuple[int, ...]],
    group: Group = None,
    *,
    dtype: torch.dtype = torch.bfloat16,
    device: torch.device | str | None = None,
    transposed: bool = True,
    **options: Any,
) -> None:
    """Make operators for inference in advance: before a capture, or before measurements. Collective.

    For training, run one step outside of the capture instead.

    `function`: one of this module. `shapes`: for each operator (rows, K, N) of this rank's x and b, or (rows, N) for
    sums without a product. `transposed`: b is the transpose of a dense [N, K], like a Linear layer's weight. `options`:
    passed to the function.
    """
    where = device_of(group, device)
    for rows, *sizes in shapes:
        x = torch.zeros(rows, sizes[0], dtype=dtype, device=where)
        if function is all_reduce_add_rms_norm:
            function(x, x.clone(), x.new_ones(sizes[0]), group, **options)
            continue
        if len(sizes) == 1:
            function(x, group, **options)
            continue
        k, n = sizes
        if options.get("gather_dim") == -1:
            x = x[:, : k // group_size(group_name(group))].contiguous()
        b = torch.zeros(n, k, dtype=dtype, device=where).t() if transposed else x.new_zeros(k, n)
        function(x, b, group, **options)


def all_reduce(x: Tensor, group: Group = None, *, out: Tensor | None = None) -> Tensor:
    """The sum over ranks. The gradient of x is the output's gradient, which is the same on all ranks.

    Returns a new tensor, or `out`, which may be `x` itself; `out` excludes a gradient.
    """
    flat = x if x.dim() > 0 else x.reshape(1)
    repeatable = torch.are_deterministic_algorithms_enabled()
    if out is not None:
        _refuse_gradient(x, out)
        given = out if out.dim() > 0 else out.reshape(1)
        call(_ops.all_reduce_out.default, False, flat, group_name(group), given, repeatable)
        return _written(out)
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
        _refuse_gradient(x, residual, norm_weight, out, norm_out)
    grads = needs_gradient(x, residual, norm_weight)
    _check_scale_out(norm_dtype, scale_out)
    if norm_dtype is not None:
        _check_quantised(norm_dtype, x, residual, norm_weight)
    if grads or not _fuses_norm(x, _MOST_ROWS_ALONE, norm_weight):
        wholes = {"residual": residual, "out": out} | ({"norm_out": norm_out} if norm_dtype is None else {})
        _check_norm(tuple(x.shape), x.dtype, eps, {"norm_weight": norm_weight}, wholes)
        total = all_reduce(x, group)
        y = total + residual if out is None else torch.add(total, residual, out=out)
        if norm_dtype is not None:
            return _quantise(y, norm_weight, eps, norm_dtype, norm_out, scale_out)
        return y, _normalise(y, norm_weight, None, eps, norm_out)
    operands = x, group_name(group)
    options = residual, torch.are_deterministic_algorithms_enabled()
    if norm_dtype is not None:
        three = _ops.all_reduce_norm_quantised, _ops.all_reduce_norm_quantised_out
        norm = norm_weight, eps, norm_dtype
        return _call_quantised(three, operands, norm, options, x.shape[-1], (out, norm_out, scale_out))
    ops = _ops.all_reduce_norm, _ops.all_reduce_norm_out
    return _call_with_norm(ops, operands, (norm_weight, None, eps, *options), x.shape[-1], out, norm_out)
