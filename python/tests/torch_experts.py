"""Bodies of the tests of mixture of experts in test_torch.py."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch_bodies import expect_errors, tensor
from torch_export import check_export

import tilewire.torch as tt


def experts() -> None:
    """A layer of experts on all ranks against the same computation in one place."""
    rank, size = dist.get_rank(), dist.get_world_size()
    count, top_k, of_rank = 3 * size, 2, 3
    all_w13 = torch.cat([tensor(100 + r, of_rank, 12, 8) for r in range(size)])
    all_w2 = torch.cat([tensor(200 + r, of_rank, 10, 6) for r in range(size)])
    mine = slice(rank * of_rank, (rank + 1) * of_rank)
    w13, w2 = all_w13[mine], all_w2[mine]
    x, weights = tensor(1 + rank, 2, 5, 8), tensor(7 + rank, 2, 5, top_k)
    generator = torch.Generator().manual_seed(3 + rank)
    ids = torch.rand(2, 5, count, generator=generator).topk(top_k).indices

    def reference(pairs: bool) -> torch.Tensor:
        hidden = torch.einsum("btk,btefk->btef", x, all_w13[ids])
        gate, up = (hidden[..., ::2], hidden[..., 1::2]) if pairs else hidden.chunk(2, -1)
        rows = torch.einsum("btef,btenf->bten", torch.nn.functional.silu(gate) * up, all_w2[ids])
        return (rows * weights[..., None]).sum(2)

    for joined in (tt.moe, torch.compile(tt.moe, fullgraph=True, backend="aot_eager")):
        got = joined(x, ids, weights, w13, w2)
        torch.testing.assert_close(got, reference(False), rtol=1e-4, atol=1e-4)
    got = tt.moe(x, ids.int(), weights, w13, w2, activation="swiglu_pairs", num_experts=count)
    torch.testing.assert_close(got, reference(True), rtol=1e-4, atol=1e-4)
    shared13, shared2 = tensor(300, 1, 12, 8), tensor(301, 1, 10, 6)
    weights_of = (torch.cat([w13, shared13]), torch.cat([w2, shared2]))
    hidden = torch.einsum("btk,fk->btf", x, shared13[0])
    gate, up = hidden.chunk(2, -1)
    own = (torch.nn.functional.silu(gate) * up) @ shared2[0].t()
    loaded = tt.moe(x, ids, weights, w13, w2, expert_load=[0.5, *range(1, count)])
    torch.testing.assert_close(loaded, reference(False), rtol=1e-4, atol=1e-4)
    got = tt.moe(x, ids, weights, *weights_of, shared_experts=1, max_rows=10 * size * top_k)
    torch.testing.assert_close(got, reference(False) + own, rtol=1e-4, atol=1e-4)
    for joined in (tt.moe_dropping, torch.compile(tt.moe_dropping, fullgraph=True, backend="aot_eager")):
        got, dropped = joined(x, ids, weights, *weights_of, max_rows=1, shared_experts=1)
        lost = torch.tensor([dropped.item()])
        dist.all_reduce(lost)
        # Each rank keeps one row.
        assert dropped.dtype == torch.int32 and lost.item() == (10 * top_k - 1) * size, lost
        if rank == size - 1:
            torch.testing.assert_close(got[1, 4], own[1, 4], rtol=1e-4, atol=1e-4)

    def direct(x: torch.Tensor) -> torch.Tensor:
        given = x, ids.int(), weights, w13, w2, tt._teams.group_name(None)
        return torch.ops.tilewire.moe_dropping(*given, max_rows=100)[0]

    wrong = [
        (lambda: tt.moe(x, ids[..., :1], weights, w13, w2), "topk_weights is [2, 5, 2], want [2, 5, 1]"),
        (lambda: tt.moe(x, ids, weights, w13[:2], w2), "w2 is"),
        (lambda: tt.moe(x, ids, weights, w13, w2.double()), "x and w2 are of different types"),
        (lambda: tt.moe(x, ids, weights, w13, w2, activation="tanh"), "activation"),
        (lambda: tt.moe(x, ids, weights, w13, w2, max_rows=0), "max_rows = 0, want at least 1"),
        (lambda: tt.moe_dropping(x, ids, weights, w13, w2, max_rows=-1), "max_rows = -1, want at least 1"),
        (lambda: tt.moe(x, ids, weights, w13, w2, shared_experts=4), "shared_experts = 4, w13 has 3"),
        (lambda: tt.moe(x, ids, weights, w13, w2, expert_load=[1, 2]), "load of 2 experts, want"),
        (lambda: tt.moe(x, ids, weights, w13, w2, expert_load=[-1.0] * count), "load = -1, want at least 0"),
        (lambda: direct(x.clone().requires_grad_()).sum().backward(), "tilewire.moe_dropping has no gradient"),
        (
            lambda: tt.moe_dropping(x.requires_grad_(), ids, weights, w13, w2, max_rows=9),
            "moe_dropping has no gradient",
        ),
    ]
    expect_errors(wrong)


class Layer(torch.nn.Module):
    """A router and this rank's part of six experts a rank."""

    def __init__(self) -> None:
        super().__init__()
        rank, size = dist.get_rank(), dist.get_world_size()
        self.router = torch.nn.Parameter(tensor(1, 8, 6 * size) / 8)
        self.w13 = torch.nn.Parameter(tensor(2 + rank, 6, 12, 8))
        self.w2 = torch.nn.Parameter(tensor(12 + rank, 6, 10, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, ids = (x @ self.router).softmax(-1).topk(2)
        return tt.moe(x, ids, weights, self.w13, self.w2)


def exported_experts() -> None:
    """torch.export of a router and its experts, and torch.library.opcheck of the operator."""
    rank, size = dist.get_rank(), dist.get_world_size()
    layer = Layer()
    with torch.no_grad():
        check_export(layer, ["moe"], tensor(30 + rank, 4, 3, 8), tensor(40 + rank, 7, 3, 8))
    ids = torch.rand(5, 6 * size).topk(2).indices.int()
    given = tensor(50 + rank, 5, 8), ids, torch.rand(5, 2), layer.w13.detach(), layer.w2.detach()
    tests = "test_schema", "test_faketensor", "test_aot_dispatch_static"
    torch.library.opcheck(torch.ops.tilewire.moe.default, (*given, tt._teams.group_name(None)), test_utils=tests)
