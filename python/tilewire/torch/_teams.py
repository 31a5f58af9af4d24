"""How the ranks of PyTorch's process groups meet as teams of tilewire."""

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
#: By name, whether on GPUs, and device: the process group, and its team or why there is none.
_groups: dict[_Key, tuple[Any, tilewire.Group | tilewire.Error]] = {}
_lock = threading.Lock()
_sms = 0
_meeting: dict[_Key, threading.Lock] = {}


def set_tuning(mode: str) -> None:
    """How new operators choose. The same on all ranks.

    "off" measures nothing: an operator takes the winner of the nearest number of rows that was measured on this
    machine, else the candidate that the simulator predicts to be the fastest, else a schedule's first. "quick" measures
    the few that are predicted to be the fastest, for at most a second, "full" some more, for at most four; both
    remember the winner. "again" measures as "full" whatever is remembered or shipped with tilewire (docs/schedules.md).
    """
    _core.set_torch(tuning=mode)


def set_sms(sms: int) -> None:
    """Most SMs of a GPU that kernels take of teams that meet from now on; 0, at first, is all. The same on all ranks.

    For programs with NCCL's collectives of other groups on other streams (DDP, FSDP beside tensor parallelism): both
    wait for other ranks, which may have begun with the other, so that each needs SMs of its own. NCCL takes at most 32.
    """
    global _sms
    if sms < 0:
        raise tilewire.Error(f"sms = {sms}: want 0 or more", "invalid_input")
    _sms = sms


def set_cache_size(ops: int) -> None:
    """How many operators a team keeps: those that were used last. 256 at first.

    Those that a CUDA graph has captured stay beside them. The same on all ranks.
    """
    _core.set_torch(most_ops=ops)


def cached(group: dist.ProcessGroup | str | None = None, device: torch.device | str | None = None) -> list[str]:
    """The operators that the team of a group keeps, the last used first: "all_reduce 3 x 24 x 0 fused"."""
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
    """A device, or where the tensors of a process group's ranks are."""
    if device is None:
        # NOTE: of a process group without a named backend this is "undefined".
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
    """A tensor in memory that the group's other ranks can address, zero at first. Collective.

    As x or result of an operator it is used where it lies, where others go through memory of the operator. All ranks
    give the same part of the same call's tensor for one argument. The memory is given back with the last tensor that
    has it, on all ranks.
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
    """Have operators use PyTorch's symmetric memory where it lies, as that of `empty`. Collective.

    `x`: a tensor of `torch.distributed._symmetric_memory.empty`; all of its allocation counts, and is kept until
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
    """As C++ wants the team of a process group's ranks."""
    return _team(process_group, on_gpu, index)._core


def _team(process_group: Any, on_gpu: bool, index: int) -> tilewire.Group:
    """The team of a process group's ranks on GPUs or CPUs. Collective at its first use."""
    key = (str(process_group.group_name), on_gpu, index if on_gpu else 0)
    # Teams of several groups meet at a time: ranks need not begin with the same one.
    with _lock:
        alone = _meeting.setdefault(key, threading.Lock())
    with alone:
        found = _groups.get(key)
        if found is None or found[0] is not process_group:
            # NOTE: the process group is held, so that another one of its name is told apart.
            found = process_group, _join(process_group, on_gpu, index)
            with _lock:
                _groups[key] = found
    team = found[1]
    if isinstance(team, tilewire.Error):
        raise tilewire.Error(str(team), team.kind)
    return team


def _awaited(store: Any, key: str) -> str:
    """What another rank sets. NOTE: a `get` that waits keeps the store from threads in which other groups meet."""
    deadline = time.monotonic() + store.timeout.total_seconds()
    while not store.check([key]):
        if time.monotonic() > deadline:
            raise tilewire.Error(f"no rank has set {key} in {store.timeout}: has every rank called it?", "timeout")
        time.sleep(0.001)
    return str(store.get(key).decode())


def _join(process_group: Any, on_gpu: bool, index: int) -> tilewire.Group | tilewire.Error:
    """Meet through the store of the process group; or why its ranks can be no team, which they need ask once."""
    if dist.get_backend(process_group) == "fake":
        return tilewire.Error("the process group's backend is fake: its ranks are no processes", "unsupported")
    store = c10d._get_process_group_store(process_group)
    rank, size = process_group.rank(), process_group.size()
    # Counted where all ranks and all later groups of this name see it.
    number = store.add(f"tilewire/met/{rank}", 1)
    key = f"tilewire/{number}"
    store.set(f"{key}/host/{rank}", f"{socket.gethostname()} {'GPU' if on_gpu else 'CPU'}")
    places = [_awaited(store, f"{key}/host/{other}") for other in range(size)]
    if len(set(places)) > 1:
        text = ", ".join(f"rank {other}: {place}" for other, place in enumerate(places))
        error = tilewire.Error(f"ranks on different hosts, or on CPUs and GPUs: {text}", "unsupported")
        # Hosts stay as they are; a call with tensors on CPUs may have been a mistake.
        if len({place.split()[0] for place in places}) > 1:
            return error
        raise error
    if rank == 0:
        store.set(f"{key}/job", f"torch-{os.getpid()}-{secrets.token_hex(4)}")
    job = _awaited(store, f"{key}/job")
    if not on_gpu:
        return tilewire.join("host", rank, size, job=job)
    return tilewire.join("cuda", rank, size, job=job, local_rank=index, sms=_sms)


def check() -> None:
    """Raise what is known by now to have failed: a lost rank, a timeout. Not collective.

    It waits for a call on CPUs that is under way.
    For programs that only replay graphs: calls raise by themselves. The process can `clear()` and make a new team.
    """
    _core.check_torch_teams()


class Watch:
    """Asks `check` again and again, in a thread; made by `on_failure`."""

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
        """End it."""
        self._end.set()
        self._thread.join()


def on_failure(callback: Callable[[tilewire.Error], None], interval_s: float = 1.0) -> Watch:
    """Have a thread call `callback` with the Error once something has failed.

    `interval_s`: seconds between its questions.
    """
    return Watch(callback, interval_s)


def clear() -> None:
    """Free all operators and leave all teams. Every rank calls it; at exit it is done for those that have not."""
    with _lock:
        _core.forget_torch_teams()
        for _, team in _groups.values():
            if isinstance(team, tilewire.Group):
                team.leave()
        _groups.clear()


atexit.register(clear)
_core.register_torch(c10d._resolve_process_group, meet)
