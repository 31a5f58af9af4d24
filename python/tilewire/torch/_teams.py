"""Teams of tilewire for the ranks of PyTorch's process groups."""

from __future__ import annotations

import atexit
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import tilewire
from tilewire import _core

_DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}

_Key = tuple[str, bool, int]
#: By group name, whether on GPUs, and device: the process group, and its team or the Error why there is none.
_groups: dict[_Key, tuple[Any, tilewire.Group | tilewire.Error]] = {}
_lock = threading.Lock()
_sms = 0
_order = "any"
_constant_weights = False
_meeting: dict[_Key, threading.Lock] = {}


def set_tuning(mode: str) -> None:
    """Set how new operators choose their config. The same on all ranks.

    An operator uses the remembered winner, else the one that tilewire ships for the machine. "off" measures nothing: it
    then uses the winner of the nearest number of rows measured on this machine, else the candidate with the shortest
    simulated time, else a schedule's first candidate. "quick" measures the few candidates
    with the shortest predicted times, for at most 1 s; "full" measures more of them, for at most 4 s. Both remember the
    winner. "again" measures as "full", even if a winner is remembered or shipped with tilewire (docs/schedules.md).
    """
    _core.set_torch(tuning=mode)


def set_constant_weights(constant: bool) -> None:
    """Declare whether no work in the stream before a call writes its b, as in inference. The same on all ranks.

    On GPUs a product of few rows then loads weights while the kernel before it still runs, if `set_order("stream")` and
    if that kernel lets dependents begin early, as tilewire's kernels for few rows do.
    A program that changes weights waits for that work (`torch.cuda.synchronize`) before the next call.
    """
    global _constant_weights
    _core.set_torch(constant_weights=constant)
    _constant_weights = constant


def has_constant_weights() -> bool:
    return _constant_weights


def set_order(order: str) -> None:
    """Set who orders the calls of new teams on GPUs: "any", the default, or "stream". The same on all ranks.

    With "stream" the program enqueues all calls and graphs of a group in an order that streams and events keep, the
    same on all ranks. tilewire then enqueues a call's kernels alone, which saves time per call (docs/cuda.md).
    """
    global _order
    if order not in ("any", "stream"):
        raise tilewire.Error(f"order {order!r}: want 'any' or 'stream'", "invalid_input")
    _order = order


def set_sms(sms: int) -> None:
    """Limit the SMs that the kernels of new teams use on a GPU; 0, the default, is all. The same on all ranks.

    For programs that run NCCL collectives of other groups on other streams (DDP, FSDP beside tensor parallelism).
    Kernels of both wait for other ranks, which may have started the other one first, so each needs SMs of its own. NCCL
    uses at most 32.
    """
    global _sms
    if sms < 0:
        raise tilewire.Error(f"sms = {sms}: want 0 or more", "invalid_input")
    _sms = sms


def set_cache_size(ops: int) -> None:
    """Set how many operators a team caches; the least recently used are freed. The default is 256.

    Operators that a CUDA graph has captured do not count and stay. The same on all ranks.
    """
    _core.set_torch(most_ops=ops)


def cached(group: dist.ProcessGroup | str | None = None, device: torch.device | str | None = None) -> list[str]:
    """The operators in the cache of a group's team, the most recently used first: "all_reduce 3 x 24 x 0 fused"."""
    where = device_of(group, device)
    return list(_core.kept_by_torch(group_name(group), where.type == "cuda", where.index or 0))


def group_name(group: dist.ProcessGroup | str | None) -> str:
    """Name of a process group; None is the default one."""
    if isinstance(group, str):
        return group
    return str((group or dist.group.WORLD).group_name)  # type: ignore[union-attr]


def group_size(name: str) -> int:
    """Number of ranks."""
    return int(c10d._resolve_process_group(name).size())


def device_of(group: dist.ProcessGroup | str | None, device: torch.device | str | None) -> torch.device:
    """A device, or the default device of a process group's ranks."""
    if device is None:
        # NOTE: "undefined" for a process group without a named backend.
        backend = dist.get_backend(c10d._resolve_process_group(group_name(group)))
        device = "cpu" if backend in ("gloo", "mpi") or not torch.cuda.is_available() else "cuda"
    where = torch.device(device)
    if where.type == "cuda" and where.index is None:
        where = torch.device("cuda", torch.cuda.current_device())
    return where


def empty(
    *size: int,
    dtype: torch.dtype = torch.bfloat16,
    device: torch.device | str | None = None,
    group: dist.ProcessGroup | str | None = None,
) -> torch.Tensor:
    """A zeroed tensor in memory that the group's other ranks can address. Collective.

    Operators use it in place as x or as a result; other tensors are copied through the operator's memory. For one
    argument all ranks must pass the same part of the tensor from one `empty` call. The memory is freed when all ranks
    have released the last tensor that uses it.
    """
    if dtype not in _DTYPES:
        raise tilewire.Error(f"dtype {dtype}: want one of {', '.join(map(str, _DTYPES))}", "invalid_input")
    where = device_of(group, device)
    on_gpu = where.type == "cuda"
    team = meet(c10d._resolve_process_group(group_name(group)), on_gpu, where.index or 0)
    *rows, cols = size or (1,)
    matrix = team.allocate(_DTYPES[dtype], math.prod(rows), cols)
    return torch.from_dlpack(matrix.array()).view(size)  # type: ignore[attr-defined, no-any-return]


