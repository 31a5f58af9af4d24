"""Functions that ranks run to test parallel layers, and tensor parallelism beside data parallelism."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch_bodies import equal, tensor

import tilewire
import tilewire.torch as tt


def layers() -> None:
    """Parallel layers, and PyTorch's styles, against unsharded layers."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import parallelize_module

    from tilewire.torch.parallel import ColwiseParallel, RowwiseParallel

    rank, size = dist.get_rank(), dist.get_world_size()

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = torch.nn.Linear(12, 8 * size), torch.nn.Linear(8 * size, 12)
            for i, parameter in enumerate(self.parameters()):
                parameter.data.copy_(tensor(40 + i, *parameter.shape))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(torch.relu(self.up(x)))

    def mine(gradient: torch.Tensor, name: str) -> torch.Tensor:
        if name == "down.bias":
            return gradient
        return gradient.chunk(size, 1 if name == "down.weight" else 0)[rank]

    whole, x = Whole(), tensor(1, 4 * size, 3, 12)
    for dim in (0, 1, 2):
        x = tensor(1, *((4 * size, 3) if dim == 0 else (3, 4 * size)), 12)
        for sequence in (True, False) if dim < 2 else (True,):
            whole.zero_grad()
            given = x.clone().requires_grad_()
            want = whole(given)
            want.backward(tensor(2, *want.shape))

            def rows(t: torch.Tensor, d: int = dim, s: bool = sequence) -> torch.Tensor:
                return t.chunk(size, d)[rank] if s else t

            up = tt.ColumnParallelLinear(12, 8 * size, sequence_parallel=sequence, sequence_dim=dim)
            down = tt.RowParallelLinear(8 * size, 12, sequence_parallel=sequence, sequence_dim=dim)
            up.load_whole(whole.up.weight, whole.up.bias)
            down.load_whole(whole.down.weight, whole.down.bias)
            ours = torch.nn.ModuleDict({"up": up, "down": down})
            styled, mesh = Whole(), init_device_mesh("cpu", (size,))
            layout = Shard(dim) if sequence else Replicate()
            parallelize_module(
                styled,
                mesh,
                {"up": ColwiseParallel(input_layouts=layout), "down": RowwiseParallel(output_layouts=layout)},
            )
            runs = [
                (lambda part, up=up, down=down: down(torch.relu(up(part))), ours),
                (styled, styled),
                (torch.compile(styled, backend="aot_eager"), styled),
            ]
            for run, module in runs:
                module.zero_grad()
                part = rows(x).clone().requires_grad_()
                y = run(part)
                y.backward(rows(tensor(2, *want.shape)))
                equal(y, rows(want))
                equal(part.grad, rows(given.grad))
                for name, parameter in module.named_parameters():
                    gradient = parameter.grad
                    if hasattr(gradient, "to_local"):
                        gradient = gradient.to_local()
                    equal(gradient, mine(whole.get_parameter(name).grad, name))
    try:
        tt.ColumnParallelLinear(12, 8 * size + 1)
    except tilewire.Error as error:
        assert size == 1 or f"out_features = {8 * size + 1} over {size} ranks" in str(error), error


def two_dimensions() -> None:
    """Tensor parallelism inside each half of the ranks, FSDP2 and DDP across the halves, in PyTorch's groups."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor import parallel as by_torch
    from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
    from torch.nn.parallel import DistributedDataParallel

    from tilewire.torch import parallel as ours

    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("data", "tensor"))
    replica = mesh["data"].get_local_rank()

    def losses(style: Any, data: Callable[[torch.nn.Module], torch.nn.Module]) -> list[float]:
        torch.manual_seed(1)
        block = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
        styles = {
            "0": style.ColwiseParallel(input_layouts=Shard(0)),
            "2": style.RowwiseParallel(output_layouts=Shard(0), use_local_output=True),
        }
        block = data(by_torch.parallelize_module(block, mesh["tensor"], styles))
        optimizer = torch.optim.SGD(block.parameters(), lr=0.05)
        found = []
        for _ in range(4):
            x = tensor(10 + replica, 8, 8).chunk(mesh["tensor"].size())[mesh["tensor"].get_local_rank()]
            loss = block(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
        return found

    def shards(block: torch.nn.Module) -> torch.nn.Module:
        return fully_shard(block, mesh=mesh["data"])

    def replicas(block: torch.nn.Module) -> torch.nn.Module:
        _pre_dp_module_transform(block)
        return DistributedDataParallel(block, process_group=mesh["data"].get_group())

    for data in (shards, replicas):
        got, want = losses(ours, data), losses(by_torch, data)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert want[-1] < want[0]
