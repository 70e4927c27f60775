"""Branches as native steps: both bodies' kernels, each behind a guard that looks at the predicate.

The guards of `then` and `orelse` look at the same bool, so that one of them holds its steps back.
The steps lie one after the other, and so do the lives of their buffers: what one branch needs for
itself may have the memory that the other does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...codegen.llvm.kernel import Kernel
from ...codegen.llvm.text import I64, Module
from ...ir.dims import symbols
from ...ir.graph import Graph, Node
from ...memory.views import whole
from ...passes.base import Context
from ...passes.fuse import Fuse
from .carry import carry
from .claims import declined_branches, writes_anywhere
from .lowered import Lowered

if TYPE_CHECKING:
    from .assembly import Assembler, GuardStep, Stage


def branch_natively(work: Assembler, node: Node) -> bool:
    """Add an `if` as guarded steps; False, and nothing added, if a branch needs the host."""
    if declined_branches(node):
        return False
    mark = work.mark()
    found: list[tuple[GuardStep, Stage]] = []
    for key, value in (("then", True), ("orelse", False)):
        body = Fuse().run(node.regions[key], Context(legaliser=work.backend))
        stage = _branch(work, node, body)
        if stage is None:
            work.back(mark)
            return False
        found.append((_guard(work, node, value, body, stage), stage))
    into = work.stages[-1]
    for guard, stage in found:
        into.steps += [guard, *stage.steps]
        into.inside.update(dict.fromkeys(stage.steps, node))
    work.views.update({v: whole(v) for v in node.outputs})
    return True


def _branch(work: Assembler, node: Node, body: Graph) -> Stage | None:
    """The steps of one branch, which leave its outputs where those of the node lie."""
    own, placed = set(body.nodes), dict(work.placed)
    for v, out in zip(body.outputs, node.outputs, strict=True):
        if v.producer in own and writes_anywhere(v.producer):
            work.placed.setdefault(v, whole(out))
    work.optional += 1
    stage = work.body(body.nodes)
    work.optional -= 1
    work.placed = placed
    if stage is None:
        return None
    for v, out in zip(body.outputs, node.outputs, strict=True):
        if work.views[v] != whole(out):
            stage.steps.append(work.call(node, carry(work.views[v], whole(out))))
    return stage


def _guard(work: Assembler, node: Node, value: bool, body: Graph, stage: Stage) -> GuardStep:
    from .assembly import GuardStep

    sized = stage.checks or any(n.reads() or symbols(d) for n in body.nodes for v in n.outputs
                                for d in v.shape)
    refuse = work.call(node, Lowered("refuse", _refuse, (0,), (), lambda _: 1)) if sized else None
    return GuardStep(node, work.views[node.inputs[0]], value, len(stage.steps), body.nodes,
                     stage.leaves, stage.checks, refuse)


def _refuse(module: Module, name: str) -> Kernel:
    kernel = Kernel(module, name, [("nothing", I64)])
    kernel.fail(1, kernel["nothing"])
    return kernel
