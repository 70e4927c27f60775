"""Lowering of 8-bit products in i32: weights packed for the processor's instruction.

(A - p)(B - q) = A B - p sums of B's columns - q sums of A's rows + k p q. The last three are an
epilogue of A B. Column sums are made with the packed weights, row sums by a kernel before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from ...codegen.llvm.target import host
from ...codegen.llvm.text import I8
from ...codegen.llvm.text import I32 as WORD
from ...declare.arrays import Array
from ...declare.scalar import Scalar, cast_to, const, substitute, var
from ...ir.dims import Size
from ...ir.graph import Node, Value
from ...ir.types import DTYPES, F64, I32, I64, Shape, TensorType, count
from ...loops import monoids
from ...loops.build import Draft, Operand
from ...loops.lower.rows import Row, rows
from ...memory.views import View, whole
from ...records import dataclass, replace
from ...rewrite.constants import number_of
from .contraction import Epilogue, ExtraOperand, Matmul, pack_integer, tile_for
from .lowered import Lowered, Packed, Word, loop_kernel
from .pointwise import mapped
from .products import Fixed, Product, multiplied
from .reductions import kept_strides
from .tails import Tail, element_of, laid


@dataclass
class IntegerProduct(Product):
    """C = A B of i8 or u8 in i32, with a tail over variable 0, views, and B's column sums last."""

    columns: Packed | None = None

    def lower(self) -> list[Lowered]:
        """A copy of A if its rows have gaps, what the tail needs, the product."""
        if self.a.strides[-1] != 1 and self.a.shape[-1] != 1:
            self.a = self._copied(self.a)
        packed = self._packed()
        self._lay_tail()
        batch = self._batch(packed)
        m, (k, n) = self.a.shape[-2], self.b.shape
        lines = [x.strides[-2] if m != 1 else dense
                 for x, dense in ((self.a, k), (self.c, n))]
        spec = Matmul(
            self.extent(m), self.extent(n), self.extent(k), I8, I8, element_of(self.c),
            self.extent(lines[0]), None, self.extent(lines[1]), b_layout="packed",
            a_signed=_signed(self.a), b_signed=_signed(self.b), batch=batch,
            epilogue=self._epilogue())
        return [*self.before, *(self.tail.before if self.tail else ()), self._call(spec, packed)]

    def _packed(self) -> Packed:
        """The weights in the order of the instruction."""
        spec = Matmul(1, 1, 1, I8, I8, WORD, a_signed=_signed(self.a), b_signed=_signed(self.b))
        return Packed(self.b, f"8-bit panels {spec.a_signed} {spec.b_signed}", lambda array:
                      pack_integer(np.ascontiguousarray(cast(Array, array)), host(), spec))

    def _packed_strides(self, strides: list[Size]) -> list[Size]:
        return [0] * len(strides)

    def _epilogue(self) -> Epilogue | None:
        if self.tail is None:
            return None
        operands = self._laid_operands()
        if self.columns is not None:
            operands.append(ExtraOperand("sums", "column", WORD))
        return self.tail.epilogue(operands, I32)

    def _extra_words(self) -> list[Word]:
        return [*super()._extra_words(), *([] if self.columns is None else [self.columns])]


def _signed(view: View) -> bool:
    return view.base.dtype.sort == "int"


def matmul_integer(node: Node, ins: Sequence[View], outs: Sequence[View], fixed: Fixed,
                   tail: Tail | None = None) -> list[Lowered]:
    """Weights that are a parameter are packed, one matrix for all batches; the rest goes by f64."""
    if tail is not None:
        tail.epilogue((), I32)  # whichever way it goes, what it declines is the same
    (a, b), c = ins[:2], outs[0]
    given = {key: v for key, v, value in zip(node.keys, ins[2:], node.inputs[2:], strict=True)
             if number_of(value) != 0}
    flat = len(a.shape) > 1 and len(b.shape) > 1 and count(b.shape[:-2]) == 1
    if not flat or b.base not in fixed or not all(
            isinstance(n, int) for n in (*b.shape, *b.strides, b.offset)):
        return _exactly(a, b, c, given, tail)
    b = replace(b, shape=b.shape[-2:], strides=b.strides[-2:])
    work = _Zeros(a, b, c.shape)
    tail = work.tail(given.get("a_zero"), given.get("b_zero"), tail)
    return [*work.before, *IntegerProduct(a, b, c, fixed, tail, columns=work.columns).lower()]


