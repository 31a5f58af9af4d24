#!/bin/sh
# Kills random ranks at random moments, many times: kill_ranks.sh [rounds, default 200] [build folder, default
# build/release].
# Called by hand before a release; the suite itself does 20 rounds.
set -eu
cd "$(dirname "$0")/.."
build="${2:-build/release}"
[ -f "$build/CMakeCache.txt" ] || cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release
cmake --build "$build" --target faults
TILEWIRE_FAULT_ROUNDS="${1:-200}" exec "$build/tests/faults/faults" --gtest_filter='Faults.AKilledRank*'
