"""The contenders of bench/peers.py: cuBLAS and NCCL by PyTorch, PyTorch's own operators, tilewire; on the same tensors.

Used by bench/peers.py. bf16, B stored [N, K], sizes M N K over all ranks.
"""
import datetime
import math
import os
import statistics

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm

from candidates import OPERATORS
from exchange import Exchange

MOST_ONE_SHOT_BYTES = 1 << 20
ARENA = {"ag": [], "rs": [], "ar": ["c"]}  # buffers of tilewire in its arena


class ArenaMemory:
    """bf16 elements of tilewire's arena for torch, as int16: this protocol has no bf16."""

    def __init__(self, tensor):
        self.__cuda_array_interface__ = {"shape": (tensor.rows, tensor.cols), "typestr": "<i2", "version": 3,
                                         "data": (tensor.data, False)}


class Ranks:
    """The process group, and the state that all contenders share on this GPU."""

    def __init__(self):
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(self.device)
        dist.init_process_group("nccl", device_id=self.device, timeout=datetime.timedelta(seconds=60))
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.name = dist.group.WORLD.group_name
        # A stream that can be captured; tilewire enqueues in it, too.
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)
        if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 9):
            symm.enable_symm_mem_for_group(self.name)  # newer versions need no such call
        # NOTE: ranks leave NCCL's all-reduce some microseconds apart, which would add to the time of a waiting rank.
        self._gate_memory = symm.empty(1, device=self.device)
        self._gate = symm.rendezvous(self._gate_memory, self.name)
        self._l2 = torch.empty(128 << 20, dtype=torch.uint8, device=self.device)

    def meet(self):
        """A barrier in the stream, after a write that empties the L2 cache and a pause of some 0.3 ms. In the pause
        the host enqueues the next call, so that the GPUs' time is measured, not the host's."""
        torch.cuda._sleep(500_000)
        self._l2.zero_()
        self._gate.barrier(timeout_ms=60_000)

    def most(self, values):
        """For each element the largest value of all ranks; NaN counts as infinite."""
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device).nan_to_num(math.inf, math.inf)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return tensor.tolist()

    def first_error(self, error):
        """The error of the lowest rank that has one, or None; the same on all ranks."""
        errors = [None] * self.size
        dist.all_gather_object(errors, error)
        return next((f"rank {rank}: {text}" for rank, text in enumerate(errors) if text), None)


def ms_in_turn(ranks, calls, turns, repeats=1):
    """Quartiles of ms per call on the slowest rank, by contender; interleaved, `repeats` calls between two events."""
    times = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            ranks.meet()
            marks[0].record()
            for _ in range(repeats):
                call()
            marks[1].record()
            torch.cuda.synchronize()
            times[name].append(marks[0].elapsed_time(marks[1]) / repeats)
    return {name: statistics.quantiles(ranks.most(values), n=4) for name, values in times.items()}


def checked_graphs(ranks, calls, reset, result, passes=1):
    """Run contenders three times from `reset` on, compare their results with those of "nccl", and capture each in a
    graph of so many passes. Returns relative errors (not of "gemms", which sums nothing) and graphs."""
    results = {}
    for name, call in calls.items():
        for _ in range(3):
            reset()
            call()
        results[name] = result().float()
        torch.cuda.synchronize()
        dist.barrier()
    want = results["nccl"]
    errors = {name: ((got - want).norm() / want.norm()).item() for name, got in results.items() if name != "gemms"}
    graphs = {}
    for name, call in calls.items():
        graphs[name] = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        dist.barrier()
        with torch.cuda.graph(graphs[name], stream=ranks.stream, capture_error_mode="thread_local"):
            for _ in range(passes):
                call()
    return errors, graphs


def random_matrix(ranks, rows, cols):
    return torch.randn(rows, cols, device=ranks.device, dtype=torch.bfloat16) / cols**0.25


def view_of(tensor):
    """The tensor as tilewire takes it."""
    return tensor.data_ptr(), "bf16", *tensor.shape


class FastestGemm:
    """a * b^T by the fastest of cuBLASLt's candidates: an operator of a team of one rank, which is only that call.
    The first call makes the operator."""

    def __init__(self, alone, a, b, c):
        self._alone, self._tensors, self._op, self._run = alone, (a, b, c), None, None

    def __call__(self):
        if self._op is None:
            self._make()
        self._run(torch.cuda.current_stream().cuda_stream)

    def _make(self):
        if self._alone is None:
            raise RuntimeError("no team")
        (m, k), (n, _) = (tensor.shape for tensor in self._tensors[:2])
        problem = {"op": "all_gather_gemm", "m": m, "n": n, "k": k, "dtype": "bf16"}
        self._op = self._alone.make_op(problem, {"schedule": "fused", "compute": "library"})
        a, b, c = map(view_of, self._tensors)
        self._run = self._op.bind([a, b], [c])

    def free(self):
        torch.cuda.synchronize()
        if self._op:
            self._op.free()


