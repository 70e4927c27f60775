"""Decoding helpers of com.microsoft."""

from __future__ import annotations

from ....declare.opdef import REGISTRY
from ....ir.graph import Value
from ..context import Context
from ..registry import MICROSOFT, importer
from .shape import op


@importer("NGramRepeatBlock", domain=MICROSOFT)
def ngram_repeat_block(ctx: Context, ids: Value, scores: Value, *, ngram_size: int) -> Value:
    """No n-gram twice."""
    return op("ngram_repeat_block", ids, scores, size=ngram_size)


@importer("BifurcationDetector", domain=MICROSOFT)
def bifurcation_detector(ctx: Context, source: Value, current: Value, start: Value,
                         predicted: Value | None, *, min_ngram_size: int, max_ngram_size: int
                         ) -> object:
    """Where a prediction leaves its source."""
    return REGISTRY["bifurcation_detector"](
        source, current, start, predicted=predicted, low=min_ngram_size, high=max_ngram_size,
        fresh=ctx.fresh("tokens"))
