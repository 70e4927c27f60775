"""Lowerings to the matrix product templates: operands as strided views, weights packed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

import numpy as np

from ...codegen.llvm.target import host
from ...codegen.llvm.text import BF16, F16, F32, F64, Module, Type
from ...declare.arrays import Array
from ...errors import Declined
from ...ir.dims import Size, evaluate
from ...ir.graph import Node, Value
from ...ir.types import DTYPES, Shape, TensorType, axis_of, count
from ...memory.views import View, reshape, whole
from ...records import dataclass, field, replace
from .contraction import (
    BatchAxis,
    Epilogue,
    Extent,
    ExtraOperand,
    Matmul,
    chunks_for,
    emit_matmul,
    pack,
    scratch_bytes,
    tile_for,
)
from .contraction.pack import packed_elements
from .lowered import Binding, Lowered, Packed, Word
from .pointwise import copy, spread
from .tails import Tail, by_strides, element_of

ELEMENTS: dict[str, Type] = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
Fixed = Collection[Value]


@dataclass
class Product:
    """C[.., m, n] = A[.., m, k] B[.., k, n] over views; copies that it needs come first."""

    a: View
    b: View
    c: View
    fixed: Fixed = ()
    tail: Tail | None = None
    names: dict[Size, str] = field(default_factory=dict[Size, str])
    before: list[Lowered] = field(default_factory=list[Lowered])
    laid: list[View] = field(default_factory=list[View])
    batch_lines: list[list[Size]] = field(default_factory=list[list[Size]])

    def lower(self) -> list[Lowered]:
        """The copies, then the product."""
        dtype = self.a.base.dtype
        if dtype.name not in ELEMENTS:
            raise Declined(f"no product template for {dtype}")
        self.a, transposed, lda = self._left(self.a)
        packed = self._packed()
        layout, ldb = ("packed", None) if packed else self._right()
        self._lay_tail()
        batch = self._batch(packed)
        (m, k), n = self.a.shape[-2:], self.b.shape[-1]
        element, out = ELEMENTS[dtype.name], element_of(self.c)
        spec = Matmul(
            self.extent(m), self.extent(n), self.extent(k), element, element, out,
            self.extent(lda), ldb, self.extent(_step(self.c, -2, n)), transposed,
            cast(Any, layout), batch=batch, cold=packed is not None, epilogue=self._epilogue())
        return [*self.before, *(self.tail.before if self.tail else ()), self._call(spec, packed)]

    def _lay_tail(self) -> None:
        """The tail's operands as views of C's shape that the template can read."""
        if self.tail is None:
            return
        self.tail = self.tail.under(self.c.shape)
        self.laid = [v if by_strides(v.strides[-2], v.strides[-1]) else self.tail.copied(v)
                     for v in self.tail.views]
        self.batch_lines = [list[Size]() for _ in self.laid]

    def _epilogue(self) -> Epilogue | None:
        if self.tail is None:
            return None
        operands = self._laid_operands()
        wide = "f64" if self.a.base.dtype.name == "f64" else "f32"
        few = self.c.shape[-2] == 1
        return self.tail.epilogue(operands, DTYPES[wide], 0 if few else self.a.shape[-1])

    def _laid_operands(self) -> list[ExtraOperand]:
        """The tail's views as operands of the template."""
        operands: list[ExtraOperand] = []
        for i, v in enumerate(self.laid):
            row, column = v.strides[-2:]
            kind = by_strides(row, column)
            assert kind is not None
            operands.append(ExtraOperand(
                f"e{i}", kind, element_of(v), self.extent(row) if kind in (
                    "row", "matrix") else None, tuple(map(self.extent, self.batch_lines[i]))))
        return operands

    def extent(self, size: Size) -> Extent:
        """A size as the template sees it."""
        return size if isinstance(size, int) else self.names.setdefault(
            size, f"n{len(self.names)}")

    def _call(self, spec: Matmul, packed: Packed | None) -> Lowered:
        sizes = {name: size for size, name in self.names.items()}
        words: list[Word] = [self.a, packed or self.b, self.c]
        words += self._extra_words()
        words += [sizes[name] for name in spec.run_time_words()]
        tile = tile_for(host(), spec.accumulator)

        def known(binding: Binding) -> dict[str, int]:
            return {name: evaluate(size, binding) for name, size in sizes.items()}

        return Lowered(
            f"product {spec}", lambda module, name: emit_matmul(module, spec, name), tuple(words),
            (self.c.base,), lambda binding: chunks_for(spec, tile, known(binding)),
            lambda binding: scratch_bytes(Module(host()), spec, known(binding)))

    def _extra_words(self) -> list[Word]:
        """The operands of the epilogue."""
        return list(self.laid) if self.tail is not None else []

    def _copied(self, view: View) -> View:
        made = whole(Value(TensorType(view.shape, view.base.dtype), view.base.name))
        self.before.append(copy(view, made))
        return made

    def _left(self, a: View) -> tuple[View, bool, Size]:
        """A by rows or by columns, and the distance of its lines."""
        for at, (line, item) in enumerate(((-2, -1), (-1, -2))):
            if _steps(a, item, 1):
                return a, at == 1, _step(a, line, a.shape[item])
        return self._left(self._copied(a))

    def _packed(self) -> Packed | None:
        b = self.b
        if b.base not in self.fixed or not all(
                isinstance(n, int) for n in (*b.shape, *b.strides, b.offset)):
            return None
        tile = tile_for(host(), F64 if b.base.dtype.name == "f64" else F32)
        axes = [i for i, s in enumerate(b.strides[:-2]) if s != 0]
        kept = replace(b, shape=tuple([b.shape[i] for i in (*axes, -2, -1)]),
                       strides=tuple([b.strides[i] for i in (*axes, -2, -1)]))
        return Packed(kept, "panels", lambda array: pack(
            np.ascontiguousarray(cast(Array, array)), tile))

    def _right(self) -> tuple[str, Extent]:
        b = self.b
        if _steps(b, -1, 1):
            return "rows", self.extent(_step(b, -2, b.shape[-1]))
        if _steps(b, -2, 1):
            return "columns", self.extent(_step(b, -1, b.shape[-2]))
        self.b = self._copied(b)
        return self._right()

    def _batch(self, packed: Packed | None) -> tuple[BatchAxis, ...]:
        """Leading axes; those that step through A and C as more rows do become rows."""
        lead = self.c.shape[:-2]
        full = (*lead, 1, 1)
        a, b, c = (list(spread(v, full)[:-2]) for v in (self.a, self.b, self.c))
        if packed:
            b = self._packed_strides(b)
        sizes, extras = list(lead), [list(v.strides[:-2]) for v in self.laid]
        while sizes and self._joins(sizes[-1], a[-1], b[-1], c[-1], [e[-1] for e in extras]):
            for v in (sizes, a, b, c, *extras):
                v.pop()
        kept = [i for i, n in enumerate(sizes) if n != 1]
        self.batch_lines = [[e[i] for i in kept] for e in extras]
        return tuple([BatchAxis(*map(self.extent, (sizes[i], a[i], b[i], c[i]))) for i in kept])

    def _packed_strides(self, strides: list[Size]) -> list[Size]:
        k, n = cast("tuple[int, int]", self.b.shape[-2:])
        tile = tile_for(host(), F64 if self.b.base.dtype.name == "f64" else F32)
        step: Size = packed_elements(k, n, tile)
        out = list(strides)
        full = spread_shape(self.b, len(strides))
        for i in reversed(range(len(strides))):
            if strides[i] != 0:
                out[i] = step
                step = step * full[i]
        return out

    def _joins(self, size: Size, a: Size, b: Size, c: Size, extras: Sequence[Size]) -> bool:
        m = self.a.shape[-2]
        if size == 1:
            return True
        line = _step(self.a, -2, self.a.shape[-1])
        ours = _step(self.c, -2, self.c.shape[-1])
        theirs = [e if m == 1 else v.strides[-2] for e, v in zip(extras, self.laid, strict=True)]
        if b != 0 or not _steps(self.a, -1, 1) or a != line * m or c != ours * m or any(
                e != step * m for e, step in zip(extras, theirs, strict=True)):
            return False
        self.a, self.c = _taller(self.a, m * size, line), _taller(self.c, m * size, ours)
        self.laid = [_taller(v, m * size, step)
                     for v, step in zip(self.laid, theirs, strict=True)]
        return True


