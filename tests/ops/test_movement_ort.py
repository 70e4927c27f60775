"""Indexing, orders, padding and resampling against ONNX Runtime, on random cases."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles import ort
from treadle.ops.dynamic import non_max_suppression, unique
from treadle.ops.gather import gather_elements, gather_nd, scatter_elements, scatter_nd
from treadle.ops.pad import pad
from treadle.ops.resize import resize, scaled_size
from treadle.ops.scan1d import topk

NAN, INF = np.nan, np.inf
SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter(seed: int, reduction: str) -> None:
    rng = np.random.default_rng(seed)
    x, axis = rng.standard_normal((3, 4, 5)).astype("f4"), int(rng.integers(-3, 3))
    index = rng.integers(-x.shape[axis], x.shape[axis], (2, 3, 4))
    tuples = np.stack([rng.integers(-3, 3, (2, 3)), rng.integers(-4, 4, (2, 3))], -1)
    if reduction == "none":  # the order of writes to one place is free in ONNX
        order = rng.permuted(np.arange(x.shape[axis]))[:2]
        shape = [2 if i == axis % 3 else 3 for i in range(3)]
        index = np.broadcast_to(order.reshape([-1 if i == axis % 3 else 1 for i in range(3)]),
                                shape).copy()
        tuples = np.array([[[0, 1], [2, -1]], [[-1, 0], [1, 3]]])
    few = rng.standard_normal(index.shape).astype("f4")
    rows = rng.standard_normal((*tuples.shape[:-1], 5)).astype("f4")
    attrs = {"reduction": reduction}
    np.testing.assert_allclose(
        scatter_elements(x, index, few, axis=axis, reduction=reduction),
        ort.run("ScatterElements", [x, index, few], {**attrs, "axis": axis})[0], rtol=1e-5)
    np.testing.assert_allclose(scatter_nd(x, tuples, rows, reduction=reduction),
                               ort.run("ScatterND", [x, tuples, rows], attrs)[0], rtol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_gather(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, axis = rng.standard_normal((3, 4, 5)).astype("f4"), int(rng.integers(-3, 3))
    index = rng.integers(-x.shape[axis], x.shape[axis], (2, 4, 3)).astype("i4")
    np.testing.assert_array_equal(gather_elements(x, index, axis=axis),
                                  ort.run("GatherElements", [x, index], {"axis": axis})[0])
    rows = rng.integers(-4, 4, (3, 2, 1))
    np.testing.assert_array_equal(gather_nd(x, rows, batch_dims=1),
                                  ort.run("GatherND", [x, rows], {"batch_dims": 1})[0])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("size", [7, 300])
def test_topk_with_ties_and_nan(size: int, largest: bool) -> None:
    rng = np.random.default_rng(size)
    x = rng.integers(-3, 4, (5, size)).astype("f4")
    x[0, :3] = [NAN, INF, -INF]
    x[1, 2] = x[1, 5] = NAN
    for k in (0, 1, 5):
        want = ort.run("TopK", [x, np.array([k])], {"largest": int(largest)}, outputs=2)
        for got, w in zip(topk(x, k=k, largest=largest), want, strict=True):
            np.testing.assert_array_equal(got, w)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [(-1, 2, 1, -1), (0, -1, 2, 3), (1, 1, 1, 1)])
def test_pad_adds_and_crops(mode: str, pads: tuple[int, ...]) -> None:
    x = np.arange(20, dtype="f4").reshape(4, 5)
    want = ort.run("Pad", [x, np.array(pads)], {"mode": mode})[0]
    np.testing.assert_array_equal(pad(x, pads=pads, mode=mode), want)


@pytest.mark.parametrize("center", [False, True])
def test_boxes_with_equal_scores(center: bool) -> None:
    rng = np.random.default_rng(3)
    boxes = rng.uniform(0, 1, (2, 20, 4)).astype("f4")
    scores = (rng.integers(0, 8, (2, 3, 20)) / 8).astype("f4")
    most, iou, least = np.array([4]), np.array([0.3], "f4"), np.array([0.2], "f4")
    want = ort.run("NonMaxSuppression", [boxes, scores, most, iou, least],
                   {"center_point_box": int(center)})[0]
    got = non_max_suppression(boxes, scores, max_boxes=most, iou_threshold=iou,
                              score_threshold=least, center_point=center, names=("n",))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("ordered", [True, False])
def test_unique(axis: int | None, ordered: bool) -> None:
    x = np.random.default_rng(1).integers(0, 3, (6, 2)).astype("f4")
    want = ort.run("Unique", [x], {"axis": axis, "sorted": int(ordered)}, outputs=4)
    for got, w in zip(unique(x, axis=axis, sorted=ordered, names=("n",)), want, strict=True):
        np.testing.assert_array_equal(got, w)


RULES = {"half_pixel": True, "half_pixel_symmetric": True, "pytorch_half_pixel": True,
         "asymmetric": True, "align_corners": False, "tf_crop_and_resize": False}
"""Coordinate rules, and whether ONNX Runtime agrees with ONNX on fractional scales and lengths
of 1; where it does not, only sizes of at least 2 that differ from the input are compared."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("rule", RULES)
def test_resize(rule: str, mode: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1, 2, *rng.integers(2, 7, 2))).astype("f4")
    antialias = mode != "nearest" and rule == "half_pixel" and seed % 2 == 0
    outside = mode == "cubic" and seed % 3 == 0
    near = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"][seed % 4]
    crop = np.array([0, 0, 0.1, -0.2, 1, 1, 0.9, 1.3], "f4")
    roi = crop if rule == "tf_crop_and_resize" else None
    attrs = {"mode": mode, "coordinate_transformation_mode": rule, "antialias": int(antialias),
             "nearest_mode": near, "extrapolation_value": 7.0, "exclude_outside": int(outside)}
    scales = np.array([1, 1, *rng.choice([0.5, 0.8, 1.3, 2, 2.5], 2)], "f4")
    sizes = [scaled_size(s, k) for s, k in zip(x.shape, scales, strict=True)]
    if not RULES[rule]:
        sizes, scales = [1, 2, *(int(s) + 7 for s in x.shape[2:])], None
    elif antialias:  # ONNX Runtime skips an axis whose length a fractional scale leaves as it is
        scales = None
    want = ort.run("Resize", [x, roi, scales, None if scales is not None else np.array(sizes)],
                   attrs, opset=19)[0]
    got = resize(x, sizes=tuple(sizes), scales=() if scales is None else tuple(map(float, scales)),
                 roi=() if roi is None else tuple(map(float, roi)), mode=mode, coordinates=rule,
                 nearest=near, extrapolation=7.0, exclude_outside=outside, antialias=antialias)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
