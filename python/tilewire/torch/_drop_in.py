"""Puts tilewire behind PyTorch's own fused operators: torch.ops.symm_mem.fused_*."""

from __future__ import annotations

import os
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

import tilewire
from tilewire.torch import _products

_lock = threading.Lock()
_library: Any = None
_taken: Counter[str] = Counter()
_left: Counter[tuple[str, str]] = Counter()


def report() -> dict[str, dict[str, Any]]:
    """Number of calls of each of PyTorch's operators: by tilewire, and by PyTorch's kernel with the reason."""
    rows: dict[str, dict[str, Any]] = {}
    for name in sorted({*_taken, *(name for name, _ in _left)}):
        reasons = {reason: count for (other, reason), count in _left.items() if other == name}
        rows[name] = {"tilewire": _taken[name], "pytorch": reasons}
    return rows


def _own(name: str, on_gpu: bool) -> Any:
    """PyTorch's own kernel; on CPUs, where it has no kernel, its composition of operators."""
    import torch.distributed._symmetric_memory as symm_mem

    return getattr(symm_mem, f"_{name}" if on_gpu else f"_{name}_fallback")


def _left_to_pytorch(a: Tensor, bs: list[Tensor], gather_dim: int, group_name: str) -> str | None:
    """The reason if the program's settings give a gather to PyTorch, or None."""
    if os.environ.get("TORCH_SYMM_MEM_ENABLE_NATIVE_ASYNC_TP", "0") == "0":
        return None
    import torch.distributed._symmetric_memory as symm_mem

    decides = getattr(symm_mem, "_should_use_fused_all_gather_matmul_native", None)
    if decides is None or not decides(a, bs, gather_dim, group_name):
        return None
    return "TORCH_SYMM_MEM_ENABLE_NATIVE_ASYNC_TP asks for PyTorch's native kernel"


def _all_gather_matmul(
    a: Tensor, bs: list[Tensor], gather_dim: int, group_name: str, *, return_A: bool = True
) -> tuple[Tensor | None, list[Tensor]]:
    name = "fused_all_gather_matmul"
    try:
        whole: Tensor | None = None
        if (reason := _left_to_pytorch(a, bs, gather_dim, group_name)) is not None:
            raise tilewire.Error(reason, "unsupported")
        if return_A:
            ys, whole = _products.all_gather_matmul(a, bs, group_name, gather_dim=gather_dim, return_gathered=True)
        else:
            ys = _products.all_gather_matmul(a, bs, group_name, gather_dim=gather_dim)
    except tilewire.Error as error:
        _left[name, _reason(error)] += 1
        return _own(name, a.is_cuda)(a, bs, gather_dim, group_name, return_A=return_A)
    _taken[name] += 1
    return whole, ys


def _matmul_reduce_scatter(a: Tensor, b: Tensor, reduce_op: str, scatter_dim: int, group_name: str) -> Tensor:
    name = "fused_matmul_reduce_scatter"
    try:
        y = _products.matmul_reduce_scatter(a, b, group_name, scatter_dim=scatter_dim, op=reduce_op)
    except tilewire.Error as error:
        _left[name, _reason(error)] += 1
        return _own(name, a.is_cuda)(a, b, reduce_op, scatter_dim, group_name)
    _taken[name] += 1
    return y.contiguous()


def _reason(error: tilewire.Error) -> str:
    """The reason for leaving a call to PyTorch. Raises errors that break a team: peers may wait inside tilewire."""
    if error.kind not in ("invalid_input", "unsupported"):
        raise error
    return str(error)


def enable() -> None:
    """Put tilewire behind torch.ops.symm_mem.fused_all_gather_matmul and fused_matmul_reduce_scatter.

    Eager programs then use tilewire unchanged, and so does the code of Inductor's pass for asynchronous tensor
    parallelism. Calls that tilewire cannot take go to PyTorch's kernel; `report()` counts them. The scaled variants
    stay with PyTorch.
    """
    import torch.distributed._symmetric_memory  # noqa: F401 - registers the operators

    global _library
    with _lock:
        if _library is not None:
            return
        library = torch.library.Library("symm_mem", "IMPL")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="(?s).*verriding", category=UserWarning)  # intended
            for key in ("CUDA", "CPU"):
                library.impl("fused_all_gather_matmul", _all_gather_matmul, key, allow_override=True)
                library.impl("fused_matmul_reduce_scatter", _matmul_reduce_scatter, key, allow_override=True)
        _library = library


def disable() -> None:
    """Restore PyTorch's kernels."""
    global _library
    with _lock:
        if _library is not None:
            _library._destroy()
        _library = None


@contextmanager
def enabled() -> Iterator[None]:
    """`enable()` for a with statement."""
    enable()
    try:
        yield
    finally:
        disable()
