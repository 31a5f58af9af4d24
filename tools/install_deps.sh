#!/usr/bin/env bash
# Installs what is missing to build tilewire (and, with `test`, to test it) on Debian 12 or Ubuntu 24.04.
# Called by tools/try.sh and tools/test.sh; needs root or sudo only if something is missing.
set -euo pipefail

usage="usage: tools/install_deps.sh build|test"
what=${1:?$usage}
required=(g++ cmake ninja-build libfmt-dev nlohmann-json3-dev libcli11-dev libdnnl-dev)
optional=()
case $what in
  build) ;;
  test)
    required+=(libgtest-dev libbenchmark-dev libprotobuf-dev protobuf-compiler python3)
    # Without these, the tests that need them are skipped with a message.
    optional=(openmpi-bin clang-format-14 git python3-matplotlib python3-venv python3-dev)
    ;;
  *) echo "$usage" >&2; exit 2 ;;
esac

# The packages of the list that are not installed, one per line.
missing() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || echo "$package"
  done
}

as_root=()
apt_install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

# Install; update the package lists only if the present ones are not enough.
install_packages() {
  echo "installing: $*"
  apt_install "$@" >"$log" 2>&1 && return
  "${as_root[@]}" apt-get update -q >"$log" 2>&1 && apt_install "$@" >>"$log" 2>&1
}

mapfile -t needed < <(missing "${required[@]}")
mapfile -t wanted < <(missing "${optional[@]}")
[[ ${#needed[@]} -eq 0 && ${#wanted[@]} -eq 0 ]] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "this system has no apt-get; please install: ${needed[*]} ${wanted[*]}" >&2
  exit 2
fi
if [[ $EUID -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "neither root nor sudo; please have these installed: ${needed[*]} ${wanted[*]}" >&2
    [[ ${#needed[@]} -eq 0 ]] && exit 0
    exit 2
  fi
  as_root=(sudo)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if [[ ${#needed[@]} -gt 0 ]] && ! install_packages "${needed[@]}"; then
  cat "$log" >&2
  echo "could not install: ${needed[*]}" >&2
  exit 1
fi
if [[ ${#wanted[@]} -gt 0 ]] && ! install_packages "${wanted[@]}"; then
  echo "could not install: ${wanted[*]} (the tests that need them are skipped)" >&2
fi
