"""ai.onnx.ml: features, categories, linear models and support vector machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....declare.arrays import Array, blob, np_dtype
from ....declare.opdef import REGISTRY, cast_value
from ....errors import Declined
from ....ir.graph import Value
from ....ir.types import F32, I64, STRING, DType
from ..context import Context
from ..registry import ML, importer
from .shape import op

Ints = tuple[int, ...]
Floats = tuple[float, ...]
Texts = tuple[str, ...]


def floats(values: Sequence[float], *shape: int) -> Array:
    """Numbers of an attribute in f32."""
    flat = np.asarray(values, np.float32)
    if shape and flat.size % max(int(np.prod([s for s in shape if s > 0])), 1):
        raise Declined(f"{flat.size} numbers do not divide into rows of {shape[-1]}")
    return flat.reshape(shape) if shape else flat


def texts(values: Sequence[str]) -> Array:
    """Strings of an attribute."""
    out = np.empty(len(values), object)
    out[:] = values
    return out


def labels_of(ints: Sequence[int], strings: Sequence[str], what: str) -> Array:
    """Class labels or categories, given in one of two attributes."""
    if bool(ints) == bool(strings):
        raise Declined(f"{what}: give integers or strings")
    return np.asarray(ints, np.int64) if ints else texts(strings)


def several(name: str, *args: object, **kw: object) -> tuple[Value, ...]:
    """Record an operator with several outputs."""
    out = REGISTRY[name](*args, **kw)
    assert isinstance(out, tuple)
    return out  # type: ignore[return-value]


def named(ctx: Context, number: Value, labels: Array) -> Value:
    """The label of each class number."""
    return op("gather", ctx.constant(labels), number, axis=0)


def rows(x: Value) -> Value:
    """Features in f32, which is what classifiers and regressors compute in."""
    return cast_value(x, F32)


@importer("Scaler", domain=ML)
def scaler(ctx: Context, x: Value, *, offset: Floats = (0.0,), scale: Floats = (1.0,)) -> Value:
    """Shift, then scale."""
    return op("scaler", rows(x), ctx.constant(floats(offset)), ctx.constant(floats(scale)))


@importer("Normalizer", domain=ML)
def normalizer(ctx: Context, x: Value, *, norm: str = "MAX") -> Value:
    """Rows over their size."""
    return op("normalizer", rows(x), norm=norm)


@importer("Binarizer", domain=ML)
def binarizer(ctx: Context, x: Value, *, threshold: float = 0.0) -> Value:
    """1 above a threshold."""
    return op("binarizer", x, threshold=threshold)


@importer("Imputer", domain=ML)
def imputer(ctx: Context, x: Value, *, imputed_value_floats: Floats = (),
            imputed_value_int64s: Ints = (), replaced_value_float: float = 0.0,
            replaced_value_int64: int = 0) -> Value:
    """Missing values filled in."""
    whole = x.dtype.sort == "int"
    given = imputed_value_int64s if whole else imputed_value_floats
    if not given:
        raise Declined(f"Imputer of {x.dtype} without imputed values of that kind")
    values = ctx.constant(np.asarray(given, np_dtype(x.dtype)))
    lost = float(replaced_value_int64) if whole else replaced_value_float
    return op("imputer", x, values, replaced=lost)


@importer("FeatureVectorizer", domain=ML)
def feature_vectorizer(ctx: Context, *xs: Value, inputdimensions: Ints = ()) -> Value:
    """Columns side by side."""
    widths = inputdimensions or tuple([ctx.known(x.shape[-1], "the number of columns")
                                       for x in xs])
    return op("feature_vectorizer", [rows(x) for x in xs], widths=widths)


@importer("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(ctx: Context, x: Value, indices: Value) -> Value:
    """Chosen columns."""
    return op("array_feature_extractor", x, indices)


@importer("OneHotEncoder", domain=ML)
def one_hot_encoder(ctx: Context, x: Value, *, cats_int64s: Ints = (), cats_strings: Texts = (),
                    zeros: int = 1) -> Value:
    """1 at each element's category."""
    categories = labels_of(cats_int64s, cats_strings, "the categories of OneHotEncoder")
    if x.dtype is not STRING:
        x = cast_value(x, I64)
    return op("one_hot_encoder", x, ctx.constant(categories), strict=not zeros)


