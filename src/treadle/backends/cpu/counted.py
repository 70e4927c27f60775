"""Loops that run a known number of times, as scans over their turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from ...declare.content import sizes_of
from ...errors import Declined
from ...ir.dims import Size, bounds
from ...ir.graph import Builder, Graph, Node, Value
from ...ir.types import BOOL, I64
from ...ops.control import goes_on, holds
from ...ops.library import REGISTRY
from ...transforms.inline import inline

if TYPE_CHECKING:
    from .assembly import Assembler


MOST_TURNS = 1 << 14
"""A schedule lists the calls of every turn."""


def as_scan(node: Node) -> Graph:
    """A `loop` as a scan that is also given the number of the turn.

    Raises `Declined` where the run decides how often it turns, or what it carries changes.
    """
    body, length = node.regions["body"], _turns(node)
    n = len(body.inputs) - 2
    held = node.inputs[:n]
    same = all(a.type == b.type == c.type == d.type for a, b, c, d in zip(
        held, body.inputs[2:], body.outputs[1:n + 1], node.outputs, strict=False))
    if not same or node.makes():
        raise Declined("sizes change from turn to turn")

    def turn(*values: Value) -> tuple[Value, ...]:
        go = cast(Value, REGISTRY["full"](value=True, shape=(), dtype=BOOL))
        return inline(body, [values[n], go, *values[:n]])[1:]

    with Builder("loop") as b, b.at(node.loc):
        turns = cast(Value, REGISTRY["range"](start=0, step=1, length=length, dtype=I64))
        made = REGISTRY["scan"]([*held, turns], body=turn, carried=n, fresh=str(
            node.attrs["fresh"]))
        return b.finish((made,) if isinstance(made, Value) else cast("Sequence[Value]", made))


def count_natively(work: Assembler, node: Node) -> bool:
    """Add a loop as a scan; False, and nothing added, if that needs the host."""
    from .scans import scan_natively

    try:
        graph = as_scan(node)
    except Declined:
        return False
    *leaves, scan = graph.nodes
    for leaf in leaves:
        work.leaf(leaf, work.stages[-1])
    if not scan_natively(work, scan):
        work.stages[-1].leaves = [x for x in work.stages[-1].leaves if x not in leaves]
        return False
    work.stages[-1].inside[work.stages[-1].steps[-1]] = node
    work.views.update({v: work.views[w] for v, w in zip(node.outputs, graph.outputs, strict=True)})
    return True


def _turns(node: Node) -> Size:
    """How often a loop runs."""
    given = dict(zip(node.keys, node.inputs[len(node.inputs) - len(node.keys):], strict=True))
    body, trip, going = node.regions["body"], given.get("trip"), given.get("keep_going")
    if going is not None and not (holds(going) and goes_on(body)):
        raise Declined("its condition depends on the run")
    length = cast("Size | None", node.attrs["length"])
    told = (length,) if trip is None else sizes_of(trip)
    if told is None or told[0] is None or (length is not None and told[0] != length):
        raise Declined("its trip count depends on the run")
    if bounds(told[0])[0] < 0:
        raise Declined(f"its trip count {told[0]} may be negative")
    if isinstance(told[0], int) and told[0] > MOST_TURNS:
        raise Declined(f"its {told[0]} turns are more than the {MOST_TURNS} that are listed")
    return told[0]
