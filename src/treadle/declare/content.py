"""What small values hold, when that is known before the run: numbers, or symbolic sizes.

Exported models compute shapes with tensors (Shape -> Gather -> Concat -> Reshape). Following the
producers of such a value gives its elements as numbers and `Dim`s, so that the sizes become
attributes. Movement bodies run on arrays of `Dim` objects as they stand; elementwise ones are
folded over the sizes' own arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast
from weakref import WeakKeyDictionary

import numpy as np

from ..errors import TreadleError
from ..ir.dims import Dim, Size, bounds, dmax, dmin
from ..ir.graph import Blob, Node, Value
from ..ir.types import DType, count
from .arrays import Array, array_of, np_dtype
from .evaluate import apply
from .opdef import REGISTRY, OpDef
from .scalar import PRIMS, Scalar, expand, fold

LIMIT = 256
"""Largest number of elements that is followed; shapes are far shorter."""
MOVEMENT = frozenset({
    "reshape", "transpose", "expand", "slice", "narrow", "concat", "split", "gather", "squeeze",
    "unsqueeze", "flip", "tile", "gather_elements", "gather_nd", "scatter_nd",
    "scatter_elements"})
"""Operators whose bodies only move elements, so that they also move symbolic sizes."""

_known: WeakKeyDictionary[Value, list[Array | None]] = WeakKeyDictionary()


class _Unknown(Exception):
    """The value depends on data."""


def content(value: Value) -> Array | None:
    """The elements of `value`, or None when they depend on data.

    An array of its dtype, or an object array that holds `Dim`s.
    """
    stack = [value]  # its own stack: chains of producers are longer than Python's
    while stack:
        v = stack[-1]
        if v not in _known and (missing := _missing(v)) is not None:
            stack.append(missing)
            continue
        if v not in _known:
            _known[v] = [_find(v)]
        stack.pop()
    return _known[value][0]


def _followed(value: Value) -> Node | None:
    """The producer of a value whose elements may be followed."""
    node, total = value.producer, count(value.type.shape)
    small = isinstance(total, int) and total <= LIMIT
    return node if node is not None and small and not node.regions else None


def _missing(value: Value) -> Value | None:
    """An operand to look at first; none when one of them is unknown already."""
    node = _followed(value)
    if node is None or node.op in _LEAVES:
        return None
    hits = [_known.get(v) for v in node.inputs]
    if any([hit is not None and hit[0] is None for hit in hits]):
        return None
    return next((v for v, hit in zip(node.inputs, hits, strict=True) if hit is None), None)


def sizes_of(value: Value) -> tuple[Size, ...] | None:
    """The elements of an integer vector or scalar as sizes, or None when they depend on data."""
    found = content(value)
    if found is None or value.dtype.sort not in ("int", "uint"):
        return None
    return tuple([x if isinstance(x, Dim) else int(x) for x in found.reshape(-1).tolist()])


def _find(value: Value) -> Array | None:
    if (node := _followed(value)) is None:
        return None
    if (leaf := _LEAVES.get(node.op)) is not None:
        return leaf(node)
    inputs = [hit[0] if (hit := _known.get(v)) else None for v in node.inputs]
    if not inputs or any(x is None for x in inputs):
        return None
    try:
        return _apply(node, cast("list[Array]", inputs))[value.index]
    except (_Unknown, TreadleError, TypeError, ValueError, IndexError, ArithmeticError,
            KeyError):
        return None


def _apply(node: Node, inputs: list[Array]) -> Sequence[Array]:
    op = REGISTRY[node.op]
    if all(x.dtype != object for x in inputs):
        return apply(node, op, inputs, node.attrs, {}, {})
    if op.kind == "elementwise":
        dtypes = tuple([v.type.dtype for v in node.inputs])
        return _elementwise(op, node, inputs, dtypes)
    if node.op not in MOVEMENT:
        raise _Unknown
    return apply(node, op, inputs, node.attrs, {}, {})


def _elementwise(op: OpDef, node: Node, inputs: list[Array], dtypes: tuple[DType, ...]
                 ) -> Sequence[Array]:
    roots = [expand(r, ()) for r in op.scalars(node.attrs, dtypes)]
    full = np.broadcast_arrays(*inputs)
    flat = [fold(roots, _leaf([x.reshape(-1)[i] for x in full]), _size_op)
            for i in range(full[0].size)]
    out: list[Array] = []
    for k, root in enumerate(roots):
        items = [row[k] for row in flat]
        plain = not any(isinstance(x, Dim) for x in items)
        a = np.empty(len(items), np_dtype(root.dtype) if plain else object)
        a[:] = items
        out.append(a.reshape(full[0].shape))
    return out


def _leaf(row: list[object]) -> Callable[[Scalar], object]:
    def leaf(s: Scalar) -> object:
        if s.op == "const":
            return s.value
        x = row[cast(int, s.value)]
        return cast("object", x.item()) if isinstance(x, np.generic) else x

    return leaf


def _decide(op: str, a: Size, b: Size) -> bool:
    """A comparison of sizes that their bounds decide."""
    low, high = bounds(a - b)
    answers: dict[str, tuple[bool, bool]] = {
        "lt": (high < 0, low >= 0), "ge": (low >= 0, high < 0), "gt": (low > 0, high <= 0),
        "le": (high <= 0, low > 0), "eq": (low == high == 0, low > 0 or high < 0),
        "ne": (low > 0 or high < 0, low == high == 0)}
    true, false = answers[op]
    if not true and not false:
        raise _Unknown
    return true


def _divide(a: Size, b: Size) -> Size:
    if bounds(b)[0] <= 0 or bounds(a)[0] < 0:
        raise _Unknown  # the sign decides how the quotient rounds
    return a // b


_SIZE_OPS: dict[str, Callable[[Size, Size], Size]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "floordiv": _divide, "truncdiv": _divide, "min": dmin, "max": dmax,
    "mod": lambda a, b: a - _divide(a, b) * b}


def _size_op(s: Scalar, args: tuple[object, ...]) -> object:
    if not any(isinstance(a, Dim) for a in args):
        return _number_op(s, args)
    if s.op == "where":
        return args[1] if args[0] else args[2]
    if s.dtype.sort not in ("int", "uint", "bool"):
        raise _Unknown
    sizes = cast("tuple[Size, ...]", args)
    if s.op == "cast" and s.dtype.sort in ("int", "uint"):
        return sizes[0]
    if s.op == "neg":
        return -sizes[0]
    if s.dtype.sort == "bool" and PRIMS[s.op].rule in ("compare", "order"):
        return _decide(s.op, sizes[0], sizes[1])
    if (fn := _SIZE_OPS.get(s.op)) is None:
        raise _Unknown
    return fn(sizes[0], sizes[1])


def _number_op(s: Scalar, args: tuple[object, ...]) -> object:
    from .scalar import const, evaluate, rebuild

    consts = tuple([const(cast(float, a), x.dtype) for a, x in zip(args, s.args, strict=True)])
    return evaluate([rebuild(s, consts)], ())[0].item()


def _object(items: Sequence[Size]) -> Array:
    plain = not any(isinstance(x, Dim) for x in items)
    out = np.empty(len(items), np.int64 if plain else object)
    out[:] = items
    return out


def _constant(node: Node) -> Array | None:
    value = node.attrs["value"]
    return array_of(value) if isinstance(value, Blob) else None


def _full(node: Node) -> Array | None:
    value, out = node.attrs["value"], node.outputs[0].type
    shape = tuple([s for s in out.shape if isinstance(s, int)])
    if isinstance(value, Dim):
        filled = np.empty(shape, object)
        filled.fill(value)
        return filled
    return np.full(shape, value, np_dtype(out.dtype))  # type: ignore[arg-type]


def _shape_of(node: Node) -> Array | None:
    return _object(node.inputs[0].type.shape)


def _range(node: Node) -> Array | None:
    start, step, out = node.attrs["start"], node.attrs["step"], node.outputs[0].type
    length = out.shape[0]
    if out.dtype.sort not in ("int", "uint") or not isinstance(length, int):
        return None
    return _object([cast(Size, start) + i * cast(Size, step) for i in range(length)])


_LEAVES: dict[str, Callable[[Node], Array | None]] = {
    "constant": _constant, "full": _full, "shape_of": _shape_of,
    "sizes": lambda node: _object(cast("tuple[Size, ...]", node.attrs["sizes"])),
    "witness": lambda _: None, "range": _range}
