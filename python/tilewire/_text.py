"""Converts problems and configs to JSON text for the library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

#: "auto", "auto_quick", "auto_off", "auto_again", the name of a schedule, or its knobs.
Config = str | Mapping[str, Any]
#: The normalisation of the output's rows: "rms" or "layer"; with another eps than 1e-6, ("rms", 1e-5); quantised,
#: ("rms", 1e-5, "fp8_e4m3") or "int8".
Norm = str | tuple[str, float] | tuple[str, float, str]
#: Mixture of experts: count, top_k, ffn, and if wanted activation, placement, shared, max_rows and drops
#: (docs/operators.md).
Experts = Mapping[str, Any]
#: Steps of an epilogue, in order: "bias", "gelu", "relu", "residual", or ("scale", 0.5). Or "swiglu_pairs" alone.
Epilogue = Sequence[str | tuple[str, float]]


def problem_text(
    op: str,
    m: int,
    n: int,
    k: int,
    *,
    dtype: str,
    out_dtype: str | None,
    b_layout: str,
    epilogue: Epilogue,
    norm: Norm | None,
    experts: Experts | None,
    reduction: str,
    more_n: Sequence[int],
    gathered_output: bool,
    allow_tf32: bool,
    arena: Sequence[str],
    constant: Sequence[str],
) -> str:
    """A problem as JSON, without fields that have their default."""
    problem: dict[str, Any] = {"op": op, "m": m, "n": n, "dtype": dtype}
    if k:
        problem["k"] = k
    if out_dtype is not None:
        problem["out_dtype"] = out_dtype
    if b_layout != "nk":
        problem["b_layout"] = b_layout
    steps = [{"kind": step} if isinstance(step, str) else {"kind": step[0], "value": step[1]} for step in epilogue]
    if steps:
        problem["epilogue"] = steps
    if norm is not None:
        names = ("kind", "eps", "out_dtype")
        problem["norm"] = {"kind": norm} if isinstance(norm, str) else dict(zip(names, norm, strict=False))
    if experts is not None:
        problem["experts"] = dict(experts)
    if reduction != "repeatable":
        problem["reduction"] = reduction
    if more_n:
        problem["more_n"] = list(more_n)
    if gathered_output:
        problem["gathered_output"] = True
    if allow_tf32:
        problem["allow_tf32"] = True
    if arena:
        problem["arena"] = list(arena)
    if constant:
        problem["constant"] = list(constant)
    return json.dumps(problem)


def config_text(config: Config) -> str:
    """A config as text for the library."""
    return config if isinstance(config, str) else json.dumps(dict(config))
