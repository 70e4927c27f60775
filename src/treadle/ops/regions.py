"""Pooling and resizing of regions of interest."""

from __future__ import annotations

import math
from typing import Literal, cast

import numpy as np

from ..declare.arrays import Array, ints, widen
from ..declare.kinds import structured
from ..declare.schema import arr, known
from ..errors import OperatorError
from ..ir.dims import Size
from ..ir.types import Shape, TensorType
from .extents import surely_differ

MOST_POINTS = 1 << 12
"""Points along one axis of a bin."""
Pair = tuple[float, float]
PLANE = [[[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [9.0, 10.0, 11.0, 12.0]]]]
BOXES = [[0.0, 0.0, 3.0, 2.0], [1.0, 0.5, 2.5, 2.0], [2.0, 1.0, 9.0, 9.0]]


def _batch(index: float, size: int) -> int:
    if not 0 <= index < size:
        raise OperatorError(f"the region's batch index {index:g} is outside 0..{size - 1}")
    return int(index)


def _roi_pool_types(x: TensorType, rois: TensorType, *, size: tuple[int, ...], scale: float
                    ) -> TensorType:
    if x.rank != 4 or rois.rank != 2 or rois.shape[1] != 5 or len(size) != 2:
        raise OperatorError(f"x[N,C,H,W], rois[R,5] and two sizes are needed, got {x}, {rois}")
    return x.with_(shape=(rois.shape[0], x.shape[1], *size))


def _bins(start: int, end: int, count: int, limit: int) -> list[slice]:
    width = max(end - start + 1, 1) / count
    return [slice(min(max(math.floor(i * width) + start, 0), limit),
                  min(max(math.ceil((i + 1) * width) + start, 0), limit)) for i in range(count)]


@structured(types=_roi_pool_types, samples=[
    known(PLANE, [[0.0, 1.0, 0.0, 3.0, 2.0], [0.0, 0.5, 1.0, 0.0, 0.0]], size=(2, 2),
          expect="tests.oracles.sampling:max_roi_pool")])
def max_roi_pool(x: Array, rois: Array, *, size: tuple[int, ...], scale: float = 1.0) -> Array:
    """The maximum of each of `size` bins of the regions rois[R, 5] = (batch, x1, y1, x2, y2).

    Corners are multiplied by `scale` and rounded; both belong to the region. An empty bin gives
    0. Source: ONNX MaxRoiPool.
    """
    out = np.zeros((len(rois), x.shape[1], *size), x.dtype)
    for r, roi in enumerate(widen(rois)):
        image = x[_batch(float(roi[0]), len(x))]
        if not np.isfinite(roi[1:] * np.float32(scale)).all():
            raise OperatorError(f"region {r} times {scale:g} is not finite")
        x1, y1, x2, y2 = [math.floor(abs(c) + 0.5) * (1 if c >= 0 else -1)
                          for c in (roi[1:] * np.float32(scale)).tolist()]
        for i, rows in enumerate(_bins(y1, y2, size[0], x.shape[2])):
            for j, columns in enumerate(_bins(x1, x2, size[1], x.shape[3])):
                part = image[:, rows, columns]
                if part.size:
                    out[r, :, i, j] = part.max((1, 2))
    return out


def _roi_align_types(x: TensorType, rois: TensorType, batch: TensorType, *, mode: str,
                     size: tuple[int, ...], sampling_ratio: int, scale: float, half_pixel: bool
                     ) -> TensorType:
    if x.rank != 4 or rois.rank != 2 or rois.shape[1] != 4 or len(size) != 2:
        raise OperatorError(f"x[N,C,H,W], rois[R,4] and two sizes are needed, got {x}, {rois}")
    if batch.rank != 1 or surely_differ(batch.shape[0], rois.shape[0]):
        raise OperatorError(f"the batch indices must be [{rois.shape[0]}], got {batch}")
    return x.with_(shape=(rois.shape[0], x.shape[1], *size))


def _points(start: float, length: float, bins: int, ratio: int) -> tuple[Array, int]:
    """Sampling positions of every bin along one axis, and their number in one."""
    adaptive = 0.0 if math.isnan(length) else length / max(bins, 1)
    if max(ratio, adaptive) > MOST_POINTS:
        raise OperatorError(f"a region of {length:g} pixels in {bins} bins, {max(ratio, 0)} points "
                            f"each: more than {MOST_POINTS} points a bin")
    n = ratio if ratio > 0 else max(math.ceil(adaptive), 0)
    at = (cast(Array, np.arange(bins))[:, None] + (cast(Array, np.arange(n)) + 0.5) / max(n, 1))
    return (start + at * (length / bins)).reshape(-1), n


