"""The part of tilewire's C interface (include/tilewire/c.h) that benchmarks need, by ctypes.

Used by bench/peers.py. Needs no torch: tensors are (address, dtype, rows, cols).
"""
import ctypes
import json
import os

DTYPES = {"fp32": 0, "bf16": 1, "fp16": 2, "int32": 3}


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("rows", ctypes.c_int64),
                ("cols", ctypes.c_int64), ("row_stride", ctypes.c_int64)]


class JoinOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint64), ("rank", ctypes.c_int32), ("num_ranks", ctypes.c_int32), ("local_rank", ctypes.c_int32),
                ("job", ctypes.c_char_p), ("arena_bytes", ctypes.c_int64), ("timeout_s", ctypes.c_double),
                ("order", ctypes.c_int32), ("sms", ctypes.c_int32)]


class TilewireError(Exception):
    """A failed call: "invalid_input: ..."."""


_POINTER = ctypes.c_void_p
_TENSORS = ctypes.POINTER(Tensor)
_FUNCTIONS = {
    "tilewire_join_options_from_env": [ctypes.POINTER(JoinOptions)],
    "tilewire_join_options_default": [ctypes.POINTER(JoinOptions)],
    "tilewire_join": [ctypes.c_char_p, ctypes.POINTER(JoinOptions), ctypes.POINTER(_POINTER)],
    "tilewire_leave": [_POINTER],
    "tilewire_barrier": [_POINTER],
    "tilewire_allocate": [_POINTER, ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, _TENSORS],
    "tilewire_free": [_POINTER, _TENSORS],
    "tilewire_make_op": [_POINTER, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(_POINTER)],
    "tilewire_free_op": [_POINTER],
    "tilewire_run": [_POINTER, _TENSORS, ctypes.c_int32, _TENSORS, ctypes.c_int32, _POINTER],
}
_TEXTS = {"tilewire_last_error": [], "tilewire_status_name": [ctypes.c_int32], "tilewire_version": [],
          "tilewire_explain": [_POINTER], "tilewire_config": [_POINTER]}


class Team:
    """This process's membership of a team: the launcher's team in the environment, of job `job` if given; or a team
    of its own, of one rank on GPU `alone_on`."""

    def __init__(self, library, backend, arena_bytes, alone_on=None, order=0, job=None):
        self._library = ctypes.CDLL(library)
        for name, arguments in _FUNCTIONS.items():
            getattr(self._library, name).argtypes = arguments
            getattr(self._library, name).restype = ctypes.c_int32
        for name, arguments in _TEXTS.items():
            getattr(self._library, name).argtypes = arguments
            getattr(self._library, name).restype = ctypes.c_char_p
        self._group = _POINTER()
        options = JoinOptions(ctypes.sizeof(JoinOptions))
        if alone_on is None:
            self.call("tilewire_join_options_from_env", ctypes.byref(options))
        else:
            self.call("tilewire_join_options_default", ctypes.byref(options))
            options.local_rank, options.job = alone_on, f"alone-{os.getpid()}".encode()
        if job is not None:
            options.job = job.encode()
        options.arena_bytes, options.order = arena_bytes, order
        self.call("tilewire_join", backend.encode(), ctypes.byref(options), ctypes.byref(self._group))

    def call(self, name, *arguments):
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            kind = self._library.tilewire_status_name(status).decode()
            raise TilewireError(f"{kind}: {self._library.tilewire_last_error().decode()}")

    def text(self, name, *arguments):
        return getattr(self._library, name)(*arguments).decode()

    def allocate(self, dtype, rows, cols):
        tensor = Tensor()
        self.call("tilewire_allocate", self._group, DTYPES[dtype], rows, cols, ctypes.byref(tensor))
        return tensor

    def free(self, tensor):
        self.call("tilewire_free", self._group, ctypes.byref(tensor))

    def make_op(self, problem, config):
        """`config`: "auto", the name of a schedule, or a dictionary of knobs."""
        op = _POINTER()
        how = config if isinstance(config, str) else json.dumps(config)
        self.call("tilewire_make_op", self._group, json.dumps(problem).encode(), how.encode(), ctypes.byref(op))
        return Op(self, op)

    def leave(self):
        self.call("tilewire_leave", self._group)


class Op:
    """An operator, and the tensors of its last call."""

    def __init__(self, team, op):
        self._team, self._op = team, op

    def bind(self, inputs, outputs):
        """A function that takes a stream's handle and runs the operator on these tensors (address, dtype, rows,
        cols)."""
        views = [(Tensor * len(tensors))(*(Tensor(data, DTYPES[dtype], rows, cols, cols)
                                           for data, dtype, rows, cols in tensors)) for tensors in (inputs, outputs)]
        return lambda stream: self._team.call("tilewire_run", self._op, views[0], len(inputs), views[1], len(outputs),
                                              stream)

    def explain(self):
        return self._team.text("tilewire_explain", self._op)

    def config(self):
        return json.loads(self._team.text("tilewire_config", self._op))

    def free(self):
        self._team.call("tilewire_free_op", self._op)
