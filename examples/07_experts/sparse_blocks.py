#!/usr/bin/env python3
"""Spreads the experts of a Mixtral and of a Qwen3-MoE block over ranks, and compares with transformers.

  pip install transformers
  torchrun --nproc-per-node 2 examples/07_experts/sparse_blocks.py                 # CPU ranks, or GPUs where there are
  torchrun --nproc-per-node 2 examples/07_experts/sparse_blocks.py --hidden 2048 --wide 768 --tokens 512 --compile

The blocks have random weights. Each rank has its own tokens, the whole router, and a part of the experts. Prints for
each block the largest difference from the output of transformers, and fails if it is too large. Without transformers
there is nothing to compare with: then the program says so, and ends with exit code 0.
"""

from __future__ import annotations

import argparse
import importlib.util
import os

import torch
import torch.distributed as dist
from torch import Tensor, nn

import tilewire.torch as tt

Device = torch.device


def make_blocks(hidden: int, wide: int, experts: int, top_k: int) -> dict[str, nn.Module]:
    """The sparse blocks of both models, by name, with small random weights that are the same on all ranks."""
    from transformers import MixtralConfig, Qwen3MoeConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

    same = {"hidden_size": hidden, "num_experts_per_tok": top_k, "experts_implementation": "eager"}
    mixtral = MixtralConfig(intermediate_size=wide, num_local_experts=experts, **same)
    qwen3 = Qwen3MoeConfig(moe_intermediate_size=wide, num_experts=experts, norm_topk_prob=True, **same)
    blocks = {"Mixtral": MixtralSparseMoeBlock(mixtral), "Qwen3-MoE": Qwen3MoeSparseMoeBlock(qwen3)}
    torch.manual_seed(1)
    for block in blocks.values():
        for weight in block.parameters():
            nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
    return blocks


def weights_of(block: nn.Module) -> tuple[Tensor, Tensor]:
    """The weights of all experts as `tt.moe` takes them: gate over up [experts, 2 wide, hidden], and down."""
    experts = block.experts
    if not isinstance(experts, nn.ModuleList):  # transformers 5 has them in this layout
        return experts.gate_up_proj, experts.down_proj
    gate, up, down = ("w1", "w3", "w2") if hasattr(experts[0], "w1") else ("gate_proj", "up_proj", "down_proj")
    w13 = [torch.cat([expert.get_submodule(name).weight for name in (gate, up)]) for expert in experts]
    return torch.stack(w13), torch.stack([expert.get_submodule(down).weight for expert in experts])


class SpreadBlock(nn.Module):
    """A sparse block of transformers whose experts are spread over the ranks; takes and returns this rank's tokens."""

    def __init__(self, block: nn.Module) -> None:
        """Keep the whole router, and copy this rank's experts: rank 0 has the first ones."""
        super().__init__()
        self.gate, self.top_k = block.gate, getattr(block, "top_k", None)
        self.normalises = getattr(block, "norm_topk_prob", True)  # Mixtral always does
        rank, size = dist.get_rank(), dist.get_world_size()
        w13, w2 = (weight.chunk(size)[rank].detach().clone() for weight in weights_of(block))
        self.register_buffer("w13", w13)
        self.register_buffer("w2", w2)

    def _route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Ids and weights of each token's experts, [tokens, top_k]."""
        routed = self.gate(x)
        if isinstance(routed, tuple):  # the router of transformers 5 chooses
            _, weights, ids = routed
            return ids, weights
        # The router of transformers 4 is a Linear layer, and the block chooses.
        weights, ids = routed.softmax(-1, dtype=torch.float32).topk(self.top_k)
        if self.normalises:
            weights = weights / weights.sum(-1, keepdim=True)
        return ids, weights.to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """The weighted sum of each token's experts, on whatever rank they are."""
        rows = x.reshape(-1, x.shape[-1])
        ids, weights = self._route(rows)
        return tt.moe(rows, ids, weights, self.w13, self.w2).reshape(x.shape)


def main() -> None:
    """Compare both blocks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--wide", type=int, default=96, help="features between the two products of an expert")
    parser.add_argument("--experts", type=int, default=4, help="of each rank")
    parser.add_argument("--top-k", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=32, help="of each rank")
    parser.add_argument("--compile", action="store_true", help="compile the spread blocks by torch.compile, too")
    options = parser.parse_args()
    if importlib.util.find_spec("transformers") is None:
        if os.environ["RANK"] == "0":
            print("skipped: transformers is not installed (pip install transformers)", flush=True)
        return
    on_gpu = torch.cuda.is_available()
    device = Device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else Device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    dtype = torch.bfloat16 if on_gpu else torch.float32
    blocks = make_blocks(options.hidden, options.wide, options.experts * size, options.top_k)
    torch.manual_seed(2 + rank)
    x = torch.randn(2, options.tokens // 2, options.hidden, device=device, dtype=dtype)

    for name, block in blocks.items():
        block = block.to(device, dtype).eval()
        spread = SpreadBlock(block)
        # NOTE: tt.moe has no gradient.
        with torch.no_grad():
            want = block(x)
            want = want[0] if isinstance(want, tuple) else want  # transformers 4 returns the router's logits, too
            results = {"eager": spread(x)}
            if options.compile:
                results["compiled"] = torch.compile(spread, fullgraph=True)(x)
        for how, got in results.items():
            apart = torch.stack([(got - want).abs().max(), want.abs().max()]).float()
            dist.all_reduce(apart, dist.ReduceOp.MAX)
            difference, largest = apart.tolist()
            if rank == 0:
                text = f"{options.experts * size} experts on {size} ranks, {how}"
                print(f"{name}: {text}: largest difference {difference:.1e} of {largest:.2f}", flush=True)
            assert difference <= (2e-2 if on_gpu else 1e-5) * largest, (name, how, difference, largest)
    tt.clear()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
