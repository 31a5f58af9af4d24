"""The configs of tilewire to measure for a shape on GPUs: those of `tilewire plan --candidates`.

Used by bench/peers.py. Needs neither torch nor a GPU, but the command `tilewire`.
"""
import json
import subprocess

OPERATORS = {"ag": "all_gather_gemm", "rs": "gemm_reduce_scatter", "ar": "gemm_all_reduce"}


def candidates(command, kind, m, n, k, ranks, all_of_them=False):
    """Configs for "ag", "rs" or "ar" of `m` rows, `n` columns and depth `k`, over all ranks: those that `auto`
    measures on `ranks` H200, or all candidates. Throws ValueError if the command fails."""
    if ranks not in (1, 2, 4, 8):
        raise ValueError(f"{ranks} GPUs: lists are known for 1, 2, 4 and 8; name configs with --config")
    ran = subprocess.run([command, "plan", OPERATORS[kind], "-m", str(m), "-n", str(n), "-k", str(k), "--dtype", "bf16",
                          "--reduction", "any", "--target", f"h200x{ranks}", "--candidates", "--json", "-"],
                         check=False, capture_output=True, text=True)
    if ran.returncode != 0:
        raise ValueError(f"{command}: {ran.stderr.strip()}")
    # NOTE: calls of cuBLAS and NCCL are measured separately.
    is_ours = lambda config: config.get("collective") != "library"
    return [one["config"] for one in json.loads(ran.stdout)[0]["candidates"]
            if (all_of_them or one["measured"]) and is_ours(one["config"])]


def name_of(config):
    """A config as short text: its knobs, or "auto"."""
    if isinstance(config, str):
        return config
    return " ".join(f"{knob}={value}" for knob, value in config.items())
