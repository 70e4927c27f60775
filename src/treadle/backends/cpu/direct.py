"""Calls of a program that is one native segment, with everything ready but addresses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ...codegen.llvm.runtime import KernelFault
from ...declare.arrays import Array, np_dtype
from ...declare.evaluate import Binding
from ...ir.graph import Value
from .addresses import address, array_at
from .limits import reserve
from .plan import Base, Followers, Plan, Segment, bound, place

if TYPE_CHECKING:
    from .program import CpuProgram

Late: TypeAlias = "tuple[int, Callable[[Sequence[Array]], Array]]"
"""The index of an output that is copied after the run, and how."""


class Direct:
    """Runs under one binding: writes the addresses of inputs and outputs, then calls once.

    Of an output that is in place already it gives something empty.

    Inputs are row-major, aligned, and of the binding's shapes. Runs of one program come one at a
    time, as those of the program itself.
    """

    def __init__(self, program: CpuProgram, plan: Plan, segment: Segment, binding: Binding
                 ) -> None:
        self.program, self.plan, self.segment = program, plan, segment
        self.binding = dict(binding)
        self._run = program.pool.runner(segment.schedule)
        self._schedule, self._frame = segment.schedule, segment.frame
        self._table = segment.frame.table
        self._settle()
        moving = segment.moving
        self._reads = [(i, words) for i, v in enumerate(program.graph.inputs)
                       if (words := moving.get(v))]
        self._made: list[tuple[tuple[int, ...], np.dtype, Followers]] = []
        self._late: list[Late] = []
        self._outputs(moving)
        self._replace()

    def _outputs(self, moving: dict[Base, Followers]) -> None:
        """The first output with all elements of a base is its storage; the rest are copies."""
        views, results = self.program.whole.views, self.program.results
        storage: dict[Base, int] = {}
        for i, (v, how) in enumerate(results):
            if how != "copy":
                storage.setdefault(views[v].base, i)
        for i, (v, _) in enumerate(results):
            base, dtype = views[v].base, np_dtype(v.dtype)
            if storage.get(base) == i:
                self._made.append((bound(v, self.binding), dtype, moving.get(base, [])))
            else:
                self._made.append(((0,), dtype, []))
                self._late.append((i, self._part(v, storage.get(base))))

    def _replace(self) -> None:
        """Outputs that take an input's place are written there; nothing is returned for them."""
        residents, results = self.program.residents, self.program.results
        for i in residents.in_place:
            base = results[i][0]
            source = self.program.graph.inputs.index(residents.aliases[base])
            self._reads.append((source, self._made[i][2]))
            self._made[i] = ((0,), self._made[i][1], [])

    def _part(self, v: Value, made: int | None) -> Callable[[Sequence[Array]], Array]:
        """A copy of what a view holds, in another output's storage or in the program's."""
        view = self.program.whole.views[v]
        at = place(view, self.binding)
        reserve(math.prod(at[0]) * np_dtype(v.dtype).itemsize, [v], self.binding)

        def copy(found: Sequence[Array]) -> Array:
            base = self.plan.find(view.base) if made is None else found[made]
            base = self.program.held[view.base] if base is None else base
            return array_at(base, at, view.base).copy()

        return copy

    def _serves(self, inputs: Sequence[Array], out: Sequence[Array | None]) -> bool:
        """Whether targets are of their outputs' shapes and apart from all else."""
        apart = list(inputs)
        for (shape, _, _), target in zip(self._made, out, strict=True):
            if target is None:
                continue
            if target.shape != shape or any([np.may_share_memory(target, a) for a in apart]):
                return False
            apart.append(target)
        return not self._late and not self.program.residents.in_place

    def _settle(self) -> None:
        program = self.program
        self.plan.place_in(program.arena(0, self.plan.layout.total), program.addresses,
                           program.version)

    def __call__(self, inputs: Sequence[Array], out: Sequence[Array | None] = (), /
                 ) -> list[Array] | None:
        """Outputs in the graph's order; written where they go if nothing else is there."""
        if out and not self._serves(inputs, out):
            return None
        program, plan, table = self.program, self.plan, self._table
        if plan.version != program.version or plan.arena is not program.arenas[0]:
            self._settle()
        for i, words in self._reads:
            start = address(inputs[i])
            for word, offset in words:
                table[word] = start + offset
        found: list[Array] = []
        for i, (shape, dtype, words) in enumerate(self._made):
            target = out[i] if out else None
            array = np.empty(shape, dtype) if target is None else target
            found.append(array)
            if words:
                start = address(array)
                for word, offset in words:
                    table[word] = start + offset
        try:
            self._run(self._schedule, self._frame)
        except KernelFault as fault:
            raise program.error(0, fault, self.binding) from None
        for i, copy in self._late:
            found[i] = copy(found)
        return found

