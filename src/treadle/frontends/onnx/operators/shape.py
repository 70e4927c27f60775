"""Shapes, views and concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....declare.arrays import Array
from ....declare.content import content, sizes_of
from ....declare.opdef import REGISTRY, cast_value, full_value
from ....errors import Declined, ImportFailure, OperatorError
from ....ir.dims import Size, cdiv, dmax
from ....ir.graph import Value
from ....ir.types import I64, DType, Shape, axis_of, count
from ..context import Context
from ..protocol import onnx
from ..reading import dtype_of
from ..registry import MICROSOFT, importer
from ..sparse import dense


def op(name: str, *args: object, **kw: object) -> Value:
    """Record an operator with one output."""
    out = REGISTRY[name](*args, **kw)
    assert isinstance(out, Value)
    return out


@importer("Constant")
def constant(ctx: Context, *, value: Array | None = None, value_float: float | None = None,
             value_floats: tuple[float, ...] | None = None, value_int: int | None = None,
             value_ints: tuple[int, ...] | None = None, value_string: str | None = None,
             value_strings: tuple[str, ...] | None = None, sparse_value: Any = None) -> Value:  # noqa: ANN401 - a protobuf message
    """A tensor, in whichever attribute it is given."""
    if sparse_value is not None:
        if not isinstance(sparse_value, onnx.SparseTensorProto):
            raise ImportFailure(f"{ctx.node_name}: sparse_value is no SPARSE_TENSOR",
                                hint="the file is damaged")
        value = dense(sparse_value, ctx.state, ctx.node_name)
    for given, dtype in ((value_float, np.float32), (value_floats, np.float32),
                         (value_int, np.int64), (value_ints, np.int64),
                         (value_string, object), (value_strings, object)):
        if given is not None:
            value = np.asarray(given, dtype)
    if value is None:
        raise Declined("Constant without a value")
    return ctx.constant(value, ctx.outputs[0])


@importer("ConstantOfShape")
def constant_of_shape(ctx: Context, shape: Value, *, value: Array | None = None) -> Value:
    """One value in every element."""
    fill = np.zeros(1, np.float32) if value is None else value
    array = fill.reshape(-1)
    if array.size != 1:
        raise Declined(f"ConstantOfShape with {array.size} values; it takes one")
    return op("expand", ctx.constant(array.reshape(())), shape=ctx.sizes(shape, "shape"))


@importer("Shape")
def shape(ctx: Context, x: Value, *, start: int = 0, end: int | None = None) -> Value:
    """The sizes, or a range of them."""
    whole = op("shape_of", x)
    if start == 0 and end is None:
        return whole
    return op("slice", whole, starts=(start,), ends=(2**31 if end is None else end,), steps=(1,),
              axes=(0,))


@importer("Size")
def size(ctx: Context, x: Value) -> Value:
    """The number of elements."""
    return full_value(count(x.type.shape), I64)


@importer("Reshape", until=4)
def reshape_attribute(ctx: Context, x: Value, *, shape: tuple[int, ...],
                      consumed_inputs: tuple[int, ...] = ()) -> Value:
    """The shape as an attribute."""
    return op("reshape", x, shape=_copied(x, shape))


@importer("Reshape", since=5)
def reshape(ctx: Context, x: Value, shape: Value, *, allowzero: int = 0) -> Value:
    """0 copies the input's size unless `allowzero`; -1 takes what is left."""
    wanted = sizes_of(shape)
    if wanted is None:
        return op("reshape", x, shape=ctx.sizes(_resolved(x, shape, bool(allowzero)), "shape"))
    if allowzero:
        if -1 in wanted and 0 in wanted:
            raise Declined("Reshape with allowzero and both 0 and -1")
        return op("reshape", x, shape=wanted)
    return op("reshape", x, shape=_copied(x, wanted))


def _copied(x: Value, wanted: Sequence[Size]) -> Shape:
    return tuple([x.shape[i] if isinstance(s, int) and s == 0 and i < x.type.rank else s
                  for i, s in enumerate(wanted)])


