"""Makes operators before their first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from tilewire.torch._all_reduce import all_reduce_add_rms_norm
from tilewire.torch._operands import Group
from tilewire.torch._teams import device_of, group_name, group_size


def warmup(
    function: Callable[..., Any],
    shapes: Iterable[tuple[int, ...]],
    group: Group = None,
    *,
    dtype: torch.dtype = torch.bfloat16,
    device: torch.device | str | None = None,
    transposed: bool = True,
    **options: Any,
) -> None:
    """Make operators for inference in advance: before a capture, or before measurements. Collective.

    For training, run one step outside of the capture instead.

    `function`: one of `tilewire.torch`. `shapes`: for each operator (rows, K, N) of this rank's x and b, or (rows, N)
    for sums without a product. `transposed`: b is the transpose of a dense [N, K], like a Linear layer's weight.
    `options`: passed to the function.
    """
    where = device_of(group, device)
    for rows, *sizes in shapes:
        x = torch.zeros(rows, sizes[0], dtype=dtype, device=where)
        if function is all_reduce_add_rms_norm:
            function(x, x.clone(), x.new_ones(sizes[0]), group, **options)
            continue
        if len(sizes) == 1:
            function(x, group, **options)
            continue
        k, n = sizes
        if options.get("gather_dim") == -1:
            x = x[:, : k // group_size(group_name(group))].contiguous()
        b = torch.zeros(n, k, dtype=dtype, device=where).t() if transposed else x.new_zeros(k, n)
        function(x, b, group, **options)