def _taller(view: View, rows: Size, step: Size) -> View:
    """A view with more rows `step` apart."""
    return replace(view, shape=(*view.shape[:-2], rows, view.shape[-1]),
                   strides=(*view.strides[:-2], step, view.strides[-1]))


def spread_shape(view: View, lead: int) -> Shape:
    """The sizes of a view's leading axes, padded with 1 on the left."""
    own = view.shape[:-2]
    return (1,) * (lead - len(own)) + own


def _steps(view: View, axis: int, step: int) -> bool:
    """Whether neighbours along an axis lie `step` apart, or there are none."""
    if 0 in view.shape:
        return True
    other = view.strides[-1 if axis == -2 else -2]
    sound = other != 0 or view.shape[-1 if axis == -2 else -2] == 1
    return sound and (view.strides[axis] == step or view.shape[axis] == 1)


def _step(view: View, axis: int, dense: Size) -> Size:
    """The distance of lines; where there is one line, what it would be."""
    return view.strides[axis] if view.shape[axis] != 1 else dense


def matmul(_: Node, ins: Sequence[View], outs: Sequence[View], fixed: Fixed,
           tail: Tail | None = None) -> list[Lowered]:
    """NumPy's matmul."""
    return multiplied(ins[0], ins[1], outs[0], fixed, tail)


