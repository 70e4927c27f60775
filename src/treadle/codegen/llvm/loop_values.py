"""Values of a kernel being printed: expressions, addresses, reductions, hoisting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from ...declare.scalar import Scalar, var, walk
from ...loops.functions import open_functions
from ...loops.ir import (
    Acc,
    Access,
    Axis,
    Extent,
    Loop,
    Result,
    accesses,
    leaf_of,
    loops,
    roots,
)
from ...loops.ir import Kernel as LoopKernel
from ...loops.schedule import Schedule
from ...records import dataclass, field
from .kernel import Kernel
from .loop_memory import Memory
from .scalars import constant, evaluate, primitive, rare_function
from .text import I64, Function, Value

Index: TypeAlias = "int | Value"
Parts: TypeAlias = tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Slot:
    """One vector step of the lanes loop: its first lane, its width, its valid lanes."""

    base: Index
    width: int
    mask: Value | None = None


@dataclass(eq=False)
class Line:
    """One of the items that are computed side by side: its positions and what is known of it."""

    scopes: list[dict[object, Value]]
    place: dict[Axis, Index] = field(default_factory=dict)
    results: dict[tuple[Acc, int, Slot | None], Value] = field(default_factory=dict)


class Values(Memory):
    """Values are remembered by expression and slot, in the scope that made them."""

    def __init__(self, kernel: LoopKernel, schedule: Schedule, out: Kernel) -> None:
        self.k, self.s, self.out = kernel, schedule, out
        self.f: Function = out.function
        self.lines = [Line([{}])]
        self.turn(self.lines[0])
        self.varying: set[object] = set()
        self.written: dict[tuple[Axis, int], Slot] = {}
        self.lane: Axis | None = None
        self._deps: dict[Scalar, frozenset[object]] = {}

    def turn(self, line: Line) -> None:
        """Go on with an item."""
        self.scopes, self.place, self.results = line.scopes, line.place, line.results

    def each_line(self) -> Iterator[Line]:
        """Every item, the one to go on with."""
        for line in self.lines:
            self.turn(line)
            yield line

    # What an expression depends on

    def deps(self, e: Scalar) -> frozenset[object]:
        """The axes and reductions under an expression, through addresses too."""
        if (found := self._deps.get(e)) is not None:
            return found
        for s in walk(e):
            if s in self._deps:
                continue
            if s.op == "var":
                self._deps[s] = self._leaf_deps(s)
            else:
                self._deps[s] = frozenset().union(*[self._deps[a] for a in s.args])
        return self._deps[e]

    def _leaf_deps(self, e: Scalar) -> frozenset[object]:
        leaf = leaf_of(self.k, e)
        if isinstance(leaf, Access):
            axes = [k for k, _ in leaf.terms if isinstance(k, Axis)]
            return frozenset(axes).union(*[self.deps(k) for k in leaf.under()])
        if isinstance(leaf, Result):
            return frozenset([leaf.acc])
        return frozenset([leaf] if isinstance(leaf, Axis) else [])

    def varies(self, e: Scalar) -> bool:
        """Whether lanes differ in the value."""
        return bool(self.deps(e) & self.varying)

    # Index arithmetic

    def size(self, extent: Extent) -> Index:
        """An extent as an index."""
        return extent if isinstance(extent, int) else self.out[extent]

    def arith(self, op: str, a: Index, b: Index) -> Index:
        """`add sub mul udiv urem min` of indices; numbers and neutral elements fold."""
        if isinstance(a, int) and isinstance(b, int):
            return _FOLD[op](a, b)
        if (op in ("add", "sub") and b == 0) or (op in ("mul", "udiv") and b == 1):
            return a
        if (op == "add" and a == 0) or (op == "mul" and a == 1):
            return b
        if (op == "urem" and b == 1) or (op == "mul" and (a == 0 or b == 0)):
            return 0
        x, y = self.f.constant(I64, a), self.f.constant(I64, b)
        return self.f.minimum(x, y) if op == "min" else self.f.binary(op, x, y)

    def widen(self, v: Value, width: int) -> Value:
        """A scalar in every lane."""
        if v.type.lanes or width == 1:
            return v
        if not v.name.startswith("%"):
            kind = v.type.vector(width)
            return Value(self.f, f"splat ({v.type} {v.name})", kind)
        return self.f.splat(v, width)

    def mask(self, base: Index, high: Index, width: int) -> Value:
        """The lanes from `base` that lie below `high`."""
        left = self.f.constant(I64, self.arith("sub", high, base))
        if width == 1:
            return self.f.compare("gt", left, 0)
        return self.f.tail_mask(left, width)

    # Reductions

    def identity(self, acc: Acc, width: int) -> Parts:
        """The components that change nothing."""
        return tuple([self.widen(constant(self.f, e), width) for e in acc.monoid.identity])

    def combine(self, acc: Acc, a: Parts, b: Parts) -> Parts:
        """Two partial results as one."""
        types, n = acc.monoid.dtypes, len(acc.monoid.dtypes)
        left = tuple([var(k, d) for k, d in enumerate(types)])
        right = tuple([var(n + k, d) for k, d in enumerate(types)])
        outs = open_functions(acc.monoid.combine(left, right))
        known: dict[Scalar, Value] = dict(zip((*left, *right), (*a, *b), strict=True))
        width = max(v.type.lanes for v in (*a, *b)) or 1
        return tuple(evaluate(self.f, outs, known, lambda v: self.widen(v, width)))

    def accumulate(self, acc: Acc, old: Parts | None, slot: Slot | None) -> list[Value]:
        """`old` with the values of this step, those of masked lanes apart."""
        width = slot.width if slot else 1
        if old is not None and (slot is None or slot.mask is None) and self._product(acc):
            a, b = (self.widen(self.value(v, slot), width) for v in acc.values[0].args)
            return [self.f.fma(a, b, old[0])]
        new = tuple([self.widen(self.value(v, slot), width) for v in acc.values])
        if slot is not None and slot.mask is not None:
            new = tuple([self.f.select(self.widen(slot.mask, width), v, i)
                         for v, i in zip(new, self.identity(acc, width), strict=True)])
        return list(self.combine(acc, old, new) if old is not None else new)

    def _product(self, acc: Acc) -> bool:
        """Whether products are summed, which a fused step does with one rounding less."""
        value = acc.values[0]
        return (acc.monoid.name == "add" and value.op == "mul" and self.f.target.has_fma
                and value.dtype.name in ("f32", "f64"))

    def finish(self, acc: Acc, parts: list[Parts]) -> Parts:
        """A fixed tree over the accumulators, then over the lanes, then the scalar rest."""
        v = self.s.vector
        wide = [p for p in parts if (p[0].type.lanes or 1) == v] or [self.identity(acc, v)]
        rest = [p for p in parts if (p[0].type.lanes or 1) != v]
        while len(wide) > 1:
            wide = [self.combine(acc, wide[i], wide[i + 1]) if i + 1 < len(wide) else wide[i]
                    for i in range(0, len(wide), 2)]
        out = wide[0]
        while (w := out[0].type.lanes) > 1:
            halves = [tuple([self.f.part(x, at, w // 2) for x in out]) for at in (0, w // 2)]
            out = self.combine(acc, halves[0], halves[1])
        for p in rest:
            out = self.combine(acc, out, p)
        return out

    def publish(self, acc: Acc, values: Sequence[Value], slot: Slot | None) -> None:
        """Make a finished reduction known to the statements after its loop."""
        for k, v in enumerate(values):
            self.results[acc, k, slot if acc in self.varying else None] = v

    # Values

    def value(self, e: Scalar, slot: Slot | None) -> Value:
        """An expression's value: a vector where lanes differ, else a scalar."""
        todo = [e]
        while todo:
            top = todo[-1]
            if self._find(top, slot) is not None:
                todo.pop()
                continue
            waiting = [a for a in _needed(top) if self._find(a, slot) is None]
            if waiting:
                todo.extend(waiting)
                continue
            todo.pop()
            self.scopes[-1][self._key(top, slot)] = self._fresh(top, slot)
        found = self._find(e, slot)
        assert found is not None
        return found

    def order(self, wanted: Iterable[Scalar]) -> list[Scalar]:
        """Expressions with what they always take, operands first."""
        out, todo = dict[Scalar, None](), list(wanted)[::-1]
        while todo:
            waiting = [a for a in _needed(todo[-1]) if a not in out]
            if waiting:
                todo.extend(waiting)
            else:
                out.setdefault(todo.pop())
        return list(out)

    def _key(self, e: Scalar, slot: Slot | None) -> object:
        return e, slot if self.varies(e) else None

    def _find(self, e: Scalar, slot: Slot | None) -> Value | None:
        key = self._key(e, slot)
        return next((s[key] for s in reversed(self.scopes) if key in s), None)

    def _fresh(self, e: Scalar, slot: Slot | None) -> Value:
        if e.op == "const":
            return constant(self.f, e)
        if e.op == "var":
            return self._leaf(e, slot)
        if e.op == "rarely":
            return self._rarely(e, slot)
        args = [self.value(a, slot) for a in e.args]
        width = max(a.type.lanes for a in args) or 1
        return primitive(self.f, e, [self.widen(a, width) for a in args])

    def _rarely(self, e: Scalar, slot: Slot | None) -> Value:
        """The usual value; if a lane's condition holds, a loop over the lanes asks for the other.

        A function of one lane computes it, so that rare code is small and written once.
        """
        f = self.f
        condition, usual, x = [self.value(a, slot) for a in _needed(e)]
        width = max(v.type.lanes for v in (condition, usual, x)) or 1
        condition, usual, x = (self.widen(v, width) for v in (condition, usual, x))
        other = rare_function(f.module, e)
        if width == 1:
            with f.loop(0, f.cast("zext", condition, I64), 1, [usual]) as at:
                at.carry(f.invoke(other, x))
            return at.results[0]
        count = f.select(f.reduce(condition, lambda a, b: a | b), f.constant(I64, width), 0)
        with f.loop(0, count, 1, [usual]) as at:
            item = f.select(f.extract(condition, at.index), f.invoke(
                other, f.extract(x, at.index)), f.extract(at.values[0], at.index))
            at.carry(f.insert(at.values[0], item, at.index))
        return at.results[0]

    def _leaf(self, e: Scalar, slot: Slot | None) -> Value:
        leaf = leaf_of(self.k, e)
        if isinstance(leaf, Access):
            return self.load(leaf, slot if self.varies(e) else None)
        if isinstance(leaf, Result):
            return self.results[leaf.acc, leaf.component,
                                slot if leaf.acc in self.varying else None]
        if isinstance(leaf, str):
            return self.out[leaf]
        if slot is not None and leaf is self.lane:
            base = self.f.constant(I64, slot.base)
            if slot.width == 1:
                return base
            return self.widen(base, slot.width) + self.f.iota(I64.vector(slot.width))
        return self.f.constant(I64, self.place[leaf])

    # Hoisting

    def hoist(self, loop: Loop, slots: Sequence[Slot | None]) -> None:
        """Emit, before a loop, what does not change in it."""
        bound: set[object] = {x for s in loops(loop) for x in (s.axis, *s.accs)}
        for root in roots(loop):
            for e in self._maximal(root, bound):
                for slot in slots if self.varies(e) else [None]:
                    self.value(e, slot)
        for a in accesses(self.k, loop):
            if all(isinstance(k, Axis) for k, _ in a.terms):
                for slot in slots:
                    self.address(a, slot, known=False)

    def _maximal(self, root: Scalar, bound: set[object]) -> Iterator[Scalar]:
        todo, seen = [root], set[Scalar]()
        while todo:
            e = todo.pop()
            if e in seen or e.op == "const":
                continue
            seen.add(e)
            if self.deps(e) & bound:
                todo.extend(e.args)
            elif not self._guarded(e):
                yield e

    def _guarded(self, e: Scalar) -> bool:
        """Whether a load under `e` must wait for a check or a guard."""
        for s in walk(e):
            leaf = leaf_of(self.k, s) if s.op == "var" else None
            if isinstance(leaf, Access) and next(leaf.under(), None) is not None:
                return True
        return False

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Values made inside do not outlive it."""
        lines = self.lines
        for line in lines:
            line.scopes.append({})
        yield
        for line in lines:
            line.scopes.pop()


def _needed(e: Scalar) -> tuple[Scalar, ...]:
    """The operands that a value always takes."""
    return (*e.args[:2], *e.args[3:]) if e.op == "rarely" else e.args


_FOLD = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
         "udiv": lambda a, b: a // b, "urem": lambda a, b: a % b, "min": min}
