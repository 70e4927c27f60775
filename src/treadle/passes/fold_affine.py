"""Fold constant scales and shifts into the weights and the bias of the layer beside them."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, cast

import numpy as np

from ..declare.arrays import Array
from ..ir.graph import Attr, Node, Value
from ..ir.types import Shape
from ..ops.contract import matmul
from ..ops.conv import conv, conv_transpose
from ..ops.mathfn import rsqrt
from ..ops.movement import expand, reshape
from ..ops.reduce import sum_
from ..records import dataclass
from .raising import Found, Match, Near, Raise, Trail, View

LAYERS = ("conv", "conv_transpose", "matmul")
STEPS = ("batch_norm", "mul", "add", "sub", "div")


class Step(NamedTuple):
    """One scale or shift: an operator, its constants, and the eps of a batch norm."""

    op: str
    operands: tuple[Value, ...]
    eps: float = 0.0


@dataclass(frozen=True, slots=True)
class FoldAffine(Raise):
    """Moves batch norms, and products and sums with constants by channel, into weights and bias.

    Weights and constants must be frozen; folding computes the new weights once. Scales before a
    convolution fold too, shifts before one only where it does not pad. For f32 and f64. Results
    differ by the rounding of one product for each weight. Holds for finite operands.
    """

    name: ClassVar[str] = "fold_affine"
    anchors: ClassVar[frozenset[str]] = frozenset({*STEPS, "conv"})

    def match(self, node: Node, view: View) -> Match:
        """The last of some steps behind a layer, or a convolution behind some steps."""
        trail = Trail(view, node)
        if node.outputs[0].dtype.name not in ("f32", "f64"):
            return None
        return _before(node, trail) if node.op == "conv" else _behind(node, trail)


def _behind(node: Node, trail: Trail) -> Match:
    value, steps = node.outputs[0], list[Step]()
    while (step := _step(value, trail)) is not None:
        steps.insert(0, step[1])
        value = step[0]
    if not steps or (layer := trail.through(value, *LAYERS)) is None:
        said = f"a batch norm that follows {_source(value)}"
        return Near(said, (node,)) if node.op == "batch_norm" and len(steps) == 1 else None
    out = layer.outputs[0]
    axis = out.type.rank - 1 if layer.op == "matmul" else 1
    if not all([_channelwise(v, out, axis) for s in steps for v in s.operands
                if s.op != "batch_norm"]):
        return None
    if layer.op == "matmul" and not any([s.op in ("mul", "div") for s in steps]):
        return None  # a sum stays a sum
    if why := _unfit(layer, steps, trail.view):
        return Near(why, trail.nodes)
    return _found(layer, steps, False, node, trail)


def _source(value: Value) -> str:
    return "an input" if value.producer is None else value.producer.op


def _step(value: Value, trail: Trail) -> tuple[Value, Step] | None:
    """The operand of a step with constants, and the step."""
    node, view = value.producer, trail.view
    if node is None or node.op not in STEPS:
        return None
    x, rest = node.inputs[0], node.inputs[1:]
    if node.op in ("mul", "add") and view.data(x) is not None:
        x, rest = node.inputs[1], node.inputs[:1]
    if any([view.data(v) is None for v in rest]) or x.type != value.type or (
            trail.alone(value, node.op) is None):
        return None
    return x, Step(node.op, rest, cast(float, node.attrs.get("eps", 0.0)))


def _channelwise(c: Value, x: Value, axis: int) -> bool:
    """Whether a constant has one number, or one for each place on `axis`."""
    lead = x.type.rank - c.type.rank
    return lead >= 0 and all([s == 1 or (i + lead == axis and s == x.shape[axis])
                              for i, s in enumerate(c.shape)])


def _unfit(layer: Node, steps: list[Step], view: View) -> str:
    """Why the steps cannot move into the layer, or nothing."""
    w = view.data(layer.inputs[1])
    bias = [view.data(v) for v in layer.inputs[2:]]
    if w is None or any([b is None for b in bias]):
        return "its weights are not frozen"
    if not view.single(layer.inputs[1]):
        return "its weights serve other nodes too"
    if layer.op == "matmul" and w.ndim != 2:
        return f"weights of rank {w.ndim}"
    if layer.op == "conv_transpose" and layer.attrs["groups"] != 1:
        return "a transposed convolution in groups"
    with np.errstate(all="ignore"):
        top = float(np.max(np.abs(w), initial=0.0))
        for step in steps:
            top = max(top, 1.0) * _size(step, [cast(Array, view.data(v)) for v in step.operands])
    return "" if np.isfinite(top) and top < 1e30 else "the scaled weights would overflow"


def _size(step: Step, data: list[Array]) -> float:
    """A bound on how much a step enlarges weights and bias."""
    if step.op == "batch_norm":
        gamma, beta, mu, var = [d.astype(np.float64) for d in data]
        scale = np.max(np.abs(gamma / np.sqrt(var + step.eps)), initial=0.0)
        return float((1 + scale) * (1 + np.max(np.abs([beta, mu]), initial=0.0)))
    top = np.abs(data[0].astype(np.float64))
    if step.op in ("mul", "div"):
        return float(np.max(top if step.op == "mul" else 1 / top, initial=0.0))
    return float(1 + np.max(top, initial=0.0))


def _before(node: Node, trail: Trail) -> Match:
    """Numbers that scale and shift the operand of a convolution."""
    value, steps = node.inputs[0], list[Step]()
    padded = any([p != 0 for p in cast("tuple[int, ...]", node.attrs["pads"])])
    while (step := _step(value, trail)) is not None and step[1].op in ("mul", "div", "add", "sub"):
        c = trail.view.data(step[1].operands[0])
        shifts = step[1].op in ("add", "sub")
        if c is None or c.size != 1 or (shifts and padded):
            if not steps and shifts and padded:
                return Near("a shift of what the convolution pads", (node,))
            trail.back(len(trail.nodes) - 1)
            break
        steps.insert(0, step[1])
        value = step[0]
    if not steps:
        return None
    if why := _unfit(node, steps, trail.view):
        return Near(why, trail.nodes)
    return _found(node, steps, True, node, trail, value)


def _found(layer: Node, steps: list[Step], before: bool, node: Node, trail: Trail,
           x: Value | None = None) -> Found:
    bias = layer.inputs[2:]
    constants = [v for s in steps for v in s.operands]

    def record(x: Value, w: Value, *rest: Value) -> tuple[Value, ...]:
        left = iter(rest[len(bias):])
        given = [s._replace(operands=tuple([next(left) for _ in s.operands])) for s in steps]
        b = rest[0] if bias else None
        change = _widened if before else _narrowed
        return (_layer(layer, x, *change(layer, w, b, given)),)

    what = " and ".join(sorted({s.op for s in steps}))
    where = "before" if before else "behind"
    operands = (layer.inputs[0] if x is None else x, layer.inputs[1], *bias, *constants)
    return Found(f"{what} {where} {layer.op}", (node,), operands, record,
                 [n for n in trail.nodes if n is not node])


def _layer(layer: Node, x: Value, w: Value, b: Value | None) -> Value:
    attrs: dict[str, Attr] = dict(layer.attrs)
    if layer.op == "matmul":
        y = matmul(x, w)
        return y if b is None else y + b
    call = conv if layer.op == "conv" else conv_transpose
    return cast(Value, call(x, w, bias=b, **attrs))  # type: ignore[arg-type]


def _narrowed(layer: Node, w: Value, b: Value | None, steps: list[Step]
              ) -> tuple[Value, Value | None]:
    """Weights and bias that include steps behind the layer."""
    axis = 0 if layer.op == "conv" else 1
    m = w.shape[axis]
    shape: Shape = tuple([m if i == axis else 1 for i in range(w.type.rank)])
    for step in steps:
        scale, shift = _parts(step)
        if scale is not None:
            wide = _flat(scale, m)
            w = w * (wide if wide.type.rank == 0 else reshape(wide, shape=shape))
            b = None if b is None else b * wide
        if shift is not None:
            shift = _flat(shift, m)
            b = shift if b is None else b + shift
    if b is not None and b.type.rank == 0:
        b = expand(b, shape=(m,))
    return w, b


def _flat(c: Value, m: object) -> Value:
    """A constant as a scalar or a vector of the channels."""
    return reshape(c, shape=(m,) if any([s != 1 for s in c.shape]) else ())  # type: ignore[arg-type]


def _parts(step: Step) -> tuple[Value | None, Value | None]:
    """Scale and shift of a step."""
    if step.op == "batch_norm":
        gamma, beta, mu, var = step.operands
        scale = gamma * rsqrt(var + step.eps)
        return scale, beta - mu * scale
    (c,) = step.operands
    if step.op in ("mul", "div"):
        return (c if step.op == "mul" else 1.0 / c), None
    return None, c if step.op == "add" else -c


def _widened(_: Node, w: Value, b: Value | None, steps: list[Step]
             ) -> tuple[Value, Value | None]:
    """Weights and bias that include steps before a convolution."""
    for step in reversed(steps):
        scale, shift = _parts(step)
        if shift is not None:
            total = sum_(w, axes=tuple(range(1, w.type.rank))) * _flat(shift, 1)
            b = total if b is None else b + total
        if scale is not None:
            w = w * _flat(scale, 1)
    return w, b
