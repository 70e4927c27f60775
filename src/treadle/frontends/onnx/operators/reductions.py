"""Folds, scans and orders along axes, and the selections whose size depends on data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....declare.opdef import REGISTRY, cast_value
from ....ir.graph import Value
from ....ir.types import DTYPES, axis_of, count
from ..context import Context
from ..registry import MICROSOFT, importer

REDUCTIONS = {
    "ReduceL1": "l1", "ReduceL2": "l2", "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "logsumexp", "ReduceMax": "reduce_max", "ReduceMean": "mean",
    "ReduceMin": "reduce_min", "ReduceProd": "prod", "ReduceSum": "sum",
    "ReduceSumSquare": "sum_square"}
_REAL = ("l2", "log_sum", "logsumexp")
"""Reductions that leave the integers on the way; an integer result truncates."""


def _reduce(name: str, x: Value, axes: tuple[int, ...], keepdims: int) -> Value:
    if name in _REAL and x.dtype.sort in ("int", "uint"):
        return cast_value(_reduce(name, cast_value(x, DTYPES["f64"]), axes, keepdims), x.dtype)
    out = REGISTRY[name](x, axes=axes, keepdims=bool(keepdims))
    assert isinstance(out, Value)
    return out


def _by_attribute(name: str) -> Callable[..., Any]:
    def entry(ctx: Context, x: Value, *, axes: tuple[int, ...] = (), keepdims: int = 1) -> Value:
        return _reduce(name, x, axes or tuple(range(x.type.rank)), keepdims)

    return entry


def _by_input(name: str) -> Callable[..., Any]:
    def entry(ctx: Context, x: Value, axes: Value | None, *, keepdims: int = 1,
              noop_with_empty_axes: int = 0) -> Value:
        given = axes is not None and axes.type.shape != (0,)
        at = ctx.ints(axes, "axes") if given and axes is not None else ()
        if not at and not noop_with_empty_axes:
            at = tuple(range(x.type.rank))
        return _reduce(name, x, at, keepdims)

    return entry


for _op, _name in REDUCTIONS.items():
    _since = 13 if _op == "ReduceSum" else 18
    importer(_op, until=_since - 1)(_by_attribute(_name))
    importer(_op, since=_since)(_by_input(_name))


def _arg(name: str) -> Callable[..., Any]:
    def entry(ctx: Context, x: Value, *, axis: int = 0, keepdims: int = 1,
              select_last_index: int = 0) -> object:
        return REGISTRY[name](x, axis=axis, keepdims=bool(keepdims),
                              select_last=bool(select_last_index))

    return entry


def _scan(name: str) -> Callable[..., Any]:
    def entry(ctx: Context, x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0
              ) -> object:
        return REGISTRY[name](x, axis=ctx.ints(axis, "axis")[0], exclusive=bool(exclusive),
                              reverse=bool(reverse))

    return entry


for _op, _name in (("ArgMax", "argmax"), ("ArgMin", "argmin")):
    importer(_op)(_arg(_name))
for _op, _name in (("CumSum", "cumsum"), ("CumProd", "cumprod")):
    importer(_op)(_scan(_name))


def _flattened(name: str) -> Callable[..., Any]:
    """Until opset 12 the axes from `axis` on count as one."""
    def entry(ctx: Context, x: Value, *, axis: int = 1) -> object:
        at = axis_of(axis, x.type.rank) if x.type.rank else 0
        if at == x.type.rank - 1:
            return REGISTRY[name](x, axis=at)
        rows = REGISTRY["reshape"](x, shape=(count(x.shape[:at]), count(x.shape[at:])))
        return REGISTRY["reshape"](REGISTRY[name](rows, axis=1), shape=x.shape)

    return entry


def _along_axis(name: str) -> Callable[..., Any]:
    def entry(ctx: Context, x: Value, *, axis: int = -1) -> object:
        return REGISTRY[name](x, axis=axis)

    return entry


for _op, _name in (("Softmax", "softmax"), ("LogSoftmax", "log_softmax"), ("Hardmax", "hardmax")):
    importer(_op, until=12)(_flattened(_name))
    importer(_op, since=13)(_along_axis(_name))


@importer("TopK", until=9)
def topk_attribute(ctx: Context, x: Value, *, k: int, axis: int = -1) -> object:
    """A fixed number of the largest elements."""
    return REGISTRY["topk"](x, k=k, axis=axis)


@importer("TopK", since=10)
def topk(ctx: Context, x: Value, k: Value, *, axis: int = -1, largest: int = 1, sorted_: int = 1
         ) -> object:
    """The number of elements as a tensor of one element."""
    return REGISTRY["topk"](x, k=ctx.sizes(k, "k")[0], axis=axis, largest=bool(largest),
                            sorted=bool(sorted_))


@importer("NonZero")
def nonzero(ctx: Context, x: Value) -> object:
    """Positions of what is not zero."""
    return REGISTRY["nonzero"](x, names=(ctx.fresh("nonzero"),))


@importer("Compress")
def compress(ctx: Context, x: Value, condition: Value, *, axis: int | None = None) -> object:
    """What a vector of conditions selects."""
    return REGISTRY["compress"](x, condition, axis=axis, names=(ctx.fresh("selected"),))


@importer("Unique")
def unique(ctx: Context, x: Value, *, axis: int | None = None, sorted_: int = 1) -> object:
    """Distinct elements, with where they are and how many."""
    return REGISTRY["unique"](x, axis=axis, sorted=bool(sorted_), names=(ctx.fresh("unique"),))


@importer("NonMaxSuppression")
def non_max_suppression(ctx: Context, boxes: Value, scores: Value, most: Value | None,
                        iou: Value | None, least: Value | None, *, center_point_box: int = 0
                        ) -> object:
    """Boxes without those that overlap a better one."""
    return REGISTRY["non_max_suppression"](
        boxes, scores, max_boxes=most, iou_threshold=iou, score_threshold=least,
        center_point=bool(center_point_box), names=(ctx.fresh("boxes"),))


@importer("Unique", domain=MICROSOFT)
def contrib_unique(ctx: Context, x: Value) -> object:
    """Distinct elements as first met, the number of each element's own, and counts."""
    out = REGISTRY["unique"](x, axis=None, sorted=False, names=(ctx.fresh("unique"),))
    assert isinstance(out, tuple)
    return out[0], out[2], out[3]
