"""Imports inside src/treadle only point downward, and each layer keeps to its dependencies."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests import source

LAYERS = (
    ("errors", "files", "records"),
    ("config",),
    ("ir",),
    ("declare",),
    ("ops",),
    ("rewrite", "transforms"),
    ("passes",),
    ("memory",),
    ("loops",),
    ("codegen",),
    ("backends",),
    ("runtime",),
    ("frontends",),
    ("api",),
    ("llm", "ort_ep", "measure"),
    ("cli",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
PURE = ("ir", "declare", "ops")
PURE_DEPENDENCIES = sys.stdlib_module_names | {"numpy", "ml_dtypes", "treadle"}


def upward(importer: str, imported: str) -> str:
    """Why `importer` may not import `imported`, both dotted names below treadle; else empty."""
    own, other = _layer(importer), _layer(imported)
    if own == other or imported.split(".")[0] != "treadle" or not own:
        return ""
    for name in (own, other or "api"):
        if name not in RANK:
            return f"{name} is in no layer"
    other = other or "api"
    if RANK[other] < RANK[own]:
        return ""
    side = "beside" if RANK[other] == RANK[own] else "above"
    return f"{other} is {side} {own}"


def _layer(name: str) -> str:
    """The part below `treadle`; empty for the package itself and its re-exported names."""
    parts = name.split(".")
    known = len(parts) > 1 and (parts[1] in RANK or (source.PACKAGE / parts[1]).exists())
    known = known or (len(parts) > 1 and (source.PACKAGE / f"{parts[1]}.py").exists())
    return parts[1] if known and parts[1] != "__main__" else ""


MODULES = source.python_files("src")


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_point_downward(path: Path) -> None:
    name = source.module_name(path)
    wrong = [
        f"{path}:{line}: imports {target}: {reason}"
        for line, target in source.imports(path)
        if (reason := upward(name, target))
    ]
    assert not wrong, "\n".join(wrong)


def test_source_never_imports_the_reference_evaluator_of_onnx() -> None:
    wrong = [
        f"{path}:{line}: {target}"
        for path in MODULES
        for line, target in source.imports(path)
        if (target + ".").startswith("onnx.reference.")
    ]
    assert not wrong, "\n".join(wrong)


OPTIONAL = {"image.py": {"PIL"}}
"""Packages that one operator imports when it runs, and explains when they are missing."""


def test_the_core_needs_numpy_alone() -> None:
    wrong = [
        f"{path}:{line}: {target}"
        for path in MODULES
        if _layer(source.module_name(path)) in PURE
        for line, target in source.imports(path)
        if target.split(".")[0] not in PURE_DEPENDENCIES | OPTIONAL.get(path.name, set())
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("treadle.ir.graph", "treadle.errors.VerifyError", True),
        ("treadle.ir.graph", "treadle.ir.dims", True),
        ("treadle.ir.graph", "treadle.ops.pointwise", False),
        ("treadle.passes.cse", "treadle.backends.base", False),
        ("treadle.rewrite.driver", "treadle.transforms.grad", False),
        ("treadle.llm.chat", "treadle.load", True),
        ("treadle.ops.pointwise", "treadle.load", False),
        ("treadle.cli.main", "treadle.ort_ep", True),
        ("treadle", "treadle.api", True),
        ("treadle.errors", "numpy", True),
    ],
)
def test_the_rule_itself(importer: str, imported: str, allowed: bool) -> None:
    assert (upward(importer, imported) == "") is allowed


def test_every_form_of_import_is_seen() -> None:
    text = (
        "import a.b\n"
        "from . import c\n"
        "from ..d import e\n"
        "def f():\n"
        "    from g import h\n"
        "    importlib.import_module('.i', __package__)\n"
        "    __import__('j')\n"
    )
    found = {name for _, name in source.imports_of(ast.parse(text), "treadle.ir")}
    assert found == {"a.b", "treadle.ir.c", "treadle.d.e", "g.h", "treadle.ir.i", "j"}
