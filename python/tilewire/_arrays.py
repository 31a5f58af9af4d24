"""Converts arrays of numpy, CuPy, JAX and PyTorch to tensors of a call, and makes arrays for results."""

from __future__ import annotations

from typing import Any

from tilewire import _core
from tilewire._error import Error

#: DLPack's number of the device.
_CUDA = 2
_NUMPY_NAMES = {"fp32": "float32", "fp16": "float16", "int32": "int32"}


def _bfloat16() -> Any:
    try:
        import ml_dtypes
    except ImportError:
        raise Error("bf16 in numpy needs the package ml_dtypes: pip install ml_dtypes", "unsupported") from None
    return ml_dtypes.bfloat16


def tensor_of(array: Any, *, writable: bool, stream: int | None) -> _core.Tensor:
    """The tensor in `array`, without a copy. The tensor keeps `array` alive.

    `array`: a matrix with DLPack or the buffer protocol, and contiguous rows. GPU memory is handed over in `stream`, by
    DLPack's rules.
    """
    if isinstance(array, _core.Tensor):
        return array
    kind = type(array)
    if kind.__module__ == "numpy":
        may_write = array.flags.writeable
        if writable and not may_write:
            raise Error("the output is read-only", "invalid_input")
        if array.dtype.name == "bfloat16":
            return _core.Tensor(array.view("uint16"), array, "bf16", may_write)
        return _core.Tensor(array, array, "", may_write)
    device = getattr(array, "__dlpack_device__", None)
    if device is not None and device()[0] == _CUDA:
        # NOTE: DLPack's numbers of CUDA streams: 1 is the legacy default stream, 2 the per-thread default stream.
        return _core.Tensor(array.__dlpack__(stream=stream or 1), array, "", True)
    return _core.Tensor(array, array, "", True)


def new_numpy(dtype: str, rows: int, cols: int) -> Any:
    """A numpy array for a result."""
    import numpy

    return numpy.empty((rows, cols), _bfloat16() if dtype == "bf16" else _NUMPY_NAMES[dtype])


def numpy_of(tensor: _core.Tensor) -> Any:
    """The same memory as a numpy array."""
    import numpy

    bits = tensor.dtype == "bf16"
    memory: Any = tensor.array(bits)
    array: Any = numpy.from_dlpack(memory)
    return array.view(_bfloat16()) if bits else array
