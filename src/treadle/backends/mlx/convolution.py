"""Convolution and its adjoint, on MLX's channels-last kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mlx.core as mx

from ...ir.dims import Size
from ...ir.graph import Node
from ...ops.windows import out_shape, per_axis
from .arrays import number, on_gpu, wide
from .layout import last
from .lowering import Lowering, Pack, plain

Ints = tuple[int, ...]
MOST_AXES = 3


def _packed(x: mx.array) -> mx.array:
    """Filters [M, C, kernel..] as MLX holds them, in one piece."""
    return mx.contiguous(last(x))


def crop(x: mx.array, pads: Sequence[int]) -> tuple[mx.array, list[int], list[int]]:
    """A channels-last x without what negative pads remove, and the pads that remain."""
    n = len(pads) // 2
    cuts = [slice(max(-pads[i], 0), x.shape[1 + i] - max(-pads[n + i], 0)) for i in range(n)]
    low, high = ([max(p, 0) for p in part] for part in (pads[:n], pads[n:]))
    return x[(slice(None), *cuts)] if min(pads) < 0 else x, low, high


def _one_by_one(x: mx.array, groups: int) -> bool:
    """Whether groups run one by one: MLX groups 1-D and 2-D kernels alone."""
    return groups > 1 and x.ndim > 4


def _run(x: mx.array, w: mx.array, low: Sequence[int], high: Sequence[int], steps: Ints,
         gaps: Ints, groups: int) -> mx.array:
    if not _one_by_one(x, groups):
        return mx.conv_general(x, w, stride=steps, padding=(list(low), list(high)),
                               kernel_dilation=gaps, groups=groups)
    xs, ws = mx.split(x, groups, axis=-1), mx.split(w, groups, axis=0)
    return mx.concatenate([_run(a, b, low, high, steps, gaps, 1)
                           for a, b in zip(xs, ws, strict=True)], axis=-1)


def convolution(x: mx.array, w: mx.array, *, strides: Ints, dilations: Ints, pads: Ints,
                groups: int) -> mx.array:
    """x[N, spatial.., C] with filters that `_packed` made."""
    n = x.ndim - 2
    steps, gaps = per_axis("strides", strides, n, 1), per_axis("dilations", dilations, n, 1)
    dtype, edges = x.dtype, per_axis("pads", pads, 2 * n, 0)
    space: tuple[Size, ...] = x.shape[1:-1]
    out_shape(space, w.shape[1:-1], steps, gaps, edges)  # MLX gives a window where none fits
    if not on_gpu():
        x, w = wide(x), wide(w)
    body, low, high = crop(x, edges)
    ones = {*w.shape[1:-1], *steps, groups} == {1}
    if ones and not any((*low, *high)):
        return mx.matmul(body, mx.reshape(w, (w.shape[0], -1)).T).astype(dtype)
    return _run(body, w, low, high, steps, gaps, groups).astype(dtype)


def _turned(x: mx.array) -> mx.array:
    """Filters [C, M, kernel..] of a transposed convolution: channels last, taps reversed."""
    back = [slice(None, None, -1)] * (x.ndim - 2)
    return mx.contiguous(last(x)[(slice(None), *back)])


def _apart(x: mx.array, steps: Ints) -> mx.array:
    """Zeros between the elements of the spatial axes."""
    for axis, step in enumerate(steps, 1):
        if step > 1:
            shape, n = x.shape, x.shape[axis]
            lines = mx.expand_dims(x, axis + 1)
            grow = [(0, 0)] * lines.ndim
            grow[axis + 1] = (0, step - 1)
            whole = mx.reshape(mx.pad(lines, grow), (*shape[:axis], n * step, *shape[axis + 1:]))
            x = whole[(*[slice(None)] * axis, slice(0, (n - 1) * step + 1))]
    return x


def _adjoint(x: mx.array, w: mx.array, steps: Ints, gaps: Ints) -> mx.array:
    """One group, channels last; w[C, kernel.., M] as `_turned` made it. Nothing is cropped.

    MLX's own `input_dilation` is wrong on CUDA for one input channel.
    """
    reach = [(k - 1) * d for k, d in zip(w.shape[1:-1], gaps, strict=True)]
    return mx.conv_general(_apart(x, steps), mx.swapaxes(w, 0, -1), padding=(reach, reach),
                           kernel_dilation=gaps)


def transposed_convolution(x: mx.array, w: mx.array, *, strides: Ints, dilations: Ints,
                           pads: Ints, output_padding: Ints, groups: int) -> mx.array:
    """The whole sum of filters over x[N, spatial.., C], cropped by pads, then lengthened.

    Groups run one by one.
    """
    n = x.ndim - 2
    steps, gaps = per_axis("strides", strides, n, 1), per_axis("dilations", dilations, n, 1)
    edges, extra = per_axis("pads", pads, 2 * n, 0), per_axis(
        "output_padding", output_padding, n, 0)
    dtype = x.dtype
    if not on_gpu():
        x, w = wide(x), wide(w)
    xs, ws = mx.split(x, groups, axis=-1), mx.split(w, groups, axis=0)
    parts = [_adjoint(a, b, steps, gaps) for a, b in zip(xs, ws, strict=True)]
    out = mx.concatenate(parts, axis=-1) if groups > 1 else parts[0]
    margins = (*[-e for e in edges[:n]], *[o - e for e, o in zip(edges[n:], extra, strict=True)])
    out, low, high = crop(out, margins)
    grow = [(0, 0), *zip(low, high, strict=True), (0, 0)]
    out = mx.pad(out, grow, constant_values=number(0, out.dtype)) if any(map(any, grow)) else out
    return out.astype(dtype)


def _refuse(node: Node) -> str:
    x = node.inputs[0]
    if x.dtype.sort != "float":
        return f"MLX convolves no {x.dtype}"
    if x.type.rank - 2 > MOST_AXES:
        return f"MLX convolves over {MOST_AXES} axes at most"
    return ""


_PACK: dict[int, Pack] = {1: _packed}  # by operand


def padded(x: mx.array, fill: complex, kernel: Ints, steps: Ints, gaps: Ints, pads: Ints,
           sizes: Sequence[int], at: int = 2) -> mx.array:
    """x, whose spatial axes begin at `at`, with margins up to the end of the last window."""
    n, space = len(kernel), x.shape[at:at + len(kernel)]
    ends = [(sizes[i] - 1) * steps[i] + (kernel[i] - 1) * gaps[i] + 1 - space[i] - pads[i]
            for i in range(n)]
    behind = [max(e, p) for e, p in zip(ends, pads[n:], strict=True)]
    cuts = [slice(max(-a, 0), m - max(-b, 0)) for a, b, m in zip(
        pads[:n], behind, space, strict=True)]
    x = x[(*[slice(None)] * at, *cuts)]
    grow = [(0, 0)] * x.ndim
    grow[at:at + n] = [(max(a, 0), max(b, 0)) for a, b in zip(pads[:n], behind, strict=True)]
    return mx.pad(x, grow, constant_values=number(fill, x.dtype)) if any(map(any, grow)) else x


def im2col(x: mx.array, *, kernel: Ints, strides: Ints, dilations: Ints, pads: Ints) -> mx.array:
    """Windows as columns: one slice of x for every tap."""
    n = len(kernel)
    steps, gaps = per_axis("strides", strides, n, 1), per_axis("dilations", dilations, n, 1)
    edges = per_axis("pads", pads, 2 * n, 0)
    sizes = [(x.shape[2 + i] + edges[i] + edges[n + i] - (kernel[i] - 1) * gaps[i] - 1)
             // steps[i] + 1 for i in range(n)]
    full = padded(x, 0, kernel, steps, gaps, edges, sizes)
    taps = [full[(slice(None), slice(None), *at)] for at in windows(kernel, steps, gaps, sizes)]
    shape = (x.shape[0], x.shape[1] * math.prod(kernel), math.prod(sizes))
    return mx.reshape(mx.stack(taps, axis=2), shape)


def windows(kernel: Ints, steps: Ints, gaps: Ints, sizes: Sequence[int]) -> list[list[slice]]:
    """For each tap of a window, in row-major order, the elements that it meets."""
    out: list[list[slice]] = [[]]
    for k, s, d, n in zip(kernel, steps, gaps, sizes, strict=True):
        out = [[*at, slice(t * d, t * d + (n - 1) * s + 1, s)] for at in out for t in range(k)]
    return out


def _small(node: Node) -> str:
    kernel = node.attrs["kernel"]
    taps = math.prod(k for k in kernel if isinstance(k, int)) if isinstance(kernel, tuple) else 0
    return "windows of more than 256 elements" if taps > 256 else ""


LOWERINGS: dict[str, Lowering] = {
    "convolution": plain(convolution, _refuse, pack=_PACK),
    "transposed_convolution": plain(transposed_convolution, _refuse, pack={1: _turned}),
    "im2col": plain(im2col, _small)}
