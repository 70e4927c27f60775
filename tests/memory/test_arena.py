"""Arena plans: nothing alive overlaps, in any order of lifetimes and sizes."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.ir.dims import Size, sym
from treadle.memory.arena import ALIGNMENT, ArenaPlan
from treadle.memory.liveness import Access, lifetimes


def random_steps(seed: int) -> tuple[list[Access[int]], dict[int, Size]]:
    rng = np.random.default_rng(seed)
    n = sym("n")
    steps, sizes = list[Access[int]](), dict[int, Size]()
    for b in range(60):
        reads = tuple(sorted({int(x) for x in rng.integers(max(0, b - 8), b, 2)})) if b else ()
        grow: Size = n if rng.integers(2) else int(rng.integers(0, 2000))
        sizes[b] = grow * int(rng.integers(1, 5))
        steps.append(Access((b,), reads, tuple([(b, r) for r in reads])))
    return steps, sizes


@pytest.mark.parametrize("seed", range(20))
def test_live_buffers_never_overlap(seed: int) -> None:
    steps, sizes = random_steps(seed)
    plan = ArenaPlan(steps, sizes, kept=[3, 59])
    for n in (0, 1, 1000):
        layout = plan.layout({"n": n})
        plan.check(layout)
        assert all(at % ALIGNMENT == 0 for at in layout.offsets.values())


def test_memory_is_reused() -> None:
    steps = [Access((b,), (b - 1,) if b else ()) for b in range(50)]
    layout = ArenaPlan(steps, dict.fromkeys(range(50), 640)).layout({})
    assert layout.total == 2 * 640


def test_a_buffer_takes_the_place_of_one_that_dies() -> None:
    steps = [Access((b,), (b - 1,) if b else (), ((b, b - 1),) if b else ()) for b in range(50)]
    layout = ArenaPlan(steps, dict.fromkeys(range(50), 640)).layout({})
    assert layout.total == 640


def test_kept_buffers_live_past_the_end() -> None:
    lives = lifetimes([Access(("a",), ()), Access(("b",), ("a",))], kept=["a"])
    assert (lives["a"].last, lives["b"].last) == (2, 1)
