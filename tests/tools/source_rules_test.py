#!/usr/bin/env python3
"""Rules of the sources that a search can check: calls with a trap, and the one file that may make them.

Called by ctest as: source_rules_test.py SOURCE_FOLDER
"""
import pathlib
import re
import sys

# A rule: the folders that it covers, the pattern that they must not contain, the files that may, and the reason.
RULES = [
    {
        "folders": ["include", "src", "studies", "tests", "bench", "examples"],
        "pattern": r"\berrno\b(?!\s*=[^=])|\bstrerror(_r)?\b|\bperror\b|\bgeneric_category\b",
        "except": ["src/core/system_call.hpp", "src/core/system_call.cpp"],
        "why": "arguments are evaluated in any order, so errno may be read before the call that sets it: "
               "system_call() keeps it",
        "wrong": 'require(open(path) == 0, "{}: {}", path, std::strerror(errno));',
        "right": 'require(opened.ok(), "{}: {}", path, opened.why());  // errno, strerror in words alone',
    },
    {
        "folders": ["include", "src", "studies"],
        "pattern": r"\bjson::parse\s*\(|\bJson::parse\s*\(|\bsax_parse\s*\(|\.dump\s*\(",
        "except": ["src/core/json_text.cpp"],
        "why": "the JSON library takes repeated keys, throws at bytes that are not UTF-8, and overflows the stack: "
               "parse_json(), json_text() and shown() do not",
        "wrong": 'require(good, "got {}", json.dump());',
        "right": 'require(good, "got {}", shown(json));',
    },
    {
        "folders": ["src", "studies"],
        "pattern": r"\bstd::[io]?fstream\b|\bfopen\s*\(",
        "except": [],
        "why": "a stream may take descriptor 0, 1 or 2, and truncates a file before it can fail: core/output_file.hpp "
               "and core/text_file.hpp do not",
        "wrong": "std::ofstream file(path);",
        "right": "std::ostringstream text;",
    },
    {
        "folders": ["include", "src/backends", "src/c", "src/check", "src/cli", "src/core", "src/lower",
                    "src/schedules", "src/trace", "src/tuner", "studies"],
        "pattern": r'(==|!=|starts_with\()\s*"(all_gather|gemm_|all_reduce)|\bop\s*[!=]=\s*"',
        "except": [],
        "why": "an operator is known by its structure (structure_of), so that a new one is one row of the table",
        "wrong": 'if (problem.op == "gemm_reduce_scatter") return;',
        "right": "if (scatters(problem)) return;",
    },
    {
        "folders": ["src/backends", "src/check", "src/lower"],
        "pattern": r'\bplan_?(\.|->)(config|problem|note)\b|\b(Config|Problem|PlanNote|note_of)\b'
                   r'|#\s*include "tilewire/(config|problem|make_plan|spi/schedule|spi/operator)\.hpp"',
        "except": [],
        "includes": True,
        "why": "nothing below the schedules asks what was wanted: tasks, lanes and buffers say all that a backend needs",
        "wrong": "if (plan_.config.tile_m == 64) return;",
        "right": "if (task.gemm.tile_m == 64) return;",
    },
]
SUFFIXES = {".h", ".hpp", ".cpp", ".c", ".cu", ".cuh"}


def without_comments(text, includes):
    """The text with comments blanked out, line by line, and without `includes` #include lines."""
    text = re.sub(r"//[^\n]*" if includes else r"//[^\n]*|^[ \t]*#[ \t]*include[^\n]*", "", text, flags=re.MULTILINE)
    return re.sub(r"/\*.*?\*/", lambda match: "\n" * match.group().count("\n"), text, flags=re.DOTALL)


def breaches(rule, text):
    """(line number, line) of each place that breaks the rule."""
    lines = without_comments(text, rule.get("includes", False)).split("\n")
    return [(number, line.strip()) for number, line in enumerate(lines, 1) if re.search(rule["pattern"], line)]


def main():
    root = pathlib.Path(sys.argv[1])
    failures = 0
    for rule in RULES:
        if not breaches(rule, rule["wrong"]) or breaches(rule, rule["right"]):
            print(f"the rule {rule['pattern']} does not tell right from wrong")
            failures += 1
        seen = 0
        for path in sorted(each for folder in rule["folders"] for each in (root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix not in SUFFIXES or name in rule["except"]:
                continue
            seen += 1
            for number, line in breaches(rule, path.read_text(encoding="utf-8")):
                print(f"{name}:{number}: {line}\n  {rule['why']}")
                failures += 1
        if seen < 40:
            print(f"only {seen} files in {', '.join(rule['folders'])}")
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
