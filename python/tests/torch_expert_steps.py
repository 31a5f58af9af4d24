"""Bodies of the tests of the steps of mixture of experts, and of its gradients, in test_torch.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch_bodies import expect_errors, tensor
from torch_export import check_export

import tilewire.torch as tt
from tilewire.torch import _expert_products as products

OF_RANK, TOP_K, K, F, N = 3, 2, 8, 6, 10


def near(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def activated(x: torch.Tensor, activation: str) -> torch.Tensor:
    functional = torch.nn.functional
    if activation == "swiglu":
        gate, up = x.chunk(2, -1)
        return functional.silu(gate) * up
    if activation == "swiglu_pairs":
        return functional.silu(x[..., ::2]) * x[..., 1::2]
    return x if activation == "none" else getattr(functional, activation)(x)


def routed() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """This rank's tokens, their experts and weights."""
    rank, size = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(3 + rank)
    ids = torch.rand(2, 5, OF_RANK * size, generator=generator).topk(TOP_K).indices
    return tensor(1 + rank, 2, 5, K) / 4, ids, tensor(7 + rank, 2, 5, TOP_K) / 4


def all_weights(columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """w13 and w2 of all experts, then of a shared one."""
    count = OF_RANK * dist.get_world_size() + 1
    return tensor(100, count, columns, K) / 4, tensor(200, count, N, F) / 4


def mine_of(weights: torch.Tensor) -> torch.Tensor:
    """Those of this rank, the shared one last."""
    first = dist.get_rank() * OF_RANK
    return torch.cat([weights[first : first + OF_RANK], weights[-1:]])


def plain_layer(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, w13: torch.Tensor, w2: torch.Tensor, activation: str
) -> torch.Tensor:
    """The layer in one place, with the last expert shared."""
    hidden = activated(torch.einsum("btk,btefk->btef", x, w13[ids]), activation)
    rows = torch.einsum("btef,btenf->bten", hidden, w2[ids])
    return (rows * weights[..., None]).sum(2) + activated(x @ w13[-1].t(), activation) @ w2[-1].t()


def steps() -> None:
    """The steps one after the other against the whole layer, eager and compiled, with one handle for several calls."""
    size = dist.get_world_size()
    x, ids, weights = routed()
    w13, w2 = (mine_of(all_of) for all_of in all_weights(2 * F))
    count = OF_RANK * size
    want = tt.moe(x, ids, weights, w13, w2, shared_experts=1)

    def in_two(x: torch.Tensor) -> torch.Tensor:
        rows, handle = tt.moe_dispatch_gemm(x, ids, weights, w13, shared_experts=1)
        return tt.moe_gemm_combine(rows, handle, w2)

    def moved(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows, handle = tt.moe_dispatch(x, ids, weights, num_experts=count, shared_experts=1)
        ones = (handle.places >= 0).float()
        return tt.moe_combine(rows, handle), tt.moe_combine(rows, handle._replace(weights=ones))

    for compiled in (False, True):
        two, one = (torch.compile(f, fullgraph=True, backend="aot_eager") if compiled else f for f in (in_two, moved))
        assert torch.equal(two(x), want)
        by_weight, by_number = one(x)
        near(by_weight, x * (weights.sum(-1, keepdim=True) + 1))
        near(by_number, x * (TOP_K + 1))
    rows, handle = tt.moe_dispatch(x, ids, weights, num_experts=count, shared_experts=1)
    assert rows.shape[1] == K and handle.places.shape == (10 * size, TOP_K + 1) and handle.shape == (2, 5)
    for begin, end in handle.extents.t().tolist()[-1:]:
        assert torch.equal(rows[begin:end], x.reshape(-1, K)), "the shared expert has this rank's tokens"
    bounded, _ = tt.moe_dispatch(x, ids, weights, num_experts=count, max_rows=10 * TOP_K * size)
    assert bounded.shape[0] <= rows.shape[0]

    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: tt.moe_dispatch(x, ids[..., :1], weights, num_experts=count), "topk_weights is [2, 5, 2]"),
        (lambda: tt.moe_dispatch(x, ids, weights, num_experts=count, max_rows=0), "max_rows = 0, want at least 1"),
        (lambda: tt.moe_dispatch(x, ids, weights, num_experts=1), "top_k = 2, want 1 to 1"),
        (lambda: tt.moe_dispatch_gemm(x, ids, weights, w13, activation="tanh"), "activation"),
        (lambda: tt.moe_dispatch_gemm(x, ids, weights, w13.double()), "x and w13 are of different types"),
        (lambda: tt.moe_combine(rows[1:], handle), "input expert_y is"),
        (lambda: tt.moe_combine(rows, handle._replace(extents=handle.extents.long())), "a tensor of PyTorch's type 4"),
        (lambda: tt.moe_gemm_combine(rows, handle, w2), f"w2 is [{OF_RANK + 1}, {N}, {F}], want"),
        (lambda: tt.moe_dispatch_gemm(x.requires_grad_(), ids, weights, w13), "moe_dispatch_gemm has no gradient"),
    ]
    expect_errors(wrong)


