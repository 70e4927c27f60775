"""Find rotary positions that an exporter opened."""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

import numpy as np

from ..ir.dims import Size
from ..ir.graph import Node, Value
from ..ops.movement import narrow, reshape
from ..ops.positions import rope
from ..records import dataclass
from .forms import number
from .raising import Found, Match, Near, Raise, Trail, View

ELEMENTWISE = ("cos", "sin", "cast", "neg", "mul", "div", "add", "sub", "identity")
MOVES = ("unsqueeze", "squeeze", "reshape", "expand", "transpose", "slice", "narrow", "gather")


@dataclass(frozen=True, slots=True)
class RaiseRope(Raise):
    """Records rope of pairs (i, i + half) of x[N,H,S,D] or x[N,S,H,D].

    Two spellings: x cos + [-x2, x1] sin with tables of the whole width, whose halves must be equal
    by construction or as data, and [x1 cos - x2 sin, x2 cos + x1 sin] with tables of half of it.
    Results keep every bit in f32. Holds for every operand.
    """

    name: ClassVar[str] = "raise_rope"
    anchors: ClassVar[frozenset[str]] = frozenset({"add", "concat"})

    def match(self, node: Node, view: View) -> Match:
        """The rotation that ends in `node`."""
        out, trail = node.outputs[0], Trail(view, node)
        if out.type.rank != 4 or out.dtype.sort != "float":
            return None
        return _whole(node, trail) if node.op == "add" else _halves(node, trail)


class Half(NamedTuple):
    """The first or the second half of the last axis of x."""

    x: Value
    second: bool


