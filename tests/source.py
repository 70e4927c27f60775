"""The repository's own Python files, parsed once, for the tests that read them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "treadle"
FOLDERS = ("src", "tests", "tools", "bench", "examples")


def python_files(*folders: str) -> list[Path]:
    """Every Python file below the folders, relative to the repository root."""
    found = (p for f in folders for p in (ROOT / f).rglob("*.py"))
    return sorted(p.relative_to(ROOT) for p in found)


@functools.cache
def lines(path: Path) -> tuple[str, ...]:
    """The lines of a file of the repository."""
    return tuple((ROOT / path).read_text("utf-8").splitlines())


@functools.cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file of the repository."""
    return ast.parse("\n".join(lines(path)), filename=str(path))


def module_name(path: Path) -> str:
    """`src/treadle/ir/dims.py` -> `treadle.ir.dims`; a package drops `__init__`."""
    parts = path.with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything a module imports, at any depth.

    `from a import b` gives `a.b`; `import_module("a")` and `__import__("a")` give `a`.
    """
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    yield from imports_of(tree(path), package)


def imports_of(module: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    """`imports` of a syntax tree whose module lies in `package`."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, package)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and (target := _dynamic(node, package)):
            yield node.lineno, target


def _base(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, node.module] if node.module else parts)


def _dynamic(node: ast.Call, package: str) -> str:
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if name not in ("import_module", "__import__") or not node.args:
        return ""
    first = node.args[0]
    text = first.value if isinstance(first, ast.Constant) else ""
    if not isinstance(text, str):
        return ""
    return f"{package}{text}" if text.startswith(".") else text
