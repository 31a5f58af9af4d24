#!/usr/bin/env bash
# Runs the GPU tests, then the benchmarks, of a build on a host with GPUs; writes JSON. Called by whoever changes src/backends/cuda.
# Some twelve minutes on four H200, four with --quick (the sum of its parts, each of which was run).
# Usage: bench/gpu_check.sh BUILD_FOLDER RESULT_FOLDER [--quick]
set -uo pipefail
build=${1:?usage: bench/gpu_check.sh BUILD_FOLDER RESULT_FOLDER [--quick]}
results=${2:?usage: bench/gpu_check.sh BUILD_FOLDER RESULT_FOLDER [--quick]}
quick=${3:-}
mkdir -p "$results"
failed=0
gpus=$(nvidia-smi -L | wc -l)
[[ $gpus -gt 0 ]] || { echo "no GPU here: nothing was checked"; exit 1; }

# A test's last lines, and its log in the results.
check() {
  local name=$1
  shift
  "$@" >"$results/$name.log" 2>&1
  local code=$?
  if [[ $code -eq 0 ]]; then
    echo "passed  $name"
  else
    failed=$((failed + 1))
    echo "FAILED  $name (exit code $code), see $results/$name.log"
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

if [[ -n $quick ]]; then
  check operators "$build/tests/cuda/cuda_operators" --gtest_filter='-*OfTheLibrary*'
  check calls env TILEWIRE_REPLAYS=100 "$build/tests/cuda/cuda_calls"
else
  check operators "$build/tests/cuda/cuda_operators"
  check calls "$build/tests/cuda/cuda_calls"
  check calls_one_connection env CUDA_DEVICE_MAX_CONNECTIONS=1 TILEWIRE_REPLAYS=200 "$build/tests/cuda/cuda_calls"
  check failures "$build/tests/cuda/cuda_failures"
  check group "$build/tests/cuda/cuda_group"
fi
check traces "$build/tests/cuda/cuda_traces"
check gemm_tiles "$build/tests/cuda/cuda_gemm_tiles"
# Configs are each schedule's own choice for GPUs; the large shapes are peers.py's.
if [[ $gpus -gt 1 ]]; then
  measure verified_ag all_gather_gemm -m 2048 -n 2048 -k 2048
  measure verified_rs gemm_reduce_scatter -m 2048 -n 2048 -k 2048
  measure verified_ar gemm_all_reduce -m 1024 -n 2048 -k 2048
fi
check cuda_gemm "$build/bench/bench_cuda_gemm" --json "$results/cuda_gemm.json"
tail -15 "$results/cuda_gemm.log" | cut -c1-80
if [[ $gpus -gt 1 ]] && python3 -c 'import torch' 2>/dev/null; then
  check peers torchrun --nproc-per-node "$gpus" "$(dirname "$0")/peers.py" --library "$build/lib/libtilewire_c.so" \
    --graphs --turns 21 --json "$results/peers.json"
  grep -E '^(all|gemm)_|met|MISSED' "$results/peers.log" | cut -c1-150
else
  echo "skipped peers: one GPU, or no torch"
fi
if [[ $gpus -gt 1 && -z $quick ]]; then
  check ablations "$(dirname "$0")/ablations.py" --ranks "$gpus" --command "$build/bin/tilewire" --iters 7 \
    --json "$results/ablations.json"
fi
echo "$failed failed"
[[ $failed -eq 0 ]]
