"""Extract the prose of Python files for the prose linter: comments, strings and defined names.

Vale itself reads comments and docstrings of Python, but neither messages nor identifiers. This script writes
one text file per source file, so that a finding's line number is the source's. There are two exceptions: implicitly
concatenated strings are all on the line of the first, and text after a newline escape sequence is below its literal.

    python .vale/extract.py OUTPUT FILE [FILE ...]
"""

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_+")


def main(output: Path, files: list[Path]) -> None:
    """Write the prose of each file below `output`, under its own path plus `.txt`."""
    for file in files:
        target = output / f"{file}.txt"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(prose(file.read_text(encoding="utf-8")), encoding="utf-8")


def prose(source: str) -> str:
    """Return the prose of a module, line by line; lines without prose are empty."""
    lines: defaultdict[int, list[str]] = defaultdict(list)
    nodes = list(ast.walk(ast.parse(source)))
    for number, text in (*comments(source), *strings(nodes), *names(nodes)):
        lines[number].append(text)
    last = max(lines, default=0)
    return "\n".join(". ".join(lines[number]) for number in range(1, last + 1)) + "\n"


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every comment."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#! ")


def strings(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every string with a space in it: docstrings and messages."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for offset, text in enumerate(node.value.splitlines()):
                yield node.lineno + offset, text.strip()


def names(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield (line, kind and words) of names that the module defines, so that rules tell names from prose."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, f"function {words(node.name)}"
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.lineno, f"name {words(node.name)}"
        elif isinstance(node, ast.alias) and node.asname:
            yield node.lineno, f"name {words(node.asname)}"
        elif isinstance(node, ast.arg):
            yield node.lineno, f"name {words(node.arg)}"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, f"name {words(node.id)}"
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, f"name {words(node.attr)}"


def words(name: str) -> str:
    """Return an identifier as the words it is made of."""
    return WORD_BOUNDARY.sub(" ", name).strip()


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
