"""Symbolic sizes: interned polynomials over named symbols and opaque `// min max` atoms."""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from keyword import iskeyword
from typing import NamedTuple, TypeAlias, final
from weakref import WeakValueDictionary

from ..errors import ParseError

Size: TypeAlias = "int | Dim"
Bounds: TypeAlias = Mapping[str, tuple[int, int]]
"""Inclusive bounds by symbol. They belong to a graph, not to the symbol: names are shared."""
TEXT_LIMIT = 4096
"""Longest size text that is read; a hostile file cannot make the parser recurse deeper."""


_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)


@lru_cache(4096)
def _symbol_text(name: str) -> str:
    """A symbol's name; one that is no identifier is quoted, without characters that delimit."""
    if _PLAIN_NAME.match(name) and not iskeyword(name):
        return name
    return re.sub(r"[][<>(),+*/-]", lambda m: f"\\u{ord(m[0]):04x}", ascii(name))


class Atom(NamedTuple):
    """One factor of a term: a symbol, or `//`, `min`, `max` of two sizes.

    A symbol's only argument is its upper bound, where the model implies one.
    """

    op: str
    name: str = ""
    args: tuple[Size, ...] = ()

    def __str__(self) -> str:
        if self.op == "sym":
            text = _symbol_text(self.name)
            return f"upto({text},{self.args[0]})" if self.args else text
        a, b = map(str, self.args)
        return f"(({a})//({b}))" if self.op == "//" else f"{self.op}({a},{b})"


Mono: TypeAlias = tuple[Atom, ...]
Poly: TypeAlias = dict[Mono, int]


@final
class Dim:
    """A size known only at run time. Equal dims are one object, so `==` is identity."""

    __slots__ = ("__weakref__", "terms", "text")
    terms: tuple[tuple[Mono, int], ...]
    text: str

    def __add__(self, other: Size) -> Size:
        return _add(self, other, 1)

    def __sub__(self, other: Size) -> Size:
        return _add(self, other, -1)

    def __rsub__(self, other: Size) -> Size:
        return _add(other, self, -1)

    def __mul__(self, other: Size) -> Size:
        return _mul(self, other)

    def __floordiv__(self, other: Size) -> Size:
        return _div(self, other)

    def __rfloordiv__(self, other: int) -> Size:
        return _div(other, self)

    def __neg__(self) -> Size:
        return _mul(-1, self)

    __radd__ = __add__
    __rmul__ = __mul__

    def __bool__(self) -> bool:
        raise TypeError(f"the size {self} is not known yet; compare with bounds() or bind it")

    def __repr__(self) -> str:
        return self.text


_pool: WeakValueDictionary[tuple[tuple[Mono, int], ...], Dim] = WeakValueDictionary()


def _poly(x: Size) -> Poly:
    return dict(x.terms) if isinstance(x, Dim) else {(): x} if x else {}


def _term_text(mono: Mono, c: int) -> str:
    factors = [str(a) for a in mono] if mono and abs(c) == 1 else [str(abs(c)), *map(str, mono)]
    return ("-" if c < 0 else "+") + "*".join(factors)


def _intern(poly: Poly) -> Size:
    terms = [(m, c) for m, c in poly.items() if c]
    if not terms:
        return 0
    if len(terms) == 1 and not terms[0][0]:
        return terms[0][1]
    terms.sort(key=lambda t: (not t[0], t[1] < 0, [str(a) for a in t[0]]))
    key = tuple(terms)
    if (dim := _pool.get(key)) is None:
        dim = object.__new__(Dim)
        dim.terms, dim.text = key, "".join(_term_text(m, c) for m, c in key).removeprefix("+")
        dim = _pool.setdefault(key, dim)
    return dim


def sym(name: str, most: int | None = None) -> Dim:
    """The symbol `name`: a size of at least 0 and, if given, at most `most`."""
    dim = _intern({(Atom("sym", name, () if most is None else (most,)),): 1})
    assert isinstance(dim, Dim)
    return dim


def symbol_name(size: Size) -> str | None:
    """The symbol that `size` is, or None when it is a number or an expression."""
    if isinstance(size, Dim) and len(size.terms) == 1:
        mono, c = size.terms[0]
        if c == 1 and len(mono) == 1 and mono[0].op == "sym":
            return mono[0].name
    return None


