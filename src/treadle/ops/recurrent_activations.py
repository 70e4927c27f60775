"""The activations that ONNX lets a recurrent layer name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..errors import OperatorError
from ..ir.graph import Value
from .activations import (
    elu,
    hard_sigmoid,
    leaky_relu,
    relu,
    sigmoid,
    softplus,
    softsign,
    thresholded_relu,
)
from .mathfn import tanh

Activation: TypeAlias = Callable[[Value], Value]
_Rule: TypeAlias = Callable[[Value, float, float], Value]

_TABLE: dict[str, tuple[_Rule, float | None, float | None]] = {
    "relu": (lambda x, _a, _b: relu(x), None, None),
    "tanh": (lambda x, _a, _b: tanh(x), None, None),
    "sigmoid": (lambda x, _a, _b: sigmoid(x), None, None),
    "softsign": (lambda x, _a, _b: softsign(x), None, None),
    "softplus": (lambda x, _a, _b: softplus(x), None, None),
    "leakyrelu": (lambda x, a, _b: leaky_relu(x, alpha=a), 0.01, None),
    "thresholdedrelu": (lambda x, a, _b: thresholded_relu(x, alpha=a), 1.0, None),
    "elu": (lambda x, a, _b: elu(x, alpha=a), 1.0, None),
    "affine": (lambda x, a, b: x * a + b, 1.0, 0.0),
    "scaledtanh": (lambda x, a, b: tanh(x * b) * a, 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: hard_sigmoid(x, alpha=a, beta=b), 0.2, 0.5)}
"""Name in lower case: the function of (x, alpha, beta), and defaults of what it takes."""


def activations_of(names: Sequence[str], default: Sequence[str], directions: int,
                   alpha: Sequence[float], beta: Sequence[float]) -> list[list[Activation]]:
    """The functions of each direction; each that takes alpha or beta uses up the next one given."""
    names, n = names or [*default] * directions, len(default)
    if len(names) != n * directions:
        raise OperatorError(f"{len(names)} activations are given, {n * directions} are needed")
    alphas, betas, out = list(alpha), list(beta), list[Activation]()
    for name in names:
        if (row := _TABLE.get(name.lower())) is None:
            raise OperatorError(f"the activation '{name}' is unknown",
                                hint=f"known: {', '.join(_TABLE)}, in any case")
        rule, a, b = row
        if a is not None and alphas:
            a = alphas.pop(0)
        if b is not None and betas:
            b = betas.pop(0)
        out.append(_bound(rule, a or 0.0, b or 0.0))
    return [out[d * n:(d + 1) * n] for d in range(directions)]


def _bound(rule: _Rule, a: float, b: float) -> Activation:
    return lambda x: rule(x, a, b)
