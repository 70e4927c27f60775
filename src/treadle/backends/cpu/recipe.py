"""What it takes to run one kernel of a program alone: memory, words, operands of its node."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from ...declare.arrays import Array, Encoded
from ...errors import RunError
from ...ir.dims import evaluate
from ...ir.graph import Graph, Node, Value
from ...memory.views import View
from ...records import asdict, dataclass
from .assembly import AnyStep, NativeStep, RepeatStep
from .lowered import Packed, kernel_name
from .plan import Plan, bound, place
from .words import Base, parts

if TYPE_CHECKING:
    from .program import CpuProgram

Seen: TypeAlias = "tuple[int, Sequence[int], Sequence[int], int]"
"""A value: its area, shape, byte strides and byte offset there."""


@dataclass(frozen=True, slots=True)
class Area:
    """Memory that words point into.

    Its role is `given` if its bytes are recorded, `written` if only kernels fill it, else `drawn`.
    """

    dtype: str
    shape: tuple[int, ...]
    role: str
    name: str


@dataclass(frozen=True, slots=True)
class Called:
    """A kernel call; a word is an area with a byte offset, or -1 with a number."""

    kernel: str
    chunks: int
    scratch: int
    words: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Recipe:
    """The calls of a node and what they and the node read and write.

    `at` is the call that this is about; `obstacle` says why results cannot be compared.
    """

    kernel: str
    source: str
    binding: Mapping[str, int]
    areas: Sequence[Area]
    calls: Sequence[Called]
    at: int
    operands: Sequence[Seen]
    results: Sequence[Seen]
    obstacle: str = ""

    def json(self) -> str:
        """The recipe as text, an area or call a line."""
        fields = [f' "{name}": {_lines(found)}' for name, found in asdict(self).items()]
        return "{\n" + ",\n".join(fields) + "\n}\n"

    @staticmethod
    def read(text: str) -> Recipe:
        """What `json` wrote."""
        found = json.loads(text)
        found["areas"] = [Area(a["dtype"], tuple(a["shape"]), a["role"], a["name"])
                          for a in found["areas"]]
        found["calls"] = [Called(**c) for c in found["calls"]]
        return Recipe(**found)


@dataclass(frozen=True, eq=False)
class Recorded:
    """A kernel's recipe and key, the node's kernels, the node as a graph, the recorded bytes."""

    recipe: Recipe
    key: str
    steps: Sequence[NativeStep]
    graph: Graph
    data: Mapping[str, Array]


def recorded(program: CpuProgram) -> Iterator[Recorded]:
    """Every kernel once, as it is called first under the latest binding.

    There are none before sizes are known.
    """
    seen: set[int] = set()
    leaves: dict[Base, Array] = {}
    for at, stage in enumerate(program.whole.stages):
        if (plan := _latest(program, at)) is None:
            return
        leaves.update(plan.leaves)
        for step in stage.steps:
            for group in _groups(step, stage.steps):
                for at, call in enumerate(group):
                    if call.kernel not in seen:
                        seen.add(call.kernel)
                        yield _Recorder(program, plan, leaves).record(group, at, step)


def _latest(program: CpuProgram, at: int) -> Plan | None:
    found = program.recent(at)
    if found is None and not program.stages[at].symbols:
        try:
            return program.plan(at, {})
        except RunError:  # the run will say so
            return None
    return found


def _groups(step: AnyStep, steps: Sequence[AnyStep]) -> Iterator[list[NativeStep]]:
    """Calls of one node in order."""
    if isinstance(step, NativeStep):
        yield [s for s in steps if isinstance(s, NativeStep) and s.node is step.node]
    if isinstance(step, RepeatStep):
        for part in (*reversed(step.bodies), *step.start):  # views are those of the second body
            calls = [c for c in part if isinstance(c, NativeStep)]
            for node in dict.fromkeys([c.node for c in calls]):
                yield [c for c in calls if c.node is node]


class _Recorder:
    """One recipe in the making."""

    def __init__(self, program: CpuProgram, plan: Plan, leaves: Mapping[Base, Array]) -> None:
        self.program, self.binding = program, dict(plan.binding)
        self.known: dict[Base, Array] = {**leaves, **program.held}
        self.areas: dict[Base, int] = {}

    def record(self, group: Sequence[NativeStep], at: int, step: AnyStep) -> Recorded:
        """The recipe of one of a node's calls."""
        if isinstance(step, RepeatStep):
            self.binding[step.turn] = 0
        this, node = group[at], group[at].node
        called = [self._call(c) for c in group]
        used, views = list(dict.fromkeys(node.uses())), self.program.whole.views
        made, pointed = {b for c in group for b in c.lowered.writes}, {*self.areas}
        obstacle = "it moves what a body takes or gives" if _has_body(node) else (
            self._obstacle([views[v] for v in used], [views.get(v) for v in node.outputs],
                           pointed, made))
        operands = [] if obstacle else [self._seen(views[v]) for v in used]
        results = [] if obstacle else [self._seen(views[v]) for v in node.outputs]
        read = {views[v].base for v in used}
        areas = [self._area(b, b in made and b not in read) for b in self.areas]
        name = kernel_name(this.kernel, this.lowered)
        data = {f"a{i}": _bytes(self.known[b]) for b, i in self.areas.items() if b in self.known}
        return Recorded(
            Recipe(name, node.loc, self.binding, areas, called, at, operands, results, obstacle),
            this.lowered.key, list({c.kernel: c for c in group}.values()),
            Graph(name, used, [], [node], node.outputs), data)

    def _obstacle(self, operands: Sequence[View], results: Sequence[View | None],
                  pointed: set[Base], made: set[Value]) -> str:
        if any(r is None or r.base not in made for r in results):
            return "its results lie elsewhere"
        if any(v.base not in pointed and v.base not in self.known for v in operands):
            return "it does not read every operand of its node"
        return ""

    def _call(self, step: NativeStep) -> Called:
        words: list[tuple[int, int]] = []
        for base, size, item in parts(step):
            words.append((-1 if base is None else self._number(base),
                          evaluate(size, self.binding) * item))
        low = step.lowered
        return Called(kernel_name(step.kernel, low), low.chunks(self.binding),
                      low.scratch(self.binding), words)

    def _number(self, base: Base) -> int:
        return self.areas.setdefault(base, len(self.areas))

    def _seen(self, view: View) -> Seen:
        if view.base.dtype.sort == "block":
            return self._number(view.base), bound(view.base, self.binding), (), 0
        shape, strides, offset = place(view, self.binding)
        return self._number(view.base), shape, strides, offset

    def _area(self, base: Base, written: bool) -> Area:
        if isinstance(base, Packed):
            name = base.view.base.name
            return Area("u8", (_bytes(self.known[base]).size,), "given", f"{name}, packed")
        role = "given" if base in self.known else "written" if written else "drawn"
        return Area(base.dtype.name, bound(base, self.binding), role, base.name)


def _has_body(node: Node) -> bool:
    return bool(node.regions) and node.op != "fused"


def _lines(found: object) -> str:
    if not isinstance(found, list | tuple) or not found:
        return json.dumps(found)
    return "[\n  " + ",\n  ".join(map(json.dumps, cast("Sequence[object]", found))) + "]"


def _bytes(held: Array) -> Array:
    data = cast("Array", held.data) if isinstance(held, Encoded) else np.ascontiguousarray(held)
    return data.reshape(-1).view(np.uint8)
