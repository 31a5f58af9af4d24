#!/usr/bin/env bash
# Installs what is missing, builds the command `tilewire`, and runs `tilewire demo`: overlap on CPU ranks and on
# simulated
# GPUs, as a page of text and as report.html. The cuda backend is built only if there is a GPU; TILEWIRE_CUDA=ON or OFF
# overrides this.
# Usage: tools/try.sh [flags of tilewire demo]
set -euo pipefail
cd "$(dirname "$0")/.."

tools/install_deps.sh build
cuda=OFF
nvidia-smi -L >/dev/null 2>&1 && cuda=AUTO
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "building the command tilewire: two to three minutes"
{
  cmake --preset try -DTILEWIRE_CUDA="${TILEWIRE_CUDA:-$cuda}" && cmake --build --preset try --target tilewire_cli
} >"$log" 2>&1 || { cat "$log"; exit 1; }
echo
build/try/bin/tilewire demo "$@"
