"""Operators for PyTorch: matrix products that overlap with their communication, on process groups.

    import torch.distributed as dist
    import tilewire.torch

    dist.init_process_group("gloo")                                # nccl on GPUs
    y = tilewire.torch.all_gather_matmul(x, weight.t())            # (all ranks' rows of x) @ weight.t()
    z = tilewire.torch.matmul_reduce_scatter(y, other.t())         # this rank's rows of the ranks' sum of y @ other.t()

Operators on CUDA tensors run on GPUs, operators on CPU tensors on CPU ranks. They have fakes and autograd formulas.
Every rank of the group must call them, in the same order, with the same shapes.
"""

from tilewire.torch import _expert_gradients, _fakes  # noqa: F401 - registers them
from tilewire.torch._all_reduce import all_reduce, all_reduce_add_rms_norm, matmul_all_reduce
from tilewire.torch._drop_in import disable, enable, enabled, report
from tilewire.torch._expert_steps import Handle, moe_combine, moe_dispatch, moe_dispatch_gemm, moe_gemm_combine
from tilewire.torch._experts import moe, moe_dropping
from tilewire.torch._gradients import sum_gradients
from tilewire.torch._layers import ColumnParallelLinear, RowParallelLinear
from tilewire.torch._products import (
    all_gather_matmul,
    matmul_all_to_all,
    matmul_all_to_all_rows,
    matmul_reduce_scatter,
)
from tilewire.torch._teams import (
    adopt,
    cached,
    check,
    clear,
    empty,
    on_failure,
    set_cache_size,
    set_constant_weights,
    set_order,
    set_sms,
    set_tuning,
)
from tilewire.torch._warmup import warmup

__all__ = [
    "ColumnParallelLinear",
    "Handle",
    "RowParallelLinear",
    "adopt",
    "all_gather_matmul",
    "all_reduce",
    "all_reduce_add_rms_norm",
    "cached",
    "check",
    "clear",
    "disable",
    "empty",
    "enable",
    "enabled",
    "matmul_all_reduce",
    "matmul_all_to_all",
    "matmul_all_to_all_rows",
    "matmul_reduce_scatter",
    "moe",
    "moe_combine",
    "moe_dispatch",
    "moe_dispatch_gemm",
    "moe_dropping",
    "moe_gemm_combine",
    "on_failure",
    "report",
    "set_cache_size",
    "set_constant_weights",
    "set_order",
    "set_sms",
    "set_tuning",
    "sum_gradients",
    "warmup",
]
