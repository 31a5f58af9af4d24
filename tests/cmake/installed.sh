#!/usr/bin/env bash
# Installs a build of tilewire into a temporary folder, and builds and runs examples/01_use_installed with it.
# Called by ctest as: installed.sh CMAKE BUILD_FOLDER SOURCE_FOLDER CXX_FLAGS
set -euo pipefail
cmake=$1
build=$2
source=$3
flags=$4

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
"$cmake" --install "$build" --prefix "$temporary/installed"
# The example is copied, so that it finds nothing of tilewire's sources.
cp -r "$source/examples/01_use_installed" "$temporary/example"
"$cmake" -G Ninja -S "$temporary/example" -B "$temporary/build" -DCMAKE_PREFIX_PATH="$temporary/installed" \
  -DCMAKE_CXX_FLAGS="$flags"
"$cmake" --build "$temporary/build"
output=$("$temporary/build/use_installed")
echo "$output"
[[ $(grep -c '1 + 2 = 3$' <<<"$output") -eq 2 ]]
