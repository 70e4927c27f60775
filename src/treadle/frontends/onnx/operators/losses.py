"""Losses."""

from __future__ import annotations

from typing import Literal

from ....errors import Declined
from ....ir.graph import Value
from ....ops.loss import nll_loss, softmax_cross_entropy
from ..context import Context
from ..registry import importer

Reduction = Literal["none", "sum", "mean"]


def _known(reduction: str) -> Reduction:
    for name in ("none", "sum", "mean"):
        if reduction == name:
            return name
    raise Declined(f"reduction={reduction!r}", hint="it is none, sum or mean")


@importer("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood(ctx: Context, logp: Value, target: Value, weight: Value | None, *,
                            ignore_index: int | None = None, reduction: str = "mean") -> Value:
    """From log-probabilities along axis 1."""
    return nll_loss(logp, target, weight=weight, ignore_index=ignore_index,
                    reduction=_known(reduction))


@importer("SoftmaxCrossEntropyLoss", since=12)
def cross_entropy(ctx: Context, scores: Value, labels: Value, weight: Value | None, *,
                  ignore_index: int | None = None, reduction: str = "mean"
                  ) -> tuple[Value, ...]:
    """From scores along axis 1; the second output is their log_softmax."""
    return softmax_cross_entropy(scores, labels, weight=weight, ignore_index=ignore_index,
                                 reduction=_known(reduction))