def _resolved(x: Value, shape: Value, allowzero: bool) -> Value:
    """A shape that only the run knows, with its 0 and -1 replaced there."""
    length = shape.shape[0]
    want = cast_value(shape, I64)
    if not allowzero and isinstance(length, int):
        have = (*x.shape[:length], *[1] * (length - x.type.rank))
        want = op("where", op("eq", want, 0), op("sizes", sizes=have), want)
    rest = op("neg", op("prod", want, axes=(0,), keepdims=False))
    left = op("truncdiv", full_value(count(x.shape), I64), op("max", rest, 1))
    return op("where", op("eq", want, -1), left, want)


@importer("Flatten")
def flatten(ctx: Context, x: Value, *, axis: int = 1) -> Value:
    """Two axes: those before `axis`, and the rest."""
    if not -x.type.rank <= axis <= x.type.rank:
        raise OperatorError(f"axis {axis} is out of range for rank {x.type.rank}")
    at = axis + x.type.rank if axis < 0 else axis
    return op("reshape", x, shape=(count(x.shape[:at]), count(x.shape[at:])))


@importer("Squeeze", until=12)
def squeeze_attribute(ctx: Context, x: Value, *, axes: tuple[int, ...] | None = None) -> Value:
    """Axes as an attribute."""
    return op("squeeze", x, axes=_ones(ctx, x) if axes is None else axes)


@importer("Squeeze", since=13)
def squeeze(ctx: Context, x: Value, axes: Value | None) -> Value:
    """Axes as a tensor; all axes of size 1 without them."""
    return op("squeeze", x, axes=_ones(ctx, x) if axes is None else ctx.ints(axes, "axes"))


def _ones(ctx: Context, x: Value) -> tuple[int, ...]:
    return tuple([i for i, s in enumerate(x.shape) if ctx.known(s, f"axis {i}") == 1])


@importer("Unsqueeze", until=12)
def unsqueeze_attribute(ctx: Context, x: Value, *, axes: tuple[int, ...]) -> Value:
    """Axes as an attribute."""
    return op("unsqueeze", x, axes=axes)


@importer("Unsqueeze", since=13)
def unsqueeze(ctx: Context, x: Value, axes: Value) -> Value:
    """Axes as a tensor."""
    return op("unsqueeze", x, axes=ctx.ints(axes, "axes"))


@importer("Transpose")
def transpose(ctx: Context, x: Value, *, perm: tuple[int, ...] | None = None) -> Value:
    """Reverses the axes without `perm`."""
    return op("transpose", x, perm=tuple(reversed(range(x.type.rank))) if perm is None else perm)


@importer("Concat", until=3)
def concat_1(ctx: Context, *xs: Value, axis: int = 1) -> Value:
    """Along axis 1 unless told."""
    return op("concat", list(xs), axis=axis)


@importer("Concat", since=4)
def concat(ctx: Context, *xs: Value, axis: int) -> Value:
    """Along one axis."""
    return op("concat", list(xs), axis=axis)


@importer("Expand")
def expand(ctx: Context, x: Value, shape: Value) -> Value:
    """Broadcast both ways: a 1 in `shape` keeps the input's size."""
    want = ctx.sizes(shape, "shape")
    rank = max(len(want), x.type.rank)
    have = (*[1] * (rank - x.type.rank), *x.shape)
    want = (*[1] * (rank - len(want)), *want)
    for h, w in zip(have, want, strict=True):
        if isinstance(h, int) and isinstance(w, int) and 1 not in (h, w) and h != w:
            raise OperatorError(f"{x.type} does not expand to {list(want)}",
                                hint="a size of the shape is the input's own, or one of them is 1")
    # where the input's size is a number other than 1, a valid shape holds it or 1
    held = [isinstance(h, int) and h != 1 for h in have]
    out = tuple([h if w == 1 or kept else w for h, w, kept in zip(have, want, held, strict=True)])
    asked = tuple([w if kept else 1 for w, kept in zip(want, held, strict=True)])
    if any(a not in (1, h) for a, h in zip(asked, have, strict=True)):
        x = op("expect_broadcast", x, shape=asked[rank - x.type.rank:])
    return op("expand", x, shape=out)


