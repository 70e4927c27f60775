"""Every pass on small graphs: tests/golden/passes/<pass>/<case>.ir holds input, output and report.

A new case is a file with the input graph alone; `pytest --update-golden` fills in the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import GOLDEN
from tests.passes.running import operands, run_both
from treadle.declare.opdef import infer
from treadle.ir.parser import parse_graph
from treadle.ir.printer import print_graph
from treadle.ir.verify import verify
from treadle.ops.library import REGISTRY
from treadle.passes.base import Context
from treadle.passes.pipeline import PASSES

CASES = sorted(p.relative_to(GOLDEN) for p in (GOLDEN / "passes").glob("*/*.ir"))
MARK = "// "
ROUNDING = ("raise_", "fold_affine")
"""Passes that keep results up to rounding; the others keep every bit."""


def _input(path: Path) -> str:
    text = path.read_text("utf-8")
    return text.split(f"{MARK}after\n")[0].removeprefix(f"{MARK}before\n")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Path, golden: Callable[[str, str], None]) -> None:
    assert REGISTRY
    before = parse_graph(_input(GOLDEN / case))
    verify(before, infer)
    text, ctx = print_graph(before, locs=True), Context()
    after = PASSES[case.parent.name]().run(before, ctx)
    assert print_graph(before, locs=True) == text, "the pass changed its input"
    verify(after, infer)
    report = "".join(f"{MARK}{entry}\n" for entry in ctx.report)
    golden(str(case), f"{MARK}before\n{text}{MARK}after\n{print_graph(after, locs=True)}"
                      f"{MARK}report\n{report}")
    exact = not case.parent.name.startswith(ROUNDING)
    for a, b in zip(*run_both(before, after, operands(before)), strict=True):
        np.testing.assert_allclose(a, b, *((0, 0) if exact else (1e-5, 1e-6)))


def test_every_pass_has_a_case() -> None:
    elsewhere = {"decompose", "dedupe_params", "fuse", "join_products", "open_resize",
                 "raise_quantized", "widen"}
    assert {c.parent.name for c in CASES} | elsewhere >= PASSES.keys()
