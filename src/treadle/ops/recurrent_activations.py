"""The activations that ONNX lets a recurrent layer name, on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ..declare.arrays import Array
from ..errors import OperatorError

Activation: TypeAlias = Callable[[Array], Array]
_Rule: TypeAlias = Callable[[Array, float, float], Array]


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def _elu(x: Array, a: float) -> Array:
    return np.where(x > 0, x, a * np.expm1(np.minimum(x, 0)))


_TABLE: dict[str, tuple[_Rule, float | None, float | None]] = {
    "relu": (lambda x, _a, _b: np.maximum(x, 0), None, None),
    "tanh": (lambda x, _a, _b: np.tanh(x), None, None),
    "sigmoid": (lambda x, _a, _b: sigmoid(x), None, None),
    "softsign": (lambda x, _a, _b: x / (1 + np.abs(x)), None, None),
    "softplus": (lambda x, _a, _b: np.logaddexp(x, 0), None, None),
    "leakyrelu": (lambda x, a, _b: np.where(x >= 0, x, a * x), 0.01, None),
    "thresholdedrelu": (lambda x, a, _b: np.where(x > a, x, 0), 1.0, None),
    "elu": (lambda x, a, _b: _elu(x, a), 1.0, None),
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5)}
"""Name in lower case: the function of (x, alpha, beta), and defaults of what it takes."""


def check_activations(names: Sequence[str], want: int) -> None:
    """An error unless the names are known and none or `want` are given."""
    if len(names) not in (0, want):
        raise OperatorError(f"{len(names)} activations are given, {want} are needed")
    for name in names:
        if name.lower() not in _TABLE:
            raise OperatorError(f"the activation '{name}' is unknown",
                                hint=f"known: {', '.join(_TABLE)}, in any case")


def activations_of(names: Sequence[str], alpha: Sequence[float], beta: Sequence[float]
                   ) -> list[Activation]:
    """The functions behind names; each that takes alpha or beta uses up the next one given."""
    alphas, betas, out = list(alpha), list(beta), list[Activation]()
    for name in names:
        rule, a, b = _TABLE[name.lower()]
        if a is not None and alphas:
            a = alphas.pop(0)
        if b is not None and betas:
            b = betas.pop(0)
        out.append(_bound(rule, a or 0.0, b or 0.0))
    return out


def _bound(rule: _Rule, a: float, b: float) -> Activation:
    return lambda x: rule(x, a, b).astype(x.dtype, copy=False)
