#!/usr/bin/env bash
# Installs what is missing, builds tilewire, and runs its main job on this machine: two operators on 4 CPU
# ranks with the layer shapes of Llama 3 70B, each schedule checked against the reference.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/install_deps.sh build
cmake --preset release -DTILEWIRE_TESTS=OFF -DTILEWIRE_BENCH=OFF -DTILEWIRE_STUDIES=OFF -DCMAKE_UNITY_BUILD=ON >build.log 2>&1 || { cat build.log; exit 1; }
cmake --build --preset release --target tilewire_cli -- --quiet
rm -f build.log

exec build/release/bin/tilewire bench all_gather_gemm gemm_reduce_scatter --backend host --ranks 4 \
  --model llama3-70b --tokens 256 --schedule all --json bench.json --trace trace.json "$@"
