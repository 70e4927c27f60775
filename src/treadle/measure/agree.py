"""Whether two engines gave the same outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..declare.arrays import Array

RELATIVE, ABSOLUTE = 1e-4, 1e-5


@dataclass(frozen=True, slots=True)
class Agreement:
    """The largest difference, and whether it lies inside the bound; `reason` when it does not."""

    agrees: bool
    max_difference: float
    reason: str = ""


def agreement(a: Array, b: Array, relative: float = RELATIVE) -> Agreement:
    """Compare with |a-b| <= 1e-5 + relative * max(|b|, mean|b|); NaN and infinities must match.

    Arrays of objects, such as strings, must be equal.
    """
    if a.shape != b.shape:
        return Agreement(False, np.inf, f"shapes {list(a.shape)} and {list(b.shape)}")
    if "O" in (a.dtype.kind, b.dtype.kind) or "U" in (a.dtype.kind, b.dtype.kind):
        same = a.tolist() == b.tolist()
        return Agreement(same, 0.0 if same else np.inf, "" if same else "different objects")
    wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    x, y = a.astype(wide), b.astype(wide)
    size = np.abs(y)
    finite = np.isfinite(x) & np.isfinite(y)
    scale = size[np.isfinite(size)]
    limit = ABSOLUTE + relative * np.maximum(size, scale.mean() if scale.size else 0.0)
    with np.errstate(invalid="ignore"):
        gap = np.abs(x - y)
        fine = np.where(finite, gap <= limit, (x == y) | (np.isnan(x) & np.isnan(y)))
    worst = float(np.max(gap[finite], initial=0.0))
    if fine.all():
        return Agreement(True, worst)
    if (~fine & ~finite).any():
        return Agreement(False, np.inf, "NaN or infinity on one side")
    return Agreement(False, worst, f"largest difference {worst:.3g}")


def all_agree(ours: Sequence[Array], theirs: Sequence[Array], relative: float = RELATIVE
              ) -> Agreement:
    """The worst of several outputs, compared in order."""
    if len(ours) != len(theirs):
        return Agreement(False, np.inf, f"{len(ours)} and {len(theirs)} outputs")
    found = [agreement(np.asarray(a), np.asarray(b), relative)
             for a, b in zip(ours, theirs, strict=True)]
    for at, one in enumerate(found):
        if not one.agrees:
            return Agreement(False, one.max_difference, f"output {at}: {one.reason}")
    return Agreement(True, max((f.max_difference for f in found), default=0.0))
