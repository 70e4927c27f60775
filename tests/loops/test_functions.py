"""Vector functions against mpmath over the whole range of f32 and f64, lane by lane the same."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path

import mpmath
import numpy as np
import pytest
import scipy.special

from tests.loops.running import run
from tools import polynomials
from treadle.ir.dims import sym
from treadle.ir.types import F32, F64, DType
from treadle.loops.build import Draft, Operand
from treadle.loops.functions import BOUNDS, UNITS, open_functions
from treadle.loops.functions.exponential import ERF_END
from treadle.loops.lower.pointwise import pointwise
from treadle.ops.library import REGISTRY

NP = {F32: np.float32, F64: np.float64}
TWO = ("pow", "atan2")
REMAINDERS = ("fmod", "mod")
MP: dict[str, Callable[..., object]] = {
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)), "exp2": lambda x: mpmath.mpf(2)**x,
    "log2": lambda x: mpmath.log(x) / mpmath.log(2), "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "erfc": lambda x: mpmath.erfc(x) if abs(x) < 200 else mpmath.mpf(0 if x > 0 else 2),
    "pow": mpmath.power, "sqrt": mpmath.sqrt}
DOMAIN = {"log": (0, None), "log2": (0, None), "sqrt": (0, None), "rsqrt": (0, None),
          "log1p": (-1, None), "acosh": (1, None), "atanh": (-1, 1), "asin": (-1, 1),
          "acos": (-1, 1)}
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 1.1754944e-38, 5e-324,
         -5e-324, 2.2250738585072014e-308, 88.72283, 88.8, -87.4, -103.9, -104.5, 89.4, 709.78,
         709.79, 710.4758, 710.5, -708.4, -745.1, -745.2, 0.5, -0.5, 0.70710677, 1.4142135, 2.0,
         9.01, 3.92, -3.93, 5.9, 0.46875, 3.4e38, -3.4e38, 1.7e308, -1.7e308, 1.5707963267948966,
         -1.5707964, 3.1415927, 2.0**30, 2.0**30 + 256, -(2.0**53), 1e22, 0.4375, 0.6875, 1.1875,
         2.4375, 2.0**28]


@functools.cache
def kernel(name: str, dtype: DType) -> tuple[Draft, object]:
    draft, n, count = Draft(), sym("n"), 2 if name in (*TWO, *REMAINDERS) else 1
    ins = [Operand(draft.buffer(dtype), (1,)) for _ in range(count)]
    outs = draft.buffer(dtype, output=True)
    roots = REGISTRY[name].scalars({}, (dtype,) * count)
    return draft, pointwise(draft, (n,), ins, [Operand(outs, (1,))], open_functions(roots))


def compute(name: str, dtype: DType, *xs: np.ndarray) -> np.ndarray:
    draft, made = kernel(name, dtype)
    y = np.empty_like(xs[0])
    run(draft, made, [*xs, y], {"n": y.size})  # type: ignore[arg-type]
    return y


def exact(name: str, *xs: float) -> object:
    function = MP.get(name) or getattr(mpmath, name)
    with mpmath.workprec(1200 if abs(xs[0]) > 1e9 and name in ("sin", "cos", "tan") else 140):
        return function(*[mpmath.mpf(x) for x in xs])


def samples(name: str, dtype: DType, count: int) -> np.ndarray:
    """All exponents, and where functions bend."""
    rng = np.random.default_rng(len(name) + dtype.bits)
    whole = {32: np.uint32, 64: np.uint64}[dtype.bits]
    far = 104.0 if dtype is F32 else 745.0
    inf = int(NP[dtype](np.inf).view(whole))
    x = np.concatenate([
        rng.integers(0, inf, count, dtype=whole).view(NP[dtype]),
        rng.uniform(0, 2, count), rng.uniform(0, far, count),
        10.0 ** rng.uniform(-8, 0, count // 2)]).astype(NP[dtype])
    x = x * np.where(rng.random(x.size) < 0.5, -1, 1).astype(NP[dtype])
    low, high = DOMAIN.get(name, (None, None))
    if high is not None:
        x = np.where(np.abs(x) > 1, 1 / x, x)
    elif low is not None:
        x = np.where(x < low, np.abs(x) + low, x)
    return x.astype(NP[dtype])


def ulps(name: str, dtype: DType, *xs: np.ndarray) -> tuple[float, object]:
    """The largest error, and where."""
    y, worst, where = compute(name, dtype, *xs), 0.0, None
    for i in range(y.size):
        want = exact(name, *[float(x[i]) for x in xs])
        with np.errstate(over="ignore"):
            near = NP[dtype](float(want))  # type: ignore[arg-type]
        if not np.isfinite(near):
            assert y[i] == near, (name, [x[i] for x in xs], y[i])
            continue
        error = float(abs(mpmath.mpf(float(y[i])) - want) / float(np.spacing(abs(near))))
        if not error <= worst:
            worst, where = error, [x[i] for x in xs]
    return worst, where


ONE = [name for name in BOUNDS if name not in TWO]
DTYPES = pytest.mark.parametrize("dtype", [F32, F64], ids=str)


@DTYPES
@pytest.mark.parametrize("name", ONE)
def test_error_bound(name: str, dtype: DType) -> None:
    worst, where = ulps(name, dtype, samples(name, dtype, 100))
    assert worst <= BOUNDS[name][dtype is F64], where


def every(low: float, high: float) -> np.ndarray:
    """All f32 between two positive ones."""
    bits = [int(np.float32(v).view(np.int32)) for v in (low, high)]
    return np.arange(*bits, dtype=np.int32).view(np.float32)


def test_erf_reaches_one_and_never_passes_it() -> None:
    x = every(3.3, 4.0)
    y = compute("erf", F32, x)
    assert y.max() == 1.0
    assert (y[x >= np.float32(ERF_END)] == 1.0).all()
    np.testing.assert_array_equal(compute("erf", F32, -x), -y)


GELU: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": lambda x: x * scipy.special.ndtr(x),
    "gelu_tanh": lambda x: x * scipy.special.expit(
        math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))}


@pytest.mark.parametrize("name", GELU)
def test_gelu(name: str) -> None:
    """Errors in units of the operand, which is what a factor between 0 and 1 scales."""
    rng = np.random.default_rng(4)
    x = np.concatenate([rng.uniform(-12, 12, 200_000), rng.standard_normal(100_000), every(4, 5.6),
                        -every(4, 5.6)]).astype(np.float32)
    y = compute(name, F32, x)
    wide = x.astype(np.float64)
    error = np.abs(y - GELU[name](wide)) / np.spacing(np.abs(x)).astype(np.float64)
    assert error.max() <= UNITS[name], x[error.argmax()]
    assert (y[x < 0] <= 0).all()
    assert (np.abs(y) <= np.abs(x)).all()


@pytest.mark.parametrize("name", GELU)
def test_gelu_at_the_ends(name: str) -> None:
    inf = np.inf
    x = np.array([inf, -inf, np.nan, 0.0, -0.0, 1e-45, 3e38, -3e38, -1e6], np.float32)
    y = compute(name, F32, x)
    np.testing.assert_array_equal(y, np.array(
        [inf, np.nan, np.nan, 0, -0.0, x[5] / 2, x[6], -0.0, -0.0], np.float32))
    np.testing.assert_array_equal(np.signbit(y[3:5]), [False, True])


@DTYPES
def test_powers(dtype: DType) -> None:
    rng, n, far = np.random.default_rng(5), 600, 80.0 if dtype is F32 else 650.0
    a = np.exp(rng.uniform(-1, 1, n) * np.where(rng.random(n) < 0.5, far, 2)).astype(NP[dtype])
    b = (rng.uniform(-1, 1, n) * np.minimum(far / np.abs(np.log(a)), 1e9)).astype(NP[dtype])
    worst, where = ulps("pow", dtype, a, b)
    assert worst <= BOUNDS["pow"][dtype is F64], where


@DTYPES
def test_angles(dtype: DType) -> None:
    rng, n = np.random.default_rng(6), 600
    y, x = ((rng.standard_normal(n) * np.exp(rng.uniform(-20, 20, n))).astype(NP[dtype])
            for _ in range(2))
    worst, where = ulps("atan2", dtype, y, x)
    assert worst <= BOUNDS["atan2"][dtype is F64], where


@DTYPES
@pytest.mark.parametrize("name", ONE)
def test_special_values(name: str, dtype: DType) -> None:
    """NumPy in extended precision is the judge of infinities, NaN, zeros and denormals."""
    spelled = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh",
               "acosh": "arccosh", "atanh": "arctanh"}.get(name, name)
    own = {"erf": scipy.special.erf, "erfc": scipy.special.erfc,
           "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "rsqrt": lambda x: 1 / np.sqrt(x)}
    with np.errstate(all="ignore"):
        x = np.array(EDGES).astype(NP[dtype])
        wide = x if name in ("erf", "erfc") else x.astype(np.longdouble)
        want = (own.get(name) or getattr(np, spelled))(wide).astype(NP[dtype])
    y = compute(name, dtype, x)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(want), str(x))
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(y[zero]), np.signbit(want[zero]))
    tiny = 5 * float(np.finfo(NP[dtype]).smallest_subnormal)
    np.testing.assert_allclose(y, want, rtol=1e-6 if dtype is F32 else 4e-15, atol=tiny)


@DTYPES
@pytest.mark.parametrize("name", TWO)
def test_special_pairs(name: str, dtype: DType) -> None:
    with np.errstate(all="ignore"):
        g = np.array([*EDGES, 3.0, -3.0, 2.0**53 - 1, 1 - 2.0**53]).astype(NP[dtype])
        a, b = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(g, g))
        f = np.power if name == "pow" else np.arctan2
        want = f(a.astype(np.longdouble), b.astype(np.longdouble)).astype(NP[dtype])
    y = compute(name, dtype, a, b)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(want))
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(y[zero]), np.signbit(want[zero]))
    with np.errstate(all="ignore"):
        np.testing.assert_array_max_ulp(y[np.isfinite(want)], want[np.isfinite(want)], 2)
    ends = ~np.isfinite(want)
    np.testing.assert_array_equal(y[ends], want[ends])


@DTYPES
@pytest.mark.parametrize("name", REMAINDERS)
def test_remainders_are_exact(name: str, dtype: DType) -> None:
    """NumPy's, which are the C library's: of near and far numbers, multiples, and the ends."""
    rng, n = np.random.default_rng(7), 20_000
    a, b = (samples("fmod", dtype, n) for _ in range(2))
    rng.shuffle(b)
    c = rng.standard_normal(a.size) * np.exp(rng.uniform(-8, 8, a.size))
    k = np.trunc(np.exp2(rng.uniform(0, dtype.bits * 0.9, a.size)))
    edges = [v.ravel() for v in np.meshgrid(EDGES, EDGES)]
    with np.errstate(all="ignore"):
        x = np.concatenate([a, a, c * k, np.nextafter(c * k, 0), edges[0]]).astype(NP[dtype])
        y = np.concatenate([b, c, c, c, edges[1]]).astype(NP[dtype])
        want = (np.fmod if name == "fmod" else np.mod)(x, y)
    got = compute(name, dtype, x, y)
    np.testing.assert_array_equal(got, want)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@DTYPES
@pytest.mark.parametrize("name", ["sin", "exp", "tanh", "log"])
def test_every_lane_is_the_same(name: str, dtype: DType) -> None:
    """Whole vectors, the masked rest, and each element by itself give equal bits."""
    x = np.abs(samples(name, dtype, 20))
    together = compute(name, dtype, x)
    for count in (1, 3, x.size - 1):
        np.testing.assert_array_equal(compute(name, dtype, x[:count].copy()), together[:count])


@pytest.mark.parametrize("name", polynomials.fits())
def test_coefficients_are_those_of_the_tool(name: str) -> None:
    from treadle.loops.functions import exponential, logarithm, trigonometric

    with mpmath.workdps(60):
        want = [float(c) for c in polynomials.fits()[name].coefficients()]
    key = {"EXP": "_EXP64", "LOG": "_LOG64", "EXP_SHORT": name}.get(name, f"_{name}")
    modules = (exponential, logarithm, trigonometric)
    found = next(getattr(o, key) for o in modules if hasattr(o, key))
    assert list(found) == want


def test_the_table_of_the_guide() -> None:
    page = (Path(__file__).parents[2] / "docs" / "native-code.md").read_text("utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    found = {r[0].strip("`"): (float(r[1]), float(r[2])) for r in rows
             if r[0].strip("`") in BOUNDS}
    assert found == BOUNDS
