"""Random operators: what the keys mean, and the distributions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest

import treadle
from tests.onnx.build import F32, model, node

SHAPE = [200, 50]


def run(nodes: Sequence[onnx.NodeProto], names: Sequence[str], **inputs: np.ndarray
        ) -> list[np.ndarray]:
    proto = model(nodes, [(n, F32, a.shape) for n, a in inputs.items()],
                  [(n, F32, None) for n in names])
    return list(treadle.load(proto).compile(device="reference")(inputs).values())


def test_nodes_with_a_seed_agree_and_others_do_not() -> None:
    made = [node("RandomNormal", [], ["a"], shape=SHAPE, seed=3.0),
            node("RandomNormal", [], ["b"], shape=SHAPE, seed=3.0),
            node("RandomNormal", [], ["c"], shape=SHAPE, seed=4.0),
            node("RandomNormal", [], ["d"], shape=SHAPE),
            node("RandomNormal", [], ["e"], shape=SHAPE)]
    a, b, c, d, e = run(made, "abcde")
    assert (a == b).all()
    different = [a, c, d, e]
    assert all((x != y).mean() > 0.99 for i, x in enumerate(different) for y in different[:i])


def test_every_run_draws_the_same() -> None:
    proto = model([node("RandomUniform", [], ["y"], shape=SHAPE)], [], [("y", F32, None)])
    first, second = (treadle.load(proto).compile(device="reference")({})["y"] for _ in range(2))
    assert (first == second).all()


def test_distributions() -> None:
    x = np.zeros(SHAPE, np.float32)
    p = np.full(SHAPE, 0.25, np.float32)
    normal, uniform, flips = run(
        [node("RandomNormalLike", ["x"], ["n"], mean=2.0, scale=3.0),
         node("RandomUniformLike", ["x"], ["u"], low=-1.0, high=3.0),
         node("Bernoulli", ["p"], ["b"])], "nub", x=x, p=p)
    assert abs(normal.mean() - 2) < 0.15 and abs(normal.std() - 3) < 0.15
    assert uniform.min() >= -1 and uniform.max() < 3 and abs(uniform.mean() - 1) < 0.06
    assert set(np.unique(flips)) == {0.0, 1.0} and abs(flips.mean() - 0.25) < 0.03


@pytest.mark.parametrize("seed", [None, 7.0])
def test_multinomial_draws_by_its_weights(seed: float | None) -> None:
    logits = np.log(np.array([[0.1, 0.2, 0.7]], np.float32))
    attrs = {} if seed is None else {"seed": seed}
    (drawn,) = run([node("Multinomial", ["x"], ["y"], sample_size=5000, **attrs)], "y", x=logits)
    assert drawn.dtype == np.int32 and drawn.shape == (1, 5000)
    np.testing.assert_allclose(np.bincount(drawn[0]) / 5000, [0.1, 0.2, 0.7], atol=0.03)
