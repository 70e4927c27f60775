"""Graph text of real operators, damaged: every failure is one of the project's own errors."""

from __future__ import annotations

import re
from random import Random

import numpy as np
import pytest

from tests.conformance.harness import CASES, Case, draw, execute
from treadle.declare.opdef import infer
from treadle.errors import ParseError, RunError, TreadleError, VerifyError
from treadle.ir.graph import Builder, Graph, Value
from treadle.ir.parser import parse_graph
from treadle.ir.types import DTYPES
from treadle.ir.verify import verify
from treadle.ops.library import REGISTRY
from treadle.transforms.inline import decompose, inline

BY_OPERATOR = [[c for c in CASES if c.op.name == name] for name in REGISTRY]
ids = list(REGISTRY)
NUMBERS = ("0", "1", "2", "3", "7", "-1", "-3", "100")
WORDS = ("none", "true", "false", '"x"', "()", "(1,)", "(0,0,)", "1.5", "nan", "f32", "i64", "<n>")


def _damaged(text: str, rng: Random) -> str:
    """One number, dtype or attribute value replaced by another."""
    pattern, new = rng.choice([
        (r"(?<=[\[,=(])-?\d+(?=[\],)])", NUMBERS),
        (r"\b(?:f32|f16|bf16|i64|i32|bool|u8)(?=\[)", ("f32", "i64", "bool", "f16", "u4", "string",
                                                      "c64", "q4_0")),
        (r"(?<==)[^,{}%]+(?=[,}])", WORDS)])
    places = list(re.finditer(pattern, text))
    if not places:
        return text
    m = rng.choice(places)
    return text[:m.start()] + rng.choice(new) + text[m.end():]


def _run(graph: Graph, case: Case) -> None:
    """Run on data of the graph's own input types, if those are plain."""
    leaves = (*graph.inputs, *graph.params)
    if any(not isinstance(d, int) for v in leaves for d in v.type.shape) or any(
            v.dtype.sort in ("block", "host") or v.dtype not in DTYPES.values() for v in leaves):
        return
    rng = np.random.default_rng(0)
    execute(graph, [draw(v.type, case.sample, rng) for v in leaves])


@pytest.mark.parametrize("cases", BY_OPERATOR, ids=ids)
def test_damaged_operators_fail_cleanly(cases: list[Case]) -> None:
    rng = Random(cases[0].op.name)
    for _ in range(16):
        case = rng.choice(cases)
        text = _damaged(str(case.graph), rng)
        try:
            graph = parse_graph(text)
            verify(graph, infer)
        except (ParseError, VerifyError):
            continue
        try:
            _run(graph, case)
        except RunError:
            continue
        except TreadleError as e:
            raise AssertionError(f"{e.__class__.__name__} at run time: {e}\n{text}") from e


@pytest.mark.parametrize("seed", range(30))
def test_graphs_of_many_operators(seed: int) -> None:
    """Several operators in one graph, names and regions together."""
    rng = Random(seed)
    chosen = rng.sample(CASES, 8)
    with Builder(f"mix{seed}") as b:
        outputs: list[Value] = []
        for case in chosen:
            graph = case.graph
            outputs += inline(graph, [b.input(v.name, v.type) for v in graph.inputs])
        mixed = b.finish(outputs, [f"y.{i}" for i in range(len(outputs))])
    text = str(mixed)
    again = parse_graph(text)
    for g in (mixed, again, decompose(mixed)):
        verify(g, infer)
    assert str(again) == text
    assert [v.name for v in again.inputs] == [v.name for v in mixed.inputs]
