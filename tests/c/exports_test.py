#!/usr/bin/env python3
"""The shared library exports the functions of the C header, all of them and no others.

Called by ctest as: exports_test.py NM LIBRARY HEADER
"""
import re
import subprocess
import sys


def main():
    nm, library, header = sys.argv[1:]
    with open(header, encoding="utf-8") as file:
        declared = set(re.findall(r"\bTILEWIRE_API\b[^;(]*?\b(tilewire_\w+)\(", file.read()))
    lines = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    shown = {line.split()[-1].split("@")[0] for line in lines.splitlines()}
    print(f"{len(declared)} functions declared, {len(shown)} shown")
    for name in sorted(declared - shown):
        print(f"declared, but not shown: {name}")
    for name in sorted(shown - declared):
        print(f"shown, but not declared: {name}")
    return 0 if declared == shown and declared else 1


if __name__ == "__main__":
    sys.exit(main())
