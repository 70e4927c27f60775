"""Hypothesis strategies for graphs: any IR that the text form must carry."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from treadle.ir.dims import Size, dmax, dmin, sym
from treadle.ir.graph import Attr, Blob, Builder, Graph, Node, Value
from treadle.ir.types import DTYPES, F32, DType, TensorType, host_dtype, parse_type

NAMES = st.sampled_from(["", "x", "x_1", "0", "7", "a.b/c:0", "a b", "größe", "名", '"', "\\n",
                         "%x", "graph", "return", "inf", "]>", "\ud800"]) | st.text(max_size=5)
ALL_SYMBOLS = tuple(map(sym, ("n", "past", "seq", "batch size", "if")))
SYMBOLS = st.sampled_from(ALL_SYMBOLS)
_OPS: dict[str, Callable[[Size, Size], Size]] = {
    "+": lambda a, b: a + b, "*": lambda a, b: a * b, "/": lambda a, b: a // dmax(b, 1),
    "m": dmin, "M": dmax}
sizes: st.SearchStrategy[Size] = st.recursive(
    st.integers(0, 9) | SYMBOLS,
    lambda s: st.builds(lambda op, a, b: _OPS[op](a, b), st.sampled_from("+*/mM"), s, s),
    max_leaves=4)
dtypes: st.SearchStrategy[DType] = st.sampled_from([
    *DTYPES.values(), F32, F32, F32, host_dtype("seq", parse_type("f32[2,n]")),
    host_dtype("map", text="i64,f32"), host_dtype("opt", parse_type("seq(f32[])[]"))])
blobs = st.builds(Blob, st.just(DTYPES["u8"]), st.integers(0, 9).map(lambda n: (n,)),
                  st.binary(max_size=9))
attrs: st.SearchStrategy[Attr] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=6)
    | st.complex_numbers(allow_nan=True) | sizes | dtypes | blobs,
    lambda s: st.lists(s, max_size=3).map(tuple), max_leaves=4)
words = st.sampled_from(["axis", "value", "k", "none", "true", "f32", "graph"])


@st.composite
def types(draw: st.DrawFn) -> TensorType:
    """Any tensor type; host values have rank 0."""
    dtype = draw(dtypes)
    shape = () if dtype.sort == "host" else tuple(draw(st.lists(sizes, max_size=3)))
    return TensorType(shape, dtype)


@st.composite
def graphs(draw: st.DrawFn, scope: Sequence[Value] = (), depth: int = 0) -> Graph:
    """A graph that may read `scope`: SSA holds, but operators and types are arbitrary."""
    b = Builder(draw(NAMES))
    if not depth:
        b.input("", TensorType(ALL_SYMBOLS, F32))  # every symbol is known
    pool = [*scope, *(b.input(draw(NAMES), draw(types())) for _ in range(draw(st.integers(1, 3))))]
    pool += [b.input(draw(NAMES), draw(types()), param=True)
             for _ in range(draw(st.integers(0, 2)))]
    for _ in range(draw(st.integers(0, 4 - depth))):
        node = draw(nodes(pool, depth))
        pool += b.emit(node, draw(st.lists(types(), min_size=1, max_size=3)))
        node.outputs[0].name = draw(NAMES)
    outputs = draw(st.lists(st.sampled_from(pool), max_size=3))
    n = len(outputs)
    return b.finish(outputs, draw(st.just(()) | st.lists(NAMES, min_size=n, max_size=n)))


@st.composite
def nodes(draw: st.DrawFn, pool: Sequence[Value], depth: int) -> Node:
    """A node that reads `pool`, with optional operands, attributes and regions."""
    inputs = tuple(draw(st.lists(st.sampled_from(pool), max_size=3)))
    keys = tuple(draw(st.lists(st.sampled_from(["mask", "bias"]), unique=True,
                               max_size=min(2, len(inputs)))))
    attributes = draw(st.dictionaries(words, attrs, max_size=3))
    regions = draw(st.dictionaries(st.sampled_from(["body", "then"]), graphs(pool, depth + 1),
                                   max_size=2)) if depth < 2 else {}
    loc = draw(st.sampled_from(["", "model.py:3", 'a "b"\n@ {', "/layer.0/Add"]))
    return Node(draw(st.sampled_from(["add", "op_2", "graph"])), inputs, attributes, (), keys,
                regions, loc)
