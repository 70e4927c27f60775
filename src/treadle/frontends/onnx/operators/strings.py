"""Operators on strings, and the counting of n-grams."""

from __future__ import annotations

import numpy as np

from ....declare.arrays import blob
from ....declare.opdef import REGISTRY
from ....errors import Declined
from ....ir.graph import Value
from ..context import Context
from ..registry import importer
from .shape import op

_OWN_CASE = ("tr", "az", "lt")
"""Languages whose letters change case in a way of their own."""


@importer("StringConcat")
def string_concat(ctx: Context, x: Value, y: Value) -> Value:
    """Joined strings; shapes broadcast."""
    return op("string_concat", x, y)


@importer("StringSplit")
def string_split(ctx: Context, x: Value, *, delimiter: str = "", maxsplit: int | None = None
                 ) -> object:
    """Parts, and their number."""
    return REGISTRY["string_split"](x, delimiter=delimiter, maxsplit=maxsplit,
                                    fresh=ctx.fresh("parts"))


@importer("StringNormalizer")
def string_normalizer(ctx: Context, x: Value, *, case_change_action: str = "NONE",
                      is_case_sensitive: int = 0, locale: str = "en_US",
                      stopwords: tuple[str, ...] = ()) -> Value:
    """Stop words removed, case changed."""
    if locale.lower().startswith(_OWN_CASE):
        raise Declined(f"StringNormalizer in the locale {locale}",
                       hint="case changes by Unicode's rules, which no locale alters")
    return op("string_normalizer", x, case=case_change_action,
              case_sensitive=bool(is_case_sensitive), stopwords=stopwords,
              fresh=ctx.fresh("kept"))


@importer("RegexFullMatch")
def regex_full_match(ctx: Context, x: Value, *, pattern: str = "") -> Value:
    """Whether a pattern matches each whole string."""
    return op("regex_full_match", x, pattern=pattern)


@importer("TfIdfVectorizer")
def tfidf_vectorizer(ctx: Context, x: Value, *, mode: str, ngram_counts: tuple[int, ...],
                     ngram_indexes: tuple[int, ...], max_gram_length: int,
                     max_skip_count: int, min_gram_length: int,
                     pool_int64s: tuple[int, ...] = (), pool_strings: tuple[str, ...] = (),
                     weights: tuple[float, ...] = ()) -> Value:
    """Counts of the pool's n-grams."""
    if pool_int64s and pool_strings:
        raise Declined("TfIdfVectorizer with both pool_int64s and pool_strings")
    pool = np.asarray(pool_strings, object) if pool_strings else np.asarray(pool_int64s, np.int64)
    return op("tfidf_vectorizer", x, mode=mode, pool=blob(pool), ngram_counts=ngram_counts,
              ngram_indexes=ngram_indexes, weights=weights, min_length=min_gram_length,
              max_length=max_gram_length, max_skip=max_skip_count)
