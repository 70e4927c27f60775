"""Random graphs: any IR that the text form must carry, operators and types being arbitrary.

A seeded generator rather than a Hypothesis strategy: thousands of graphs in the time of a hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from treadle.ir.dims import Size, dmax, dmin, sym
from treadle.ir.graph import Attr, Blob, Builder, Graph, Node, Value
from treadle.ir.types import DTYPES, F32, DType, TensorType, host_dtype, parse_type

NAMES = ("", "x", "x_1", "0", "7", "a.b/c:0", "a b", "größe", "名", '"', "\n", "%x", "graph",
         "return", "inf", "]>", "\ud800", "_", "x_2", "é\t\\")
SYMBOLS = tuple(map(sym, ("n", "past", "seq", "batch size", "if")))
NESTING = 2
_HOSTS = (host_dtype("seq", parse_type("f32[2,n]")), host_dtype("map", text="i64,f32"),
          host_dtype("opt", parse_type("seq(f32[])[]")))
_BINARY: tuple[Callable[[Size, Size], Size], ...] = (
    lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a // dmax(b, 1), dmin, dmax)
_FLOATS = (0.0, -0.0, 0.1, 1e300, -5e-324, 1e16, float("inf"), float("-inf"), float("nan"))


def size(rng: Random, depth: int = 0) -> Size:
    """A number, a symbol or an expression."""
    kind = rng.randrange(3 if depth < 3 else 2)
    if kind == 2:
        return rng.choice(_BINARY)(size(rng, depth + 1), size(rng, depth + 1))
    return rng.choice(SYMBOLS) if kind else rng.randrange(10)


def dtype(rng: Random) -> DType:
    """F32 half of the time."""
    return rng.choice([F32, rng.choice([*DTYPES.values(), *_HOSTS])])


def tensor_type(rng: Random) -> TensorType:
    """Any tensor type; host values have rank 0."""
    d = dtype(rng)
    return TensorType(() if d.sort == "host" else _some(rng, 3, size), d)


def _some(rng: Random, most: int, item: Callable[[Random], Size]) -> tuple[Size, ...]:
    return tuple([item(rng) for _ in range(rng.randrange(most + 1))])


def text(rng: Random) -> str:
    """A string that is awkward to quote."""
    return "".join(rng.choice([*NAMES, *'"\\{}()<>,@= \n\0']) for _ in range(rng.randrange(4)))


def blob(rng: Random) -> Blob:
    """A few bytes."""
    data = rng.randbytes(rng.randrange(9))
    return Blob(DTYPES["u8"], (len(data),), data)


_ATTRS: tuple[Callable[[Random], Attr], ...] = (
    lambda _: None, lambda r: r.random() < 0.5, lambda r: r.randrange(-2**70, 2**70),
    lambda r: r.choice(_FLOATS), lambda r: r.gauss(0, 1e5), text, size, dtype, blob,
    lambda r: complex(r.choice(_FLOATS), r.choice(_FLOATS)))


def attr(rng: Random, depth: int = 0) -> Attr:
    """An attribute of any kind, tuples of tuples included."""
    if depth < 3 and rng.random() < 0.3:
        return tuple([attr(rng, depth + 1) for _ in range(rng.randrange(4))])
    return rng.choice(_ATTRS)(rng)


def graph(rng: Random, scope: Sequence[Value] = (), depth: int = 0) -> Graph:
    """A graph that may read `scope`; values are defined before they are used."""
    b = Builder(rng.choice(NAMES))
    if not depth:
        b.input("", TensorType(SYMBOLS, F32))  # every symbol is known
    leaves = [b.input(rng.choice(NAMES), tensor_type(rng), param=rng.random() < 0.3)
              for _ in range(rng.randrange(1, 5))]
    pool = [*scope, *leaves]
    for _ in range(rng.randrange(5 - depth)):
        made = b.emit(node(rng, pool, depth), [tensor_type(rng) for _ in range(rng.choice([1, 3]))])
        made[0].name = rng.choice(NAMES)
        pool += made
    outputs = rng.choices(pool, k=rng.randrange(4))
    return b.finish(outputs, [rng.choice(NAMES) for _ in outputs] if rng.random() < 0.5 else ())


def node(rng: Random, pool: Sequence[Value], depth: int) -> Node:
    """A node that reads `pool`, with optional operands, attributes and regions."""
    inputs = tuple(rng.choices(pool, k=rng.randrange(4)))
    keys = ("mask", "bias")[:rng.randrange(min(2, len(inputs)) + 1)]
    words = rng.sample(["axis", "value", "k", "none", "true", "f32", "graph"], rng.randrange(4))
    names = rng.sample(["body", "then"], rng.choice([0, 0, 1, 2])) if depth < NESTING else []
    return Node(rng.choice(["add", "op_2", "graph"]), inputs, {w: attr(rng) for w in words}, (),
                keys, {n: graph(rng, pool, depth + 1) for n in names},
                rng.choice(["", "model.py:3", 'a "b"\n@ {', "/layer.0/Add"]))
