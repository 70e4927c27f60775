"""Gradients of fake quantisation, which are stated and not limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from treadle.declare import scalar
from treadle.declare.derive import derivative
from treadle.errors import OperatorError
from treadle.ir.types import F64
from treadle.ops.library import REGISTRY

X, SCALE = np.array([0.3, 2.0]), np.array(0.25)  # the grid of 4 bits ends at 1.75


def _partial(index: int, **attrs: object) -> list[float]:
    op = REGISTRY["round_to_grid"]
    root = op.scalars(op.bind({"bits": 4, **attrs})[1], (F64, F64))[0]
    (got,) = scalar.evaluate([derivative(root, index)], [X, SCALE])
    return np.broadcast_to(got, X.shape).tolist()


@pytest.mark.parametrize(("ste", "want"), [
    ("identity", [1.0, 1.0]), ("clipped", [1.0, 0.0]),
    ("tanh", [1 - math.tanh(1.2) ** 2, 1 - math.tanh(8.0) ** 2]),
    ("hard_tanh", [1 - 0.3 / 1.75, 0.0])])
def test_the_slope_in_x_is_the_stated_one(ste: str, want: list[float]) -> None:
    assert _partial(0, ste=ste) == pytest.approx(want)


def test_the_slope_in_a_learned_scale_is_that_of_lsq() -> None:
    assert _partial(1, learned=True) == pytest.approx([1 - 1.2, 7.0])
    assert _partial(1) == [0.0, 0.0]


def test_a_moving_scale_needs_its_state() -> None:
    with pytest.raises(OperatorError, match="needs the operand state"):
        REGISTRY["fake_quantize"](X, scale_mode="ema")
    with pytest.raises(OperatorError, match="takes no state"):
        REGISTRY["fake_quantize"](X, state=SCALE)
