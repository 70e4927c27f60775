"""Support vector machines, trained by LIBSVM or LIBLINEAR.

LIBSVM decides between every pair of classes (i, j), i < j; a classifier has one coefficient for
each support vector and each of its C - 1 opponents. Source: C.-C. Chang and C.-J. Lin, "LIBSVM: a
library for support vector machines", 2011; where ai.onnx.ml is vague, ONNX Runtime.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal

import numpy as np

from ..declare.arrays import Array, blob
from ..declare.kinds import composite, structured
from ..declare.opdef import cast_value
from ..declare.schema import known, sample
from ..errors import OperatorError
from ..ir.graph import Value
from ..ir.types import I64, TensorType
from .activations import sigmoid
from .arithmetic import pow as power
from .compare import ge, gt, logical_and, logical_or, lt, where
from .contract import matmul
from .extents import surely_differ
from .gather import gather, gather_elements
from .leaves import constant
from .mathfn import exp, tanh
from .ml_scores import ORACLE, rows, transformed, two_scores
from .movement import concat, reshape, transpose
from .reduce import reduce_max, sum_
from .scan1d import argmax

EDGE = 1e-7
"""LIBSVM keeps the probability of a pair this far from 0 and 1."""
ROUNDS = 100


@composite(samples=[
    sample("f32[3,4]", "f32[5,4]", kernel=k, gamma=0.3, coef0=0.2, degree=3.0,
           expect=ORACLE + "svm_kernel", rtol=1e-4)
    for k in ("LINEAR", "POLY", "RBF", "SIGMOID")])
def svm_kernel(x: Value, vectors: Value, *,
               kernel: Literal["LINEAR", "POLY", "RBF", "SIGMOID"] = "LINEAR",
               gamma: float = 0.0, coef0: float = 0.0, degree: float = 0.0) -> Value:
    """The kernel of every row of x[N, F] with every vector[V, F], as [N, V].

    x.v, (gamma x.v + coef0)^degree, exp(-gamma |x - v|^2) or tanh(gamma x.v + coef0).
    """
    x = rows(x)
    if kernel == "RBF":
        apart = reshape(x, shape=(x.shape[0], 1, x.shape[1])) - vectors
        return exp(sum_(apart * apart, axes=(2,)) * -gamma)
    product = matmul(x, transpose(vectors, perm=(1, 0)))
    if kernel == "LINEAR":
        return product
    inner = product * gamma + coef0
    return tanh(inner) if kernel == "SIGMOID" else power(inner, degree)


@composite(samples=[
    sample("f32[3,4]", "f32[5]", "f32[1]", vectors="f32[5,4]", kernel="RBF", gamma=0.3,
           one_class=one, expect=ORACLE + "svm_regressor", rtol=1e-4) for one in (False, True)] + [
    sample("f32[3,4]", "f32[4]", "f32[1]", expect=ORACLE + "svm_regressor", rtol=1e-4)])
def svm_regressor(x: Value, coefficients: Value, rho: Value, *, vectors: Value | None = None,
                  kernel: Literal["LINEAR", "POLY", "RBF", "SIGMOID"] = "LINEAR",
                  gamma: float = 0.0, coef0: float = 0.0, degree: float = 0.0,
                  one_class: bool = False) -> Value:
    """The kernels of x[N, F] with vectors[V, F] times coefficients[V], plus rho[1]: [N, 1].

    Without vectors a linear model. `one_class` gives the sign instead: 1 above 0, else -1.
    """
    terms = rows(x) if vectors is None else svm_kernel(
        x, vectors, kernel=kernel, gamma=gamma, coef0=coef0, degree=degree)
    out = matmul(terms, reshape(coefficients, shape=(coefficients.shape[0], 1))) + rho
    return where(gt(out, 0.0), 1.0, out * 0.0 - 1.0) if one_class else out


def _pairs(classes: int) -> list[tuple[int, int]]:
    return list(itertools.combinations(range(classes), 2))


def _fixed(table: Array) -> Value:
    return constant(value=blob(table))


def _decisions(kernels: Value, coefficients: Value, rho: Value, per_class: Sequence[int]
               ) -> Value:
    """The decision value of every pair of classes, [N, pairs]."""
    owner = np.repeat(np.arange(len(per_class)), per_class)
    nothing = len(per_class) - 1
    which = np.full((len(_pairs(len(per_class))), len(owner)), nothing, np.int64)
    for p, (i, j) in enumerate(_pairs(len(per_class))):
        which[p][owner == i], which[p][owner == j] = j - 1, i
    zero = coefficients.shape[1]
    padded = concat([coefficients, _fixed(np.zeros((1, sum(per_class)), np.float32))], axis=0)
    if zero != sum(per_class):
        raise OperatorError(f"{zero} coefficients a row for {sum(per_class)} support vectors")
    weights = gather_elements(padded, _fixed(which), axis=0)
    return matmul(kernels, transpose(weights, perm=(1, 0))) + rho


def _votes(decisions: Value, classes: int) -> Value:
    """How many pairs each class wins, [N, C]."""
    pairs = _pairs(classes)
    first, second = (np.eye(classes, dtype=np.float32)[[p[k] for p in pairs]] for k in (0, 1))
    won = cast_value(gt(decisions, 0.0), decisions.dtype)
    return matmul(won, _fixed(first)) + matmul(1.0 - won, _fixed(second))


def _coupling_types(r: TensorType) -> TensorType:
    if r.rank != 3 or r.dtype.sort != "float" or r.dtype.narrow or 0 in r.shape[1:] or (
            surely_differ(r.shape[1], r.shape[2])):
        raise OperatorError(f"r[N, C, C] in f32 or f64 is needed, got {r}")
    return r.with_(shape=r.shape[:2])


@structured(types=_coupling_types, samples=[
    known([[[0.0, 0.9, 0.7], [0.1, 0.0, 0.6], [0.3, 0.4, 0.0]],
           [[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]]],
          expect=ORACLE + "couple_probabilities", rtol=1e-2)])
def couple_probabilities(r: Array) -> Array:
    """Class probabilities p[N, C] from r[N, i, j], the probability of i where it is i or j.

    Minimises sum over i != j of (r[j, i] p[i] - r[i, j] p[j])^2. Source: T.-F. Wu, C.-J. Lin,
    R. Weng, "Probability Estimates for Multi-class Classification by Pairwise Coupling", 2004,
    algorithm 2, with LIBSVM's stopping rule.
    """
    classes = r.shape[1]
    if not classes:
        raise OperatorError("there are no classes")
    other = np.transpose(r, (0, 2, 1))
    q = -other * r
    square = other * other
    square[:, range(classes), range(classes)] = 0
    q[:, range(classes), range(classes)] = square.sum(2)
    p = np.full(r.shape[:2], 1 / classes, r.dtype)
    open_rows = np.arange(len(r))
    for _ in range(ROUNDS):
        qp = np.einsum("nij,nj->ni", q[open_rows], p[open_rows])
        total = (p[open_rows] * qp).sum(1)
        late = np.abs(qp - total[:, None]).max(1, initial=0) >= 0.005 / classes
        open_rows, qp, total = open_rows[late], qp[late], total[late]
        if not len(open_rows):
            break
        p[open_rows] = _round(q[open_rows], p[open_rows], qp, total)
    return p


def _round(q: Array, p: Array, qp: Array, total: Array) -> Array:
    """One pass over the classes."""
    for i in range(p.shape[1]):
        step = (total - qp[:, i]) / q[:, i, i]
        grown = 1 + step
        p[:, i] += step
        total = (total + step * (step * q[:, i, i] + 2 * qp[:, i])) / grown / grown
        qp = (qp + step[:, None] * q[:, i]) / grown[:, None]
        p = p / grown[:, None]
    return p


def _probabilities(decisions: Value, proba: Value, probb: Value, classes: int) -> Value:
    """Class probabilities by Platt's sigmoid for every pair, and coupling."""
    pairs = _pairs(classes)
    won = 1.0 - sigmoid(decisions * proba + probb)
    won = where(gt(won, EDGE), won, EDGE)
    won = where(gt(won, 1 - EDGE), 1 - EDGE, won)
    at = np.full((classes, classes), 2 * len(pairs), np.int64)
    for p, (i, j) in enumerate(pairs):
        at[i, j], at[j, i] = p, len(pairs) + p
    every = concat([won, 1.0 - won, won * 0.0], axis=1)
    return couple_probabilities(gather(every, _fixed(at), axis=1))


