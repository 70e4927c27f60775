"""What a lowering gives: a kernel to emit, the words it is called with, how it is cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ...codegen.llvm.kernel import Kernel
from ...codegen.llvm.loops import emit_loops
from ...codegen.llvm.scalars import supported
from ...codegen.llvm.target import host
from ...codegen.llvm.text import Module
from ...declare.scalar import Scalar, walk
from ...errors import Declined
from ...ir.dims import Size, evaluate
from ...ir.graph import Value
from ...loops.build import Draft
from ...loops.ir import Kernel as LoopKernel
from ...loops.ir import reached
from ...loops.schedule import Machine, schedule
from ...loops.staging import stage
from ...loops.text import kernel_text
from ...memory.views import View
from ...records import dataclass

Binding: TypeAlias = Mapping[str, int]
CHUNK_WORK = 1 << 15
"""Simple operations that make a chunk worth claiming."""
MOST_CHUNKS = 64


@dataclass(frozen=True, eq=False)
class Packed:
    """A parameter in a form that a kernel reads faster; made once, and again when it is set."""

    view: View
    key: str
    pack: Callable[[object], object]


Word: TypeAlias = "View | Packed | Size"
"""A word of a kernel: the address of a view's first element, of packed data, or a size."""


@dataclass(frozen=True, eq=False)
class Lowered:
    """One kernel call, left out where `chunks` gives none. Kernels of equal `key` are emitted once.

    `reuse` pairs written bases with read ones whose memory they may take.
    """

    key: str
    emit: Callable[[Module, str], Kernel]
    words: tuple[Word, ...]
    writes: tuple[Value, ...]
    chunks: Callable[[Binding], int]
    scratch: Callable[[Binding], int] = lambda _: 0
    fault: Callable[[int, int, Binding], str] = lambda code, value, _: f"error {code} ({value})"
    reuse: tuple[tuple[Value, Value], ...] = ()

    @property
    def reads(self) -> list[Value]:
        """The bases that are read."""
        found = [w.base for w in self.words if isinstance(w, View)]
        return [b for b in dict.fromkeys(found) if b not in self.writes]


def kernel_name(number: int, lowered: Lowered) -> str:
    """A kernel's name in code, `explain()` and dumped files: its number, and what it is.

    That is the word its key begins with; `loops` for loop IR.
    """
    word = (re.match(r"\w+", lowered.key) or [""])[0].lower()
    return f"k{number}_{'loops' if word == 'kernel' else word}"


def machine() -> Machine:
    """The processor, as schedules see it."""
    return Machine(host().vector_bytes, host().has_masks)


def loop_kernel(draft: Draft, kernel: LoopKernel, views: Sequence[View], outs: Sequence[View],
                work: Size, fault: Callable[[int, Binding], str] | None = None,
                in_place: Sequence[View] = ()) -> Lowered:
    """A kernel of loop IR; `views` are its buffers in order, `work` its number of elements.

    `fault` explains the value of a failed check.
    """
    for e in reached(kernel, *kernel.body):
        if why := supported(e):
            raise Declined(why)
    plan, weight = schedule(kernel, machine()), _weight(kernel)
    if not plan.slots:
        kernel = stage(kernel)
        plan = schedule(kernel, machine())

    def chunks(binding: Binding) -> int:
        return max(1, min(evaluate(work, binding) * weight // CHUNK_WORK, MOST_CHUNKS))

    def explain(code: int, value: int, binding: Binding) -> str:
        return f"error {code} ({value})" if fault is None else fault(value, binding)

    writes = tuple(dict.fromkeys([v.base for v in outs]))
    reuse = [(o.base, i.base) for o in outs for i in in_place if o.whole and i.whole
             and o.base.dtype.bits == i.base.dtype.bits]
    return Lowered(kernel_text(kernel), lambda module, name: emit_loops(module, kernel, plan, name),
                   (*views, *draft.sizes), writes, chunks, fault=explain, reuse=tuple(reuse))


_COSTLY = {"exp": 8, "log": 8, "div": 4, "sqrt": 4, "fma": 1}


def _weight(kernel: LoopKernel) -> int:
    """Operations an element, roughly."""
    return max(1, sum(_COSTLY.get(e.op, 1) for e in reached(kernel, *kernel.body) if e.args) // 2)


def check(roots: Sequence[Scalar]) -> None:
    """Raise `Declined` for the first expression that has no instructions."""
    for e in walk(*roots):
        if why := supported(e):
            raise Declined(why)
