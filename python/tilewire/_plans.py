"""Plans without a group: make, lower, prove, simulate. No GPU is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewire import _core
from tilewire._error import Error
from tilewire._text import Config, Epilogue, Experts, Norm, config_text, problem_text


def plan(
    op: str,
    m: int,
    n: int,
    k: int = 0,
    *,
    ranks: int,
    dtype: str = "bf16",
    out_dtype: str | None = None,
    b_layout: str = "nk",
    epilogue: Epilogue = (),
    norm: Norm | None = None,
    experts: Experts | None = None,
    reduction: str = "repeatable",
    more_n: Sequence[int] = (),
    gathered_output: bool = False,
    allow_tf32: bool = False,
    arena: Sequence[str] = (),
    constant: Sequence[str] = (),
    config: Config = "fused",
    target: str = "",
    machine: str = "",
) -> _core.Plan:
    """The plan of a problem: the tasks of every rank in one call, as a schedule makes them.

    Sizes are over all ranks (docs/operators.md). `config`: the name of a schedule for its first candidate, or knobs.
    `target` (`targets()`) or `machine` (`machines()`): the ranks' hardware, which some schedules use for their choices;
    by default CPU ranks. Raises Error(invalid_input) for a broken rule, Error(unsupported) with the schedule's reason.
    """
    if target and machine:
        raise Error(f"target {target!r} and machine {machine!r}: want one", "invalid_input")
    text = problem_text(
        op,
        m,
        n,
        k,
        dtype=dtype,
        out_dtype=out_dtype,
        b_layout=b_layout,
        epilogue=epilogue,
        norm=norm,
        experts=experts,
        reduction=reduction,
        more_n=more_n,
        gathered_output=gathered_output,
        allow_tf32=allow_tf32,
        arena=arena,
        constant=constant,
    )
    if machine:
        return _core.machine_plan(text, config_text(config), ranks, machine)
    return _core.make_plan(text, config_text(config), ranks, target)


@dataclass(frozen=True)
class Lowered:
    """A plan lowered for a target, and the note of each pass: (pass, text)."""

    plan: _core.Plan
    notes: list[tuple[str, str]]


def lower(plan: _core.Plan, target: str, after: str = "") -> Lowered:
    """Run all passes of a target (`targets()`), or all up to `after` (docs/lowering.md)."""
    made, notes = _core.lower(plan, target, after)
    return Lowered(made, list(notes))


@dataclass(frozen=True)
class Proof:
    """The checker's result for a plan."""

    violations: list[tuple[str, str]]  #: (rule, text); empty = proven
    traffic: list[tuple[int, int, int]]  #: (from, to, bytes) of each pair of ranks that moves at least one byte
    total_bytes: int  #: over all links
    least_bytes: int  #: least bytes that the operator needs; 0 = unknown

    @property
    def ok(self) -> bool:
        """Whether the plan is proven."""
        return not self.violations

    def __bool__(self) -> bool:
        """Whether the plan is proven."""
        return self.ok


def check(plan: _core.Plan) -> Proof:
    """Prove that a plan computes the result of its operator, for any number of workers and any interleaving."""
    violations, traffic, total, least = _core.check(plan)
    return Proof(list(violations), list(traffic), total, least)


def simulate(plan: _core.Plan, machine: str) -> _core.Simulation:
    """Simulate one call on a machine: a name of `machines()`, or the path of a JSON file."""
    return _core.simulate(plan, machine)


def operators() -> dict[str, str]:
    """Names and summaries of operators."""
    return dict(_core.operators())


def schedules() -> dict[str, str]:
    """Names and summaries of schedules."""
    return dict(_core.schedules())


def machines() -> list[str]:
    """Names of machines for `simulate`."""
    return list(_core.machines())


def targets() -> list[str]:
    """Names of targets for `lower`."""
    return list(_core.targets())


def backends() -> dict[str, str | None]:
    """Names of backends, each with the reason why this machine or build cannot run it, or None."""
    return dict(_core.backends())