@composite(samples=[
    sample("f32[6,4]", "f32[2,5]", "f32[3]", vectors="f32[5,4]", per_class=(2, 1, 2),
           kernel="RBF", gamma=0.3, transform=t, expect=ORACLE + "svm_classifier", rtol=1e-4)
    for t in ("NONE", "LOGISTIC")] + [
    sample("f32[6,4]", "f32[1,5]", "f32[1]", vectors="f32[5,4]", per_class=(2, 3),
           transform=t, expect=ORACLE + "svm_classifier", rtol=1e-4)
    for t in ("NONE", "LOGISTIC", "SOFTMAX")] + [
    sample("f32[6,4]", "f32[2,5]", "f32[3]", vectors="f32[5,4]", prob_a="f32[3]",
           prob_b="f32[3]", per_class=(2, 1, 2), expect=ORACLE + "svm_classifier", rtol=1e-3),
    sample("f32[6,4]", "f32[1,5]", "f32[1]", vectors="f32[5,4]", prob_a="f32[1]",
           prob_b="f32[1]", per_class=(2, 3), expect=ORACLE + "svm_classifier", rtol=1e-3),
    sample("f32[6,4]", "f32[3,4]", "f32[1]", expect=ORACLE + "svm_classifier", rtol=1e-4),
    sample("f32[6,4]", "f32[2,4]", "f32[1]", transform="LOGISTIC",
           expect=ORACLE + "svm_classifier", rtol=1e-4)])
