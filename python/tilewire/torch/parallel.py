"""Styles for torch.distributed.tensor.parallel.parallelize_module; they replace PyTorch's styles of the same names."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module
from torch.distributed.tensor import parallel as theirs
from torch.distributed.tensor.placement_types import Placement

from tilewire.torch import _layers

_Linear = Callable[[Tensor, Tensor, Any, str, bool, int], Tensor]


def _rows_dim(placement: Placement) -> int | None:
    """The row dimension that a placement shards: of Shard(0), Shard(1); None for Shard(-1) and Replicate()."""
    return placement.dim if isinstance(placement, Shard) and placement.dim >= 0 else None


def _local(tensor: Any) -> Any:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _is_plain(module: nn.Module) -> bool:
    """Whether the module is an nn.Linear whose forward is unchanged."""
    return isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward and "forward" not in vars(module)


def _use(
    linear: _Linear,
    module: nn.Module,
    mesh: DeviceMesh,
    dim: int | None,
    given: Placement,
    output: Placement,
    local: bool,
) -> None:
    """Replace the module's forward by an overlapping product."""
    group = mesh.get_group().group_name

    def forward(self: nn.Module, x: Any) -> Any:
        if isinstance(x, DTensor):
            x = x.redistribute(mesh, [given])
        bias = None if self.bias is None else _local(self.bias)
        y = linear(_local(x), _local(self.weight), bias, group, dim is not None, dim or 0)
        return y if local else DTensor.from_local(y, mesh, [output], run_check=False)

    module.forward = types.MethodType(forward, module)  # type: ignore[method-assign]


class ColwiseParallel(theirs.ColwiseParallel):
    """PyTorch's ColwiseParallel; the gather of rows overlaps with the product.

    tilewire runs an nn.Linear whose input is `Shard(d)`, d a dimension of rows, or `Replicate()`, and whose output is
    `Shard(-1)`. PyTorch runs every other module and layout. Parameters are PyTorch's DTensors.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        (given,), (wanted,) = self.input_layouts, self.output_layouts
        dim = _rows_dim(given)
        taken = _is_plain(module) and wanted == Shard(-1) and (dim is not None or given == Replicate())
        if not taken:
            return super()._apply(module, device_mesh)
        module = distribute_module(module, device_mesh, self._partition_linear_fn)
        _use(_layers.column_linear, module, device_mesh, dim, given, wanted, self.use_local_output)
        return module


class RowwiseParallel(theirs.RowwiseParallel):
    """PyTorch's RowwiseParallel; the sum over ranks overlaps with the product.

    tilewire runs an nn.Linear whose input is `Shard(-1)`, and whose output is `Shard(d)`, d a dimension of rows, or
    `Replicate()`. PyTorch runs every other module and layout. Parameters are PyTorch's DTensors.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        (given,), (wanted,) = self.input_layouts, self.output_layouts
        dim = _rows_dim(wanted)
        taken = _is_plain(module) and given == Shard(-1) and (dim is not None or wanted == Replicate())
        if not taken:
            return super()._apply(module, device_mesh)
        module = distribute_module(module, device_mesh, self._partition_linear_fn)
        _use(_layers.row_linear, module, device_mesh, dim, given, wanted, self.use_local_output)
        return module
