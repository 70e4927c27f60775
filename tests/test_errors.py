"""The full text of error messages, kept in tests/golden/errors.txt for review."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from tests.declare import test_opdef, test_schema
from tests.ir import test_text, test_verify
from treadle.declare.evaluate import run
from treadle.declare.opdef import infer
from treadle.errors import TreadleError
from treadle.ir.dims import parse_size
from treadle.ir.graph import Builder, Value, trace
from treadle.ir.parser import parse_graph
from treadle.ir.types import DTYPES, parse_type, promote
from treadle.ir.verify import verify
from treadle.ops.gather import gather
from treadle.ops.library import REGISTRY

Build = Callable[[], object]
F = parse_type("f32[n,4]")


def _run() -> object:
    g = trace(lambda x, i: gather(x, i, axis=0), parse_type("f32[2]"), parse_type("i64[1]"))
    return run(g, [np.ones(2, "f4"), np.array([7])], {}, {})


OTHERS: dict[str, Build] = {
    "size": lambda: parse_size("n//0"),
    "type": lambda: parse_type("f32 [4]"),
    "dtype": lambda: parse_type("f31[4]"),
    "promotion": lambda: promote(DTYPES["q4_0"], DTYPES["f32"]),
    "broadcast": lambda: trace(REGISTRY["add"], F, parse_type("f32[m,4]")),
    "leak": lambda: trace(lambda x: x + Value(F, "y"), F, name="g"),
    "constant": lambda: trace(lambda x: x + 0.5, parse_type("i32[4]")),
    "expression": lambda: trace(lambda x: REGISTRY["map"]([x], expr="tanh(x1"), F),
    "run": _run,
    "no builder": lambda: REGISTRY["full"](value=1, shape=(), dtype=DTYPES["i64"]),
}


def _parse(text: str) -> Build:
    return lambda: parse_graph(text)


def _verify(build: Callable[[], object]) -> Build:
    return lambda: verify(build(), infer)  # type: ignore[arg-type]


def _signature(fn: Callable[..., object]) -> Build:
    return lambda: test_schema.read_schema(fn)  # type: ignore[arg-type]


GROUPS: dict[str, Mapping[str, Build]] = {
    "call": {k: fn for k, (fn, _) in test_opdef.MISUSE.items()},
    "declare": {**{k: _signature(fn) for k, (fn, _) in test_schema.SIGNATURES.items()},
                **{k: fn for k, (fn, _) in test_schema.DECLARATIONS.items()}},
    "parse": {k: _parse(text) for k, (text, _) in test_text.BAD.items() if len(text) < 500},
    "verify": {k: _verify(fn) for k, (fn, _) in test_verify.BROKEN.items()},
    "other": OTHERS,
}


def _message(build: Build) -> str:
    try:
        build()
    except TreadleError as e:
        return f"{e.__class__.__name__}: " + re.sub(r"\.py:\d+", ".py:LINE", str(e))
    return "no error"


def test_error_messages(golden: Callable[[str, str], None]) -> None:
    parts = [f"== {group}: {name}\n{_message(build)}\n"
             for group, cases in GROUPS.items() for name, build in cases.items()]
    golden("errors.txt", "\n".join(parts))
    assert not any("no error" in p for p in parts)


def test_builders_are_closed_afterwards() -> None:
    """A failing trace leaves no builder open."""
    _message(OTHERS["broadcast"])
    with Builder("g") as b:
        b.input("x", F)
    assert "need an open builder" in _message(OTHERS["no builder"])