def implied_limit(a: Size, b: Size) -> tuple[str, int] | None:
    """The bound on a symbol without which sizes `a` and `b` could never be equal.

    Of n and min(n, c), equality means n <= c. Where sizes broadcast the same holds: for c >= 2 a
    min of 1 means that n is 1 too.
    """
    for x, y in ((a, b), (b, a)):
        if (name := symbol_name(x)) is None or not isinstance(y, Dim) or len(y.terms) != 1:
            continue
        mono, c = y.terms[0]
        if c == 1 and len(mono) == 1 and mono[0].op == "min" and x in mono[0].args:
            most = next(z for z in mono[0].args if z is not x)
            if isinstance(most, int) and most >= 2:
                return name, most
    return None


def limits(size: Size) -> Iterator[tuple[str, int]]:
    """Symbols under `size` that have an upper bound, with it."""
    if isinstance(size, Dim):
        for mono, _ in size.terms:
            for atom in mono:
                if atom.op == "sym" and atom.args and isinstance(atom.args[0], int):
                    yield atom.name, atom.args[0]


def symbols(size: Size) -> Iterator[str]:
    """Every symbol under `size`, with repeats."""
    if isinstance(size, Dim):
        for mono, _ in size.terms:
            for atom in mono:
                if atom.op == "sym":
                    yield atom.name
                for arg in atom.args:
                    yield from symbols(arg)


@lru_cache(4096)
def _add(a: Size, b: Size, sign: int) -> Size:
    out = _poly(a)
    for mono, c in _poly(b).items():
        out[mono] = out.get(mono, 0) + sign * c
    return _intern(out)


@lru_cache(4096)
def _mul(a: Size, b: Size) -> Size:
    out: Poly = {}
    for m1, c1 in _poly(a).items():
        for m2, c2 in _poly(b).items():
            mono = tuple(sorted(m1 + m2, key=str))
            out[mono] = out.get(mono, 0) + c1 * c2
    return _intern(out)