class Case:
    """One shape: inputs, the results of cuBLAS + NCCL, and the alternatives to measure.

    Methods with a GEMM take it as an argument: `gemm`, cuBLAS's own choice as PyTorch calls it, or a FastestGemm.
    """

    def __init__(self, ranks, kind, m, n, k):
        self.ranks, self.kind, self.sizes = ranks, kind, (m, n, k)
        size = ranks.size
        gathers = kind == "ag"
        empty = lambda rows, cols: torch.empty(rows, cols, device=ranks.device, dtype=torch.bfloat16)
        self.a = random_matrix(ranks, m // size, k) if gathers else random_matrix(ranks, m, k // size)
        self.b = random_matrix(ranks, n // size, k) if gathers else random_matrix(ranks, n, k // size)
        self.full = empty(m, k) if gathers else None
        self.product = empty(m, n // size if gathers else n)
        self.result = empty(m // size, n) if kind == "rs" else self.product
        # The least number of elements that a rank sends to each other rank.
        self.sent = m * {"ag": k, "rs": n, "ar": 2 * n}[kind] // size

    def refill(self):
        self.a.copy_(random_matrix(self.ranks, *self.a.shape))
        self.b.copy_(random_matrix(self.ranks, *self.b.shape))

    def gemm(self):
        torch.mm(self._left(), self.b.t(), out=self.product)

    def fastest_gemm(self, alone):
        return FastestGemm(alone, self._left(), self.b, self.product)

    def _left(self):
        return self.full if self.kind == "ag" else self.a

    def comm(self):
        if self.kind == "ag":
            dist.all_gather_into_tensor(self.full, self.a)
        elif self.kind == "rs":
            dist.reduce_scatter_tensor(self.result, self.product)
        else:
            dist.all_reduce(self.product)

    def sequential(self, gemm):
        for step in (self.comm, gemm) if self.kind == "ag" else (gemm, self.comm):
            step()

    def free(self, gemm):
        """Makes cuBLAS beside copies of the bytes that must be sent, independent of each other: the practical limit
        of overlap."""
        exchange = Exchange(self.ranks, self.sent)
        return lambda: exchange.beside(gemm)

    def peers(self):
        """Makers of calls of PyTorch's own operators, by name."""
        if self.kind == "ag":
            fused = torch.ops.symm_mem.fused_all_gather_matmul
            return {"torch_fused": lambda: lambda: fused(self.a, [self.b.t()], 0, self.ranks.name)}
        if self.kind == "rs":
            fused = torch.ops.symm_mem.fused_matmul_reduce_scatter
            return {"torch_fused": lambda: lambda: fused(self.a, self.b.t(), "sum", 0, self.ranks.name)}
        makers = {"torch_two_shot": lambda: self._all_reduce(torch.ops.symm_mem.two_shot_all_reduce_)}
        if self.product.nbytes <= MOST_ONE_SHOT_BYTES:
            makers["torch_one_shot"] = lambda: self._all_reduce(torch.ops.symm_mem.one_shot_all_reduce)
        return makers

    def _all_reduce(self, reduce):
        shared = symm.empty(*self.product.shape, device=self.ranks.device, dtype=torch.bfloat16)
        symm.rendezvous(shared, self.ranks.name)

        def call():
            torch.mm(self.a, self.b.t(), out=shared)
            reduce(shared, "sum", self.ranks.name)

        return call


class Ours:
    """tilewire on the case's inputs: one operator for each config, with one output for all of them."""

    def __init__(self, team, case, extra):
        m, n, k = case.sizes
        # NOTE: any order of sums is allowed, as NCCL has its own. Of the candidates only rings use it.
        self._problem = {"op": OPERATORS[case.kind], "m": m, "n": n, "k": k, "dtype": "bf16",
                         "arena": ARENA[case.kind], "reduction": "any"} | extra
        self._team, self._case, self._arena, self._ops, self._want = team, case, {}, {}, None
        self.a = self._place("a", case.a)
        self.b = self._place("b", case.b)
        self.c = self._place("c", torch.empty_like(case.result))

    def _place(self, name, tensor):
        """The tensor itself, or one like it in the arena."""
        if name not in self._problem["arena"]:
            return tensor
        memory = self._arena[name] = self._team.allocate("bf16", *tensor.shape)
        seen = torch.as_tensor(ArenaMemory(memory), device=tensor.device).view(torch.bfloat16)
        assert seen.data_ptr() == memory.data, "torch made a copy of the arena's memory"
        return seen

    def make(self, name, config):
        """A call of the operator with this config. The operator is made once."""
        if name not in self._ops:
            self._ops[name] = self._team.make_op(self._problem, config)
        run = self._ops[name].bind([view_of(self.a), view_of(self.b)], [view_of(self.c)])
        return lambda: run(torch.cuda.current_stream().cuda_stream)

    def facts(self, name):
        op = self._ops[name]
        return {"name": name, "config": op.config(), "explain": op.explain()}

    def expect(self):
        """Fresh data, and the result of cuBLAS and NCCL for them."""
        case = self._case
        case.refill()
        for mine, theirs in ((self.a, case.a), (self.b, case.b)):
            if mine.data_ptr() != theirs.data_ptr():
                mine.copy_(theirs)
        case.result.fill_(math.nan)
        case.sequential(case.gemm)
        self._want = case.result.float()

    def error(self, call):
        """|ours - cuBLAS and NCCL| / |cuBLAS and NCCL| on this rank, for the data of `expect`; `call` may be a
        replay."""
        self.c.fill_(math.nan)
        call()
        torch.cuda.synchronize()
        return ((self.c.float() - self._want).norm() / self._want.norm()).item()

    def free(self):
        torch.cuda.synchronize()
        for op in self._ops.values():
            op.free()
        for tensor in self._arena.values():
            self._team.free(tensor)
