"""Functions that NumPy lacks, against mpmath, SciPy and exact integers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
import pytest

from treadle.declare import special
from treadle.declare.arrays import np_dtype
from treadle.errors import OperatorError
from treadle.ir.types import DTYPES
from treadle.ops.activations import gelu, log_sigmoid, sigmoid, softplus
from treadle.ops.mathfn import erfc, exp2, log2, rsqrt

Array = npt.NDArray[Any]
FULL = np.concatenate([
    np.random.default_rng(0).uniform(-7, 7, 1500),
    10.0 ** np.random.default_rng(1).uniform(-300, 2, 300) * np.tile([1, -1], 150),
    [0.46875, 4.0, 5.95, 6.0, -0.46875, -4.0, np.nextafter(0.46875, 1), np.nextafter(4.0, 5)]])


def ulps(got: Array, exact: list[mpmath.mpf]) -> float:
    """The largest distance in units of the exact value's last place in the dtype of `got`."""
    worst = mpmath.mpf(0)
    for g, e in zip(got, exact, strict=True):
        unit = np.spacing(np.abs(np.asarray(float(e), got.dtype)))
        worst = max(worst, abs(mpmath.mpf(float(g)) - e) / mpmath.mpf(float(unit)))
    return float(worst)


def exact(fn: Callable[[mpmath.mpf], mpmath.mpf], x: Array) -> list[mpmath.mpf]:
    with mpmath.workdps(40):
        return [fn(mpmath.mpf(float(v))) for v in x]


@pytest.mark.parametrize(("dtype", "limit"), [("f4", 0.75), ("f8", 4.0)])
def test_erf(dtype: str, limit: float) -> None:
    x = FULL.astype(dtype)
    assert ulps(special.erf(x), exact(mpmath.erf, x)) <= limit


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_erf_at_the_ends(dtype: str) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype)
    y = special.erf(x)
    np.testing.assert_array_equal(y, np.array([0.0, -0.0, 1.0, -1.0, np.nan], dtype))
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(np.signbit(y[:4]), [False, True, False, True])
    assert special.erf(np.array(0.5, dtype)).shape == ()
    assert special.erf(np.empty((0, 3), dtype)).shape == (0, 3)


def test_erf_across_its_blocks() -> None:
    x = np.linspace(-5, 5, 70_001)
    np.testing.assert_array_equal(special.erf(x), np.concatenate([special.erf(x[:35_000]),
                                                                  special.erf(x[35_000:])]))


STABLE = {
    "erfc": (erfc, mpmath.erfc, (-6.0, 26.0), 40.0),
    "exp2": (exp2, lambda x: mpmath.mpf(2) ** x, (-1000.0, 1000.0), 2.0),
    "log2": (log2, lambda x: mpmath.log(x, 2), (1e-3, 1e3), 4.0),
    "rsqrt": (rsqrt, lambda x: 1 / mpmath.sqrt(x), (1e-3, 1e3), 2.0),
    "softplus": (softplus, lambda x: mpmath.log1p(mpmath.exp(x)), (-700.0, 700.0), 4.0),
    "log_sigmoid": (log_sigmoid, lambda x: -mpmath.log1p(mpmath.exp(-x)), (-700.0, 700.0), 4.0),
    "sigmoid": (sigmoid, lambda x: 1 / (1 + mpmath.exp(-x)), (-700.0, 700.0), 4.0),
    "gelu": (gelu, lambda x: x * mpmath.ncdf(x), (-0.5, 30.0), 4.0),
}


@pytest.mark.parametrize("name", STABLE)
def test_stable_bodies(name: str) -> None:
    """Units in the last place of f64 over the whole range where the answer is a normal number."""
    op, oracle, (low, high), limit = STABLE[name]
    x = np.random.default_rng(2).uniform(low, high, 400)
    assert ulps(op(x), exact(oracle, x)) <= limit


def test_erfc_in_f32() -> None:
    x = np.random.default_rng(3).uniform(-4, 9, 500).astype("f4")
    assert ulps(erfc(x), exact(mpmath.erfc, x)) <= 8


EDGE = [-128, -127, -100, -9, -8, -3, -2, -1, 0, 1, 2, 3, 8, 9, 100, 126, 127]


def wrapped(n: int) -> int:
    return (n + 128) % 256 - 128