@importer("Tile", until=5)
def tile_1(ctx: Context, x: Value, tiles: Value, axis: Value) -> Value:
    """One axis."""
    (times,), (at,) = ctx.sizes(tiles, "tiles"), ctx.ints(axis, "axis")
    at = axis_of(at, x.type.rank)
    return op("tile", x, repeats=tuple([times if i == at else 1 for i in range(x.type.rank)]))


@importer("Tile", since=6)
def tile(ctx: Context, x: Value, repeats: Value) -> Value:
    """Every axis."""
    return op("tile", x, repeats=ctx.sizes(repeats, "repeats"))


@importer("Split", until=12)
def split_attribute(ctx: Context, x: Value, lengths: Value | None, *, axis: int = 0,
                    split: tuple[int, ...] | None = None) -> object:
    """Sizes as an attribute, in opset 1 also as a tensor; equal parts without them."""
    if lengths is not None:
        split = ctx.ints(lengths, "split")
    return _split(ctx, x, axis, split, len(ctx.outputs))


@importer("Split", since=13)
def split(ctx: Context, x: Value, lengths: Value | None, *, axis: int = 0,
          num_outputs: int | None = None) -> object:
    """Sizes as a tensor, or a number of parts of which the last may be smaller."""
    sizes = None if lengths is None else ctx.sizes(lengths, "split")
    parts = len(ctx.outputs)
    if num_outputs not in (None, parts):
        raise Declined(f"Split into num_outputs={num_outputs} parts with {parts} outputs")
    return _split(ctx, x, axis, sizes, parts)


def _split(ctx: Context, x: Value, axis: int, sizes: Shape | None, parts: int) -> object:
    if sizes is None:
        whole = x.shape[axis_of(axis, x.type.rank)]
        each = cdiv(whole, parts)
        sizes = (*[each] * (parts - 1), whole - each * (parts - 1))
        if isinstance(sizes[-1], int) and sizes[-1] < 0 and ctx.version >= 18:
            raise Declined(f"{whole} elements do not split into {parts} parts of {each}")
    return REGISTRY["split"](x, axis=axis, sizes=sizes)


@importer("Slice", until=9)
def slice_attributes(ctx: Context, x: Value, *, starts: tuple[int, ...], ends: tuple[int, ...],
                     axes: tuple[int, ...] | None = None) -> Value:
    """Bounds as attributes."""
    axes = tuple(range(len(starts))) if axes is None else axes
    return op("slice", x, starts=starts, ends=ends, steps=(1,) * len(axes), axes=axes)


@importer("Slice", since=10)
def slice_(ctx: Context, x: Value, starts: Value, ends: Value, axes: Value | None,
           steps: Value | None) -> Value:
    """Bounds as tensors; those that only the run knows become sizes."""
    length = ctx.known(starts.shape[0], "the number of starts")
    at = tuple(range(length)) if axes is None else ctx.ints(axes, "axes")
    step = (1,) * length if steps is None else ctx.ints(steps, "steps")
    if len({axis_of(a, x.type.rank) for a in at}) < len(at):
        raise OperatorError(f"Slice names an axis twice: {list(at)}")
    counts = [length, ctx.known(ends.shape[0], "the number of ends"), len(at), len(step)]
    if len(set(counts)) > 1:
        raise OperatorError(f"Slice with {counts} starts, ends, axes and steps",
                            hint="there is one of each for every axis that is cut")
    first, last = sizes_of(starts), sizes_of(ends)
    if first is not None:
        first = tuple([_inside(s, x.shape[axis_of(a, x.type.rank)], by)
                       for s, a, by in zip(first, at, step, strict=True)])
    if first is not None and last is not None:
        return op("slice", x, starts=first, ends=last, steps=step, axes=at)
    for i, axis in enumerate(at):
        x = _slice_axis(ctx, x, axis_of(axis, x.type.rank), step[i],
                        (starts, first, i), (ends, last, i))
    return x


def _inside(start: Size, size: Size, step: int) -> Size:
    """ONNX moves the start of a negative step into the axis; NumPy lets it fall before it."""
    return dmax(start, -size) if step < 0 and isinstance(start, int) and start < 0 else start


Bound = tuple[Value, Shape | None, int]


