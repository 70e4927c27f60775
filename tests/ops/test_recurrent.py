"""Recurrent layers against ONNX Runtime over random options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.oracles import recurrent as oracle
from treadle.errors import OperatorError
from treadle.ops.library import REGISTRY

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
FUNCTIONS = {"lstm": 3, "gru": 2, "rnn": 1}
PARAMETERS = {"LeakyRelu": 1, "ThresholdedRelu": 1, "Elu": 1, "Affine": 2, "ScaledTanh": 2,
              "HardSigmoid": 2, "Relu": 0, "Tanh": 0, "Sigmoid": 0, "Softsign": 0, "Softplus": 0}


def _activations(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """Names with all the parameters that they take: ONNX Runtime has defaults of its own."""
    names = tuple(rng.choice(list(PARAMETERS), count).tolist())
    draw = [float(np.float32(v)) for v in rng.uniform(0.1, 0.9, 2 * count)]
    takes = [PARAMETERS[n] for n in names]
    return {"activations": names, "alpha": tuple(draw[:sum(t > 0 for t in takes)]),
            "beta": tuple(draw[count:count + sum(t > 1 for t in takes)])}


def _case(op: str, rng: np.random.Generator) -> tuple[list[np.ndarray], dict[str, Any]]:
    def f(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    d, s, n, h = (int(v) for v in rng.integers(1, (3, 5, 4, 5)))
    rows = GATES[op] * h
    options = {"bias": f(d, 2 * rows), "initial_h": f(d, n, h),
               "sequence_lens": rng.integers(0, s + 1, n).astype(np.int32),
               "clip": float(rng.uniform(0.2, 1.5))}
    if op == "lstm":
        options |= {"initial_c": f(d, n, h), "peephole": f(d, 3 * h), "input_forget": True}
    if op == "gru":
        options["linear_before_reset"] = True
    attrs: dict[str, Any] = {k: v for k, v in options.items() if rng.random() < 0.5}
    if rng.random() < 0.5:
        attrs |= _activations(rng, FUNCTIONS[op] * d)
    attrs["direction"] = "bidirectional" if d == 2 else str(rng.choice(["forward", "reverse"]))
    return [f(s, n, 3), f(d, rows, 3) / 4, f(d, rows, h) / 4], attrs


@pytest.mark.parametrize("op", GATES)
def test_random_options(op: str) -> None:
    layer: Any = REGISTRY[op]
    for seed in range(25):
        operands, attrs = _case(op, np.random.default_rng(seed))
        want = getattr(oracle, op)(*operands, **attrs)
        for got, w in zip(layer(*operands, **attrs), want, strict=True):
            np.testing.assert_allclose(got, w, rtol=2e-4, atol=1e-4 * max(1, np.abs(w).max()),
                                       err_msg=f"{op} {seed} {attrs}")


@pytest.mark.parametrize(("attrs", "says"), [
    ({"activations": ("tanh",)}, "1 activations are given, 3 are needed"),
    ({"activations": ("tanh", "swish", "tanh")}, "'swish' is unknown"),
    ({"initial_h": np.zeros((1, 3, 2), np.float32)}, "initial_h must be"),
    ({"initial_c": np.zeros((1, 2, 2), np.float64)}, "initial_c is f64 and x is f32"),
    ({"sequence_lens": np.zeros(2, np.float32)}, "must be integers")])
def test_what_is_refused(attrs: dict[str, Any], says: str) -> None:
    layer: Any = REGISTRY["lstm"]
    x, w, r = (np.zeros(s, np.float32) for s in ((4, 2, 3), (1, 8, 3), (1, 8, 2)))
    with pytest.raises(OperatorError, match=says):
        layer(x, w, r, **attrs)
