#!/usr/bin/env bash
# Runs the GPU tests, then the benchmarks, of a build on a host with GPUs; writes JSON. Called by whoever changes src/backends/cuda.
# Usage: bench/gpu_check.sh BUILD_FOLDER RESULT_FOLDER [--quick]
set -uo pipefail
build=${1:?usage: bench/gpu_check.sh BUILD_FOLDER RESULT_FOLDER [--quick]}
results=${2:?usage: bench/gpu_check.sh BUILD_FOLDER RESULT_FOLDER [--quick]}
quick=${3:-}
tests=$build/tests/cuda
mkdir -p "$results"
summary=$results/summary.txt
: >"$summary"
begin=$SECONDS
gpus=$(nvidia-smi -L | wc -l)
[[ $gpus -gt 0 ]] || { echo "no GPU here: nothing was checked"; exit 1; }

say() { echo "$*" | tee -a "$summary"; }

# A test's last lines, and its log in the results.
check() {
  local name=$1 start=$SECONDS
  shift
  "$@" >"$results/$name.log" 2>&1
  local code=$?
  if [[ $code -eq 0 ]]; then
    say "passed  $name ($((SECONDS - start)) s)"
  else
    say "FAILED  $name (exit code $code), see $results/$name.log"
    grep -m3 -A6 -E "Failure|FAILED" "$results/$name.log" | cut -c1-200
  fi
}

# One row of the benchmark: name, then what `tilewire bench` is told.
measure() {
  local name=$1
  shift
  "$build/bin/tilewire" bench "$@" --backend cuda --ranks "$gpus" --dtype bf16 --iters 21 --warmup 3 \
    --json "$results/$name.json" 2>"$results/$name.err" | grep -E '^(all|gemm)_'
  [[ -s $results/$name.json ]] || say "FAILED  $name: $(tail -1 "$results/$name.err")"
}

# What needs no more than two GPUs: halves of the host work side by side, where it has four.
kernel_and_calls() {
  check gemm_tiles "$tests/cuda_gemm_tiles"
  check calls_one_connection env CUDA_DEVICE_MAX_CONNECTIONS=1 TILEWIRE_REPLAYS=100 "$tests/cuda_calls"
  check group "$tests/cuda_group"
}

if [[ -n $quick ]]; then
  check gemm_tiles "$tests/cuda_gemm_tiles" --small
  check operators "$tests/cuda_operators" --gtest_filter='*KnobsOnTensorCores*:*RepeatableSums*'
  check calls env TILEWIRE_REPLAYS=50 "$tests/cuda_calls" --gtest_filter='*/processes:*/ranks_on_one_gpu'
else
  IFS=, read -ra visible <<<"${CUDA_VISIBLE_DEVICES:-$(seq -s, 0 $((gpus - 1)))}"
  if [[ ${#visible[@]} -ge 4 ]]; then
    (export CUDA_VISIBLE_DEVICES=${visible[0]},${visible[1]}; kernel_and_calls) &
    (export CUDA_VISIBLE_DEVICES=${visible[2]},${visible[3]}; check failures "$tests/cuda_failures")
    wait
  else
    kernel_and_calls
    check failures "$tests/cuda_failures"
  fi
  check calls "$tests/cuda_calls"
  check operators "$tests/cuda_operators"
  check traces "$tests/cuda_traces"
fi
# Configs are each schedule's own choice for GPUs; the large shapes are peers.py's.
if [[ $gpus -gt 1 ]]; then
  measure verified_ag all_gather_gemm -m 2048 -n 2048 -k 2048
  measure verified_rs gemm_reduce_scatter -m 2048 -n 2048 -k 2048
  measure verified_ar gemm_all_reduce -m 1024 -n 2048 -k 2048
  # What a trace costs: total_us and traced_us of the first row.
  measure traced gemm_reduce_scatter -m 8192 -n 8192 -k 8192 --schedule fused --set tile_m=128 --set tile_n=256 \
    --set cluster_m=2 --set group_m=16 --set transport=tma --no-verify --trace "$results/trace.json"
fi
if [[ -z $quick ]]; then
  check cuda_gemm "$build/bench/bench_cuda_gemm" --json "$results/cuda_gemm.json"
  tail -15 "$results/cuda_gemm.log" | cut -c1-80
fi
if [[ $gpus -gt 1 ]] && python3 -c 'import torch' 2>/dev/null; then
  check peers torchrun --nproc-per-node "$gpus" "$(dirname "$0")/peers.py" --library "$build/lib/libtilewire_c.so" \
    --graphs --turns "$([[ -n $quick ]] && echo 5 || echo 21)" --json "$results/peers.json"
  grep -E '^(all|gemm)_|met|MISSED' "$results/peers.log" | cut -c1-150
else
  echo "skipped peers: one GPU, or no torch"
fi
if [[ $gpus -gt 1 && -z $quick ]]; then
  check ablations "$(dirname "$0")/ablations.py" --ranks "$gpus" --command "$build/bin/tilewire" --iters 7 \
    --json "$results/ablations.json"
fi
failed=$(grep -c ^FAILED "$summary")
echo "$failed failed, $((SECONDS - begin)) s"
[[ $failed -eq 0 ]]
