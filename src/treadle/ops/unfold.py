"""Windows as columns and back, and convolution over deformed windows."""

from __future__ import annotations

import math

from ..declare.arrays import Array, ints, widen
from ..declare.kinds import composite, linear
from ..declare.opdef import cast_value, wide
from ..declare.schema import known, sample
from ..errors import OperatorError
from ..ir.dims import Size
from ..ir.graph import Value
from ..ir.types import DType, Shape, TensorType, count, shape_text
from .contract import matmul
from .conv import add_bias, fold_windows
from .extents import surely_differ
from .generate import range_
from .movement import narrow, reshape
from .sampling import interpolate
from .windows import out_shape, pad_space, per_axis, positive, window_view

Numbers = tuple[int, ...]


def _unfold_types(x: TensorType, *, kernel: Numbers, strides: Numbers, dilations: Numbers,
                  pads: Shape) -> TensorType:
    n = len(kernel)
    if x.rank != n + 2 or not n:
        raise OperatorError(f"a window of {n} axes needs x of rank {n + 2}, got {x}")
    sizes = out_shape(x.shape[2:], positive("kernel", kernel, n), positive("strides", strides, n),
                      positive("dilations", dilations, n), per_axis("pads", pads, 2 * n, 0))
    return x.with_(shape=(x.shape[0], x.shape[1] * math.prod(kernel), count(sizes)))


def _unfold_back(g: Value, x: Value, *, kernel: Numbers, strides: Numbers, dilations: Numbers,
                 pads: Shape) -> Value:
    return col2im(g, image=x.shape[2:], kernel=kernel, strides=strides, dilations=dilations,
                  pads=pads)


@linear(types=_unfold_types, transpose=_unfold_back, samples=[
    known([[[1.0, 2.0, 3.0]]], kernel=(2,), pads=(1, 0),
          expect=[[[[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]]]]),
    sample("f32[2,3,5,4]", kernel=(2, 3), strides=(2, 1), dilations=(2, 1), pads=(1, 0, 1, 2))])
def im2col(x: Array, *, kernel: tuple[int, ...], strides: tuple[int, ...] = (),
           dilations: tuple[int, ...] = (), pads: tuple[Size, ...] = ()) -> Array:
    """The windows of x[N, C, space..] as columns [N, C * kernel elements, windows]."""
    n = len(kernel)
    steps, gaps = per_axis("strides", strides, n, 1), per_axis("dilations", dilations, n, 1)
    padded = pad_space(x, ints(per_axis("pads", pads, 2 * n, 0)))
    sizes = ints(out_shape(padded.shape[2:], kernel, steps, gaps, (0,) * (2 * n)))
    view = window_view(padded, kernel, steps, gaps, sizes)
    return view.reshape((x.shape[0], x.shape[1] * math.prod(kernel), math.prod(sizes)))


