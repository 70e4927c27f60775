"""Elementwise activation functions.

The smooth gates (gelu, silu, mish and their kin) are x times a factor that tends to 0, so at
-infinity they give NaN, as their formulas and PyTorch do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..declare import m
from ..declare.kinds import elementwise
from ..declare.scalar import Num, Scalar
from ..declare.schema import Sample, arr, known, sample
from ..errors import OperatorError

INF, NAN = float("inf"), float("nan")
X = [-3.0, -0.5, 0.0, 0.75, 2.0]
ANY = [sample("f32[4,8]"), sample("bf16[5]")]
INV_SQRT2 = 2.0**-0.5
SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def _half(*expect: float) -> Sample:
    """The answers in f16 at -60000, -20, -4, 9 and 60000, where a careless body overflows."""
    return known(arr([-60000.0, -20.0, -4.0, 9.0, 60000.0], "f16"), expect=[list(expect)],
                 rtol=2e-3)


@elementwise(samples=[*ANY, known([-2.0, -0.0, 0.0, 3.0, INF, -INF, NAN],
                                  expect=[[0.0, 0.0, 0.0, 3.0, INF, 0.0, NAN]]),
                      known(arr([-3, 4], "i8"), expect=[[0, 4]])])
def relu(x: Scalar) -> Scalar:
    """The positive part of x; the derivative at 0 is 0."""
    return m.where(x <= 0, 0, x)


@elementwise(samples=[*ANY, known([*X, NAN], alpha=0.1,
                                  expect=[[-0.3, -0.05, 0.0, 0.75, 2.0, NAN]])])
def leaky_relu(x: Scalar, *, alpha: float = 0.01) -> Scalar:
    """X where x > 0, else alpha * x."""
    return m.where(x > 0, x, alpha * x)


@elementwise(samples=[sample("f32[2,3,4]", "f32[3,1]"),
                      known(X, [0.5], expect=[[-1.5, -0.25, 0.0, 0.75, 2.0]]),
                      known(arr([-3, 4], "i32"), arr([2], "i32"), expect=[[-6, 4]])])
def prelu(x: Scalar, slope: Scalar) -> Scalar:
    """X where x > 0, else slope * x."""
    return m.where(x > 0, x, slope * x)


@elementwise(samples=[*ANY, known(X, alpha=1.5, expect=[[-1.4253194, -0.59020401, 0.0, 0.75, 2.0]]),
                      known([-INF, INF, 1e-8, NAN], expect=[[-1.0, INF, 1e-8, NAN]])])
def elu(x: Scalar, *, alpha: float = 1.0) -> Scalar:
    """X where x > 0, else alpha * (e ** x - 1). Clevert et al. 2015."""
    return m.where(x > 0, x, alpha * m.expm1(x))


@elementwise(samples=[*ANY, known([*X, -INF], expect=[[-1.67056873, -0.69175819, 0.0, 0.788025767,
                                                       2.10140204, -1.75809934]]),
                      _half(-1.7578125, -1.7578125, -1.7255859375, 9.453125, 63040.0)])
def selu(x: Scalar, *, alpha: float = 1.67326319217681884765625,
         gamma: float = 1.05070102214813232421875) -> Scalar:
    """Gamma * elu(x, alpha). Klambauer et al. 2017; the defaults are ONNX's."""
    return gamma * m.where(x > 0, x, alpha * m.expm1(x))


@elementwise(samples=[*ANY, known([*X, -INF], alpha=2.0,
                                  expect=[[-1.55373968, -0.442398434, 0.0, 0.75, 2.0, -2.0]])])
def celu(x: Scalar, *, alpha: float = 1.0) -> Scalar:
    """max(0, x) + min(0, alpha * (e ** (x / alpha) - 1)). Barron 2017."""
    if not alpha > 0:
        raise OperatorError(f"celu needs alpha > 0, got {alpha}")
    return m.where(x > 0, x, alpha * m.expm1(x / alpha))


def _dgelu(x: Scalar) -> Sequence[Num]:
    return (0.5 * (1.0 + m.erf(x * INV_SQRT2))
            + x * m.exp(-0.5 * (x * x)) * (INV_SQRT2 / math.sqrt(math.pi)),)


@elementwise(derivative=_dgelu, samples=[
    *ANY, known(X, rtol=5e-5, expect=[[-0.00404969409, -0.154268769, 0.0, 0.580029486,
                                       1.95449974]]),
    _half(-0.0, -0.0, -0.00012671947, 9.0, 60000.0)])
