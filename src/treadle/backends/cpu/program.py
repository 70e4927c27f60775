"""Runs an assembled graph: one foreign call for each native segment, NumPy bodies between."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import cast

import numpy as np

from ...codegen.llvm.runtime import KernelFault, ThreadPool, aligned, shared_pool
from ...codegen.llvm.schedule import Phase, Schedule
from ...declare import evaluate as interpreter
from ...declare.arrays import Array, Encoded, np_dtype
from ...declare.evaluate import Binding, Watch
from ...errors import RunError
from ...ir.graph import Graph, Node, Value
from ...memory.views import View
from ...passes.base import Context, Legaliser
from ...passes.fuse import Fuse
from ..base import Data
from .assembly import Assembled, Assembler, HostStep, RepeatStep
from .lowered import Packed
from .plan import (
    Base,
    Bytes,
    HostCall,
    Place,
    Plan,
    Planner,
    Segment,
    address,
    bound,
    leaf,
    place,
    read,
)

KEPT_PLANS = 64
"""Bindings whose plans are kept for each stage."""


class CpuProgram:
    """A compiled graph with its parameters.

    `poison` fills memory with NaN once nothing needs it, which shows reads of what is dead.
    """

    def __init__(self, graph: Graph, params: Mapping[str, Data], threads: int | None = None,
                 poison: bool = False, backend: Legaliser | None = None) -> None:
        self.graph, self.backend = graph, backend
        self.whole: Assembled = Assembler(graph, backend).run()
        self.pool: ThreadPool = shared_pool(threads)
        self.poison = poison
        self.held: dict[Base, Array] = {}
        self.addresses: dict[Base, int] = {}
        self.version = 0
        self._by_name = {v.name: v for v in graph.params}
        self._packed = [w for s in self.whole.stages for step in s.steps if not isinstance(
            step, HostStep) for c in step.calls() for w in c.lowered.words
            if isinstance(w, Packed)]
        for v in graph.params:
            self._hold(v, params[v.name])
        self._prepare()
        for p in self._packed:
            self._pack(p)
        self.regions = {g: self._region(g, threads, step.node.op != "fused")
                        for s in self.whole.stages for step in s.steps
                        if isinstance(step, HostStep) for g in step.node.regions.values()}
        self.stages = self._planners()
        self._plans: list[OrderedDict[tuple[int, ...], Plan]] = [
            OrderedDict() for _ in self.stages]
        self._arenas: list[Bytes] = [aligned(0) for _ in self.stages]

    # Parameters

    @property
    def params(self) -> Collection[str]:
        """The names of parameters."""
        return self._by_name.keys()

    def _hold(self, value: Value, array: Data) -> None:
        if isinstance(array, Encoded):
            self.held[value] = cast(Array, array)
        else:
            self._keep(value, solid(array))

    def _keep(self, base: Base, array: Array) -> None:
        self.held[base] = array
        self.addresses[base] = address(array)
        self.version += 1

    def _prepare(self) -> None:
        """Compute what follows from parameters."""
        for node in self.whole.prepared:
            env = {v: self._fixed(v) for v in node.inputs}
            out = interpreter.perform(interpreter.Step(node), env, {})
            for v, array in zip(node.outputs, out, strict=True):
                self._keep(v, solid(array))

    def _fixed(self, value: Value) -> Array:
        view = self.whole.views[value]
        if (base := self.held.get(view.base)) is None:
            assert value.producer is not None
            one = leaf(value.producer, {})[value.index]
            return np.broadcast_to(one, bound(value, {}))
        return base if view.base is value else array_at(base, place(view, {}), view.base)

    def _pack(self, packed: Packed) -> None:
        base = packed.view.base
        view = array_at(self.held[base], place(packed.view, {}), base)
        self._keep(packed, cast(Array, packed.pack(view)))

    def set_param(self, name: str, array: Array) -> None:
        """Replace a parameter between runs; packed forms are made again."""
        value = self._by_name[name]
        self._hold(value, array)
        self._prepare()
        for p in self._packed:
            if p.view.base is value or self.whole.prepared:
                self._pack(p)
        for region in self.regions.values():
            if name in region._by_name:
                region.set_param(name, array)

    def _region(self, region: Graph, threads: int | None, fuse: bool) -> CpuProgram:
        """A region as a program: what it captures are inputs, or parameters where they are here."""
        held = [v for v in region.captures if v in self._by_name.values()]
        others = [v for v in region.captures if v not in held]
        closed = Graph(region.name, [*region.inputs, *others], held, region.nodes, region.outputs)
        closed = Fuse().run(closed, Context(legaliser=self.backend)) if fuse else closed
        given = {v.name: cast("Data", self.held[v]) for v in held}
        return CpuProgram(closed, given, threads, self.poison, self.backend)

    # Planning

    def _planners(self) -> list[Planner]:
        whole = self.whole
        outs = [whole.views[v] for v in whole.graph.outputs]
        self.direct = list(dict.fromkeys(
            [v.base for v in outs if v.base in whole.native and v.whole]))
        self.results = [(v, self._how(v, whole.views[v])) for v in whole.graph.outputs]
        needed = [v.base for v in outs]
        planners: list[Planner] = []
        for at, stage in enumerate(whole.stages):
            later = [b for s in whole.stages[at + 1:] for step in s.steps for b in read(step)]
            planners.append(Planner(whole, stage, self.direct, [*needed, *later]))
        return planners

    def _how(self, value: Value, view: View) -> str:
        """How an output is had: its own array, all of another, a copy, or what it is already."""
        if view.base in self.direct and view.whole:
            return "own" if view.base is value else "whole"
        hosted = any(view.base in s.node.outputs for stage in self.whole.stages
                     for s in stage.steps if isinstance(s, HostStep))
        return "given" if hosted or view.base in self.graph.inputs else "copy"

    def plan(self, at: int, binding: Mapping[str, int]) -> Plan:
        """The plan of a stage for a binding, from the cache of recent ones."""
        planner, kept = self.stages[at], self._plans[at]
        key = tuple([binding[s] for s in planner.symbols])
        if (found := kept.get(key)) is None:
            found = kept[key] = planner.plan(binding)
            if len(kept) > KEPT_PLANS:
                kept.popitem(last=False)
        else:
            kept.move_to_end(key)
        return found

    # Running

    def run(self, inputs: Sequence[Array], binding: Binding, watch: Watch | None = None
            ) -> Sequence[Array]:
        """Outputs for arrays in the order of the graph's inputs; `binding` gains late sizes."""
        run = _Run(self, binding, watch)
        run.arrays.update(zip(self.graph.inputs, map(solid, inputs), strict=True))
        for at in range(len(self.stages)):
            run.stage(at, self.plan(at, binding))
        return run.outputs()

    def arena(self, at: int, size: int) -> Bytes:
        """A stage's memory, at least `size` bytes."""
        if self._arenas[at].nbytes < size:
            self._arenas[at] = aligned(size)
        return self._arenas[at]