@importer("CategoryMapper", domain=ML)
def category_mapper(ctx: Context, x: Value, *, cats_int64s: Ints, cats_strings: Texts,
                    default_int64: int = -1, default_string: str = "_Unused") -> Value:
    """Strings to integers or back."""
    numbers, words = np.asarray(cats_int64s, np.int64), texts(cats_strings)
    if x.dtype is STRING:
        return encoded(ctx, x, words, numbers, np.asarray([default_int64], np.int64))
    return encoded(ctx, x, numbers, words, texts([default_string]))


def encoded(ctx: Context, x: Value, keys: Array, values: Array, default: Array) -> Value:
    """x through a table; the keys take the dtype of x."""
    if keys.shape != values.shape:
        raise Declined(f"{keys.size} keys for {values.size} values")
    if keys.dtype != object:
        keys = keys.astype(np_dtype(x.dtype))
    return op("label_encoder", x, ctx.constant(keys), ctx.constant(values),
              ctx.constant(default.reshape(-1)))


@importer("LabelEncoder", until=1, domain=ML)
def label_encoder_1(ctx: Context, x: Value, *, classes_strings: Texts, default_int64: int = -1,
                    default_string: str = "_Unused") -> Value:
    """Strings to their numbers or back."""
    numbers, words = np.arange(len(classes_strings), dtype=np.int64), texts(classes_strings)
    if x.dtype is STRING:
        return encoded(ctx, x, words, numbers, np.asarray([default_int64], np.int64))
    return encoded(ctx, x, numbers, words, texts([default_string]))


def _given(what: str, ints: Ints, numbers: Floats, words: Texts, tensor: Array | None
           ) -> tuple[str, Array]:
    """Keys or values in whichever attribute they are, and its kind."""
    found = {"int64": np.asarray(ints, np.int64) if ints else None,
             "float": floats(numbers) if numbers else None,
             "string": texts(words) if words else None, "tensor": tensor}
    there = {k: v for k, v in found.items() if v is not None}
    if len(there) != 1:
        raise Declined(f"LabelEncoder with {len(there)} kinds of {what}; it takes one")
    return next(iter(there.items()))


@importer("LabelEncoder", since=2, domain=ML)
def label_encoder(ctx: Context, x: Value, *, keys_int64s: Ints = (), keys_floats: Floats = (),
                  keys_strings: Texts = (), keys_tensor: Array | None = None,
                  values_int64s: Ints = (), values_floats: Floats = (),
                  values_strings: Texts = (), values_tensor: Array | None = None,
                  default_int64: int = -1, default_float: float = -0.0,
                  default_string: str = "_Unused", default_tensor: Array | None = None) -> Value:
    """Any kind of key to any kind of value."""
    _, keys = _given("keys", keys_int64s, keys_floats, keys_strings, keys_tensor)
    kind, values = _given("values", values_int64s, values_floats, values_strings, values_tensor)
    if kind == "tensor":
        kind = {"O": "string", "i": "int64"}.get(values.dtype.kind, "float")
    plain: dict[str, Any] = {"int64": np.asarray([default_int64], values.dtype)
                             if kind == "int64" else None,
                             "float": np.asarray([default_float], values.dtype)
                             if kind == "float" else None, "string": texts([default_string])}
    default = plain[kind] if default_tensor is None else default_tensor
    return encoded(ctx, x, keys, values, default)


@importer("DictVectorizer", domain=ML)
def dict_vectorizer(ctx: Context, x: Value, *, int64_vocabulary: Ints = (),
                    string_vocabulary: Texts = ()) -> Value:
    """A map's values in the order of a vocabulary."""
    words = labels_of(int64_vocabulary, string_vocabulary, "the vocabulary of DictVectorizer")
    return op("dict_vectorizer", x, vocabulary=blob(words))


@importer("CastMap", domain=ML)
def cast_map(ctx: Context, x: Value, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE",
             max_map: int = 1) -> Value:
    """A map's values as a row."""
    dtypes: dict[str, DType] = {"TO_FLOAT": F32, "TO_INT64": I64, "TO_STRING": STRING}
    if cast_to not in dtypes or map_form not in ("DENSE", "SPARSE"):
        raise Declined(f"CastMap {cast_to} in the form {map_form}")
    return op("cast_map", x, dtype=dtypes[cast_to], size=max_map if map_form == "SPARSE" else None,
              fresh=ctx.fresh("entries"))


