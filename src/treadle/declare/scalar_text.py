"""Scalar expressions as text, and back.

Let-form, linear in the size of the DAG: `t0=exp(x0);add(t0,1.0)`. Operands are typed by the node
that holds the text; f32 constants are bare, others carry their dtype (`i64:3`); a cast is spelled
by its dtype (`f32(x0)`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import cast

from ..errors import ParseError, TreadleError
from ..ir.types import DTYPES, F32, DType
from .scalar import AttrItems, Scalar, bitcast_to, cast_to, const, make, var, walk

_TOKEN = re.compile(r"\s*(-?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf|nan)(?!\w)|[A-Za-z_]\w*"
                    r'|"(?:[^"\\]|\\.)*"|[(),;=:+]|\S)')
_DEPTH = 200


def _number(value: object, dtype: DType) -> str:
    if isinstance(value, complex):
        return f"{dtype}:{value.real!r}+{value.imag!r}"
    shown = str(int(value)) if isinstance(value, bool) else repr(value)
    return shown if dtype is F32 else f"{dtype}:{shown}"


def _spell(s: Scalar, args: Sequence[str]) -> str:
    inner = ",".join(args)
    if s.op in ("cast", "bitcast"):
        return f"{s.dtype}({inner})" if s.op == "cast" else f"bits_{s.dtype}({inner})"
    attrs = cast(AttrItems, s.value or ())
    shown = [f"{k}={json.dumps(v) if isinstance(v, str) else repr(v)}" for k, v in attrs]
    return f"{s.op}({','.join([inner, *shown])})"


def text(*roots: Scalar) -> str:
    """The text of one expression, or of several that share their common parts."""
    uses: dict[Scalar, int] = {}
    for s in walk(*roots):
        for a in s.args:
            uses[a] = uses.get(a, 0) + 1
    names: dict[Scalar, str] = {}
    lets: list[str] = []
    for s in walk(*roots):
        if not s.args:
            names[s] = f"x{s.value}" if s.op == "var" else _number(s.value, s.dtype)
            continue
        names[s] = _spell(s, [names[a] for a in s.args])
        if uses.get(s, 0) > 1 or len(names[s]) > _DEPTH:
            lets.append(f"t{len(lets)}={names[s]}")
            names[s] = f"t{len(lets) - 1}"
    return ";".join([*lets, *(names[r] for r in roots)])


class _Reader:
    def __init__(self, source: str, dtypes: Sequence[DType]) -> None:
        self.source, self.dtypes = source, dtypes
        self.tokens = [*_TOKEN.findall(source), ""]
        self.i = self.depth = 0
        self.env: dict[str, Scalar] = {}

    def fail(self, why: str) -> ParseError:
        return ParseError(f"not a scalar expression: {why} at {self.tokens[self.i]!r}\n"
                          f"  {self.source[:200]}")

    def next(self) -> str:
        self.i += 1
        return self.tokens[self.i - 1]

    def need(self, token: str) -> None:
        if self.next() != token:
            self.i -= 1
            raise self.fail(f"expected '{token}'")

    def read(self) -> tuple[Scalar, ...]:
        roots: list[Scalar] = []
        while True:
            if self.tokens[self.i + 1] == "=":
                name = self.next()
                self.next()
                self.env[name] = self.expr()
            else:
                roots.append(self.expr())
            if not self.tokens[self.i]:
                break
            self.need(";")
        if not roots:
            raise self.fail("no result")
        return tuple(roots)

    def expr(self) -> Scalar:
        self.depth += 1
        if self.depth > _DEPTH:
            raise self.fail("nested too deeply")
        token = self.next()
        try:
            if self.tokens[self.i] == "(":
                return self.call(token)
            if self.tokens[self.i] == ":" and token in DTYPES:
                self.next()
                return self.constant(DTYPES[token])
            if token in self.env:
                return self.env[token]
            if token[:1] == "x" and token[1:].isdigit():
                return self.operand(int(token[1:]))
            return const(self.float(token), F32)
        finally:
            self.depth -= 1

    def operand(self, index: int) -> Scalar:
        if index >= len(self.dtypes):
            raise self.fail(f"there is no operand x{index}")
        return var(index, self.dtypes[index])

    def float(self, token: str) -> float:
        try:
            return float(token)
        except ValueError:
            self.i -= 1
            raise self.fail("a number, an operand or a call was expected") from None

    def constant(self, dtype: DType) -> Scalar:
        value: complex = self.float(self.next())
        if dtype.sort == "complex":
            self.need("+")
            value = complex(value, self.float(self.next()))
        whole = dtype.sort in ("int", "uint", "bool") and math.isfinite(abs(value))
        return const(int(self.tokens[self.i - 1]) if whole else value, dtype)

    def call(self, op: str) -> Scalar:
        self.need("(")
        args: list[Scalar] = []
        attrs: list[tuple[str, object]] = []
        while self.tokens[self.i] != ")":
            if self.tokens[self.i + 1] == "=":
                key = self.next()
                self.next()
                attrs.append((key, self.attr(self.next())))
            else:
                args.append(self.expr())
            if self.tokens[self.i] == ",":
                self.next()
        self.next()
        if op in DTYPES and len(args) == 1:
            return cast_to(args[0], DTYPES[op])
        if op[:5] == "bits_" and op[5:] in DTYPES and len(args) == 1:
            return bitcast_to(args[0], DTYPES[op[5:]])
        return make(op, *args, value=tuple(attrs) or None)

    def attr(self, token: str) -> object:
        if token[:1] == '"':
            return str(json.loads(token))
        if token in ("True", "False", "None"):
            return {"True": True, "False": False, "None": None}[token]
        number = self.float(token)
        return int(token) if token.lstrip("-").isdigit() else number


@lru_cache(4096)
def parse(source: str, dtypes: tuple[DType, ...]) -> tuple[Scalar, ...]:
    """Read what `text` wrote, over operands of these dtypes."""
    try:
        return _Reader(source, dtypes).read()
    except ParseError:
        raise
    except (TreadleError, TypeError, ValueError, IndexError) as e:
        raise ParseError(f"not a scalar expression: {e}\n  {source[:200]}") from None
