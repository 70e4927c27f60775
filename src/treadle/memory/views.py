"""Strided views: what moves elements by arithmetic on addresses alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from ..ir.dims import Dim, Size, bounds
from ..ir.graph import Attr, Node, Value
from ..ir.types import Shape, axes_of, axis_of, count
from ..ops.extents import first_of, inserted, resolve, sliced
from ..records import dataclass, replace


@dataclass(frozen=True, slots=True)
class View:
    """The elements of `base` at `offset + sum(index * stride)`, counted in elements.

    An axis of size 1 has stride 0.
    """

    base: Value
    shape: Shape
    strides: tuple[Size, ...]
    offset: Size = 0

    @property
    def dense(self) -> bool:
        """Whether the elements lie row by row without gaps."""
        return self.strides == dense_strides(self.shape)

    @property
    def whole(self) -> bool:
        """Whether these are all elements of the base in their own order."""
        return self.dense and self.offset == 0 and count(self.shape) == count(self.base.shape)


def dense_strides(shape: Shape) -> tuple[Size, ...]:
    """Row-major strides; 0 for axes of size 1."""
    out: list[Size] = []
    step: Size = 1
    for n in reversed(shape):
        out.append(0 if n == 1 else step)
        step = step * n
    return tuple(reversed(out))


def whole(value: Value) -> View:
    """All of a value that has storage of its own."""
    return View(value, value.shape, dense_strides(value.shape))


def reshape(x: View, shape: Shape) -> View | None:
    """`x` under another shape of as many elements, or None where its strides do not allow it."""
    if x.dense:
        return replace(x, shape=shape, strides=dense_strides(shape))
    have = [(n, s) for n, s in zip(x.shape, x.strides, strict=True) if n != 1]
    sizes = tuple([n for n in shape if n != 1])
    if (strides := _regroup(have, sizes)) is None:
        return None
    rest = iter(strides)
    return replace(x, shape=shape, strides=tuple([0 if n == 1 else next(rest) for n in shape]))


def _regroup(have: Sequence[tuple[Size, Size]], sizes: Shape) -> list[Size] | None:
    """Strides for `sizes`: groups of equal products must merge into one step each."""
    out: list[Size] = []
    i = j = 0
    while i < len(have) or j < len(sizes):
        cut = _next_cut([n for n, _ in have[i:]], sizes[j:])
        if cut is None:
            return None
        group, parts = have[i:i + cut[0]], sizes[j:j + cut[1]]
        for (_, outer), (n, inner) in zip(group, group[1:], strict=False):
            if outer != inner * n:
                return None
        step = group[-1][1]
        strides: list[Size] = []
        for n in reversed(parts):
            strides.append(step)
            step = step * n
        out += reversed(strides)
        i, j = i + cut[0], j + cut[1]
    return out


def _next_cut(a: Sequence[Size], b: Sequence[Size]) -> tuple[int, int] | None:
    """The shortest prefixes of two lists of sizes that have equal products."""
    left: dict[Size, int] = {}
    product: Size = 1
    for k, n in enumerate(a):
        product = product * n
        left.setdefault(product, k + 1)
    product = 1
    for k, n in enumerate(b):
        product = product * n
        if product in left:
            return left[product], k + 1
    return None


def _reshape(x: View, shape: Shape) -> View | None:
    return reshape(x, resolve(x.shape, shape))


def _transpose(x: View, perm: tuple[int, ...]) -> View:
    return replace(x, shape=tuple([x.shape[p] for p in perm]),
                   strides=tuple([x.strides[p] for p in perm]))


def _squeeze(x: View, axes: tuple[int, ...]) -> View:
    gone = axes_of(axes, len(x.shape))
    keep = [i for i in range(len(x.shape)) if i not in gone]
    return replace(x, shape=tuple([x.shape[i] for i in keep]),
                   strides=tuple([x.strides[i] for i in keep]))


def _unsqueeze(x: View, axes: tuple[int, ...]) -> View:
    at = inserted(axes, len(x.shape))
    rest = iter(zip(x.shape, x.strides, strict=True))
    pairs = [(1, 0) if i in at else next(rest) for i in range(len(x.shape) + len(axes))]
    return replace(x, shape=tuple([n for n, _ in pairs]), strides=tuple([s for _, s in pairs]))


def _flip(x: View, axes: tuple[int, ...]) -> View:
    strides, offset = list(x.strides), x.offset
    for a in axes_of(axes, len(x.shape)):
        offset = offset + (x.shape[a] - 1) * strides[a]
        strides[a] = -strides[a]
    return replace(x, strides=tuple(strides), offset=offset)


def _cut(x: View, axis: int, start: Size, length: Size, step: int = 1) -> View:
    at = axis_of(axis, len(x.shape))
    shape, strides = list(x.shape), list(x.strides)
    offset = x.offset + start * strides[at]
    shape[at], strides[at] = length, 0 if length == 1 else strides[at] * step
    return replace(x, shape=tuple(shape), strides=tuple(strides), offset=offset)


def _slice(x: View, starts: Shape, ends: Shape, steps: tuple[int, ...], axes: tuple[int, ...]
           ) -> View:
    for start, end, step, axis in zip(starts, ends, steps, axes, strict=True):
        size = x.shape[axis]
        x = _cut(x, axis, first_of(start, size, step), sliced(size, start, end, step), step)
    return x


def _expand(x: View, shape: Shape) -> View:
    """Stride 0 along new and broadcast axes."""
    lead = max(len(shape) - len(x.shape), 0)
    want = (1,) * max(len(x.shape) - len(shape), 0) + shape
    sizes: list[Size] = list(want[:lead])
    strides: list[Size] = [0] * lead
    for n, s, w in zip(x.shape, x.strides, want[lead:], strict=True):
        sizes.append(w if n == 1 else n)
        strides.append(0 if n == 1 else s)
    return replace(x, shape=tuple(sizes), strides=tuple(strides))


def _split(x: View, axis: int, sizes: Shape) -> tuple[View, ...]:
    out: list[View] = []
    start: Size = 0
    for n in sizes:
        out.append(_cut(x, axis, start, n))
        start = start + n
    return tuple(out)


def _narrow(x: View, axis: int, start: Size, length: Size) -> View:
    return _cut(x, axis, start, length)


def _same(x: View) -> View:
    return x


def _expected(x: View, shape: Shape) -> View:  # noqa: ARG001 - the operator's attribute
    return x


Rule: TypeAlias = "Callable[..., View | tuple[View, ...] | None]"
RULES: dict[str, Rule] = {
    "reshape": _reshape, "transpose": _transpose, "squeeze": _squeeze, "unsqueeze": _unsqueeze,
    "flip": _flip, "slice": _slice, "narrow": _narrow, "expand": _expand, "split": _split,
    "identity": _same, "stop_gradient": _same, "expect_broadcast": _expected}
"""Operators whose outputs are views of their only operand."""


def follow(node: Node, x: View) -> tuple[View, ...] | None:
    """The outputs of a view operator as views, or None where the elements must move first.

    A reshape of rows without gaps is a view even where only a binding tells that the sizes agree.
    Raises `KeyError` for an operator that makes no views.
    """
    if node.op == "reshape" and count(node.outputs[0].shape) != count(x.shape):
        shape = node.outputs[0].shape
        return (replace(x, shape=shape, strides=dense_strides(shape)),) if x.dense else None
    found = RULES[node.op](x, **cast("dict[str, Attr]", node.attrs))
    if found is None:
        return None
    out = found if isinstance(found, tuple) else (found,)
    return tuple([_named(v, o) for v, o in zip(out, node.outputs, strict=True)])


def _named(view: View, value: Value) -> View:
    """The view under the sizes of the value's type, which may be simpler terms for the same."""
    if view.shape == value.shape:
        return view
    strides = tuple([0 if n == 1 else s for n, s in zip(value.shape, view.strides, strict=True)])
    return replace(view, shape=value.shape, strides=strides)


def certain(node: Node) -> bool:
    """Whether a view operator cannot fail at run time, whatever its symbols are."""
    shape = node.inputs[0].shape
    if node.op == "reshape":
        return count(node.outputs[0].shape) == count(shape)
    if node.op == "squeeze":
        return all([shape[i] == 1 for i in axes_of(
            cast("tuple[int, ...]", node.attrs["axes"]), len(shape))])
    if node.op == "expect_broadcast":
        return all([want in (1, have) for have, want in zip(
            reversed(shape), reversed(cast(Shape, node.attrs["shape"])), strict=False)])
    if node.op == "narrow":
        axis = axis_of(cast(int, node.attrs["axis"]), len(shape))
        start, length = cast(Size, node.attrs["start"]), cast(Size, node.attrs["length"])
        return not any([bounds(n)[0] < 0 for n in (start, length, shape[axis] - start - length)])
    if node.op == "split":
        sizes = cast(Shape, node.attrs["sizes"])
        total: Size = 0
        for n in sizes:
            total = total + n
        return total == shape[axis_of(cast(int, node.attrs["axis"]), len(shape))] and not any(
            [isinstance(n, Dim) and bounds(n)[0] < 0 for n in sizes])
    return True
