"""Loop IR as text: for people, for golden tests, and as the identity of a kernel."""

from __future__ import annotations

from ..declare.scalar_text import text as expression
from .ir import Access, Axis, Buffer, Check, Kernel, Leaf, Result, Stmt, Store


def kernel_text(kernel: Kernel) -> str:
    """Equal texts are equal kernels; buffers and words are numbered in order."""
    lines = [f"kernel({', '.join(map(_buffer, kernel.buffers))}; {', '.join(kernel.words)})"]
    lines += [f"  x{i} = {_leaf(leaf)}" for i, leaf in enumerate(kernel.leaves)]
    for s in kernel.body:
        _show(s, "  ", lines)
    return "\n".join(lines) + "\n"


def _buffer(b: Buffer) -> str:
    return f"{'out ' if b.output else ''}{b.name}: {b.dtype}"


def _leaf(leaf: Leaf) -> str:
    if isinstance(leaf, Access):
        return _access(leaf)
    if isinstance(leaf, Result):
        return f"{leaf.acc.name}.{leaf.component}"
    return leaf.name if isinstance(leaf, Axis) else leaf


def _access(a: Access) -> str:
    terms = [f"{s}*{k.name if isinstance(k, Axis) else f'({expression(k)})'}" for k, s in a.terms]
    if a.offset != 0 or not terms:
        terms.append(str(a.offset))
    shown = f"{a.buffer.name}[{' + '.join(terms)}]"
    if a.guard is None:
        return shown
    fill = "0" if a.fill is None else expression(a.fill)
    return f"{shown} if {expression(a.guard)} else {fill}"


def _show(s: Stmt, pad: str, lines: list[str]) -> None:
    if isinstance(s, Store):
        lines.append(f"{pad}{_access(s.access)} = {expression(s.value)}")
    elif isinstance(s, Check):
        lines.append(f"{pad}fail {s.code} with {expression(s.value)} if {expression(s.bad)}")
    else:
        lines.append(f"{pad}{s.kind} {s.axis.name} < {s.axis.extent}:")
        for inner in s.body:
            _show(inner, pad + "  ", lines)
        for a in s.accs:
            values = ", ".join(map(expression, a.values))
            lines.append(f"{pad}  {a.name} {a.monoid.name}= {values}")
