"""Every operator over its whole attribute space: type rule, body and error agree.

What the type rule accepts runs, with outputs of exactly the inferred types, or the body refuses
the data in its own words; what it rejects is an OperatorError that says why.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.conformance.harness import check_types, execute
from tests.fuzz.calls import Call, calls
from treadle.declare import evaluate, room
from treadle.declare.opdef import infer
from treadle.errors import OperatorError, RunError
from treadle.ir.verify import verify
from treadle.ops.library import REGISTRY

MEMORY = 1 << 24
"""Bytes that results may take."""
SECONDS = 5
"""Longest that one call may take."""


@contextmanager
def time_limit(call: Call) -> Iterator[None]:
    """An error when the block takes longer than `SECONDS`."""
    def stop(*_: object) -> None:
        raise AssertionError(f"longer than {SECONDS} s: {call}")

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def check(call: Call) -> None:
    """The three ways out, and no other."""
    try:
        graph = call.trace()
    except OperatorError as e:
        assert len(e.message) > 5
        return
    verify(graph, infer)
    binding: dict[str, int] = {"n": 3}
    try:
        with np.errstate(all="ignore"):
            out = execute(graph, call.arrays(), binding)
    except RunError as e:
        assert "Error:" not in str(e), str(e)
        return
    check_types(graph.outputs, out, binding)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_calls_run_or_are_refused(name: str, monkeypatch: pytest.MonkeyPatch,
                                  fuzz_calls: int) -> None:
    monkeypatch.setattr(room, "available", lambda: MEMORY)
    for module in (room, evaluate):
        monkeypatch.setattr(module, "SMALL", MEMORY >> 2)

    @settings(max_examples=fuzz_calls, deadline=None, database=None, derandomize=True,
              suppress_health_check=list(HealthCheck))
    @given(call=calls(REGISTRY[name]))
    def run(call: Call) -> None:
        with warnings.catch_warnings(), time_limit(call):
            warnings.simplefilter("ignore")
            check(call)

    run()