def half(value: Value, trail: Trail) -> Half | None:
    """Which half of what `value` is."""
    node = value.producer
    if node is None or node.op not in ("slice", "narrow", "split"):
        return None
    x = node.inputs[0]
    d, last = x.shape[-1], x.type.rank - 1
    start = _start(node, value, last)
    if not isinstance(d, int) or d % 2 or value.shape != (*x.shape[:-1], d // 2) or (
            start not in (0, d // 2)):
        return None
    trail.nodes.append(node)
    return Half(x, start != 0)


def _start(node: Node, value: Value, last: int) -> Size | None:
    """Where a part of the last axis begins; None for parts of other axes."""
    at = node.attrs
    if node.op == "slice":
        axes, starts, steps = at["axes"], at["starts"], at["steps"]
        assert isinstance(axes, tuple) and isinstance(starts, tuple)
        if axes not in ((last,), (-1,)) or steps != (1,):
            return None
        first = starts[0]
        return first if isinstance(first, int) else None
    if at["axis"] not in (last, -1):
        return None
    if node.op == "narrow":
        return at["start"] if isinstance(at["start"], int) else None
    sizes = at["sizes"]
    assert isinstance(sizes, tuple)
    return sum([s for s in sizes[:value.index] if isinstance(s, int)])


def _whole(node: Node, trail: Trail) -> Match:
    """X cos + rotated sin."""
    for straight, turned in (node.inputs, node.inputs[::-1]):
        mark = len(trail.nodes)
        a, b = trail.through(straight, "mul"), trail.through(turned, "mul")
        if a is None or b is None:
            return None
        for rotated, sin in (b.inputs, b.inputs[::-1]):
            x = _rotated(rotated, trail)
            if x is not None and x in a.inputs:
                cos = a.inputs[1] if a.inputs[0] is x else a.inputs[0]
                return _doubled(x, cos, sin, trail)
        trail.back(mark)
    return None


def _rotated(value: Value, trail: Trail) -> Value | None:
    """The x of [-x2, x1]."""
    node = trail.through(value, "concat")
    if node is None or len(node.inputs) != 2 or node.attrs["axis"] not in (-1, 3):
        return None
    minus = trail.through(node.inputs[0], "neg")
    if minus is None:
        return None
    second, first = half(minus.inputs[0], trail), half(node.inputs[1], trail)
    if first is None or second is None or first.second or not second.second:
        return None
    return first.x if first.x is second.x else None


def _doubled(x: Value, cos: Value, sin: Value, trail: Trail) -> Match:
    d = x.shape[-1]
    for name, table in (("cos", cos), ("sin", sin)):
        if table.shape[-1:] != (d,) or not _twice(table, trail.view):
            return Near(f"nothing says that both halves of {name} {table.type} are equal",
                        trail.nodes)
    return _found(x, cos, sin, trail)


def _twice(value: Value, view: View) -> bool:
    """Whether the halves of the last axis are equal, from how it was made."""
    while True:
        data, node = view.data(value), value.producer
        if data is not None and data.ndim:
            h = data.shape[-1] // 2
            return bool(np.array_equal(data[..., :h], data[..., h:]))
        if node is None:
            return False
        if node.op == "concat":
            a, *rest = node.inputs
            return node.attrs["axis"] in (-1, value.type.rank - 1) and len(rest) == 1 and (
                rest[0] is a)
        following = _before(node)
        if following is None or following.shape[-1:] != value.shape[-1:]:
            return False
        value = following


def _before(node: Node) -> Value | None:
    """The operand whose last axis `node` keeps, element for element."""
    if node.op in ELEMENTWISE:
        rest = [v for v in node.inputs if number(v) is None]
        return rest[0] if len(rest) == 1 else None
    if node.op not in MOVES:
        return None
    x, rank = node.inputs[0], node.outputs[0].type.rank
    if node.op == "transpose":
        perm = node.attrs["perm"]
        assert isinstance(perm, tuple)
        return x if perm[-1] == rank - 1 else None
    if node.op == "gather":
        return x if node.attrs["axis"] in range(x.type.rank - 1) else None
    return x


def _halves(node: Node, trail: Trail) -> Match:
    """[x1 cos - x2 sin, x2 cos + x1 sin]."""
    if len(node.inputs) != 2 or node.attrs["axis"] not in (-1, 3):
        return None
    minus, plus = trail.through(node.inputs[0], "sub"), trail.through(node.inputs[1], "add")
    if minus is None or plus is None:
        return None
    left = [_turned(v, trail) for v in (*minus.inputs, *plus.inputs)]
    known = [p for p in left if p is not None]
    if len(known) < 4:
        return None
    real, imag = known[:2], sorted(known[2:], key=lambda p: not p[0].second)
    (x1, cos), (x2, sin) = real
    x, same = x1.x, [(x2, cos), (x1, sin)]
    if x1.second or not x2.second or x2.x is not x or imag != same:
        return None
    return _found(x, cos, sin, trail)


def _turned(value: Value, trail: Trail) -> tuple[Half, Value] | None:
    """A half times a table."""
    node = trail.through(value, "mul")
    for v, table in () if node is None else (node.inputs, node.inputs[::-1]):
        if (part := half(v, trail)) is not None:
            return part, table
    return None


def _found(x: Value, cos: Value, sin: Value, trail: Trail) -> Match:
    wide = [(1,) * (4 - t.type.rank) + t.shape for t in (cos, sin)]
    n, a, b, d = x.shape
    layout = _layout((n, a, b), wide[0][:3]) if wide[0] == wide[1] else None
    if layout is None or not isinstance(d, int):
        return Near(f"tables {cos.type} and {sin.type} do not follow the positions of {x.type}",
                    trail.nodes)
    length = b if layout == "nhsd" else a
    shape = (length, d // 2) if wide[0][0] == 1 else (n, length, d // 2)

    def record(x: Value, cos: Value, sin: Value) -> tuple[Value, ...]:
        tables = [reshape(narrow(t, axis=-1, start=0, length=d // 2) if t.shape[-1] == d else t,
                          shape=shape) for t in (cos, sin)]
        return (rope(x, *tables, layout=layout),)

    parts = [m for m in trail.nodes if m.op in ("slice", "narrow", "split")]
    inner = [m for m in trail.nodes if m not in parts]
    return Found("rope", (trail.root,), (x, cos, sin), record, inner, parts)


def _layout(x: tuple[Size, ...], table: tuple[Size, ...]) -> Literal["nhsd", "nshd"] | None:
    """Where the positions are, if every head shares its angle."""
    if table[0] not in (1, x[0]):
        return None
    if table[1] == 1 and table[2] == x[2]:
        return "nhsd"
    return "nshd" if table[2] == 1 and table[1] == x[1] else None
