"""Normalisation. Halves compute in f32 and round once."""

from __future__ import annotations

from typing import Literal

from ..declare.kinds import composite
from ..declare.opdef import cast_value, wide
from ..declare.schema import arr, known, sample
from ..errors import OperatorError
from ..ir.dims import Size
from ..ir.graph import Value
from ..ir.types import axes_of, axis_of, broadcast, shape_text
from .arithmetic import abs_
from .compare import eq, where
from .mathfn import rsqrt, sqrt
from .movement import narrow, reshape
from .pad import pad
from .reduce import mean, sum_

ORACLE = "tests.oracles.norm"


def centred(x: Value, axes: tuple[int, ...]) -> tuple[Value, Value, Value]:
    """The mean over `axes`, `x` minus it, and the population variance; axes are kept as 1."""
    mu = mean(x, axes=axes, keepdims=True)
    d = x - mu
    return mu, d, mean(d * d, axes=axes, keepdims=True)


def standardise(x: Value, axes: tuple[int, ...], eps: float) -> Value:
    """`x` with mean 0 and variance 1 over `axes`, up to `eps` under the root."""
    _, d, var = centred(x, axes)
    return d * rsqrt(var + eps)


def floating(x: Value) -> None:
    """Whether norms exist for `x`, or an error."""
    if x.dtype.sort != "float" or x.dtype.bits < 16:
        raise OperatorError(f"{x.dtype} tensors are not normalised", hint="cast to f32")


def fits(x: Value, p: Value, name: str) -> Value:
    """`p` in f32 or f64, if it broadcasts to the shape of `x`; else an error."""
    if broadcast([x.shape, p.shape]) != x.shape:
        raise OperatorError(f"{name} of shape {shape_text(p.shape)} does not broadcast to "
                            f"{x.type}")
    return wide(p)


def trailing(x: Value, axis: int) -> tuple[int, ...]:
    """The axes from `axis` to the last."""
    floating(x)
    return tuple(range(axis_of(axis, x.type.rank), x.type.rank))


def channels(x: Value, p: Value, name: str) -> Value:
    """A parameter [C] in f32 or f64, shaped to broadcast along axis 1 of `x`."""
    if x.type.rank < 2:
        raise OperatorError(f"{x.type} has no channel axis 1")
    if p.shape != (x.shape[1],):
        raise OperatorError(f"{name} has shape {shape_text(p.shape)}, one number for each of "
                            f"{x.shape[1]} channels was expected")
    return reshape(wide(p), shape=(x.shape[1], *[1] * (x.type.rank - 2)))


@composite(samples=[
    sample("f32[3,4]", "f32[4]", beta="f32[4]", expect=f"{ORACLE}:layer_norm", rtol=1e-5),
    sample("f32[2,3,4]", "f32[3,4]", axis=1, eps=0.1, expect=f"{ORACLE}:layer_norm", rtol=1e-5),
    sample("f32[2,3,4]", "f32[4]", beta="f32[3,1]", axis=-2),
    known(arr([[60000.0, 60000.0, -60000.0, -60000.0]], "f16"), arr([1.0] * 4, "f16"),
          expect=[arr([[1.0, 1.0, -1.0, -1.0]], "f16")]),
    sample("bf16[3,8]", "bf16[8]", beta="bf16[8]", low=50, high=300)])
def layer_norm(x: Value, gamma: Value, *, beta: Value | None = None, axis: int = -1,
               eps: float = 1e-5) -> Value:
    """(x - mean) / sqrt(variance + eps) * gamma + beta over the axes from `axis` to the last.

    gamma and beta broadcast to x (ONNX LayerNormalization, 1607.06450).
    """
    y = standardise(wide(x), trailing(x, axis), eps) * fits(x, gamma, "gamma")
    return cast_value(y if beta is None else y + fits(x, beta, "beta"), x.dtype)


@composite(samples=[
    known([[1.0, 3.0], [2.0, 2.0]], eps=0.0625,
          expect=[[[2.0], [2.0]], [[0.9701425], [4.0]]]),
    sample("f16[2,3,4]", axis=1)])
def layer_norm_stats(x: Value, *, axis: int = -1, eps: float = 1e-5) -> tuple[Value, ...]:
    """The mean and 1 / sqrt(variance + eps) that layer_norm uses, in f32 (f64 for f64 x).

    Normalised axes stay as 1 (outputs 2 and 3 of ONNX LayerNormalization).
    """
    mu, _, var = centred(wide(x), trailing(x, axis))
    return mu, rsqrt(var + eps)


