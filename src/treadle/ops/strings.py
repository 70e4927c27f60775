"""Operators on strings; they run on the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, cast

import numpy as np

from ..declare.arrays import Array, array_of, np_dtype
from ..declare.kinds import structured
from ..declare.schema import arr, known
from ..errors import OperatorError
from ..ir.dims import sym
from ..ir.graph import Blob
from ..ir.types import BOOL, F32, I64, STRING, DType, TensorType, broadcast
from .regex import compile_pattern, full_match

ORACLE = "tests.oracles.strings:"


def _text(name: str, t: TensorType) -> None:
    if t.dtype is not STRING:
        raise OperatorError(f"{name} is {t}, not strings")


def _each(x: Array, fn: Callable[[str], object], dtype: object = object) -> Array:
    """`fn` of every string."""
    out = cast(Array, np.empty(x.size, cast("str", dtype)))
    out[:] = [fn(s) for s in _strings(x)]
    return out.reshape(x.shape)


def _strings(x: Array) -> list[str]:
    return [s.decode() if isinstance(s, bytes) else str(s) for s in x.reshape(-1)]


def _concat_types(a: TensorType, b: TensorType) -> TensorType:
    _text("the first operand", a)
    _text("the second operand", b)
    return TensorType(broadcast([a.shape, b.shape]), STRING)


@structured(types=_concat_types, samples=[
    known(arr([["a"], ["b"]], "string"), arr(["c", ""], "string"),
          expect=[arr([["ac", "a"], ["bc", "b"]], "string")])])
def string_concat(a: Array, b: Array) -> Array:
    """The strings of b after those of a; shapes broadcast."""
    return np.add(a, b)


def _split_types(x: TensorType, *, delimiter: str, maxsplit: int | None, fresh: str
                 ) -> tuple[TensorType, TensorType]:
    _text("x", x)
    if not fresh:
        raise OperatorError("the number of parts depends on the run",
                            hint='name it: fresh="parts1"')
    return x.with_(shape=(*x.shape, sym(fresh))), x.with_(dtype=I64)


@structured(types=_split_types, samples=[
    known(arr(["a.com", "b.c.d", ""], "string"), delimiter=".", fresh="p",
          expect=ORACLE + "string_split"),
    known(arr([["hello  world ", " x"]], "string"), fresh="p", expect=ORACLE + "string_split"),
    known(arr(["o-n-x-x", "o-n"], "string"), delimiter="-", maxsplit=2, fresh="p",
          expect=ORACLE + "string_split")])
def string_split(x: Array, *, delimiter: str = "", maxsplit: int | None = None, fresh: str = ""
                 ) -> tuple[Array, Array]:
    """The parts of each string on a new last axis, padded with ""; and the number of parts.

    Without a delimiter any run of white space separates; an empty string has no parts. `fresh`
    names the symbol that is the most parts of one string (ONNX StringSplit).
    """
    most = -1 if maxsplit is None else maxsplit
    parts = [s.split(delimiter or None, most) if s else [] for s in _strings(x)]
    out = np.full((len(parts), max(map(len, parts), default=0)), "", object)
    for row, words in zip(out, parts, strict=True):
        row[:len(words)] = words
    counts = np.asarray([len(p) for p in parts], np.int64).reshape(x.shape)
    return out.reshape(*x.shape, out.shape[1]), counts


Case = Literal["NONE", "LOWER", "UPPER"]
_CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


def _normalizer_types(x: TensorType, *, case: str, case_sensitive: bool,
                      stopwords: tuple[str, ...], fresh: str) -> TensorType:
    _text("x", x)
    if x.rank not in (1, 2) or (x.rank == 2 and x.shape[0] != 1):
        raise OperatorError(f"x[C] or x[1, C] is needed, got {x}")
    if not stopwords:
        return x
    if not fresh:
        raise OperatorError("the number of strings left depends on the run",
                            hint='name it: fresh="left1"')
    return x.with_(shape=(*x.shape[:-1], sym(fresh)))


@structured(types=_normalizer_types, samples=[
    known(arr(["Monday", "tuesday", "x"], "string"), case="LOWER", case_sensitive=True,
          stopwords=("monday", "x"), fresh="k", expect=[arr(["monday", "tuesday"], "string")]),
    known(arr([["Monday"]], "string"), case="UPPER", stopwords=("monday",), fresh="k",
          expect=[arr([[""]], "string")]),
    known(arr(["aé"], "string"), case="UPPER", expect=[arr(["AÉ"], "string")])])
def string_normalizer(x: Array, *, case: Literal["NONE", "LOWER", "UPPER"] = "NONE",
                      case_sensitive: bool = False, stopwords: tuple[str, ...] = (),
                      fresh: str = "") -> Array:
    """x[C] or x[1, C] without its stop words, then in another case (ONNX StringNormalizer).

    When nothing is left the result is one empty string. `fresh` names how many are left.
    """
    fold = str if case_sensitive else str.lower
    stop = {fold(w) for w in stopwords}
    kept = [_CASES[case](s) for s in _strings(x) if not stop or fold(s) not in stop]
    out = np.empty(len(kept), object)
    out[:] = kept
    out = out if kept or not stop else np.asarray([""], object)
    return out.reshape((*x.shape[:-1], len(out)))


def _regex_types(x: TensorType, *, pattern: str) -> TensorType:
    _text("x", x)
    compile_pattern(pattern)
    return x.with_(dtype=BOOL)


@structured(types=_regex_types, samples=[
    known(arr([["a.com", "b"], ["www.c.org", ".com"]], "string"), pattern=r"(www\.)?\w+\.\w+",
          expect=[[[True, False], [True, False]]])])
def regex_full_match(x: Array, *, pattern: str) -> Array:
    """Whether a regular expression matches the whole of each string.

    The syntax is RE2's, which ONNX names; time is linear in the length of the text.
    """
    code = compile_pattern(pattern)
    return _each(x, lambda s: full_match(code, s), np.bool_)


def _to_string_types(x: TensorType) -> TensorType:
    if x.dtype.sort not in ("bool", "int", "uint", "float"):
        raise OperatorError(f"{x} has no text form")
    return x.with_(dtype=STRING)


def number_text(value: float) -> str:
    """A number as text, in at least 8 significant digits and as many as it takes to read it back.

    NaN, INF and -INF are the names of what is no number; f32 values need at most 9 digits.
    """
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"
    for digits in range(8, 18):
        if float(text := f"{value:.{digits}g}") == value:
            return text
    return repr(value)


def _narrow_text(value: float) -> str:
    for digits in (8, 9):
        if np.float32(text := f"{value:.{digits}g}") == np.float32(value):
            return text
    return number_text(value)


@structured(types=_to_string_types, samples=[
    known([0.1, 1 / 3, 16777216.0, 1e10, 1e-7, 123456.789, 3.0, -0.0, float("nan"),
           float("inf"), -float("inf")], expect=ORACLE + "to_string"),
    known([-3, 10**12], expect=[arr(["-3", "1000000000000"], "string")]),
    known([True, False], expect=[arr(["1", "0"], "string")]),
    known(arr([0.1], "f64"), expect=[arr(["0.1"], "string")])])
def to_string(x: Array) -> Array:
    """Numbers as text: what Cast to string means; bool becomes 1 and 0.

    Floats take the digits that read back as the same number, at least 8 where more exist.
    """
    out = np.empty(x.size, object)
    if x.dtype.kind in "iub" or "int" in x.dtype.name:
        out[:] = [str(int(v)) for v in x.reshape(-1)]
    elif x.dtype == np.float64:
        out[:] = [number_text(v) for v in x.reshape(-1).tolist()]
    else:
        wide = x.astype(np.float32).reshape(-1)
        out[:] = [_narrow_text(v) if math.isfinite(v) else number_text(v)
                  for v in wide.tolist()]
    return out.reshape(x.shape)


def _parse_types(x: TensorType, *, dtype: DType) -> TensorType:
    _text("x", x)
    if dtype.sort not in ("bool", "int", "uint", "float"):
        raise OperatorError(f"text is not read as {dtype}")
    return x.with_(dtype=dtype)


@structured(types=_parse_types, samples=[
    known(arr(["1e3", " 2 ", "nan", "INF", "-inf", "+INF", "-0.5"], "string"), dtype="f32",
          expect=ORACLE + "parse_number"),
    known(arr(["-12", "7"], "string"), dtype="i8", expect=[arr([-12, 7], "i8")]),
    known(arr(["1", "0"], "string"), dtype="bool", expect=[[True, False]])])
def parse_number(x: Array, *, dtype: DType) -> Array:
    """Text as numbers: what Cast from string means.

    Decimal or scientific notation, inf and nan in any case; integers in decimal, in range. Text
    that is no number is an error.
    """
    whole = dtype.sort != "float"
    numbers = [_parsed(s, whole, dtype) for s in _strings(x)]
    wide = np.asarray(numbers, object if whole else np.float64)
    return wide.astype(np_dtype(dtype)).reshape(x.shape)


def _parsed(text: str, whole: bool, dtype: DType) -> float:
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        raise OperatorError(f"{text[:40]!r} is not a number of {dtype}") from None
    low = -(1 << dtype.bits - 1) if dtype.sort == "int" else 0
    high = (1 << dtype.bits - (dtype.sort == "int")) - 1
    if dtype.sort in ("int", "uint") and not low <= value <= high:
        raise OperatorError(f"{text} does not fit {dtype}")
    return value


def _pool(pool: Blob, ngram_counts: Sequence[int]) -> dict[tuple[object, ...], int]:
    """Every n-gram of the pool with its number."""
    words = cast("list[object]", array_of(pool).reshape(-1).tolist())
    out, ends = dict[tuple[object, ...], int](), [*ngram_counts[1:], len(words)]
    if len(ends) != len(ngram_counts) or [0, *ends] != sorted([0, *ends]):
        raise OperatorError(f"the offsets {ngram_counts} do not divide {len(words)} words",
                            hint="they say where the 1-grams, 2-grams, ... of the pool start")
    for n, (start, end) in enumerate(zip(ngram_counts, ends, strict=True), 1):
        for at in range(start, end, n):
            out[tuple(words[at:at + n])] = len(out)
    return out


def _tfidf_types(x: TensorType, *, mode: str, pool: Blob, ngram_counts: tuple[int, ...],
                 ngram_indexes: tuple[int, ...], weights: tuple[float, ...],
                 min_length: int, max_length: int, max_skip: int) -> TensorType:
    if x.rank not in (1, 2):
        raise OperatorError(f"x[C] or x[N, C] is needed, got {x}")
    if (x.dtype is STRING) != (pool.dtype is STRING):
        raise OperatorError(f"x is {x.dtype}, the pool is {pool.dtype}")
    if not 1 <= min_length <= max_length or max_skip < 0:
        raise OperatorError(f"n-grams of {min_length} to {max_length} with {max_skip} skips")
    size = len(_pool(pool, ngram_counts))
    if len(ngram_indexes) != size or len(weights) not in (0, size):
        raise OperatorError(f"the pool has {size} n-grams, there are {len(ngram_indexes)} indexes "
                            f"and {len(weights)} weights")
    if min(ngram_indexes, default=0) < 0:
        raise OperatorError(f"the index {min(ngram_indexes)} is negative")
    return TensorType((*x.shape[:-1], max(ngram_indexes, default=-1) + 1), F32)


POOL = np.array([2, 3, 5, 4, 5, 6, 7, 8, 6, 7])


@structured(types=_tfidf_types, samples=[
    known([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]], mode=mode, pool=POOL,
          ngram_counts=(0, 4), ngram_indexes=(0, 1, 2, 3, 4, 5, 6),
          weights=(1.0, 2.0, 0.5, 1.0, 3.0, 1.5, 1.0), min_length=low, max_length=2,
          max_skip=skip, expect=ORACLE + "tfidf")
    for mode, low, skip in (("TF", 2, 0), ("TF", 1, 5), ("IDF", 1, 0), ("TFIDF", 1, 1))])
def tfidf_vectorizer(x: Array, *, mode: Literal["TF", "IDF", "TFIDF"], pool: Blob,
                     ngram_counts: tuple[int, ...], ngram_indexes: tuple[int, ...],
                     weights: tuple[float, ...] = (), min_length: int, max_length: int,
                     max_skip: int) -> Array:
    """How often each n-gram of the pool occurs in x[C] or in each row of x[N, C], as f32.

    The words of an n-gram lie up to `max_skip` + 1 apart, all equally far. Results go to
    `ngram_indexes`; "IDF" writes the weight of what occurs, "TFIDF" weight times count. Source:
    ONNX TfIdfVectorizer, with its n-grams listed in `pool` from the offsets `ngram_counts`.
    """
    known_grams = _pool(pool, ngram_counts)
    scale = np.asarray(weights or (1.0,) * len(ngram_indexes), np.float32)
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    out = np.zeros((len(rows), max(ngram_indexes, default=-1) + 1), np.float32)
    for row, into in zip(rows, out, strict=True):
        words = _strings(row) if row.dtype == object else cast("list[object]", row.tolist())
        for gram in _grams(words, min_length, max_length, max_skip):
            if (i := known_grams.get(gram)) is None:
                continue
            at, weight = ngram_indexes[i], scale[i]
            into[at] = weight if mode == "IDF" else into[at] + (weight if mode == "TFIDF" else 1)
    return out.reshape((*x.shape[:-1], out.shape[1]))


def _grams(words: Sequence[object], low: int, high: int, max_skip: int
           ) -> Iterable[tuple[object, ...]]:
    for n in range(low, min(high, len(words)) + 1):
        for gap in range(1, (min(max_skip, len(words)) if n > 1 else 0) + 2):
            for start in range(len(words) - (n - 1) * gap):
                yield tuple(words[start:start + (n - 1) * gap + 1:gap])
