"""Preparing features, and the tables that map categories (ai.onnx.ml)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from ..declare import m
from ..declare.arrays import Array, widen
from ..declare.kinds import composite, elementwise, structured
from ..declare.opdef import cast_value
from ..declare.scalar import Scalar
from ..declare.schema import arr, known, sample
from ..errors import OperatorError
from ..ir.graph import Value
from ..ir.types import F32, I64, TensorType, count
from .compare import eq, isnan, where
from .gather import gather
from .generate import range_
from .mathfn import sqrt
from .ml_scores import ORACLE
from .movement import concat, narrow, reshape
from .pad import pad
from .reduce import reduce_max, sum_

NAN = float("nan")


def _real(x: Value) -> Value:
    return x if x.dtype.sort == "float" else cast_value(x, F32)


@composite(samples=[
    sample("f32[2,3]", "f32[3]", "f32[3]", expect=ORACLE + "scaler", rtol=1e-5),
    sample("f32[4]", "f32[1]", "f32[1]", expect=ORACLE + "scaler", rtol=1e-5),
    sample("i64[2,3]", "f32[3]", "f32[1]", expect=ORACLE + "scaler", rtol=1e-5)])
def scaler(x: Value, offset: Value, scale: Value) -> Value:
    """(x - offset) * scale, over the last axis; integers become f32."""
    return (_real(x) - offset) * scale


@composite(samples=[
    known([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0], [-3.0, -1.0, -2.0]], norm=n,
          expect=ORACLE + "normalizer", rtol=1e-5) for n in ("MAX", "L1", "L2")])
def normalizer(x: Value, *, norm: Literal["MAX", "L1", "L2"] = "MAX") -> Value:
    """The last axis of x over its largest element, its sum of magnitudes or its length.

    Rows where that is 0 stay; integers become f32. The maximum is not that of magnitudes.
    """
    x = _real(x)
    size = where(x < 0, -x, x)
    if norm == "MAX":
        by = reduce_max(x, axes=(-1,), keepdims=True)
    elif norm == "L1":
        by = sum_(size, axes=(-1,), keepdims=True)
    else:
        by = sqrt(sum_(x * x, axes=(-1,), keepdims=True))
    return x / where(eq(by, 0.0), 1.0, by)


@elementwise(samples=[
    known([[-1.0, 0.5, 2.0]], threshold=0.5, expect=[[[0.0, 0.0, 1.0]]]),
    known([1, 3], threshold=1.5, expect=[[0, 1]])])
def binarizer(x: Scalar, *, threshold: float = 0.0) -> Scalar:
    """1 where x is above a threshold, else 0, in the dtype of x."""
    if not math.isfinite(threshold):
        raise OperatorError(f"the threshold {threshold} is no number")
    level = threshold if x.dtype.sort == "float" else math.floor(threshold)
    return m.where(x > level, m.like(x, 1), m.like(x, 0))


@composite(samples=[
    known([[1.0, NAN, 3.0], [NAN, 5.0, 0.0]], [7.0, 8.0, 9.0], replaced=NAN,
          expect=ORACLE + "imputer"),
    known([[1.0, 0.0], [0.0, 5.0]], [7.0], replaced=0.0, expect=ORACLE + "imputer"),
    known([[1, -1], [-1, 5]], [7, 8], replaced=-1.0, expect=ORACLE + "imputer")])
def imputer(x: Value, imputed: Value, *, replaced: float) -> Value:
    """x with `imputed`, one value or one for each column, where it is `replaced`, or NaN."""
    if math.isnan(replaced):
        return where(isnan(x), imputed, x)
    return where(eq(x, replaced if x.dtype.sort == "float" else int(replaced)), imputed, x)


def _fitted(x: Value, width: int) -> Value:
    """x[N, width] in f32, columns cut off or filled with 0; a vector is one row."""
    if x.type.rank not in (1, 2):
        raise OperatorError(f"x[F] or x[N, F] is needed, got {x.type}")
    x = _real(x if x.type.rank == 2 else reshape(x, shape=(1, *x.shape)))
    have = x.shape[1]
    if not isinstance(have, int):
        raise OperatorError(f"the width of {x.type} must be a number")
    if have >= width:
        return narrow(x, axis=1, start=0, length=width)
    return pad(x, pads=(0, 0, 0, width - have))


@composite(samples=[
    sample("f32[2,3]", "f32[2,2]", "f32[2,1]", widths=(3, 1, 2),
           expect=ORACLE + "feature_vectorizer"),
    sample("f32[3]", widths=(3,), expect=ORACLE + "feature_vectorizer")])
def feature_vectorizer(xs: Sequence[Value], *, widths: tuple[int, ...]) -> Value:
    """Columns of the operands side by side; each is cut or filled with 0 to its width."""
    if len(xs) != len(widths):
        raise OperatorError(f"{len(widths)} widths for {len(xs)} operands")
    return concat([_fitted(x, w) for x, w in zip(xs, widths, strict=True)], axis=1)


@composite(samples=[
    known([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [2, 0, 2],
          expect=ORACLE + "array_feature_extractor"),
    known([1.0, 2.0, 3.0], [1], expect=ORACLE + "array_feature_extractor")])
def array_feature_extractor(x: Value, indices: Value) -> Value:
    """The elements `indices` of the last axis; of a vector as one row."""
    out = gather(x, reshape(indices, shape=(count(indices.shape),)), axis=-1)
    return out if x.type.rank > 1 else reshape(out, shape=(1, *out.shape))


def _find_types(x: TensorType, keys: TensorType, *, strict: bool) -> TensorType:
    if keys.rank != 1 or keys.dtype is not x.dtype:
        raise OperatorError(f"keys must be {x.dtype}[K], got {keys}")
    if x.dtype.sort not in ("bool", "int", "uint", "float", "string"):
        raise OperatorError(f"{x.dtype} is not looked up")
    return x.with_(dtype=I64)


@structured(types=_find_types, samples=[
    known([[3, 7], [-1, 3]], [7, 3, 7], expect=[[[1, 0], [3, 1]]]),
    known([0.5, NAN, 2.0], [NAN, 0.5], expect=[[1, 0, 2]]),
    known(arr(["b", "x"], "string"), arr(["a", "b"], "string"), expect=[[1, 2]])])
def find_key(x: Array, keys: Array, *, strict: bool = False) -> Array:
    """Where each element of x first stands in keys[K], or K; NaN equals NaN.

    With `strict` an element that is no key is an error.
    """
    if x.dtype == object:
        table = {k: i for i, k in reversed(list(enumerate(_texts(keys))))}
        out = np.asarray([table.get(k, len(keys)) for k in _texts(x)], np.int64)
    else:
        known_keys, first = np.unique(widen(keys), return_index=True)
        flat = widen(x).reshape(-1)
        at = np.minimum(np.searchsorted(known_keys, flat), max(len(known_keys) - 1, 0))
        out = np.full(flat.shape, len(keys), np.int64)
        if len(keys):
            near = known_keys[at]
            hit = (near == flat) | ((near != near) & (flat != flat))
            out[hit] = first[at[hit]]
    if strict and (out == len(keys)).any():
        lost = x.reshape(-1)[int(np.argmax(out == len(keys)))]
        raise OperatorError(f"{lost!r} is none of the {len(keys)} categories")
    return out.reshape(x.shape)


def _texts(x: Array) -> list[str]:
    return [k.decode() if isinstance(k, bytes) else str(k) for k in x.reshape(-1)]


@composite(samples=[
    known(arr([["b", "x"], ["a", "b"]], "string"), arr(["a", "b"], "string"), [10, 20], -5,
          expect=[[[20, -5], [10, 20]]]),
    known([1.0, NAN, 2.5], [NAN, 1.0], [0.5, 0.25], -0.0, expect=ORACLE + "label_encoder"),
    known([3, 4], [4, 4], arr(["p", "q"], "string"), arr(["?"], "string"),
          expect=[arr(["?", "p"], "string")])])
def label_encoder(x: Value, keys: Value, values: Value, default: Value) -> Value:
    """values[K] where x equals keys[K], of equal keys the first; `default` elsewhere."""
    table = concat([values, reshape(default, shape=(1,))], axis=0)
    return gather(table, find_key(x, keys), axis=0)


@composite(samples=[
    known([[1, 5], [2, 1]], [1, 2], expect=ORACLE + "one_hot_encoder"),
    known(arr(["b", "a"], "string"), arr(["a", "b"], "string"), strict=True,
          expect=ORACLE + "one_hot_encoder")])
def one_hot_encoder(x: Value, categories: Value, *, strict: bool = False) -> Value:
    """1 at the category of each element, on a new last axis, in f32; all 0 for others.

    With `strict` an element of no category is an error.
    """
    at = find_key(x, categories, strict=strict)
    size = categories.shape[0]
    number = range_(start=0, step=1, length=size, dtype=I64)
    return cast_value(eq(reshape(at, shape=(*at.shape, 1)), number), F32)
