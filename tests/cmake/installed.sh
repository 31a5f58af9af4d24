#!/usr/bin/env bash
# Installs a build of tilewire into a temporary folder; builds and runs examples/01_use_installed with it, and
# examples/04_c_api in a CMake project without C++ and by the C compiler alone.
# Called by ctest as: installed.sh CMAKE BUILD_FOLDER SOURCE_FOLDER CXX_FLAGS
set -euo pipefail
cmake=$1
build=$2
source=$3
flags=$4

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
"$cmake" --install "$build" --prefix "$temporary/installed"
# Copy the example, so that it cannot find tilewire's sources.
cp -r "$source/examples/01_use_installed" "$temporary/example"
"$cmake" -G Ninja -S "$temporary/example" -B "$temporary/build" -DCMAKE_PREFIX_PATH="$temporary/installed" \
  -DCMAKE_CXX_FLAGS="$flags"
"$cmake" --build "$temporary/build"
output=$("$temporary/build/use_installed")
echo "$output"
[[ $(grep -c '1 + 2 = 3$' <<<"$output") -eq 2 ]]

export TILEWIRE_TUNER_FILE=$temporary/tuner.json
cp -r "$source/examples/04_c_api" "$temporary/c_example"
cat >"$temporary/c_example/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(use_installed_c LANGUAGES C)
find_package(tilewire 0.1 REQUIRED COMPONENTS c)
add_executable(use_installed_c main.c)
target_link_libraries(use_installed_c PRIVATE tilewire::c)
END
"$cmake" -G Ninja -S "$temporary/c_example" -B "$temporary/c_build" -DCMAKE_PREFIX_PATH="$temporary/installed" \
  -DCMAKE_C_FLAGS="$flags"
"$cmake" --build "$temporary/c_build"
"$temporary/c_build/use_installed_c" | grep 'right: 48'

# The error for a missing component names it and the existing ones.
mkdir "$temporary/python"
cat >"$temporary/python/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(use_installed_python LANGUAGES NONE)
find_package(tilewire 0.1 REQUIRED COMPONENTS c python)
END
if refusal=$("$cmake" -G Ninja -S "$temporary/python" -B "$temporary/python_build" \
  -DCMAKE_PREFIX_PATH="$temporary/installed" 2>&1); then
  echo "the component python was found"
  exit 1
fi
tr -s ' \n' ' ' <<<"$refusal" | grep "tilewire has no component 'python'; known: cpp, c"
# If it is optional, the others are found.
sed -i 's/REQUIRED COMPONENTS c python/REQUIRED COMPONENTS c OPTIONAL_COMPONENTS python/' "$temporary/python/CMakeLists.txt"
"$cmake" -G Ninja -S "$temporary/python" -B "$temporary/python_build" -DCMAKE_PREFIX_PATH="$temporary/installed"

library=$(dirname "$(find "$temporary/installed" -name libtilewire_c.so)")
# shellcheck disable=SC2086
"${CC:-cc}" $flags -std=c99 "$temporary/c_example/main.c" -I "$temporary/installed/include" -L "$library" \
  -Wl,-rpath,"$library" -ltilewire_c -o "$temporary/by_hand"
"$temporary/by_hand" | grep 'right: 48'
