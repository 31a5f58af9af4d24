"""Gradients of torch.ops.tilewire, and the function that calls its operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import tilewire
from tilewire import _core
from tilewire.torch._teams import group_name, group_size

_ops = torch.ops.tilewire


def _flat(x: Tensor) -> Tensor:
    """View all dimensions but the last as rows."""
    return x if x.dim() == 2 else x.reshape(-1, x.shape[-1])


def _weight_gradient(x: Tensor, grad: Tensor, b: Tensor) -> Tensor:
    """The gradient of b in the layout of `b`, so that autograd accumulates it without a copy."""
    if b.stride(0) == 1:
        return (_flat(grad).t() @ _flat(x)).t()
    return _flat(x).t() @ _flat(grad)


def _bias_gradient(grad: Tensor) -> Tensor:
    return _flat(grad).sum(0)


def _asks(ctx: Any, place: int) -> bool:
    """Whether the argument at this index was given and needs a gradient."""
    return place < len(ctx.needs_input_grad) and bool(ctx.needs_input_grad[place])


def _refuse_epilogue(*steps: Any) -> None:
    if any(step not in (None, "") for step in steps):
        raise tilewire.Error("no gradient through activation and residual: apply them after it", "unsupported")


def needs_gradient(*given: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in given)


def _by_torch(name: str, x: Tensor, *options: Any) -> Tensor:
    """Run PyTorch's own collective and wait for it."""
    if not needs_gradient(x):
        result: Tensor = getattr(torch.ops._c10d_functional, name)(x.contiguous(), *options)
        return torch.ops._c10d_functional.wait_tensor(result)  # type: ignore[no-any-return]
    # Support second derivatives. NOTE: wait_tensor has no gradient in PyTorch 2.10.
    result = getattr(torch.ops._c10d_functional_autograd, name)(x.contiguous(), *options)
    torch.ops._c10d_functional.wait_tensor(result.detach())
    return result


def _gather(x: Tensor, group: str, dim: int) -> Tensor:
    """Gather all ranks' rows (dim 0) or columns."""
    size = group_size(group)
    gathered = _by_torch("all_gather_into_tensor", x, size, group)
    return gathered if dim == 0 else torch.cat(gathered.chunk(size), -1)


#: By operator without lists: an autograd function with the same formula, which takes half the time in eager programs.
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


def _refuse_gradient(name: str) -> None:
    """Raise an error in a backward pass through the operator; without a formula PyTorch would warn, and return none."""

    def backward(ctx: Any, *grads: Any) -> Any:
        raise tilewire.Error(f"torch.ops.tilewire.{name} has no gradient: want torch.no_grad()", "unsupported")

    torch.library.register_autograd(f"tilewire::{name}", backward)


def call(op: Any, needs_gradient: bool, *given: Any) -> Any:
    """Call an operator of torch.ops.tilewire. Its errors are raised as tilewire.Error."""
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
    """The same inside a backward formula, which may need a gradient itself."""
    return call(op, needs_gradient(grad, b), grad, b, *others)


class _Sum(torch.autograd.Function):
    """The sum over ranks, if each rank uses only a part of the result: the gradient is summed, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: str) -> Tensor:
        ctx.group = group
        y: Tensor = _ops.all_reduce(x, group, torch.are_deterministic_algorithms_enabled())
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Sum.apply(grad, ctx.group), None


class _SumOfGradients(torch.autograd.Function):
    """The identity; its gradient is summed over ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: str) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _ops.all_reduce(grad, ctx.group), None


def sum_gradients(x: Tensor, group: dist.ProcessGroup | str | None = None) -> Tensor:
    """Return `x`, the same on all ranks, for work that the ranks share: its gradient is summed over ranks."""
    result: Tensor = _SumOfGradients.apply(x, group_name(group))
    return result


def _replicated(grad: Tensor, group: str) -> Tensor:
    """A gradient that is the same on all ranks, for a formula that uses it for this rank's part only."""
    return sum_gradients(grad, group) if needs_gradient(grad) else grad


def _gradient_of_gathered(grad: Tensor, group: str, dim: int) -> Tensor:
    """The gradient of this rank's part of x, from the gradient of the gathered x that was returned."""
    if needs_gradient(grad):
        summed = _Sum.apply(grad, group)
    else:
        summed = _ops.all_reduce(grad, group, torch.are_deterministic_algorithms_enabled())
    rank = dist.get_rank(dist.distributed_c10d._resolve_process_group(group))
    mine: Tensor = summed.chunk(group_size(group), dim)[rank]
    return mine


