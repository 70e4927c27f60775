"""Find activation functions that an exporter opened: GELU, SiLU, hard swish and their kin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple, TypeAlias

from ..ir.graph import Node, Value
from ..ops import activations as act
from ..records import dataclass
from .forms import Polynomial, Product, affine, near, number, polynomial, product, same_polynomial
from .raising import Found, Match, Near, Raise, Trail, View

Build: TypeAlias = Callable[[Value], Value]
GELU: Polynomial = {1: 2.0**-0.5}
GELU_TANH: Polynomial = {1: math.sqrt(2 / math.pi), 3: math.sqrt(2 / math.pi) * 0.044715}


@dataclass(frozen=True, slots=True)
class RaiseActivation(Raise):
    """Records gelu, gelu_tanh, sigmoid, silu, swish, mish, softcap and hard_swish.

    Factors may stand in any order and the constants anywhere, as long as the numbers agree within
    the rounding of the dtype. Holds for every operand, NaN included, except that hard_swish gives
    0 at -infinity, where the exported form gives NaN.
    """

    name: ClassVar[str] = "raise_activation"
    anchors: ClassVar[frozenset[str]] = frozenset({"mul", "div", "reciprocal"})
    sweeps: ClassVar[int] = 2

    def match(self, node: Node, view: View) -> Match:
        """The activation that ends in `node`."""
        out = node.outputs[0]
        if out.dtype.sort != "float":
            return None
        trail = Trail(view, node)
        if node.op == "reciprocal":
            return _found("sigmoid", act.sigmoid, exponential(node.inputs[0], trail), trail)
        parts = product(out, trail)
        if len(parts.over) + len(parts.under) > 2:
            return None
        if parts.under:
            return _quotient(parts, trail)
        if len(parts.over) == 1:
            return _capped(parts, trail)
        return _gated(parts, trail)


def _found(what: str, build: Build, x: Value | None, trail: Trail) -> Match:
    if x is None:
        return None

    def record(v: Value) -> tuple[Value, ...]:
        return (build(v),)

    return Found(what, (trail.root,), (x,), record, trail.nodes)


def exponential(value: Value, trail: Trail) -> Value | None:
    """The x of 1 + e ** -x."""
    a, b, core = affine(value, trail)
    node = trail.through(core, "exp")
    if node is None or a != 1.0 or b != 1.0:
        return None
    arg = node.inputs[0]
    inner = trail.alone(arg, "neg", "mul")
    if inner is None:
        return None
    if inner.op == "neg":
        return inner.inputs[0]
    return next((v for v, c in (inner.inputs, inner.inputs[::-1]) if number(c) == -1.0), None)


def _quotient(parts: Product, trail: Trail) -> Match:
    """1 / (1 + e ** -x) and x / (1 + e ** -x)."""
    if len(parts.under) != 1 or parts.number != 1.0:
        return None
    x = exponential(parts.under[0], trail)
    if x is None or not parts.over:
        return _found("sigmoid", act.sigmoid, x, trail)
    return _found("silu", act.silu, x, trail) if parts.over[0] is x else None


def _capped(parts: Product, trail: Trail) -> Match:
    """Cap * tanh(x / cap)."""
    cap, node = parts.number, trail.through(parts.over[0], "tanh")
    if node is None or cap <= 0 or cap == 1.0:
        return None
    scale, shift, x = affine(node.inputs[0], trail)
    if shift or not near(scale * cap, 1.0, x.dtype):
        return None
    return _found("softcap", lambda v: act.softcap(v, cap=cap), x, trail)


def _gated(parts: Product, trail: Trail) -> Match:
    """Some function of x times x."""
    said: Match = None
    for x, gate in (parts.over, parts.over[::-1]):
        for form in (_normal, _logistic, _hard):
            mark = len(trail.nodes)
            found = form(parts.number, x, gate, trail)
            if isinstance(found, Found):
                return found
            said = found or said
            trail.back(mark)
    return said


def _normal(coefficient: float, x: Value, gate: Value, trail: Trail) -> Match:
    """gelu: half of x (1 + erf(x / sqrt 2)), or the formula with tanh; mish: x tanh(softplus x)."""
    scale, shift, core = affine(gate, trail)
    node = trail.through(core, "erf", "tanh")
    if node is None:
        return None
    scale, shift = scale * coefficient, shift * coefficient
    if not shift:
        return _mish(scale, x, node, trail)
    found = polynomial(node.inputs[0], x, trail)
    if found is None:
        return None
    name, build, want = ("gelu", act.gelu, GELU) if node.op == "erf" else (
        "gelu_tanh", act.gelu_tanh, GELU_TANH)
    if not all([near(c, 0.5, x.dtype) for c in (scale, shift)]) or (
            not same_polynomial(found, want, x.dtype)):
        return Near(f"{shift:.9g} x + {scale:.9g} x {node.op}({_text(found)}) is no {name}",
                    (node,))
    return _found(name, build, x, trail)


def _mish(scale: float, x: Value, node: Node, trail: Trail) -> Match:
    inner = trail.through(node.inputs[0], "softplus")
    if scale != 1.0 or node.op != "tanh" or inner is None or inner.inputs[0] is not x:
        return None
    return _found("mish", act.mish, x, trail)


def _text(p: Polynomial) -> str:
    return " + ".join([f"{c:.9g} x^{k}" for k, c in sorted(p.items())])


def _logistic(coefficient: float, x: Value, gate: Value, trail: Trail) -> Match:
    """silu and swish: x sigmoid(beta x)."""
    node = trail.through(gate, "sigmoid")
    if node is None or coefficient != 1.0:
        return None
    found = polynomial(node.inputs[0], x, trail)
    if found is None or {k for k, c in found.items() if c} != {1}:
        return None
    beta = found[1]
    if near(beta, 1.0, x.dtype):
        return _found("silu", act.silu, x, trail)
    return _found("swish", lambda v: act.swish(v, beta=beta), x, trail)


def _hard(coefficient: float, x: Value, gate: Value, trail: Trail) -> Match:
    """hard_swish: x times x / 6 + 1 / 2 clipped to 0..1, times any number."""
    scale, shift, core = affine(gate, trail)
    if shift or (clipped := _clipped(core, trail)) is None:
        return None
    k, (alpha, beta, inner, high) = coefficient * scale, clipped
    found = polynomial(inner, x, trail)
    if found is None:
        return None
    scaled = {i: k * alpha * c for i, c in found.items()}
    scaled[0] = scaled.get(0, 0.0) + k * beta
    if not near(k * high, 1.0, x.dtype) or not same_polynomial(scaled, {0: 0.5, 1: 1 / 6}, x.dtype):
        return None
    return _found("hard_swish", act.hard_swish, x, trail)


class Clipped(NamedTuple):
    """scale * core + shift, clipped to 0..high."""

    scale: float
    shift: float
    core: Value
    high: float


def _clipped(value: Value, trail: Trail) -> Clipped | None:
    node = trail.through(value, "clip", "relu6", "hard_sigmoid")
    if node is None:
        return _nested(value, trail)
    if node.op == "relu6":
        return Clipped(1.0, 0.0, node.inputs[0], 6.0)
    if node.op == "hard_sigmoid":
        alpha, beta = node.attrs["alpha"], node.attrs["beta"]
        assert isinstance(alpha, float) and isinstance(beta, float)
        return Clipped(alpha, beta, node.inputs[0], 1.0)
    (x, *_), named = node.operands()
    low, high = [number(named[k]) if k in named else None for k in ("lo", "hi")]
    return Clipped(1.0, 0.0, x, high) if low == 0.0 and high is not None and high > 0 else None


def _nested(value: Value, trail: Trail) -> Clipped | None:
    """max(min(x, high), 0) or min(max(x, 0), high)."""
    bounds: dict[str, float] = {}
    while (node := trail.through(value, "max", "min", "relu")) is not None:
        step = _bound(node)
        if step is None or step[0] in bounds:
            return None
        bounds[step[0]], value = step[1:]
    high = bounds.get("min")
    if bounds.get("max") != 0.0 or high is None or high <= 0:
        return None
    return Clipped(1.0, 0.0, value, high)


def _bound(node: Node) -> tuple[str, float, Value] | None:
    if node.op == "relu":
        return "max", 0.0, node.inputs[0]
    a, b = node.inputs
    for x, c in ((a, number(b)), (b, number(a))):
        if c is not None:
            return node.op, c, x
    return None
