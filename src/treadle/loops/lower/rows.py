"""Rows: map-reduce-map over any axes of an iteration space."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...declare.scalar import Scalar, walk
from ...ir.dims import Size
from ...records import dataclass, replace
from ..build import Draft, Operand, Space, collapse, density, nest
from ..ir import Acc, Access, Axis, Check, Kernel, Leaf, Loop, Result, Stmt, Store
from ..monoids import Monoid


@dataclass
class _Stage:
    """Statements and reductions that share one pass over the row."""

    stores: list[Store]
    accs: list[Acc]
    checks: list[Check]
    once: list[Store]


class Row:
    """What a row's body sees: loads along the row, reductions over it, stores."""

    def __init__(self, space: Space, row: Sequence[Axis], draft: Draft, lanes: Axis | None) -> None:
        self.space, self.row, self.draft, self.lanes = space, row, draft, lanes
        self.stages: list[_Stage] = [_Stage([], [], [], [])]
        self.owner: dict[Acc, int] = {}

    def load(self, i: int) -> Scalar:
        """Operand `i` at the current position."""
        return self.space.load(i)

    def reduce(self, monoid: Monoid, *values: Scalar) -> tuple[Scalar, ...]:
        """Reduce along the row; reductions that do not depend on each other share a pass."""
        at = max([self.level(v) for v in values], default=0)
        acc = Acc(f"{monoid.name}{len(self.owner)}", monoid, values)
        self._stage(at).accs.append(acc)
        self.owner[acc] = at
        return tuple([self.draft.result(acc, k) for k in range(len(monoid.dtypes))])

    def store(self, i: int, value: Scalar) -> None:
        """Write operand `i`: per element, or once a row where it does not move along the row."""
        store = self.space.store(i, value)
        at = self.level(value)
        moves = any(k in self.row for k, _ in store.access.terms)
        if not moves and any(n != 1 for n in (a.extent for a in self.row)):
            self._stage(max(at - 1, 0)).once.append(store)
        else:
            self._stage(at).stores.append(store)

    def level(self, value: Scalar) -> int:
        """The first pass in which a value can be known."""
        found = 0
        for leaf in leaves_under(self.draft, value):
            if isinstance(leaf, Result):
                found = max(found, self.owner[leaf.acc] + 1)
        return found

    def _stage(self, at: int) -> _Stage:
        while len(self.stages) <= at:
            self.stages.append(_Stage([], [], [], []))
        return self.stages[at]

    def statements(self) -> tuple[Stmt, ...]:
        """The passes in order."""
        self.stages[0].checks += self.space.checks.values()
        out: list[Stmt] = []
        for stage in self.stages:
            if stage.stores or stage.accs or stage.checks:
                out.append(self._pass((*stage.checks, *stage.stores), tuple(stage.accs)))
            out += stage.once
        return tuple(out)

    def _pass(self, body: tuple[Stmt, ...], accs: tuple[Acc, ...]) -> Stmt:
        """A loop nest over the row's axes; each loop reduces what the one inside it gives."""
        held = list(accs)
        nest: list[tuple[Axis, list[Acc]]] = []
        for axis in self.row[:-1]:
            nest.append((axis, held))
            inner = [Acc(a.name + "_", a.monoid, a.values) for a in held]
            for outer, a in zip(held, inner, strict=True):
                outer.values = tuple([self.draft.result(a, k) for k in range(len(a.values))])
            held = inner
        nest.append((self.row[-1], held))
        for axis, own in reversed(nest):
            body = (Loop("lanes" if axis is self.lanes else "seq", axis, body, tuple(own)),)
        return body[0]


def leaves_under(draft: Draft, value: Scalar) -> list[Leaf]:
    """What the variables under a value stand for, through addresses too."""
    out: list[Leaf] = []
    todo, seen = [value], set[Scalar]()
    while todo:
        for e in walk(todo.pop()):
            if e.op != "var" or e in seen:
                continue
            seen.add(e)
            leaf = draft.leaves[e.value]  # type: ignore[index]
            out.append(leaf)
            if isinstance(leaf, Access):
                todo.extend(leaf.under())
    return out


def rows(draft: Draft, shape: Sequence[Size], over: Sequence[int], ins: Sequence[Operand],
         outs: Sequence[Operand], body: Callable[[Row], None], lead: int = 0,
         checks: Sequence[Check] = ()) -> Kernel:
    """Map-reduce-map over the axes `over` of `shape`.

    Operands are numbered inputs first. The lanes run along the axis in which operand `lead` is
    densest: along the row, or across rows that are walked side by side. Each row begins with
    the checks.
    """
    sizes, operands, groups = collapse(shape, [*ins, *outs], over=over)
    axes = [draft.axis(f"i{d}", n) for d, n in enumerate(sizes)]
    inside = [d for d, group in enumerate(groups) if group[0] in over]
    outside = [d for d in range(len(axes)) if d not in inside]
    if not inside:
        axes.append(draft.axis("r", 1))
        operands = [replace(o, strides=(*o.strides, 0)) for o in operands]
        inside = [len(axes) - 1]
    first = operands[lead].strides
    best = min(range(len(axes)), key=lambda d: density(first[d], d))
    if best in inside:
        inside = [d for d in inside if d != best] + [best]
    row = Row(Space(draft, axes, operands), [axes[d] for d in inside], draft,
              axes[best] if best in inside else None)
    body(row)
    stmts = (*checks, *row.statements())
    if best not in inside:
        stmts = (Loop("lanes", axes[best], stmts),)
    return draft.kernel(*nest([("par", axes[d]) for d in outside if d != best], stmts))
