"""Bodies of the tests of torch.export and of Inductor in test_torch.py."""

from __future__ import annotations

import io
import tempfile

import torch
import torch.distributed as dist
from torch_bodies import equal, tensor

import tilewire.torch as tt


def check_export(module: torch.nn.Module, names: list[str], *several: torch.Tensor) -> None:
    """Export for the first x, with any number of rows; the program and its stored copy equal the module on every x.
    `names`: the operators of tilewire in its graph."""
    rows = torch.export.Dim("rows", min=2, max=64)
    exported = torch.export.export(module, several[:1], dynamic_shapes={"x": {0: rows}})
    targets = [str(node.target) for node in exported.graph.nodes]
    found = [target.split(".")[1] for target in targets if target.startswith("tilewire.")]
    assert found == names, found
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    for program in (exported.module(), torch.export.load(file).module()):
        for x in several:
            leaves = torch.utils._pytree.tree_leaves
            for got, want in zip(leaves(program(x)), leaves(module(x)), strict=True):
                assert got.dtype == want.dtype
                equal(got, want)


class Operators(torch.nn.Module):
    """Every operator but `moe`, each applied to x."""

    def __init__(self) -> None:
        super().__init__()
        rank, size = dist.get_rank(), dist.get_world_size()
        shapes = {"b": (12, 8), "tall": (12 * size, 8), "wide": (12, 8 * size), "norm_weight": (8,), "row": (12,)}
        for i, (name, shape) in enumerate(shapes.items()):
            self.register_buffer(name, tensor(10 * i + (rank if name in ("b", "tall") else 0), *shape))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor | tuple[torch.Tensor, ...] | list[torch.Tensor]]:
        return [
            tt.all_gather_matmul(x, self.b),
            tt.all_gather_matmul(x, [self.b, self.wide]),
            tt.all_gather_matmul(x, self.tall, gather_dim=-1),
            tt.all_gather_matmul(x, [self.tall, self.tall], gather_dim=-1),
            tt.matmul_reduce_scatter(torch.cat([x] * dist.get_world_size()), self.b),
            tt.matmul_reduce_scatter(x, self.wide, scatter_dim=-1),
            tt.matmul_all_to_all(x, self.wide),
            tt.matmul_all_to_all_rows(torch.cat([x] * dist.get_world_size()), self.b),
            tt.matmul_all_reduce(x, self.b),
            tt.matmul_all_reduce(x, self.b, norm_weight=self.norm_weight),
            tt.matmul_all_reduce(x, self.b, norm_weight=self.norm_weight, norm_dtype=torch.int8),
            tt.all_reduce(x),
            tt.all_reduce_add_rms_norm(x, torch.ones_like(x), self.row),
            tt.all_reduce_add_rms_norm(x, torch.ones_like(x), self.row, norm_dtype=torch.float8_e4m3fn),
        ]


def operators() -> None:
    """Every operator but `moe`, in one program."""
    names = [
        "all_gather_matmul",
        "all_gather_matmuls",
        "all_gather_cols_matmul",
        "all_gather_cols_matmuls",
        "matmul_reduce_scatter",
        "matmul_reduce_scatter_cols",
        "matmul_all_to_all",
        "matmul_all_to_all_rows",
        "matmul_all_reduce",
        "matmul_all_reduce_norm",
        "matmul_all_reduce_norm_quantised",
        "all_reduce",
        "all_reduce_norm",
        "all_reduce_norm_quantised",
    ]
    rank = dist.get_rank()
    check_export(Operators(), names, tensor(60 + rank, 4, 12), tensor(70 + rank, 5, 12))


def by_inductor() -> None:
    """Programs compiled with a graph by Inductor, and ahead of time."""
    rank = dist.get_rank()
    x, b = tensor(1 + rank, 8, 16), tensor(2 + rank, 16, 8)

    class Program(torch.nn.Module):
        def forward(self, x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            y, z = tt.all_gather_matmul(torch.relu(x), [b, 2 * b])
            return 2 * tt.matmul_reduce_scatter(torch.relu(y) + z, b.t())

    want = Program()(x, b)
    equal(torch.compile(Program(), fullgraph=True)(x, b), want)
    exported = torch.export.export(Program(), (x, b))
    with tempfile.TemporaryDirectory() as folder:
        path = torch._inductor.aoti_compile_and_package(exported, package_path=f"{folder}/program.pt2")
        equal(torch._inductor.aoti_load_package(path)(x, b), want)
