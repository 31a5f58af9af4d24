"""The configs of tilewire that are measured for a shape on GPUs: those of `tilewire plan --candidates`.

Used by bench/peers.py. Needs neither torch nor a GPU, but the command `tilewire`.
"""
import json
import subprocess

OPERATORS = {"ag": "all_gather_gemm", "rs": "gemm_reduce_scatter", "ar": "gemm_all_reduce"}


def candidates(command, kind, m, n, k, ranks, all_of_them=False):
    """Configs for "ag", "rs" or "ar" of `m` rows, `n` columns and depth `k`, over all ranks: those that `auto` measures on
    so many H200, the plain schedule aside; or all candidates."""
    ran = subprocess.run([command, "plan", OPERATORS[kind], "-m", str(m), "-n", str(n), "-k", str(k), "--dtype", "bf16",
                          "--reduction", "any", "--target", f"h200x{ranks}", "--candidates", "--json", "-"],
                         check=True, capture_output=True, text=True)
    listed = json.loads(ran.stdout)[0]["candidates"]
    return [one["config"] for one in listed[1:] if all_of_them or one["measured"]]


def name_of(config):
    """A config in a few words: its knobs, or "auto"."""
    if isinstance(config, str):
        return config
    return " ".join(f"{knob}={value}" for knob, value in config.items())
