"""Teams of ranks and their operators."""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tilewire import _core
from tilewire._arrays import new_numpy, numpy_of, tensor_of
from tilewire._error import Error
from tilewire._text import Config, Epilogue, config_text, problem_text


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of an operator on this rank."""

    name: str
    dtype: str
    shape: tuple[int, int]
    is_output: bool


class Op:
    """An operator ready to run, made by `Group.make_op`. Collective: every rank of the team runs it."""

    def __init__(self, group: Group, op: _core.Op) -> None:
        self._group = group
        self._op = op
        group._ops.add(self)
        tensors = [TensorInfo(name, dtype, (rows, cols), out) for name, dtype, rows, cols, out in op.tensors]
        #: What `run` wants, and what it gives, in their order.
        self.inputs = [tensor for tensor in tensors if not tensor.is_output]
        self.outputs = [tensor for tensor in tensors if tensor.is_output]

    def run(self, *inputs: Any, out: Any = None, stream: int | None = None) -> Any:
        """One call. Returns the output, or a list where the operator has several.

        `inputs`: matrices in the order of `Op.inputs`, from whatever speaks DLPack or the buffer protocol, where they
        lie. `out`: a matrix, or a list of them, to write; without it new ones: numpy's on CPU ranks, on GPUs objects
        with `__dlpack__`. `stream`: a CUDA stream in which the call is enqueued; without it the call is complete on
        return, as it always is on CPU ranks.

        Raises Error(invalid_input) before anything runs where a tensor is not what the operator wants, and rank_lost or
        timeout where another rank does not come.
        """
        if len(inputs) != len(self.inputs):
            names = ", ".join(tensor.name for tensor in self.inputs)
            raise Error(f"{len(inputs)} inputs, want {len(self.inputs)}: {names}", "invalid_input")
        given = self._new_outputs() if out is None else list(out) if isinstance(out, (list, tuple)) else [out]
        if len(given) != len(self.outputs):
            names = ", ".join(tensor.name for tensor in self.outputs)
            raise Error(f"{len(given)} outputs, want {len(self.outputs)}: {names}", "invalid_input")
        read = [tensor_of(array, writable=False, stream=stream) for array in inputs]
        written = [tensor_of(array, writable=True, stream=stream) for array in given]
        self._op.run(read, written, stream)
        if out is None and self._group.backend != "host":
            given = [tensor.array() for tensor in written]
        return given if len(given) > 1 else given[0]

    def _new_outputs(self) -> list[Any]:
        if self._group.backend == "host":
            return [new_numpy(tensor.dtype, *tensor.shape) for tensor in self.outputs]
        return [self._group._core.new_tensor(tensor.dtype, *tensor.shape) for tensor in self.outputs]

    def wait(self) -> None:
        """Return when the calls of the group that `run` has enqueued have ended. Raises what failed."""
        self._op.wait()

    def explain(self) -> str:
        """Which schedule runs and why, what else was considered, and what each pass of lowering did."""
        return self._op.explanation

    @property
    def plan(self) -> _core.Plan:
        """As it runs: lowered for the group's target."""
        return self._op.plan

    @property
    def config(self) -> dict[str, Any]:
        """The knobs that were chosen, without those that have their default."""
        return dict(json.loads(self._op.config))

    @property
    def problem(self) -> dict[str, Any]:
        """What was asked for, without what has its default."""
        return dict(json.loads(self._op.problem))

    @property
    def workspace_bytes(self) -> tuple[int, int]:
        """Bytes of symmetric, and of local workspace that it uses on this rank."""
        symmetric, local = self._op.workspace
        return symmetric, local

    def last_trace(self) -> _core.Trace:
        """This rank's events of the last call; none without `trace=True`."""
        return self._op.last_trace()

    def gather_trace(self) -> _core.Trace:
        """All ranks' events of the last call, on every rank. Collective."""
        return self._op.gather_trace()

    def free(self) -> None:
        """Give its workspace back. It cannot run any more."""
        self._op.free()

    def __enter__(self) -> Op:
        """Free it at the end of a with statement."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Free it."""
        self.free()

    def __repr__(self) -> str:
        """Operator, sizes and config."""
        return f"<tilewire.Op {json.dumps(self.problem)} with {json.dumps(self.config)}>"


