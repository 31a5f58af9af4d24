"""Starts ranks as processes of this host, by `spawn`."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import secrets
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from tilewire._error import Error
from tilewire._group import join


def _rank(connection: Connection, body: bytes, rank: int, num_ranks: int, options: dict[str, Any]) -> None:
    """The main function of a rank's process: join, run the body, send its result or exception."""
    try:
        function, arguments = pickle.loads(body)
        with join(rank=rank, num_ranks=num_ranks, **options) as group:
            result = function(group, *arguments)
        connection.send((True, result))
    except BaseException as error:  # noqa: BLE001 - sent to the launching process
        try:
            connection.send((False, error))
        except Exception:  # noqa: BLE001 - not every exception can be pickled
            connection.send((False, Error(f"rank {rank}: {type(error).__name__}: {error}", "internal")))


def _received(connection: Connection, process: multiprocessing.process.BaseProcess, rank: int) -> tuple[bool, Any]:
    try:
        answer: tuple[bool, Any] = connection.recv()
        return answer
    except EOFError:
        process.join()
        return False, Error(
            f"rank {rank} ended with exit code {process.exitcode} before its body returned", "rank_lost"
        )


def launch(
    body: Callable[..., Any],
    num_ranks: int,
    *,
    backend: str = "host",
    args: Sequence[Any] = (),
    arena_bytes: int | None = None,
    timeout_s: float | None = None,
    order: str = "any",
    sms: int = 0,
) -> list[Any]:
    """Run `body(group, *args)` on each of `num_ranks` new processes, and return the results, by rank.

    Processes are spawned, not forked: `body`, its arguments and its results are pickled, so `body` must be a function
    of a module. Raises the Error of the lowest rank that failed by itself, else rank_lost for a rank whose process
    ended.
    """
    if num_ranks < 1:
        raise Error(f"{num_ranks} ranks: want at least 1", "invalid_input")
    options: dict[str, Any] = {
        "backend": backend,
        "job": f"python-{os.getpid()}-{secrets.token_hex(4)}",
        "arena_bytes": arena_bytes,
        "timeout_s": timeout_s,
        "order": order,
        "sms": sms,
    }
    text = pickle.dumps((body, tuple(args)))
    context = multiprocessing.get_context("spawn")
    processes: list[multiprocessing.process.BaseProcess] = []
    connections: list[Connection] = []
    answers: dict[int, tuple[bool, Any]] = {}
    try:
        for rank in range(num_ranks):
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_rank, args=(there, text, rank, num_ranks, options), daemon=True)
            process.start()
            there.close()
            processes.append(process)
            connections.append(here)
        while len(answers) < num_ranks:
            for ready in wait([c for rank, c in enumerate(connections) if rank not in answers]):
                rank = connections.index(ready)  # type: ignore[arg-type]
                answers[rank] = _received(connections[rank], processes[rank], rank)
    finally:
        deadline = time.monotonic() + 10
        for each in processes:
            each.join(max(0.0, deadline - time.monotonic()) if len(answers) == num_ranks else 0)
            if each.is_alive():
                each.kill()
        for connection in connections:
            connection.close()
    failures = [answer for _, (good, answer) in sorted(answers.items()) if not good]
    if failures:
        raise next((e for e in failures if getattr(e, "kind", "") not in ("rank_lost", "timeout")), failures[0])
    return [answers[rank][1] for rank in range(num_ranks)]
