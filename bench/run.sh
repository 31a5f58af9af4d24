#!/usr/bin/env bash
# Builds the benchmarks, runs them one after another on an otherwise idle machine, and writes bench/results/*.json.
# Usage: bench/run.sh [benchmark ...]
set -euo pipefail
cd "$(dirname "$0")/.."

all=(host_machinery make_op memory host_overlap)
chosen=("$@")
[[ $# -eq 0 ]] && chosen=("${all[@]}")
tools/install_deps.sh build
cmake --preset release -DTILEWIRE_BENCH=ON -DTILEWIRE_STUDIES=OFF >/dev/null
cmake --build --preset release --target "${chosen[@]/#/bench_}" -- --quiet

TILEWIRE_COMMIT=$(git describe --always --dirty 2>/dev/null || echo unknown)
export TILEWIRE_COMMIT
mkdir -p bench/results
for name in "${chosen[@]}"; do
  echo "== $name"
  "build/release/bench/bench_$name" --json "bench/results/$name.json"
  bench/result_files.py "bench/results/$name.json"
done
