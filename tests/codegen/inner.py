"""Innermost loops in assembly text: how much vector arithmetic, how many moves to the stack."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FUNCTION = re.compile(r"^([A-Za-z_$][\w$.]*):", re.MULTILINE)
_LABEL = re.compile(r"^(\.?L[\w$.]*):", re.MULTILINE)
_JUMP = re.compile(r"^\s+(?:j\w+|b(?:\.\w+)?|cbn?z\s+\w+,|tbn?z\s+\w+,\s*#?\w+,)"
                   r"\s+(\.?L[\w$.]*)\s*$", re.MULTILINE)
_WORK = re.compile(
    r"^\s+v?(?:fn?m(?:add|sub)\w*|(?:add|max|min|mul|cmp\w+)p[sd]|p?maddwd|pmaddubsw|pdp\w+"
    r"|paddd)\s|^\s+(?:fml[as]|fadd|fmul|fcm\w\w|fmaxnm|fminnm|fmax|fmin|[su]dot|[su]ml?al2?"
    r"|[su]mull2?|add)\s+v\d", re.MULTILINE)
_STACK = re.compile(
    r"^\s+v\w+\s[^\n]*\(%rsp\b"
    r"|^\s+(?:ldr|str|ldp|stp|ldur|stur)\s+q\d+,[^\n]*\[(?:sp|x29)", re.MULTILINE)


class Inner(NamedTuple):
    """A loop: its function, vector operations in it, uses of vectors on the stack."""

    function: str
    work: int
    moves: int


def inner_loops(text: str) -> Iterator[Inner]:
    """The innermost loops with vector arithmetic (x86 and AArch64)."""
    marks = [m for m in _FUNCTION.finditer(text) if not m.group(1).startswith("L")]
    ends = [m.start() for m in marks[1:]] + [len(text)]
    for mark, end in zip(marks, ends, strict=True):
        body = text[mark.end():end]
        labels = {m.group(1): m.end() for m in _LABEL.finditer(body)}
        spans = {(labels[m.group(1)], m.end()) for m in _JUMP.finditer(body)
                 if labels.get(m.group(1), len(body)) < m.start()}
        for low, high in spans:
            if any((a, b) != (low, high) and low <= a and b <= high for a, b in spans):
                continue
            inside = body[low:high]
            if work := len(_WORK.findall(inside)):
                yield Inner(mark.group(1), work, len(_STACK.findall(inside)))
