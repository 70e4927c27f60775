"""Scans as native steps: the kernels of the body, called again for every turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from ...codegen.llvm.scalars import holds
from ...ir.dims import Size, sym
from ...ir.graph import Graph, Node, Value
from ...ir.types import axis_of
from ...memory.views import View, whole
from ...passes.base import Context
from ...passes.fuse import Fuse
from .claims import writes_anywhere
from .pointwise import copy

if TYPE_CHECKING:
    from .assembly import Assembler, GuardStep, NativeStep, Stage

TURN = "%turn"


def scan_natively(work: Assembler, node: Node) -> bool:
    """Add a scan as one step; False, and nothing added, if its body needs the host."""
    from .assembly import RepeatStep

    values = [v for v in (*node.inputs, *node.outputs, *node.regions["body"].captures)]
    if not all(holds(v.dtype) for v in values):
        return False
    body = Fuse().run(node.regions["body"], Context(legaliser=work.backend))
    carried = cast(int, node.attrs["carried"])
    first = list(node.outputs[:carried])
    sets = (first, [Value(v.type, v.name) for v in first])
    count = _count(node, carried)
    bodies: list[Sequence[NativeStep | GuardStep]] = []
    mark = work.mark()
    optional = not (isinstance(count, int) and count > 0)
    for p in (0, 1):
        work.optional += optional
        steps = _turn(work, node, body, (sets[p], sets[1 - p]), count)
        work.optional -= optional
        if steps is None:
            work.back(mark)
            return False
        bodies.append(steps)
    start = [[work.call(node, copy(work.views[v], whole(to))) for v, to in zip(
        node.inputs[:carried], target, strict=True)] for target in sets]
    work.stages[-1].steps.append(RepeatStep(
        node, (start[0], start[1]), (bodies[0], bodies[1]), count, TURN))
    work.views.update({v: whole(v) for v in node.outputs})
    return True


def _count(node: Node, carried: int) -> Size:
    xs = node.inputs[carried:]
    if not xs:
        return cast(Size, node.attrs["length"])
    return xs[0].shape[_axis(node.attrs["axes"], 0, xs[0].type.rank)]


def _axis(axes: object, i: int, rank: int) -> int:
    given = cast("tuple[int, ...]", axes)
    return axis_of(given[i] if given else 0, rank)


def _slice(view: View, axis: int, count: Size, backwards: bool) -> View:
    """The elements of one turn."""
    at = count - 1 - sym(TURN) if backwards else sym(TURN)
    return View(view.base, (*view.shape[:axis], *view.shape[axis + 1:]),
                (*view.strides[:axis], *view.strides[axis + 1:]),
                view.offset + at * view.strides[axis])


def _flag(flags: object, i: int) -> bool:
    given = cast("tuple[bool, ...]", flags)
    return bool(given and given[i])


def _turn(work: Assembler, node: Node, body: Graph, sets: tuple[list[Value], list[Value]],
          count: Size) -> list[NativeStep | GuardStep] | None:
    """The calls of a turn that reads one set of carried values and writes the other."""
    reads, writes = sets
    n = len(reads)
    for v, base in zip(body.inputs[:n], reads, strict=True):
        work.views[v] = whole(base)
    for i, (v, x) in enumerate(zip(body.inputs[n:], node.inputs[n:], strict=True)):
        axis = _axis(node.attrs["axes"], i, x.type.rank)
        work.views[v] = _slice(work.views[x], axis, count, _flag(node.attrs["reverse"], i))
    targets = [whole(v) for v in writes]
    for i, y in enumerate(node.outputs[n:]):
        axis = _axis(node.attrs["out_axes"], i, y.type.rank)
        targets.append(_slice(whole(y), axis, count, _flag(node.attrs["out_reverse"], i)))
    own = set(body.nodes)
    for v, target in zip(body.outputs, targets, strict=True):
        work.placed.pop(v, None)
        if v.producer is not None and v.producer in own and writes_anywhere(v.producer):
            work.placed.setdefault(v, target)
    placed = {v: work.placed[v] for v in body.outputs if v in work.placed}
    steps = _steps(work, work.body(body.nodes))
    for v in placed:
        del work.placed[v]
    if steps is None:
        return None
    return [*steps, *(work.call(node, copy(work.views[v], t)) for v, t in zip(
        body.outputs, targets, strict=True) if work.views[v] != t)]


def _steps(work: Assembler, stage: Stage | None) -> list[NativeStep | GuardStep] | None:
    """The steps of a turn; None if it needs the host, a loop of its own, or checks of sizes."""
    from .assembly import GuardStep, NativeStep

    if stage is None or stage.checks:
        return None
    steps: list[NativeStep | GuardStep] = []
    leaves = list(stage.leaves)
    for step in stage.steps:
        if isinstance(step, NativeStep):
            steps.append(step)
        elif isinstance(step, GuardStep) and not step.checks:
            leaves += step.leaves
            steps.append(GuardStep(step.node, step.flag, step.value, step.steps))
        else:
            return None
    known = work.stages[-1].leaves
    known += [n for n in leaves if n not in known]
    return steps
