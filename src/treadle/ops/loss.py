"""Losses."""

from __future__ import annotations

from typing import Literal

from ..declare.kinds import composite
from ..declare.opdef import cast_value, full_value, wide
from ..declare.schema import known, sample
from ..errors import OperatorError
from ..ir.graph import Value
from ..ir.types import I64, Shape, axis_of, shape_text
from .arithmetic import neg
from .compare import eq, lt, where
from .gather import gather, gather_elements
from .movement import reshape, squeeze, unsqueeze
from .reduce import mean, sum_
from .scan1d import log_softmax

ORACLE = "tests.oracles.loss"


def _reduced(loss: Value, weight: Value | None, reduction: str) -> Value:
    """The sum, the mean (over the sum of the weights when there are some) or the loss itself."""
    axes = tuple(range(loss.type.rank))
    if reduction == "none":
        return loss
    if reduction == "mean" and weight is None:
        return mean(loss, axes=axes)
    total = sum_(loss, axes=axes)
    return total if reduction == "sum" or weight is None else total / sum_(weight, axes=axes)


def _labels(target: Value, want: Shape, classes: Value, ignore_index: int | None
            ) -> tuple[Value, Value | None]:
    """Labels that gather can read, and which of them are ignored.

    A negative label becomes the number of classes, so that gather reports it.
    """
    if target.dtype.sort not in ("int", "uint") or target.shape != want:
        raise OperatorError(f"the target is {target.type}, integer labels {shape_text(want)} were "
                            "expected", hint="the shape is that of the scores without the classes")
    t = cast_value(target, I64)
    safe = where(lt(t, 0), classes, t)
    if ignore_index is None:
        return safe, None
    ignored = eq(t, ignore_index)
    return where(ignored, 0, safe), ignored


def _picked(logp: Value, target: Value, weight: Value | None, axis: int,
            ignore_index: int | None) -> tuple[Value, Value | None]:
    """Minus the weighted log-probability of each label, and the weights if they vary."""
    c, shape = logp.shape[axis], logp.shape
    safe, ignored = _labels(target, (*shape[:axis], *shape[axis + 1:]), full_value(c, I64),
                            ignore_index)
    one = gather_elements(logp, unsqueeze(safe, axes=(axis,)), axis=axis)
    loss = neg(squeeze(one, axes=(axis,)))
    w = None
    if weight is not None:
        if weight.shape != (c,):
            raise OperatorError(f"weight is {weight.type}, one number for each of {c} classes "
                                "was expected")
        w = gather(cast_value(weight, logp.dtype), safe, axis=0)
        loss = loss * w
    if ignored is not None:
        w = where(ignored, 0.0, full_value(1.0, logp.dtype) if w is None else w)
        loss = where(ignored, 0.0, loss)
    return loss, w


def _class_axis(x: Value, axis: int) -> int:
    if x.dtype.sort != "float" or x.type.rank < 1:
        raise OperatorError(f"{x.type} holds no scores of classes")
    return axis_of(axis, x.type.rank)


_SCORES = [[[1.0, 2.0], [2.0, 2.0], [3.0, 2.0]], [[0.0, 1.0], [2.0, 2.0], [1.0, 2.0]]]


@composite(samples=[
    known(_SCORES, [[2, 1], [0, 2]], reduction="none", expect=[[[-3.0, -2.0], [-0.0, -2.0]]]),
    known(_SCORES, [[2, 1], [0, 2]], weight=[0.2, 0.3, 0.1], reduction="sum", expect=[-1.1],
          rtol=1e-5),
    sample("f32[3,5]", "i64[3]", weight="f32[5]", ignore_index=2, low=0.5, high=4,
           expect=f"{ORACLE}:nll_loss", rtol=1e-5),
    sample("f32[3,5,2]", "i32[3,2]", ignore_index=-1, low=-1, high=4,
           expect=f"{ORACLE}:nll_loss", rtol=1e-5),
    sample("f16[3,5]", "i64[3]", low=0, high=4)])
def nll_loss(logp: Value, target: Value, *, weight: Value | None = None, axis: int = 1,
             ignore_index: int | None = None,
             reduction: Literal["none", "sum", "mean"] = "mean") -> Value:
    """Minus weight[label] times the log-probability of the label (ONNX NegativeLogLikelihoodLoss).

    logp holds classes along `axis`; target has its shape without that axis. Labels equal to
    ignore_index count 0. The mean divides by the sum of the weights of the labels that count.
    """
    at = _class_axis(logp, axis)
    loss, w = _picked(wide(logp), target, weight, at, ignore_index)
    return cast_value(_reduced(loss, w, reduction), logp.dtype)


@composite(samples=[
    sample("f32[3,5]", "i64[3]", weight="f32[5]", low=0.5, high=4,
           expect=f"{ORACLE}:softmax_cross_entropy", rtol=1e-5),
    sample("f32[3,5,2]", "i64[3,2]", ignore_index=2, reduction="none", low=0, high=4,
           expect=f"{ORACLE}:softmax_cross_entropy", rtol=1e-5),
    sample("f32[3,4]", "f32[3,4]", weight="f32[4]", axis=-1, reduction="sum"),
    known([[0.0, 0.0]], [[0.25, 0.75]], expect=[0.6931472, [[-0.6931472, -0.6931472]]]),
    sample("f16[3,5]", "i64[3]", low=0, high=4)])
def softmax_cross_entropy(scores: Value, target: Value, *, weight: Value | None = None,
                          axis: int = 1, ignore_index: int | None = None,
                          reduction: Literal["none", "sum", "mean"] = "mean"
                          ) -> tuple[Value, ...]:
    """nll_loss of log_softmax(scores), and that log_softmax (ONNX SoftmaxCrossEntropyLoss).

    A floating target of the scores' shape holds a distribution along `axis` instead of labels:
    the loss is then -sum(target * weight * log_softmax), and the mean is over the samples.
    """
    at = _class_axis(scores, axis)
    logp = log_softmax(wide(scores), axis=at)
    if target.dtype.sort != "float":
        loss, w = _picked(logp, target, weight, at, ignore_index)
    else:
        loss, w = _dense(logp, target, weight, at, ignore_index), None
    return cast_value(_reduced(loss, w, reduction), scores.dtype), cast_value(logp, scores.dtype)


def _dense(logp: Value, target: Value, weight: Value | None, axis: int,
           ignore_index: int | None) -> Value:
    if target.shape != logp.shape or ignore_index is not None:
        raise OperatorError(f"the target {target.type} is no distribution over {logp.type}",
                            hint="dense targets have the scores' shape and no ignore_index")
    terms = cast_value(target, logp.dtype) * logp
    if weight is not None:
        by = reshape(cast_value(weight, logp.dtype),
                     shape=(*weight.shape, *[1] * (logp.type.rank - axis - 1)))
        terms = terms * by
    return neg(sum_(terms, axes=(axis,)))


@composite(samples=[
    known([1.0, 2.0], [3.0, 5.0], expect=[6.5]),
    known([1.0, 2.0], [3.0, 5.0], reduction="none", expect=[[4.0, 9.0]]),
    sample("f16[4]", "f16[4]", low=100, high=200), sample("f32[2,3]", "f32[2,3]", reduction="sum")])
def mse(x: Value, y: Value, *, reduction: Literal["none", "sum", "mean"] = "mean") -> Value:
    """The squared difference of equal shapes, or its sum or mean."""
    if x.shape != y.shape:
        raise OperatorError(f"x {x.type} and y {y.type} differ in shape")
    d = wide(x) - wide(y)
    return cast_value(_reduced(d * d, None, reduction), x.dtype)
