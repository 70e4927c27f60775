"""Quantisation: rounding, saturation and errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from treadle.errors import OperatorError
from treadle.ir.types import DTYPES
from treadle.ops.library import REGISTRY

QUANTIZE, DEQUANTIZE = REGISTRY["quantize_linear"], REGISTRY["dequantize_linear"]
ONE = np.array(1.0, np.float32)


@pytest.mark.parametrize("name", ["i8", "u8", "i16", "u16", "i4", "u4", "i2", "u2"])
def test_halves_round_to_even_and_ends_saturate(name: str) -> None:
    dtype = DTYPES[name]
    low = -(2 ** (dtype.bits - 1)) if dtype.sort == "int" else 0
    high = low + 2**dtype.bits - 1
    x = np.array([0.5, -0.5, 1.5, -1e9, 1e9, np.nan, np.inf, -np.inf], np.float32)
    got = np.asarray(QUANTIZE(x, ONE, dtype=dtype)).astype(int)
    assert got.tolist() == [0, 0, min(2, high), low, high, 0, high, low]


@pytest.mark.parametrize(("saturate", "want"), [(True, 448.0), (False, np.nan)])
def test_float8_overflow(saturate: bool, want: float) -> None:
    got = QUANTIZE(np.array([500.0], np.float32), ONE, dtype=DTYPES["f8e4m3fn"],
                   saturate=saturate)
    np.testing.assert_equal(np.asarray(got).astype(float), [want])


def test_the_quotient_rounds_to_the_stated_precision() -> None:
    x = np.array([2.4999], np.float32)  # 2.5 in f16, which rounds to 2
    y = np.array([3.4999], np.float32)  # 3.5 in f16, which rounds to 4
    for value, coarse in ((x, 2), (y, 4)):
        got = QUANTIZE(value, ONE, dtype=DTYPES["i8"], precision=DTYPES["f16"])
        assert np.asarray(got).tolist() == [coarse]
    assert np.asarray(QUANTIZE(y, ONE, dtype=DTYPES["i8"])).tolist() == [3]


def test_the_result_takes_the_dtype_of_the_scale() -> None:
    x = np.array([3, -4], np.int8)
    got = DEQUANTIZE(x, np.array(0.5, ml_dtypes.bfloat16))
    assert np.asarray(got).dtype == ml_dtypes.bfloat16
    assert np.asarray(got).astype(float).tolist() == [1.5, -2.0]


X = np.ones((2, 6), np.float32)


@pytest.mark.parametrize(("options", "message"), [
    ({"scale": np.ones(5, np.float32)}, "does not fit axis 1"),
    ({"scale": np.ones((2, 2), np.float32), "block_size": 2}, "one number for each 2 elements"),
    ({"scale": np.ones(6, np.float32), "zero": np.zeros(1, np.uint8)}, "scale and zero"),
    ({"scale": ONE, "zero": np.array(0, np.int8), "dtype": DTYPES["u8"]}, "they must be equal"),
    ({"scale": ONE, "dtype": DTYPES["i64"]}, "nothing is quantised to i64"),
    ({"scale": np.array(1)}, "not a floating tensor"),
    ({"scale": ONE, "block_size": -1}, "negative")])
def test_parameters_that_do_not_fit(options: dict[str, object], message: str) -> None:
    scale = options.pop("scale")
    with pytest.raises(OperatorError) as error:
        QUANTIZE(X, scale, **options)
    assert message in f"{error.value.message} {error.value.hint}"
