"""Linear models, and what turns the scores of a model into its outputs.

A classifier gives the number of each row's class and its scores; which label a class has is the
caller's. Where the ONNX standard is vague the meaning is ONNX Runtime's.
"""

from __future__ import annotations

import math
from typing import Literal

from ..declare import m
from ..declare.kinds import composite, elementwise
from ..declare.opdef import cast_value
from ..declare.scalar import Scalar
from ..declare.schema import known, sample
from ..errors import OperatorError
from ..ir.graph import Value
from ..ir.types import F32, I64
from .activations import sigmoid
from .compare import gt, where
from .contract import matmul
from .mathfn import exp
from .movement import concat, reshape, transpose
from .reduce import reduce_max, sum_
from .scan1d import argmax, softmax

Transform = Literal["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
ORACLE = "tests.oracles.ml:"
WINITZKI = 0.147
TINY = 1e-7
"""Scores not above this count as absent in SOFTMAX_ZERO."""


@elementwise(samples=[known([0.1, 0.45, 0.75, 0.999], expect=ORACLE + "probit", rtol=1e-4)])
def probit(x: Scalar) -> Scalar:
    """The inverse of the normal distribution function, within 0.3 %.

    sqrt(2) erfinv(2 x - 1), erfinv by S. Winitzki's formula with a = 0.147 ("A handy
    approximation for the error function and its inverse", 2008), as ONNX Runtime computes it.
    """
    y = 2.0 * x - 1.0
    log = m.log((1.0 - y) * (1.0 + y))
    v = 2.0 / (math.pi * WINITZKI) + 0.5 * log
    size = m.sqrt(m.sqrt(v * v - log / WINITZKI) - v)
    return m.where(y < 0, -size, size) * math.sqrt(2.0)


@composite(samples=[
    known([[1.0, 0.0, 2.0], [0.0, 0.0, -1.0]], expect=ORACLE + "softmax_zero", rtol=1e-5)])
def softmax_zero(x: Value) -> Value:
    """softmax over the last axis in which scores of 0 have no part (ai.onnx.ml SOFTMAX_ZERO)."""
    top = reduce_max(x, axes=(-1,), keepdims=True)
    there = gt(where(gt(x, 0.0), x, -x), TINY)
    part = where(there, exp(x - top), x * exp(-top))
    return part / sum_(where(there, part, 0.0), axes=(-1,), keepdims=True)


def transformed(scores: Value, transform: str) -> Value:
    """Scores of two or more classes after a post_transform."""
    if transform not in TRANSFORMS:
        raise OperatorError(f"the transform {transform!r}", hint=f"one of {', '.join(TRANSFORMS)}")
    if transform == "LOGISTIC":
        return sigmoid(scores)
    if transform == "SOFTMAX":
        return softmax(scores, axis=-1)
    if transform == "SOFTMAX_ZERO":
        return softmax_zero(scores)
    return probit(scores) if transform == "PROBIT" else scores


def rows(x: Value) -> Value:
    """x[N, F] as it is, integers in f32; a vector is one row."""
    if x.type.rank not in (1, 2):
        raise OperatorError(f"x[F] or x[N, F] is needed, got {x.type}")
    x = x if x.type.rank == 2 else reshape(x, shape=(1, *x.shape))
    return x if x.dtype.sort == "float" else cast_value(x, F32)


def _affine(x: Value, coefficients: Value, intercepts: Value | None) -> Value:
    out = matmul(rows(x), transpose(coefficients, perm=(1, 0)))
    return out if intercepts is None else out + intercepts


@composite(samples=[
    sample("f32[3,4]", "f32[2,4]", intercepts="f32[2]", transform=t, low=0.05, high=0.3,
           expect=ORACLE + "linear_regressor", rtol=1e-4)
    for t in ("NONE", "LOGISTIC", "SOFTMAX", "PROBIT")] + [
    sample("f32[3,4]", "f32[1,4]", transform="SOFTMAX", expect=ORACLE + "linear_regressor",
           rtol=1e-5)])
def linear_regressor(x: Value, coefficients: Value, *, intercepts: Value | None = None,
                     transform: Literal["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO",
                                        "PROBIT"] = "NONE") -> Value:
    """x[N, F] times coefficients[T, F] plus intercepts[T], as [N, T].

    Only PROBIT changes a single target. Source: ai.onnx.ml LinearRegressor.
    """
    out = _affine(x, coefficients, intercepts)
    if coefficients.shape[0] == 1 and transform != "PROBIT":
        return out
    return transformed(out, transform)


@composite(samples=[
    sample("f32[3,4]", "f32[3,4]", intercepts="f32[3]", transform=t, low=0.05, high=0.3,
           expect=ORACLE + "linear_classifier", rtol=1e-4)
    for t in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")] + [
    sample("f32[4,3]", "f32[1,3]", intercepts="f32[1]", transform=t,
           expect=ORACLE + "linear_classifier", rtol=1e-4) for t in ("NONE", "LOGISTIC")])
def linear_classifier(x: Value, coefficients: Value, *, intercepts: Value | None = None,
                      transform: Literal["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO",
                                         "PROBIT"] = "NONE") -> tuple[Value, Value]:
    """The class of each row of x[N, F], and the scores x coefficients[C, F]' + intercepts[C].

    The largest score wins before the transform. One row of coefficients tells two classes apart:
    class 1 wins above 0, and the scores are those of `two_scores`.
    """
    scores = _affine(x, coefficients, intercepts)
    if coefficients.shape[0] != 1:
        return argmax(scores, axis=-1), transformed(scores, transform)
    winner = cast_value(reshape(gt(scores, 0.0), shape=(scores.shape[0],)), I64)
    return winner, two_scores(scores, transform, 1.0)


def two_scores(score: Value, transform: str, opposite: float) -> Value:
    """The scores of two classes, [N, 2], from that of the second: `opposite` - s and s.

    LOGISTIC gives sigmoid(-s) and sigmoid(s); other transforms change nothing.
    """
    if transform == "PROBIT":
        raise OperatorError("PROBIT of one score for two classes",
                            hint="give each class its scores")
    if transform == "LOGISTIC":
        return concat([sigmoid(-score), sigmoid(score)], axis=1)
    return concat([opposite - score, score], axis=1)
