"""Size limits: 400 lines a file, 40 a function, with exceptions that carry their reason.

A function that needs more says `# budget: reason` on a line of its signature, a file on one of its
first five lines. A data table says `# data: what` on line 1.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import source

FILE_LINES = 400
FUNCTION_LINES = 40
_REASON = re.compile(r"#\s*budget:\s*\S{3,}")
_DATA = re.compile(r"#\s*data:\s*\S{3,}")


def excused(lines: Sequence[str]) -> bool:
    """Whether one of the lines carries `# budget: reason`."""
    return any(_REASON.search(line) for line in lines)


def long_functions(module: ast.Module, lines: Sequence[str]) -> list[str]:
    """Name, line and length of every function beyond the limit and without a reason."""
    found: list[str] = []
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            last = node.end_lineno or node.lineno
            length = last - node.lineno + 1
            signature = (
                lines[node.lineno - 1 : node.body[0].lineno - 1] or lines[node.lineno - 1 :][:1]
            )
            if length > FUNCTION_LINES and not excused(signature):
                found.append(f"line {node.lineno}: {node.name} has {length} lines")
    return found


@pytest.mark.parametrize("path", source.python_files(*source.FOLDERS), ids=str)
def test_sizes(path: Path) -> None:
    lines = source.lines(path)
    if lines and _DATA.match(lines[0]):
        return
    assert len(lines) <= FILE_LINES or excused(lines[:5]), f"{path} has {len(lines)} lines"
    wrong = long_functions(source.tree(path), lines)
    assert not wrong, "\n".join(f"{path}: {text}" for text in wrong)


@pytest.mark.parametrize(
    ("head", "length", "found"),
    [
        ("def f():", 40, []),
        ("def f():", 41, ["line 1: f has 41 lines"]),
        ("def f():  # budget: one table of opcodes", 41, []),
        ("def f():  # budget:", 41, ["line 1: f has 41 lines"]),
    ],
)
def test_the_rule_itself(head: str, length: int, found: list[str]) -> None:
    lines = [head, *["    pass"] * (length - 1)]
    assert long_functions(ast.parse("\n".join(lines)), lines) == found
