"""Fakes of torch.ops.tilewire: shapes of results without the computation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tilewire.torch._teams import group_size


def _sizes(x: Tensor, first: Any, last: Any) -> list[Any]:
    """Sizes of a result: those of x, except for the first and the last dimension."""
    return [first, *x.shape[1:-1], last]


def _fake_gather(
    x: Tensor, bs: Sequence[Tensor], group: str, by_columns: bool, activation: str
) -> tuple[list[Tensor], Tensor]:
    """The products with each b, and the gathered x."""
    size = group_size(group)
    rows, cols = (1, size) if by_columns else (size, 1)
    joined = 2 if activation == "swiglu_pairs" else 1
    ys = [x.new_empty(_sizes(x, x.shape[0] * rows, b.shape[1] // joined)) for b in bs]
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
        (y,), whole = _fake_gather(x, [b], group, by_columns, activation)
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
        ys, whole = _fake_gather(x, b, group, by_columns, activation)
        return ys, whole if gather else None


_register_fake_gather("all_gather_matmul", by_columns=False)
_register_fake_gather("all_gather_cols_matmul", by_columns=True)
_register_fake_gather_for_several("all_gather_matmuls", by_columns=False)
_register_fake_gather_for_several("all_gather_cols_matmuls", by_columns=True)


@torch.library.register_fake("tilewire::moe")
def _(x: Tensor, topk_ids: Tensor, topk_weights: Tensor, w13: Tensor, w2: Tensor, *others: Any) -> Tensor:
    return x.new_empty([*x.shape[:-1], w2.shape[1]])


@torch.library.register_fake("tilewire::moe_dropping")
def _(
    x: Tensor, topk_ids: Tensor, topk_weights: Tensor, w13: Tensor, w2: Tensor, *others: Any
) -> tuple[Tensor, Tensor]:
    return x.new_empty([*x.shape[:-1], w2.shape[1]]), topk_ids.new_empty([1, 1])


def _fake_dispatch(
    x: Tensor, ids: Tensor, weights: Tensor, columns: Any, group: str, count: int, shared: int, max_rows: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of experts, enough for any routing on any rank, and the handle of the routing."""
    size, rank = group_size(group), dist.get_rank(dist.distributed_c10d._resolve_process_group(group))
    tokens, top_k = x.numel() // x.shape[-1], ids.shape[-1]
    each = -(-count // size)
    mine = min(count, (rank + 1) * each) - min(count, rank * each)
    most: Any = tokens * size * min(top_k, min(count, each))
    if max_rows > 0:
        most = torch.sym_min(most, max_rows)
    # NOTE: groups begin at multiples of 8 rows.
    rows = most + shared * tokens + (min(count, each) + shared) * 7
    lists = [tokens * size, top_k + shared]
    return (
        x.new_empty([rows, columns]),
        ids.new_empty([2, mine + shared]),
        ids.new_empty(lists),
        weights.new_empty(lists),
    )


@torch.library.register_fake("tilewire::moe_dispatch")
def _(
    x: Tensor,
    topk_ids: Tensor,
    topk_weights: Tensor,
    group: str,
    num_experts: int,
    shared_experts: int = 0,
    max_rows: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    numbers = num_experts, shared_experts, max_rows
    return _fake_dispatch(x, topk_ids, topk_weights, x.shape[-1], group, *numbers)


@torch.library.register_fake("tilewire::moe_dispatch_gemm")
def _(
    x: Tensor,
    topk_ids: Tensor,
    topk_weights: Tensor,
    w13: Tensor,
    group: str,
    activation: str = "swiglu",
    num_experts: int = 0,
    shared_experts: int = 0,
    max_rows: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    columns = w13.shape[1] // (2 if activation.startswith("swiglu") else 1)
    numbers = num_experts or (w13.shape[0] - shared_experts) * group_size(group), shared_experts, max_rows
    return _fake_dispatch(x, topk_ids, topk_weights, columns, group, *numbers)


@torch.library.register_fake("tilewire::moe_combine")
def _(rows: Tensor, extents: Tensor, places: Tensor, place_weights: Tensor, group: str, *others: Any) -> Tensor:
    return rows.new_empty([places.shape[0] // group_size(group), rows.shape[1]])


@torch.library.register_fake("tilewire::moe_gemm_combine")
def _(
    rows: Tensor, extents: Tensor, places: Tensor, place_weights: Tensor, w2: Tensor, group: str, *others: Any
) -> Tensor:
    return rows.new_empty([places.shape[0] // group_size(group), w2.shape[1]])


@torch.library.register_fake("tilewire::matmul_reduce_scatter_cols")
def _(x: Tensor, b: Tensor, group: str, *others: Any) -> Tensor:
    return x.new_empty(_sizes(x, x.shape[0], b.shape[1] // group_size(group)))


@torch.library.register_fake("tilewire::matmul_reduce_scatter")
def _(x: Tensor, b: Tensor, group: str, *others: Any) -> Tensor:
    return x.new_empty(_sizes(x, x.shape[0] // group_size(group), b.shape[1]))


@torch.library.register_fake("tilewire::matmul_all_reduce")
def _(x: Tensor, b: Tensor, group: str, *others: Any) -> Tensor:
    return x.new_empty(_sizes(x, x.shape[0], b.shape[1]))


@torch.library.register_fake("tilewire::matmul_all_reduce_norm")
def _(x: Tensor, b: Tensor, group: str, *others: Any) -> tuple[Tensor, Tensor]:
    y = x.new_empty(_sizes(x, x.shape[0], b.shape[1]))
    return y, torch.empty_like(y)


def _quantised(y: Tensor, norm_dtype: str) -> tuple[Tensor, Tensor, Tensor]:
    dtype = torch.int8 if norm_dtype == "int8" else torch.float8_e4m3fn
    return y, torch.empty_like(y, dtype=dtype), y.new_empty((*y.shape[:-1], 1), dtype=torch.float32)


@torch.library.register_fake("tilewire::matmul_all_reduce_norm_quantised")
def _(
    x: Tensor,
    b: Tensor,
    group: str,
    norm_weight: Tensor,
    eps: float = 1e-6,
    norm_dtype: str = "fp8_e4m3",
    *others: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    return _quantised(x.new_empty(_sizes(x, x.shape[0], b.shape[1])), norm_dtype)


@torch.library.register_fake("tilewire::matmul_all_to_all")
def _(x: Tensor, b: Tensor, group: str, *others: Any) -> Tensor:
    size = group_size(group)
    return x.new_empty(_sizes(x, x.shape[0] * size, b.shape[1] // size))


@torch.library.register_fake("tilewire::matmul_all_to_all_rows")
def _(x: Tensor, b: Tensor, group: str, *others: Any) -> Tensor:
    return x.new_empty(_sizes(x, x.shape[0], b.shape[1]))


@torch.library.register_fake("tilewire::all_reduce")
def _(x: Tensor, group: str, repeatable: bool = False) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.register_fake("tilewire::all_reduce_norm")
def _(x: Tensor, group: str, *others: Any) -> tuple[Tensor, Tensor]:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    return y, torch.empty_like(y)


@torch.library.register_fake("tilewire::all_reduce_norm_quantised")
def _(
    x: Tensor, group: str, norm_weight: Tensor, eps: float = 1e-6, norm_dtype: str = "fp8_e4m3", *others: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return _quantised(torch.empty_like(x, memory_format=torch.contiguous_format), norm_dtype)


for _name in (
    "all_gather_matmul",
    "all_gather_cols_matmul",
    "all_gather_matmuls",
    "all_gather_cols_matmuls",
    "matmul_reduce_scatter",
    "matmul_reduce_scatter_cols",
    "matmul_all_reduce",
    "matmul_all_reduce_norm",
    "matmul_all_reduce_norm_quantised",
    "matmul_all_to_all",
    "matmul_all_to_all_rows",
    "all_reduce",
    "all_reduce_norm",
    "all_reduce_norm_quantised",
):
    torch.library.register_fake(f"tilewire::{_name}_out")(lambda *given: None)