def _quotient(mono: Mono, c: int, by: Mono, d: int) -> tuple[Mono, int] | None:
    rest = list(mono)
    for atom in by:
        if atom not in rest:
            return None
        rest.remove(atom)
    return (tuple(rest), c // d) if c % d == 0 else None


@lru_cache(4096)
def _div(a: Size, b: Size) -> Size:
    """Floor division; a divisor is taken to be at least 1, so exact factors cancel."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if a == b:
        return 1
    divisor = _poly(b)
    exact: Poly = {}
    rest = _poly(a)
    if len(divisor) == 1:
        ((by, d),) = divisor.items()
        for mono, c in list(rest.items()):
            if q := _quotient(mono, c, by, d):
                exact[q[0]] = exact.get(q[0], 0) + q[1]
                del rest[mono]
    if isinstance(b, int):
        whole, rest[()] = divmod(rest.get((), 0), b)
        exact[()] = exact.get((), 0) + whole
    left = _intern(rest)
    if isinstance(left, int) and isinstance(b, int):
        return _add(_intern(exact), left // b, 1)
    return _intern(exact) if left == 0 else _add(_intern(exact), _floor_of(left, b), 1)


def _floor_of(a: Size, b: Size) -> Size:
    """The opaque quotient; (x // c + d) // b is (x + c d) // (b c) for numbers b and c."""
    if isinstance(a, Dim) and isinstance(b, int):
        inner = [(m, c) for m, c in a.terms if m]
        if len(inner) == 1 and inner[0][1] == 1 and len(inner[0][0]) == 1:
            atom = inner[0][0][0]
            if atom.op == "//" and isinstance(atom.args[1], int):
                x, c = atom.args
                return _div(x + c * _poly(a).get((), 0), b * c)
    return _intern({(Atom("//", "", (a, b)),): 1})


def cdiv(a: Size, b: Size) -> Size:
    """Ceiling division."""
    return (a + b - 1) // b


def _extreme(op: str, a: Size, b: Size) -> Size:
    lo, hi = bounds(_add(a, b, -1))
    if lo >= 0 or hi <= 0:
        return a if (lo >= 0) == (op == "max") else b
    first, second = sorted((a, b), key=str)
    return _intern({(Atom(op, "", (first, second)),): 1})


def dmin(a: Size, b: Size) -> Size:
    """The smaller size; decided now when the bounds decide it."""
    return _extreme("min", a, b)


def dmax(a: Size, b: Size) -> Size:
    """The larger size; decided now when the bounds decide it."""
    return _extreme("max", a, b)


_FOLD: dict[str, Callable[[Size, Size], Size]] = {"//": _div, "min": dmin, "max": dmax}


def substitute(size: Size, binding: Mapping[str, Size]) -> Size:
    """`size` with symbols replaced; symbols without an entry stay."""
    if isinstance(size, int):
        return size
    total: Size = 0
    for mono, c in size.terms:
        term: Size = c
        for atom in mono:
            term = term * (binding.get(atom.name, _intern({(atom,): 1})) if atom.op == "sym" else
                           _FOLD[atom.op](*(substitute(a, binding) for a in atom.args)))
        total = total + term
    return total


def evaluate(size: Size, binding: Mapping[str, int]) -> int:
    """The number that `size` is under `binding`; a missing symbol is a KeyError."""
    if isinstance(size, int):
        return size
    total = 0
    for mono, c in size.terms:
        for atom in mono:
            if atom.op == "sym":
                c *= binding[atom.name]
            else:
                a, b = (evaluate(x, binding) for x in atom.args)
                c *= a // max(b, 1) if atom.op == "//" else min(a, b) if atom.op == "min" else (
                    max(a, b))
        total += c
    return total


def bounds(size: Size, known: Bounds | None = None) -> tuple[float, float]:
    """Inclusive bounds of `size`; a symbol without known bounds lies in [0, inf]."""
    if isinstance(size, int):
        return size, size
    lo = hi = 0.0
    for mono, c in size.terms:
        ends = [float(c)] * 2
        for atom in mono:
            a, b = _atom_bounds(atom, known or {})
            ends = [0.0 if 0 in (e, f) else e * f for e in ends for f in (a, b)]
        lo, hi = lo + min(ends), hi + max(ends)
    return lo, hi


def _atom_bounds(atom: Atom, known: Bounds) -> tuple[float, float]:
    if atom.op == "sym":
        return known.get(atom.name, (0, atom.args[0] if atom.args else math.inf))  # type: ignore[return-value]
    (al, ah), (bl, bh) = (bounds(a, known) for a in atom.args)
    if atom.op != "//":
        f = min if atom.op == "min" else max
        return f(al, bl), f(ah, bh)
    bl, bh = max(bl, 1.0), max(bh, 1.0)
    return min(_floor(al, bl), _floor(al, bh)), max(_floor(ah, bl), _floor(ah, bh))


def _floor(a: float, b: float) -> float:
    if math.isinf(a):
        return a
    return (0.0 if a >= 0 else -1.0) if math.isinf(b) else a // b


@lru_cache(4096)
def parse_size(text: str) -> Size:
    """Read what printing a size wrote."""
    hint = "write past+seq, 2*n, (n+3)//4, max(n,1)"
    if len(text) > TEXT_LIMIT:
        raise ParseError(f"a size of {len(text)} characters", hint=hint)
    try:
        with warnings.catch_warnings(action="ignore"):  # Python's, about escapes and literals
            return _from_ast(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ParseError(f"not a size: {text!r}", hint=hint) from None


def _from_ast(e: ast.expr) -> Size:
    match e:
        case ast.Constant(value=int() as n) if not isinstance(n, bool):
            return n
        case ast.Name(id=name) | ast.Constant(value=str() as name):
            return sym(name)
        case ast.UnaryOp(op=ast.USub(), operand=a):
            return _mul(-1, _from_ast(a))
        case ast.BinOp(left=a, op=op, right=b) if (f := _BINARY.get(type(op))):
            return f(_from_ast(a), _from_ast(b))
        case ast.Call(func=ast.Name(id="upto"),
                      args=[ast.Name(id=name) | ast.Constant(value=str() as name),
                            ast.Constant(value=int() as most)]):
            return sym(name, most)
        case ast.Call(func=ast.Name(id="min" | "max" as op), args=[a, b]):
            return _extreme(op, _from_ast(a), _from_ast(b))
        case _:
            raise SyntaxError


def _checked_div(a: Size, b: Size) -> Size:
    if isinstance(b, int) and b <= 0:
        raise SyntaxError
    return _div(a, b)


_BINARY: dict[type[ast.operator], Callable[[Size, Size], Size]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: _mul,
    ast.FloorDiv: _checked_div}
