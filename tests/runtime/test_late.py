"""Executables that specialise themselves offer what others do, or say how to have it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle
from tests.onnx.build import F32, I64, model, node
from tests.runtime.surface import random
from treadle.errors import BindingError
from treadle.runtime.late import LateExecutable


def shaped(*more: Any) -> Any:  # noqa: ANN401 - a model of the front end
    """(x w) reduced over axes that an input names, so that only a run tells the rank of y."""
    return treadle.load(model(
        [node("MatMul", ["x", "w"], ["t"]), node("ReduceSum", ["t", "axes"], ["y"], keepdims=0),
         *more],
        [("x", F32, ["n", 4]), ("axes", I64, ["k"])], [("y", F32, None)] + [
            ("z", F32, None) for _ in more], weights={"w": random(4, 4)}))


AXES = [np.array(a, np.int64) for a in ([0], [1], [0, 1])]


def test_parameters_reach_every_specialisation() -> None:
    exe = shaped().compile(freeze=False)
    assert isinstance(exe, LateExecutable)
    x, w = random(3, 4, seed=1), random(4, 4, seed=2)
    with pytest.raises(BindingError, match="before the first run"):
        exe.set_param("w", w)
    for axes in AXES[:2]:
        exe(x, axes)
    other = exe.clone()
    exe.set_param("w", w.astype(">f4"))
    for axes in AXES:
        for e, used in ((exe, w), (other, random(4, 4))):
            np.testing.assert_allclose(e(x, axes)["y"], (x.astype(float) @ used).sum(tuple(axes)),
                                       rtol=1e-4, atol=1e-5)
    assert exe.compilations == 3
    with pytest.raises(BindingError, match="no parameter 'q'"):
        exe.set_params({"w": w, "q": w})
    frozen = shaped().compile()
    frozen(x, AXES[0])
    with pytest.raises(BindingError, match="frozen"):
        frozen.set_param("w", w)


def test_what_needs_a_graph_says_how_to_have_one() -> None:
    exe = shaped().compile()
    for call in (lambda: exe.resident("x"), lambda: exe.release("x"),
                 lambda: exe.share_params(exe), lambda: exe.reseed(1)):
        with pytest.raises(BindingError, match=r"bind\(arrays\)|random=seed"):
            call()


def test_random_runs_form_one_sequence_over_specialisations() -> None:
    exe = shaped(node("RandomNormalLike", ["x"], ["z"])).compile(random=5)
    x = random(3, 4)
    first = [exe(x, AXES[i])["z"] for i in (0, 1, 0, 2)]
    exe.reseed(5)
    again = [exe(x, AXES[i])["z"] for i in (2, 0)]
    rest = [exe.clone()(x, AXES[1])["z"], exe(x, AXES[0])["z"]]
    for a, b in zip([*again, *rest], [first[0], first[1], first[2], first[2]], strict=True):
        np.testing.assert_array_equal(a, b)
    assert len({a.tobytes() for a in first}) == 4


def test_specialised_sizes_inside_specialisations() -> None:
    exe = shaped().compile(specialise=1)
    x = random(3, 4)
    for _ in range(10):
        np.testing.assert_allclose(exe(x, AXES[0])["y"], (x @ random(4, 4)).sum(0), rtol=1e-4,
                                   atol=1e-5)
    assert any("compiled for n=3" in note for note in exe.explain().notes)
