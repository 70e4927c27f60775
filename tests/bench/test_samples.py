"""Statistics against SciPy and against cases worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from treadle.measure.agree import agreement, all_agree
from treadle.measure.samples import Latency, geometric_mean, summarise, verdict


def test_quartiles_of_equal_blocks() -> None:
    found = summarise([[1.0], [2.0], [3.0], [4.0], [5.0]])
    assert found == Latency(3.0, 2.0, 4.0, 1.0, 5, 5)


def test_a_block_counts_the_same_however_many_calls_it_held() -> None:
    found = summarise([[1.0] * 1000, [3.0] * 2, [3.0] * 2])
    assert found.median == 3.0 and found.samples == 1004


def test_a_single_call() -> None:
    assert summarise([[7.0]]) == Latency(7.0, 7.0, 7.0, 7.0, 1, 1)


@pytest.mark.parametrize("blocks", [[], [[]], [[1.0], []]])
def test_nothing_to_summarise(blocks: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="no times"):
        summarise(blocks)


@pytest.mark.parametrize(("ours", "theirs", "expected"), [
    ((1.0, 2.0), (2.1, 3.0), "faster"), ((2.0, 3.0), (1.0, 1.9), "slower"),
    ((1.0, 2.0), (2.0, 3.0), "even"), ((1.0, 9.0), (2.0, 3.0), "even")])
def test_a_win_lies_outside_the_spread(ours: tuple[float, float], theirs: tuple[float, float],
                                       expected: str) -> None:
    a, b = (Latency(sum(q) / 2, *q, q[0], 9, 3) for q in (ours, theirs))
    assert verdict(a, b) == expected


def test_geometric_mean() -> None:
    ratios = [0.5, 1.7, 4.0, 0.01]
    assert geometric_mean(ratios) == pytest.approx(stats.gmean(ratios))
    assert np.isnan(geometric_mean([]))


A = np.array([1.0, -2.0, 3.0])


@pytest.mark.parametrize(("other", "agrees"), [
    (A, True), (A + 1e-4, True), (A + 1e-2, False), (A[:2], False),
    (np.array([1.0, np.nan, 3.0]), False), (np.array([1.0, np.inf, 3.0]), False)])
def test_agreement(other: np.ndarray, agrees: bool) -> None:
    found = agreement(A, other)
    assert found.agrees is agrees and bool(found.reason) is not agrees


def test_agreement_of_what_is_not_finite() -> None:
    odd = np.array([np.nan, np.inf, -np.inf, 1.0])
    assert agreement(odd, odd.copy()).agrees
    assert not agreement(odd, -odd).agrees


def test_agreement_of_text_and_of_counts() -> None:
    words = np.array(["a", "b"], object)
    assert agreement(words, words.copy()).agrees
    assert not agreement(words, words[::-1]).agrees
    assert all_agree([A], [A, A]).reason == "1 and 2 outputs"
    assert all_agree([A, A], [A, -A]).reason.startswith("output 1: largest difference 6")
