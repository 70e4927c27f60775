"""Coefficients of the f32 erf in `treadle.loops.functions`, and where its quotient reaches 1.

`python tools/error_function.py` prints them. erf(x) / x is fitted by a quotient of polynomials in
x * x with the least relative error: C. L. Lawson's iterated weights ("Contributions to the theory
of linear least maximum approximation", 1961) over the linearised fits of C. K. Sanathanan and
J. Koerner ("Transfer function synthesis as a ratio of two complex polynomials", 1963).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial, chebyshev
from scipy import special

F4, F8 = np.float32, np.float64
HIGH, TERMS = 3.75, 6  # where the fit ends, coefficients of each polynomial
POINTS, ROUNDS = 1500, 120


@dataclass(frozen=True)
class Quotient:
    """x top(x * x) / bottom(x * x), the constants first; the last of `bottom` is 1."""

    top: tuple[float, ...]
    bottom: tuple[float, ...]

    def exact(self, x: np.ndarray) -> np.ndarray:
        """In f64."""
        return x * np.polyval(self.top[::-1], x * x) / np.polyval(self.bottom[::-1], x * x)

    def rounded(self, x: np.ndarray) -> np.ndarray:
        """In f32 with fused steps, as kernels compute it but for fused steps that round twice."""
        z = x * x
        parts = []
        for c in (self.top, self.bottom):
            y = np.full_like(x, c[-1])
            for k in c[-2::-1]:
                y = (y.astype(F8) * z + F8(F4(k))).astype(F4)
            parts.append(y)
        return x * parts[0] / parts[1]

    def for_gelu(self) -> Quotient:
        """Of erf(x / sqrt(2)) / 2."""
        n = len(self.bottom) - 1
        return Quotient(tuple([c * 2.0**(n - k) * 0.5**1.5 for k, c in enumerate(self.top)]),
                        tuple([c * 2.0**(n - k) for k, c in enumerate(self.bottom)]))


def fit() -> Quotient:
    """The quotient for erf."""
    x = HIGH * np.sin((np.arange(POINTS) + 0.5) / POINTS * np.pi / 2)
    at, want = 2 * (x / HIGH)**2 - 1, special.erf(x)
    top = chebyshev.chebvander(at, TERMS - 1) * (x / want)[:, None]
    rest = -chebyshev.chebvander(at, TERMS - 1)[:, 1:]
    weight, below = np.ones(POINTS), np.ones(POINTS)
    least, found = np.inf, np.zeros(2 * TERMS - 1)
    for i in range(ROUNDS):
        by = np.sqrt(weight) / below
        rows = np.hstack([top, rest]) * by[:, None]
        size = np.linalg.norm(rows, axis=0)
        c = np.linalg.lstsq(rows / size, by, rcond=1e-16)[0] / size
        below = chebyshev.chebval(at, [1.0, *c[TERMS:]])
        error = np.abs(x * chebyshev.chebval(at, c[:TERMS]) / below / want - 1)
        if error.max() < least:
            least, found = error.max(), c
        if i > 5:
            weight *= error / error.max() + 1e-3
            weight /= weight.mean()
    domain = [0, HIGH * HIGH]
    p, q = (Chebyshev(c, domain).convert(kind=Polynomial).coef
            for c in (found[:TERMS], np.r_[1.0, found[TERMS:]]))
    return Quotient(tuple((p / q[-1]).tolist()), tuple((q / q[-1]).tolist()))


def end(q: Quotient, limit: float, start: float) -> float:
    """The first f32 from `start` whose quotient is not below `limit`; it must be equal."""
    low, high = (F4(v).view(np.int32) for v in (start, start + 0.7))
    x = np.arange(low, high, dtype=np.int32).view(F4)
    y = q.rounded(x)
    i = int(np.argmax(y >= limit))
    assert y[i] == limit, "the fit passes the limit; change HIGH"
    return float(x[i])


def main() -> None:
    """Print all."""
    q = fit()
    for name, c in (("_ERF_P", q.top), ("_ERF_Q", q.bottom)):
        print(f"{name} = ({', '.join(f'{v:.9g}' for v in c)})")
    x = np.linspace(1e-3, HIGH, 10001)
    print(f"# 2**{np.log2(np.abs(q.exact(x) / special.erf(x) - 1).max()):.1f}")
    printed = Quotient(*(tuple(float(f"{v:.9g}") for v in c) for c in (q.top, q.bottom)))
    print(f"ERF_END, _GELU_END = {end(printed, 1.0, 3.2)}, {end(printed.for_gelu(), 0.5, 4.8)}")


if __name__ == "__main__":
    main()
