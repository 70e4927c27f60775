"""Values read as algebra: numbers, products, affine and polynomial expressions, statistics."""

from __future__ import annotations

from typing import NamedTuple

from ..ir.dims import Size
from ..ir.graph import Node, Value
from ..ir.types import DType, Shape, axes_of, count
from ..rewrite.constants import number_of
from .raising import VIEWS, Trail

EPSILON = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
"""The spacing of the floating types above 1 (IEEE 754; bfloat16)."""
DEPTH = 8
"""Most operators that a polynomial nests."""


def number(value: Value) -> float | None:
    """The real number that every element of `value` is."""
    found = number_of(value)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def near(a: float, b: float, dtype: DType) -> bool:
    """Whether `a` is `b` up to the rounding of a few operations in `dtype`."""
    return abs(a - b) <= 4 * EPSILON.get(dtype.name, 0.0) * abs(b)


def power(value: Value, trail: Trail) -> tuple[Value, float] | None:
    """The base and the exponent of a constant power."""
    node = trail.through(value, "pow", "sqrt", "rsqrt", "reciprocal")
    if node is None:
        return None
    fixed = {"sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0}.get(node.op)
    found = number(node.inputs[1]) if fixed is None else fixed
    return None if found is None else (node.inputs[0], found)


def square(value: Value, trail: Trail) -> Value | None:
    """What `value` is the square of."""
    node = trail.through(value, "mul", "pow")
    if node is None:
        return None
    a, b = node.inputs
    if node.op == "mul":
        return a if a is b else None
    return a if number(b) == 2.0 else None


class Product(NamedTuple):
    """A number times values, over other values."""

    number: float
    over: list[Value]
    under: list[Value]


def product(value: Value, trail: Trail) -> Product:
    """`value` as a product, opened where nothing else reads a part of it."""
    out = Product(1.0, [], [])
    coefficient = 1.0
    todo = [(value, True)]
    while todo:
        v, over = todo.pop()
        if (c := number(v)) is not None and (over or c):
            coefficient = coefficient * c if over else coefficient / c
            continue
        node = trail.alone(v, "mul", "div", "neg")
        if node is None:
            (out.over if over else out.under).append(v)
        elif node.op == "neg":
            coefficient = -coefficient
            todo.append((node.inputs[0], over))
        else:
            todo += [(node.inputs[1], over == (node.op == "mul")), (node.inputs[0], over)]
    return out._replace(number=coefficient)


class Affine(NamedTuple):
    """scale * core + shift."""

    scale: float
    shift: float
    core: Value


def affine(value: Value, trail: Trail) -> Affine:
    """`value` as an affine function with constant numbers of something else."""
    scale, shift = 1.0, 0.0
    while (parts := _affine_step(value, trail)) is not None:
        a, b, value = parts
        shift += scale * b
        scale *= a
    return Affine(scale, shift, value)


def _affine_step(value: Value, trail: Trail) -> tuple[float, float, Value] | None:
    node = value.producer
    if node is None or node.op not in ("add", "sub", "mul", "div", "neg"):
        return None
    if node.op == "neg":
        return (-1.0, 0.0, node.inputs[0]) if trail.alone(value, "neg") else None
    for i, other in ((1, 0), (0, 1)):
        c = number(node.inputs[i])
        if c is None or (step := _with_number(node.op, i, c)) is None:
            continue
        if trail.alone(value, node.op) is None:
            return None
        return (*step, node.inputs[other])
    return None


def _with_number(op: str, place: int, c: float) -> tuple[float, float] | None:
    """Scale and shift of an operator whose operand number `place` is c."""
    if op == "mul":
        return c, 0.0
    if op == "add":
        return 1.0, c
    if op == "sub":
        return (1.0, -c) if place else (-1.0, c)
    return (1.0 / c, 0.0) if place and c else None


Polynomial = dict[int, float]


def polynomial(value: Value, x: Value, trail: Trail, depth: int = DEPTH) -> Polynomial | None:
    """The coefficients of `value` as a polynomial in `x`, by power."""
    if value is x:
        return {1: 1.0}
    if (c := number(value)) is not None:
        return {0: c}
    node = value.producer
    if node is None or not depth or node.op not in ("add", "sub", "mul", "div", "neg", "pow"):
        return None
    trail.through(value, node.op)
    parts = [polynomial(v, x, trail, depth - 1) for v in node.inputs]
    known = [p for p in parts if p is not None]
    return _combine(node.op, known) if len(known) == len(parts) else None


def _combine(op: str, parts: list[Polynomial]) -> Polynomial | None:
    a, b = parts[0], parts[-1]
    if op == "neg":
        return {k: -c for k, c in a.items()}
    if op in ("add", "sub"):
        sign = 1.0 if op == "add" else -1.0
        return {k: a.get(k, 0.0) + sign * b.get(k, 0.0) for k in (*a, *b)}
    if op == "mul":
        return _times(a, b)
    if b.keys() != {0}:
        return None
    if op == "div":
        return {k: c / b[0] for k, c in a.items()} if b[0] else None
    out: Polynomial = {0: 1.0}
    if b[0] not in (1.0, 2.0, 3.0, 4.0):
        return None
    for _ in range(int(b[0])):
        out = _times(out, a)
    return out


def _times(a: Polynomial, b: Polynomial) -> Polynomial:
    out: Polynomial = {}
    for i, c in a.items():
        for j, d in b.items():
            out[i + j] = out.get(i + j, 0.0) + c * d
    return out


def same_polynomial(a: Polynomial | None, b: Polynomial, dtype: DType) -> bool:
    """Whether the coefficients agree up to rounding."""
    return a is not None and {k for k, c in a.items() if c} == b.keys() and all(
        [near(a[k], b[k], dtype) for k in b])


def kept(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """`shape` with 1 at these axes."""
    return tuple([1 if i in axes else s for i, s in enumerate(shape)])


class Statistic(NamedTuple):
    """A reduction of `x` over `axes` times a number, shaped to broadcast against `x`."""

    x: Value
    axes: tuple[int, ...]
    node: Node
    number: float


def statistic(value: Value, trail: Trail, *ops: str, dropped: bool = False) -> Statistic | None:
    """A reduction by one of `ops`, behind reshapes and constant factors.

    With `dropped` the reduced axes may be missing.
    """
    shape, coefficient = value.shape, 1.0
    while (node := trail.through(value, *VIEWS, "mul", "div")) is not None:
        if node.op in ("mul", "div"):
            c = number(node.inputs[1])
            value, c = (node.inputs[0], c) if c is not None else (
                node.inputs[1], number(node.inputs[0]) if node.op == "mul" else None)
            if not c:
                return None
            coefficient = coefficient * c if node.op == "mul" else coefficient / c
        else:
            value = node.inputs[0]
    node = trail.through(value, *ops)
    if node is None:
        return None
    x = node.inputs[0]
    axes = node.attrs["axes"]
    assert isinstance(axes, tuple)
    which = tuple(sorted(axes_of([a for a in axes if isinstance(a, int)], x.type.rank)))
    rest = tuple([d for i, d in enumerate(x.shape) if i not in which])
    if shape != kept(x.shape, which) and not (dropped and shape == rest):
        return None
    return Statistic(x, which, node, coefficient)


def mean_of(value: Value, trail: Trail, *, dropped: bool = False) -> Statistic | None:
    """A mean, or a sum times the reciprocal of the number of elements."""
    mark = len(trail.nodes)
    found = statistic(value, trail, "mean", "sum", dropped=dropped)
    if found is not None:
        n: Size = count(tuple([found.x.shape[i] for i in found.axes]))
        want = 1.0 if found.node.op == "mean" else 1.0 / n if isinstance(n, int) and n else None
        if want is not None and near(found.number, want, found.x.dtype):
            return found
    trail.back(mark)
    return None
