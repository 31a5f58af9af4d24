#!/usr/bin/env bash
# Installs what is missing, builds the command `tilewire`, and runs `tilewire demo`: overlap on CPU ranks and on
# simulated GPUs, in a page of text and in report.html. The cuda backend is built only where a GPU is at hand
# (TILEWIRE_CUDA=ON or OFF decides otherwise).
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
