"""Attention against ONNX Runtime, and what it does where no key is visible."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles.ort import run
from treadle.declare.arrays import Array
from treadle.errors import OperatorError
from treadle.ops.library import REGISTRY

ATTENTION, SCORES, APPEND = (REGISTRY[n] for n in ("attention", "attention_scores", "kv_append"))
RNG = np.random.default_rng(0)
Q, K, V = (RNG.normal(size=s).astype(np.float32)
           for s in ((2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 6)))
BIAS = RNG.normal(size=(2, 1, 3, 5)).astype(np.float32)
LENGTHS = np.array([3, 5])


def _close(a: object, b: object) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-5)


def test_causal_with_a_past() -> None:
    past = [RNG.normal(size=(2, 2, 4, n)).astype(np.float32) for n in (8, 6)]
    want = run("Attention", [Q, K, V, None, *past], {"is_causal": 1}, outputs=3, opset=23)
    keys, values = (np.concatenate([p, x], 2) for p, x in zip(past, (K, V), strict=True))
    _close(ATTENTION(Q, keys, values, right=0, start=4), want[0])


def test_causal_against_an_external_cache_counts_from_its_end() -> None:
    want = run("Attention", [Q, K, V, None, None, None, LENGTHS], {"is_causal": 1}, opset=24)
    _close(ATTENTION(Q, K, V, valid_length=LENGTHS, offset=LENGTHS - 3, right=0), want[0])


@pytest.mark.parametrize(("mode", "stage"), [
    (0, "raw"), (1, "capped"), (2, "biased"), (3, "probabilities")])
def test_output_modes(mode: int, stage: str) -> None:
    attrs = {"qk_matmul_output_mode": mode, "softcap": 2.0}
    want = run("Attention", [Q, K, V, BIAS], attrs, outputs=4, opset=23)[3]
    _close(SCORES(Q, K, bias=BIAS, softcap=2.0, stage=stage), want)


def test_rows_without_a_visible_key_are_zero_whatever_the_scores() -> None:
    bias = np.full((1, 1, 1, 5), -np.inf, np.float32)
    out = ATTENTION(Q, K, V, bias=bias, right=0, start=-1)
    assert isinstance(out, np.ndarray)
    assert not out[:, :, 0].any()
    assert np.isnan(out[:, :, 1]).all()  # visible keys whose scores are all -inf


def test_keys_beyond_the_valid_length_may_hold_anything() -> None:
    k, v = K.copy(), V.copy()
    k[0, :, 3:], v[0, :, 3:] = np.nan, np.inf
    _close(ATTENTION(Q, k, v, valid_length=LENGTHS), ATTENTION(Q, K, V, valid_length=LENGTHS))


def test_no_keys_at_all_give_zeros() -> None:
    out = ATTENTION(Q, K[:, :, :0], V[:, :, :0], right=0)
    assert isinstance(out, np.ndarray) and out.shape == (2, 4, 3, 6) and not out.any()


@pytest.mark.parametrize(("operands", "options", "message"), [
    ((Q, K[:, :, :, :4], V), {}, "do not fit"),
    ((Q[:, :3], K, V), {}, "3 query heads do not share 2 key heads"),
    ((Q[0], K, V), {}, r"a floating \[N,H,S,D\] was expected"),
    ((Q, K, V), {"mask": BIAS}, "not bool"),
    ((Q, K, V), {"bias": BIAS[0]}, "does not broadcast"),
    ((Q, K, V), {"left": -1}, "left=-1 is negative"),
    ((Q, K, V), {"valid_length": LENGTHS[:, None]}, "integers"),
    ((Q, K, V), {"softcap": 0.0}, "cap > 0")])
def test_operands_that_do_not_fit(operands: tuple[Array, ...], options: dict[str, object],
                                  message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        ATTENTION(*operands, **options)


def test_a_linear_append_beyond_the_capacity_names_the_entry() -> None:
    cache, update = np.zeros((2, 1, 4, 1)), np.ones((2, 1, 2, 1))
    with pytest.raises(OperatorError, match=r"at\[1\] = 3: 2 entries do not fit 4"):
        APPEND(cache, update, np.array([0, 3]))


@pytest.mark.parametrize("at", [2**63 - 1, -(2**63)])
def test_a_circular_append_takes_any_position(at: int) -> None:
    out = APPEND(np.zeros((1, 1, 3, 1)), np.ones((1, 1, 1, 1)), np.array([at]), mode="circular")
    assert np.asarray(out)[0, 0, at % 3, 0] == 1