def test_integer_division_and_power() -> None:
    pairs = np.array([*product(EDGE, EDGE)], "i1")
    a, b = pairs[:, 0], pairs[:, 1]
    with np.errstate(all="ignore"):
        quotient, power = special.truncdiv(a, b), special.power(a, b)
    for x, y, q, p in zip(a.tolist(), b.tolist(), quotient.tolist(), power.tolist(), strict=True):
        sign = -1 if (x < 0) != (y < 0) else 1
        assert q == (wrapped(sign * (abs(x) // abs(y))) if y else 0), (x, y)
        inverse = {1: 1, -1: 1 if y % 2 == 0 else -1}.get(x, 0)  # 1 / x**-y, truncated; 0 for 0
        assert p == (wrapped(pow(x, y)) if y >= 0 else inverse), (x, y)
    u = np.array([*product(range(0, 256, 15), range(0, 256, 15))], "u1")
    with np.errstate(all="ignore"):
        got = special.truncdiv(u[:, 0], u[:, 1])
    assert got.tolist() == [x // y if y else 0 for x, y in u.tolist()]


@pytest.mark.parametrize("name", ["i2", "u2", "i4", "u4", "i8", "u8", "i16", "u16", "i32", "u32",
                                  "i64", "u64"])
@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
def test_float_to_integer_saturates(name: str, source: str) -> None:
    dtype = DTYPES[name]
    low = -(2 ** (dtype.bits - 1)) if dtype.sort == "int" else 0
    high = low + 2**dtype.bits - 1
    plain = [0.0, -0.0, 0.99, -0.99, 1.5, -1.5, 2.9, 1e4, -1e4, 1e30, -1e30, float(high),
             float(low), np.inf, -np.inf, np.nan]
    with np.errstate(over="ignore"):
        x = np.array(plain).astype(np_dtype(DTYPES[source]))
        got = special.cast(dtype, x)
    assert got.dtype == np_dtype(dtype)
    for v, g in zip(x.astype("f8").tolist(), got.tolist(), strict=True):
        want = 0 if np.isnan(v) else high if v > high else low if v < low else int(v)
        assert g == want, (v, g)


def test_integers_wrap() -> None:
    x = np.array([-1000, -129, -9, -1, 0, 7, 8, 15, 16, 127, 128, 255, 256, 70000], "i8")
    for name in ("i2", "u2", "i4", "u4", "i8", "u8", "i16", "u16"):
        bits = DTYPES[name].bits
        half = 2 ** (bits - 1) if name[0] == "i" else 0
        assert special.cast(DTYPES[name], x).tolist() == [
            (v + half) % 2**bits - half for v in x.tolist()]


def test_bits_of_every_width() -> None:
    bits = np.arange(256).astype("u1")
    for name in ("i8", "f8e4m3fn", "f8e8m0fnu"):
        there = special.bitcast(DTYPES[name], bits)
        np.testing.assert_array_equal(special.bitcast(DTYPES["u8"], there), bits)
    four = np.arange(16).astype(np_dtype(DTYPES["u4"]))
    signed = special.bitcast(DTYPES["i4"], four)
    assert signed.tolist() == [*range(8), *range(-8, 0)]
    for name in ("i4", "f4e2m1fn"):
        there = special.bitcast(DTYPES[name], four)
        assert special.bitcast(DTYPES["u4"], there).tolist() == four.tolist()
    assert special.bitcast(DTYPES["u4"], signed).tolist() == list(range(16))
    e2m1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]  # OCP Microscaling Formats 1.0, table 5
    assert special.bitcast(DTYPES["f4e2m1fn"], four).astype("f4").tolist() == [
        *e2m1, *[-v for v in e2m1]]
    pi = np.array([np.pi], "f4")
    assert special.bitcast(DTYPES["u32"], pi).tolist() == [0x40490FDB]
    column = np.arange(6, dtype="f8").reshape(2, 3).T
    np.testing.assert_array_equal(special.bitcast(DTYPES["i64"], column).view("f8"), column)


def test_strings() -> None:
    text = np.array([["1e-5", "+INF"], ["-inf", "NaN"], [b"100.5", " 7 "]], object)
    np.testing.assert_array_equal(special.cast(DTYPES["f64"], text),
                                  [[1e-5, np.inf], [-np.inf, np.nan], [100.5, 7.0]])
    for name, whole in (("i64", [9007199254740993, -3]), ("u64", [2**64 - 1])):
        written = np.array([str(n) for n in whole], object)
        assert special.cast(DTYPES[name], written).tolist() == whole
    shown = special.cast(DTYPES["string"], np.array([314.15926, np.inf, -np.inf, np.nan]))
    assert shown.tolist() == ["314.15926", "INF", "-INF", "NaN"]
    assert special.cast(DTYPES["string"], np.array([3], "i4")).tolist() == ["3"]
    with pytest.raises(OperatorError, match="'Hello World!' is not a number"):
        special.cast(DTYPES["f32"], np.array(["Hello World!"], object))
