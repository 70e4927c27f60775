"""Coefficients of the polynomials in `treadle.loops.functions`.

They interpolate at the Chebyshev points, which is near the best possible in the largest error.
`python tools/polynomials.py` prints them, lowest power first, with the logarithm to base 2 of the
largest error that they would leave in the function, relative to it, before they are rounded to f64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath
from mpmath import mpf

Real = Callable[[float], float]


@dataclass(frozen=True)
class Fit:
    """`function` on `low..high` as `terms` coefficients; errors count `weight` times."""

    function: Real
    weight: Real
    low: object
    high: object
    terms: int

    def points(self, count: int) -> list[float]:
        """Chebyshev points of the interval."""
        low, high = mpf(self.low), mpf(self.high)
        return [(low + high) / 2 - (high - low) / 2 * mpmath.cos(
            mpmath.pi * (2 * i + 1) / (2 * count)) for i in range(count)]

    def coefficients(self) -> list[float]:
        """The coefficients, lowest power first."""
        at = self.points(self.terms)
        rows = mpmath.matrix([[x**k for k in range(self.terms)] for x in at])
        return list(mpmath.lu_solve(rows, mpmath.matrix([self.function(x) for x in at])))

    def error(self, coefficients: list[float]) -> float:
        """The largest weighted error of such coefficients."""
        return max(abs((mpmath.polyval(coefficients[::-1], x) - self.function(x)) * self.weight(x))
                   for x in self.points(200))


def _series(function: Real, first: Sequence[object], power: int) -> Real:
    """(function(x) - its first terms) / x**power in z = x * x, with the limit at 0."""
    def rest(z: float) -> float:
        x = mpmath.sqrt(z)
        head = sum((mpf(c) * x**k for k, c in enumerate(first)), mpf(0))
        return (function(x) - head) / x**power

    return rest


def _away(x: float) -> float:
    return x if abs(x) > 1e-20 else mpf(10) ** -20


def fits() -> dict[str, Fit]:
    """Every polynomial of `treadle.loops.functions`, by the name of its constant."""
    half_ln2, quarter = mpmath.log(2) / 2 * mpf("1.0001"), (mpmath.pi / 4 * mpf("1.0001")) ** 2
    s = (mpmath.sqrt(2) - 1) / (mpmath.sqrt(2) + 1) * mpf("1.0001")

    def exp_rest(x: float) -> float:
        return (mpmath.expm1(_away(x)) - _away(x)) / _away(x) ** 2

    sin = _series(mpmath.sin, [0, 1], 3)
    cos = _series(mpmath.cos, [1, 0, -0.5], 4)
    log = _series(lambda x: mpmath.log((1 + x) / (1 - x)), [0, 2], 3)
    asin = _series(mpmath.asin, [0, 1], 3)
    atan = _series(mpmath.atan, [0, 1], 3)
    deep = _series(mpmath.atanh, [0, 1, 0, mpf(1) / 3, 0, mpf(1) / 5], 7)
    return {
        "EXP": Fit(exp_rest, abs, -half_ln2, half_ln2, 11),
        "EXP_BRIEF": Fit(exp_rest, abs, -half_ln2, half_ln2, 5),
        "EXP_SHORT": Fit(exp_rest, abs, -half_ln2, half_ln2, 6),
        "LOG": Fit(log, lambda z: z / 2, 0, s * s, 7),
        "LOG_SHORT": Fit(log, lambda z: z / 2, 0, s * s, 4),
        "LOG_DEEP": Fit(deep, lambda z: z**3, 0, s * s, 8),
        "SIN": Fit(sin, lambda z: z, 0, quarter, 7),
        "SIN_SHORT": Fit(sin, lambda z: z, 0, quarter, 4),
        "COS": Fit(cos, lambda z: z * z, 0, quarter, 6),
        "COS_SHORT": Fit(cos, lambda z: z * z, 0, quarter, 4),
        "ASIN": Fit(asin, lambda z: z, 0, mpf("0.2501"), 13),
        "ATAN": Fit(atan, lambda z: z, 0, (mpf(7) / 16) ** 2 * mpf("1.001"), 12)}


def main() -> None:
    """Print all."""
    mpmath.mp.dps = 60
    for name, fit in fits().items():
        c = fit.coefficients()
        print(f"{name} = ({', '.join(repr(float(v)) for v in c)})")
        print(f"# 2**{float(mpmath.log(fit.error(c), 2)):.1f}")


if __name__ == "__main__":
    main()
