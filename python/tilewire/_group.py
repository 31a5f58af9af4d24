"""Groups of ranks, and their operators."""

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
from tilewire._text import Config, Epilogue, Experts, Norm, config_text, problem_text


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of an operator on this rank."""

    name: str
    dtype: str
    shape: tuple[int, int]
    is_output: bool


class Op:
    """An operator that is ready to run, made by `Group.make_op`. Collective: every rank of the team runs it."""

    def __init__(self, group: Group, op: _core.Op) -> None:
        self._group = group
        self._op = op
        group._ops.add(self)
        tensors = [TensorInfo(name, dtype, (rows, cols), out) for name, dtype, rows, cols, out in op.tensors]
        #: The arguments and the results of `run`, in order.
        self.inputs = [tensor for tensor in tensors if not tensor.is_output]
        self.outputs = [tensor for tensor in tensors if tensor.is_output]

    def run(self, *inputs: Any, out: Any = None, stream: int | None = None) -> Any:
        """Make one call. Returns the output, or a list of outputs if the operator has several.

        `inputs`: matrices in the order of `Op.inputs`, any objects with DLPack or the buffer protocol; they are not
        copied. `out`: a matrix to write, or a list of them. Without it the outputs are new: numpy arrays on CPU ranks,
        objects with `__dlpack__` on GPUs. `stream`: the CUDA stream in which the call is enqueued. Without it, and on
        CPU ranks, the call is complete on return.

        Raises Error(invalid_input), before anything runs, if a tensor does not match the operator; rank_lost or timeout
        if another rank does not take part.
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
        """Return when the calls that `run` enqueued on the group have ended. Raises the Error of a failed call."""
        self._op.wait()

    def explain(self) -> str:
        """The schedule that runs, the reason for it, the other candidates, and the note of each lowering pass."""
        return self._op.explanation

    @property
    def plan(self) -> _core.Plan:
        """The plan that runs, lowered for the group's target."""
        return self._op.plan

    @property
    def config(self) -> dict[str, Any]:
        """The knobs of the config, without those that have their default."""
        return dict(json.loads(self._op.config))

    @property
    def problem(self) -> dict[str, Any]:
        """The fields of the problem, without those that have their default."""
        return dict(json.loads(self._op.problem))

    @property
    def workspace_bytes(self) -> tuple[int, int]:
        """Bytes of symmetric and of local workspace that the operator uses on this rank."""
        symmetric, local = self._op.workspace
        return symmetric, local

    def last_trace(self) -> _core.Trace:
        """This rank's events of the last call; none without `trace=True`."""
        return self._op.last_trace()

    def gather_trace(self) -> _core.Trace:
        """All ranks' events of the last call, on every rank. Collective."""
        return self._op.gather_trace()

    def free(self) -> None:
        """Free the operator and its workspace. It cannot run afterwards."""
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
        norm: Norm | None = None,
        experts: Experts | None = None,
        reduction: str = "repeatable",
        more_n: Sequence[int] = (),
        gathered_output: bool = False,
        allow_tf32: bool = False,
        arena: Sequence[str] = (),
        constant: Sequence[str] = (),
        config: Config = "auto",
        check: bool | None = None,
        trace: bool = False,
        tuner_file: str = "",
    ) -> Op:
        """Make an operator, or run a given plan.

        `op`: a name of `operators()`, with sizes over all ranks (docs/operators.md); or a Plan, which replaces all
        other arguments but `trace`. `config`: "auto" uses the remembered winner, else the one that tilewire ships for
        the machine, else it measures the candidates and remembers the winner. "auto_quick" measures only the first few,
        "auto_again" even if a winner is known. "auto_off" measures nothing: it then uses the winner of the nearest M,
        else the simulator's prediction. The name of a schedule uses its first candidate. A mapping sets the knobs
        (docs/schedules.md). `more_n`: columns of further outputs of a gather, each with a B of its own; `run` then
        takes a, b, b1, ... and c, c1, ... `norm`: sums over ranks also return the output's rows normalised; `run` then
        takes norm_weight (and norm_bias) after the epilogue's operands, and c, normed (and norm_scale, one fp32 column,
        if the norm is quantised). `experts` of "moe": {"count": 8, "top_k": 2, "ffn": 512}; `run` takes x, topk_ids,
        topk_weights, w13, w2. `check`: prove the plan before it runs. `trace`: record calls.

        Raises Error(invalid_input) on all ranks if a rule is broken or ranks make different requests; unsupported;
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
            norm=norm,
            experts=experts,
            reduction=reduction,
            more_n=more_n,
            gathered_output=gathered_output,
            allow_tf32=allow_tf32,
            arena=arena,
            constant=constant,
        )
        return Op(self, self._core.make_op(text, config_text(config), check, trace, tuner_file))

    def empty(self, rows: int, cols: int, dtype: str = "bf16") -> Any:
        """A matrix in the arena, which peers can address (`arena=` of `make_op`): a numpy array on CPU ranks.

        On GPUs an object with `__dlpack__`. Zeroed. Its memory is freed with the last object that uses it.
        """
        tensor = self._core.allocate(dtype, rows, cols)
        return numpy_of(tensor) if self.backend == "host" else tensor.array()

    def adopt(self, at: Sequence[int], size: int, owner: object) -> None:
        """Treat memory that the ranks already share as part of the arena (as that of `empty`). Collective.

        `at`: by rank, the address of that rank's memory in this process; `size`: bytes of each rank. `owner` is kept
        alive as long as the group. Memory adopted before stays valid. The tensors of a call must have the same position
        on all ranks.
        """
        if (at[self.rank], size) in self._adopted:
            return
        self._core.adopt(list(at), size)
        self._adopted[at[self.rank], size] = owner

    def barrier(self) -> None:
        """Return when all ranks have called it."""
        self._core.barrier()

    def all_gather(self, mine: bytes) -> list[bytes]:
        """The bytes of all ranks, by rank. For small data."""
        return list(self._core.all_gather(mine))

    def leave(self) -> None:
        """Free the group's operators and leave the team. Not collective.

        If arrays of `empty` exist, the membership ends with the last of them.
        """
        for op in list(self._ops):
            op.free()
        self._core.leave()

    def __enter__(self) -> Group:
        """Leave the group at the end of a with statement."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Leave the group; after an exception, report it to all ranks instead."""
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

    Without `rank` and `num_ranks` they come from the environment that torchrun, mpirun, SLURM or the caller set. `job`:
    the ranks of a host find each other by this name. `arena_bytes`: limit of a rank's symmetric memory, committed on
    demand. `timeout_s`: deadline of every wait. `local_rank` selects the GPU. `order="stream"`: the caller promises
    that the team's calls run one after another, as in one stream (docs/cuda.md). `sms`: limit of the SMs that the
    team's kernels use on a GPU, 0 = all; it leaves SMs to NCCL on other streams.

    Raises Error(timeout) with the ranks that did not join, and Error(unsupported) if this machine or build cannot run
    the backend.
    """
    if order not in ("any", "stream"):
        raise Error(f"order = {order!r}: want 'any' or 'stream'", "invalid_input")
    return Group(
        _core.join(backend, rank, num_ranks, job, arena_bytes, timeout_s, local_rank, order == "stream", sms),
    )
