"""Normalisation by ONNX Runtime."""

from __future__ import annotations

from tests.oracles.ort import run
from treadle.declare.arrays import Array


def layer_norm(x: Array, gamma: Array, beta: Array | None = None, axis: int = -1,
               eps: float = 1e-5) -> Array:
    return run("LayerNormalization", [x, gamma, beta], {"axis": axis, "epsilon": eps})[0]


def rms_norm(x: Array, gamma: Array, axis: int = -1, eps: float = 1e-5) -> Array:
    return run("RMSNormalization", [x, gamma], {"axis": axis, "epsilon": eps}, opset=23)[0]


def group_norm(x: Array, gamma: Array, beta: Array, num_groups: int, eps: float = 1e-5) -> Array:
    return run("GroupNormalization", [x, gamma, beta],
               {"num_groups": num_groups, "epsilon": eps})[0]


def instance_norm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Array:
    return run("InstanceNormalization", [x, gamma, beta], {"epsilon": eps}, opset=21)[0]


def batch_norm(x: Array, gamma: Array, beta: Array, mu: Array, var: Array, eps: float = 1e-5
               ) -> Array:
    return run("BatchNormalization", [x, gamma, beta, mu, var], {"epsilon": eps})[0]


def batch_norm_training(x: Array, gamma: Array, beta: Array, running_mean: Array,
                        running_var: Array, eps: float = 1e-5, momentum: float = 0.9
                        ) -> list[Array]:
    """By the formulas of BatchNormalization 15 in f64; ONNX Runtime has no training kernel."""
    d = x.astype("f8")
    axes = (0, *range(2, x.ndim))
    mean, var = d.mean(axes), d.var(axes)
    at = (slice(None), *[None] * (x.ndim - 2))
    y = (d - mean[at]) / (var[at] + eps) ** 0.5 * gamma[at] + beta[at]
    moved = [old * momentum + new * (1 - momentum)
             for old, new in ((running_mean, mean), (running_var, var))]
    return [a.astype(x.dtype) for a in (y, *moved)]


def lrn(x: Array, size: int, alpha: float, beta: float, bias: float) -> Array:
    return run("LRN", [x], {"size": size, "alpha": alpha, "beta": beta, "bias": bias})[0]


def mean_variance_norm(x: Array, **_: object) -> Array:
    return run("MeanVarianceNormalization", [x], opset=13)[0]
