"""Linear layers whose weights are sharded over the ranks of a process group."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import tilewire
from tilewire.torch import _all_reduce, _products
from tilewire.torch._gradients import sum_gradients
from tilewire.torch._teams import group_name, group_size


def column_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, group: str, sequence_parallel: bool, sequence_dim: int
) -> Tensor:
    """This rank's output features of a linear layer, for all rows. `weight`: its shard [features / ranks, K]."""
    if sequence_parallel:
        y = _products.all_gather_matmul(x, weight.t(), group, gather_dim=sequence_dim, bias=bias)
        assert isinstance(y, Tensor)
        return y
    return nn.functional.linear(sum_gradients(x, group), weight, bias)


def row_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, group: str, sequence_parallel: bool, sequence_dim: int
) -> Tensor:
    """A linear layer with sharded input features. `weight`: this rank's shard [features, K / ranks]."""
    if sequence_parallel:
        # Each rank computes the bias's gradient for its own rows, or columns.
        shared = None if bias is None else sum_gradients(bias, group)
        if shared is not None and sequence_dim in (-1, x.dim() - 1):
            process_group = dist.distributed_c10d._resolve_process_group(group)
            shared = shared.chunk(group_size(group))[dist.get_rank(process_group)]
        return _products.matmul_reduce_scatter(x, weight.t(), group, scatter_dim=sequence_dim, bias=shared)
    return _all_reduce.matmul_all_reduce(x, weight.t(), group, bias=bias)


class _ParallelLinear(nn.Module):
    """Common part of both layers: a sharded weight, and the layout of rows."""

    _split: int  #: the dimension of the whole weight that is sharded

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        group: dist.ProcessGroup | str | None = None,
        sequence_parallel: bool = True,
        sequence_dim: int = 0,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Sizes are over all ranks. The sharded size must be a multiple of the number of ranks."""
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.group = group_name(group)
        self.sequence_parallel, self.sequence_dim = sequence_parallel, sequence_dim
        size, split = group_size(self.group), self._split
        shape = [out_features, in_features]
        if shape[split] % size != 0:
            name = ("out_features", "in_features")[split]
            raise tilewire.Error(f"{name} = {shape[split]} over {size} ranks: want a multiple", "invalid_input")
        shape[split] //= size
        self.weight = nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))
        columns = shape[0] if split == 0 else out_features
        self.bias = nn.Parameter(torch.empty(columns, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize as nn.Linear, but with a zero bias, which may be replicated."""
        nn.init.uniform_(self.weight, -1 / math.sqrt(self.in_features), 1 / math.sqrt(self.in_features))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @torch.no_grad()
    def load_whole(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Copy this rank's shard of an nn.Linear's weight and bias."""
        size = group_size(self.group)
        rank = dist.get_rank(dist.distributed_c10d._resolve_process_group(self.group))
        self.weight.copy_(weight.chunk(size, self._split)[rank])
        if (self.bias is None) != (bias is None):
            raise tilewire.Error("a bias for a layer without one, or none for a layer with one", "invalid_input")
        if self.bias is not None and bias is not None:
            self.bias.copy_(bias.chunk(size)[rank] if self._split == 0 else bias)

    def extra_repr(self) -> str:
        """Sizes over all ranks."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"sequence_parallel={self.sequence_parallel}"
        )


class ColumnParallelLinear(_ParallelLinear):
    """A linear layer with sharded output features.

    With `sequence_parallel` the input is this rank's rows along `sequence_dim`; the gather of rows overlaps with the
    product. Without it the input is all rows, the same on all ranks. Output: all rows, [..., out_features / ranks].
    """

    _split = 0

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features] to [..., out_features / ranks]."""
        return column_linear(x, self.weight, self.bias, self.group, self.sequence_parallel, self.sequence_dim)


class RowParallelLinear(_ParallelLinear):
    """A linear layer with sharded input features.

    With `sequence_parallel` the output is this rank's rows along `sequence_dim`; the reduce-scatter overlaps with the
    product. Without it the output is all rows, the same on all ranks. Input: all rows, [..., in_features / ranks]. The
    bias is the same on all ranks.
    """

    _split = 1

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features / ranks] to [..., out_features]."""
        return row_linear(x, self.weight, self.bias, self.group, self.sequence_parallel, self.sequence_dim)
