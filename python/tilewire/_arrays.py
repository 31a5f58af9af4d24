"""Converts arrays of numpy, CuPy, JAX and PyTorch to tensors of a call, and makes arrays for results."""

from __future__ import annotations

from typing import Any

from tilewire import _core
from tilewire._error import Error

#: DLPack's number of the device.
_CUDA = 2
_NUMPY_NAMES = {"fp32": "float32", "fp16": "float16", "int32": "int32", "int8": "int8"}
#: Names in ml_dtypes of types that numpy lacks, and types of the same size.
_OTHER_NAMES = {"bf16": ("bfloat16", "uint16"), "fp8_e4m3": ("float8_e4m3fn", "uint8")}


def _other_dtype(dtype: str) -> Any:
    try:
        import ml_dtypes
    except ImportError:
        raise Error(f"{dtype} in numpy needs the package ml_dtypes: pip install ml_dtypes", "unsupported") from None
    return getattr(ml_dtypes, _OTHER_NAMES[dtype][0])


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
        for dtype, (name, bits) in _OTHER_NAMES.items():
            if array.dtype.name == name:
                return _core.Tensor(array.view(bits), array, dtype, may_write)
        return _core.Tensor(array, array, "", may_write)
    device = getattr(array, "__dlpack_device__", None)
    if device is not None and device()[0] == _CUDA:
        # NOTE: DLPack's numbers of CUDA streams: 1 is the legacy default stream, 2 the per-thread default stream.
        return _core.Tensor(array.__dlpack__(stream=stream or 1), array, "", True)
    return _core.Tensor(array, array, "", True)


def new_numpy(dtype: str, rows: int, cols: int) -> Any:
    """A numpy array for a result."""
    import numpy

    return numpy.empty((rows, cols), _other_dtype(dtype) if dtype in _OTHER_NAMES else _NUMPY_NAMES[dtype])


def numpy_of(tensor: _core.Tensor) -> Any:
    """The same memory as a numpy array."""
    import numpy

    bits = tensor.dtype in _OTHER_NAMES
    memory: Any = tensor.array(bits)
    array: Any = numpy.from_dlpack(memory)
    return array.view(_other_dtype(tensor.dtype)) if bits else array