def gelu(x: Scalar) -> Scalar:
    """X times the normal distribution function of x. Hendrycks and Gimpel 2016."""
    return 0.5 * x * (1.0 + m.erf(x * INV_SQRT2))


def _dgelu_tanh(x: Scalar) -> Sequence[Num]:
    t = m.tanh(SQRT_2_OVER_PI * (x + 0.044715 * (x * x * x)))
    slope = SQRT_2_OVER_PI * (1.0 + 0.134145 * (x * x))
    return (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope,)


@elementwise(derivative=_dgelu_tanh, samples=[
    *ANY, known(X, rtol=5e-5, expect=[[-0.00363739208, -0.15428599, 0.0, 0.579960555,
                                       1.95459769]]),
    _half(0.0, 0.0, -7.0273876e-05, 9.0, 60000.0)])
def gelu_tanh(x: Scalar) -> Scalar:
    """gelu by 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x ** 3)))."""
    return 0.5 * x * (1.0 + m.tanh(SQRT_2_OVER_PI * (x + 0.044715 * (x * x * x))))


def _dsigmoid(x: Scalar) -> Sequence[Num]:
    s = sigmoid(x)
    return (s * (1.0 - s),)


@elementwise(derivative=_dsigmoid, samples=[
    *ANY, known(X, expect=[[0.0474258732, 0.377540669, 0.5, 0.679178699, 0.880797078]]),
    known([-200.0, 200.0, -INF, INF, NAN], expect=[[0.0, 1.0, 0.0, 1.0, NAN]]),
    _half(0.0, 0.0, 0.017990112, 1.0, 1.0)])
def sigmoid(x: Scalar) -> Scalar:
    """1 / (1 + e ** -x)."""
    return 1.0 / (1.0 + m.exp(-x))  # differentiated as written it would give inf / inf


def _dsoftplus(x: Scalar) -> Sequence[Num]:
    return (sigmoid(x),)


@elementwise(derivative=_dsoftplus, samples=[
    *ANY, known(X, expect=[[0.0485873516, 0.474076984, 0.693147181, 1.13687101, 2.12692801]]),
    known([-INF, INF, 1000.0, NAN], expect=[[0.0, INF, 1000.0, NAN]]),
    _half(0.0, 0.0, 0.0181427, 9.0, 60000.0)])
def softplus(x: Scalar) -> Scalar:
    """log(1 + e ** x), without overflow."""
    return m.max_(x, 0.0) + m.log1p(m.exp(-m.abs_(x)))


@elementwise(samples=[*ANY, known(X, expect=[[-3.04858735, -0.974076984, -0.693147181, -0.386871006,
                                              -0.126928011]]),
                      known([-INF, INF, -1000.0], expect=[[-INF, 0.0, -1000.0]]),
                      _half(-60000.0, -20.0, -4.01953125, -0.00012338161, 0.0)])
def log_sigmoid(x: Scalar) -> Scalar:
    """log(sigmoid(x)), without underflow."""
    return -softplus(-x)


@elementwise(samples=[*ANY, known(X, expect=[[-0.75, -0.333333333, 0.0, 0.428571429,
                                              0.666666667]])])
def softsign(x: Scalar) -> Scalar:
    """X / (1 + |x|)."""
    return x / (1.0 + m.abs_(x))


@elementwise(samples=[*ANY, known(X, expect=[[-0.14227762, -0.188770334, 0.0, 0.509384024,
                                              1.76159416]]),
                      known([-200.0, 200.0, INF, NAN], expect=[[0.0, 200.0, INF, NAN]]),
                      _half(0.0, -5.9604645e-08, -0.0719604, 9.0, 60000.0)])
def silu(x: Scalar) -> Scalar:
    """X * sigmoid(x). Elfwing et al. 2017."""
    return x * sigmoid(x)


@elementwise(samples=[*ANY, known(X, beta=2.0, expect=[[-0.00741786947, -0.134470711, 0.0,
                                                        0.613180857, 1.96402758]])])
def swish(x: Scalar, *, beta: float = 1.0) -> Scalar:
    """X * sigmoid(beta * x). Ramachandran et al. 2017; ONNX calls beta alpha."""
    return x * sigmoid(beta * x)


@elementwise(samples=[*ANY, known(X, expect=[[-0.0180713097, -0.149611563, 0.0, 0.586390058,
                                              1.93565862]])])
