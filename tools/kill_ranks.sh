#!/bin/sh
# Kill random ranks at random moments, many times: kill_ranks.sh [rounds, default 200] [build folder, default build].
# Called by hand before a release; the suite itself does 20 rounds.
set -eu
cd "$(dirname "$0")/.."
TILEWIRE_FAULT_ROUNDS="${1:-200}" exec "${2:-build}/tests/faults/faults" --gtest_filter='Faults.AKilledRank*'
