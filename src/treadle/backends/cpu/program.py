"""Runs an assembled graph: one foreign call for each native segment, NumPy bodies between."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from ...codegen.llvm.runtime import KernelFault, ThreadPool, aligned, shared_pool
from ...declare import evaluate as interpreter
from ...declare.arrays import Array, Encoded
from ...declare.evaluate import Binding, Watch
from ...errors import RunError
from ...ir.graph import Graph, Node, Value
from ...memory.views import View
from ...passes.base import Context, Legaliser
from ...passes.fuse import Fuse
from ..base import Buffer, Call, Data, Fact, Grant, HostStorage, State
from .addresses import address, array_at, solid
from .assembly import Assembled, Assembler, GuardStep, HostStep, RepeatStep
from .direct import Direct
from .facts import facts
from .lowered import Packed
from .packs import Shared, packs, shared
from .plan import Base, Bytes, Plan, Planner, Segment, bound, leaf, place, read
from .run import Run
from .states import Residents, replaced, reserved

KEPT_PLANS = 64
"""Bindings whose plans are kept for each stage."""


class CpuProgram:
    """A compiled graph with its parameters.

    `poison` fills memory with NaN once nothing needs it, which shows reads of what is dead.
    `optional` is for a body that may never run.
    """

    def __init__(self, graph: Graph, params: Mapping[str, Data], threads: int | None = None,
                 poison: bool = False, backend: Legaliser | None = None,
                 residents: Residents | None = None, known: Assembled | None = None,
                 optional: bool = False) -> None:
        self.graph, self.backend, self.threads = graph, backend, threads
        self.residents = residents or Residents()
        self.whole: Assembled = Assembler(graph, backend, self.residents.views,
                                          self.residents.placed, known, optional).run()
        self.pool: ThreadPool = shared_pool(threads)
        self.poison = poison
        self.held: dict[Base, Array] = {}
        self.addresses: dict[Base, int] = {}
        self.version = 0
        self._by_name = {v.name: v for v in graph.params}
        self._packed = packs(self.whole)
        self._shared: dict[Packed, Shared] = {}
        for v in graph.params:
            self._hold(v, params[v.name])
        self._prepare()
        for p in self._packed:
            self._pack(p)
        self.regions = {g: self._region(g, threads, step.node.op != "fused")
                        for s in self.whole.stages for step in s.steps
                        if isinstance(step, HostStep) for g in step.node.regions.values()}
        self.stages = self._planners()
        self.storage = HostStorage()
        self._renew()

    def _renew(self) -> None:
        """What runs change."""
        self._plans: list[OrderedDict[tuple[int, ...], Plan]] = [
            OrderedDict() for _ in self.stages]
        self.arenas: list[Bytes] = [aligned(0) for _ in self.stages]

    def clone(self) -> CpuProgram:
        """Another program with the same code and, until they are replaced, parameters."""
        made = copy.copy(self)
        made.held, made.addresses = dict(self.held), dict(self.addresses)
        made._shared = dict(self._shared)
        made.regions = {g: p.clone() for g, p in self.regions.items()}
        made._renew()
        return made

    def with_states(self, states: Sequence[State]) -> tuple[CpuProgram, Sequence[Grant]]:
        """The program for resident inputs; compiled anew if some of them have a capacity."""
        residents, grants = reserved(self.graph, states)
        made = self.clone() if not residents.views else CpuProgram(
            self.graph, self.params, self.threads, self.poison, self.backend, residents, self.whole)
        aliases, numbers, grants = replaced(made.whole, states, grants)
        made.residents = replace(residents, aliases=aliases, in_place=residents.in_place | numbers)
        return made, [replace(g, reason=f"{g.reason}; {made._lengths()}") if g.strided else g
                      for g in grants]

    def _lengths(self) -> str:
        """What a new length of resident inputs costs."""
        why = next((p.obstacle for p in self.stages if p.obstacle), "")
        return f"each length is planned anew: {why}" if why else "one plan serves many lengths"

    # Parameters

    @property
    def params(self) -> Mapping[str, Data]:
        """Parameters by name."""
        return {name: cast("Data", self.held[v]) for name, v in self._by_name.items()}

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
        self._shared[packed] = made = shared(packed, self._packed[packed], self.held[base],
                                             place(packed.view, {}))
        self._keep(packed, made.data)

    def set_param(self, name: str, array: Data) -> None:
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
        return CpuProgram(closed, given, threads, self.poison, self.backend, optional=fuse)

    # Planning

    def _planners(self) -> list[Planner]:
        whole = self.whole
        outs = [whole.views[v] for v in whole.graph.outputs]
        self.owned = list(dict.fromkeys(
            [v.base for v in outs if v.base in whole.native and v.whole]))
        self.results = [(v, self._how(v, whole.views[v])) for v in whole.graph.outputs]
        needed = [v.base for v in outs]
        planners: list[Planner] = []
        for at, stage in enumerate(whole.stages):
            later = [b for s in whole.stages[at + 1:] for step in s.steps for b in read(step)]
            planners.append(Planner(whole, stage, self.owned, [*needed, *later],
                                    self.residents.extents))
        return planners

    def _how(self, value: Value, view: View) -> str:
        """How an output is had: its own array, all of another, a copy, or what it is already."""
        if view.base in self.owned and view.whole:
            return "own" if view.base is value else "whole"
        hosted = any(view.base in s.node.outputs for stage in self.whole.stages
                     for s in stage.steps if isinstance(s, HostStep))
        return "given" if hosted or view.base in self.graph.inputs else "copy"

    def plan(self, at: int, binding: Mapping[str, int]) -> Plan:
        """The plan of a stage for a binding, from the cache of recent ones."""
        planner, kept = self.stages[at], self._plans[at]
        sized = planner.sized(binding)
        key = tuple([sized[s] for s in planner.symbols])
        if (found := kept.get(key)) is None:
            try:
                found = kept[key] = planner.plan(sized, planner.extents)
            except RunError:  # a smaller plan may do
                return planner.plan(binding)
            if len(kept) > KEPT_PLANS:
                kept.popitem(last=False)
        else:
            kept.move_to_end(key)
        planner.serve(found, binding)
        return found

    def recent(self, at: int) -> Plan | None:
        """The plan that a stage used last."""
        plans = self._plans[at]
        return plans[next(reversed(plans))] if plans else None

    def facts(self) -> dict[Node, Fact]:
        """Kernels and memory of the graph's nodes."""
        return facts(self)

    def dump(self, folder: Path) -> None:
        """Write LLVM IR, assembly, the memory plan and what runs each kernel alone."""
        from .dump import write

        write(self, folder)

    # Running

    def run(self, inputs: Sequence[Array], binding: Binding, watch: Watch | None = None,
            kept: Collection[int] = ()) -> Sequence[Buffer]:  # noqa: ARG002 - NumPy's are its own
        """Outputs for inputs in the graph's order; `binding` gains late sizes."""
        run = Run(self, binding, watch)
        run.arrays.update(zip(self.graph.inputs, map(solid, inputs), strict=True))
        for at in range(len(self.stages)):
            run.stage(at, self.plan(at, binding))
        return run.outputs()

    def direct(self, binding: Binding) -> Call | None:
        """A quicker way to run row-major inputs under a binding; None with steps on the host."""
        given = any(how == "given" for _, how in self.results)
        if len(self.stages) != 1 or self.poison or given or not self._apart():
            return None
        plan = self.plan(0, binding)
        if len(plan.items) != 1 or not isinstance(plan.items[0], Segment):
            return None
        return Direct(self, plan, plan.items[0], binding)

    def _apart(self) -> bool:
        """Whether no other output lies in one that takes an input's place."""
        bases = [self.whole.views[v].base for v, _ in self.results]
        return all(bases.count(b) == 1 for b in self.residents.aliases) and not (
            self.residents.views)

    def error(self, at: int, fault: KernelFault, binding: Binding) -> RunError:
        """The error of a kernel in a stage as one about the model's node."""
        step = self.whole.stages[at].steps[fault.node]
        assert not isinstance(step, HostStep)
        if isinstance(step, GuardStep):
            found = self.stages[at].guarded.refusal(fault.node, binding)
            assert found is not None
            return found
        shown = ", ".join([str(v.type) for v in step.node.inputs])
        where = f" at {step.node.loc}" if step.node.loc else ""
        why = f"a step of its body failed on {fault.value}" if isinstance(step, RepeatStep) else (
            step.lowered.fault(fault.code, fault.value, binding))
        return RunError(f"{step.node.op}({shown}){where}: {why}")

    def arena(self, at: int, size: int) -> Bytes:
        """A stage's memory, at least `size` bytes."""
        if self.arenas[at].nbytes < size:
            self.arenas[at] = aligned(size)
        return self.arenas[at]
