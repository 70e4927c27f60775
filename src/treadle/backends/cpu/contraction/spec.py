"""What a matrix multiplication kernel is asked to compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from ....codegen.llvm.instructions import widest
from ....codegen.llvm.text import F32, I8, Function, Type, Value
from ....records import dataclass, field

Extent: TypeAlias = int | str
"""A size or stride in elements: known, or the name of a word given at each run."""


@dataclass(frozen=True, slots=True)
class ExtraOperand:
    """A tensor that an epilogue or prologue reads, by how it lies along the product.

    `column` has an element per column (of C; of A in a prologue), `row` one per row, `matrix` one
    for each element of C, `scalar` is one element. Values arrive converted to the accumulator's
    type.

    In an epilogue `line` is the distance of rows, by default 1 for a `row` and that of C for a
    `matrix`. `batch` are strides along the batch axes, by default those of C for a `matrix`, else
    0.
    """

    name: str
    kind: Literal["column", "row", "matrix", "scalar"]
    type: Type = F32
    line: Extent | None = None
    batch: tuple[Extent, ...] | None = None

    def extents(self) -> tuple[Extent, ...]:
        """Strides that may be words."""
        return (*(self.batch or ()), *((self.line,) if self.line is not None else ()))


@dataclass(frozen=True, slots=True)
class Place:
    """Where in its matrix a vector begins: the row, and the column of its first lane (`i64`)."""

    row: Value
    column: Value


Transform: TypeAlias = Callable[[Function, Value, Sequence[Value], Place], Value]
"""(builder, vector, the operands' values there, place) -> vector of the same type."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Applied to every finished vector of C before it is converted and stored.

    `key` names what `emit` does: kernels with equal keys share code. `late` epilogues run over a
    tile of C once it is stored, while it lies in the first-level cache, others in its registers.
    """

    key: str
    operands: tuple[ExtraOperand, ...]
    emit: Transform = field(repr=False, compare=False)
    late: bool = False


@dataclass(frozen=True, slots=True)
class Prologue:
    """Applied to every vector of A, converted to the accumulator's type, before it is used."""

    key: str
    operands: tuple[ExtraOperand, ...]
    emit: Transform = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class BatchAxis:
    """A leading axis: its extent and each operand's stride along it; stride 0 broadcasts.

    Strides count elements. Those of a packed B count elements of the packed form.
    """

    extent: Extent
    a: Extent
    b: Extent
    c: Extent


@dataclass(frozen=True, slots=True)
class Matmul:
    """`C[m, n] = A[m, k] B[k, n]`, row by row, over the batch axes.

    `a`, `b`, `c` are element types in memory. Floats accumulate in f32 (f64 for f64), 8-bit
    integers in i32. `lda`, `ldb`, `ldc` are the distances between rows as they lie in memory;
    by default rows are adjacent. `a_transposed` says that A lies as (k, m).

    `b_layout`: `packed` is what `pack` makes, `rows` lies as (k, n), `columns` as (n, k).
    `a_signed` and `b_signed` belong to 8-bit elements; `small` says that no two neighbours along k
    of a signed B can overflow 16 bits (see `integer`). `cold` says that B is not in a cache.
    """

    m: Extent
    n: Extent
    k: Extent
    a: Type = F32
    b: Type = F32
    c: Type = F32
    lda: Extent | None = None
    ldb: Extent | None = None
    ldc: Extent | None = None
    a_transposed: bool = False
    b_layout: Literal["packed", "rows", "columns"] = "packed"
    a_signed: bool = True
    b_signed: bool = True
    batch: tuple[BatchAxis, ...] = ()
    prologue: Prologue | None = None
    epilogue: Epilogue | None = None
    cold: bool = True
    small: bool = False

    @property
    def accumulator(self) -> Type:
        """The scalar type in which products are summed."""
        return widest(self.a)

    @property
    def integer(self) -> bool:
        """Whether this multiplies 8-bit integers."""
        return self.a == I8

    @property
    def row_a(self) -> Extent:
        """The distance between rows of A as they lie in memory."""
        return self.lda if self.lda is not None else (self.m if self.a_transposed else self.k)

    @property
    def row_b(self) -> Extent:
        """The distance between rows of an unpacked B as they lie in memory."""
        return self.ldb if self.ldb is not None else (
            self.k if self.b_layout == "columns" else self.n)

    @property
    def row_c(self) -> Extent:
        """The distance between rows of C."""
        return self.ldc if self.ldc is not None else self.n

    @property
    def extras(self) -> tuple[ExtraOperand, ...]:
        """Operands of the prologue, then of the epilogue."""
        before = self.prologue.operands if self.prologue else ()
        return before + (self.epilogue.operands if self.epilogue else ())

    def run_time_words(self) -> list[str]:
        """Names of sizes and strides that each run supplies, in order of first use."""
        sizes = [self.m, self.n, self.k, self.row_a, self.row_b, self.row_c]
        for axis in self.batch:
            sizes += [axis.extent, axis.a, axis.b, axis.c]
        for operand in self.extras:
            sizes += operand.extents()
        return list(dict.fromkeys(size for size in sizes if isinstance(size, str)))
