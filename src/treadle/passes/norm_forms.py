"""Norms read out of primitives: centred or plain values over the root of their mean square."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from ..ir.graph import Node, Value
from ..ir.types import F32, Shape
from ..ops.movement import reshape
from .forms import Statistic, mean_of, number, power, square
from .raising import VIEWS, Found, Match, Near, Trail


class Factor(NamedTuple):
    """A value that multiplies, or divides."""

    value: Value
    over: bool


class Variance(NamedTuple):
    """A mean square: of `x` less its mean if `centred`, in one pass if `moments`."""

    x: Value
    axes: tuple[int, ...]
    centred: bool
    moments: bool = False


class Norm(NamedTuple):
    """`core` of the variance over its root, scaled by gamma, moved by beta."""

    var: Variance
    eps: float
    gamma: Value | None
    beta: Value | None


def norm(node: Node, trail: Trail) -> Norm | None:
    """The norm that ends in `node`, with a trailing scale and shift by parameters if there are."""
    out = node.outputs[0]
    for core, beta in _sums(node):
        mark = len(trail.nodes)
        found = _scaled(core, out.shape, trail)
        if found is not None and (beta is None or parameter(beta, out.shape, found.var.axes)):
            return found._replace(beta=beta)
        trail.back(mark)
    return None


def _sums(node: Node) -> list[tuple[Value, Value | None]]:
    if node.op != "add":
        return [(node.outputs[0], None)]
    a, b = node.inputs
    return [(a, b), (b, a)]


def _scaled(value: Value, shape: Shape, trail: Trail) -> Norm | None:
    factors = _factors(value, trail)
    for i, factor in enumerate(factors):
        mark = len(trail.nodes)
        rest = [f.value for j, f in enumerate(factors) if j != i and f.over]
        if len(rest) != len(factors) - 1 or not 1 <= len(rest) <= 2:
            continue
        found = _over_root(factor, trail)
        if found is not None:
            var, eps = found
            for core, gamma in ((rest[0], rest[-1]), (rest[-1], rest[0])):
                scale = None if len(rest) == 1 else gamma
                if _is_core(core, var, trail) and (
                        scale is None or parameter(scale, shape, var.axes)):
                    return Norm(var, eps, scale, None)
        trail.back(mark)
    return None


def _factors(value: Value, trail: Trail) -> list[Factor]:
    """Opens products and quotients, and a rounding of an f32 product to a narrow dtype."""
    out: list[Factor] = []
    todo = [Factor(value, True)]
    while todo:
        v, over = todo.pop()
        if over and number(v) == 1.0:
            continue
        node = v.producer
        opens = node is not None and (node.op in ("mul", "div") or (
            node.op == "cast" and v.dtype.narrow and node.inputs[0].dtype is F32))
        if node is None or not opens or len(out) > 3 or trail.alone(v, node.op) is None:
            out.append(Factor(v, over))
        elif node.op == "cast":
            todo.append(Factor(node.inputs[0], over))
        else:
            todo += [Factor(node.inputs[1], over == (node.op == "mul")),
                     Factor(node.inputs[0], over)]
    return out


def _over_root(factor: Factor, trail: Trail) -> tuple[Variance, float] | None:
    """The variance and eps of a factor that divides by sqrt(variance + eps)."""
    value, exponent = factor.value, 1.0 if factor.over else -1.0
    while True:
        value = trail.views(value)
        if (step := power(value, trail)) is None:
            break
        value, exponent = step[0], exponent * step[1]
    node = trail.alone(value, "add")
    if exponent != -0.5 or node is None:
        return None
    for v, c in (node.inputs, node.inputs[::-1]):
        eps = number(c)
        if eps is not None and eps >= 0 and (found := variance(v, trail)) is not None:
            return found, eps
    return None


def variance(value: Value, trail: Trail) -> Variance | None:
    """The mean square of a value, or of a value less its mean."""
    found = mean_of(value, trail)
    if found is None:
        return _moments(value, trail)
    d = square(found.x, trail)
    if d is None:
        return None
    x = centred(d, found.axes, trail)
    return Variance(d, found.axes, False) if x is None else Variance(x, found.axes, True)


def centred(d: Value, axes: tuple[int, ...], trail: Trail) -> Value | None:
    """The x of x less its mean over `axes`."""
    mark, node = len(trail.nodes), trail.through(d, "sub")
    if node is not None:
        found = mean_of(node.inputs[1], trail)
        if found is not None and found.x is node.inputs[0] and found.axes == axes:
            return found.x
    trail.back(mark)
    return None


def _moments(value: Value, trail: Trail) -> Variance | None:
    """E[x^2] - E[x]^2, at least 0 perhaps."""
    mark = len(trail.nodes)
    value = trail.views(value)
    top = trail.alone(value, "max", "relu")
    if top is not None:
        value = next((v for v in top.inputs if number(v) != 0.0), value)
    node = trail.alone(value, "sub")
    if node is not None:
        mean = square(node.inputs[1], trail)
        first = None if mean is None else _flat_mean(mean, trail)
        second = _flat_mean(node.inputs[0], trail)
        if first and second and first.axes == second.axes and (
                square(second.x, trail) is first.x):
            return Variance(first.x, first.axes, True, moments=True)
    trail.back(mark)
    return None


def _flat_mean(value: Value, trail: Trail) -> Statistic | None:
    """A mean whose reduced axes may be gone."""
    return mean_of(value, trail, dropped=True)


def _is_core(core: Value, var: Variance, trail: Trail) -> bool:
    return centred(core, var.axes, trail) is var.x if var.centred else core is var.x


def parameter(p: Value, shape: Shape, axes: tuple[int, ...]) -> bool:
    """Whether `p` has one number for each place along `axes` and none for others."""
    lead = len(shape) - len(p.shape)
    return lead >= 0 and p.type.rank > 0 and all([
        s == shape[i + lead] if i + lead in axes else s == 1 for i, s in enumerate(p.shape)])


def squeezed(p: Value, shape: Shape) -> Value:
    """`p` without its leading axes of size 1, in the shape of the normalised axes."""
    return p if p.shape == shape else reshape(p, shape=shape)


def source(norm: Norm, root: Node) -> tuple[Value, str]:
    """The operand: before it was widened, where the result is narrow; and what is wrong if any."""
    x, out = norm.var.x, root.outputs[0]
    if x.dtype is out.dtype:
        return x, ""
    node = x.producer
    if node is None or node.op != "cast" or node.inputs[0].dtype is not out.dtype:
        return x, f"{x.dtype} is normalised to {out.dtype}"
    return node.inputs[0], ""


Build: TypeAlias = Callable[[Value, "Value | None", "Value | None"], Value]


def record(what: str, norm: Norm, trail: Trail, build: Build) -> Match:
    """A match that calls build(x, gamma, beta)."""
    x, why = source(norm, trail.root)
    if why:
        return Near(f"{what}: {why}", trail.nodes)
    given = [v for v in (norm.gamma, norm.beta) if v is not None]

    def call(v: Value, *parameters: Value) -> tuple[Value, ...]:
        left = iter(parameters)
        gamma = None if norm.gamma is None else next(left)
        return (build(v, gamma, None if norm.beta is None else next(left)),)

    shared = [n for n in trail.nodes if n.op in VIEWS]
    inner = [n for n in trail.nodes if n.op not in VIEWS]
    return Found(what, (trail.root,), (x, *given), call, inner, shared)