class Group:
    """One rank's membership in a team, made by `join` or `launch`. Methods are collective unless they say otherwise."""

    def __init__(self, core: _core.Group) -> None:
        self._core = core
        self._ops: weakref.WeakSet[Op] = weakref.WeakSet()
        self.rank: int = core.rank
        self.num_ranks: int = core.num_ranks
        self.backend: str = core.backend
        self.hardware: str = core.hardware
        self._adopted: dict[tuple[int, int], object] = {}

    def make_op(
        self,
        op: str | _core.Plan,
        m: int = 0,
        n: int = 0,
        k: int = 0,
        *,
        dtype: str = "bf16",
        out_dtype: str | None = None,
        b_layout: str = "nk",
        epilogue: Epilogue = (),
        reduction: str = "repeatable",
        more_n: Sequence[int] = (),
        gathered_output: bool = False,
        allow_tf32: bool = False,
        arena: Sequence[str] = (),
        config: Config = "auto",
        check: bool | None = None,
        trace: bool = False,
        tuner_file: str = "",
    ) -> Op:
        """Make an operator, or run a plan as it is.

        `op`: a name of `operators()`, with sizes over all ranks (docs/operators.md), or a Plan, which has all the rest.
        `config`: "auto" measures candidates once and remembers the winner, "auto_quick" the first few of them;
        "auto_off" takes the winner of the nearest M, else what the simulator predicts; the name of a schedule takes its
        first candidate; a mapping gives the knobs (docs/schedules.md). `more_n`: columns of further outputs of a
        gather, each of a B of its own; `run` takes a, b, b1, ... and c, c1, ...
        `check`: prove the plan first. `trace`: record calls.

        Raises Error(invalid_input) on all ranks where a rule is broken or ranks ask for different things, unsupported,
        refused_plan.
        """
        if isinstance(op, _core.Plan):
            return Op(self, self._core.make_op_of_plan(op, trace))
        text = problem_text(
            op,
            m,
            n,
            k,
            dtype=dtype,
            out_dtype=out_dtype,
            b_layout=b_layout,
            epilogue=epilogue,
            reduction=reduction,
            more_n=more_n,
            gathered_output=gathered_output,
            allow_tf32=allow_tf32,
            arena=arena,
        )
        return Op(self, self._core.make_op(text, config_text(config), check, trace, tuner_file))

    def empty(self, rows: int, cols: int, dtype: str = "bf16") -> Any:
        """A matrix in the arena, which other ranks can address (`arena=` of `make_op`): numpy's on CPU ranks.

        On GPUs an object with `__dlpack__`. Zero at first. Its memory is given back with the last object that has it.
        """
        tensor = self._core.allocate(dtype, rows, cols)
        return numpy_of(tensor) if self.backend == "host" else tensor.array()

    def adopt(self, at: Sequence[int], size: int, owner: object) -> None:
        """Have memory that the ranks share themselves count as that of `empty`. Collective.

        `at`: by rank, the address at which this process finds the memory of that rank; `size`: bytes of each rank.
        `owner` is kept as long as the group. What was adopted before stays. A call's tensors lie at the same place on
        all ranks.
        """
        if (at[self.rank], size) in self._adopted:
            return
        self._core.adopt(list(at), size)
        self._adopted[at[self.rank], size] = owner

    def barrier(self) -> None:
        """Return when all ranks are here."""
        self._core.barrier()

    def all_gather(self, mine: bytes) -> list[bytes]:
        """Everybody's bytes, by rank. For small things."""
        return list(self._core.all_gather(mine))

    def leave(self) -> None:
        """End the membership, and its operators. Not collective.

        With arrays of `empty` it ends when the last of them goes.
        """
        for op in list(self._ops):
            op.free()
        self._core.leave()

    def __enter__(self) -> Group:
        """Leave it at the end of a with statement."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Leave; with an error, tell the others first."""
        if error is not None:
            self._core.fail_with(f"rank {self.rank}: {error}")
            return
        self.leave()

    def __repr__(self) -> str:
        """Rank, size and backend."""
        return f"<tilewire.Group: rank {self.rank} of {self.num_ranks}, {self.backend}>"


def join(
    backend: str = "host",
    rank: int | None = None,
    num_ranks: int | None = None,
    *,
    job: str = "",
    arena_bytes: int | None = None,
    timeout_s: float | None = None,
    local_rank: int | None = None,
    order: str = "any",
    sms: int = 0,
) -> Group:
    """Join a team. Collective.

    Without `rank` and `num_ranks`, by what torchrun, mpirun, SLURM or the caller put into the environment. `job`: name
    under which ranks of a host find each other. `arena_bytes`: most symmetric memory of a rank, committed as it is
    needed. `timeout_s`: deadline of every wait. `local_rank` chooses the GPU. `order="stream"`: the caller promises
    that calls of a team follow each other, as in one stream (docs/cuda.md). `sms`: most SMs that the team's kernels
    take of a GPU, 0 = all, so that NCCL's on other streams find room.

    Raises Error(timeout) that names the ranks that did not come, and Error(unsupported) where this machine or build
    cannot run the backend.
    """
    if order not in ("any", "stream"):
        raise Error(f"order = {order!r}: want 'any' or 'stream'", "invalid_input")
    return Group(
        _core.join(backend, rank, num_ranks, job, arena_bytes, timeout_s, local_rank, order == "stream", sms),
    )