def adopt(x: torch.Tensor, group: dist.ProcessGroup | str | None = None) -> None:
    """Let operators use PyTorch's symmetric memory in place, like that of `empty`. Collective.

    `x`: a tensor of `torch.distributed._symmetric_memory.empty`. Its whole allocation is adopted, and kept alive until
    `clear`.
    """
    from torch.distributed import _symmetric_memory as symm_mem

    where = x.device
    process_group = c10d._resolve_process_group(group_name(group))
    team = _team(process_group, where.type == "cuda", where.index or 0)
    memory = symm_mem.rendezvous(x, process_group.group_name) if where.type == "cuda" else None
    if memory is None:
        raise tilewire.Error("x is no memory of torch.distributed._symmetric_memory.empty", "invalid_input")
    team.adopt(list(memory.buffer_ptrs), memory.buffer_size, (memory, x))


def meet(process_group: Any, on_gpu: bool, index: int) -> _core.Group:
    """The team of a process group's ranks, for C++."""
    return _team(process_group, on_gpu, index)._core


def _team(process_group: Any, on_gpu: bool, index: int) -> tilewire.Group:
    """The team of a process group's ranks on GPUs or CPUs. Collective at its first use."""
    key = (str(process_group.group_name), on_gpu, index if on_gpu else 0)
    # One lock per team: ranks may meet several groups at the same time, in different orders.
    with _lock:
        alone = _meeting.setdefault(key, threading.Lock())
    with alone:
        found = _groups.get(key)
        if found is None or found[0] is not process_group:
            # NOTE: keep the process group alive, so that a later group of the same name is a different object.
            found = process_group, _join(process_group, on_gpu, index)
            with _lock:
                _groups[key] = found
    team = found[1]
    if isinstance(team, tilewire.Error):
        raise tilewire.Error(str(team), team.kind)
    return team


def _awaited(store: Any, key: str) -> str:
    """Wait for a key that another rank sets. NOTE: not a blocking `get`: it would block the store for other threads."""
    deadline = time.monotonic() + store.timeout.total_seconds()
    while not store.check([key]):
        if time.monotonic() > deadline:
            raise tilewire.Error(f"no rank has set {key} in {store.timeout}: has every rank called it?", "timeout")
        time.sleep(0.001)
    return str(store.get(key).decode())


def _join(process_group: Any, on_gpu: bool, index: int) -> tilewire.Group | tilewire.Error:
    """Meet through the store of the process group. Returns an Error if its ranks can never be a team."""
    if dist.get_backend(process_group) == "fake":
        return tilewire.Error("the process group's backend is fake: its ranks are no processes", "unsupported")
    store = c10d._get_process_group_store(process_group)
    rank, size = process_group.rank(), process_group.size()
    # Count in the store, which all ranks and all later groups of this name see.
    number = store.add(f"tilewire/met/{rank}", 1)
    key = f"tilewire/{number}"
    store.set(f"{key}/host/{rank}", f"{socket.gethostname()} {'GPU' if on_gpu else 'CPU'}")
    places = [_awaited(store, f"{key}/host/{other}") for other in range(size)]
    if len(set(places)) > 1:
        text = ", ".join(f"rank {other}: {place}" for other, place in enumerate(places))
        error = tilewire.Error(f"ranks on different hosts, or on CPUs and GPUs: {text}", "unsupported")
        # The hosts cannot change, so store the error. A call with CPU tensors may have been a mistake, so raise it.
        if len({place.split()[0] for place in places}) > 1:
            return error
        raise error
    if rank == 0:
        store.set(f"{key}/job", f"torch-{os.getpid()}-{secrets.token_hex(4)}")
    job = _awaited(store, f"{key}/job")
    if not on_gpu:
        return tilewire.join("host", rank, size, job=job)
    return tilewire.join("cuda", rank, size, job=job, local_rank=index, order=_order, sms=_sms)


def check() -> None:
    """Raise the Error of a call or replay that has failed by now: a lost rank, a timeout. Not collective.

    It waits for a running call on CPUs. For programs that only replay graphs; all other calls raise by themselves.
    After an error the process can `clear()` and make new teams.
    """
    _core.check_torch_teams()


class Watch:
    """A thread that calls `check` periodically; made by `on_failure`."""

    def __init__(self, callback: Callable[[tilewire.Error], None], interval_s: float) -> None:
        self._callback, self._interval = callback, interval_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tilewire watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(self._interval):
            try:
                check()
            except tilewire.Error as error:
                self._callback(error)
                return

    def stop(self) -> None:
        """Stop the thread."""
        self._end.set()
        self._thread.join()


def on_failure(callback: Callable[[tilewire.Error], None], interval_s: float = 1.0) -> Watch:
    """Start a thread that calls `callback` with the Error after a failure.

    `interval_s`: seconds between checks.
    """
    return Watch(callback, interval_s)


def clear() -> None:
    """Free all operators and leave all teams. Every rank calls it. At exit it runs automatically."""
    with _lock:
        _core.forget_torch_teams()
        for _, team in _groups.values():
            if isinstance(team, tilewire.Group):
                team.leave()
        _groups.clear()


atexit.register(clear)
_core.register_torch(c10d._resolve_process_group, meet)
