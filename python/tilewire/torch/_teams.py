"""Teams of the ranks of PyTorch's process groups, and the operators that they keep by shape."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import tilewire

#: Operators that a team keeps, those that were used last.
MOST_OPS = 256
#: What a new operator's config is, by tuning.
_CONFIGS = {"off": "fused", "full": "auto"}
_tuning = "off"


def set_tuning(mode: str) -> None:
    """How new operators choose: "off" takes a schedule's first candidate, "full" measures once and remembers.

    The same on all ranks.
    """
    if mode not in _CONFIGS:
        raise tilewire.Error(f"tuning {mode!r}: want one of {', '.join(_CONFIGS)}", "invalid_input")
    global _tuning
    _tuning = mode


def group_name(group: dist.ProcessGroup | str | None) -> str:
    """Name of a process group; None is the default one."""
    if isinstance(group, str):
        return group
    return str((group or dist.group.WORLD).group_name)  # type: ignore[union-attr]


def group_size(name: str) -> int:
    """Number of ranks."""
    return int(c10d._resolve_process_group(name).size())


def _capturing() -> bool:
    """Whether the current stream is captured in a graph."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


@dataclass
class Team:
    """The ranks of a process group on one kind of device."""

    process_group: Any  #: held, so that another one of its name is told apart
    group: tilewire.Group
    ops: OrderedDict[tuple[Any, ...], tilewire.Op] = field(default_factory=OrderedDict)
    captured: set[tuple[Any, ...]] = field(default_factory=set)  #: of these, those that graphs may replay
    lock: threading.Lock = field(default_factory=threading.Lock)

    def op(self, name: str, m: int, n: int, k: int, **what: Any) -> tilewire.Op:
        """The operator of a problem, made at its first use. Collective then."""
        key = (name, m, n, k, _tuning, *sorted(what.items()))
        with self.lock:
            found = self.ops.get(key)
            captures = _capturing()
            if found is None:
                if captures:
                    text = f"{name} of {m} x {n} x {k} is new inside a capture: call it once before"
                    raise tilewire.Error(text, "unsupported")
                self._make_room()
                found = self.ops[key] = self.group.make_op(name, m, n, k, config=_CONFIGS[_tuning], **what)
            self.ops.move_to_end(key)
            if captures:
                self.captured.add(key)
            return found

    def _make_room(self) -> None:
        """Free the operator that was used longest ago. Those that graphs may replay stay."""
        free = [key for key in self.ops if key not in self.captured]
        if len(free) >= MOST_OPS:
            self.ops.pop(free[0]).free()


_teams: dict[tuple[str, str, int], Team] = {}
_made: dict[int, int] = {}  #: teams of a process group so far, by its id
_lock = threading.Lock()


def team_of(name: str, device: torch.device) -> Team:
    """The team of a group's ranks for tensors on `device`. Collective at its first use."""
    index = device.index if device.type == "cuda" else 0
    key = (name, device.type, index)
    process_group = c10d._resolve_process_group(name)
    with _lock:
        found = _teams.get(key)
        if found is None or found.process_group is not process_group:
            found = _teams[key] = Team(process_group, _join(process_group, device))
        return found


def _join(process_group: Any, device: torch.device) -> tilewire.Group:
    """Meet through the store of the process group."""
    if device.type not in ("cpu", "cuda"):
        raise tilewire.Error(f"tensors on {device}: want cpu or cuda", "unsupported")
    store = c10d._get_process_group_store(process_group)
    rank, size = process_group.rank(), process_group.size()
    number = _made[id(process_group)] = _made.get(id(process_group), 0) + 1
    key = f"tilewire/{number}"
    store.set(f"{key}/host/{rank}", f"{socket.gethostname()} {device.type}")
    places = [store.get(f"{key}/host/{other}").decode() for other in range(size)]
    if len(set(places)) > 1:
        text = ", ".join(f"rank {other}: {place}" for other, place in enumerate(places))
        raise tilewire.Error(f"ranks on different hosts, or on CPUs and GPUs: {text}", "unsupported")
    if rank == 0:
        store.set(f"{key}/job", f"torch-{os.getpid()}-{secrets.token_hex(4)}")
    job = store.get(f"{key}/job").decode()
    on_gpu = device.type == "cuda"
    return tilewire.join("cuda" if on_gpu else "host", rank, size, job=job, local_rank=device.index if on_gpu else None)


def clear() -> None:
    """Free all operators and leave all teams. Every rank calls it."""
    with _lock:
        for team in _teams.values():
            team.group.leave()
        _teams.clear()
