#!/usr/bin/env python3
"""Lists files and functions that are longer than the house rules allow; exit code 1 if there are any.

Called by tools/test.sh. Headers have at most 300 lines, sources 500, functions 60.
"""
import pathlib
import re
import sys

MAX_LINES = {".h": 300, ".hpp": 300, ".cuh": 300, ".c": 500, ".cpp": 500, ".cu": 500}
MAX_FUNCTION = 60
FOLDERS = ["include", "src", "studies", "tests", "bench", "examples"]


def blank_out(text):
    """Replace comments, strings and preprocessor lines by blanks, keeping every newline."""
    pattern = r'R"(\w*)\((?:.|\n)*?\)\1"|//[^\n]*|/\*(?:.|\n)*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])\'|^[ \t]*#(?:[^\n\\]|\\\n|\\.)*'
    return re.sub(pattern, lambda match: re.sub(r"[^\n]", " ", match.group()), text, flags=re.MULTILINE)


def kind_of(header, outer):
    """The kind of block that a brace opens, from the text before it and the enclosing block."""
    if re.search(r"\bnamespace\b|\bextern\b\s*$", header):
        return "namespace"
    if outer not in ("namespace", "class"):
        return "inner"
    if re.search(r"\b(class|struct|union|enum)\b[^()]*$", header):
        return "class"
    return "function" if "(" in header and not re.search(r"=\s*$", header) else "inner"


def functions(text):
    """(first line, number of lines) of every function in the text."""
    text = blank_out(text)
    blocks = [("namespace", 0)]
    start = 0
    for place in re.finditer(r"[;{}]", text):
        at = place.start()
        if place.group() == "{":
            header = text[start:at]
            first = start + len(header) - len(header.lstrip())
            blocks.append((kind_of(header, blocks[-1][0]), first))
        elif place.group() == "}" and len(blocks) > 1:
            kind, first = blocks.pop()
            if kind == "function":
                yield text.count("\n", 0, first) + 1, text.count("\n", first, at) + 1
        start = at + 1


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    complaints = []
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in MAX_LINES):
        text = path.read_text()
        name = path.relative_to(root)
        lines = text.count("\n")
        if lines > MAX_LINES[path.suffix]:
            complaints.append(f"{name}: {lines} lines, at most {MAX_LINES[path.suffix]} allowed")
        for first, length in functions(text):
            if length > MAX_FUNCTION:
                complaints.append(f"{name}:{first}: a function of {length} lines, at most {MAX_FUNCTION} allowed")
    print("\n".join(complaints) if complaints else "all files and functions keep to the limits")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
