"""Find softmax and log-softmax that an exporter opened."""

from __future__ import annotations

from typing import ClassVar

from ..ir.graph import Node, Value
from ..ops.scan1d import log_softmax, softmax
from ..records import dataclass
from .forms import statistic
from .raising import Found, Match, Near, Raise, Trail, View


@dataclass(frozen=True, slots=True)
class RaiseSoftmax(Raise):
    """Records softmax and log_softmax of exp, max and sum along one axis.

    The maximum must be subtracted, as the operator does: without it large operands overflow.
    Holds for every operand.
    """

    name: ClassVar[str] = "raise_softmax"
    anchors: ClassVar[frozenset[str]] = frozenset({"div", "mul", "sub"})

    def match(self, node: Node, view: View) -> Match:
        """The softmax that ends in `node`."""
        if node.outputs[0].dtype.sort != "float":
            return None
        trail, (a, b) = Trail(view, node), node.inputs
        if node.op == "sub":
            return _logarithm(a, b, trail)
        if node.op == "div":
            return _quotient(a, b, trail)
        for e, r in ((a, b), (b, a)):
            if (inverse := trail.alone(r, "reciprocal")) is not None:
                return _quotient(e, inverse.inputs[0], trail)
        return None


def _quotient(e: Value, total: Value, trail: Trail) -> Match:
    """e ** (x - max x) over its sum."""
    found = statistic(total, trail, "sum")
    node = trail.through(e, "exp")
    if found is None or node is None or found.x is not e or found.number != 1.0 or (
            len(found.axes) != 1):
        return None
    x = _shifted(node.inputs[0], found.axes, trail)
    if x is None:
        return Near("a softmax that does not subtract the maximum overflows above 88", (node,))
    return _found("softmax", x, found.axes[0], trail)


def _logarithm(d: Value, total: Value, trail: Trail) -> Match:
    """d - log(sum(e ** d)), d being x - max x."""
    value = trail.views(total)
    node = trail.alone(value, "log")
    if node is None:
        return None
    found = statistic(node.inputs[0], trail, "sum")
    if found is None or found.number != 1.0 or len(found.axes) != 1:
        return None
    inner = trail.through(found.x, "exp")
    if inner is None or inner.inputs[0] is not d:
        return None
    x = _shifted(d, found.axes, trail)
    if x is None or total.shape[found.axes[0]] != 1 or total.type.rank != x.type.rank:
        return None
    return _found("log_softmax", x, found.axes[0], trail)


def _shifted(value: Value, axes: tuple[int, ...], trail: Trail) -> Value | None:
    """The x of x less its maximum over `axes`."""
    mark, node = len(trail.nodes), trail.through(value, "sub")
    if node is not None:
        x, top = node.inputs
        found = statistic(top, trail, "reduce_max")
        if found is not None and found.x is x and found.axes == axes and found.number == 1.0:
            return x
    trail.back(mark)
    return None


def _found(what: str, x: Value, axis: int, trail: Trail) -> Found:
    op = softmax if what == "softmax" else log_softmax

    def record(v: Value) -> tuple[Value, ...]:
        return (op(v, axis=axis),)

    return Found(what, (trail.root,), (x,), record, trail.nodes)
