"""Control flow: regions are traced into the graph that MLX evaluates.

Choices that only a run knows need the value of a predicate, which a trace does not have: an `if`
is then a selection between both branches, a loop of known length is unrolled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import mlx.core as mx

from ...errors import OperatorError, TreadleError
from ...ir.graph import Graph, Node
from .arrays import number
from .lowering import Call, Lowering, Untraceable

UNROLL = 64
"""Most turns of a loop that a trace unrolls."""
EVALUATE = 32
"""Turns after which a loop outside a trace evaluates, so that the graph stays small."""


def choose(call: Call, pred: mx.array, *, fresh: str) -> Sequence[mx.array]:
    """One branch; in a trace both, and a selection."""
    if not call.tracing:
        return call.region("then" if call.read(pred) else "orelse", [])
    flag = mx.reshape(pred, ())
    taken = {"then": flag, "orelse": mx.logical_not(flag)}
    try:
        both = [call.region(k, [], when) for k, when in taken.items()]
    except TreadleError as e:
        raise Untraceable(f"a branch of an if fails for these sizes ({e.message})") from None
    if any(a.shape != b.shape for a, b in zip(*both, strict=True)):
        raise Untraceable("the branches of an if give different sizes")
    return [mx.where(flag, a, b) for a, b in zip(*both, strict=True)]


def _turns(call: Call, i: int, arrays: Sequence[mx.array]) -> None:
    if call.tracing and i >= UNROLL:
        raise Untraceable(f"{call.node.op} runs more than {UNROLL} times")
    if not call.tracing and i % EVALUATE == EVALUATE - 1:
        mx.eval(*arrays)


def loop(call: Call, carried: Sequence[mx.array], *, trip: mx.array | None = None,
         keep_going: mx.array | None = None, length: int | None, fresh: str
         ) -> Sequence[mx.array]:
    """Turns up to the trip count, or while the body says so."""
    limit = None if trip is None else length if call.tracing and length is not None else int(
        call.read(trip))
    go = keep_going is None or bool(call.read(keep_going))
    held, n, rows, i = list(carried), len(carried), list[list[mx.array]](), 0
    while go and (limit is None or i < limit) and i != length:
        out = call.region("body", [number(i, mx.int64), number(go, mx.bool_), *held])
        go = keep_going is None or bool(call.read(out[0]))
        held = out[1:n + 1]
        rows.append(out[n + 1:])
        _turns(call, i, [*held, *out[n + 1:]])
        i += 1
    if length is not None and (i != length or go and (limit is None or i < limit)):
        raise OperatorError(f"the loop ran {i} times{' and goes on' * (i == length)}, not {length}")
    return [*held, *_stacked(rows, [0] * len(rows[0] if rows else ()), n + 1)]


def repeat(call: Call, carried: Sequence[mx.array], *, max_iterations: int | None, fresh: str
           ) -> Sequence[mx.array]:
    """While the condition holds."""
    held, i = list(carried), 0
    while (max_iterations is None or i < max_iterations) and bool(
            call.read(call.region("cond", held)[0])):
        held = call.region("body", held)
        _turns(call, i, held)
        i += 1
    return held


def _stacked(rows: Sequence[Sequence[mx.array]], axes: Sequence[int], first: int
             ) -> list[mx.array]:
    out = list[mx.array]()
    for k, axis in enumerate(axes):
        items = [r[k] for r in rows]
        if wrong := [x.shape for x in items if x.shape != items[0].shape]:
            raise OperatorError(f"output {first + k} of the body was {list(items[0].shape)} first "
                                f"and {list(wrong[0])} later; stacked values keep their shape")
        out.append(mx.stack(items, axis=axis))
    return out


def scan(call: Call, operands: Sequence[mx.array], *, carried: int, length: int | None,
         axes: tuple[int, ...], reverse: tuple[bool, ...], out_axes: tuple[int, ...],
         out_reverse: tuple[bool, ...], fresh: str) -> Sequence[mx.array]:
    """Turns over slices of the scanned operands."""
    held = list(operands[:carried])
    cut = [mx.moveaxis(x, axes[i] if axes else 0, 0)
           for i, x in enumerate(operands[carried:])]
    n = cut[0].shape[0] if cut else int(cast(int, length))
    if (short := [x.shape[0] for x in cut if x.shape[0] != n]):
        raise OperatorError(f"the scanned axes have sizes {n} and {short[0]}")
    rows = list[list[mx.array]]()
    for i in range(n):
        at = [n - 1 - i if reverse and reverse[k] else i for k in range(len(cut))]
        out = call.region("body", [*held, *[x[j] for x, j in zip(cut, at, strict=True)]])
        held = out[:carried]
        rows.append(out[carried:])
        _turns(call, i, out)
    width = len(rows[0])
    turned = [[r[k] if not (out_reverse and out_reverse[k]) else rows[n - 1 - i][k]
               for k in range(width)] for i, r in enumerate(rows)]
    ranks = [x.ndim + 1 for x in rows[0]]
    at = [(out_axes[k] % ranks[k]) if out_axes else 0 for k in range(width)]
    return [*held, *_stacked(turned, at, carried)]


def fused(call: Call, operands: Sequence[mx.array]) -> Sequence[mx.array]:
    """The body; MLX's compiler makes kernels of it."""
    return call.region("body", operands)


def _branches(node: Node) -> str:
    """Why a choice needs the predicate's value, or nothing."""
    graphs: list[Graph] = [*node.regions.values()]
    if any(n.op in ("while", "loop") for g in graphs for n in g.walk()):
        return "a loop inside a branch"
    return ""


def blocker(node: Node) -> str:
    """Why a trace cannot hold a node with regions, or nothing."""
    if node.op == "while":
        return "while needs the value of its condition at every turn"
    if node.op == "loop" and ("keep_going" in node.keys or (
            "trip" in node.keys and node.attrs["length"] is None)):
        return "loop needs the value of its condition or trip count"
    return _branches(node) if node.op == "if" else ""


LOWERINGS: dict[str, Lowering] = {
    "if": Lowering(choose), "loop": Lowering(loop), "while": Lowering(repeat),
    "scan": Lowering(scan), "fused": Lowering(fused)}
