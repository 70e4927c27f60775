"""Margins: counts as attributes or as tensors."""

from __future__ import annotations

from ....declare.content import sizes_of
from ....declare.opdef import cast_value
from ....errors import OperatorError
from ....ir.dims import Size
from ....ir.graph import Value
from ....ir.types import I64, DType, Shape, axis_of
from ..context import Context
from ..registry import importer
from .shape import op


@importer("Pad", until=1)
def pad_1(ctx: Context, x: Value, *, paddings: tuple[int, ...], mode: str = "constant",
          value: float = 0.0) -> Value:
    """Margins as the attribute `paddings`."""
    return op("pad", x, pads=paddings, mode=mode, value=_number(value, x.dtype))


@importer("Pad", since=2, until=10)
def pad_attribute(ctx: Context, x: Value, *, pads: tuple[int, ...], mode: str = "constant",
                  value: float = 0.0) -> Value:
    """Margins as an attribute."""
    return op("pad", x, pads=pads, mode=mode, value=_number(value, x.dtype))


def _number(value: float, dtype: DType) -> float | int:
    return value if dtype.sort in ("float", "complex") else int(value)


@importer("Pad", since=11)
def pad(ctx: Context, x: Value, pads: Value, fill: Value | None, axes: Value | None, *,
        mode: str = "constant") -> Value:
    """Margins as a tensor, of all axes or of `axes`."""
    given = _margins(ctx, pads)
    rank = x.type.rank
    at = range(rank) if axes is None else [
        axis_of(a, rank) for a in ctx.ints(axes, "axes")]
    if len(given) != 2 * len(at):
        raise OperatorError(f"{len(given)} pads for {len(at)} axes", hint="give two for each")
    full: list[Size] = [0] * (2 * rank)
    for i, axis in enumerate(at):
        full[axis], full[axis + rank] = given[i], given[i + len(at)]
    scalar = None if fill is None else op("reshape", fill, shape=())
    return op("pad", x, pads=tuple(full), mode=mode, fill=scalar)


def _margins(ctx: Context, pads: Value) -> Shape:
    """Counts that may be negative: those that only the run knows are differences of sizes."""
    if (known := sizes_of(pads)) is not None:
        return known
    wide = cast_value(pads, I64)
    grow = ctx.sizes(op("max", wide, 0), "pads")
    crop = ctx.sizes(op("max", op("neg", wide), 0), "crop")
    return tuple([a - b for a, b in zip(grow, crop, strict=True)])
