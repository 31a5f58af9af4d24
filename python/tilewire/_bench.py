"""Measures the time of operators."""

from __future__ import annotations

import statistics
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewire._group import Group, Op


@dataclass(frozen=True)
class BenchResult:
    """Time of a call on the slowest rank, in microseconds, over `n` calls."""

    median_us: float
    quartiles_us: tuple[float, float]
    n: int


def bench(
    group: Group, op: Op, *inputs: Any, out: Any = None, calls: int = 20, before: Callable[[], None] | None = None
) -> BenchResult:
    """Time an operator by the host's clock: `calls` calls after two warm-up calls, each complete on return.

    Ranks start each call together. The time of a call is that of the slowest rank. `before` runs before each call and
    is not timed. Collective.
    """
    mine: list[float] = []
    for i in range(calls + 2):
        if before is not None:
            before()
        group.barrier()
        start = time.perf_counter()
        op.run(*inputs, out=out)
        if i >= 2:
            mine.append((time.perf_counter() - start) * 1e6)
    all_ranks = [struct.unpack(f"{calls}d", text) for text in group.all_gather(struct.pack(f"{calls}d", *mine))]
    slowest = sorted(max(times) for times in zip(*all_ranks, strict=False))
    quartiles = statistics.quantiles(slowest, n=4) if calls > 1 else [slowest[0]] * 3
    return BenchResult(statistics.median(slowest), (quartiles[0], quartiles[2]), calls)