def _fold_types(x: TensorType, *, image: Shape, kernel: Numbers, strides: Numbers,
                dilations: Numbers, pads: Shape) -> TensorType:
    n = len(kernel)
    taps = math.prod(positive("kernel", kernel, n))
    if x.rank != 3 or len(image) != n or not n:
        raise OperatorError(f"x[N, C * {taps}, windows] and {n} image sizes are needed, got {x}")
    if isinstance(x.shape[1], int) and x.shape[1] % taps:
        raise OperatorError(f"{x.shape[1]} rows do not divide into windows of {taps}")
    sizes = out_shape(image, positive("kernel", kernel, n), positive("strides", strides, n),
                      positive("dilations", dilations, n), per_axis("pads", pads, 2 * n, 0))
    if surely_differ(count(sizes), x.shape[2]):
        raise OperatorError(f"the image has {count(sizes)} windows, x has {x.shape[2]}")
    return x.with_(shape=(x.shape[0], x.shape[1] // taps, *image))


def _fold_back(g: Value, x: Value, *, image: Shape, kernel: Numbers, strides: Numbers,
               dilations: Numbers, pads: Shape) -> Value:
    return im2col(g, kernel=kernel, strides=strides, dilations=dilations, pads=pads)


@linear(types=_fold_types, transpose=_fold_back, samples=[
    sample("f32[2,6,9]", image=(4, 5), kernel=(2, 3), pads=(0, 1, 0, 1), strides=(1, 1),
           dilations=(1, 2), expect="tests.oracles.sampling:col2im", rtol=1e-5),
    sample("f32[1,4,5]", image=(6,), kernel=(2,), expect="tests.oracles.sampling:col2im",
           rtol=1e-5)])
def col2im(x: Array, *, image: tuple[Size, ...], kernel: tuple[int, ...],
           strides: tuple[int, ...] = (), dilations: tuple[int, ...] = (),
           pads: tuple[Size, ...] = ()) -> Array:
    """Columns [N, C * kernel elements, windows] added up in images [N, C, *image] (ONNX Col2Im).

    The adjoint of `im2col` with the same attributes; halves accumulate in f32.
    """
    n, space = len(kernel), ints(image)
    steps, gaps = per_axis("strides", strides, n, 1), per_axis("dilations", dilations, n, 1)
    edges = ints(per_axis("pads", pads, 2 * n, 0))
    sizes = ints(out_shape(space, kernel, steps, gaps, edges))
    shape = (x.shape[0], x.shape[1] // math.prod(kernel), *kernel, *sizes)
    full = fold_windows(widen(x).reshape(shape), kernel, steps, gaps)
    behind = [space[i] + edges[i] - full.shape[2 + i] for i in range(n)]
    return pad_space(full, (*[-e for e in edges[:n]], *behind)).astype(x.dtype, copy=False)


def _check_deformed(x: Value, w: Value, offset: Value, mask: Value | None, sizes: Shape,
                    groups: int, offset_groups: int) -> None:
    given = [v.dtype for v in (x, w, offset, mask) if v is not None]
    if any(d is not x.dtype for d in given):
        raise OperatorError(f"operands of dtypes {', '.join(map(str, given))}",
                            hint="cast them to one")
    taps = w.shape[2] * w.shape[3] * offset_groups
    for name, v, rows in (("offset", offset, taps * 2), ("mask", mask, taps)):
        want = (x.shape[0], rows, *sizes)
        if v is not None and (v.type.rank != 4 or any(map(surely_differ, v.shape, want))):
            raise OperatorError(f"{name} must be {shape_text(want)}, got {v.type}")
    if surely_differ(x.shape[1], w.shape[1] * groups):
        raise OperatorError(f"x has {x.shape[1]} channels, w takes {w.shape[1]} in each of "
                            f"{groups} groups")


def _place(taps: Size, sizes: Size, stride: int, dilation: int, pad: Size, dtype: DType
           ) -> Value:
    """Where each tap of each window lies on one axis: [taps, windows]."""
    tap = range_(start=-pad, step=dilation, length=taps, dtype=dtype)
    window = range_(start=0, step=stride, length=sizes, dtype=dtype)
    return reshape(tap, shape=(taps, 1)) + reshape(window, shape=(1, sizes))


@composite(samples=[
    sample("f32[1,4,5,6]", "f32[6,2,3,2]", "f32[1,24,3,3]", mask="f32[1,12,3,3]", bias="f32[6]",
           strides=(2, 2), pads=(1, 0, 1, 1), groups=2, offset_groups=2,
           expect="tests.oracles.sampling:deform_conv", rtol=1e-4),
    sample("f32[2,1,3,3]", "f32[1,1,2,2]", "f32[2,8,2,2]",
           expect="tests.oracles.sampling:deform_conv", rtol=1e-4)])
def deform_conv(x: Value, w: Value, offset: Value, *, mask: Value | None = None,
                bias: Value | None = None, strides: tuple[int, ...] = (),
                dilations: tuple[int, ...] = (), pads: tuple[Size, ...] = (), groups: int = 1,
                offset_groups: int = 1) -> Value:
    """Convolution whose taps read x at `offset` from their place, times `mask`.

    offset[N, offset_groups * kh * kw * 2, oh, ow] holds (dy, dx) in pixels, reading is bilinear
    with zeros outside. Source: ONNX DeformConv; 2-D only.
    """
    if x.type.rank != 4 or w.type.rank != 4 or offset.type.rank != 4:
        raise OperatorError(f"deformed windows are 2-D: x, w and offset of rank 4, got {x.type}, "
                            f"{w.type}, {offset.type}")
    steps, gaps = positive("strides", strides, 2), positive("dilations", dilations, 2)
    edges, kernel = per_axis("pads", pads, 4, 0), w.shape[2:]
    sizes = out_shape(x.shape[2:], kernel, steps, gaps, edges)
    _check_deformed(x, w, offset, mask, sizes, groups, offset_groups)
    rows, points = x.shape[0] * offset_groups, count(kernel) * count(sizes)
    moved = reshape(wide(offset), shape=(rows, *kernel, 2, *sizes))
    at = list[Value]()
    for i in range(2):
        part = reshape(narrow(moved, axis=3, start=i, length=1), shape=(rows, *kernel, *sizes))
        axes = [(kernel[j], sizes[j]) if j == i else (1, 1) for j in range(2)]
        base = reshape(_place(kernel[i], sizes[i], steps[i], gaps[i], edges[i], part.dtype),
                       shape=(axes[0][0], axes[1][0], axes[0][1], axes[1][1]))
        at.append(reshape(part + base, shape=(rows, points)))
    images = reshape(wide(x), shape=(rows, x.shape[1] // offset_groups, *x.shape[2:]))
    read = interpolate(images, at)
    if mask is not None:
        read = read * reshape(wide(mask), shape=(rows, 1, points))
    inner = w.shape[1] * count(kernel)
    cols = reshape(read, shape=(x.shape[0], groups, inner, count(sizes)))
    filters = reshape(wide(w), shape=(groups, w.shape[0] // groups, inner))
    out = reshape(matmul(filters, cols), shape=(x.shape[0], w.shape[0], *sizes))
    return cast_value(out if bias is None else add_bias(out, wide(bias)), x.dtype)
