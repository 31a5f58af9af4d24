#!/usr/bin/env python3
"""Calls tilewire from Python through ctypes: ranks that join by their environment, and ranks that are threads.

Called by ctest as: ctypes_test.py LIBRARY. Needs nothing but the standard library. The ranks are this script again, with
RANK set.
"""
import array
import ctypes
import json
import os
import random
import subprocess
import sys
import unittest

FP32 = 0
INVALID_INPUT = 1


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("rows", ctypes.c_int64),
                ("cols", ctypes.c_int64), ("row_stride", ctypes.c_int64)]


class JoinOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint64), ("rank", ctypes.c_int32), ("num_ranks", ctypes.c_int32), ("local_rank", ctypes.c_int32),
                ("job", ctypes.c_char_p), ("arena_bytes", ctypes.c_int64), ("timeout_s", ctypes.c_double),
                ("order", ctypes.c_int32), ("sms", ctypes.c_int32)]


class LaunchOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint64), ("backend", ctypes.c_char_p), ("threads", ctypes.c_int32), ("arena_bytes", ctypes.c_int64),
                ("timeout_s", ctypes.c_double),
                ("order", ctypes.c_int32), ("sms", ctypes.c_int32)]


RankFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
ARENA_BYTES = 64 << 20


def load(path):
    """The library, with the types of the functions in use."""
    library = ctypes.CDLL(path)
    pointer = ctypes.c_void_p
    tensors = ctypes.POINTER(Tensor)
    for name, arguments in {
        "tilewire_barrier": [pointer],
        "tilewire_join_options_from_env": [ctypes.POINTER(JoinOptions)],
        "tilewire_join": [ctypes.c_char_p, ctypes.POINTER(JoinOptions), ctypes.POINTER(pointer)],
        "tilewire_leave": [pointer],
        "tilewire_launch": [ctypes.c_int32, ctypes.POINTER(LaunchOptions), RankFunction, pointer],
        "tilewire_rank": [pointer],
        "tilewire_num_ranks": [pointer],
        "tilewire_allocate": [pointer, ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, tensors],
        "tilewire_free": [pointer, tensors],
        "tilewire_make_op": [pointer, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(pointer)],
        "tilewire_free_op": [pointer],
        "tilewire_run": [pointer, tensors, ctypes.c_int32, tensors, ctypes.c_int32, pointer],
        "tilewire_run_and_wait": [pointer, tensors, ctypes.c_int32, tensors, ctypes.c_int32],
    }.items():
        getattr(library, name).argtypes = arguments
        getattr(library, name).restype = ctypes.c_int32
    for name in ("tilewire_last_error", "tilewire_explain"):
        getattr(library, name).restype = ctypes.c_char_p
    library.tilewire_explain.argtypes = [pointer]
    return library


class Failure(Exception):
    """A failed call: its status and text."""

    def __init__(self, status):
        super().__init__(LIBRARY.tilewire_last_error().decode())
        self.status = status


def call(name, *arguments):
    status = getattr(LIBRARY, name)(*arguments)
    if status != 0:
        raise Failure(status)


