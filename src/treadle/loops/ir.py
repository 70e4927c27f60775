"""The loop IR: buffers with affine access, three kinds of loop, scalar expressions at the leaves.

Expressions are those of `declare.scalar`. A variable of a kernel stands for `kernel.leaves[index]`:
an element of a buffer, the position on an axis, the result of a reduction, or a word that each run
supplies. Buffers are pointers to the element at which all terms are 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal, TypeAlias, cast

from ..declare.scalar import Scalar, walk
from ..ir.types import DType
from ..records import dataclass
from .monoids import Monoid

Kind: TypeAlias = Literal["par", "lanes", "seq"]
Extent: TypeAlias = "int | str"
"""A size or stride in elements: known, or the name of a word."""


@dataclass(frozen=True, eq=False)
class Axis:
    """An iteration variable; its identity is the object."""

    name: str
    extent: Extent


@dataclass(frozen=True, eq=False)
class Buffer:
    """Storage that the kernel is given a pointer to."""

    name: str
    dtype: DType
    output: bool = False


@dataclass(frozen=True, eq=False)
class Access:
    """The element at `offset + sum(key * stride)`; a key is an axis or an i64 expression.

    Where `guard` is false nothing is read and the value is `fill`.
    """

    buffer: Buffer
    terms: tuple[tuple[Axis | Scalar, Extent], ...]
    offset: Extent = 0
    guard: Scalar | None = None
    fill: Scalar | None = None

    def stride(self, axis: Axis | None) -> Extent:
        """The stride along an axis; 0 if it does not move there."""
        return next((s for k, s in self.terms if k is axis), 0)

    def under(self) -> Iterator[Scalar]:
        """The expressions under the address and the guard."""
        yield from (k for k, _ in self.terms if isinstance(k, Scalar))
        if self.guard is not None:
            yield self.guard
        if self.fill is not None and self.fill.op != "const":
            yield self.fill


@dataclass(eq=False)
class Acc:
    """A reduction over the loop that owns it; its results exist after that loop.

    Inside a seq loop they are those of the steps before.
    """

    name: str
    monoid: Monoid
    values: tuple[Scalar, ...]


@dataclass(frozen=True, eq=False)
class Result:
    """A component of a finished reduction."""

    acc: Acc
    component: int = 0


Leaf: TypeAlias = "Access | Axis | Result | str"


@dataclass(frozen=True, eq=False)
class Store:
    """Write an element. Where several lanes would write the same one, one does."""

    access: Access
    value: Scalar


@dataclass(frozen=True, eq=False)
class Check:
    """End the kernel with `code` and the i64 `value` where `bad` holds."""

    bad: Scalar
    code: int
    value: Scalar


@dataclass(frozen=True, eq=False)
class Loop:
    """par: independent items. lanes: the lanes of a vector. seq: in order."""

    kind: Kind
    axis: Axis
    body: tuple[Loop | Store | Check, ...] = ()
    accs: tuple[Acc, ...] = ()


Stmt: TypeAlias = "Loop | Store | Check"


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel: what it is given, what it does, what its variables stand for."""

    buffers: tuple[Buffer, ...]
    words: tuple[str, ...]
    body: tuple[Stmt, ...]
    leaves: tuple[Leaf, ...]

    @cached_property
    def expressions(self) -> tuple[Scalar, ...]:
        """Every expression, through addresses too, each once."""
        return tuple(_reached(self, self.body))


def roots(*stmts: Stmt) -> Iterator[Scalar]:
    """Every expression that the statements evaluate, those under addresses included."""
    for s in stmts:
        if isinstance(s, Store):
            yield from s.access.under()
            yield s.value
        elif isinstance(s, Check):
            yield from (s.bad, s.value)
        else:
            yield from roots(*s.body)
            yield from (v for a in s.accs for v in a.values)


def reached(kernel: Kernel, *stmts: Stmt) -> Iterable[Scalar]:
    """Every expression under the statements, through addresses too, each once."""
    return kernel.expressions if stmts == kernel.body else _reached(kernel, stmts)


def _reached(kernel: Kernel, stmts: Sequence[Stmt]) -> Iterator[Scalar]:
    seen: set[Scalar] = set()
    todo = list(roots(*stmts))
    while todo:
        root = todo.pop()
        for e in () if root in seen else walk(root):
            if e in seen:
                continue
            seen.add(e)
            yield e
            if e.op == "var" and isinstance(leaf := leaf_of(kernel, e), Access):
                todo.extend(leaf.under())


def leaf_of(kernel: Kernel, e: Scalar) -> Leaf:
    """What a variable stands for."""
    return kernel.leaves[cast(int, e.value)]


def accesses(kernel: Kernel, *stmts: Stmt) -> Iterator[Access]:
    """Every access under the statements: stores, then loads."""
    for s in stores(*stmts):
        yield s.access
    for e in reached(kernel, *stmts):
        if e.op == "var" and isinstance(leaf := leaf_of(kernel, e), Access):
            yield leaf


def stores(*stmts: Stmt) -> Iterator[Store]:
    """Every store under the statements."""
    for s in stmts:
        if isinstance(s, Loop):
            yield from stores(*s.body)
        elif isinstance(s, Store):
            yield s


def loops(*stmts: Stmt) -> Iterator[Loop]:
    """Every loop under the statements, outer first."""
    for s in stmts:
        if isinstance(s, Loop):
            yield s
            yield from loops(*s.body)
