"""Derivatives of control flow: the regions are recorded again and differentiated in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from ..declare.derive import differentiable
from ..errors import Declined
from ..ir.graph import Graph, Node, Value, current
from ..ops.library import REGISTRY
from .grad import Grads, backward, full, or_zeros
from .inline import inline

Pairs: TypeAlias = "list[tuple[Value, Value | None]]"


def region_grads(node: Node, gs: Grads, live: set[Value]) -> Pairs:
    """Cotangents of the operands and of what the regions capture."""
    if (rule := _RULES.get(node.op)) is None:
        raise Declined(f"{node.op} has no derivative rule",
                       hint="write the loop as a scan, or put stop_gradient before it")
    return rule(node, gs, live)


def _captured(node: Node, live: set[Value]) -> list[Value]:
    """Differentiable values that the regions read from outside, each once."""
    return [v for v in dict.fromkeys(v for g in node.regions.values() for v in g.captures)
            if v in live and differentiable(v.dtype)]


def _through(region: Graph, args: Sequence[Value], gs: Grads, wanted: Sequence[Value]
             ) -> list[Value]:
    """Record a region in the open graph and give the cotangents of `wanted`, zeros included."""
    nodes = current().graph.nodes
    mark = len(nodes)
    seeds: dict[Value, Value] = {}
    for v, g in zip(inline(region, args), gs, strict=True):
        if g is None or not differentiable(v.dtype):
            continue
        if g.type != v.type:  # outside, a size of the region has another name
            g = cast(Value, REGISTRY["reshape"](g, shape=v.shape))
        seeds[v] = seeds[v] + g if v in seeds else g
    found = backward(nodes[mark:], seeds, wanted)
    return [or_zeros(found.get(v), v.type) for v in wanted]


def _if_grads(node: Node, gs: Grads, live: set[Value]) -> Pairs:
    """The same predicate chooses which branch is differentiated."""
    wanted = _captured(node, live)
    if not wanted:
        return []

    def branch(region: Graph) -> Callable[[], tuple[Value, ...]]:
        return lambda: tuple(_through(region, (), gs, wanted))

    out = REGISTRY["if"](node.inputs[0], then=branch(node.regions["then"]),
                         orelse=branch(node.regions["orelse"]))
    grads = (out,) if isinstance(out, Value) else cast("tuple[Value, ...]", out)
    return [*zip(wanted, grads, strict=True)]


def _per_operand(given: object, n: int, default: object) -> list[object]:
    return list(cast("Sequence[object]", given)) or [default] * n


def _scan(operands: Sequence[Value], **kw: object) -> tuple[Value, ...]:
    out = REGISTRY["scan"](list(operands), **kw)
    return (out,) if isinstance(out, Value) else cast("tuple[Value, ...]", out)


def _carries(node: Node, carried: int) -> list[Value]:
    """The carried values before every step, stacked: the scan is run once more."""
    body = node.regions["body"]

    def step(*args: Value) -> tuple[Value, ...]:
        return (*inline(body, args)[:carried], *args[:carried])

    keep = {k: node.attrs[k] for k in ("length", "axes", "reverse", "fresh")}
    return list(_scan(node.inputs, body=step, carried=carried, **keep)[carried:])


def _scan_grads(node: Node, gs: Grads, live: set[Value]) -> Pairs:
    """A scan from the last step to the first, on the carried values of the first run."""
    body, carried = node.regions["body"], cast(int, node.attrs["carried"])
    state, xs = node.inputs[:carried], node.inputs[carried:]
    smooth = [i for i, v in enumerate(state) if differentiable(v.dtype)]
    slices = [i for i, v in enumerate(xs) if v in live and differentiable(v.dtype)]
    outside = _captured(node, live)
    ys = [i for i, g in enumerate(gs) if i >= carried and g is not None]
    first = len(smooth) + len(outside)

    def step(*args: Value) -> tuple[Value, ...]:
        inner = args[first:first + len(node.inputs)]
        seeds: list[Value | None] = [None] * len(node.outputs)
        for i, g in (*zip(smooth, args, strict=False),
                     *zip(ys, args[first + len(inner):], strict=True)):
            seeds[i] = g
        wanted = [*[inner[i] for i in smooth], *outside, *[inner[carried + i] for i in slices]]
        found = _through(body, inner, seeds, wanted)
        sums = [a + b for a, b in zip(args[len(smooth):first], found[len(smooth):first],
                                      strict=True)]
        return (*found[:len(smooth)], *sums, *found[first:])

    a = node.attrs
    axes = _per_operand(a["axes"], len(xs), 0)
    flips = [not r for r in _per_operand(a["reverse"], len(xs), False)]
    y_axes = _per_operand(a["out_axes"], len(node.outputs) - carried, 0)
    y_flips = [not r for r in _per_operand(a["out_reverse"], len(node.outputs) - carried, False)]
    out = _scan(
        [*[or_zeros(gs[i], state[i].type) for i in smooth],
         *[full(0.0, v.type) for v in outside], *_carries(node, carried), *xs,
         *[cast(Value, gs[i]) for i in ys]],
        body=step, carried=first, length=a["length"], fresh=a["fresh"],
        axes=(*[0] * carried, *axes, *[y_axes[i - carried] for i in ys]),
        reverse=(*[True] * carried, *flips, *[y_flips[i - carried] for i in ys]),
        out_axes=tuple([axes[i] for i in slices]), out_reverse=tuple([flips[i] for i in slices]))
    targets = [*[state[i] for i in smooth], *outside, *[xs[i] for i in slices]]
    return [*zip(targets, out, strict=True)]


_RULES: dict[str, Callable[[Node, Grads, set[Value]], Pairs]] = {
    "if": _if_grads, "scan": _scan_grads}
