"""Matrix multiplications across GPUs or CPUs that overlap with their communication, tile by tile.

    import numpy as np
    import tilewire

    def body(group):
        op = group.make_op("all_gather_gemm", 512, 1024, 256, dtype="fp32")
        a = np.ones((128, 256), np.float32)         # this rank's 512 / 4 rows of A
        b = np.full((256, 256), 0.5, np.float32)    # this rank's 1024 / 4 columns of B, stored [n, k]
        return op.run(a, b)[0, 0]                   # this rank's columns of C

    if __name__ == "__main__":
        print(tilewire.launch(body, 4))             # four processes of this host

`import tilewire` needs no GPU and no torch. docs/python.md is a guide with examples.
"""

from tilewire._bench import BenchResult, bench
from tilewire._core import Plan, Simulation, Tensor, Trace
from tilewire._core import version as __version__
from tilewire._error import Error, WaitReport
from tilewire._group import Group, Op, TensorInfo, join
from tilewire._launch import launch
from tilewire._plans import (
    Lowered,
    Proof,
    backends,
    check,
    lower,
    machines,
    operators,
    plan,
    schedules,
    simulate,
    targets,
)

__all__ = [
    "BenchResult",
    "Error",
    "Group",
    "Lowered",
    "Op",
    "Plan",
    "Proof",
    "Simulation",
    "Tensor",
    "TensorInfo",
    "Trace",
    "WaitReport",
    "__version__",
    "backends",
    "bench",
    "check",
    "join",
    "launch",
    "lower",
    "machines",
    "operators",
    "plan",
    "schedules",
    "simulate",
    "targets",
]