def solid(array: Array) -> Array:
    """The array itself if it is row-major and aligned, else a copy that is."""
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.array(array, order="C", copy=True)


def array_at(base: Array, at: Place, value: Value) -> Array:
    """A view of a row-major array by shape, byte strides and byte offset."""
    shape, strides, offset = at
    if 0 in shape:
        return np.zeros(shape, np_dtype(value.dtype))
    raw = base.reshape(-1).view(np.uint8)
    return np.ndarray(shape, np_dtype(value.dtype), raw, offset, strides)


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


class _Run:
    """One run: the arrays behind bases, as they come into being."""

    def __init__(self, program: CpuProgram, binding: Binding, watch: Watch | None) -> None:
        self.program, self.binding, self.watch = program, binding, watch
        self.arrays: dict[Base, Array] = {}
        self.plans: list[Plan] = []
        self.views = program.whole.views
        self.seen = 0

    def find(self, base: Base) -> Array:
        """The array behind a base."""
        if (found := self.arrays.get(base)) is not None:
            return found
        for plan in reversed(self.plans):
            if (found := plan.arrays.get(base)) is not None:
                return found
        return self.program.held[base]

    def stage(self, at: int, plan: Plan) -> None:
        """All items of a stage in order."""
        program = self.program
        plan.place_in(program.arena(at, plan.layout.total), program.addresses, program.version)
        self.plans.append(plan)
        for v, shape in plan.outputs.items():
            self.arrays[v] = np.empty(shape, np_dtype(v.dtype))
        slow = self.watch is not None or program.poison
        freed = program.stages[at].arena.freed() if slow else []
        done = 0
        for item in plan.items:
            if isinstance(item, HostCall):
                self._watched(item.step.node)
                self._host(item)
                done += 1
            elif slow:
                self._singly(item, freed)
                done += len(item.steps)
            else:
                self._native(item, item.schedule)
            if slow and freed:
                self._poison(freed[done - 1])

    def _native(self, segment: Segment, schedule: Schedule) -> None:
        addresses = segment.addresses
        for i, b in segment.moving:
            addresses[i] = address(self.find(b))
        segment.frame.words[:segment.offsets.size] = segment.offsets + addresses[segment.base_of]
        try:
            self.program.pool.run(schedule, segment.frame)
        except KernelFault as fault:
            raise self._error(fault) from None

    def _singly(self, segment: Segment, freed: Sequence[Sequence[Value]]) -> None:
        """Kernel after kernel, so that values can be seen before their memory is used again."""
        numbered = dict(zip(segment.numbers, segment.steps, strict=True))
        calls = [(c, phase.chunks) for phase in segment.phases for c in phase.steps]
        for i, (call, chunks) in enumerate(calls):
            self._watched(numbered[call.node].node)
            one = Schedule([Phase((call,), chunks)], segment.schedule.program,
                           segment.schedule.scratch)
            self._native(segment, one)
            if i + 1 == len(calls) or calls[i + 1][0].node != call.node:
                self._poison(freed[call.node])

    def _poison(self, dead: Sequence[Value]) -> None:
        if self.program.poison:
            for b in dead:
                self.find(b).reshape(-1).view(np.uint8)[...] = 0xFF

    def _watched(self, node: Node | None) -> None:
        """Show the outputs of every node before `node`, or of all that are left."""
        nodes = self.program.graph.nodes
        while self.watch is not None and self.seen < len(nodes) and (
                nodes[self.seen] is not node):
            at = nodes[self.seen]
            self.watch(at, [self._value(v).copy() for v in at.outputs])
            self.seen += 1

    def _error(self, fault: KernelFault) -> RunError:
        """The error of a kernel as one about the model's node."""
        step = self.program.whole.stages[len(self.plans) - 1].steps[fault.node]
        assert not isinstance(step, HostStep)
        shown = ", ".join([str(v.type) for v in step.node.inputs])
        where = f" at {step.node.loc}" if step.node.loc else ""
        why = f"a step of its body failed on {fault.value}" if isinstance(step, RepeatStep) else (
            step.lowered.fault(fault.code, fault.value, self.binding))
        return RunError(f"{step.node.op}({shown}){where}: {why}")

    def _host(self, call: HostCall) -> None:
        step = call.step
        env = {v: self._operand(v, w, call.places[v]) for v, w in step.views.items()}
        out = interpreter.perform(step.body, env, self.binding, self._region)
        if step.body.makes:
            interpreter.bind_shapes([v.type for v in step.node.outputs], out, self.binding)
        volatile = [a for v, a in env.items() if step.views[v].base in self.program.whole.native]
        for v, a in zip(step.node.outputs, out, strict=True):
            shared = any(np.may_share_memory(a, b) for b in volatile)
            self.arrays[v] = np.array(a, order="C", copy=True) if shared else solid(a)

    def _region(self, graph: Graph, outer: Mapping[Value, Array], binding: Binding
                ) -> NativeRegion:
        return NativeRegion(self.program.regions[graph], graph, outer, binding)

    def _operand(self, value: Value, view: View, at: Place) -> Array:
        base = self.find(view.base)
        return base if view.base is value else array_at(base, at, view.base)

    def _value(self, value: Value) -> Array:
        view = self.views[value]
        base = self.find(view.base)
        if view.base is value or view.shape == view.base.shape and view.whole:
            return base
        return array_at(base, place(view, self.binding), view.base)

    def outputs(self) -> list[Array]:
        """The outputs; those that later runs overwrite are copied."""
        self._watched(None)
        out: list[Array] = []
        for v, how in self.program.results:
            if how == "own":
                array = self.find(v)
            elif how == "whole":
                array = self.find(self.views[v].base).reshape(bound(v, self.binding))
            else:
                array = self._value(v)
                array = array.copy() if how == "copy" else array
            out.append(array)
        return out