def compare(
    ours: Callable[..., torch.Tensor], theirs: Callable[..., torch.Tensor], columns: int, over_ranks: bool = True
) -> None:
    """Compare results and gradients. `theirs` takes the weights of all experts, `ours` those of this rank."""
    rank = dist.get_rank()
    x, ids, weights = routed()
    results = []
    for function, part in ((ours, mine_of), (theirs, torch.clone)):
        leaves = [t.clone().requires_grad_() for t in (x, weights, *map(part, all_weights(columns)))]
        y = function(leaves[0], ids, *leaves[1:])
        y.backward(tensor(60 + rank, *y.shape) / 4)
        results.append(
            [y.detach(), *[leaf.grad if leaf.grad is not None else torch.zeros_like(leaf) for leaf in leaves]]
        )
    (y, grad_x, grad_weights, *ours_of), (want_y, want_x, want_weights, *theirs_of) = results
    near(y, want_y)
    near(grad_x, want_x)
    near(grad_weights, want_weights)
    for got, want in zip(ours_of, theirs_of, strict=True):
        own = want[-1].clone()
        dist.all_reduce(want)
        near(got[:-1], mine_of(want)[:-1])
        near(got[-1], own)  # the shared expert: of this rank's tokens


def gradients() -> None:
    """Gradients of the layer and of its steps against a plain PyTorch layer."""
    count = OF_RANK * dist.get_world_size()
    for activation in ("swiglu", "swiglu_pairs", "silu", "gelu", "relu", "none"):
        compare(
            lambda x, ids, *others, a=activation: tt.moe(x, ids, *others, activation=a, shared_experts=1),
            lambda x, ids, *others, a=activation: plain_layer(x, ids, *others, a),
            2 * F if activation.startswith("swiglu") else F,
        )
    compiled = torch.compile(tt.moe, fullgraph=True, backend="aot_eager")
    compare(
        lambda x, ids, *others: compiled(x, ids, *others, shared_experts=1),
        lambda x, ids, *others: plain_layer(x, ids, *others, "swiglu"),
        2 * F,
    )

    # The steps, with a function of the rows between them.
    def moved(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, *unused: torch.Tensor) -> torch.Tensor:
        rows, handle = tt.moe_dispatch(x, ids, weights, num_experts=count, shared_experts=1)
        return tt.moe_combine(torch.tanh(rows), handle)

    def plain(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, *unused: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * (weights.sum(-1, keepdim=True) + 1)

    for function in (moved, torch.compile(moved, fullgraph=True, backend="aot_eager")):
        compare(function, plain, 2 * F)
    # Only some gradients are asked for.
    x, ids, weights = routed()
    w13, w2 = (mine_of(all_of) for all_of in all_weights(2 * F))
    leaf = w2.clone().requires_grad_()
    tt.moe(x, ids, weights, w13, leaf, shared_experts=1).sum().backward()
    assert leaf.grad is not None and leaf.grad.abs().max() > 0
    # In 16 bits, against those of 32.
    for dtype in (torch.bfloat16, torch.float16):
        grads = []
        for of in (torch.float32, dtype):
            leaves = [t.clone().to(of).requires_grad_() for t in (x, w13, w2)]
            tt.moe(leaves[0], ids, weights, *leaves[1:], shared_experts=1).sum().backward()
            grads.append([leaf.grad for leaf in leaves])
        for want, got in zip(*grads, strict=True):
            assert got.dtype == dtype
            assert (got.float() - want).norm() <= 2e-2 * want.norm()


def grouped_products() -> bool:
    """PyTorch's grouped products against loops over the groups; False if this PyTorch has none for CPU tensors."""
    extents = torch.tensor([[0, 8, 8, 16, 40], [5, 8, 13, 33, 48]], dtype=torch.int32)  # the second is empty
    rows, inside = 67, products.rows_in_groups(extents, 67)
    assert inside.sum() == 5 + 5 + 17 + 8
    x, y = (torch.where(inside, tensor(i, rows, 8 + 8 * i), torch.nan).bfloat16() for i in (1, 2))
    b = tensor(3, 5, 24, 16).bfloat16().transpose(1, 2)
    want = products.grouped_matmul(x, extents, b), products.grouped_weight_gradient(x, y, extents)
    with mock.patch.object(products, "_has_grouped_products", return_value=True):
        try:
            got = products.grouped_matmul(x, extents, b), products.grouped_weight_gradient(x, y, extents)
        except (AttributeError, NotImplementedError, RuntimeError) as error:
            print(error)
            return False
    torch.testing.assert_close(torch.where(inside, got[0], 0), torch.where(inside, want[0], 0))
    torch.testing.assert_close(got[1], want[1])
    return True


class Steps(torch.nn.Module):
    """A router, a dispatch, a function of rows, and a combine."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("router", tensor(1, K, OF_RANK * dist.get_world_size()) / 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, ids = (x @ self.router).softmax(-1).topk(TOP_K)
        rows, handle = tt.moe_dispatch(x, ids, weights, num_experts=OF_RANK * dist.get_world_size())
        return tt.moe_combine(torch.relu(rows), handle)


def exported() -> None:
    """torch.export of the steps, and torch.library.opcheck of all operators of experts."""
    rank, size = dist.get_rank(), dist.get_world_size()
    check_export(Steps(), ["moe_dispatch", "moe_combine"], tensor(30 + rank, 4, 3, K), tensor(40 + rank, 7, 3, K))
    ops, group, count = torch.ops.tilewire, tt._teams.group_name(None), OF_RANK * size
    x, ids, weights = (t.reshape(10, -1) for t in routed())
    ids = ids.int()
    w13, w2 = (mine_of(all_of) for all_of in all_weights(2 * F))
    rows, *handle = ops.moe_dispatch(x, ids, weights, group, count, 1)
    hidden = ops.moe_dispatch_gemm(x, ids, weights, w13, group, "swiglu", 0, 1)[0]
    rows, hidden = rows.nan_to_num(), hidden.nan_to_num()
    tests = "test_schema", "test_faketensor", "test_aot_dispatch_static"
    # NOTE: opcheck compares all elements, and those of rows outside of groups are undefined.
    shapes = ("test_faketensor",)
    check = torch.library.opcheck
    check(ops.moe_dispatch.default, (x, ids, weights, group, count, 1, 7 * size * TOP_K), test_utils=shapes)
    check(ops.moe_dispatch_gemm.default, (x, ids, weights, w13, group, "swiglu", 0, 1), test_utils=shapes)
    check(ops.moe_combine.default, (rows, *handle, group, count, 1), test_utils=tests)
    check(ops.moe_gemm_combine.default, (hidden, *handle, w2, group, 0, 1), test_utils=tests)
    check(ops.grouped_matmul.default, (rows, handle[0], w13.transpose(1, 2)), test_utils=tests)
    check(ops.grouped_weight_gradient.default, (rows, hidden, handle[0]), test_utils=tests)
