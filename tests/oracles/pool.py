"""Pooling, regions and sampling by ONNX Runtime, in f32."""

from __future__ import annotations

import numpy as np

from . import ort


def _attrs(kernel: tuple[int, ...], strides: tuple[int, ...] = (),
           dilations: tuple[int, ...] = (), pads: tuple[int, ...] = (), ceil_mode: bool = False
           ) -> dict[str, object]:
    return {"kernel_shape": kernel, "strides": strides or None, "dilations": dilations or None,
            "pads": pads or None, "ceil_mode": int(ceil_mode)}


def max_pool(x: np.ndarray, **attrs: object) -> list[np.ndarray]:
    wide = x if x.dtype == np.int8 else x.astype(np.float32)
    (y,) = ort.run("MaxPool", [wide], _attrs(**attrs))
    return [y.astype(x.dtype)]


def max_pool_with_argmax(x: np.ndarray, *, column_major: bool = False, **attrs: object
                         ) -> list[np.ndarray]:
    return ort.run("MaxPool", [x], {**_attrs(**attrs), "storage_order": int(column_major)},
                   outputs=2)


def average_pool(x: np.ndarray, *, count_include_pad: bool = False, **attrs: object
                 ) -> list[np.ndarray]:
    (y,) = ort.run("AveragePool", [x.astype(np.float32)],
                   {**_attrs(**attrs), "count_include_pad": int(count_include_pad)})
    return [y.astype(x.dtype)]


def lp_pool(x: np.ndarray, *, p: int = 2, **attrs: object) -> list[np.ndarray]:
    return ort.run("LpPool", [x], {**_attrs(**attrs), "p": p})


def sum_pool(x: np.ndarray, **attrs: object) -> list[np.ndarray]:
    """The sum as the difference of two positive L1 pools."""
    parts = [lp_pool(np.maximum(s * x.astype(np.float32), 0), p=1, **attrs)[0] for s in (1, -1)]
    return [(parts[0] - parts[1]).astype(x.dtype)]
