"""Resize and Upsample."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ....errors import Declined
from ....ir.dims import Size
from ....ir.graph import Value
from ....ir.types import Shape, axis_of
from ....ops.resize import scaled_size
from ..context import Context
from ..registry import importer
from .shape import op

Floats = tuple[float, ...]


@importer("Resize", since=11)
def resize(ctx: Context, x: Value, roi: Value | None, scales: Value | None, sizes: Value | None,
           *, antialias: int = 0, axes: tuple[int, ...] | None = None,
           coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75,
           exclude_outside: int = 0, extrapolation_value: float = 0.0,
           keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
           nearest_mode: str = "round_prefer_floor") -> Value:
    """Resample to sizes or by scales."""
    if keep_aspect_ratio_policy not in ("stretch", "not_larger", "not_smaller"):
        raise Declined(f"Resize with keep_aspect_ratio_policy={keep_aspect_ratio_policy!r}")
    at = tuple(range(x.type.rank)) if axes is None else tuple(
        axis_of(a, x.type.rank) for a in axes)
    factors, wanted = _target(ctx, x, at, scales, sizes, keep_aspect_ratio_policy)
    how, nearest = coordinate_transformation_mode, nearest_mode
    if how == "tf_half_pixel_for_nn":  # opset 11 alone: half_pixel, then towards zero
        how, nearest = "half_pixel", "floor"
    crop: Floats = ()
    if how == "tf_crop_and_resize" and roi is not None:
        crop = tuple(map(float, ctx.array(roi, "roi")))
    return op("resize", x, sizes=wanted, scales=factors, roi=crop, axes=at, mode=mode,
              coordinates=how, nearest=nearest, cubic=cubic_coeff_a,
              exclude_outside=bool(exclude_outside), extrapolation=extrapolation_value,
              antialias=bool(antialias))


def _target(ctx: Context, x: Value, at: Sequence[int], scales: Value | None, sizes: Value | None,
            policy: str) -> tuple[Floats, Shape]:
    """Scales (empty when sizes decide) and output sizes of the resized axes."""
    if sizes is not None and sizes.shape != (0,):
        wanted = ctx.sizes(sizes, "size")
        return ((), wanted) if policy == "stretch" else _keep_aspect(ctx, x, at, wanted, policy)
    if scales is None or scales.shape == (0,):
        raise Declined("Resize with neither scales nor sizes")
    factors = tuple(map(float, ctx.array(scales, "scales").reshape(-1)))
    if len(factors) != len(at):
        raise Declined(f"Resize of {len(at)} axes with {len(factors)} scales")
    return factors, tuple([_scaled(ctx, x.shape[a], f) for a, f in zip(at, factors, strict=True)])


def _scaled(ctx: Context, size: Size, scale: float) -> Size:
    """floor(size * scale); of a symbolic size where the scale is an exact fraction."""
    if isinstance(size, int):
        return scaled_size(size, scale)
    exact = Fraction(scale)
    if exact.denominator > 1024:
        return scaled_size(ctx.known(size, f"a size scaled by {scale}"), scale)
    return size * exact.numerator // exact.denominator


def _keep_aspect(ctx: Context, x: Value, at: Sequence[int], wanted: Shape, policy: str
                 ) -> tuple[Floats, Shape]:
    """One scale for all axes: the smallest, or the largest, that the sizes ask for."""
    have = [ctx.known(x.shape[a], "a resized size") for a in at]
    want = [ctx.known(w, "a wanted size") for w in wanted]
    ratios = [np.float32(w) / np.float32(h) for w, h in zip(want, have, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    sizes = tuple([int(np.floor(scale * np.float32(h) + np.float32(0.5))) for h in have])
    return (float(scale),) * len(at), sizes


@importer("Resize", since=10, until=10)
def resize_10(ctx: Context, x: Value, scales: Value, *, mode: str = "nearest") -> Value:
    """Scales alone, asymmetric positions."""
    return _by_scales(ctx, x, tuple(map(float, ctx.array(scales, "scales").reshape(-1))), mode)


@importer("Upsample", since=9)
def upsample(ctx: Context, x: Value, scales: Value, *, mode: str = "nearest") -> Value:
    """Scales as a tensor."""
    return _by_scales(ctx, x, tuple(map(float, ctx.array(scales, "scales").reshape(-1))), mode)


@importer("Upsample", since=7, until=8)
def upsample_7(ctx: Context, x: Value, *, scales: Floats, mode: str = "nearest") -> Value:
    """Scales as an attribute."""
    return _by_scales(ctx, x, scales, mode)


@importer("Upsample", until=6)
def upsample_1(ctx: Context, x: Value, *, height_scale: float, width_scale: float,
               mode: str = "nearest") -> Value:
    """Height and width."""
    return _by_scales(ctx, x, (1.0, 1.0, height_scale, width_scale), mode)


def _by_scales(ctx: Context, x: Value, scales: Floats, mode: str) -> Value:
    sizes = tuple([_scaled(ctx, s, f) for s, f in zip(x.shape, scales, strict=True)])
    return op("resize", x, sizes=sizes, scales=scales, axes=tuple(range(x.type.rank)),
              mode="linear" if mode in ("linear", "bilinear") else mode,
              coordinates="asymmetric", nearest="floor")