def svm_classifier(x: Value, coefficients: Value, rho: Value, *, vectors: Value | None = None,
                   prob_a: Value | None = None, prob_b: Value | None = None,
                   per_class: tuple[int, ...] = (),
                   kernel: Literal["LINEAR", "POLY", "RBF", "SIGMOID"] = "LINEAR",
                   gamma: float = 0.0, coef0: float = 0.0, degree: float = 0.0,
                   transform: Literal["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO",
                                      "PROBIT"] = "NONE") -> tuple[Value, Value]:
    """The class of each row of x[N, F] and its scores.

    With vectors[V, F], `per_class` of each class in order, coefficients[C - 1, V] and rho[pairs]:
    the class with most votes; the scores are the decision values [N, pairs], of two classes
    [N, 2], or with prob_a[pairs] and prob_b[pairs] probabilities [N, C]. Without vectors
    coefficients[C, F] are linear models, rho[1] is added, and the largest score wins.
    """
    if vectors is None:
        return _linear(x, coefficients, rho, transform)
    classes = len(per_class)
    if not classes or min(per_class) < 0 or surely_differ(
            sum(per_class), vectors.shape[0]):
        raise OperatorError(f"per_class={per_class} does not divide the vectors {vectors.type}")
    terms = svm_kernel(x, vectors, kernel=kernel, gamma=gamma, coef0=coef0, degree=degree)
    decisions = _decisions(terms, coefficients, rho, per_class)
    winner = argmax(_votes(decisions, classes), axis=-1)
    if prob_a is not None and prob_b is not None:
        return winner, transformed(_probabilities(decisions, prob_a, prob_b, classes), transform)
    if classes > 2:
        return winner, transformed(decisions, transform)
    return winner, two_scores(decisions, transform, 0.0 if transform == "NONE" else 1.0)


def _linear(x: Value, coefficients: Value, rho: Value, transform: str) -> tuple[Value, Value]:
    """Linear models: the largest score wins, but of two classes ONNX Runtime prefers the second.

    It wins where any score is above 0, or at least 0.5 when no coefficient is negative.
    """
    scores = matmul(rows(x), transpose(coefficients, perm=(1, 0))) + rho
    best = argmax(scores, axis=-1)
    if coefficients.shape[0] == 2:
        top = reduce_max(scores, axes=(-1,))
        lowest = -reduce_max(-coefficients, axes=(0, 1))
        second = logical_or(logical_and(lt(lowest, 0.0), gt(top, 0.0)),
                            logical_and(ge(lowest, 0.0), ge(top, 0.5)))
        best = where(second, 1, best)
    return cast_value(best, I64), transformed(scores, transform)
