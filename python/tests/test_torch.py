"""tilewire.torch on CPU ranks. Skipped if torch is not installed."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

import torch_bodies  # noqa: E402
import torch_expert_steps  # noqa: E402
import torch_experts  # noqa: E402
import torch_export  # noqa: E402
import torch_gradients  # noqa: E402
import torch_memory  # noqa: E402
import torch_norms  # noqa: E402
import torch_parallel  # noqa: E402


def run(body: Callable[[], None], ranks: int) -> None:
    """Run a body on `ranks` processes with a process group of gloo."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(torch_bodies.start, (ranks, port, body), nprocs=ranks)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_forward(ranks: int) -> None:
    run(torch_bodies.forward, ranks)


@pytest.mark.parametrize("ranks", [1, 2])
def test_gradients(ranks: int) -> None:
    run(torch_gradients.gradients, ranks)


def test_gradients_of_gradients() -> None:
    run(torch_gradients.gradients_of_gradients, 2)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_epilogues(ranks: int) -> None:
    run(torch_bodies.epilogues, ranks)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_experts(ranks: int) -> None:
    run(torch_experts.experts, ranks)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_steps_of_experts(ranks: int) -> None:
    run(torch_expert_steps.steps, ranks)


@pytest.mark.parametrize("ranks", [1, 2])
def test_gradients_of_experts(ranks: int) -> None:
    run(torch_expert_steps.gradients, ranks)


def test_grouped_products() -> None:
    if not torch_expert_steps.grouped_products():
        pytest.skip("torch._grouped_mm takes no CPU tensors")


def test_export() -> None:
    run(torch_experts.exported_experts, 2)
    run(torch_expert_steps.exported, 2)
    run(torch_export.operators, 2)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_norms(ranks: int) -> None:
    run(torch_norms.norms, ranks)
    run(torch_norms.quantised_norms, ranks)
    run(torch_norms.dynamic_batch, ranks)
    run(torch_norms.flashinfer_arguments, ranks)


def test_gradients_and_misuse_of_norms() -> None:
    run(torch_norms.gradients_of_norms, 2)
    run(torch_norms.misuse_of_norms, 2)
    run(torch_norms.autocast_and_warmup, 2)


def test_layers() -> None:
    run(torch_parallel.layers, 2)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_programs(ranks: int) -> None:
    run(torch_bodies.programs, ranks)


def test_failures() -> None:
    run(torch_bodies.failures, 3)


def run_example(name: str) -> str:
    """What an example prints on two ranks."""
    example = pathlib.Path(__file__).parents[2] / "examples" / name
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(example)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example() -> None:
    assert "largest difference of losses" in run_example("06_torch/llama_block.py")


def test_the_example_of_experts() -> None:
    text = run_example("07_experts/sparse_blocks.py")
    if importlib.util.find_spec("transformers") is None:
        assert "transformers is not installed" in text
        pytest.skip("transformers is not installed")
    for model in ("Mixtral", "Qwen3-MoE"):
        assert f"{model}: 8 experts on 2 ranks, eager: largest difference" in text, text


def test_opcheck_and_compile() -> None:
    run(torch_bodies.checked, 2)


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor compiles by g++")
def test_inductor() -> None:
    run(torch_export.by_inductor, 2)


def test_beside_data_parallelism() -> None:
    run(torch_parallel.two_dimensions, 4)


def test_misuse() -> None:
    run(torch_bodies.misuse, 2)


def test_many_shapes_and_groups() -> None:
    run(torch_bodies.many_shapes, 2)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_memory(ranks: int) -> None:
    run(torch_memory.in_place, ranks)
    run(torch_memory.versions, ranks)
    run(torch_memory.memory, ranks)


def test_tuning() -> None:
    run(torch_memory.tuning, 2)


def test_drop_in() -> None:
    run(torch_bodies.drop_in, 2)


def test_a_program_that_does_not_know_of_tilewire() -> None:
    program = (
        "import torch, sys; assert 'tilewire' not in sys.modules or not hasattr(sys.modules['tilewire'], 'torch'); "
        "import torch.distributed._symmetric_memory; "
        "kernels = torch._C._dispatch_dump('symm_mem::fused_all_gather_matmul'); "
        "print('CPU:' in kernels)"
    )
    for setting, found in (("1", "True"), ("0", "False")):
        environment = {**os.environ, "TILEWIRE_TORCH": setting}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == found, (done.stdout, done.stderr)
