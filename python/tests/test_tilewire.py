"""The installed package, without torch and without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from bodies import (
    in_threads,
    leave_open,
    lose_rank,
    misuse,
    run_bf16,
    run_expert_steps,
    run_experts,
    run_norm,
    run_operator,
    run_plan,
    run_quantised_norm,
    time_calls,
)

import tilewire


def test_import_needs_nothing() -> None:
    """Import without torch, numpy, environment variables or a GPU."""
    program = (
        "import sys, tilewire; tilewire.plan('all_reduce', 64, 64, ranks=2); "
        "assert not {'torch', 'numpy', 'multiprocessing.pool'} & set(sys.modules); print(tilewire.__version__)"
    )
    done = subprocess.run([sys.executable, "-c", program], env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == tilewire.__version__
    assert done.stderr == "", "nothing leaks"


def test_tables() -> None:
    assert {"all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce", "gemm_all_to_all"} <= set(tilewire.operators())
    assert {"sequential", "fused"} <= set(tilewire.schedules())
    assert {"host", "h200x4"} <= set(tilewire.targets())
    assert "hgx_h200" in " ".join(tilewire.machines()) or tilewire.machines()
    assert tilewire.backends()["host"] is None


def test_plans_are_proven_and_keep_in_json() -> None:
    plan = tilewire.plan("gemm_reduce_scatter", 512, 512, 256, ranks=4, config={"tile_m": 64, "schedule": "fused"})
    assert tilewire.check(plan).ok
    again = tilewire.Plan.from_json(plan.to_json())
    assert again == plan and hash(again) == hash(plan)
    assert repr(plan) == f"<tilewire.Plan of gemm_reduce_scatter: 4 ranks, {plan.num_tasks} tasks>"
    assert tilewire.check(plan).total_bytes >= tilewire.check(plan).least_bytes > 0
    # Remove one wait: the checker names the tasks that race.
    damaged = json.loads(plan.to_json())
    lane = next(lane for lane in damaged["lanes"] if any("waits" in task for task in lane["tasks"]))
    for task in lane["tasks"]:
        task.pop("waits", None)
    proof = tilewire.check(tilewire.Plan.from_json(json.dumps(damaged)))
    assert not proof and "rank" in proof.violations[0][1]
    with pytest.raises(tilewire.Error, match="tile_q") as caught:
        tilewire.plan("gemm_reduce_scatter", 512, 512, 256, ranks=4, config={"tile_q": 1})
    assert caught.value.kind == "invalid_input" and caught.value.report is None
    with pytest.raises(tilewire.Error, match="unknown operator"):
        tilewire.plan("gemm_broadcast", 512, 512, 256, ranks=4)


def test_lowered_plans_say_what_passes_did() -> None:
    plan = tilewire.plan("gemm_reduce_scatter", 8192, 8192, 8192, ranks=4, target="h200x4")
    lowered = tilewire.lower(plan, "h200x4")
    assert lowered.plan.target == "h200x4" and tilewire.check(lowered.plan).ok
    assert [name for name, _ in lowered.notes][:2] == ["assign_engines", "stage_experts"]
    assert len(tilewire.lower(plan, "h200x4", after="fuse_sums").notes) < len(lowered.notes)
    with pytest.raises(tilewire.Error, match="unknown target 'b300'"):
        tilewire.lower(plan, "b300")


def test_simulation() -> None:
    machine = tilewire.machines()[0]
    times = {}
    for schedule in ("sequential", "fused"):
        plan = tilewire.plan("gemm_reduce_scatter", 4096, 8192, 8192, ranks=4, config=schedule, machine=machine)
        done = tilewire.simulate(plan, machine)
        times[schedule] = done.total_ns
        assert len(done.rank_ns) == 4 and done.links and len(done.trace) == plan.num_tasks
    assert times["fused"] < times["sequential"]


@pytest.mark.parametrize("op", ["all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce", "all_reduce"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_operators(op: str, ranks: int) -> None:
    for sizes in ((64, 48, 32), (37, 29, 23)):
        assert max(tilewire.launch(run_operator, ranks, args=(op, *sizes, "fused"))) == 0


def test_a_config_of_knobs() -> None:
    config = {"schedule": "fused", "tile_m": 16, "tile_n": 32, "transport": "direct"}
    config.pop("transport")
    assert max(tilewire.launch(run_operator, 2, args=("gemm_reduce_scatter", 64, 64, 64, config))) == 0


def test_bf16_epilogue_and_gathered() -> None:
    for dtype, difference in tilewire.launch(run_bf16, 2):
        assert dtype == "bfloat16" and difference < 0.01


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norms_and_a_residual_in_place(kind: str) -> None:
    assert max(tilewire.launch(run_norm, 2, args=(kind,))) < 1e-5
    with pytest.raises(tilewire.Error, match="only whole rows of sums"):
        tilewire.plan("all_gather_gemm", 8, 8, 8, ranks=2, norm=kind)
    with pytest.raises(tilewire.Error, match="eps = 0: want more than 0"):
        tilewire.plan("all_reduce", 8, 8, ranks=2, norm=(kind, 0.0))


def test_mixture_of_experts() -> None:
    assert max(tilewire.launch(run_experts, 2)) < 1e-5
    assert max(tilewire.launch(run_expert_steps, 2)) < 1e-5
    experts = {"count": 4, "top_k": 5, "ffn": 8}
    with pytest.raises(tilewire.Error, match="top_k = 5, want 1 to 4"):
        tilewire.plan("moe", 8, 8, 8, ranks=2, experts=experts)
    plan = tilewire.plan("moe", 64, 32, 48, ranks=4, experts=experts | {"top_k": 2}, config="fused")
    assert tilewire.check(plan).ok
    assert tilewire.Plan.from_json(plan.to_json()) == plan


def test_quantised_norms() -> None:
    for dtype, steps in tilewire.launch(run_quantised_norm, 2):
        assert dtype == "int8" and steps < 0.501
    with pytest.raises(tilewire.Error, match="out_dtype = fp16: want fp8_e4m3 or int8"):
        tilewire.plan("all_reduce", 8, 8, ranks=2, norm=("rms", 1e-5, "fp16"))


def test_a_plan_from_json_runs_and_is_traced() -> None:
    plan = tilewire.plan("all_reduce", 64, 48, ranks=2, dtype="fp32", arena=["x"], config="fused")
    assert all(tilewire.launch(run_plan, 2, args=(plan.to_json(),)))


def test_bench() -> None:
    assert min(tilewire.launch(time_calls, 2)) > 0


def test_misuse_is_named_and_leaves_the_team_whole() -> None:
    for texts in tilewire.launch(misuse, 2):
        wants = (
            "invalid_input: 0 inputs, want 1: x",
            "must be 16 x 64",
            "a type of code 2 and 64 bits",
            "rows must be contiguous",
            "1 dimensions: want 2",
            "a tensor on GPU 0, but the group has CPU ranks",
            "overlaps",
            "the output is read-only",
            "2 outputs, want 1",
            "ranks",
            "fp31",
            "tile_q",
            "has been freed",
        )
        assert len(texts) == len(wants)
        for text, want in zip(texts, wants, strict=False):
            assert want in text, (text, want)


@pytest.mark.parametrize(("how", "kind"), [("exit", "rank_lost"), ("sleep", "timeout")])
def test_a_lost_rank_is_an_error_of_the_others(how: str, kind: str) -> None:
    with pytest.raises(tilewire.Error) as caught:
        tilewire.launch(lose_rank, 3, args=(how,), timeout_s=3)
    assert caught.value.kind == kind, caught.value
    # The process can make a new team.
    assert min(tilewire.launch(time_calls, 2)) > 0


def test_an_exception_of_a_body_is_raised_here() -> None:
    with pytest.raises(ValueError, match="on purpose"):
        tilewire.launch(lose_rank, 2, args=("raise",), timeout_s=20)


def test_other_threads_go_on() -> None:
    assert all(tilewire.launch(in_threads, 2))


def test_what_nobody_frees_ends_with_the_process() -> None:
    assert tilewire.launch(leave_open, 2) == [f"<tilewire.Group: rank {rank} of 2, host>" for rank in range(2)]


def test_join_says_what_is_missing() -> None:
    with pytest.raises(tilewire.Error, match="WORLD_SIZE|RANK"):
        tilewire.join()
    with pytest.raises(tilewire.Error, match="go together"):
        tilewire.join(rank=0)
    with pytest.raises(tilewire.Error, match="no backend is called"):
        tilewire.join("rocm", 0, 1)
    with pytest.raises(tilewire.Error, match="order"):
        tilewire.join(rank=0, num_ranks=1, order="none")
    with tilewire.join(rank=0, num_ranks=1, job="alone") as group:
        assert group.backend == "host" and group.all_gather(b"x\0y") == [b"x\0y"]