def _neighbours(at: Array, size: int) -> tuple[tuple[Array, Array], ...]:
    """The pixels below and above each position with their weights; outside they are 0."""
    inside = (at >= -1) & (at <= size)
    c = np.clip(at, 0, size - 1)
    low = np.minimum(np.floor(c).astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    t = (c - low).astype(np.float32)
    return (low, (1 - t) * inside), (high, t * inside)


@structured(types=_roi_align_types, samples=[
    known(PLANE, BOXES, [0, 0, 0], size=(2, 3), mode=m, sampling_ratio=s, half_pixel=h, scale=c,
          expect="tests.oracles.sampling:roi_align", rtol=1e-4)
    for m in ("avg", "max") for s in (0, 2) for h in (False, True) for c in (1.0, 0.6)])
def roi_align(x: Array, rois: Array, batch: Array, *, mode: Literal["avg", "max"] = "avg",
              size: tuple[int, ...] = (1, 1), sampling_ratio: int = 0, scale: float = 1.0,
              half_pixel: bool = True) -> Array:
    """Bins of the regions rois[R, 4] of the images batch[R], read bilinearly: [R, C, *size].

    `half_pixel` shifts the scaled corners by half a pixel; without it a region is at least one
    pixel long. `sampling_ratio` points an axis are read in each bin, or as many as its length in
    pixels when 0. "avg" is their mean, "max" the largest weighted neighbour of any of them, as
    ONNX Runtime computes it. Source: ONNX RoiAlign.
    """
    out = np.zeros((len(rois), x.shape[1], *size), widen(x).dtype)
    for r, roi in enumerate(widen(rois)):
        image = widen(x)[_batch(float(batch[r]), len(x))]
        x1, y1, x2, y2 = (roi * np.float32(scale) - np.float32(0.5 * half_pixel)).tolist()
        lengths = (y2 - y1, x2 - x1) if half_pixel else (max(y2 - y1, 1.0), max(x2 - x1, 1.0))
        rows, ny = _points(y1, lengths[0], size[0], sampling_ratio)
        columns, nx = _points(x1, lengths[1], size[1], sampling_ratio)
        parts: list[Array] = [image[:, i][:, :, j] * (a[:, None] * b)
                 for i, a in _neighbours(rows, x.shape[2])
                 for j, b in _neighbours(columns, x.shape[3])]
        whole = cast(Array, np.sum(parts, 0) if mode == "avg" else np.max(parts, 0))
        if ny and nx:
            grouped = whole.reshape(-1, size[0], ny, size[1], nx)
            out[r] = grouped.mean((2, 4)) if mode == "avg" else grouped.max((2, 4))
    return out.astype(x.dtype, copy=False)


def _crop_types(x: TensorType, boxes: TensorType, batch: TensorType, *, size: Shape, mode: str,
                fill: float) -> TensorType:
    if x.rank != 4 or boxes.rank != 2 or boxes.shape[1] != 4 or len(size) != 2:
        raise OperatorError(f"x[N,C,H,W], boxes[R,4] and two sizes are needed, got {x}, {boxes}")
    if batch.rank != 1 or surely_differ(batch.shape[0], boxes.shape[0]):
        raise OperatorError(f"the batch indices must be [{boxes.shape[0]}], got {batch}")
    return x.with_(shape=(boxes.shape[0], x.shape[1], *size))


def _crop_points(start: Array, end: Array, count: int, size: int) -> Array:
    """Positions in pixels `[R, count]`; a single one lies in the middle."""
    low, high = (c[:, None] * np.float32(size - 1) for c in (start, end))
    if count == 1:
        return (low + high) * np.float32(0.5)
    at = low + np.arange(count, dtype=np.float32) * ((high - low) / np.float32(count - 1))
    at[:, -1:] = high
    return at


CROPS = [[0.0, 0.0, 1.0, 1.0], [0.25, 0.5, 0.75, 1.0], [1.0, 1.0, -0.5, 0.0]]


@structured(types=_crop_types, samples=[
    known(PLANE, CROPS, arr([0, 0, 0], "i32"), size=s, mode=m, fill=-1.0,
          expect="tests.oracles.sampling:crop_and_resize", rtol=1e-5)
    for s in ((2, 3), (1, 4)) for m in ("linear", "nearest")])
def crop_and_resize(x: Array, boxes: Array, batch: Array, *, size: tuple[Size, ...],
                    mode: Literal["linear", "nearest"] = "linear", fill: float = 0.0) -> Array:
    """The boxes[R, 4] = (y1, x1, y2, x2) of the images batch[R], resized: [R, C, *size].

    Corners run from 0 to 1 between the centres of the outer pixels; y1 > y2 flips. Positions
    outside give `fill`. Source: tf.image.crop_and_resize, as ONNX Runtime has it.
    """
    images, corners = widen(x), widen(boxes)
    height, width = x.shape[2:]
    rows = _crop_points(corners[:, 0], corners[:, 2], ints(size)[0], height)
    columns = _crop_points(corners[:, 1], corners[:, 3], ints(size)[1], width)
    out = np.full((len(boxes), x.shape[1], *ints(size)), fill, images.dtype)
    for r, (ys, xs) in enumerate(zip(rows, columns, strict=True)):
        image = images[_batch(float(batch[r]), len(x))]
        tall, wide = (ys >= 0) & (ys <= height - 1), (xs >= 0) & (xs <= width - 1)
        found = _read(_read(image, ys[tall], 1, mode), xs[wide], 2, mode)
        out[r][:, tall[:, None] & wide] = found.reshape(len(image), -1)
    return out.astype(x.dtype, copy=False)


def _read(image: Array, at: Array, axis: int, mode: str) -> Array:
    """An image at positions inside it along one axis."""
    if mode == "nearest":
        return image.take(np.floor(at + np.float32(0.5)).astype(np.int64), axis)
    low = np.floor(at).astype(np.int64)
    t = (at - low)[:, None] if axis == 1 else at - low
    first, second = image.take(low, axis), image.take(np.ceil(at).astype(np.int64), axis)
    return first + (second - first) * t