@importer("ZipMap", domain=ML)
def zipmap(ctx: Context, x: Value, *, classlabels_int64s: Ints = (),
           classlabels_strings: Texts = ()) -> Value:
    """Rows as maps."""
    labels = labels_of(classlabels_int64s, classlabels_strings, "the labels of ZipMap")
    return op("zipmap", x, labels=blob(labels))


@importer("LinearRegressor", domain=ML)
def linear_regressor(ctx: Context, x: Value, *, coefficients: Floats, intercepts: Floats = (),
                     post_transform: str = "NONE", targets: int = 1) -> Value:
    """One linear model a target."""
    weights = ctx.constant(floats(coefficients, targets, -1))
    bias = ctx.constant(floats(intercepts)) if intercepts else None
    return op("linear_regressor", rows(x), weights, intercepts=bias, transform=post_transform)


@importer("LinearClassifier", domain=ML)
def linear_classifier(ctx: Context, x: Value, *, coefficients: Floats,
                      classlabels_ints: Ints = (), classlabels_strings: Texts = (),
                      intercepts: Floats = (), multi_class: int = 0,
                      post_transform: str = "NONE") -> object:
    """One linear model a class; `multi_class` only says how they were trained."""
    labels = labels_of(classlabels_ints, classlabels_strings, "the labels of LinearClassifier")
    count = len(intercepts) or len(labels)
    if len(labels) != max(count, 2):
        raise Declined(f"LinearClassifier with {count} models for {len(labels)} labels")
    weights = ctx.constant(floats(coefficients, count, -1))
    bias = ctx.constant(floats(intercepts)) if intercepts else None
    number, scores = several("linear_classifier", rows(x), weights, intercepts=bias,
                             transform=post_transform)
    return named(ctx, number, labels), scores


def _kernel(kind: str, params: Floats) -> dict[str, Any]:
    gamma, coef0, degree = params or (0.0, 0.0, 0.0)
    return {"kernel": kind, "gamma": gamma, "coef0": coef0, "degree": degree}


@importer("SVMRegressor", domain=ML)
def svm_regressor(ctx: Context, x: Value, *, coefficients: Floats, rho: Floats,
                  kernel_params: Floats = (), kernel_type: str = "LINEAR", n_supports: int = 0,
                  one_class: int = 0, post_transform: str = "NONE",
                  support_vectors: Floats = ()) -> Value:
    """ONNX Runtime ignores the transform of this operator; another than NONE is declined."""
    if post_transform != "NONE":
        raise Declined(f"SVMRegressor with post_transform {post_transform}")
    vectors = ctx.constant(floats(support_vectors, n_supports, -1)) if n_supports else None
    return op("svm_regressor", rows(x), ctx.constant(floats(coefficients)),
              ctx.constant(floats(rho[:1])), vectors=vectors, one_class=bool(one_class),
              **_kernel(kernel_type if n_supports else "LINEAR", kernel_params))


@importer("SVMClassifier", domain=ML)
def svm_classifier(ctx: Context, x: Value, *, coefficients: Floats, rho: Floats,
                   classlabels_ints: Ints = (), classlabels_strings: Texts = (),
                   kernel_params: Floats = (), kernel_type: str = "LINEAR",
                   post_transform: str = "NONE", prob_a: Floats = (), prob_b: Floats = (),
                   support_vectors: Floats = (), vectors_per_class: Ints = ()) -> object:
    """Votes of pairs, or linear models."""
    labels = labels_of(classlabels_ints, classlabels_strings, "the labels of SVMClassifier")
    count = sum(vectors_per_class)
    if len(labels) < 2 or count and len(vectors_per_class) != len(labels):
        raise Declined(f"SVMClassifier of {len(labels)} labels")
    pairs = len(labels) * (len(labels) - 1) // 2
    vectors = ctx.constant(floats(support_vectors, count, -1)) if count else None
    shape = (len(labels) - 1, count) if count else (len(labels), -1)
    platt = [ctx.constant(floats(p[:pairs])) if p and count else None for p in (prob_a, prob_b)]
    number, scores = several(
        "svm_classifier", rows(x), ctx.constant(floats(coefficients, *shape)),
        ctx.constant(floats(rho[:pairs if count else 1])), vectors=vectors, prob_a=platt[0],
        prob_b=platt[1], per_class=vectors_per_class if count else (), transform=post_transform,
        **_kernel(kernel_type if count else "LINEAR", kernel_params))
    return named(ctx, number, labels), scores


