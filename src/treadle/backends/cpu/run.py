"""One run of an assembled graph: native segments as foreign calls, NumPy bodies between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...codegen.llvm.runtime import KernelFault
from ...codegen.llvm.schedule import Phase, Schedule
from ...declare import evaluate as interpreter
from ...declare.arrays import Array, np_dtype
from ...declare.evaluate import Binding, Watch
from ...ir.graph import Graph, Node, Value
from ...memory.views import View
from .addresses import Place, address, array_at, solid
from .assembly import AnyStep
from .limits import reserve
from .plan import Base, HostCall, Plan, Segment, bound, place

if TYPE_CHECKING:
    from .program import CpuProgram


class NativeRegion(interpreter.RegionCall):
    """A region whose calls run its program."""

    __slots__ = ("program",)

    def __init__(self, program: CpuProgram, graph: Graph, outer: Mapping[Value, Array],
                 binding: Binding) -> None:
        super().__init__(graph, outer, binding)
        self.program = program

    def __call__(self, *args: Array) -> tuple[Array, ...]:
        """The outputs of one run; sizes that it makes stay inside."""
        own = set(self.program.params)
        given = [*args, *(self.outer[v] for v in self.graph.captures if v.name not in own
                          or not v.name)]
        binding = dict(self.binding)
        inputs = [v.type for v in self.program.graph.inputs]
        interpreter.bind_shapes(inputs, given, binding)
        return tuple(self.program.run(given, binding))


class Run:
    """One run: the arrays behind bases, as they come into being."""

    def __init__(self, program: CpuProgram, binding: Binding, watch: Watch | None) -> None:
        self.program, self.binding, self.watch = program, binding, watch
        self.arrays: dict[Base, Array] = {}
        self.plans: list[Plan] = []
        self.views = program.whole.views
        self.seen = self.dead = 0

    def find(self, base: Base) -> Array:
        """The array behind a base."""
        if (found := self.arrays.get(base)) is not None:
            return found
        for plan in reversed(self.plans):
            if (found := plan.find(base)) is not None:
                return found
        return self.program.held[base]

    def stage(self, at: int, plan: Plan) -> None:
        """All items of a stage in order."""
        program = self.program
        plan.place_in(program.arena(at, plan.layout.total), program.addresses, program.version)
        self.plans.append(plan)
        for v, shape in plan.outputs.items():
            old = program.residents.aliases.get(v)
            self.arrays[v] = np.empty(shape, np_dtype(v.dtype)) if old is None else self.find(old)
        slow = self.watch is not None or program.poison
        freed = program.stages[at].arena.freed() if slow else []
        self.dead = 0
        for item in plan.items:
            if isinstance(item, HostCall):
                self._watched(item.step.node)
                self._poison(freed, item.number)
                self._host(item)
            elif slow:
                self._point(item)
                self._singly(item, program.whole.stages[at].inside, freed)
            else:
                self._point(item)
                self._native(item, item.schedule)
        self._poison(freed, len(freed))

    def _point(self, segment: Segment) -> None:
        for b, words in segment.moving.items():
            segment.point(words, address(self.find(b)))

    def _native(self, segment: Segment, schedule: Schedule) -> None:
        try:
            self.program.pool.run(schedule, segment.frame)
        except KernelFault as fault:
            raise self.program.error(len(self.plans) - 1, fault, self.binding) from None

    def _singly(self, segment: Segment, inside: Mapping[AnyStep, Node],
                freed: Sequence[Sequence[Value]]) -> None:
        """Kernel after kernel, so that values can be seen before their memory is used again."""
        numbered = dict(zip(segment.numbers, segment.steps, strict=True))
        resume = 0
        for at, phase in enumerate(segment.phases):
            if at < resume:
                continue
            for call in phase.steps:
                step = numbered[call.node]
                self._watched(inside.get(step, step.node))
                self._poison(freed, call.node)
                one = Schedule([Phase((call,), phase.chunks)], segment.schedule.program,
                               segment.schedule.scratch)
                self._native(segment, one)
            if (guard := phase.guard) is not None and segment.flag(guard) is not guard.value:
                resume = at + 1 + guard.phases

    def _poison(self, freed: Sequence[Sequence[Value]], before: int) -> None:
        """Overwrite what nothing needs after the steps before `before`, skipped ones included."""
        if self.program.poison:
            sizes = self.plans[-1].layout.sizes
            for b in [b for dead in freed[self.dead:before] for b in dead if sizes[b]]:
                self.find(b).reshape(-1).view(np.uint8)[...] = 0xFF
        self.dead = before

    def _watched(self, node: Node | None) -> None:
        """Show the outputs of every node before `node`, or of all that are left."""
        nodes = self.program.graph.nodes
        while self.watch is not None and self.seen < len(nodes) and (
                nodes[self.seen] is not node):
            at = nodes[self.seen]
            self.watch(at, [self._value(v).copy() for v in at.outputs])
            self.seen += 1

    def _host(self, call: HostCall) -> None:
        step = call.step
        env = {v: self._operand(v, w, call.places[v]) for v, w in step.views.items()}
        native = self.program.whole.native
        if any(v.dtype.sort == "host" for v in step.node.outputs):  # a list keeps what it is given
            env = {v: a.copy() if step.views[v].base in native else a for v, a in env.items()}
        out = interpreter.perform(step.body, env, self.binding, self._region)
        if step.body.makes:
            interpreter.bind_shapes([v.type for v in step.node.outputs], out, self.binding)
        volatile = [a for v, a in env.items() if step.views[v].base in native]
        for v, a in zip(step.node.outputs, out, strict=True):
            shared = any(np.may_share_memory(a, b) for b in volatile)
            self.arrays[v] = np.array(a, order="C", copy=True) if shared else solid(a)

    def _region(self, graph: Graph, outer: Mapping[Value, Array], binding: Binding
                ) -> NativeRegion:
        return NativeRegion(self.program.regions[graph], graph, outer, binding)

    def _operand(self, value: Value, view: View, at: Place) -> Array:
        base = self.find(view.base)
        plain = view.base is value and value not in self.program.residents.views
        return base if plain else array_at(base, at, view.base)

    def _value(self, value: Value) -> Array:
        view = self.views[value]
        base = self.find(view.base)
        if value not in self.program.residents.views and (
                view.base is value or view.shape == view.base.shape and view.whole):
            return base
        return array_at(base, place(view, self.binding), view.base)

    def outputs(self) -> list[Array | None]:
        """The outputs; those that later runs overwrite are copied, None is in place already."""
        self._watched(None)
        out: list[Array | None] = []
        there = self.program.residents.in_place
        for i, (v, how) in enumerate(self.program.results):
            if i in there:
                array = None
            elif how == "own":
                array = self.find(v)
            elif how == "whole":
                array = self.find(self.views[v].base).reshape(bound(v, self.binding))
            else:
                array = self._value(v)
                if how == "copy" or array.base is not None:  # the caller copies views
                    reserve(array.nbytes, [v], self.binding)
                array = array.copy() if how == "copy" else array
            out.append(array)
        return out