def _slice_axis(ctx: Context, x: Value, axis: int, step: int, start: Bound, end: Bound) -> Value:
    if start[1] is not None and end[1] is not None:
        return op("slice", x, starts=(start[1][start[2]],), ends=(end[1][end[2]],), steps=(step,),
                  axes=(axis,))
    if step < 0:
        raise ctx.late(start[0] if start[1] is None else end[0], "a bound of a negative step")
    size = full_value(x.shape[axis], I64)
    a, b = (_clamped(element(t, i), size) for t, _, i in (start, end))
    length = op("max", b - a, 0)
    low, n = ctx.sizes(op("concat", [op("reshape", v, shape=(1,)) for v in (a, length)], axis=0),
                       "slice")
    x = op("narrow", x, axis=axis, start=low, length=n)
    return x if step == 1 else op("slice", x, starts=(0,), ends=(n,), steps=(step,), axes=(axis,))


def element(vector: Value, index: int) -> Value:
    """One element of an integer vector, as an i64 scalar."""
    part = op("narrow", cast_value(vector, I64), axis=0, start=index, length=1)
    return op("reshape", part, shape=())


def _clamped(bound: Value, size: Value) -> Value:
    """A slice bound counted from the front, inside the axis."""
    from_front = op("where", bound < 0, bound + size, bound)
    return op("min", op("max", from_front, 0), size)


@importer("Range")
def range_(ctx: Context, start: Value, limit: Value, delta: Value) -> Value:
    """start, start + delta, ... before limit."""
    dtype = start.dtype
    first, last, step = (sizes_of(v) for v in (start, limit, delta))
    if first and last and step and isinstance(step[0], int) and step[0]:
        a, b = (last[0], first[0]) if step[0] > 0 else (first[0], last[0])
        length = dmax(cdiv(a - b, abs(step[0])), 0)
        return op("range", start=first[0], step=step[0], length=length, dtype=dtype)
    return _range_of_values(ctx, start, limit, delta)


def _range_of_values(ctx: Context, start: Value, limit: Value, delta: Value) -> Value:
    """The length is computed as ONNX defines it: max(ceil((limit - start) / delta), 0)."""
    start, limit, delta = (op("reshape", v, shape=()) for v in (start, limit, delta))
    wide = REGISTRY["cast"]
    a, b, d = (wide(v, dtype=_double()) for v in (start, limit, delta))
    steps = op("max", op("ceil", op("div", op("sub", b, a), d)), 0.0)
    known = content(cast_value(steps, I64))
    (length,) = ctx.sizes(cast_value(steps, I64), "length") if known is None else (
        int(known.item()),)
    index = cast_value(op("iota", shape=(length,), axis=0, dtype=I64), start.dtype)
    return start + index * delta


def _double() -> DType:
    from ....ir.types import F64

    return F64


@importer("EyeLike")
def eye_like(ctx: Context, x: Value, *, dtype: int | None = None, k: int = 0) -> Value:
    """Ones on diagonal k, in the shape of x."""
    if x.type.rank != 2:
        raise Declined(f"EyeLike of {x.type}; it takes a matrix")
    rows, cols = x.shape
    target = x.dtype if dtype is None else dtype_of(dtype, ctx.node_name)
    return op("eye", rows=rows, cols=cols, k=k, dtype=target)


@importer("Trilu")
def trilu(ctx: Context, x: Value, k: Value | None, *, upper: int = 1) -> Value:
    """A triangle of the last two axes."""
    return op("trilu", x, k=0 if k is None else ctx.ints(k, "k")[0], upper=bool(upper))


importer("Trilu", domain=MICROSOFT)(trilu)


@importer("OneHot")
def one_hot(ctx: Context, indices: Value, depth: Value, values: Value, *, axis: int = -1
            ) -> Value:
    """Off and on values as a tensor."""
    (size,) = ctx.sizes(cast_value(depth, I64), "depth")
    if indices.dtype.sort == "float":
        indices = cast_value(indices, I64)
    return op("one_hot", indices, values=values, depth=size, axis=axis)


@importer("DepthToSpace")
def depth_to_space(ctx: Context, x: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    """Channels become pixels."""
    return op("depth_to_space", x, block=blocksize, mode=mode)


@importer("SpaceToDepth")
def space_to_depth(ctx: Context, x: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    """Pixels become channels."""
    return op("space_to_depth", x, block=blocksize, mode=mode)


