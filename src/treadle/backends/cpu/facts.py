"""What a program of the CPU device knows of its nodes: kernels, and places in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...ir.graph import Node, Value
from ..base import Fact
from .assembly import HostStep
from .lowered import kernel_name

if TYPE_CHECKING:
    from .plan import Planner
    from .program import CpuProgram


def facts(program: CpuProgram) -> dict[Node, Fact]:
    """Kernel and memory of every node. Nodes without kernels of their own have views or values."""
    kernels: dict[Node, list[str]] = {}
    hosted: dict[Node, str] = {}
    for stage in program.whole.stages:
        for step in stage.steps:
            if isinstance(step, HostStep):
                hosted[step.node] = step.reason
            else:
                names = [kernel_name(c.kernel, c.lowered) for c in step.calls()]
                kernels.setdefault(stage.inside.get(step, step.node), []).extend(names)
    prepared = set(program.whole.prepared)
    places = Places(program)
    return {node: Fact(", ".join(dict.fromkeys(kernels.get(node, ()))),
                       "parameters" if node in prepared else (
                           places.of(node.outputs[0]) if node.outputs else ""),
                       hosted.get(node, "")) for node in program.graph.nodes}


class Places:
    """Where values lie, in words."""

    def __init__(self, program: CpuProgram) -> None:
        self.program = program
        self.slots = {v: text for at, planner in enumerate(program.stages)
                      for v, text in _slots(program, at, planner)}
        self.fixed = {*program.graph.params, *program.graph.inputs}
        self.hosted = {v for stage in program.whole.stages for s in stage.steps
                       if isinstance(s, HostStep) for v in s.node.outputs}

    def of(self, value: Value) -> str:
        """The slot of a value, or of what it is a view of."""
        view = self.program.whole.views.get(value)
        if view is None:
            return ""
        here = self._base(view.base)
        return here if view.base is value else f"view of {here}"

    def _base(self, base: Value) -> str:
        if base in self.slots:
            return self.slots[base]
        if base in self.program.owned:
            return "output"
        if base in self.fixed or base in self.program.held:
            return f"{base.name or 'a parameter'}"
        return "NumPy" if base in self.hosted else "constants"


def _slots(program: CpuProgram, at: int, planner: Planner) -> Iterator[tuple[Value, str]]:
    plan = program.recent(at)
    numbers: dict[Value, int] = {}
    for v in planner.arena.sizes:
        number = numbers.setdefault(planner.arena.root[v], len(numbers))
        where = f" +{plan.layout.offsets[v]}" if plan else ""
        yield v, f"arena {at}.{number}{where}"


def memory_text(program: CpuProgram) -> str:
    """The memory plan: for each buffer its steps, size and place, under the latest binding."""
    lines: list[str] = []
    for at, planner in enumerate(program.stages):
        plan, arena = program.recent(at), planner.arena
        total = f", {plan.layout.total} bytes" if plan else ""
        lines.append(f"stage {at}: {arena.length} steps, {len(arena.sizes)} buffers{total}")
        for v, (_, text) in zip(arena.sizes, _slots(program, at, planner), strict=True):
            live, root = arena.lives[v], arena.root[v]
            size = f" = {plan.layout.sizes[v]}" if plan else ""
            taken = f", in the place of {root.name or root.type}" if root is not v else ""
            lines.append(f"  {text}: {v.type} {v.name}, steps {live.first} to {live.last}, "
                         f"{arena.sizes[v]}{size} bytes{taken}")
    return "\n".join([*lines, ""])
