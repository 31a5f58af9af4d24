"""Copies to all peers by copy engines, in lockstep, independent of the work beside them.

Used by bench/contenders.py: a GEMM beside such copies of the same bytes is the practical limit of overlap.
"""
import ctypes

import torch
import torch.distributed._symmetric_memory as symm

_EQUAL = 1  # CU_STREAM_WAIT_VALUE_EQ


def _driver():
    library = ctypes.CDLL("libcuda.so.1")
    for name in ("cuStreamWaitValue32_v2", "cuStreamWriteValue32_v2"):
        getattr(library, name).argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint]
    return library


class Exchange:
    """Copies `elements` of bf16 from every rank to every other. Rank r goes to its next peer when rank r + 1 has left it.

    The rank that has waited for a flag writes it back to 0. So ranks meet before each call: none may be a call ahead.
    """

    def __init__(self, ranks, elements):
        self._driver = _driver()
        self._stream = torch.cuda.Stream(priority=-1)
        self._source = torch.zeros(elements, device=ranks.device, dtype=torch.bfloat16)
        received = symm.empty(ranks.size, elements, device=ranks.device, dtype=torch.bfloat16)
        flags = symm.empty(ranks.size, device=ranks.device, dtype=torch.int32)
        flags.zero_()
        torch.cuda.synchronize()  # before peers write there
        to_peers, to_flags = (symm.rendezvous(tensor, ranks.name) for tensor in (received, flags))
        peers = [(ranks.rank + phase) % ranks.size for phase in range(1, ranks.size)]
        self._targets = [to_peers.get_buffer(peer, received.shape, received.dtype)[ranks.rank] for peer in peers]
        before = to_flags.get_buffer((ranks.rank - 1) % ranks.size, flags.shape, flags.dtype)
        self._owners = received, flags, to_peers, to_flags, before
        self._mine, self._theirs = flags.data_ptr(), before.data_ptr()

    def beside(self, kernels):
        """Enqueue the copies in a stream of their own, beside the work that `kernels` enqueues in the current stream.
        That stream then waits for both."""
        # NOTE: kernels first: streams may share a queue of the device, where waiting copies would block the kernels.
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        kernels()
        self._copy()
        current.wait_stream(self._stream)

    def _copy(self):
        for phase, target in enumerate(self._targets):
            if phase > 0:
                self._call("cuStreamWaitValue32_v2", self._mine + 4 * phase, 1, _EQUAL)
                self._call("cuStreamWriteValue32_v2", self._mine + 4 * phase, 0, 0)
            with torch.cuda.stream(self._stream):
                target.copy_(self._source)
            if phase + 1 < len(self._targets):
                self._call("cuStreamWriteValue32_v2", self._theirs + 4 * (phase + 1), 1, 0)

    def _call(self, name, address, value, flags):
        status = getattr(self._driver, name)(self._stream.cuda_stream, address, value, flags)
        if status != 0:
            raise RuntimeError(f"{name}: CUDA error {status}")
