"""Decoding helpers on token numbers, as ONNX Runtime defines them."""

from __future__ import annotations

import numpy as np

from ..declare.arrays import Array
from ..declare.kinds import structured
from ..declare.schema import known
from ..errors import OperatorError
from ..ir.dims import sym
from ..ir.types import I64, TensorType
from .extents import surely_differ

ORACLE = "tests.oracles.tokens:"
IDS = [[0, 1, 2, 3, 1, 2], [4, 4, 4, 0, 4, 4]]
SCORES = [[0.5, 1.0, -1.0, 2.0, 0.0], [0.25, 3.0, 1.0, -2.0, 1.5]]


def _block_types(ids: TensorType, scores: TensorType, *, size: int) -> TensorType:
    if ids.rank != 2 or ids.dtype.sort not in ("int", "uint") or scores.rank != 2 or (
            surely_differ(ids.shape[0], scores.shape[0])):
        raise OperatorError(f"ids[N, L] and scores[N, V] are needed, got {ids} and {scores}")
    if size < 1 or scores.dtype.sort != "float":
        raise OperatorError(f"n-grams of {size} and scores in {scores.dtype}")
    return scores


@structured(types=_block_types, samples=[
    known(IDS, SCORES, size=n, expect=ORACLE + "ngram_repeat_block") for n in (1, 2, 3, 7, 9)])
def ngram_repeat_block(ids: Array, scores: Array, *, size: int) -> Array:
    """scores[N, V] with -inf at each token that would repeat an n-gram of ids[N, L].

    A token is blocked where the last size - 1 ids have stood before it already.
    """
    length = ids.shape[1]
    out = scores.copy()
    if size > length:
        return out
    windows = np.lib.stride_tricks.sliding_window_view(ids, size, 1)
    tail = ids[:, length - size + 1:]
    row, at = np.nonzero((windows[:, :, :-1] == tail[:, None]).all(2))
    token = windows[row, at, -1]
    if token.size and (token.min() < 0 or token.max() >= scores.shape[1]):
        raise OperatorError(f"a token is outside 0..{scores.shape[1] - 1}")
    out[row, token] = -np.inf
    return out


def _bifurcation_types(source: TensorType, current: TensorType, start: TensorType, *,
                       predicted: TensorType | None = None, low: int, high: int, fresh: str
                       ) -> tuple[TensorType, TensorType]:
    given = [t for t in (source, current, predicted) if t is not None]
    if any(t.rank != 1 or t.dtype is not I64 for t in given) or start.dtype is not I64:
        raise OperatorError(f"tokens are i64 vectors, got {', '.join(map(str, given))}")
    if start.shape not in ((), (1,)) or not 1 <= low <= high:
        raise OperatorError(f"one start and n-grams of 1 or more, got {start}, {low}..{high}")
    if predicted is not None and not fresh:
        raise OperatorError("the number of tokens depends on the run",
                            hint='name it: fresh="tokens1"')
    return current.with_(shape=current.shape if predicted is None else (sym(fresh),)), start


@structured(types=_bifurcation_types, samples=[
    known([1, 5, 3, 4, 2, 5, 7], [0, 6], [2], predicted=[3, 4, 9, 5, 7, 8], low=1, high=3,
          fresh="t", expect=ORACLE + "bifurcation_detector"),
    known([1, 5, 3, 4], [7, 3], [0], low=1, high=2, expect=ORACLE + "bifurcation_detector"),
    known([1, 5, 1, 5], [1, 5], [0], low=1, high=2, expect=ORACLE + "bifurcation_detector")])
def bifurcation_detector(source: Array, current: Array, start: Array, *,
                         predicted: Array | None = None, low: int, high: int, fresh: str = ""
                         ) -> tuple[Array, Array]:
    """The current tokens with those predicted up to the first that the source does not have.

    Prediction i is compared with source token start + i; the one that differs is kept as well.
    The second output is where the source goes on after its only n-gram, of `low` to `high`
    tokens, that ends the result; -1 if there is none. Source: ONNX Runtime BifurcationDetector.
    """
    out = current
    if predicted is not None:
        rest = source[_start(start, len(source)):]
        if len(predicted) != len(rest) + 1:
            raise OperatorError(f"{len(predicted)} predictions for {len(rest)} tokens left of the "
                                "source; one more than these is needed")
        same = predicted[:-1] == rest
        kept = int(np.argmin(np.append(same, False))) + 1
        out = np.concatenate([current, predicted[:kept]])
    return out, np.full(start.shape, _suffix(source, out, low, high), np.int64)


def _start(start: Array, size: int) -> int:
    at = int(start.reshape(()))
    if not 0 <= at <= size:
        raise OperatorError(f"the start {at} is outside 0..{size}")
    return at


def _suffix(source: Array, tokens: Array, low: int, high: int) -> int:
    """Longer n-grams are tried while shorter ones are found more than once or inside."""
    found = -1
    for n in range(low, min(high, len(tokens)) + 1):
        if n > len(source):
            break
        windows = np.lib.stride_tricks.sliding_window_view(source, n)
        at = np.flatnonzero((windows == tokens[len(tokens) - n:]).all(1))
        if not len(at):
            break
        found = int(at[0]) + n
        if found >= len(source):
            break
        if len(at) > 1:
            found = -1
    return found
