#!/usr/bin/env bash
# Runs the GPU tests, then the benchmarks, of a build on a host with GPUs; writes JSON. Called after changes of
# src/backends/cuda.
# Usage: bench/gpu_check.sh BUILD_FOLDER RESULT_FOLDER [--quick] [--only tests|benchmarks|ablations]
# Ablations (about a minute and a half on four GPUs) run only on request; --quick does not affect them.
set -uo pipefail
usage="usage: bench/gpu_check.sh BUILD_FOLDER RESULT_FOLDER [--quick] [--only tests|benchmarks|ablations]"
build=${1:?$usage}
results=${2:?$usage}
shift 2
quick=
parts="tests benchmarks"
while [[ $# -gt 0 ]]; do
  case $1 in
    --quick) quick=yes ;;
    --only) parts=${2:?$usage}; shift ;;
    *) echo "$usage" >&2; exit 2 ;;
  esac
  shift
done
[[ $parts == "tests benchmarks" || $parts =~ ^(tests|benchmarks|ablations)$ ]] || { echo "$usage" >&2; exit 2; }
tests=$build/tests/cuda
[[ $build != *" "* ]] || { echo "a build folder without spaces, please: $build" >&2; exit 2; }
mkdir -p "$results"
summary=$results/summary.txt
: >"$summary"
gpus=$(nvidia-smi -L | wc -l)
[[ $gpus -gt 0 ]] || { echo "no GPU here: nothing was checked"; exit 1; }
IFS=, read -ra visible <<<"${CUDA_VISIBLE_DEVICES:-$(seq -s, 0 $((gpus - 1)))}"
gpus=${#visible[@]}

say() { echo "$*" | tee -a "$summary"; }

# Run a test, print its last lines, and keep its log in the results.
check() {
  local name=$1 start=$SECONDS
  shift
  "$@" >"$results/$name.log" 2>&1
  local code=$?
  local passed skipped
  passed=$(sed -n 's/.*\(\[  PASSED  \].*\)/ \1/p' "$results/$name.log" | tail -1)
  skipped=$(sed -n 's/.*\[  SKIPPED \] \([0-9]* tests\?\),.*/, \1 skipped/p' "$results/$name.log" | tail -1)
  if [[ $code -eq 0 && $passed == *"] 0 tests"* ]]; then
    say "FAILED  $name: no test ran$skipped"
  elif [[ $code -eq 0 ]]; then
    say "passed  $name ($((SECONDS - start)) s)$passed$skipped"
  else
    say "FAILED  $name (exit code $code), see $results/$name.log"
    grep -m3 -A6 -E "Failure|FAILED" "$results/$name.log" | cut -c1-200
  fi
}

# The same on some of the GPUs: their numbers, as "0 1".
check_on() {
  local some=() number
  for number in $1; do some+=("${visible[$number]}"); done
  CUDA_VISIBLE_DEVICES=$(IFS=,; echo "${some[*]}") check "${@:2}"
}

# One row of the benchmark: its name, then the arguments of `tilewire bench`.
measure() {
  local name=$1
  shift
  "$build/bin/tilewire" bench "$@" --backend cuda --ranks "$gpus" --dtype bf16 --iters 21 --warmup 3 \
    --json "$results/$name.json" >"$results/$name.log" 2>"$results/$name.err" || say "FAILED  $name: $(tail -1 "$results/$name.err")"
  grep -E '^(all|gemm)_' "$results/$name.log"
}

# Print the number in a file, and add one to it for the next call.
take() {
  flock "$1" bash -c 'n=$(<"$0"); echo $((n + 1)) >"$0"; echo "$n"' "$1"
}

# Run jobs, each a name and a command in words, on GPUs ("0 1 2 3"): each GPU takes the next job when it is free.
spread() {
  local on gpu next
  read -ra on <<<"$1"
  shift
  next=$(mktemp)
  echo 1 >"$next"
  for gpu in "${on[@]}"; do
    (
      set -f
      while job=$(take "$next") && [[ $job -le $# ]]; do
        # shellcheck disable=SC2086
        check_on "$gpu" ${!job}
      done
    ) &
  done
  wait
  rm -f "$next"
}

# Run the same jobs all at once on the same GPUs.
together() {
  local shared=$1 job
  shift
  for job in "$@"; do
    # shellcheck disable=SC2086
    (set -f; check_on "$shared" $job) &
  done
  wait
}

# A test in $2 parts, as jobs for spread; $3: its filter, $4: the parts' name.
parts_of() {
  local part
  for ((part = 0; part < $2; ++part)); do
    echo "${4:-$1}_$part env GTEST_TOTAL_SHARDS=$2 GTEST_SHARD_INDEX=$part $tests/cuda_$1 --gtest_filter=${3:-*}"
  done
}

# The kernels alone, and operators whose ranks share a GPU, under compute-sanitizer's tool $1, as jobs for spread.
sanitized() {
  local sanitizer program
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1)
  [[ -n $sanitizer ]] || { say "FAILED  $1: no compute-sanitizer here" >&2; return; }
  for program in gemm_cluster_split_k gemm_tiles gemm_groups gemm_places; do
    echo "$1_$program $sanitizer --tool $1 --error-exitcode 1 $tests/cuda_$program --small"
  done
  echo "$1_operators $sanitizer --tool $1 --error-exitcode 1 $tests/cuda_operators --gtest_filter=*ForSanitizers*2_ranks"
}

# The filter for some of the operators' tests, with so many ranks. A name without a test is a failure.
filter_of() {
  local ranks=$1 name filter=
  shift
  for name in "$@"; do
    "$tests/cuda_operators" --gtest_list_tests --gtest_filter="*$name*_${ranks}_ranks" | grep -q _ranks ||
      say "FAILED  operators: no test is called $name" >&2
    filter+="*$name*_${ranks}_ranks:"
  done
  echo "$filter"
}

# Two functions on half of the GPUs each; one after the other if there are no halves.
side_by_side() {
  if [[ $gpus -ge 4 ]]; then
    "$1" &
    "$2" &
    wait
  else
    "$1"
    "$2"
  fi
}

# Uses variables of run_tests.
run_quick_tests() {
  mapfile -t jobs < <(
    echo "calls_on_one_gpu $calls --gtest_filter=*/ranks_on_one_gpu"
    for program in gemm_tiles gemm_cluster_split_k gemm_groups; do echo "$program $tests/cuda_$program --small"; done
    echo "gemm_places $tests/cuda_gemm_places"
  )
  spread "$all" "${jobs[@]}"
  quick_operators() {
    check_on "$first" operators "$tests/cuda_operators" \
      --gtest_filter="$(filter_of 1 KnobsOnTensorCores)$(filter_of 2 KnobsOnTensorCores)*RepeatableSums*"
  }
  # shellcheck disable=SC2086
  quick_calls() { [[ $gpus -lt 2 ]] || check_on "$second" calls $calls --gtest_filter='*/processes'; }
  side_by_side quick_operators quick_calls
  check operators_of_four "$tests/cuda_operators" --gtest_filter="$(filter_of 4 KnobsOnTensorCores)"
}

run_tests() {
  local all jobs on_one_gpu="*/one_rank:*/ranks_on_one_gpu"
  local calls="env TILEWIRE_REPLAYS=50 $tests/cuda_calls"
  local one_connection="env CUDA_DEVICE_MAX_CONNECTIONS=1 $calls"
  all=$(seq -s " " 0 $((gpus - 1)))
  # Halves of the host for tests that need two GPUs; side by side if the host has four.
  local first=$all second=$all
  [[ $gpus -ge 2 ]] && first="0 1" second="0 1"
  [[ $gpus -ge 4 ]] && second="2 3"
  if [[ -n $quick ]]; then
    run_quick_tests
    return
  fi
  # Tests that need one GPU, the longest first. Tests that check neither times nor a GPU's memory: two jobs on each.
  mapfile -t jobs < <(
    parts_of operators $((2 * gpus))
    sanitized racecheck
    for program in gemm_tiles gemm_cluster_split_k gemm_groups gemm_places; do echo "$program $tests/cuda_$program"; done
    sanitized memcheck
  )
  spread "$all $all" "${jobs[@]}"
  mapfile -t jobs < <(
    echo "calls_on_one_gpu $calls --gtest_filter=$on_one_gpu"
    echo "calls_one_connection_on_one_gpu $one_connection --gtest_filter=$on_one_gpu"
    echo "host_side_on_one_gpu $tests/cuda_host_side --gtest_filter=$on_one_gpu"
    echo "traces_on_one_gpu $tests/cuda_traces --gtest_filter=$on_one_gpu"
    echo "group_on_one_gpu $tests/cuda_group --gtest_filter=*_on_one_gpu-*ASilentRank*"
  )
  spread "$all" "${jobs[@]}"
  # NOTE: tests that mostly wait for deadlines may share GPUs, except tests that count a GPU's memory.
  local counts_memory='*DeviceMemoryComesBack*:*ANameServesASecondGroup*'
  half_of_failures() {
    # NOTE: leave out tests that always skip, as a part with nothing else is a failure; ten tests are left.
    local parts=10 filter='-*TeamsComeAndGo*:*/one_rank:*Library*/ranks_on_one_gpu:*JoinsACollective*/ranks_on_one_gpu'
    [[ $gpus -eq 1 ]] && parts=1 filter='*/ranks_on_one_gpu-*TeamsComeAndGo*'
    mapfile -t jobs < <(
      parts_of failures "$parts" "$filter"
      echo "group_silent $tests/cuda_group --gtest_filter=*ASilentRank*"
    )
    together "$second" "${jobs[@]}"
    check_on "$second" failures_memory "$tests/cuda_failures" --gtest_filter='*TeamsComeAndGo*'
    [[ $gpus -ge 2 ]] && check_on "$second" host_side "$tests/cuda_host_side" --gtest_filter="-$on_one_gpu"
  }
  half_of_the_rest() {
    # Sums and LL data over links, with two ranks on a GPU each.
    mapfile -t jobs < <(
      echo "group $tests/cuda_group --gtest_filter=-*ASilentRank*:*_on_one_gpu:$counts_memory"
      [[ $gpus -lt 2 ]] || echo "operators_of_two $tests/cuda_operators --gtest_filter=$(filter_of 2 \
        AwkwardShapes SumsDuringLongTiles FlagsTravelWithTheData RepeatableSumsHaveTheSameBits)"
    )
    together "$first" "${jobs[@]}"
    [[ $gpus -ge 2 ]] || return
    check_on "$first" group_memory "$tests/cuda_group" --gtest_filter="$counts_memory-*_on_one_gpu"
    # shellcheck disable=SC2086
    check_on "$first" calls_as_threads $calls --gtest_filter='*/threads_on_their_gpus'
    # shellcheck disable=SC2086
    check_on "$first" calls_one_connection $one_connection --gtest_filter='*/processes'
    check_on "$first" traces "$tests/cuda_traces" --gtest_filter="-$on_one_gpu"
  }
  side_by_side half_of_failures half_of_the_rest
  [[ $gpus -eq 1 ]] && return
  # All GPUs: as many replays as an operator must stand, and a part of the tests that ran in full on halves of four.
  check calls env TILEWIRE_REPLAYS=1000 "$tests/cuda_calls" --gtest_filter='*/processes'
  local ranks=2
  if [[ $gpus -ge 4 ]]; then
    ranks=4
    # shellcheck disable=SC2086
    check calls_of_four_one_connection $one_connection --gtest_filter='*Replays*/processes'
    check host_side_of_four "$tests/cuda_host_side" --gtest_filter='*Auto*/processes:*WrongPointers*/processes'
    check kills_of_four "$tests/cuda_failures" --gtest_filter='*SurvivorsGetDetails*/processes'
  fi
  # All ranks with a GPU each: copy engines, doorbells, peers, and the vendor's libraries. Two parts share the GPUs, as
  # starting ranks takes most of the time.
  mapfile -t jobs < <(parts_of operators 2 "$(filter_of $ranks KnobsOnTensorCores CopyEngines \
    OneCallOfTheLibrary OneCollectiveOfTheLibrary ColumnsAtTheirOwners LayoutsBiasGatheredAndArena TwoLaunches LongRows \
    ManyTilesOfFewWorkers TilesLeave HopsOfARing RowsOfTiles PartsOfK HelperCtas TilesOf160Columns EveryStep SomeTiles)" operators_of_all)
  together "$all" "${jobs[@]}"
}

run_benchmarks() {
  # The configs are each schedule's own choice for GPUs; peers.py measures the large shapes.
  if [[ $gpus -gt 1 ]]; then
    measure verified all_gather_gemm gemm_reduce_scatter gemm_all_reduce gemm_all_to_all gemm_all_to_all_rows \
      -m 2048 -n 2048 -k 2048
    # The cost of a trace: total_us and traced_us of the first row.
    measure traced gemm_reduce_scatter -m 8192 -n 8192 -k 8192 --schedule fused --set tile_m=128 --set tile_n=256 \
      --set cluster_m=2 --set group_m=16 --set transport=tma --no-verify --trace "$results/trace.json"
  fi
  if [[ -z $quick ]]; then
    check cuda_gemm "$build/bench/bench_cuda_gemm" --json "$results/cuda_gemm.json"
    tail -15 "$results/cuda_gemm.log" | cut -c1-110
    check grouped_gemm "$build/bench/bench_grouped_gemm" --json "$results/grouped_gemm.json"
    tail -72 "$results/grouped_gemm.log" | cut -c1-110
  fi
  if [[ $gpus -eq 1 ]]; then
    echo "skipped peers: one GPU"
  elif ! python3 -c 'import torch' 2>/dev/null; then
    say "FAILED  peers: no torch here"
  else
    check peers torchrun --nproc-per-node "$gpus" "$(dirname "$0")/peers.py" --library "$build/lib/libtilewire_c.so" --command "$build/bin/tilewire" \
      --graphs --turns "$([[ -n $quick ]] && echo 5 || echo 21)" --json "$results/peers.json"
    grep -E '^(all|gemm)_|met|MISSED' "$results/peers.log" | cut -c1-150
  fi
}

run_ablations() {
  [[ $gpus -gt 1 ]] || { echo "skipped ablations: one GPU"; return; }
  check ablations "$(dirname "$0")/ablations.py" --ranks "$gpus" --command "$build/bin/tilewire" --iters 7 \
    --json "$results/ablations.json"
}

begin=$SECONDS
for part in $parts; do "run_$part"; done
failed=$(grep -c ^FAILED "$summary")
echo "$failed failed, $((SECONDS - begin)) s"
[[ $failed -eq 0 ]]
