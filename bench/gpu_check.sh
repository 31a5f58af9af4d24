#!/usr/bin/env bash
# Runs the GPU tests, then the benchmarks, of a build on a host with GPUs; writes JSON. Called by whoever changes src/backends/cuda.
# Usage: bench/gpu_check.sh BUILD_FOLDER RESULT_FOLDER [--quick]
set -uo pipefail
build=${1:?usage: bench/gpu_check.sh BUILD_FOLDER RESULT_FOLDER [--quick]}
results=${2:?usage: bench/gpu_check.sh BUILD_FOLDER RESULT_FOLDER [--quick]}
quick=${3:-}
mkdir -p "$results"
failed=0
gpus=$(nvidia-smi -L | wc -l)

# A test's last lines, and its log in the results.
check() {
  local name=$1
  shift
  if "$@" >"$results/$name.log" 2>&1; then
    echo "passed  $name"
  else
    failed=$((failed + 1))
    echo "FAILED  $name (exit code $?), see $results/$name.log"
    grep -m3 -A6 -E "Failure|FAILED" "$results/$name.log" | cut -c1-200
  fi
}

# One row of the benchmark: name, then what `tilewire bench` is told.
measure() {
  local name=$1
  shift
  "$build/bin/tilewire" bench "$@" --backend cuda --ranks "$gpus" --dtype bf16 --iters 21 --warmup 3 \
    --json "$results/$name.json" 2>"$results/$name.err" | grep -E '^(all|gemm)_'
  [[ -s $results/$name.json ]] || { tail -1 "$results/$name.err"; failed=$((failed + 1)); }
}

check operators "$build/tests/cuda/cuda_operators"
check calls "$build/tests/cuda/cuda_calls"
check calls_one_connection env CUDA_DEVICE_MAX_CONNECTIONS=1 "$build/tests/cuda/cuda_calls"
check traces "$build/tests/cuda/cuda_traces"
check failures "$build/tests/cuda/cuda_failures"
if [[ -z $quick ]]; then
  check group "$build/tests/cuda/cuda_group"
  check gemm_tiles "$build/tests/cuda/cuda_gemm_tiles"
fi
# Configs are each schedule's own choice for GPUs.
if [[ $gpus -gt 1 ]]; then
  measure verified_ag all_gather_gemm -m 2048 -n 2048 -k 2048
  measure verified_rs gemm_reduce_scatter -m 2048 -n 2048 -k 2048
  measure verified_ar gemm_all_reduce -m 1024 -n 2048 -k 2048
  measure ag_8192_10240_8192 all_gather_gemm -m 8192 -n 10240 -k 8192 --schedule fused --no-verify
  measure ag_8192_49152_12288 all_gather_gemm -m 8192 -n 49152 -k 12288 --schedule fused --no-verify
  measure ag_1024_49152_12288 all_gather_gemm -m 1024 -n 49152 -k 12288 --schedule fused --no-verify
  measure rs_8192_8192_8192 gemm_reduce_scatter -m 8192 -n 8192 -k 8192 --schedule fused --no-verify
  measure rs_8192_8192_28672 gemm_reduce_scatter -m 8192 -n 8192 -k 28672 --schedule fused --no-verify
  measure rs_8192_12288_49152 gemm_reduce_scatter -m 8192 -n 12288 -k 49152 --schedule fused --no-verify
  measure ar_1024_8192_8192 gemm_all_reduce -m 1024 -n 8192 -k 8192 --schedule fused --arena c --no-verify
fi
if [[ $gpus -gt 1 && -z $quick ]] && python3 -c 'import torch' 2>/dev/null; then
  check peers torchrun --nproc-per-node "$gpus" "$(dirname "$0")/peers.py" --library "$build/lib/libtilewire_c.so" \
    --graphs --json "$results/peers.json"
  grep -vE '^(W|\*)' "$results/peers.log" | cut -c1-180
fi
echo "$failed failed"
[[ $failed -eq 0 ]]