def shard(extent, num_ranks, rank):
    """Begin and end of a rank's share, by the ceiling rule."""
    each = -(-extent // num_ranks)
    return min(each * rank, extent), min(each * (rank + 1), extent)


def matrix(rows, cols, value):
    """fp32, row by row."""
    return array.array("f", [value(row, col) for row in range(rows) for col in range(cols)])


def view(values, rows, cols):
    return Tensor(values.buffer_info()[0] if len(values) else None, FP32, rows, cols, cols)


def run_op(group, problem, config, inputs, output):
    """Make an operator, run it twice with a poisoned output, and return its explanation."""
    op = ctypes.c_void_p()
    call("tilewire_make_op", group, json.dumps(problem).encode(), config, ctypes.byref(op))
    values, rows, cols = output
    try:
        for name, stream in (("tilewire_run", [None]), ("tilewire_run_and_wait", [])):
            for i in range(len(values)):
                values[i] = float("nan")
            views = (Tensor * len(inputs))(*(view(*each) for each in inputs))
            call(name, op, views, len(inputs), ctypes.byref(view(values, rows, cols)), 1, *stream)
        return LIBRARY.tilewire_explain(op).decode()
    finally:
        call("tilewire_free_op", op)


def multiply_and_compare(group, name, config, sizes):
    """Run one of the GEMMs, and compare this rank's output with plain loops over the whole matrices."""
    m, n, k = sizes
    ranks, rank = LIBRARY.tilewire_num_ranks(group), LIBRARY.tilewire_rank(group)
    random.seed(11)
    a = [[random.uniform(-1, 1) for _ in range(k)] for _ in range(m)]
    b = [[random.uniform(-1, 1) for _ in range(k)] for _ in range(n)]
    rows, cols = (0, m), (0, n)
    if name == "all_gather_gemm":
        mine, cols = shard(m, ranks, rank), shard(n, ranks, rank)
        local = (matrix(mine[1] - mine[0], k, lambda i, j: a[mine[0] + i][j]), mine[1] - mine[0], k)
        weight = (matrix(cols[1] - cols[0], k, lambda i, j: b[cols[0] + i][j]), cols[1] - cols[0], k)
    else:
        part, rows = shard(k, ranks, rank), shard(m, ranks, rank)
        local = (matrix(m, part[1] - part[0], lambda i, j: a[i][part[0] + j]), m, part[1] - part[0])
        weight = (matrix(n, part[1] - part[0], lambda i, j: b[i][part[0] + j]), n, part[1] - part[0])
    height, width = rows[1] - rows[0], cols[1] - cols[0]
    output = array.array("f", bytes(4 * height * width))
    problem = {"op": name, "m": m, "n": n, "k": k, "dtype": "fp32"}
    explained = run_op(group, problem, config, [local, weight], (output, height, width))
    assert explained.startswith(name), explained
    for i in range(height):
        for j in range(width):
            want = sum(x * y for x, y in zip(a[rows[0] + i], b[cols[0] + j]))
            got = output[i * width + j]
            assert abs(got - want) < 1e-4, f"{name}, rank {rank}, element {i} {j}: want {want}, got {got}"


def multiply_all(group):
    for name in ("all_gather_gemm", "gemm_reduce_scatter"):
        for config in (b"sequential", b"fused", b'{"schedule": "fused", "tile_m": 8, "tile_n": 8}'):
            multiply_and_compare(group, name, config, (21, 18, 13))
    multiply_and_compare(group, "all_gather_gemm", None, (16, 16, 8))


def be_rank():
    """A process that a launcher has started."""
    options, group = JoinOptions(ctypes.sizeof(JoinOptions)), ctypes.c_void_p()
    call("tilewire_join_options_from_env", ctypes.byref(options))
    options.arena_bytes = ARENA_BYTES
    call("tilewire_join", b"host", ctypes.byref(options), ctypes.byref(group))
    multiply_all(group)
    call("tilewire_barrier", group)
    call("tilewire_leave", group)
    print(f"rank {options.rank} is right")


def on_threads(num_ranks, body):
    """Run `body` on ranks that are threads. Raises the library's error, or the exception of a body."""
    raised = []

    def rank_function(group, _):
        try:
            body(ctypes.c_void_p(group))
            return 0
        except Failure as failure:
            return failure.status
        except Exception as error:  # must not leave through C
            raised.append(error)
            return INVALID_INPUT

    options = LaunchOptions(ctypes.sizeof(LaunchOptions), b"host", 1, ARENA_BYTES, 0)
    status = LIBRARY.tilewire_launch(num_ranks, ctypes.byref(options), RankFunction(rank_function), None)
    if raised:
        raise raised[0]
    if status != 0:
        raise Failure(status)


class Ctypes(unittest.TestCase):
    def test_processes_join_by_their_environment(self):
        environment = {**os.environ, "WORLD_SIZE": "3", "TILEWIRE_JOB": f"ctypes.{os.getpid()}"}
        ranks = [subprocess.Popen([sys.executable, __file__, sys.argv[1]], env={**environment, "RANK": str(rank)},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(3)]
        for rank, process in enumerate(ranks):
            text = process.communicate(timeout=120)[0]
            self.assertEqual(process.returncode, 0, text)
            self.assertIn(f"rank {rank} is right", text)

    def test_ranks_are_threads(self):
        on_threads(2, multiply_all)

    def test_tensors_of_the_arena(self):
        def body(group):
            tensor, sum_of_all = Tensor(), array.array("f", bytes(4 * 6))
            call("tilewire_allocate", group, FP32, 2, 3, ctypes.byref(tensor))
            cells = (ctypes.c_float * 6).from_address(tensor.data)
            assert list(cells) == [0] * 6
            cells[:] = [LIBRARY.tilewire_rank(group) + 1] * 6
            op = ctypes.c_void_p()
            problem = {"op": "all_reduce", "m": 2, "n": 3, "dtype": "fp32", "arena": ["x"]}
            call("tilewire_make_op", group, json.dumps(problem).encode(), b"sequential", ctypes.byref(op))
            call("tilewire_run", op, ctypes.byref(tensor), 1, ctypes.byref(view(sum_of_all, 2, 3)), 1, None)
            call("tilewire_free_op", op)
            call("tilewire_free", group, ctypes.byref(tensor))
            assert list(sum_of_all) == [6] * 6, sum_of_all

        on_threads(3, body)

    def fails(self, status, part, body, num_ranks=1):
        with self.assertRaises(Failure) as caught:
            on_threads(num_ranks, body)
        self.assertEqual(caught.exception.status, status)
        self.assertIn(part, str(caught.exception))

    def test_errors_name_the_rule_and_the_value(self):
        def make(problem, config=b"fused"):
            op = ctypes.c_void_p()
            return lambda group: call("tilewire_make_op", group, problem, config, ctypes.byref(op))

        small = b'{"op": "all_reduce", "m": 4, "n": 4, "dtype": "fp32"}'
        self.fails(INVALID_INPUT, "malformed JSON", make(b"{"))
        self.fails(INVALID_INPUT, "unknown field 'size'; known: op, m, n, k", make(b'{"size": 4}'))
        self.fails(INVALID_INPUT, "all_gather_gem", make(b'{"op": "all_gather_gem", "m": 4, "n": 4, "k": 4}'))
        self.fails(INVALID_INPUT, "'quick'", make(small, b"quick"))
        self.fails(INVALID_INPUT, "known: ", make(small, b'{"tile": 4}'))

        def wrong_shape(group):
            values = array.array("f", bytes(4 * 16))
            run_op(group, json.loads(small), b"sequential", [(values, 2, 8)], (values, 4, 4))

        self.fails(INVALID_INPUT, "input x is 2 x 8, must be 4 x 4 on rank 0", wrong_shape)

    def test_a_rank_that_fails_is_named_by_all(self):
        texts = []

        def body(group):
            if LIBRARY.tilewire_rank(group) == 1:
                call("tilewire_make_op", group, b"{", None, ctypes.byref(ctypes.c_void_p()))
            try:
                call("tilewire_barrier", group)
            except Failure as failure:
                texts.append((failure.status, str(failure)))
                raise

        self.fails(INVALID_INPUT, "malformed JSON", body, num_ranks=2)
        self.assertEqual(texts[0][0], INVALID_INPUT)
        self.assertIn("rank 1: Problem: malformed JSON", texts[0][1])


if __name__ == "__main__":
    LIBRARY = load(sys.argv[1])
    if "RANK" in os.environ:
        be_rank()
    else:
        unittest.main(argv=sys.argv[:1], verbosity=2)
