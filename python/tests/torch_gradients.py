"""Functions that ranks run to test first and second derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch_bodies import equal, gathered, scattered, tensor

import tilewire.torch as tt


def gradients() -> None:
    """Compare with the gradients of PyTorch's differentiable collectives."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def compare(ours: Callable[..., torch.Tensor], theirs: Callable[..., torch.Tensor], *given: torch.Tensor) -> None:
        results = []
        for function in (ours, theirs):
            leaves = [x.clone().requires_grad_() for x in given]
            y = function(*leaves)
            y.backward(tensor(60 + rank, *y.shape))
            results.append([y, *[leaf.grad for leaf in leaves]])
        for got, want in zip(*results, strict=True):
            equal(torch.zeros_like(want) if got is None else got, want)  # no gradient counts as a gradient of zeros

    x, b = tensor(1 + rank, 3, 4, 12), tensor(5 + rank, 12, 8)
    for dim in (0, 1):
        compare(
            lambda x, b, d=dim: tt.all_gather_matmul(x, b, gather_dim=d), lambda x, b, d=dim: gathered(x, d) @ b, x, b
        )
    compare(
        lambda x, b: tt.all_gather_matmul(x, b, gather_dim=-1),
        lambda x, b: gathered(x, -1) @ b,
        x,
        tensor(5 + rank, 12 * size, 8),
    )
    compare(
        lambda x, b: tt.matmul_reduce_scatter(x, b, scatter_dim=-1),
        lambda x, b: scattered(x @ b, -1),
        x,
        tensor(5 + rank, 12, 4 * size),
    )
    # Several products of one gather, one of which is unused.
    for dim, depth in ((0, 12), (1, 12), (-1, 12 * size)):
        given = [tensor(1 + rank, 3, 4, 12), *(tensor(5 + i + rank, 6 + i, depth) for i in range(3))]
        biases = [tensor(8 + i + rank, 6 + i) for i in range(3)]

        def ours(x: torch.Tensor, *others: torch.Tensor, dim: int = dim) -> torch.Tensor:
            bs, biases = [b.t() for b in others[:3]], others[3:]
            y, _, z = tt.all_gather_matmul(x, bs, gather_dim=dim, bias=biases or None, activation="relu")
            return torch.cat([y, 2 * z], -1)

        def theirs(x: torch.Tensor, *others: torch.Tensor, dim: int = dim) -> torch.Tensor:
            bs, biases = [b.t() for b in others[:3]], others[3:] or [torch.zeros(1)] * 3
            whole = gathered(x, dim)
            y, unused, z = (torch.relu(whole @ b + bias) for b, bias in zip(bs, biases, strict=True))
            return torch.cat([y, 2 * z], -1) + 0 * unused.sum()

        compare(ours, theirs, *given, *biases)
        compare(ours, theirs, *given)
    # The returned gathered tensor has a gradient, too.
    for dim in (0, -1):
        depth = 12 if dim == 0 else 12 * size

        def both(x: torch.Tensor, b: torch.Tensor, dim: int = dim) -> torch.Tensor:
            y, whole = tt.all_gather_matmul(x, b, gather_dim=dim, return_gathered=True)
            return torch.cat([y, 3 * whole], -1)

        def alone(x: torch.Tensor, b: torch.Tensor, dim: int = dim) -> torch.Tensor:
            return tt.all_gather_matmul(x, b, gather_dim=dim, return_gathered=True)[1]

        def both_by_torch(x: torch.Tensor, b: torch.Tensor, dim: int = dim) -> torch.Tensor:
            whole = gathered(x, dim)
            return torch.cat([whole @ b, 3 * whole], -1)

        compare(both, both_by_torch, x, tensor(5 + rank, depth, 8))
        compare(alone, lambda x, b, d=dim: gathered(x, d) + 0 * b.sum(), x, tensor(5 + rank, depth, 8))
    if size in (1, 2, 4):  # the quotient is exact
        compare(
            lambda x, b: tt.matmul_reduce_scatter(x, b, op="avg") * size,
            lambda x, b: scattered(x @ b, 0),
            tensor(1 + rank, 2 * size, 16),
            tensor(2 + rank, 16, 8),
        )
    compare(
        lambda x, b, bias: tt.matmul_reduce_scatter(x, b, scatter_dim=-1, bias=bias),
        lambda x, b, bias: scattered(x @ b, -1) + bias,
        tensor(1 + rank, 3, 12),
        tensor(5 + rank, 12, 4 * size),
        tensor(9 + rank, 4),
    )
    x = tensor(1 + rank, 2 * size, 3, 12)
    compare(tt.matmul_reduce_scatter, lambda x, b: scattered(x @ b, 0), x, b)
    # A layer with sharded input and output, as in sequence parallelism.
    w = tensor(9 + rank, 16, 12)

    def layer(gather: Callable[..., torch.Tensor], scatter: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda x, w, b: scatter(torch.relu(gather(x, w.t())), b)

    compare(
        layer(tt.all_gather_matmul, tt.matmul_reduce_scatter),
        layer(lambda x, b: gathered(x, 0) @ b, lambda x, b: scattered(x @ b, 0)),
        tensor(3 + rank, 2 * size, 12),
        w,
        tensor(7 + rank, 16, 8),
    )


class Replicated(torch.autograd.Function):
    """The sum over ranks: its gradient is the same on all ranks and is not summed, but the second derivative is."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return Split.apply(grad)


class Split(torch.autograd.Function):
    """The same tensor on all ranks; each rank uses it for a part of the work."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return Replicated.apply(grad)


def gradients_of_gradients() -> None:
    """Second derivatives of every operator, against PyTorch's differentiable collectives."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def both(x: torch.Tensor, b: torch.Tensor, dim: int) -> torch.Tensor:
        y, whole = tt.all_gather_matmul(x, b, gather_dim=dim, return_gathered=True)
        return torch.cat([y, whole * whole], -1)

    def both_by_torch(x: torch.Tensor, b: torch.Tensor, dim: int) -> torch.Tensor:
        whole = gathered(x, dim)
        return torch.cat([whole @ b, whole * whole], -1)

    def all_to_all(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        # The gradient of b covers this rank's rows only.
        parts = list(torch.chunk(x @ b, size, -1))
        return torch.cat(torch.distributed.nn.functional.all_to_all([torch.empty_like(parts[0]) for _ in parts], parts))

    def all_to_all_rows(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        parts = list(torch.chunk(x @ b, size))
        return torch.cat(torch.distributed.nn.functional.all_to_all([torch.empty_like(parts[0]) for _ in parts], parts))

    cases: list[tuple[Any, Any, tuple[int, ...], tuple[int, ...]]] = [
        (tt.all_gather_matmul, lambda x, b: gathered(x, 0) @ b, (6, 8), (8, 4)),
        (lambda x, b: tt.all_gather_matmul(x, [b, 2 * b])[1], lambda x, b: gathered(x, 0) @ (2 * b), (6, 8), (8, 4)),
        (
            lambda x, b: tt.all_gather_matmul(x, b, gather_dim=-1),
            lambda x, b: gathered(x, -1) @ b,
            (6, 8),
            (8 * size, 4),
        ),
        (tt.matmul_reduce_scatter, lambda x, b: scattered(x @ b, 0), (2 * size, 8), (8, 4)),
        (
            lambda x, b: tt.matmul_reduce_scatter(x, b, scatter_dim=-1),
            lambda x, b: scattered(x @ b, -1),
            (6, 8),
            (8, 2 * size),
        ),
        (lambda x, b: both(x, b, 0), lambda x, b: both_by_torch(x, b, 0), (6, 8), (8, 4)),
        (lambda x, b: both(x, b, -1), lambda x, b: both_by_torch(x, b, -1), (6, 8), (8 * size, 4)),
        (tt.matmul_all_reduce, lambda x, b: Replicated.apply(x @ b), (6, 8), (8, 4)),
        (lambda x, b: tt.all_reduce(x * x) * b, lambda x, b: Replicated.apply(x * x) * b, (6, 8), (6, 8)),
        (tt.matmul_all_to_all, all_to_all, (6, 8), (8, 2 * size)),
        (tt.matmul_all_to_all_rows, all_to_all_rows, (2 * size, 8), (8, 4)),
    ]
    for ours, theirs, *shapes in cases:
        results = []
        for function in (ours, theirs):
            x, b = (tensor(20 * i + rank, *shape).requires_grad_() for i, shape in enumerate(shapes))
            y = function(x, b)
            direction = tensor(50 + rank, *y.shape).requires_grad_()
            first = torch.autograd.grad(y, (x, b), direction, create_graph=True)
            target = sum((each * tensor(70 + rank + i, *each.shape)).sum() for i, each in enumerate(first))
            results.append([*first, *torch.autograd.grad(target, (x, b, direction))])
        for got, want in zip(*results, strict=True):
            equal(got, want)
