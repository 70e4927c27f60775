"""Largest magnitudes: a proof that a value is never NaN or infinite, whatever the inputs hold.

Integer inputs and frozen parameters bound what is gathered, normalised and multiplied from them.
Inputs of floating type may hold anything, so nothing that depends on them is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ..declare.arrays import Array
from ..ir.dims import Size
from ..ir.graph import Node, Value
from ..ir.types import F32, axes_of, axis_of, count
from .attention_forms import weights
from .forms import number
from .raising import Trail, View

LARGEST = {"f16": 65504.0, "bf16": 2.0**127 * (2 - 2.0**-7), "f32": 2.0**127 * (2 - 2.0**-23),
           "f64": 1e308}
"""What no bound may exceed if a result is to be finite."""
SLACK = 1.01
"""Covers the rounding of sums."""
SAME = frozenset({
    "reshape", "transpose", "unsqueeze", "squeeze", "expand", "slice", "narrow", "split", "flip",
    "tile", "identity", "stop_gradient", "expect_broadcast", "neg", "abs", "relu", "gelu",
    "gelu_tanh", "silu", "swish", "hard_swish"})
"""Operators whose results are no larger than their first operand, apart from rounding."""
UNIT = frozenset({"tanh", "erf", "sigmoid", "softmax", "sin", "cos", "hard_sigmoid"})
"""Operators of bounded operands whose results lie in -1..1."""
Known: TypeAlias = "float | None"


class Bounds:
    """Bounds of every floating or integer value of a graph."""

    __slots__ = ("table", "view")

    def __init__(self, view: View) -> None:
        self.view = view
        self.table: dict[Value, Known] = {}
        for node in view.nodes:
            found = self._node(node)
            for v in node.outputs:
                self.table[v] = self._limited(v, found)

    def of(self, value: Value) -> Known:
        """The largest magnitude; None where NaN or an infinity cannot be excluded."""
        if value.dtype.sort in ("int", "uint", "bool"):
            return 2.0 ** value.dtype.bits
        if value in self.table:
            return self.table[value]
        return self._limited(value, largest(self.view.data(value)))

    @staticmethod
    def _limited(value: Value, found: Known) -> Known:
        limit = LARGEST.get(value.dtype.name, 0.0)
        return found if found is not None and found <= limit else None

    def _node(self, node: Node) -> Known:
        if (rule := RULES.get(node.op)) is not None:
            return rule(self, node, [self.of(v) for v in node.inputs])
        if node.op in ("full", "constant"):
            c = number(node.outputs[0])
            return abs(c) if c is not None and math.isfinite(c) else (
                largest(self.view.data(node.outputs[0])))
        if node.op not in SAME and node.op not in UNIT:
            return None
        x = self.of(node.inputs[0])
        return x if x is None or node.op in SAME else 1.0


def largest(array: Array | None) -> Known:
    """The largest magnitude of known elements, if all are finite."""
    if array is None or array.dtype.kind not in "fiub" or not array.size:
        return None
    top = float(np.max(np.abs(array)))
    return top if math.isfinite(top) else None


Ins: TypeAlias = "Sequence[Known]"
Rule: TypeAlias = Callable[[Bounds, Node, Ins], Known]


def _sum(_: Bounds, node: Node, ins: Ins) -> Known:
    """The sum of the bounds; a small one beside the largest number of f32 rounds away."""
    known = sorted([x for x in ins if x is not None])
    if len(known) < len(ins):
        return None
    low, high = known
    if node.outputs[0].dtype is F32 and low < high * 2.0**-26 and np.float32(high) == high:
        return high
    return (low + high) * SLACK


def _greatest(_: Bounds, __: Node, ins: Ins) -> Known:
    known = [x for x in ins if x is not None]
    return max(known) if len(known) == len(ins) else None


def _choice(bounds: Bounds, node: Node, ins: Ins) -> Known:
    return _greatest(bounds, node, ins[1:])


def _product(_: Bounds, __: Node, ins: Ins) -> Known:
    a, b = ins
    return a * b * SLACK if a is not None and b is not None else None


def _quotient(_: Bounds, node: Node, ins: Ins) -> Known:
    c = number(node.inputs[1])
    return ins[0] / abs(c) * SLACK if ins[0] is not None and c else None


def _first(_: Bounds, __: Node, ins: Ins) -> Known:
    return ins[0]


def _elements(x: Value, axes: Sequence[int]) -> int | None:
    n: Size = count(tuple([x.shape[i] for i in axes_of(axes, x.type.rank)]))
    return n if isinstance(n, int) else None


def _reduced(_: Bounds, node: Node, ins: Ins) -> Known:
    """Sums grow with the number of elements; means and extremes of none are not finite."""
    axes = node.attrs["axes"]
    assert isinstance(axes, tuple)
    n = _elements(node.inputs[0], [a for a in axes if isinstance(a, int)])
    if n is None or ins[0] is None:
        return None
    if node.op == "sum":
        return ins[0] * n * SLACK
    return ins[0] if n else None


def _matmul(bounds: Bounds, node: Node, ins: Ins) -> Known:
    """|a| times the largest sum of a column of |b|, or the other way round; |b| under weights."""
    if (found := weights(node.inputs[0], Trail(bounds.view, node))) is not None and (
            found[1] or ins[0] is not None):
        return ins[1] * SLACK if ins[1] is not None else None
    for i, axis in ((1, -2), (0, -1)):
        data, other = bounds.view.data(node.inputs[i]), ins[1 - i]
        if data is not None and data.ndim >= 2 and data.size and other is not None:
            top = float(np.max(np.sum(np.abs(data), axis=axis, dtype=np.float64)))
            return other * top * SLACK if math.isfinite(top) else None
    k = node.inputs[0].shape[-1]
    a, b = ins
    return a * b * k * SLACK if a is not None and b is not None and isinstance(k, int) else None


def _norm(_: Bounds, node: Node, ins: Ins) -> Known:
    """A standardised row of n numbers has none beyond sqrt(n)."""
    x = node.inputs[0]
    axis, eps = node.attrs["axis"], node.attrs["eps"]
    assert isinstance(axis, int) and isinstance(eps, float)
    n = _elements(x, range(axis_of(axis, x.type.rank), x.type.rank))
    known = [v for v in ins if v is not None]
    if n is None or len(known) < len(ins) or eps < 1e-30 or not _squares(x, known[0], n):
        return None
    return (math.sqrt(n) * known[1] + sum(known[2:])) * SLACK


def _squares(x: Value, top: float, n: int) -> bool:
    """Whether the squares of the elements add up to a finite number, in f32 or f64."""
    return (2 * top) ** 2 * max(n, 1) < (LARGEST["f64"] if x.dtype.bits == 64 else LARGEST["f32"])


def _attention(_: Bounds, node: Node, ins: Ins) -> Known:
    """A weighted mean of the values, if the scores are finite."""
    q, k, v = ins[:3]
    d = node.inputs[0].shape[-1]
    if q is None or k is None or not isinstance(d, int) or q * k * d > LARGEST["f32"]:
        return None
    return v if len(ins) == 3 or all([x is not None for x in ins]) else None


RULES: dict[str, Rule] = {
    "add": _sum, "sub": _sum, "mul": _product, "div": _quotient, "max": _greatest, "min": _greatest,
    "where": _choice, "concat": _greatest, "clip": _greatest, "gather": _first,
    "gather_nd": _first, "cast": _first, "sum": _reduced, "mean": _reduced,
    "reduce_max": _reduced, "reduce_min": _reduced, "matmul": _matmul, "layer_norm": _norm,
    "rms_norm": _norm, "attention": _attention}
"""How results are bounded by their operands."""