def _exactly(a: View, b: View, c: View, given: dict[str, View], tail: Tail | None
             ) -> list[Lowered]:
    """Sums of 8-bit products are exact in f64."""
    out: list[Lowered] = []
    wide: list[View] = []
    for x, name in ((a, "a_zero"), (b, "b_zero")):
        made = whole(Value(TensorType(x.shape, F64), x.base.name))
        value, views = cast_to(var(0, x.base.dtype), F64), [x]
        if (zero := given.get(name)) is not None:
            if name == "a_zero" and len(zero.shape) == 1 and zero.shape != (1,):
                zero = replace(zero, shape=(*zero.shape, 1), strides=(*zero.strides, 0))
            value, views = value - cast_to(var(1, x.base.dtype), F64), [x, zero]
        out.append(mapped(views, [made], [value]))
        wide.append(made)
    total = whole(Value(TensorType(c.shape, F64), c.base.name))
    out += multiplied(wide[0], wide[1], total, ())
    wrapped, tail = cast_to(cast_to(var(0, F64), I64), I32), tail or Tail(var(0, I32))
    rest = [var(i + 1, v.base.dtype) for i, v in enumerate(tail.views)]
    return [*out, mapped([total, *tail.views], [c], [substitute(tail.root, [wrapped, *rest])])]


class _Zeros:
    """What zero points add to a product, as a tail."""

    def __init__(self, a: View, b: View, shape: Shape) -> None:
        self.a, self.b, self.shape = a, b, shape
        self.before: list[Lowered] = []
        self.views: list[View] = []
        self.columns: Packed | None = None

    def tail(self, p: View | None, q: View | None, then: Tail | None) -> Tail | None:
        """The correction and what comes `then`; None if there is neither."""
        root: Scalar = var(0, I32)
        self.views += then.views if then else ()
        left = None if p is None else self._operand(self._wide(p), True)
        right = None if q is None else self._operand(self._wide(q), False)
        if right is not None:
            root = root - right * self._given(laid(self._row_sums(), self.shape))
        if left is not None and right is not None:
            root = root + left * right * const(cast(int, self.b.shape[0]), I32)
        if left is not None:
            self.columns = Packed(self.b, "column sums", _column_sums)
            root = root - left * var(len(self.views) + 1, I32)
        if then is None:
            return None if left is None and right is None else Tail(root, self.views)
        rest = [var(i + 1, v.base.dtype) for i, v in enumerate(then.views)]
        return replace(then, root=substitute(then.root, [root, *rest]), views=self.views)

    def _given(self, view: View) -> Scalar:
        self.views.append(view)
        return var(len(self.views), I32)

    def _operand(self, zero: View, of_rows: bool) -> Scalar:
        """A zero point under the product's shape: one for all, one a row, one a column."""
        by_row = of_rows and len(zero.shape) == 1 and zero.shape != (1,)
        if by_row:
            zero = replace(zero, shape=(*zero.shape, 1), strides=(*zero.strides, 0))
        return self._given(laid(zero, self.shape))

    def _wide(self, view: View) -> View:
        """A zero point in i32."""
        made = whole(Value(TensorType(view.shape, I32), view.base.name))
        self.before.append(mapped([view], [made], [cast_to(var(0, view.base.dtype), I32)]))
        return made

    def _row_sums(self) -> View:
        """The sums of A's rows, [.., m, 1]."""
        a, rank = self.a, len(self.a.shape)
        y = whole(Value(TensorType((*a.shape[:-1], 1), I32), "row_sums"))
        draft = Draft()
        source = Operand(draft.buffer(a.base.dtype), a.strides)
        target = Operand(draft.buffer(I32, True), kept_strides(y, rank, (rank - 1,)))

        def body(row: Row) -> None:
            total, = row.reduce(monoids.add(DTYPES["i32"]), cast_to(row.load(0), I32))
            row.store(1, total)

        kernel = rows(draft, a.shape, (rank - 1,), [source], [target], body)
        self.before.append(loop_kernel(draft, kernel, [a, y], [y], count(a.shape)))
        return y


def _column_sums(array: object) -> Any:  # noqa: ANN401
    """The sums of the columns of B, and room for a vector that reads beyond them."""
    b = cast(Array, array)
    columns = tile_for(host(), WORD).columns
    out = np.zeros(-(-b.shape[-1] // columns) * columns, np.int32)
    out[:b.shape[-1]] = b.sum(-2, dtype=np.int32)
    return out


LOWERINGS = {"matmul_integer": matmul_integer}
"""8-bit products take the parameters too."""
