"""Caches that a run changes in part: copied for a caller, left where they are on the device."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from treadle import ops
from treadle.errors import RunError


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_entries_are_appended_to_a_cache(mode: str) -> None:
    pick = np.random.default_rng(1)
    cache = pick.standard_normal((2, 4, 1000, 32)).astype(np.float32)
    model = treadle.trace(
        lambda cache, update, at: ops.kv_append(cache, update, at, mode=mode),  # type: ignore[arg-type]
        "f32[2,4,1000,32]", "f32[2,4,T,32]", "i64[2]")
    run, want = model.compile("cpu", threads=2), cache.copy()
    output = model.signature.outputs[0].name
    held = model.compile("cpu", threads=2)
    memory = held.resident("cache", cache).feed(output=output)
    for at, count in ((0, 1), (7, 3), (990, 10), (3, 0)):
        update = pick.standard_normal((2, 4, count, 32)).astype(np.float32)
        places = np.array([at, at // 2])
        before = want.copy()
        for n, first in enumerate(places):
            want[n, :, first:first + count] = update[n]
        got = run(cache=before, update=update, at=places)[output]
        np.testing.assert_array_equal(got, want)
        held(update=update, at=places)
        np.testing.assert_array_equal(memory.read(), want)
    assert memory.grant.in_place


@pytest.mark.parametrize(("mode", "at"), [("linear", 3), ("linear", -1), ("circular", 0)])
def test_entries_that_do_not_fit_are_refused(mode: str, at: int) -> None:
    model = treadle.trace(
        lambda cache, update, at: ops.kv_append(cache, update, at, mode=mode),  # type: ignore[arg-type]
        "f32[1,4,2]", "f32[1,T,2]", "i64[1]")
    entries = 2 if mode == "linear" else 5
    with pytest.raises(RunError, match="do not fit 4"):
        model.compile("cpu")(cache=np.zeros((1, 4, 2), np.float32), at=np.array([at]),
                             update=np.ones((1, entries, 2), np.float32))
