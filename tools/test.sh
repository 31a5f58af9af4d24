#!/usr/bin/env bash
# Installs what is missing, builds tilewire three times and passes its tests: all of them optimised; with
# AddressSanitizer and UndefinedBehaviorSanitizer all but operators on more than 4 ranks and tables of studies; with
# ThreadSanitizer those whose ranks are threads, on 2, 3 and 4 ranks. Called by users and by CI.
# All builds compile several sources at once (CMAKE_UNITY_BUILD) with precompiled headers (TILEWIRE_PCH). All but the
# library is compiled at -Og, which takes g++ half of the time (TILEWIRE_DRAFT). AddressSanitizer instruments the library
# and the command, not the tests. Where cases are many and alike, sanitizers test every fifth (tests/every.hpp).
# TILEWIRE_CUDA=ON insists on building the cuda backend; without it, it is built where there is nvcc.
# The stage `python` builds the package's wheel in an environment of its own, and tests what is installed. The wheel has
# the library of the stage `release`, so that only the module is compiled.
# The stage `torch` does the same with PyTorch, where it is asked for.
# Usage: tools/test.sh [stage ...], stages: format size release python torch asan tsan (default: all but torch)
set -uo pipefail
cd "$(dirname "$0")/.."

stages=("$@")
[[ ${#stages[@]} -eq 0 ]] && stages=(format size release python asan tsan)
passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Print one line per stage: name, result, seconds, remark.
report() { printf '%-8s %-7s %4ds  %s\n' "$1" "$2" $((SECONDS - started)) "$3"; }

fail_stage() {
  cat "$log"
  report "$1" FAILED "$2"
  failed=$((failed + 1))
}

check_format() {
  local tool
  tool=$(command -v clang-format-14) || { report format skipped "no clang-format-14"; return; }
  if find include src studies tests bench examples \( -name '*.?pp' -o -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) -print0 | xargs -0 "$tool" --dry-run -Werror >"$log" 2>&1; then
    passed=$((passed + 1))
    report format passed ""
  else
    fail_stage format "run: clang-format-14 -i on these files"
  fi
}

check_size() {
  if tools/size.py >"$log" 2>&1; then
    passed=$((passed + 1))
    report size passed ""
  else
    fail_stage size "see tools/size.py"
  fi
}

# Build a target of a preset.
build() {
  local preset=$1 target=$2
  # g++ 12 warns of its own headers where code is instrumented.
  local strict=OFF
  [[ $preset == release ]] && strict=$werror
  # The sanitizers' presets leave CUDA out, and have the rest themselves.
  local only_release=()
  [[ $preset == release ]] && only_release=(-DTILEWIRE_CUDA="${TILEWIRE_CUDA:-AUTO}" -DTILEWIRE_CUDA_DRAFT="$draft" -DTILEWIRE_DRAFT=ON -DTILEWIRE_PCH=ON -DCMAKE_UNITY_BUILD=ON)
  cmake --preset "$preset" -DTILEWIRE_TESTS=ON -DTILEWIRE_STUDIES=ON -DTILEWIRE_WERROR="$strict" "${only_release[@]}" &&
    cmake --build --preset "$preset" --target "$target"
}

# Build a target of a preset and pass its tests; $3... are further arguments of ctest.
build_and_test() {
  local preset=$1 target=$2
  shift 2
  build "$preset" "$target" >"$log" 2>&1 || { fail_stage "$preset" "does not build"; return; }
  ctest --preset "$preset" --parallel "$(nproc)" "$@" >"$log" 2>&1
  local good=$?
  local summary
  summary=$(grep -E '^[0-9]+% tests passed' "$log")
  if [[ $summary =~ passed,\ ([0-9]+)\ tests\ failed\ out\ of\ ([0-9]+) ]]; then
    passed=$((passed + BASH_REMATCH[2] - BASH_REMATCH[1]))
    failed=$((failed + BASH_REMATCH[1]))
  elif [[ $good -eq 0 ]]; then
    summary="no tests found"
    good=1
    failed=$((failed + 1))
  fi
  if [[ $good -eq 0 ]]; then
    report "$preset" passed "$summary"
  else
    cat "$log"
    report "$preset" FAILED "$summary"
  fi
}

# Make an environment for a stage, with its tests' requirements and more ($2...) from PyPI. If that fails, skip the
# stage.
make_environment() {
  local stage=$1 place=$PWD/build/$1-venv
  shift
  { python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' && python3 -m venv "$place" &&
    "$place/bin/python" -m pip install -q "$@" -r python/tests/requirements.txt; } >"$log" 2>&1 && return
  report "$stage" skipped "no Python 3.10 with venv, or no packages from PyPI"
  return 1
}

# The package with the library of the stage `release`. NOTE: in a folder that no user's `pip install .` takes up.
install_package() {
  { build release tilewire &&
    "$PWD/build/$1-venv/bin/python" -m pip install -q --no-build-isolation . -C build-dir=build/python-tests -C cmake.define.TILEWIRE_PREBUILT="$PWD/build/release"; } >"$log" 2>&1 && return
  fail_stage "$1" "does not build"
  return 1
}

# Test the installed package in a stage's environment; $2... are further arguments of pytest.
test_package() {
  local stage=$1 python=$PWD/build/$1-venv/bin/python good summary
  shift
  (cd python/tests && "$python" -m pytest -q "$@") >"$log" 2>&1
  good=$?
  summary=$(tail -1 "$log")
  if [[ $good -eq 0 && $summary =~ ([0-9]+)\ passed ]]; then
    passed=$((passed + BASH_REMATCH[1]))
    report "$stage" passed "$summary"
  else
    fail_stage "$stage" "$summary"
  fi
}

# Lint, build and test the Python package.
check_python() {
  local tools=$PWD/build/python-venv/bin
  make_environment python || return
  if ! { "$tools/ruff" check python examples && "$tools/ruff" format --check python examples; } >"$log" 2>&1; then
    fail_stage python "run: ruff check --fix python examples; ruff format python examples"
    return
  fi
  install_package python || return
  if ! (cd python/tests && "$tools/mypy" --config-file ../../pyproject.toml -p tilewire) >"$log" 2>&1; then
    fail_stage python "types"
    return
  fi
  test_package python
}

# tilewire.torch on CPU ranks. The installation takes a minute and 6 GB, so it runs only on request.
check_torch() {
  local room
  mkdir -p build
  room=$(df --output=avail -BG build | tail -1 | tr -dc 0-9)
  if [[ $room -lt 8 && ! -d build/torch-venv ]]; then
    report torch skipped "$room GB are free, PyTorch takes 6"
    return
  fi
  make_environment torch "${TILEWIRE_TORCH_VERSION:-torch}" && install_package torch && test_package torch test_torch.py
}

tools/install_deps.sh test || exit 2
# Newer compilers have more warnings; they are news, not failures.
werror=$([[ $(g++ -dumpversion) == 12* ]] && echo ON || echo OFF)
# Without a GPU, kernels are compiled but never run: a draft is enough.
draft=$(nvidia-smi -L >/dev/null 2>&1 && echo OFF || echo ON)
for stage in "${stages[@]}"; do
  started=$SECONDS
  case $stage in
    format) check_format ;;
    size) check_size ;;
    release) build_and_test release all ;;
    python) check_python ;;
    torch) check_torch ;;
    # Without tests that take minutes: many ranks, and tables of studies, whose parts have unit tests.
    asan) build_and_test asan all -E '_[5678]_ranks|SimClaims|SimT3|SimSweep|bench.scripts' ;;
    # Only ranks as threads: a program with one thread has no races.
    tsan) build_and_test tsan rank_tests -L 'threads|ranks' -E '/processes|_[15678]_ranks' ;;
    *) echo "unknown stage $stage; known: format size release python torch asan tsan" >&2; exit 2 ;;
  esac
done
echo "$passed passed, $failed failed"
[[ $failed -eq 0 && $passed -gt 0 ]]
