"""An operator on four CPU ranks: the chosen schedule, its time, and a trace of one call."""

import numpy as np

import tilewire

M, N, K, RANKS = 512, 1024, 256, 4


def body(group: tilewire.Group) -> str:
    """The body of each rank."""
    rng = np.random.default_rng(group.rank)
    a = rng.standard_normal((M // RANKS, K), np.float32)  # this rank's rows of A
    b = rng.standard_normal((N // RANKS, K), np.float32)  # this rank's columns of B, stored [n, k]
    op = group.make_op("all_gather_gemm", M, N, K, dtype="fp32", epilogue=["relu"], config="fused", trace=True)
    c = op.run(a, b)  # this rank's columns of C: M x N / RANKS
    time = tilewire.bench(group, op, a, b, out=c)
    op.run(a, b, out=c)
    trace = op.gather_trace()  # all ranks' events; open the file in ui.perfetto.dev
    if group.rank == 0:
        with open("trace.json", "w") as file:
            file.write(trace.to_chrome(op.plan))
    return f"{op.explain()}\n{c.shape}, {time.median_us:.0f} us, {len(trace)} events"


if __name__ == "__main__":
    print(tilewire.launch(body, RANKS)[0])
