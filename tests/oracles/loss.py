"""Losses by ONNX Runtime."""

from __future__ import annotations

from tests.oracles.ort import run
from treadle.declare.arrays import Array


def nll_loss(logp: Array, target: Array, weight: Array | None = None,
             ignore_index: int | None = None, reduction: str = "mean", **_: object) -> Array:
    return run("NegativeLogLikelihoodLoss", [logp, target, weight],
               {"ignore_index": ignore_index, "reduction": reduction}, opset=13)[0]


def softmax_cross_entropy(scores: Array, target: Array, weight: Array | None = None,
                          ignore_index: int | None = None, reduction: str = "mean", **_: object
                          ) -> list[Array]:
    return run("SoftmaxCrossEntropyLoss", [scores, target, weight],
               {"ignore_index": ignore_index, "reduction": reduction}, outputs=2, opset=13)
