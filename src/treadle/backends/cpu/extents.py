"""Plans that serve a range of lengths: sizes that resident inputs have room for.

Such a plan is laid out for a length rounded up, and its offsets follow the length in use: a new
length costs one multiply-add over the words instead of a plan of its own. That is possible where
words are linear in the length, buffers only grow with it, and nothing is computed from it on the
host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...ir.dims import Size, bounds, symbol_name, symbols
from ...ir.graph import Node, Value
from ...memory.views import View
from .assembly import GuardStep, HostStep, NativeStep, RepeatStep, Stage
from .limits import Limits
from .words import Part

_LEAST = 16


def capacities(views: Mapping[Value, View], rooms: Mapping[Value, tuple[int, int]]
               ) -> dict[str, int]:
    """Symbols that are the length of resident inputs, and the least capacity of each.

    `rooms` gives axis and capacity of an input in `views`.
    """
    found: dict[str, int] = {}
    for v in views:
        axis, room = rooms[v]
        if (name := symbol_name(v.shape[axis])) is not None:
            found[name] = min(found.get(name, room), room)
    return found


def rounded(length: int, capacity: int) -> int:
    """The length that a plan is laid out for: a power of two, or the capacity."""
    return min(max(_LEAST, 1 << max(length - 1, 0).bit_length()), max(capacity, length))


def obstacle(stage: Stage, known: Mapping[NativeStep, Sequence[Part]], buffers: Iterable[Value],
             names: frozenset[str]) -> str:
    """Why a stage needs a plan for each length, or nothing; names the operator."""
    for step in stage.steps:
        if isinstance(step, HostStep):
            return f"{step.node.op} runs on the host"
        if isinstance(step, RepeatStep) and not names.isdisjoint(symbols(step.count)):
            return f"{step.node.op} repeats along it"
        if isinstance(step, GuardStep) and not names.isdisjoint(_asked(step)):
            return f"{step.node.op} has branches that may not admit it"
        for call in step.calls():
            if not all(_linear(size, names) for _, size, _ in known[call]):
                return f"{step.node.op} addresses elements by more than a multiple of it"
    for v in buffers:
        made = v.producer.op if v.producer else v.name
        if not all(_linear(d, names, grows=True) for d in v.shape):
            return f"{made} makes {v.type}, which may shrink as it grows"
        if any(bounds(d)[0] < 0 for d in v.shape if not names.isdisjoint(symbols(d))):
            return f"{made} makes {v.type}, which some lengths do not allow"
    return ""


def depends(node: Node) -> set[str]:
    """The symbols that a node's result depends on."""
    found = set(node.reads())
    found.update(n for v in (*node.uses(), *node.outputs) for d in v.shape for n in symbols(d))
    return found


def _asked(step: GuardStep) -> set[str]:
    """The symbols that decide whether guarded steps can run, and what their leaves are."""
    found = {s for n in Limits(step.nodes).windows() for s in symbols(n)}
    return found.union(*[depends(n) for n in (*step.checks, *step.leaves)])


def _linear(size: Size, names: frozenset[str], grows: bool = False) -> bool:
    """Whether a size is a + b * length, with b of no negative sign if it `grows`."""
    if isinstance(size, int):
        return True
    for mono, factor in size.terms:
        ours = 0
        for atom in mono:
            if atom.op == "sym":
                ours += atom.name in names
            elif any(not names.isdisjoint(symbols(x)) for x in atom.args):
                return False
        if ours > 1 or (ours and grows and factor < 0):
            return False
    return True