def _register_gather_for_several(gather: str, scatter: str, dim: int) -> None:
    """A gather along `dim` before several products: one reduce-scatter computes the gradient of x."""
    scattered_product = getattr(_ops, scatter).default

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        x, bs, ctx.group, biases, activation, gathers, ctx.allow_tf32 = inputs
        _refuse_epilogue(activation)
        ctx.set_materialize_grads(False)
        ctx.gathered, ctx.biases = gathers, len(biases or ())
        ctx.save_for_backward(output[1] if gathers else x, *bs)

    def backward(ctx: Any, grads: list[Tensor | None], grad_gathered: Tensor | None) -> Any:
        x, *bs = ctx.saved_tensors
        # NOTE: PyTorch 2.10 omits trailing arguments that have their defaults, and expects as many gradients as
        # arguments.
        asked = ctx.needs_input_grad
        needs_x, needs_b, needs_bias = asked[0], asked[1], asked[3] if len(asked) > 3 else ()
        used = [grad for grad in grads if grad is not None]
        grad_x = None
        grad_bs: list[Tensor | None] = [None] * len(bs)
        grad_biases: list[Tensor | None] = [None] * ctx.biases
        if used and needs_x:
            # Concatenate gradients by columns, and weights by rows, to make one product.
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
    """A gather along `dim` before a product, and a reduce-scatter after one: each is the other's gradient."""
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
            # Overlap the product with the gather, whose result the weight's gradient needs, too.
            options = None, "", True, ctx.allow_tf32
            grad_x, whole = _call_backward(gathered_product, grad, b.t(), ctx.group, *options)
            grad_b = _weight_gradient(x, whole, b) if _asks(ctx, 1) else None
        if _asks(ctx, 3):
            grad_bias = _bias_gradient(grad)
        return grad_x, grad_b, None, grad_bias, None, None, None, None, None

    _register_gradient(gather, backward_of_gather, setup_gather)
    _register_gradient(scatter, backward_of_scatter, setup_scatter)


def _matmul_all_reduce_setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, b, ctx.group, _, residual, activation, _, _ = inputs
    _refuse_epilogue(residual, activation)
    ctx.save_for_backward(x, b)


def _matmul_all_reduce_backward(ctx: Any, grad: Tensor) -> Any:
    x, b = ctx.saved_tensors
    grad = _replicated(grad, ctx.group)
    grad_x = grad @ b.t() if _asks(ctx, 0) else None
    grad_b = _weight_gradient(x, grad, b) if _asks(ctx, 1) else None
    grad_bias = _bias_gradient(grad) if _asks(ctx, 3) else None
    return grad_x, grad_b, None, grad_bias, None, None, None, None


def _all_reduce_setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.group = inputs[1]


def _all_reduce_backward(ctx: Any, grad: Tensor) -> Any:
    return _replicated(grad, ctx.group), None, None


def _matmul_all_to_all_setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, b, ctx.group, _, activation, _ = inputs
    _refuse_epilogue(activation)
    ctx.save_for_backward(x, b)


def _matmul_all_to_all_backward(ctx: Any, grad: Tensor) -> Any:
    x, b = ctx.saved_tensors
    size, rows = group_size(ctx.group), _flat(x).shape[0]
    # Collect this rank's rows of all columns from the other ranks.
    parts = [rows] * size
    swapped = _by_torch("all_to_all_single", _flat(grad), parts, parts, ctx.group)
    whole = swapped.view(size, rows, grad.shape[-1]).transpose(0, 1).reshape(rows, b.shape[1])
    grad_x = (whole @ b.t()).reshape(x.shape) if _asks(ctx, 0) else None
    grad_b = _weight_gradient(x, whole, b) if _asks(ctx, 1) else None
    grad_bias = _bias_gradient(whole) if _asks(ctx, 3) else None
    return grad_x, grad_b, None, grad_bias, None, None


def _matmul_all_to_all_rows_backward(ctx: Any, grad: Tensor) -> Any:
    x, b = ctx.saved_tensors
    size, rows = group_size(ctx.group), _flat(x).shape[0]
    # Blocks of rows return to the ranks that made them.
    parts = [rows // size] * size
    whole = _by_torch("all_to_all_single", _flat(grad), parts, parts, ctx.group)
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
_register_gradient("matmul_all_to_all_rows", _matmul_all_to_all_rows_backward, _matmul_all_to_all_setup)
_register_gradient("all_reduce", _all_reduce_backward, _all_reduce_setup)
for _name in (
    "moe_dropping",
    "moe_dispatch_gemm",
    "moe_gemm_combine",
    "matmul_all_reduce_norm",
    "matmul_all_reduce_norm_quantised",
    "all_reduce_norm",
    "all_reduce_norm_quantised",
):
    _refuse_gradient(_name)