def quick_gelu(x: Scalar, *, alpha: float = 1.702) -> Scalar:
    """X * sigmoid(alpha * x), an approximation of gelu."""
    return x * sigmoid(alpha * x)


@elementwise(samples=[*ANY, known(X, expect=[[-0.145647461, -0.220743775, 0.0, 0.610018335,
                                              1.94395896]]),
                      _half(0.0, -5.9604645e-08, -0.0725708, 9.0, 60000.0)])
def mish(x: Scalar) -> Scalar:
    """X * tanh(softplus(x)). Misra 2019."""
    return x * m.tanh(softplus(x))


def _band(x: Scalar, low: Num, high: Num, at_low: Num, at_high: Num, inside: Scalar) -> Scalar:
    """`at_low` where x <= low, `at_high` where x >= high, `inside` between and for NaN."""
    return m.where(x <= low, at_low, m.where(x >= high, at_high, inside))


@elementwise(samples=[*ANY, known([-1.0, 0.0, 5.0, 7.0, INF, NAN],
                                  expect=[[0.0, 0.0, 5.0, 6.0, 6.0, NAN]])])
def relu6(x: Scalar) -> Scalar:
    """X clipped to 0..6; the derivative is 0 at both ends."""
    return _band(x, 0, 6, 0, 6, x)


@elementwise(samples=[*ANY, known([-3.0, -1.0, 0.5, 2.0, NAN],
                                  expect=[[-1.0, -1.0, 0.5, 1.0, NAN]])])
def hardtanh(x: Scalar, *, low: float = -1.0, high: float = 1.0) -> Scalar:
    """X clipped to low..high; the derivative is 0 at both ends."""
    if low > high:
        raise OperatorError(f"hardtanh needs low <= high, got {low} and {high}")
    return _band(x, low, high, low, high, x)


@elementwise(samples=[*ANY, known([*X, INF, -INF, NAN],
                                  expect=[[0.0, 0.4, 0.5, 0.65, 0.9, 1.0, 0.0, NAN]])])
def hard_sigmoid(x: Scalar, *, alpha: float = 0.2, beta: float = 0.5) -> Scalar:
    """max(0, min(1, alpha * x + beta)); the derivative is 0 at both ends."""
    y = alpha * x + beta
    return _band(y, 0.0, 1.0, 0.0, 1.0, y)


@elementwise(samples=[*ANY, known([*X, INF, -INF, NAN],
                                  expect=[[0.0, -0.208333333, 0.0, 0.46875, 1.66666667, INF, 0.0,
                                           NAN]])])
def hard_swish(x: Scalar) -> Scalar:
    """X * max(0, min(1, x / 6 + 1 / 2)). Howard et al. 2019."""
    return _band(x, -3.0, 3.0, 0.0, x, x * (x + 3.0) * (1.0 / 6.0))


@elementwise(samples=[*ANY, known([-1.0, 1.0, 1.5, NAN], expect=[[0.0, 0.0, 1.5, NAN]])])
def thresholded_relu(x: Scalar, *, alpha: float = 1.0) -> Scalar:
    """X where x > alpha, else 0; NaN stays NaN. ONNX ThresholdedRelu."""
    return m.where(x <= alpha, 0, x)


@elementwise(samples=[*ANY, known([-2.0, -0.5, 0.25, 2.0, NAN], bias=0.5,
                                  expect=[[-1.5, 0.0, 0.0, 1.5, NAN]])])
def shrink(x: Scalar, *, lambd: float = 0.5, bias: float = 0.0) -> Scalar:
    """X + bias below -lambd, x - bias above lambd, else 0; NaN stays NaN. ONNX Shrink."""
    return m.where(x < -lambd, x + bias, m.where(x <= lambd, 0, x - bias))


@elementwise(samples=[sample("f32[4,8]", cap=5.0), sample("f32[4]", cap=30.0, low=-90, high=90),
                      known([*X, INF], cap=2.0, expect=[[-1.81029651, -0.489837325, 0.0,
                                                         0.716714797, 1.52318831, 2.0]])])
def softcap(x: Scalar, *, cap: float) -> Scalar:
    """Cap * tanh(x / cap), which bounds x smoothly to -cap..cap."""
    if not cap > 0:
        raise OperatorError(f"softcap needs cap > 0, got {cap}")
    return cap * m.tanh(x / cap)
