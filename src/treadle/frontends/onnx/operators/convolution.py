"""Convolution, pooling and resampling over windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ....declare.opdef import REGISTRY
from ....errors import Declined
from ....ir.dims import Size
from ....ir.graph import Value
from ....ir.types import Shape
from ....ops.windows import same_pads, transposed_pads
from ..context import Context
from ..registry import MICROSOFT, importer
from .shape import op

Ints = tuple[int, ...]


def window_pads(x: Value, kernel: Sequence[Size], strides: Ints, dilations: Ints, pads: Ints,
                auto_pad: str) -> Shape:
    """The pads that `auto_pad` stands for."""
    if auto_pad in ("NOTSET", ""):
        return pads
    if auto_pad == "VALID":
        return ()
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise Declined(f"auto_pad={auto_pad!r}")
    mode: Literal["upper", "lower"] = "upper" if auto_pad == "SAME_UPPER" else "lower"
    return same_pads(x.shape[2:], kernel, strides or (1,) * len(kernel), dilations, mode=mode)


def check_kernel(w: Value, kernel_shape: Ints) -> None:
    """Decline a kernel_shape that contradicts the weight."""
    if kernel_shape and kernel_shape != w.shape[2:]:
        raise Declined(f"kernel_shape {kernel_shape} contradicts the weight {w.type}")


@importer("Conv")
def conv(ctx: Context, x: Value, w: Value, bias: Value | None, *, auto_pad: str = "NOTSET",
         dilations: Ints = (), group: int = 1, kernel_shape: Ints = (), pads: Ints = (),
         strides: Ints = ()) -> Value:
    """Cross-correlation, 1-D to 3-D."""
    check_kernel(w, kernel_shape)
    edges = window_pads(x, w.shape[2:], strides, dilations, pads, auto_pad)
    return op("conv", x, w, bias=bias, strides=strides, dilations=dilations, pads=edges,
              groups=group)


@importer("FusedConv", domain=MICROSOFT)
def fused_conv(ctx: Context, x: Value, w: Value, bias: Value | None, z: Value | None, *,
               auto_pad: str = "NOTSET", dilations: Ints = (), group: int = 1,
               kernel_shape: Ints = (), pads: Ints = (), strides: Ints = (),
               activation: str = "", activation_params: tuple[float, ...] = ()) -> Value:
    """Conv, plus z, then an activation."""
    y = conv(ctx, x, w, bias, auto_pad=auto_pad, dilations=dilations, group=group,
             kernel_shape=kernel_shape, pads=pads, strides=strides)
    y = y if z is None else y + z
    names: dict[str, tuple[str, tuple[str, ...]]] = {
        "": ("identity", ()), "Relu": ("relu", ()), "Sigmoid": ("sigmoid", ()),
        "Tanh": ("tanh", ()), "LeakyRelu": ("leaky_relu", ("alpha",)),
        "HardSigmoid": ("hard_sigmoid", ("alpha", "beta")), "Clip": ("hardtanh", ("low", "high"))}
    if activation not in names:
        raise Declined(f"FusedConv with activation={activation!r}")
    name, keys = names[activation]
    return op(name, y, **dict(zip(keys, activation_params, strict=False)))


@importer("ConvTranspose")
def conv_transpose(ctx: Context, x: Value, w: Value, bias: Value | None, *,
                   auto_pad: str = "NOTSET", dilations: Ints = (), group: int = 1,
                   kernel_shape: Ints = (), output_padding: Ints = (), output_shape: Ints = (),
                   pads: Ints = (), strides: Ints = ()) -> Value:
    """The adjoint of Conv; `output_shape` decides the pads."""
    check_kernel(w, kernel_shape)
    n = x.type.rank - 2
    steps, gaps = strides or (1,) * n, dilations or (1,) * n
    kernel, extra = w.shape[2:], output_padding or (0,) * n
    edges: Shape = pads
    if output_shape or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = output_shape[-n:] if output_shape else tuple(
            s * t for s, t in zip(x.shape[2:], steps, strict=True))
        mode: Literal["upper", "lower"] = "upper" if auto_pad == "SAME_UPPER" else "lower"
        edges = transposed_pads(x.shape[2:], kernel, steps, gaps, extra, wanted, mode=mode)
    elif auto_pad == "VALID":
        edges = ()
    elif auto_pad not in ("NOTSET", ""):
        raise Declined(f"auto_pad={auto_pad!r}")
    return op("conv_transpose", x, w, bias=bias, strides=steps, dilations=gaps, pads=edges,
              output_padding=extra, groups=group)


@importer("DeformConv")
def deform_conv(ctx: Context, x: Value, w: Value, offset: Value, bias: Value | None,
                mask: Value | None, *, dilations: Ints = (), group: int = 1,
                kernel_shape: Ints = (), offset_group: int = 1, pads: Ints = (),
                strides: Ints = ()) -> Value:
    """Convolution at displaced positions."""
    check_kernel(w, kernel_shape)
    return op("deform_conv", x, w, offset, bias=bias, mask=mask, strides=strides,
              dilations=dilations, pads=pads, groups=group, offset_groups=offset_group)


@importer("MaxPool")
def max_pool(ctx: Context, x: Value, *, auto_pad: str = "NOTSET", ceil_mode: int = 0,
             dilations: Ints = (), kernel_shape: Ints, pads: Ints = (), storage_order: int = 0,
             strides: Ints = ()) -> object:
    """The maximum of each window, and where it lies."""
    edges = window_pads(x, kernel_shape, strides, dilations, pads, auto_pad)
    shared = {"kernel": kernel_shape, "strides": strides, "dilations": dilations,
              "pads": edges, "ceil_mode": bool(ceil_mode)}
    if not ctx.wants(1):
        return op("max_pool", x, **shared)
    return REGISTRY["max_pool_with_argmax"](x, **shared, column_major=bool(storage_order))


@importer("AveragePool")
def average_pool(ctx: Context, x: Value, *, auto_pad: str = "NOTSET", ceil_mode: int = 0,
                 count_include_pad: int = 0, dilations: Ints = (), kernel_shape: Ints,
                 pads: Ints = (), strides: Ints = ()) -> Value:
    """The mean of each window."""
    edges = window_pads(x, kernel_shape, strides, dilations, pads, auto_pad)
    return op("average_pool", x, kernel=kernel_shape, strides=strides, dilations=dilations,
              pads=edges, ceil_mode=bool(ceil_mode), count_include_pad=bool(count_include_pad))


@importer("LpPool", since=2)
def lp_pool(ctx: Context, x: Value, *, auto_pad: str = "NOTSET", ceil_mode: int = 0,
            dilations: Ints = (), kernel_shape: Ints, p: int = 2, pads: Ints = (),
            strides: Ints = ()) -> Value:
    """The p-norm of each window."""
    edges = window_pads(x, kernel_shape, strides, dilations, pads, auto_pad)
    return op("lp_pool", x, kernel=kernel_shape, strides=strides, dilations=dilations, pads=edges,
              ceil_mode=bool(ceil_mode), p=p)


def _whole(p: float) -> int:
    if p != int(p):
        raise Declined(f"a pool with the norm {p}", hint="the norm is a whole number from opset 2")
    return int(p)


@importer("LpPool", until=1)
def lp_pool_1(ctx: Context, x: Value, *, auto_pad: str = "NOTSET", kernel_shape: Ints,
              p: float = 2.0, pads: Ints = (), strides: Ints = ()) -> Value:
    """The norm as a float."""
    edges = window_pads(x, kernel_shape, strides, (), pads, auto_pad)
    return op("lp_pool", x, kernel=kernel_shape, strides=strides, pads=edges, p=_whole(p))


@importer("GlobalAveragePool")
def global_average_pool(ctx: Context, x: Value) -> Value:
    """The mean of each channel."""
    return op("global_average_pool", x)


@importer("GlobalMaxPool")
def global_max_pool(ctx: Context, x: Value) -> Value:
    """The maximum of each channel."""
    return op("global_max_pool", x)


@importer("GlobalLpPool", since=2)
def global_lp_pool(ctx: Context, x: Value, *, p: int = 2) -> Value:
    """The p-norm of each channel."""
    return op("global_lp_pool", x, p=p)


@importer("GlobalLpPool", until=1)
def global_lp_pool_1(ctx: Context, x: Value, *, p: float = 2.0) -> Value:
    """The norm as a float."""
    return op("global_lp_pool", x, p=_whole(p))


@importer("MaxUnpool")
def max_unpool(ctx: Context, x: Value, at: Value, shape: Value | None, *, kernel_shape: Ints,
               pads: Ints = (), strides: Ints = ()) -> Value:
    """Maxima back at the places that MaxPool gave."""
    n = len(kernel_shape)
    steps, edges = strides or (1,) * n, pads or (0,) * (2 * n)
    natural = (*x.shape[:2], *((s - 1) * steps[i] + kernel_shape[i] - edges[i] - edges[n + i]
                               for i, s in enumerate(x.shape[2:])))
    if shape is None:
        return op("max_unpool", x, at, shape=natural)
    return _unpool_into(ctx, x, at, natural, ctx.sizes(shape, "shape"))


def _unpool_into(ctx: Context, x: Value, at: Value, natural: Shape, wanted: Shape) -> Value:
    """A larger output than the natural one: the indices count within the natural shape."""
    y = op("max_unpool", x, at, shape=natural)
    if wanted == natural:
        return y
    after = tuple(w - s for w, s in zip(wanted, natural, strict=True))
    return op("pad", y, pads=(*(0,) * len(after), *after))
