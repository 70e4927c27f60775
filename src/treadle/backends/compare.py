"""How a reproduction tells whether two results agree."""

from __future__ import annotations

import numpy as np

from ..declare.arrays import dtype_of_array

ABSOLUTE, RELATIVE = 1e-5, 1e-4


def compare(name: str, a: object, b: object) -> bool:
    """Print how two outputs compare: |a-b| <= 1e-5 + r max(|b|, mean|b|) for numbers.

    r is 1e-4, for halves 2 units in the last place; mean|b| is that of finite numbers.
    """
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray) or a.dtype == object:
        print(f"{name}: not compared")
        return True
    if a.shape != b.shape:
        print(f"{name}: shapes {a.shape} and {b.shape}")
        return False
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(wide), b.astype(wide)
    size = np.abs(y)
    finite = size[np.isfinite(size)]
    scale = np.maximum(size, finite.mean() if finite.size else 0.0)
    with np.errstate(invalid="ignore"):
        apart = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
        limit = ABSOLUTE + _relative(a) * np.nan_to_num(scale)
        same = bool((apart <= limit).all())
    print(f"{name}: {'agrees' if same else 'DIFFERS'}, by up to {np.max(apart, initial=0.0):.3g}")
    return same


def _relative(a: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> float:
    dtype = dtype_of_array(a)
    halves = {"f16": 2.0 ** -10, "bf16": 2.0 ** -7}
    return max(RELATIVE, 2 * halves.get(dtype.name, 0.0))
