"""FlashInfer's `allreduce_fusion` by tilewire, for programs that call it with FlashInfer's arguments and numbers.

from tilewire.torch.flashinfer import allreduce_fusion

allreduce_fusion(x, group, 1, residual_in=r, residual_out=r, norm_out=y, rms_gamma=weight, rms_eps=1e-5)
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import tilewire
from tilewire.torch._all_reduce import all_reduce, all_reduce_add_rms_norm

#: flashinfer.comm.AllReduceFusionPattern, by number.
PATTERNS = {
    0: "kAllReduce",
    1: "kARResidualRMSNorm",
    2: "kARResidualRMSNormFP8Quant",
    3: "kARResidualRMSNormFP4Quant",
    4: "kARResidualRMSNormOutFP8Quant",
    5: "kARResidualRMSNormOutFP4Quant",
    6: "kMoEReductionARResidualRMSNorm",
    7: "kMoEFinalizeARResidualRMSNorm",
    8: "kARResidualRMSNormPerTokenGroupFP8PackedQuant",
    9: "kARResidualRMSNormOutPerTokenGroupFP8PackedQuant",
    10: "kARResidualRMSNormDynamicFP8Quant",
    11: "kARResidualRMSNormOutDynamicFP8Quant",
}
#: Further arguments that choose among FlashInfer's kernels, like `launch_with_pdl` and `trigger_completion_at_end`.
#: tilewire chooses itself, and always adds in fp32.
_HINTS = {"use_oneshot", "fp32_acc"}


def allreduce_fusion(
    input: Tensor,
    workspace: dist.ProcessGroup | str | None,
    pattern: int,
    launch_with_pdl: bool = False,
    trigger_completion_at_end: bool = True,
    output: Tensor | None = None,
    residual_out: Tensor | None = None,
    norm_out: Tensor | None = None,
    quant_out: Tensor | None = None,
    scale_out: Tensor | None = None,
    residual_in: Tensor | None = None,
    rms_gamma: Tensor | None = None,
    rms_eps: float = 1e-6,
    **others: Any,
) -> Tensor:
    """The all-reduce of `input` [tokens, hidden]; with pattern 1 and 10 also `residual_in` added and the RMSNorm.

    `workspace`: the process group, its name, or None for the default group; tilewire has no other workspace. `pattern`:
    0 (kAllReduce) returns `output`; 1 (kARResidualRMSNorm) writes the sum to `residual_out` and returns `norm_out`; 10
    (kARResidualRMSNormDynamicFP8Quant) writes the normalised rows to `quant_out`, which it returns, and the scale of
    each token to `scale_out` [tokens, 1], which must be given. Other tensors that are not given are made. Raises
    tilewire.Error(unsupported) with the name of any other pattern, and of an argument that asks for more.
    """
    number = int(pattern)
    if number not in (0, 1, 10):
        asked_for, known = PATTERNS.get(number, number), ", ".join(PATTERNS[known] for known in (0, 1, 10))
        raise tilewire.Error(f"pattern {asked_for}: want one of {known}", "unsupported")
    if number == 10:
        others.update(norm_out=norm_out)
    else:
        others.update(quant_out=quant_out, scale_out=scale_out)
    if number == 0:
        others.update(residual_in=residual_in, residual_out=residual_out, rms_gamma=rms_gamma, norm_out=norm_out)
    asked = [name for name, value in others.items() if name not in _HINTS and (isinstance(value, Tensor) or value)]
    if asked:
        raise tilewire.Error(
            f"allreduce_fusion with {', '.join(asked)}: {PATTERNS[number]} has no such argument here", "unsupported"
        )
    if number == 0:
        return all_reduce(input, workspace, out=output)
    if residual_in is None or rms_gamma is None:
        raise tilewire.Error(f"{PATTERNS[number]} without residual_in or rms_gamma", "invalid_input")
    if output is not None:
        raise tilewire.Error(f"{PATTERNS[number]} with output: want residual_out", "unsupported")
    if number == 10 and scale_out is None:
        raise tilewire.Error(f"{PATTERNS[number]} without scale_out", "invalid_input")
    if number == 10:
        _, quantised, _ = all_reduce_add_rms_norm(
            input,
            residual_in,
            rms_gamma,
            workspace,
            eps=rms_eps,
            norm_dtype=torch.float8_e4m3fn,
            out=residual_out,
            norm_out=quant_out,
            scale_out=scale_out,
        )
        return quantised
    _, normed = all_reduce_add_rms_norm(
        input, residual_in, rms_gamma, workspace, eps=rms_eps, out=residual_out, norm_out=norm_out
    )
    return normed
