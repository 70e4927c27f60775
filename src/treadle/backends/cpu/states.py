"""Resident inputs: storage with capacity read where it lies, outputs written in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from ...codegen.llvm.scalars import holds
from ...ir.graph import Graph, Value
from ...ir.types import axis_of
from ...memory.views import View, dense_strides
from ...records import dataclass, field
from ..base import Grant, State
from .assembly import Assembled, HostStep, NativeStep
from .extents import capacities
from .plan import read, written


@dataclass(eq=False)
class Residents:
    """What states change about a program.

    `views` are inputs inside larger storage, `placed` outputs that lie in an input's storage, and
    `aliases` outputs that take an input's place. The outputs numbered `in_place` are both.
    """

    views: Mapping[Value, View] = field(default_factory=dict[Value, View])
    placed: Mapping[Value, View] = field(default_factory=dict[Value, View])
    aliases: Mapping[Value, Value] = field(default_factory=dict[Value, Value])
    in_place: frozenset[int] = frozenset()
    extents: Mapping[str, int] = field(default_factory=dict[str, int])
    """Symbols that are the length of an input in `views`, with the least capacity."""


def reserved(graph: Graph, states: Sequence[State]) -> tuple[Residents, list[Grant]]:
    """The layout of states with a capacity, known before anything is compiled."""
    views: dict[Value, View] = {}
    placed: dict[Value, View] = {}
    numbers: list[int] = []
    grants: list[Grant] = []
    for state in states:
        v, axis = graph.inputs[state.input], state.axis
        if state.capacity is None or axis is None or not holds(v.dtype):
            grants.append(Grant(reason=f"a copy of the rows in use: no kernel reads {v.dtype}"
                                if state.capacity is not None else ""))
            continue
        strides = dense_strides((*v.shape[:axis], state.capacity, *v.shape[axis + 1:]))
        views[v] = View(v, v.shape, strides)
        why = _grows(graph, v, axis, state)
        if why or graph.outputs[state.output] in placed:
            grants.append(Grant(True, False, why or "another state has the output in place"))
            continue
        out = graph.outputs[state.output]
        placed[out] = View(v, out.shape, strides)
        numbers.append(state.output)
        grants.append(Grant(True, True, "read and appended to where it lies, nothing is copied"))
    rooms = {graph.inputs[s.input]: (s.axis, s.capacity) for s in states
             if s.axis is not None and s.capacity is not None}
    return Residents(views, placed, {}, frozenset(numbers), capacities(views, rooms)), grants


def _grows(graph: Graph, v: Value, axis: int, state: State) -> str:
    """Why an output cannot be appended in place, or nothing: it is `v` with rows after it."""
    if state.output < 0:
        return "read where it lies"
    if not state.whole:
        return "read where it lies; new rows are copied into it"
    node = graph.outputs[state.output].producer
    grown = node is not None and node.op == "concat" and node.inputs[0] is v and (
        node.inputs.count(v) == 1 and axis_of(cast(int, node.attrs["axis"]), v.type.rank) == axis)
    if grown:
        return ""
    made = node.op if node is not None else "an input"
    return f"read where it lies; one copy of the output, which is {made}, not concat of it and more"


def replaced(whole: Assembled, states: Sequence[State], grants: Sequence[Grant]
             ) -> tuple[dict[Value, Value], frozenset[int], list[Grant]]:
    """Outputs that take the place of states without capacity, where liveness allows."""
    graph = whole.graph
    aliases: dict[Value, Value] = {}
    numbers: list[int] = []
    found = list(grants)
    for i, state in enumerate(states):
        if state.capacity is not None:
            continue
        if state.output < 0 or not state.whole or state.axis is not None:
            found[i] = Grant(reason="new rows are copied into it" if state.output >= 0 else "kept")
            continue
        source, target = graph.inputs[state.input], graph.outputs[state.output]
        why = _obstacle(whole, source, target)
        if why or target in aliases:
            found[i] = Grant(reason=f"storage is exchanged with the output's, nothing is copied: "
                             f"{why or 'another state has the output'}")
            continue
        aliases[target] = source
        numbers.append(state.output)
        found[i] = Grant(False, True, "kernels write the output in its place")
    return aliases, frozenset(numbers), found


def _obstacle(whole: Assembled, source: Value, target: Value) -> str:
    """Why kernels cannot write `target` over `source`, or nothing."""
    if target.type != source.type:
        return f"the output is {target.type}"
    if whole.views[target].base is not target or target not in whole.native:
        return "the output is a view, or computed on the host"
    if any(whole.views[v].base is source for v in whole.graph.outputs):
        return "it is an output too"
    steps = [s for stage in whole.stages for s in stage.steps]
    makes = next(i for i, s in enumerate(steps) if target in written(s))
    for i, step in enumerate(steps):
        if source not in read(step) or i < makes:
            continue
        same = i == makes and isinstance(step, NativeStep) and (
            (target, source) in step.lowered.reuse)
        if not same:
            what = "runs on the host" if isinstance(step, HostStep) else "reads it"
            return f"{step.node.op} {what} when the output is being written or later"
    return ""
