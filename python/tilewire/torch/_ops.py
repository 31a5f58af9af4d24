"""The operators: fakes and gradients of torch.ops.tilewire, whose kernels are C++, and functions for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias, overload

import torch
import torch.distributed as dist
from torch import Tensor

import tilewire
from tilewire import _core
from tilewire.torch._teams import group_name, group_size

_ops = torch.ops.tilewire
Group: TypeAlias = dist.ProcessGroup | str | None
_ACTIVATIONS = {"gelu": torch.nn.functional.gelu, "relu": torch.relu}


def _sizes(x: Tensor, first: Any, last: Any) -> list[Any]:
    """Those of a result: x's, but for the first and the last."""
    return [first, *x.shape[1:-1], last]


def _fake_gather(x: Tensor, bs: Sequence[Tensor], group: str, by_columns: bool) -> tuple[list[Tensor], Tensor]:
    """Results of products with each b, and the gathered x."""
    size = group_size(group)
    rows, cols = (1, size) if by_columns else (size, 1)
    ys = [x.new_empty(_sizes(x, x.shape[0] * rows, b.shape[1])) for b in bs]
    return ys, x.new_empty(_sizes(x, x.shape[0] * rows, x.shape[-1] * cols))


def _register_fake_gather(name: str, by_columns: bool) -> None:
    @torch.library.register_fake(f"tilewire::{name}")
    def _(
        x: Tensor,
        b: Tensor,
        group: str,
        bias: Tensor | None = None,
        activation: str = "",
        gather: bool = False,
        allow_tf32: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        (y,), whole = _fake_gather(x, [b], group, by_columns)
        return y, whole if gather else None


def _register_fake_gather_for_several(name: str, by_columns: bool) -> None:
    @torch.library.register_fake(f"tilewire::{name}")
    def _(
        x: Tensor,
        b: list[Tensor],
        group: str,
        bias: list[Tensor] | None = None,
        activation: str = "",
        gather: bool = False,
        allow_tf32: bool = False,
    ) -> tuple[list[Tensor], Tensor | None]:
        ys, whole = _fake_gather(x, b, group, by_columns)
        return ys, whole if gather else None


_register_fake_gather("all_gather_matmul", by_columns=False)
_register_fake_gather("all_gather_cols_matmul", by_columns=True)
_register_fake_gather_for_several("all_gather_matmuls", by_columns=False)
_register_fake_gather_for_several("all_gather_cols_matmuls", by_columns=True)


@torch.library.register_fake("tilewire::matmul_reduce_scatter_cols")
def _(x: Tensor, b: Tensor, group: str, *others: Any) -> Tensor:
    return x.new_empty(_sizes(x, x.shape[0], b.shape[1] // group_size(group)))


@torch.library.register_fake("tilewire::matmul_reduce_scatter")
def _(x: Tensor, b: Tensor, group: str, *others: Any) -> Tensor:
    return x.new_empty(_sizes(x, x.shape[0] // group_size(group), b.shape[1]))


@torch.library.register_fake("tilewire::matmul_all_reduce")
def _(x: Tensor, b: Tensor, group: str, *others: Any) -> Tensor:
    return x.new_empty(_sizes(x, x.shape[0], b.shape[1]))


@torch.library.register_fake("tilewire::matmul_all_to_all")
def _(x: Tensor, b: Tensor, group: str, *others: Any) -> Tensor:
    size = group_size(group)
    return x.new_empty(_sizes(x, x.shape[0] * size, b.shape[1] // size))


@torch.library.register_fake("tilewire::all_reduce")
def _(x: Tensor, group: str, repeatable: bool = False) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


for _name in (
    "all_gather_matmul",
    "all_gather_cols_matmul",
    "all_gather_matmuls",
    "all_gather_cols_matmuls",
    "matmul_reduce_scatter",
    "matmul_reduce_scatter_cols",
    "matmul_all_reduce",
    "matmul_all_to_all",
    "all_reduce",
):
    torch.library.register_fake(f"tilewire::{_name}_out")(lambda *given: None)


def _flat(x: Tensor) -> Tensor:
    """All but the last dimension as rows."""
    return x if x.dim() == 2 else x.reshape(-1, x.shape[-1])


def _weight_gradient(x: Tensor, grad: Tensor, b: Tensor) -> Tensor:
    """Laid out as `b`, so that it adds to what is there without a copy."""
    if b.stride(0) == 1:
        return (_flat(grad).t() @ _flat(x)).t()
    return _flat(x).t() @ _flat(grad)


def _bias_gradient(grad: Tensor) -> Tensor:
    return _flat(grad).sum(0)


def _asks(ctx: Any, place: int) -> bool:
    """Whether the argument at this place is given, and wants its gradient."""
    return place < len(ctx.needs_input_grad) and bool(ctx.needs_input_grad[place])


def _refuse_epilogue(*steps: Any) -> None:
    if any(step not in (None, "") for step in steps):
        raise tilewire.Error("no gradient through activation and residual: apply them after it", "unsupported")


def _gather(x: Tensor, group: str, dim: int) -> Tensor:
    """All ranks' rows or columns, by PyTorch's own collective."""
    size = group_size(group)
    gathered = torch.ops._c10d_functional.all_gather_into_tensor(x.contiguous(), size, group)
    gathered = torch.ops._c10d_functional.wait_tensor(gathered)
    return gathered if dim == 0 else torch.cat(gathered.chunk(size), -1)


#: By operator without lists: the same formula for eager programs, in half the time of PyTorch's own way.
_functions: dict[Any, Callable[..., Any]] = {}


def _register_gradient(name: str, backward: Any, setup: Any = None) -> None:
    torch.library.register_autograd(f"tilewire::{name}", backward, setup_context=setup)
    op = getattr(_ops, name).default

    def forward(ctx: Any, *given: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            output = op(*given)
        if setup is not None:
            setup(ctx, given, output)
        return output

    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function: Any = type(name, (torch.autograd.Function,), body)
    _functions[op] = function.apply


def _needs_gradient(*given: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in given)


def _call(op: Any, needs_gradient: bool, *given: Any) -> Any:
    """An operator of torch.ops.tilewire. Its error is tilewire.Error."""
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return op(*given)
    try:
        if needs_gradient:
            return _functions.get(op, op)(*given)
        with torch._C._AutoDispatchBelowAutograd():
            return op(*given)
    except RuntimeError as error:
        _core.raise_torch_error(str(error))
        raise


def _call_backward(op: Any, grad: Tensor, b: Tensor, *others: Any) -> Any:
    """The same in a formula of gradients, which may itself be asked for its gradient."""
    return _call(op, _needs_gradient(grad, b), grad, b, *others)


def _gradient_of_gathered(grad: Tensor, group: str, dim: int) -> Tensor:
    """Of this rank's part, from that of a gathered x which was returned."""
    summed = _ops.all_reduce(grad, group, torch.are_deterministic_algorithms_enabled())
    rank = dist.get_rank(dist.distributed_c10d._resolve_process_group(group))
    mine: Tensor = summed.chunk(group_size(group), dim)[rank]
    return mine


def _register_gather_for_several(gather: str, scatter: str, dim: int) -> None:
    """A gather along `dim` before several products: their gradients of x are one reduce-scatter."""
    scattered_product = getattr(_ops, scatter).default

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        x, bs, ctx.group, biases, activation, gathers, ctx.allow_tf32 = inputs
        _refuse_epilogue(activation)
        ctx.set_materialize_grads(False)
        ctx.gathered, ctx.biases = gathers, len(biases or ())
        ctx.save_for_backward(output[1] if gathers else x, *bs)

    def backward(ctx: Any, grads: list[Tensor | None], grad_gathered: Tensor | None) -> Any:
        x, *bs = ctx.saved_tensors
        # NOTE: PyTorch 2.10 leaves out arguments at the end that have their defaults, and wants as many gradients.
        asked = ctx.needs_input_grad
        needs_x, needs_b, needs_bias = asked[0], asked[1], asked[3] if len(asked) > 3 else ()
        used = [grad for grad in grads if grad is not None]
        grad_x = None
        grad_bs: list[Tensor | None] = [None] * len(bs)
        grad_biases: list[Tensor | None] = [None] * ctx.biases
        if used and needs_x:
            # Side by side, and the weights as they lie, one below the other.
            beside = torch.cat(used, -1)
            weights = torch.cat([b.t() for b, grad in zip(bs, grads, strict=True) if grad is not None])
            options = None, None, "", False, torch.are_deterministic_algorithms_enabled(), ctx.allow_tf32
            grad_x = _call_backward(scattered_product, beside, weights, ctx.group, *options)
        whole = x if ctx.gathered or not (used and any(needs_b)) else _gather(x, ctx.group, dim)
        for i, grad in enumerate(grads):
            if grad is not None and needs_b[i]:
                grad_bs[i] = _weight_gradient(whole, grad, bs[i])
            if grad is not None and ctx.biases and needs_bias[i]:
                grad_biases[i] = _bias_gradient(grad)
        if grad_gathered is not None and ctx.gathered and needs_x:
            mine = _gradient_of_gathered(grad_gathered, ctx.group, dim)
            grad_x = mine.clone() if grad_x is None else grad_x + mine
        return (grad_x, grad_bs, None, grad_biases if ctx.biases else None, None, None, None)[: len(asked)]

    torch.library.register_autograd(f"tilewire::{gather}", backward, setup_context=setup)


def _register_gather_and_scatter(gather: str, scatter: str, dim: int) -> None:
    """A gather along `dim` before a product, and a reduce-scatter along it behind one: each is the other's gradient."""
    gathered_product, scattered_product = getattr(_ops, gather).default, getattr(_ops, scatter).default

    def setup_gather(ctx: Any, inputs: Any, output: Any) -> None:
        x, b, ctx.group, _, activation, gathers, ctx.allow_tf32 = inputs
        _refuse_epilogue(activation)
        ctx.set_materialize_grads(False)
        ctx.gathered = gathers
        ctx.save_for_backward(b, output[1] if gathers else x)

    def backward_of_gather(ctx: Any, grad: Tensor | None, grad_gathered: Tensor | None) -> Any:
        b, x = ctx.saved_tensors
        grad_x = grad_b = grad_bias = None
        if grad is not None and _asks(ctx, 0):
            average, repeatable = False, torch.are_deterministic_algorithms_enabled()
            options = None, None, "", average, repeatable, ctx.allow_tf32
            grad_x = _call_backward(scattered_product, grad, b.t(), ctx.group, *options)
        if grad is not None and _asks(ctx, 1):
            grad_b = _weight_gradient(x if ctx.gathered else _gather(x, ctx.group, dim), grad, b)
        if grad is not None and _asks(ctx, 3):
            grad_bias = _bias_gradient(grad)
        if grad_gathered is not None and ctx.gathered and _asks(ctx, 0):
            mine = _gradient_of_gathered(grad_gathered, ctx.group, dim)
            grad_x = mine.clone() if grad_x is None else grad_x + mine
        return grad_x, grad_b, None, grad_bias, None, None, None

    def setup_scatter(ctx: Any, inputs: Any, output: Any) -> None:
        x, b, ctx.group, _, residual, activation, ctx.average, _, ctx.allow_tf32 = inputs
        _refuse_epilogue(residual, activation)
        ctx.save_for_backward(x, b)

    def backward_of_scatter(ctx: Any, grad: Tensor) -> Any:
        x, b = ctx.saved_tensors
        if ctx.average:
            grad = grad / group_size(ctx.group)
        grad_x = grad_b = grad_bias = None
        if _asks(ctx, 0) or _asks(ctx, 1):
            # The product overlaps with the gather, which the gradient of the weight needs too.
            options = None, "", True, ctx.allow_tf32
            grad_x, whole = _call_backward(gathered_product, grad, b.t(), ctx.group, *options)
            grad_b = _weight_gradient(x, whole, b) if _asks(ctx, 1) else None
        if _asks(ctx, 3):
            grad_bias = _bias_gradient(grad)
        return grad_x, grad_b, None, grad_bias, None, None, None, None, None

    _register_gradient(gather, backward_of_gather, setup_gather)
    _register_gradient(scatter, backward_of_scatter, setup_scatter)


def _matmul_all_reduce_setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, b, _, _, residual, activation, _, _ = inputs
    _refuse_epilogue(residual, activation)
    ctx.save_for_backward(x, b)


def _matmul_all_reduce_backward(ctx: Any, grad: Tensor) -> Any:
    x, b = ctx.saved_tensors
    grad_x = grad @ b.t() if _asks(ctx, 0) else None
    grad_b = _weight_gradient(x, grad, b) if _asks(ctx, 1) else None
    grad_bias = _bias_gradient(grad) if _asks(ctx, 3) else None
    return grad_x, grad_b, None, grad_bias, None, None, None, None


def _matmul_all_to_all_setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, b, ctx.group, _, activation, _ = inputs
    _refuse_epilogue(activation)
    ctx.save_for_backward(x, b)


def _matmul_all_to_all_backward(ctx: Any, grad: Tensor) -> Any:
    x, b = ctx.saved_tensors
    size, rows = group_size(ctx.group), _flat(x).shape[0]
    # My rows of all columns, which other ranks hold.
    parts = [rows] * size
    swapped = torch.ops._c10d_functional.all_to_all_single(_flat(grad).contiguous(), parts, parts, ctx.group)
    swapped = torch.ops._c10d_functional.wait_tensor(swapped)
    whole = swapped.view(size, rows, grad.shape[-1]).transpose(0, 1).reshape(rows, b.shape[1])
    grad_x = (whole @ b.t()).reshape(x.shape) if _asks(ctx, 0) else None
    grad_b = _weight_gradient(x, whole, b) if _asks(ctx, 1) else None
    grad_bias = _bias_gradient(whole) if _asks(ctx, 3) else None
    return grad_x, grad_b, None, grad_bias, None, None


_register_gather_and_scatter("all_gather_matmul", "matmul_reduce_scatter", 0)
_register_gather_and_scatter("all_gather_cols_matmul", "matmul_reduce_scatter_cols", -1)
_register_gather_for_several("all_gather_matmuls", "matmul_reduce_scatter", 0)
_register_gather_for_several("all_gather_cols_matmuls", "matmul_reduce_scatter_cols", -1)
_register_gradient("matmul_all_reduce", _matmul_all_reduce_backward, _matmul_all_reduce_setup)
_register_gradient("matmul_all_to_all", _matmul_all_to_all_backward, _matmul_all_to_all_setup)
_register_gradient("all_reduce", lambda ctx, grad: (grad, None, None))


def _autocast(*given: Tensor | None) -> tuple[Tensor | None, ...]:
    """As torch.autocast has a product's operands."""
    if not torch._C._is_any_autocast_enabled():
        return given
    kind = given[0].device.type if given[0] is not None else "cpu"
    if not torch.is_autocast_enabled(kind):
        return given
    dtype = torch.get_autocast_dtype(kind)
    return tuple(
        x if x is None or not x.is_floating_point() or x.dtype == torch.float64 else x.to(dtype) for x in given
    )


def _allow_tf32(x: Tensor) -> bool:
    # NOTE: PyTorch takes a microsecond for the answer.
    return x.dtype == torch.float32 and bool(torch.backends.cuda.matmul.allow_tf32)


def _dim(x: Tensor, dim: int) -> int:
    """A dimension, counted from 0; the last one is -1."""
    found = dim + x.dim() if dim < 0 else dim
    if x.dim() < 2 or not 0 <= found < x.dim():
        raise tilewire.Error(f"dimension {dim} of {tuple(x.shape)}", "invalid_input")
    return found if found < x.dim() - 1 else -1


def _finish(y: Tensor, activation: str, residual: Tensor | None) -> Tensor:
    """Steps of an epilogue that gradients go through, by PyTorch."""
    y = _ACTIVATIONS[activation](y) if activation else y
    return y if residual is None else y + residual


def _check_activation(activation: str) -> None:
    if activation and activation not in _ACTIVATIONS:
        raise tilewire.Error(f"activation {activation!r}: want one of {', '.join(_ACTIVATIONS)}", "invalid_input")


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
    """`activation(torch.cat(all ranks' x, gather_dim) @ b + bias)`, where products begin with what has come.

    `x`: [..., K], the same shape on every rank, or with the last dimension as `gather_dim` [..., K / ranks]; `b`:
    [K, N], this rank's columns, best the transpose of a Linear layer's weight. A `gather_dim` that is neither the first
    nor the last costs a copy. `bias`: [N]; `activation`: "gelu" (by erf) or "relu". Returns [..., N], and with
    `return_gathered` the gathered x. Of several `b` (and biases), as the projections of one input, x is gathered once,
    and a list is returned. Raises tilewire.Error where shapes, types or devices are not so.
    """
    dim = _dim(x, gather_dim)
    _check_activation(activation)
    one = isinstance(b, Tensor)
    if bias is not None and isinstance(bias, Tensor) != one:
        raise tilewire.Error("bias: want a tensor for one b, a list for a list", "invalid_input")
    if one:
        # NOTE: without lists, as the host's time for a call is short.
        x, b, bias = _autocast(x, b, bias)  # type: ignore[assignment, arg-type]
        grads = _needs_gradient(x, b, bias)  # type: ignore[arg-type]
        weight_asks = b.requires_grad  # type: ignore[union-attr]
        op = _ops.all_gather_matmul.default if dim >= 0 else _ops.all_gather_cols_matmul.default
    else:
        number = len(b)
        x, *operands = _autocast(x, *b, *(bias or ()))  # type: ignore[assignment]
        b, bias = operands[:number], operands[number:] or None  # type: ignore[assignment]
        grads = _needs_gradient(x, *operands)
        weight_asks = _needs_gradient(*b)
        op = _ops.all_gather_matmuls.default if dim >= 0 else _ops.all_gather_cols_matmuls.default
    moved = x if dim <= 0 else x.movedim(dim, 0)
    keeps = return_gathered or (grads and weight_asks)
    fused = "" if grads else activation
    y, gathered = _call(op, grads, moved, b, group_name(group), bias, fused, keeps, _allow_tf32(x))

    def finished(y: Tensor) -> Tensor:
        y = _finish(y, activation, None) if grads else y
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
    """This rank's part along `scatter_dim` of the sum over ranks of `x @ b`, where parts leave as they are made.

    `x`: [..., K]; `b`: [K, N], K this rank's part. `scatter_dim`, a multiple of the number of ranks, costs a copy where
    it is neither the first nor the last. `op`: "sum" or "avg". After a sum: `bias` [N], the same on all ranks (of the
    last dimension [N / ranks], this rank's), then `activation` ("gelu" by erf, or "relu"), then `residual`, of the
    result's shape. The gradient of a bias is that of this rank's rows: `sum_gradients` adds the others'.
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
    grads = _needs_gradient(x, b, bias, residual)
    given = (None, "") if grads else (added, activation)
    y: Tensor = _call(
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


def matmul_all_reduce(
    x: Tensor,
    b: Tensor,
    group: Group = None,
    *,
    bias: Tensor | None = None,
    activation: str = "",
    residual: Tensor | None = None,
) -> Tensor:
    """The sum over ranks of `x @ b`, on every rank. `x`: [..., K]; `b`: [K, N], K this rank's part.

    After the sum: `bias` [N], `activation` and `residual`, of the result's shape, each the same on all ranks. Its
    gradient is that of a tensor-parallel layer: the same on all ranks.
    """
    _check_activation(activation)
    x, b, bias, residual = _autocast(x, b, bias, residual)  # type: ignore[assignment]
    grads = _needs_gradient(x, b, bias, residual)
    given = (None, "") if grads else (residual, activation)
    y: Tensor = _call(
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
    """This rank's columns of `torch.cat(all ranks' x) @ b + bias`, made where the rows are, and sent as they are made.

    `x`: [..., K], this rank's tokens along the first dimension, as many on every rank; `b`: [K, N] and `bias`: [N], the
    same on all ranks, N a multiple of the number of ranks. Returns all tokens' [..., N / ranks]: attention over heads,
    behind a projection of a sequence that is in parts. The gradients of `b` and `bias` are this rank's share.
    """
    _check_activation(activation)
    x, b, bias = _autocast(x, b, bias)  # type: ignore[assignment]
    grads = _needs_gradient(x, b, bias)
    fused = "" if grads else activation
    tf32 = _allow_tf32(x)
    y: Tensor = _call(_ops.matmul_all_to_all.default, grads, x, b, group_name(group), bias, fused, tf32)
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
    """Make operators of inference before they are needed: before a capture, or before measurements. Collective.

    Those of a training step are made by one step outside of the capture.

    `function`: one of this module. `shapes`: for each operator (rows, K, N) of this rank's x and b, or (rows, N) for
    all_reduce. `transposed`: b is the transpose of a dense [N, K], as a Linear layer's weight. `options`: as the
    function takes them.
    """
    where = device or ("cuda" if dist.get_backend(None if isinstance(group, str) else group) == "nccl" else "cpu")
    for rows, *sizes in shapes:
        x = torch.zeros(rows, sizes[0], dtype=dtype, device=where)
        if len(sizes) == 1:
            function(x, group, **options)
            continue
        k, n = sizes
        if options.get("gather_dim") == -1:
            x = x[:, : k // group_size(group_name(group))].contiguous()
        b = torch.zeros(n, k, dtype=dtype, device=where).t() if transposed else x.new_zeros(k, n)
        function(x, b, group, **options)


def all_reduce(x: Tensor, group: Group = None) -> Tensor:
    """The sum over ranks, as a new tensor. Its gradient is the output's, which is the same on all ranks."""
    flat = x if x.dim() > 0 else x.reshape(1)
    repeatable = torch.are_deterministic_algorithms_enabled()
    y: Tensor = _call(_ops.all_reduce.default, _needs_gradient(x), flat, group_name(group), repeatable)
    return y if x.dim() > 0 else y.reshape(())
