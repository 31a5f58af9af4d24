"""Functions that ranks run in these tests; spawned processes import them."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

import tilewire


def fp32(seed: int, *shape: int) -> np.ndarray:
    """The same data on every rank: small integers, so that sums are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def shard(total: int, ranks: int, rank: int) -> slice:
    """Rows of a rank by the ceiling rule."""
    each = -(-total // ranks)
    return slice(min(total, rank * each), min(total, (rank + 1) * each))


def expected(op: str, group: tilewire.Group, m: int, n: int, k: int) -> tuple[list[np.ndarray], np.ndarray]:
    """This rank's inputs, and its expected output."""
    ranks, rank = group.num_ranks, group.rank
    a, b = fp32(1, m, k), fp32(2, n, k)
    rows, cols, depth = shard(m, ranks, rank), shard(n, ranks, rank), shard(k, ranks, rank)
    whole = a @ b.T
    if op == "all_gather_gemm":
        return [a[rows], b[cols]], whole[:, cols]
    if op == "gemm_all_reduce":
        return [a[:, depth], b[:, depth]], whole
    if op == "gemm_reduce_scatter":
        return [a[:, depth], b[:, depth]], whole[rows]
    if op == "all_reduce":
        return [fp32(10 + rank, m, n)], np.sum([fp32(10 + each, m, n) for each in range(ranks)], axis=0)
    raise ValueError(op)


def run_operator(group: tilewire.Group, op: str, m: int, n: int, k: int, config: Any) -> float:
    """The largest difference from numpy's result."""
    inputs, want = expected(op, group, m, n, k)
    with group.make_op(op, m, n, 0 if op == "all_reduce" else k, dtype="fp32", config=config) as made:
        assert [tensor.shape for tensor in made.inputs] == [x.shape for x in inputs]
        got = made.run(*inputs)
        strided = [np.zeros((x.shape[0], x.shape[1] + 3), np.float32)[:, : x.shape[1]] for x in inputs]
        for to, x in zip(strided, inputs, strict=False):
            to[:] = x
        out = np.full(want.shape, np.nan, np.float32)
        assert made.run(*strided, out=out) is out
        np.testing.assert_array_equal(out, got)
        assert "fused" in made.explain() or "sequential" in made.explain()
    return float(np.abs(got - want).max(initial=0))


def run_bf16(group: tilewire.Group) -> tuple[str, float]:
    """bf16 by ml_dtypes, with an epilogue and the gathered input."""
    import ml_dtypes

    m, n, k = 96, 64, 32
    a, b = fp32(1, m, k), fp32(2, n, k)
    bias = fp32(3, 1, n)
    rows, cols = shard(m, group.num_ranks, group.rank), shard(n, group.num_ranks, group.rank)
    op = group.make_op(
        "all_gather_gemm", m, n, k, epilogue=["bias", "relu", ("scale", 0.5)], gathered_output=True, config="fused"
    )
    half = ml_dtypes.bfloat16
    c, gathered = op.run(a[rows].astype(half), b[cols].astype(half), bias[:, cols].astype(half))
    np.testing.assert_array_equal(gathered.astype(np.float32), a)
    want = 0.5 * np.maximum(a @ b[cols].T + bias[:, cols], 0)
    several = group.make_op("all_gather_gemm", m, n, k, more_n=[n // 2], dtype="fp32", config="fused")
    half_cols = shard(n // 2, group.num_ranks, group.rank)
    first, second = several.run(a[rows], b[cols], b[half_cols])
    np.testing.assert_array_equal(first, a @ b[cols].T)
    np.testing.assert_array_equal(second, a @ b[half_cols].T)
    return str(c.dtype), float(np.abs(c.astype(np.float32) - want).max() / np.abs(want).max())


def run_norm(group: tilewire.Group, kind: str) -> float:
    """A residual in place, and the normalised rows: the largest difference from numpy."""
    m, n, eps = 24, 40, 1e-3
    x, residual, weight, bias = fp32(1, m, n), fp32(2, m, n), fp32(3, 1, n), fp32(4, 1, n)
    op = group.make_op("all_reduce", m, n, dtype="fp32", epilogue=["residual"], norm=(kind, eps), config="fused")
    operands = (weight, bias) if kind == "layer" else (weight,)
    want = group.num_ranks * x + residual
    y, normed = residual, np.full_like(x, np.nan)
    assert op.run(x, residual, *operands, out=(y, normed))[0] is y
    np.testing.assert_array_equal(y, want)
    rows = want - want.mean(1, keepdims=True) if kind == "layer" else want
    scaled = rows / np.sqrt((rows**2).mean(1, keepdims=True) + eps) * weight
    return float(np.abs(normed - scaled - (bias if kind == "layer" else 0)).max())


def run_quantised_norm(group: tilewire.Group) -> tuple[str, float]:
    """Rows of int8 with a scale each: the largest difference from numpy, in steps."""
    m, n, eps = 6, 40, 1e-3
    x, weight = fp32(1, m, n), fp32(3, 1, n)
    op = group.make_op("all_reduce", m, n, dtype="fp32", norm=("rms", eps, "int8"), config="fused")
    y, normed, scale = op.run(x, weight)
    want = y / np.sqrt((y**2).mean(1, keepdims=True) + eps) * weight
    np.testing.assert_allclose(scale, np.abs(want).max(1, keepdims=True) / 127, rtol=1e-5)
    return str(normed.dtype), float(np.abs(normed - want / scale).max())


def run_experts(group: tilewire.Group) -> float:
    """A mixture of experts with replicas: the largest relative difference from numpy."""
    m, hidden, ffn, count, top_k = 10, 24, 16, 4, 2
    placement = [[0, 1, 2], [2, 3, 0]]
    x, weights = fp32(1, m, hidden), fp32(2, m, top_k)
    ids = np.random.default_rng(3).permuted(np.tile(np.arange(count), (m, 1)), axis=1)[:, :top_k].astype(np.int32)
    w13, w2 = fp32(4, count, 2 * ffn * hidden), fp32(5, count, hidden * ffn)
    experts = {"count": count, "top_k": top_k, "ffn": ffn, "placement": placement}
    op = group.make_op("moe", m, hidden, hidden, dtype="fp32", experts=experts, config="fused")
    mine = placement[group.rank]
    rows = slice(group.rank * m // 2, (group.rank + 1) * m // 2)
    inputs = (x[rows], ids[rows], weights[rows], w13[mine].reshape(-1, hidden), w2[mine].reshape(-1, ffn))
    y = op.run(*(np.ascontiguousarray(array) for array in inputs))
    want = np.zeros((m, hidden))
    for token, expert, weight in zip(np.repeat(np.arange(m), top_k), ids.flat, weights.flat, strict=True):
        gate, up = np.split(w13[expert].reshape(2 * ffn, hidden) @ x[token], 2)
        want[token] += weight * (w2[expert].reshape(hidden, ffn) @ (gate / (1 + np.exp(-gate)) * up))
    return float(np.abs(y - want[rows]).max() / np.abs(want).max())


def run_expert_steps(group: tilewire.Group) -> float:
    """A dispatch and two combines by its handle: the largest difference from numpy."""
    m, hidden, count, top_k = 10, 24, 4, 2
    x, weights = fp32(1, m, hidden), fp32(2, m, top_k)
    ids = np.random.default_rng(3).permuted(np.tile(np.arange(count), (m, 1)), axis=1)[:, :top_k].astype(np.int32)
    experts = {"count": count, "top_k": top_k, "ffn": 1}
    mine = slice(group.rank * m // 2, (group.rank + 1) * m // 2)
    dispatch = group.make_op("moe_dispatch", m, hidden, hidden, dtype="fp32", experts=experts, config="fused")
    combine = group.make_op("moe_combine", m, hidden, hidden, dtype="fp32", experts=experts, config="fused")
    rows, extents, places, shares = dispatch.run(x[mine], ids[mine], weights[mine])
    for begin, end in extents.T:
        assert np.isin(rows[begin:end], x).all()
    y = combine.run(rows, extents, places, shares)
    doubled = combine.run(2 * np.nan_to_num(rows), extents, places, shares)
    want = x[mine] * weights[mine].sum(1, keepdims=True)
    return float(max(np.abs(y - want).max(), np.abs(doubled - 2 * want).max()))


def run_plan(group: tilewire.Group, text: str) -> bool:
    """A plan from a file, traced, with tensors in the arena."""
    plan = tilewire.Plan.from_json(text)
    op = group.make_op(plan, trace=True)
    x = group.empty(64, 48, "fp32")
    assert x.shape == (64, 48) and not x.any()
    x[:] = group.rank + 1
    y = op.run(x)
    trace = op.gather_trace()
    assert len(trace) > 0 and '"traceEvents"' in trace.to_chrome(op.plan)
    assert op.plan == plan and op.problem["op"] == "all_reduce"
    return bool((y == sum(range(1, group.num_ranks + 1))).all())


def time_calls(group: tilewire.Group) -> float:
    """Microseconds of a small call."""
    op = group.make_op("all_reduce", 16, 64, dtype="fp32", config="fused")
    result = tilewire.bench(group, op, fp32(1, 16, 64), calls=5)
    assert result.n == 5 and result.quartiles_us[0] <= result.median_us <= result.quartiles_us[1]
    return result.median_us


def misuse(group: tilewire.Group) -> list[str]:
    """Texts of errors after which the team stays usable."""
    op = group.make_op("all_reduce", 16, 64, dtype="fp32", config="fused")
    x = fp32(1, 16, 64)
    read_only = np.zeros((16, 64), np.float32)
    read_only.flags.writeable = False
    texts = []
    for call in (
        lambda: op.run(),
        lambda: op.run(x[:, :60]),
        lambda: op.run(x.astype(np.float64)),
        lambda: op.run(x.T),
        lambda: op.run(x[0]),
        lambda: op.run(tilewire.Tensor.at(x.ctypes.data, "fp32", 16, 64, 64, 0, x)),
        lambda: op.run(x, out=x),
        lambda: op.run(x, out=read_only),
        lambda: op.run(x, out=[x, x]),
        lambda: group.make_op("all_reduce", 16 + group.rank, 64, dtype="fp32", config="fused"),
        lambda: group.make_op("all_reduce", 16, 64, dtype="fp31"),
        lambda: group.make_op("all_reduce", 16, 64, config={"tile_q": 3}),
    ):
        try:
            call()
            texts.append("nothing")
        except tilewire.Error as error:
            texts.append(f"{error.kind}: {error}")
    np.testing.assert_array_equal(op.run(x), group.num_ranks * x)
    op.free()
    try:
        op.run(x)
    except tilewire.Error as error:
        texts.append(str(error))
    return texts


def lose_rank(group: tilewire.Group, how: str) -> None:
    """Rank 1 ends, or sleeps, while other ranks need it."""
    op = group.make_op("all_reduce", 16, 64, dtype="fp32", config="fused")
    if group.rank == 1 and how == "exit":
        os._exit(3)
    if group.rank == 1 and how == "raise":
        raise ValueError("on purpose")
    if group.rank == 1:
        time.sleep(6)
    try:
        op.run(fp32(1, 16, 64))
    except tilewire.Error as error:
        if how == "sleep" and group.rank == 0:
            assert error.kind == "timeout" and error.report is not None, error
            assert error.report.op == "all_reduce" and error.report.rank == 0 and "on rank 0" in error.report.signal
        raise


def in_threads(group: tilewire.Group) -> bool:
    """Another thread runs while this one waits in a call; calls of several threads run one after another."""
    import threading

    op = group.make_op("all_reduce", 16, 64, dtype="fp32", config="fused")
    ticks = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks.append(1)
            time.sleep(0.001)

    clock = threading.Thread(target=tick)
    clock.start()
    group.barrier()
    if group.rank == 0:
        time.sleep(0.3)
    before = len(ticks)
    op.run(fp32(1, 16, 64))
    during = len(ticks) - before
    stop.set()
    clock.join()
    return group.rank == 0 or during > 20


def leave_open(group: tilewire.Group) -> str:
    """Ends while an operator and a tensor have not been freed."""
    globals()["kept"] = (group.make_op("all_reduce", 16, 64, dtype="fp32", config="fused"), group.empty(4, 4))
    return repr(group)
