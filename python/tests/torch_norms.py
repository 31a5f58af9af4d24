"""Functions that ranks run to test norms behind all-reduces."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.functional import layer_norm, rms_norm
from torch_bodies import equal, tensor

import tilewire
import tilewire.torch as tt
from tilewire.torch._norms import quantise
from tilewire.torch.flashinfer import allreduce_fusion

EPS = 1e-3


def near(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    bound = 1e-5 if got.dtype == torch.float32 else 1e-2
    torch.testing.assert_close(got, want, rtol=bound, atol=bound)


def weights(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    return tensor(7, 24, dtype=dtype), tensor(8, 24, dtype=dtype)


def norms() -> None:
    """RMSNorm and LayerNorm of sums of products and of sums, in new tensors and in place."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.bfloat16):
        x, b = tensor(1 + rank, 2, 3, 12, dtype=dtype), tensor(20 + rank, 12, 24, dtype=dtype)
        weight, bias = weights(dtype)
        residual = tensor(9, 2, 3, 24, dtype=dtype)
        y, normed = tt.matmul_all_reduce(x, b, residual=residual, norm_weight=weight, eps=EPS)
        equal(y, tt.matmul_all_reduce(x, b, residual=residual))
        near(normed, rms_norm(y, (24,), weight, EPS))
        _, normed = tt.matmul_all_reduce(x, b, residual=residual, norm_weight=weight, norm_bias=bias, eps=EPS)
        near(normed, layer_norm(y, (24,), weight, bias, EPS))
        inside, again = residual.clone(), torch.empty_like(y)
        options = {"norm_weight": weight, "eps": EPS, "out": inside, "norm_out": again}
        assert tt.matmul_all_reduce(x, b, residual=inside, **options)[0] is inside
        equal(inside, y)
        near(again, rms_norm(y, (24,), weight, EPS))
        part = tensor(30 + rank, 2, 3, 24, dtype=dtype)
        want = sum(tensor(30 + r, 2, 3, 24, dtype=dtype).float() for r in range(size)) + residual.float()
        y, normed = tt.all_reduce_add_rms_norm(part, residual, weight, eps=EPS)
        equal(y, want.to(dtype))
        near(normed, rms_norm(y, (24,), weight, EPS))
        inside, mine = residual.clone(), part.clone()
        got = tt.all_reduce_add_rms_norm(mine, inside, weight, eps=EPS, out=inside, norm_out=mine)
        assert got[0] is inside and got[1] is mine
        equal(inside, y)
        equal(mine, normed)

    def step(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y, normed = tt.all_reduce_add_rms_norm(x, r, w)
        return y + normed

    given = tensor(rank, 6, 24), tensor(9, 6, 24), weights()[0]
    equal(torch.compile(step, backend="aot_eager", fullgraph=True)(*given), step(*given))


def quantised_norms() -> None:
    """Rows of fp8 and int8 with a scale each, in new tensors and in given ones, compiled, and by FlashInfer's call."""
    rank = dist.get_rank()
    for dtype, largest in ((torch.float8_e4m3fn, 448.0), (torch.int8, 127.0)):
        x, b = tensor(1 + rank, 2, 3, 12).bfloat16(), tensor(20 + rank, 12, 24).bfloat16()
        weight, residual = weights(torch.bfloat16)[0], tensor(9, 2, 3, 24).bfloat16()
        options = {"norm_weight": weight, "eps": EPS, "norm_dtype": dtype}
        y, normed, scale = tt.matmul_all_reduce(x, b, residual=residual, **options)
        equal(y, tt.matmul_all_reduce(x, b, residual=residual))
        want = rms_norm(y.float(), (24,), weight.float(), EPS)
        torch.testing.assert_close(scale, want.abs().amax(-1, keepdim=True) / largest, rtol=1e-5, atol=0)
        step = 2**-4 if dtype == torch.float8_e4m3fn else 0
        torch.testing.assert_close(normed.float() * scale, want, rtol=step, atol=0.51 * scale.max().item())
        outs = {"out": torch.empty_like(y), "norm_out": torch.empty_like(normed), "scale_out": torch.empty_like(scale)}
        got = tt.matmul_all_reduce(x, b, residual=residual, **options, **outs)
        for mine, given, first in zip(got, outs.values(), (y, normed, scale), strict=True):
            assert mine is given
            equal(mine.float(), first.float())
        again = tt.all_reduce_add_rms_norm(y * 0, y, weight, eps=EPS, norm_dtype=dtype)
        equal(again[1].float(), normed.float())
        by_torch = quantise(y, weight, EPS, dtype, None, None)
        torch.testing.assert_close(by_torch[1].float(), normed.float(), rtol=2**-3, atol=1)
        torch.testing.assert_close(by_torch[2], scale)
        refused(lambda s=scale: tt.matmul_all_reduce(x, b, norm_weight=weight, scale_out=s), "scale_out without")
        wrong = {"norm_out": torch.empty_like(y), "scale_out": scale.expand(2, 3, 8)}
        for name, tensor_out in wrong.items():
            for made_by in (
                lambda n=name, t=tensor_out: tt.matmul_all_reduce(x, b, **options, **{n: t}),
                lambda n=name, t=tensor_out: quantise(
                    y, weight, EPS, dtype, *(t if which == n else None for which in ("norm_out", "scale_out"))
                ),
            ):
                refused(made_by, f"{name} is ")
        zeros = tt.all_reduce_add_rms_norm(y * 0, y * 0, weight, norm_dtype=dtype)
        equal(zeros[2], torch.ones_like(scale))

    def compiled(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y, normed, scale = tt.all_reduce_add_rms_norm(x, r, w, norm_dtype=torch.int8)
        return y + normed.float() * scale

    given = tensor(rank, 6, 24), tensor(9, 6, 24), weights()[0]
    equal(torch.compile(compiled, backend="aot_eager", fullgraph=True)(*given), compiled(*given))
    x, residual, weight = given[0], given[1].clone(), given[2]
    scales = torch.empty(6, 1)
    quantised = allreduce_fusion(
        x, None, 10, residual_in=residual, residual_out=residual, rms_gamma=weight, scale_out=scales
    )
    first = tt.all_reduce_add_rms_norm(x, given[1], weight, norm_dtype=torch.float8_e4m3fn)
    equal(quantised.float(), first[1].float())
    equal(scales, first[2])


def dynamic_batch() -> None:
    """Another number of rows in each step: after a first round of all numbers no operator is made any more."""
    rank, size = dist.get_rank(), dist.get_world_size()
    most, weight = 8, weights()[0]
    x, b, residual = tensor(1 + rank, most, 12), tensor(20 + rank, 12, 24), tensor(9, most, 24)
    whole = sum(tensor(1 + r, most, 12) @ tensor(20 + r, 12, 24) for r in range(size)) + residual

    def step(rows: int) -> None:
        y, normed = tt.matmul_all_reduce(x[:rows], b, residual=residual[:rows], norm_weight=weight, eps=EPS)
        near(y, whole[:rows])
        near(normed, rms_norm(y, (24,), weight, EPS))

    for rows in range(1, most + 1):
        step(rows)
    made = sorted(tt.cached())
    for turn in range(40):
        step(1 + turn * 5 % most)
    assert sorted(tt.cached()) == made, tt.cached()


def autocast_and_warmup() -> None:
    """Weights of fp32 under autocast, and operators that are made in advance."""
    x, r, (weight, bias) = tensor(1, 6, 24).bfloat16(), tensor(9, 6, 24), weights()
    with torch.autocast("cpu", torch.bfloat16):
        for requires in (False, True):
            y, normed = tt.all_reduce_add_rms_norm(x.clone().requires_grad_(requires), r, weight, eps=EPS)
            assert y.dtype == normed.dtype == torch.bfloat16
            given = tensor(1, 6, 24).requires_grad_(requires)
            _, normed = tt.matmul_all_reduce(given, tensor(2, 24, 24), norm_weight=weight, norm_bias=bias, eps=EPS)
            assert normed.dtype == torch.bfloat16
    tt.warmup(tt.all_reduce_add_rms_norm, [(3, 16)], dtype=torch.float32)
    assert tt.cached()[0].startswith("all_reduce 3 x 16"), tt.cached()


def gradients_of_norms() -> None:
    """Gradients are those of PyTorch's norm behind the sum."""
    rank = dist.get_rank()
    grads = []
    for fused in (True, False):
        leaves = [tensor(1 + rank, 6, 12), tensor(20 + rank, 12, 24), tensor(9, 6, 24), weights()[0]]
        x, b, residual, weight = (leaf.requires_grad_() for leaf in leaves)
        if fused:
            y, normed = tt.matmul_all_reduce(x, b, residual=residual, norm_weight=weight, eps=EPS)
            z, last = tt.all_reduce_add_rms_norm(y, residual, weight, eps=EPS)
        else:
            y = tt.matmul_all_reduce(x, b) + residual
            normed = rms_norm(y, (24,), weight, EPS)
            z = tt.all_reduce(y) + residual
            last = rms_norm(z, (24,), weight, EPS)
        (y * normed + z * last).sum().backward()
        grads.append([leaf.grad for leaf in leaves])
    for got, want in zip(*grads, strict=True):
        near(got, want)


def flashinfer_arguments() -> None:
    """FlashInfer's call, in place as engines make it; the patterns that tilewire lacks are refused by name."""
    rank, size = dist.get_rank(), dist.get_world_size()
    x, residual, (weight, _) = tensor(1 + rank, 6, 24), tensor(9, 6, 24), weights()
    total = sum(tensor(1 + r, 6, 24) for r in range(size))
    equal(allreduce_fusion(x, None, 0, True, True), total)
    norm_out = torch.empty_like(x)
    got = allreduce_fusion(
        input=x,
        workspace=None,
        pattern=1,
        residual_in=residual,
        residual_out=residual,
        norm_out=norm_out,
        rms_gamma=weight,
        rms_eps=EPS,
        use_oneshot=True,
        fp32_acc=True,
        quant_out=None,
    )
    assert got is norm_out
    equal(residual, total + tensor(9, 6, 24))
    near(norm_out, rms_norm(residual, (24,), weight, EPS))
    for call, text in (
        (lambda: allreduce_fusion(x, None, 3), "pattern kARResidualRMSNormFP4Quant"),
        (lambda: allreduce_fusion(x, None, 11), "pattern kARResidualRMSNormOutDynamicFP8Quant"),
        (lambda: allreduce_fusion(x, None, 10, norm_out=x), "allreduce_fusion with norm_out"),
        (lambda: allreduce_fusion(x, None, 10, residual_in=residual, rms_gamma=weight), "without scale_out"),
        (lambda: allreduce_fusion(x, None, 99), "pattern 99"),
        (lambda: allreduce_fusion(x, None, 0, rms_gamma=weight), "allreduce_fusion with rms_gamma"),
        (lambda: allreduce_fusion(x, None, 0, scale_out=x), "allreduce_fusion with scale_out"),
        (lambda: allreduce_fusion(x, None, 1, rms_gamma=weight), "without residual_in or rms_gamma"),
    ):
        refused(call, text)


def misuse_of_norms() -> None:
    x, b, (weight, bias) = tensor(1, 6, 12), tensor(2, 12, 24), weights()
    leaf = x.clone().requires_grad_()
    direct, name = torch.ops.tilewire.all_reduce_norm, tt._teams.group_name(None)
    for call, text in (
        (lambda: direct(leaf, name, weight[:12])[1].sum().backward(), "tilewire.all_reduce_norm has no gradient"),
        (lambda: tt.matmul_all_reduce(x, b, norm_weight=weight, eps=0.0), "norm: eps = 0: want more than 0"),
        (lambda: tt.matmul_all_reduce(x, b, norm_weight=weight[:20]), "input norm_weight is 1 x 20, must be 1 x 24"),
        (lambda: tt.matmul_all_reduce(x, b, norm_weight=weight.bfloat16()), "x and norm_weight are of different types"),
        (lambda: tt.matmul_all_reduce(x, b, norm_weight=weight[None]), "norm_weight has 2 dimensions, want 1"),
        (lambda: tt.matmul_all_reduce(x, b, norm_bias=bias), "norm_bias, norm_dtype, norm_out or scale_out without"),
        (lambda: tt.matmul_all_reduce(leaf, b, norm_weight=weight, norm_out=x), "out= excludes a gradient"),
        (lambda: tt.matmul_all_reduce(leaf, b, norm_weight=weight, eps=-1.0), "norm: eps = -1: want more than 0"),
        (lambda: tt.matmul_all_reduce(leaf, b, norm_weight=weight[:3]), "norm_weight is torch.float32 [3], want"),
        (lambda: tt.all_reduce_add_rms_norm(leaf, x[:1], weight[:12]), "residual is torch.float32 [1, 12], want"),
        (lambda: tt.all_reduce_add_rms_norm(x, x[:3], weight[:12]), "residual"),
        (lambda: tt.matmul_all_reduce(x, b, norm_weight=weight, norm_dtype=torch.int32), "norm_dtype = torch.int32"),
        (lambda: tt.matmul_all_reduce(leaf, b, norm_weight=weight, norm_dtype=torch.int8), "excludes a gradient"),
        (
            lambda: tt.matmul_all_reduce(x, b, norm_weight=weight, norm_bias=bias, norm_dtype=torch.int8),
            "a LayerNorm is not quantised",
        ),
    ):
        refused(call, text)


def refused(call: object, text: str) -> None:
    try:
        call()  # type: ignore[operator]
    except tilewire.Error as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"nothing is said of {text}")