@composite(samples=[
    sample("f32[3,4]", "f32[4]", expect=f"{ORACLE}:rms_norm", rtol=1e-5),
    sample("f32[2,3,4]", "f32[3,4]", axis=1, eps=0.1, expect=f"{ORACLE}:rms_norm", rtol=1e-5),
    known(arr([[60000.0, -60000.0]], "f16"), arr([1.0, 2.0], "f16"),
          expect=[arr([[1.0, -2.0]], "f16")])])
def rms_norm(x: Value, gamma: Value, *, axis: int = -1, eps: float = 1e-5) -> Value:
    """X / sqrt(mean(x^2) + eps) * gamma over the axes from `axis` to the last (1910.07467)."""
    x32 = wide(x)
    power = mean(x32 * x32, axes=trailing(x, axis), keepdims=True)
    return cast_value(x32 * rsqrt(power + eps) * fits(x, gamma, "gamma"), x.dtype)


@composite(samples=[
    sample("f32[2,4,3]", "f32[4]", "f32[4]", num_groups=2, expect=f"{ORACLE}:group_norm",
           rtol=1e-5),
    sample("f32[2,4,2,2]", "f32[4]", "f32[4]", num_groups=4, eps=0.1,
           expect=f"{ORACLE}:group_norm", rtol=1e-5),
    sample("f16[1,4,2,2]", "f16[4]", "f16[4]", num_groups=1, low=100, high=300)])
def group_norm(x: Value, gamma: Value, beta: Value, *, num_groups: int, eps: float = 1e-5
               ) -> Value:
    """Standardise each of `num_groups` groups of channels of x[N,C,..], then scale and shift.

    gamma[C] and beta[C] (ONNX GroupNormalization 21, 1803.08494).
    """
    floating(x)
    scale, shift = channels(x, gamma, "gamma"), channels(x, beta, "beta")
    c = x.shape[1]
    if num_groups < 1 or isinstance(c, int) and c % num_groups:
        raise OperatorError(f"num_groups={num_groups} does not divide {c} channels")
    groups = reshape(wide(x), shape=(x.shape[0], num_groups, -1))
    y = reshape(standardise(groups, (2,), eps), shape=x.shape)
    return cast_value(y * scale + shift, x.dtype)


@composite(samples=[
    sample("f32[2,3,4]", "f32[3]", "f32[3]", expect=f"{ORACLE}:instance_norm", rtol=1e-5),
    sample("f32[1,3,2,2]", "f32[3]", "f32[3]", eps=0.1, expect=f"{ORACLE}:instance_norm",
           rtol=1e-5),
    sample("f16[1,2,4,4]", "f16[2]", "f16[2]", low=100, high=300)])
def instance_norm(x: Value, gamma: Value, beta: Value, *, eps: float = 1e-5) -> Value:
    """Standardise each channel of each instance of x[N,C,..], then scale and shift by channel."""
    floating(x)
    scale, shift = channels(x, gamma, "gamma"), channels(x, beta, "beta")
    y = standardise(wide(x), tuple(range(2, x.type.rank)), eps)
    return cast_value(y * scale + shift, x.dtype)


_FOUR = ("f32[3]", "f32[3]", "f32[3]", "f32[3]")


@composite(samples=[
    sample("f32[2,3,4]", *_FOUR, low=0.5, expect=f"{ORACLE}:batch_norm", rtol=1e-5),
    sample("f32[2,3,2,2]", *_FOUR, eps=0.1, low=0.5, expect=f"{ORACLE}:batch_norm", rtol=1e-5),
    sample("f32[2,3]", *_FOUR, low=0.5),
    sample("f16[2,3,4]", *_FOUR, low=100, high=300)])
def batch_norm(x: Value, gamma: Value, beta: Value, mu: Value, var: Value, *,
               eps: float = 1e-5) -> Value:
    """(x - mu) / sqrt(var + eps) * gamma + beta by channel of x[N,C,..]: inference."""
    floating(x)
    scale = channels(x, gamma, "gamma") * rsqrt(channels(x, var, "var") + eps)
    d = wide(x) - channels(x, mu, "mu")
    return cast_value(d * scale + channels(x, beta, "beta"), x.dtype)


@composite(samples=[
    sample("f32[2,3,4]", *_FOUR, low=0.5, expect=f"{ORACLE}:batch_norm_training", rtol=1e-5),
    sample("f16[2,3,4]", *_FOUR, low=100, high=300, momentum=0.5)])
