"""One stage under one binding of sizes: offsets, shapes, schedules."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...codegen.llvm.schedule import Frame, Guard, Phase, Schedule
from ...declare.arrays import Array, np_dtype
from ...ir.dims import Size, evaluate, symbols
from ...ir.graph import Value
from ...memory.arena import ArenaPlan, Layout
from ...memory.liveness import Access
from ...memory.views import View
from ...records import dataclass, field
from .addresses import Place, address
from .assembly import AnyStep, Assembled, HostStep, NativeStep, RepeatStep, Stage
from .extents import depends, obstacle, rounded
from .guards import Guarded, Numbered
from .leaves import bound, dry_run, leaf, place
from .limits import Limits, reserve
from .lowered import Packed
from .words import Base, Words, parts

Bytes: TypeAlias = NDArray[np.uint8]
Followers: TypeAlias = "list[tuple[int, int]]"
"""Words of a frame that follow one base, with the bytes beyond its address."""


@dataclass(eq=False)
class Segment:
    """Consecutive native steps: one foreign call. `bases[base_of]` is added to `offsets`."""

    steps: list[AnyStep]
    numbers: list[int]
    phases: list[Phase]
    schedule: Schedule
    frame: Frame
    bases: list[Base]
    base_of: NDArray[np.int64]
    offsets: NDArray[np.int64]
    slopes: Mapping[str, NDArray[np.int64]]
    moving: dict[Base, Followers] = field(default_factory=dict[Base, Followers])
    still: NDArray[np.int64] | int = 0
    following: dict[Base, NDArray[np.intp]] = field(default_factory=dict[Base, NDArray[np.intp]])
    """`slopes` is what one more of a length adds to the offsets."""

    def settle(self, still: Mapping[Base, int]) -> None:
        """Take the addresses of bases that stay where they are; the others are `moving`."""
        addresses = np.array([*(still.get(b, 0) for b in self.bases), 0], np.int64)
        self.still = addresses[self.base_of]
        self.following = {b: np.flatnonzero(self.base_of == i)
                          for i, b in enumerate(self.bases) if b not in still}
        self._write(self.offsets)

    def stretch(self, by: Mapping[str, int]) -> None:
        """Write the words for other lengths: `by` more than those of the plan."""
        offsets = self.offsets
        for name, steps in by.items():
            offsets = offsets + steps * self.slopes[name]
        self._write(offsets)

    def _write(self, offsets: NDArray[np.int64]) -> None:
        self.frame.words[:offsets.size] = offsets + self.still
        self.moving = {b: list(zip(at.tolist(), offsets[at].tolist(), strict=True))
                       for b, at in self.following.items()}

    def flag(self, guard: Guard) -> bool:
        """What a guard looks at."""
        return ctypes.c_uint8.from_address(self.frame.table[guard.offset]).value != 0

    def point(self, words: Followers, address: int) -> None:
        """Write the words of a moving base."""
        table = self.frame.table
        for word, offset in words:
            table[word] = address + offset


@dataclass(eq=False)
class HostCall:
    """A host step with the places of what it reads."""

    step: HostStep
    number: int
    places: dict[Value, Place]


@dataclass(eq=False)
class Plan:
    """What a run of a stage needs, ready."""

    layout: Layout[Value]
    sized: Mapping[str, int]
    """The binding that it was laid out for; `binding` is the one it serves now."""
    binding: Mapping[str, int]
    leaves: dict[Base, Array]
    items: list[Segment | HostCall]
    outputs: dict[Value, tuple[int, ...]]
    arena: Bytes | None = None
    version: int = -1
    arrays: dict[Base, Array] = field(default_factory=dict[Base, Array])

    def place_in(self, arena: Bytes, held: Mapping[Base, int], version: int) -> None:
        """Settle in an arena; done again for another one or other parameters.

        `held` are the addresses of parameters, which change with `version`.
        """
        if self.arena is arena and self.version == version:
            return
        self.arena, self.version = arena, version
        self.arrays = dict(self.leaves)
        start = address(arena)
        still = {**held, **{b: start + at for b, at in self.layout.offsets.items()},
                 **{b: address(a) for b, a in self.leaves.items()}}
        for item in self.items:
            if isinstance(item, Segment):
                item.settle(still)
        if self.binding is not self.sized:
            self._stretch()

    def _stretch(self) -> None:
        self.arrays = dict(self.leaves)
        for item in self.items:
            if isinstance(item, Segment):
                item.stretch({n: self.binding[n] - self.sized[n] for n in item.slopes})

    def serve(self, binding: Mapping[str, int], outputs: dict[Value, tuple[int, ...]],
              leaves: Mapping[Base, Array]) -> None:
        """Serve other lengths from now on; `leaves` are those that depend on them."""
        self.binding, self.outputs = binding, outputs
        if leaves:
            self.leaves.update(leaves)
            self.arena = None
        elif self.arena is not None:
            self._stretch()

    def find(self, base: Base) -> Array | None:
        """The array behind a base of the arena or a leaf, or None for another base."""
        if (found := self.arrays.get(base)) is None and base in self.layout.offsets:
            assert not isinstance(base, Packed)
            found = self.arrays[base] = np.ndarray(
                bound(base, self.binding), np_dtype(base.dtype), self.arena,
                self.layout.offsets[base])
        return found


class Planner:
    """Everything about a stage that does not depend on the binding."""

    def __init__(self, whole: Assembled, stage: Stage, direct: Sequence[Value],
                 later: Sequence[Value], extents: Mapping[str, int] | None = None) -> None:
        """`direct` bases are written to storage of their own; `later` stages read some bases.

        `extents` are the lengths that one plan may serve, with their capacities.
        """
        self.whole, self.stage = whole, stage
        self.direct = [v for v in direct if any(v in written(s) for s in stage.steps)]
        own = {*self.direct, *whole.graph.inputs}  # kernels may write resident inputs
        steps = [self._access(s, own) for s in stage.steps]
        self.guarded = Guarded(stage)
        sizes = {b: _nbytes(b) for s in steps for b in s.writes}
        self.arena: ArenaPlan[Value] = ArenaPlan(steps, sizes, [v for v in later if v in sizes])
        nodes = [*[s.node for s in stage.steps if not isinstance(s, HostStep)
                   and s not in stage.inside], *stage.leaves, *stage.views]
        self.limits = Limits(nodes)
        self.made = [*self.arena.sizes, *self.direct]
        self.symbols = sorted(self._symbols())
        self._parts = {c: parts(c) for s in stage.steps if not isinstance(s, HostStep)
                       for c in (*s.calls(), *self.guarded.refusals(s))}
        names = frozenset(extents or ()).intersection(self.symbols)
        nodes += self.guarded.nodes()
        values = [*self.made, *(v for node in nodes for v in node.outputs)]
        self.obstacle = obstacle(stage, self._parts, values, names)
        self.extents = {n: room for n, room in (extents or {}).items()
                        if n in names and not self.obstacle}
        self._checked, self._late = ([n for n in nodes if not names.isdisjoint(depends(n))]
                                     for nodes in (stage.checks, stage.leaves))

    def sized(self, binding: Mapping[str, int]) -> Mapping[str, int]:
        """The binding that a plan for `binding` is laid out for."""
        if not self.extents:
            return binding
        return {**binding, **{n: rounded(binding[n], c) for n, c in self.extents.items()}}

    def serve(self, plan: Plan, binding: Mapping[str, int]) -> None:
        """Have a plan serve the lengths of a binding."""
        if not self.extents or all(plan.binding[n] == binding[n] for n in self.extents):
            return
        self.limits.check_windows(binding)
        for node in self._checked:
            dry_run(node, binding)
        leaves: dict[Base, Array] = {
            self.whole.views[v].base: a for node in self._late
            for v, a in zip(node.outputs, leaf(node, binding), strict=True)}
        plan.serve(dict(binding), {v: bound(v, binding) for v in self.direct}, leaves)

    def _access(self, step: AnyStep, own: set[Value]) -> Access[Value]:
        """Arena buffers that a step touches; a host step's outputs are NumPy's."""
        if isinstance(step, NativeStep):
            low = step.lowered
            writes = tuple([b for b in low.writes if b not in own])
            return Access(writes, tuple(low.reads), tuple(
                [(new, old) for new, old in low.reuse if new not in own]))
        hosted = isinstance(step, HostStep)
        return Access(() if hosted else tuple([b for b in written(step) if b not in own]),
                      tuple(read(step)))

    def _symbols(self) -> set[str]:
        found = {name for size in self.limits.sizes() for name in symbols(size)}
        for s in self.stage.steps:
            sizes = [n for w in _words(s) for n in _sizes(w)]
            for v in () if isinstance(s, HostStep) else written(s):
                sizes += v.shape
            turn = {s.turn} if isinstance(s, RepeatStep) else set[str]()
            if isinstance(s, RepeatStep):
                sizes.append(s.count)
            found.update({name for size in sizes for name in symbols(size)} - turn)
        for node in (*self.stage.leaves, *self.stage.checks):
            found |= depends(node)
        return found | self.guarded.symbols()

    def plan(self, binding: Mapping[str, int], lengths: Collection[str] = ()) -> Plan:
        """Numbers for everything; raises `RunError` for sizes that a view does not allow.

        The plan serves any smaller `lengths` than those of the binding too.
        """
        self.limits.check(binding)
        for node in self.stage.checks:
            dry_run(node, binding)
        refused = self.guarded.refused(binding)
        layout = self.arena.layout(binding, self.guarded.unused(refused))
        own = sum([evaluate(_nbytes(v), binding) for v in self.direct])
        reserve(layout.total + own, self.made, binding)
        items: list[Segment | HostCall] = []
        numbered = list(enumerate(self.stage.steps))
        for hosted, group in groupby(numbered, lambda s: isinstance(s[1], HostStep)):
            steps = list(group)
            if not hosted:
                native = [(n, s) for n, s in steps if not isinstance(s, HostStep)]
                taken = self.guarded.replaced(native, refused)
                items.append(self._segment(taken, binding, lengths))
            items += [HostCall(s, n, {v: place(w, binding) for v, w in s.views.items()})
                      for n, s in steps if isinstance(s, HostStep)]
        leaves: dict[Base, Array] = {
            self.whole.views[v].base: a
            for node in (*self.stage.leaves, *self.guarded.leaves(refused))
            for v, a in zip(node.outputs, leaf(node, binding), strict=True)}
        return Plan(layout, binding, binding, leaves, items,
                    {v: bound(v, binding) for v in self.direct})

    def _segment(self, steps: Sequence[Numbered], binding: Mapping[str, int],
                 lengths: Collection[str]) -> Segment:
        work = self._words(steps, binding)
        less = {n: self._words(steps, {**binding, n: binding[n] - 1}).offsets for n in lengths}
        cut = [Phase(tuple(p.calls), p.chunks, p.guard) for p in work.phases]
        return Segment([s for _, s in steps], [n for n, _ in steps], cut,
                       Schedule(cut, self.whole.programs, work.scratch),
                       Frame([0] * len(work.offsets)),
                       list(work.bases), np.array(work.base_of, np.int64),
                       np.array(work.offsets, np.int64),
                       {n: np.subtract(work.offsets, few) for n, few in less.items()})

    def _words(self, steps: Sequence[Numbered], binding: Mapping[str, int]) -> Words:
        work = Words(self.whole.addresses, self._parts, binding)
        work.write(steps)
        return work


def written(step: AnyStep) -> Sequence[Value]:
    """The bases that a step makes."""
    if isinstance(step, HostStep):
        return step.node.outputs
    return tuple(dict.fromkeys([b for c in step.calls() for b in c.lowered.writes]))


def read(step: AnyStep) -> Sequence[Value]:
    """The bases that a step reads and does not make."""
    if isinstance(step, HostStep):
        return tuple(dict.fromkeys([v.base for v in step.views.values()]))
    made = written(step)
    found = dict.fromkeys([*[b for c in step.calls() for b in c.lowered.reads],
                           *[flag.base for flag in step.flags()]])
    return tuple([b for b in found if b not in made])


def _words(step: AnyStep) -> Sequence[object]:
    """What the sizes that a step needs are in."""
    if isinstance(step, HostStep):
        return tuple(step.views.values())
    return (*(w for c in step.calls() for w in c.lowered.words), *step.flags())


def _sizes(word: object) -> Sequence[Size]:
    if isinstance(word, Packed):
        return ()
    if isinstance(word, View):
        return (*word.shape, *word.strides, word.offset)
    return (word,)  # type: ignore[return-value]


def _nbytes(value: Value) -> Size:
    size: Size = value.dtype.bits // 8
    for d in value.shape:
        size = size * d
    return size