def multiplied(a: View, b: View, c: View, fixed: Fixed, tail: Tail | None = None
               ) -> list[Lowered]:
    """C = A B over views; an operand of rank 1 is a row or a column."""
    row, column = len(a.shape) == 1, len(b.shape) == 1
    if row:
        a = replace(a, shape=(1, *a.shape), strides=(0, *a.strides))
    if column:
        b = replace(b, shape=(*b.shape, 1), strides=(*b.strides, 0))
    lead = c.shape[:len(c.shape) - (not row) - (not column)]
    shape = (*lead, a.shape[-2], b.shape[-1])
    rest = iter(c.strides[len(lead):])
    strides = (*c.strides[:len(lead)], 0 if row else next(rest), 0 if column else next(rest))
    return Product(a, b, replace(c, shape=shape, strides=strides), fixed, tail).lower()


def dot_general(node: Node, ins: Sequence[View], outs: Sequence[View], fixed: Fixed,
                tail: Tail | None = None) -> list[Lowered]:
    """Axes in any order, brought to (batch, m, k) and (batch, k, n)."""
    a, b = ins
    named = {k: cast("tuple[int, ...]", v) for k, v in node.attrs.items()}
    pairs = [(a, "a"), (b, "b")]
    before: list[Lowered] = []
    views: list[View] = []
    for v, side in pairs:
        rank = len(v.shape)
        batch, inner = (tuple([axis_of(i, rank) for i in named[f"{what}_{side}"]])
                        for what in ("batch", "contract"))
        free = tuple([i for i in range(rank) if i not in (*batch, *inner)])
        order = (*batch, *free, *inner) if side == "a" else (*batch, *inner, *free)
        shape = tuple([v.shape[i] for i in batch])
        groups = (free, inner) if side == "a" else (inner, free)
        flat = (*shape, *(count(tuple([v.shape[i] for i in g])) for g in groups))
        moved = replace(v, shape=tuple([v.shape[i] for i in order]),
                        strides=tuple([v.strides[i] for i in order]))
        found = reshape(moved, flat)
        if found is None:
            dense = whole(Value(TensorType(moved.shape, v.base.dtype)))
            before.append(copy(moved, dense))
            found = reshape(dense, flat)
        assert found is not None
        views.append(found)
    batch = views[0].shape[:-2]
    target = reshape(outs[0], (*batch, views[0].shape[-2], views[1].shape[-1]))
    if target is None:
        raise Declined("its output has gaps")
    return [*before, *Product(views[0], views[1], target, fixed, tail).lower()]


LOWERINGS = {"matmul": matmul, "dot_general": dot_general}
"""Products take the parameters too: weights among them are packed."""