def batch_norm_training(x: Value, gamma: Value, beta: Value, running_mean: Value,
                        running_var: Value, *, eps: float = 1e-5, momentum: float = 0.9
                        ) -> tuple[Value, ...]:
    """Batch normalisation by the batch's own statistics: y, new running mean, new running variance.

    new = old * momentum + batch * (1 - momentum), with the population variance (ONNX
    BatchNormalization with training_mode=1).
    """
    floating(x)
    scale, shift = channels(x, gamma, "gamma"), channels(x, beta, "beta")
    axes = (0, *range(2, x.type.rank))
    mu, d, var = centred(wide(x), axes)
    y = cast_value(d * rsqrt(var + eps) * scale + shift, x.dtype)
    return y, _moved(running_mean, mu, momentum), _moved(running_var, var, momentum)


def _moved(old: Value, new: Value, momentum: float) -> Value:
    flat = cast_value(reshape(new, shape=old.shape), wide(old).dtype)
    return cast_value(wide(old) * momentum + flat * (1.0 - momentum), old.dtype)


@composite(samples=[
    known([[[[1.0, 2.0]], [[3.0, 6.0]]]], [1.0, 2.0], beta=[0.5, 0.0], eps=0.0,
          expect=[[[[[-0.5, -0.5]], [[2.0, 2.0]]]]]),
    sample("f16[1,4,2,2]", "f16[4]", low=1000, high=60000)])
def layer_norm_2d(x: Value, gamma: Value, *, beta: Value | None = None, eps: float = 1e-6
                  ) -> Value:
    """Layer normalisation of each pixel over the channel axis of x[N,C,..]."""
    floating(x)
    y = standardise(wide(x), (1,), eps) * channels(x, gamma, "gamma")
    return cast_value(y if beta is None else y + channels(x, beta, "beta"), x.dtype)


@composite(samples=[
    known([[3.0, 4.0], [0.0, 0.0]], expect=[[[0.6, 0.8], [0.0, 0.0]]]),
    known([[3.0, -1.0]], p=1, expect=[[[0.75, -0.25]]]),
    known(arr([[60000.0, 0.0]], "f16"), axis=1, expect=[arr([[1.0, 0.0]], "f16")])])
def lp_norm(x: Value, *, axis: int = -1, p: Literal[1, 2] = 2) -> Value:
    """X divided by its L1 or L2 norm along `axis`; zeros where the norm is 0."""
    floating(x)
    x32, axes = wide(x), (axis_of(axis, x.type.rank),)
    if p == 1:
        norm = sum_(abs_(x32), axes=axes, keepdims=True)
    else:
        norm = sqrt(sum_(x32 * x32, axes=axes, keepdims=True))
    empty = eq(norm, 0.0)
    return cast_value(where(empty, 0.0, x32 / where(empty, 1.0, norm)), x.dtype)


@composite(samples=[
    sample("f32[1,5,2,2]", size=3, alpha=0.1, beta=0.75, bias=1.5, expect=f"{ORACLE}:lrn",
           rtol=1e-5),
    sample("f32[1,3,2]", size=4, alpha=0.5), sample("f32[1,2,2]", size=9, alpha=0.5),
    sample("f16[1,3,2]", size=3, low=1000, high=60000)])
def lrn(x: Value, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
        ) -> Value:
    """X / (bias + alpha / size * sum of squares over `size` neighbouring channels) ^ beta.

    The window of x[N,C,..] has floor((size - 1) / 2) channels before and the rest after (ONNX LRN).
    """
    floating(x)
    if size < 1 or x.type.rank < 2:
        raise OperatorError(f"lrn needs a channel axis and size of at least 1, got size={size}")
    x32, c = wide(x), x.shape[1]
    before, after = ((size - 1) // 2, size // 2)
    if isinstance(c, int):
        before, after = min(before, c), min(after, c)
    rest = [0] * (x.type.rank - 2)
    squares = pad(x32 * x32, pads=(0, before, *rest, 0, after, *rest))
    total = _window(squares, before + after + 1, c)
    return cast_value(x32 / (bias + total * (alpha / size)) ** beta, x.dtype)


def _window(x: Value, width: int, length: Size) -> Value:
    total = narrow(x, axis=1, start=0, length=length)
    for i in range(1, width):
        total = total + narrow(x, axis=1, start=i, length=length)
    return total


@composite(samples=[
    sample("f32[2,3,2,2]", expect=f"{ORACLE}:mean_variance_norm", rtol=1e-5),
    sample("f32[2,3]", axes=(1,)), sample("f16[1,2,2,2]", low=1000, high=60000)])
def mean_variance_norm(x: Value, *, axes: tuple[int, ...] = (0, 2, 3), eps: float = 1e-9
                       ) -> Value:
    """(x - mean) / (standard deviation + eps) over `axes` (ONNX MeanVarianceNormalization)."""
    floating(x)
    _, d, var = centred(wide(x), axes_of(axes, x.type.rank))
    return cast_value(d / (sqrt(var) + eps), x.dtype)
