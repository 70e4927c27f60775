"""Maps: host values with integer or string keys (ai.onnx.ml)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from ..declare.arrays import Array, array_of, host, np_dtype
from ..declare.kinds import structured
from ..declare.schema import arr, known
from ..errors import OperatorError
from ..ir.dims import sym
from ..ir.graph import Blob
from ..ir.types import DTYPES, F32, I64, STRING, DType, Size, TensorType, host_dtype
from .extents import surely_differ

Key = int | str
PETS = host({"cat": np.float32(1.5), "dog": np.float32(-2.0)})


def entries(value: Array) -> dict[Key, object]:
    """The entries of a map."""
    held = cast(object, value.item() if value.ndim == 0 and value.dtype == object else None)
    if not isinstance(held, Mapping):
        raise OperatorError("a map is needed", hint="give a dict")
    return {_key(k): v for k, v in cast("Mapping[object, object]", held).items()}


def _key(key: object) -> Key:
    if isinstance(key, bytes):
        return key.decode()
    return key if isinstance(key, str) else int(cast(int, key))


def map_types(t: TensorType) -> tuple[DType, DType] | None:
    """The dtypes of the keys and values of a map; None when its type does not say."""
    name = t.dtype.name
    if not name.startswith("map("):
        raise OperatorError(f"a map is needed, got {t}")
    key, _, value = name[4:-1].partition(",")
    value = value.removesuffix("[]")
    return (DTYPES[key], DTYPES[value]) if key in DTYPES and value in DTYPES else None


def map_type(key: DType, value: DType) -> TensorType:
    """The type of a map to scalars."""
    return TensorType((), host_dtype("map", text=f"{key},{value}[]"))


def _zip_types(x: TensorType, *, labels: Blob) -> TensorType:
    if len(labels.shape) != 1:
        raise OperatorError(f"the labels {labels.type} must be a vector")
    if x.rank not in (1, 2) or surely_differ(x.shape[-1], len(array_of(labels))):
        raise OperatorError(f"x[N, {len(array_of(labels))}] is needed, got {x}")
    return TensorType((), host_dtype("seq", map_type(labels.dtype, x.dtype)))


@structured(types=_zip_types, samples=[
    known([[0.5, 0.25], [1.0, 0.0]], labels=np.array([3, 7]),
          expect=[host([host({3: 0.5, 7: 0.25}), host({3: 1.0, 7: 0.0})])]),
    known([0.5], labels=np.array(["a"], object), expect=[host([host({"a": 0.5})])])])
def zipmap(x: Array, *, labels: Blob) -> Array:
    """Each row of x[N, C] as a map from label c to x[n, c]; the result is their sequence."""
    keys = [_key(k) for k in cast("list[object]", array_of(labels).tolist())]
    rows = x.reshape(-1, len(keys)) if len(keys) else x.reshape(len(x), 0)
    return host([host(dict(zip(keys, row, strict=True))) for row in rows])


def _vector_types(x: TensorType, *, vocabulary: Blob) -> TensorType:
    known_types = map_types(x)
    if known_types and (known_types[0] is STRING) != (vocabulary.dtype is STRING):
        raise OperatorError(f"the keys of {x} are not those of a vocabulary of "
                            f"{vocabulary.dtype}")
    return TensorType((1, len(array_of(vocabulary))), known_types[1] if known_types else F32)


@structured(types=_vector_types, samples=[
    known(PETS, vocabulary=np.array(["dog", "cow", "cat"], object),
          expect=[[[-2.0, 0.0, 1.5]]])])
def dict_vectorizer(x: Array, *, vocabulary: Blob) -> Array:
    """The values of a map at the keys of a vocabulary, [1, V]; 0 or "" for keys it lacks."""
    held = entries(x)
    values = list(held.values())
    text = bool(values) and isinstance(values[0], str)
    found = [held.get(_key(k), "" if text else 0)
             for k in cast("list[object]", array_of(vocabulary).tolist())]
    return np.asarray([found], object if text else _natural(values))


def _natural(values: Sequence[object]) -> np.dtype[np.generic]:
    dtype = np.asarray(values).dtype if values else np.dtype(np.float32)
    return np.dtype(np.float32) if dtype == np.float64 and isinstance(values[0], float) and (
        not isinstance(values[0], np.generic)) else dtype


def _cast_types(x: TensorType, *, dtype: DType, size: Size | None, fresh: str) -> TensorType:
    map_types(x)
    if dtype not in (F32, I64, STRING):
        raise OperatorError(f"a map is cast to f32, i64 or string, not {dtype}")
    if size is None and not fresh:
        raise OperatorError("the number of entries depends on the run",
                            hint='name it: fresh="entries1"')
    return TensorType((1, sym(fresh) if size is None else size), dtype)


@structured(types=_cast_types, samples=[
    known(host({9: np.float32(2.5), 4: np.float32(-1.0)}), dtype="f32", fresh="n",
          expect=[[[-1.0, 2.5]]]),
    known(host({0: "1.5", 2: "-3"}), dtype="f32", size=4, expect=[[[1.5, 0.0, -3.0, 0.0]]]),
    known(host({1: np.float32(2.0)}), dtype="i64", size=2, expect=[[[0, 2]]]),
    known(host({1: np.float32(2.0)}), dtype="string", size=2,
          expect=[arr([["0.f", "2.000000"]], "string")])])
def cast_map(x: Array, *, dtype: DType, size: Size | None = None, fresh: str = "") -> Array:
    """The values of a map with integer keys, [1, n], in another dtype (ai.onnx.ml CastMap).

    In the order of the keys, n being the symbol `fresh`; or with `size` each at its key, the rest
    0. Text of a number has six decimals, and "0.f" stands for 0, as ONNX Runtime writes them.
    """
    named = entries(x)
    if any(isinstance(k, str) for k in named):
        raise OperatorError("the keys must be integers")
    held = {cast(int, k): v for k, v in named.items()}
    order = sorted(held)
    wanted = order if size is None else list(range(cast(int, size)))
    if order and (order[0] < 0 or size is not None and order[-1] >= cast(int, size)):
        raise OperatorError(f"the keys {order[0]}..{order[-1]} are outside 0..{len(wanted) - 1}")
    empty: dict[str, object] = {"string": "0.f"}
    found = [_converted(held[k], dtype) if k in held else empty.get(dtype.name, 0)
             for k in wanted]
    return np.asarray([found], np_dtype(dtype))


def _converted(value: object, dtype: DType) -> object:
    if dtype is STRING:
        return value if isinstance(value, str) else f"{float(cast(float, value)):f}"
    return float(cast(float, value)) if dtype is F32 else int(float(cast(float, value)))


