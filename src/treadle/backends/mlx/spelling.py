"""Python text: names for objects, and scalar expressions as nested calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import cast

import mlx.core as mx

from ...declare.scalar import Scalar, walk
from .arrays import HELD, constant
from .expressions import TABLE, Either, bitcast, convert

DEEP = 24
"""Calls inside one another; Python's parser takes no more than about 90."""


class Names:
    """Objects by name, for text that mentions them."""

    def __init__(self) -> None:
        self.held: dict[str, object] = {}
        self._known: dict[int, str] = {}
        self._count = 0

    def fresh(self, letter: str) -> str:
        """A name that nothing has."""
        self._count += 1
        return f"{letter}{self._count}"

    def of(self, x: object) -> str:
        """Text that means x: a literal, or the name under which it is held."""
        if _literal(x):
            return repr(x)
        if (found := self._known.get(id(x))) is None:
            found = self._known[id(x)] = self.fresh("k")
            self.held[found] = x
        return found


def _literal(x: object) -> bool:
    if isinstance(x, tuple):
        return all(_literal(i) for i in cast("tuple[object, ...]", x))
    return x is None or type(x) in (bool, int, str)


def spell(roots: Sequence[Scalar], args: Sequence[str], names: Names
          ) -> tuple[list[str], list[str]]:
    """Statements for what is read more than once, and the text of each result."""
    order = list(walk(*roots))
    uses = Counter(a for s in order for a in s.args)
    lines, text, depth = list[str](), dict[Scalar, str](), dict[Scalar, int]()
    for s in order:
        text[s], depth[s] = _call(s, [text[a] for a in s.args], args, names), 1 + max(
            [depth[a] for a in s.args], default=0)
        if s.args and (uses[s] > 1 or depth[s] > DEEP):
            name = names.fresh("t")
            lines.append(f"{name} = {text[s]}")
            text[s], depth[s] = name, 1
    return lines, [text[r] for r in roots]


def _call(s: Scalar, inner: Sequence[str], args: Sequence[str], names: Names) -> str:
    if s.op == "var":
        return args[cast(int, s.value)]
    if s.op == "const":
        return names.of(constant(cast(complex, s.value), s.dtype))
    if s.op == "fma":
        add, mul = names.of(mx.add), names.of(mx.multiply)
        return f"{add}({mul}({inner[0]}, {inner[1]}), {inner[2]})"
    if s.op == "cast" and s.dtype.sort == "float" and s.args[0].dtype.sort != "complex":
        return f"{inner[0]}.astype({names.of(HELD[s.dtype])})"
    return f"{names.of(_function(s))}({', '.join(inner)})"


def _function(s: Scalar) -> object:
    """MLX's own function where one means the same."""
    if s.op in ("cast", "bitcast"):
        return partial(convert if s.op == "cast" else bitcast, dtype=s.dtype)
    fn = TABLE[s.op]
    if isinstance(fn, Either):
        return fn.of_bool if s.args[0].dtype.name == "bool" else fn.of_int
    return mx.negative if s.op == "neg" and s.dtype.sort == "float" else fn

