"""Write resizing between known sizes as gathers, products and sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

import numpy as np

from ..declare.arrays import Array, blob
from ..declare.opdef import cast_value
from ..ir.graph import Attr, Graph, Node, Value
from ..ir.types import F32, DType
from ..ops.leaves import constant
from ..ops.library import REGISTRY
from ..ops.resize import Kernel, Taps, sampling
from ..records import dataclass
from ..transforms.clone import Rebuild
from .base import Context, Legaliser, Pass


@dataclass(frozen=True, slots=True)
class OpenResize(Pass):
    """Replaces `resize` by a gather for each tap of each axis where the backend declines it.

    Axes that change have known sizes, or every element comes a whole number of times, which is an
    `expand`. `most` bounds the taps of an axis: antialiasing may have many.
    """

    name: ClassVar[str] = "open_resize"
    most: int = 8

    def run(self, graph: Graph, ctx: Context) -> Graph:
        """Ask about every `resize`."""
        if ctx.legaliser is None:
            return graph
        work = _Open(ctx.legaliser, self.most)
        out = work.graph(graph)
        ctx.counts(work.did, work.stopped, self)
        return out if work.changed else graph


class _Open(Rebuild):
    __slots__ = ("did", "legaliser", "most", "stopped")

    def __init__(self, legaliser: Legaliser, most: int) -> None:
        super().__init__(self.open)
        self.legaliser, self.most = legaliser, most
        self.did: Counter[str] = Counter()
        self.stopped: Counter[str] = Counter()

    def open(self, node: Node) -> Sequence[Value] | None:
        """What a `resize` is made of, or None to keep it."""
        if node.op != "resize" or not self.legaliser.declines(node):
            return None
        if (times := _repeats(node)) is not None:
            self.did["resize as repeats"] += 1
            return (_several(node.inputs[0], times),)
        taps = _taps(node)
        why = taps if isinstance(taps, str) else self._refused(node, taps)
        if why:
            self.stopped[f"resize as gathers: {why}"] += 1
            return None
        self.did["resize as gathers"] += 1
        return (_opened(node.inputs[0], cast("list[Taps]", taps)),)

    def _refused(self, node: Node, taps: list[Taps]) -> str:
        if any(len(t.places) > self.most for t in taps):
            return f"more than {self.most} taps"
        if not all(t.inside.all() for t in taps):
            return "positions outside the operand"
        weighed = any(t.weight is not None for t in taps)
        return "weights of integers" if weighed and node.inputs[0].dtype.sort != "float" else ""


_EVERY_TIME = {(c, n) for c in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
               for n in ("round_prefer_floor", "round_prefer_ceil")} | {("asymmetric", "floor")}
"""Coordinates and roundings with which position i of k times as many is element i // k."""
_MOST_TIMES = 16
_LONGEST = 1 << 20
"""Places of an axis that are worth a table."""


def _repeats(node: Node) -> list[int] | None:
    """How often the elements of each axis come, or None where that is not all there is to it."""
    a = node.attrs
    if node.keys or (a["mode"], a["antialias"]) != ("nearest", False) or (
            a["coordinates"], a["nearest"]) not in _EVERY_TIME:
        return None
    x, y = node.inputs[0].shape, node.outputs[0].shape
    scales = cast("tuple[float, ...]", a["scales"])
    axes = cast("tuple[int, ...] | None", a["axes"])
    stated = dict(zip(range(len(x)) if axes is None else axes, scales, strict=False))
    found = [next((k for k in range(1, _MOST_TIMES + 1)
                   if m == n * k and stated.get(i, k) == k), None)
             for i, (n, m) in enumerate(zip(x, y, strict=True))]
    return None if None in found else cast("list[int]", found)


def _several(x: Value, times: Sequence[int]) -> Value:
    """Every element of each axis so many times."""
    for axis, k in enumerate(times):
        if k != 1:
            x = _wide(x, axis, k)
    return cast(Value, REGISTRY["identity"](x)) if set(times) == {1} else x


def _taps(node: Node) -> list[Taps] | str:
    """How each axis that changes is read, or why that is not known."""
    a: Mapping[str, Attr] = node.attrs
    if node.keys:
        return "scales that each run gives"
    x, y = node.inputs[0].shape, node.outputs[0].shape
    axes = cast("tuple[int, ...] | None", a["axes"])
    axes = tuple(range(len(x))) if axes is None else axes
    scales = cast("tuple[float, ...]", a["scales"])
    same = [x[i] == y[i] and (not scales or scales[k] == 1) for k, i in enumerate(axes)]
    known = [n if isinstance(n, int) else 1 for n in x]
    sizes = [n if isinstance(n, int) else 1 for n in (y[i] for i in axes)]
    if any(not (isinstance(x[i], int) and isinstance(y[i], int)) and not kept
           for i, kept in zip(axes, same, strict=True)):
        return "sizes that are not known"
    if max(sizes, default=0) > _LONGEST:
        return "an axis too long for tables of places"
    kernel = Kernel(*(a[k] for k in ("mode", "coordinates", "nearest", "cubic", "exclude_outside",
                                     "antialias")))  # type: ignore[arg-type]
    return sampling(tuple(known), tuple(sizes), scales, cast("tuple[float, ...]", a["roi"]), axes,
                    kernel)


def _opened(x: Value, taps: list[Taps]) -> Value:
    """The axes one after another; nearest elements are taken along the last axis first."""
    dtype = x.dtype
    if not taps:
        return cast(Value, REGISTRY["identity"](x))
    if any(t.weight is not None for t in taps):
        x = cast_value(x, _computing(dtype))
    else:
        taps = sorted(taps, key=lambda t: -t.axis)
    for t in taps:
        x = _axis(x, t)
    return cast_value(x, dtype)


def _computing(dtype: DType) -> DType:
    return F32 if dtype.bits < 32 else dtype


def _axis(x: Value, t: Taps) -> Value:
    if t.weight is None:
        whole = _repeated(x, t)
        return _taken(x, t.places[0], t.axis) if whole is None else whole
    out: Value | None = None
    for places, weight in zip(t.places, t.weight, strict=True):
        shape = [-1 if i == t.axis else 1 for i in range(x.type.rank)]
        line = weight.astype(np.float32 if x.dtype is F32 else np.float64).reshape(shape)
        part = _taken(x, places, t.axis) * constant(value=blob(line))
        out = part if out is None else out + part
    assert out is not None
    return out


def _taken(x: Value, places: Array, axis: int) -> Value:
    return cast(Value, REGISTRY["gather"](x, constant(value=blob(places)), axis=axis))


def _repeated(x: Value, t: Taps) -> Value | None:
    """Every element of an axis so many times, without a table."""
    size = cast(int, x.shape[t.axis])
    times, rest = divmod(t.places.shape[1], size)
    if rest or not np.array_equal(t.places[0], np.repeat(np.arange(size), times)):
        return None
    return _wide(x, t.axis, times)


def _wide(x: Value, axis: int, times: int) -> Value:
    """Every element of an axis so many times."""
    before, n, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1:]
    wide = cast(Value, REGISTRY["unsqueeze"](x, axes=(axis + 1,)))
    wide = cast(Value, REGISTRY["expand"](wide, shape=(*before, n, times, *after)))
    return cast(Value, REGISTRY["reshape"](wide, shape=(*before, n * times, *after)))
