"""The generated stub of the operator namespace."""

from __future__ import annotations

import ast
import inspect
import pydoc

import pytest

from tests.source import ROOT
from tools import stubs
from treadle import ops
from treadle.ops.library import PUBLIC


def test_the_stub_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert stubs.main(["--check"]) == 0, capsys.readouterr().err


def test_the_stub_declares_every_operator_with_its_keywords() -> None:
    tree = ast.parse((ROOT / "src/treadle/ops/__init__.pyi").read_text("utf-8"))
    found = {f.name: f.args for f in tree.body if isinstance(f, ast.FunctionDef)}
    assert found.keys() == PUBLIC.keys() == set(dir(ops))
    for name, args in found.items():
        assert {a.arg for a in args.kwonlyargs} == PUBLIC[name].schema.keywords, name
        assert tuple(a.arg for a in args.posonlyargs) == PUBLIC[name].schema.operands, name


def test_a_stale_stub_is_reported(monkeypatch: pytest.MonkeyPatch,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(stubs, "text", lambda: "other")
    assert stubs.main(["--check"]) == 1
    assert "run python tools/stubs.py" in capsys.readouterr().err


def test_operators_explain_themselves() -> None:
    text = pydoc.plain(pydoc.render_doc(ops.linear_attention))
    assert "Query head h reads state" in text and "[N,T,Hq*dk]" in text
    assert "state_window" in inspect.signature(ops.linear_attention).parameters


def test_operators_are_found_by_name() -> None:
    assert ops.__getattr__("gelu") is PUBLIC["gelu"]
    with pytest.raises(AttributeError, match="there is no operator 'glue'"):
        ops.__getattr__("glue")
    with pytest.raises(AttributeError, match="'cast' in treadle.ops; there is 'cast_'"):
        _ = ops.cast  # type: ignore[attr-defined]
