"""What the tests of equations share: building both sides and hostile operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import ml_dtypes
import numpy as np

from treadle.declare import evaluate
from treadle.declare.arrays import Array, np_dtype
from treadle.declare.opdef import infer
from treadle.errors import OperatorError, RunError
from treadle.ir.graph import Builder, Graph, Node, Value
from treadle.ir.types import BOOL, DTYPES, DType, TensorType, parse_type
from treadle.ir.verify import verify
from treadle.ops.library import REGISTRY
from treadle.rewrite.driver import Driver
from treadle.rewrite.pattern import App, Equation, Expr, Lit, Var
from treadle.transforms.clone import rebuild

TESTED = [DTYPES[n] for n in ("bool", "i8", "u8", "i32", "i64", "f16", "bf16", "f32", "f64")]


def hostile(dtype: DType) -> Array:
    """Zeros, limits, NaN, infinities, denormals, and some plain numbers of a dtype."""
    if dtype is BOOL:
        return np.array([False, True])
    if dtype.sort in ("int", "uint"):
        i = np.iinfo(np_dtype(dtype))
        items = {0, 1, 2, 3, 7, 100, i.min, i.max, i.min + 1, i.max - 1}
        items |= {-1, -2, -5} if i.min else set()
        return np.array(sorted(items), np_dtype(dtype))
    f = ml_dtypes.finfo(np_dtype(dtype))
    plain = [0.0, 1.0, 1.5, 2.0, 3.0, 0.1, 100.7, float(f.tiny), float(f.smallest_subnormal),
             float(f.max), float(f.eps), np.inf]
    return np.array([*plain, *[-x for x in plain], np.nan]).astype(np_dtype(dtype))


def attribute_names(e: Expr) -> set[str]:
    """Variables that stand for attributes."""
    if not isinstance(e, App):
        return set()
    own = {v.name for v in e.attrs.values() if isinstance(v, Var)}
    return own.union(*map(attribute_names, e.args)) if e.args else own


def instantiate(e: Expr, env: Mapping[str, Any]) -> object:
    """Call the operators of a pattern on what its variables stand for."""
    if isinstance(e, Var):
        return env[e.name]
    if isinstance(e, Lit):
        return e.value
    assert isinstance(e, App)
    args = [instantiate(a, env) for a in e.args]
    split = len(args) - len(e.keys)
    named = dict(zip(e.keys, args[split:], strict=True))
    attrs = {k: env[v.name] if isinstance(v, Var) else v for k, v in e.attrs.items()}
    op = REGISTRY[e.op]
    return op(*op.group(args[:split]), **named, **attrs)


def left_graph(equation: Equation, example: Mapping[str, object], dtype: DType) -> Graph:
    """A graph that computes the left side; OperatorError when `dtype` is not legal there."""
    attrs = attribute_names(equation.left)
    env: dict[str, Any] = {}
    side = {"size": len(hostile(dtype)) ** vectors(equation, example)}
    with Builder(equation.name) as b:
        for name in equation.variables:
            given = example.get(name, "T")
            if name in attrs:
                word = dtype.name if given == "T" else given
                env[name] = DTYPES.get(word, word) if isinstance(word, str) else word
            elif isinstance(given, str):
                env[name] = b.input(name, tensor_type(given, dtype, side["size"]))
            else:
                env[name] = REGISTRY["full"](value=number(given, dtype), shape=(), dtype=dtype)
        return b.finish(cast(Value, instantiate(equation.left, env)))


def number(given: object, dtype: DType) -> object:
    return float(cast(float, given)) if dtype.sort == "float" else given


def tensor_type(text: str, dtype: DType, size: int) -> TensorType:
    head, bracket, tail = text.partition("[")
    head = dtype.name if head == "T" else head
    return parse_type(f"{head}[{tail}" if bracket else f"{head}[{size}]")


def vectors(equation: Equation, example: Mapping[str, object]) -> int:
    """How many operands take every hostile value against every other's."""
    names = set(equation.variables) - attribute_names(equation.left)
    return sum(example.get(n, "T") == "T" for n in names)


def operands(graph: Graph, dtype: DType, shaped: Sequence[bool]) -> list[Array]:
    """Hostile operands; vectors of the cross product, and cycled values for stated shapes."""
    free = [v for v, s in zip(graph.inputs, shaped, strict=True) if not s]
    grids = iter(np.meshgrid(*[hostile(v.dtype) for v in free], indexing="ij")) if free else (
        iter(()))
    return [np.resize(hostile(v.dtype), v.shape) if s else next(grids).reshape(-1)
            for v, s in zip(graph.inputs, shaped, strict=True)]


def evaluate_all(graph: Graph, arrays: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """Outputs, and every value on the way."""
    seen: list[Array] = []

    def watch(_: Node, outputs: Sequence[Array]) -> None:
        seen.extend(outputs)

    return list(evaluate.run(graph, arrays, {}, {}, watch)), seen


def applications(equation: Equation) -> Iterator[tuple[Graph, Graph, list[Array]]]:
    """Every graph of the left side on which the equation applies, with its rewritten form."""
    for example in equation.examples or ({},):
        shaped = {n: isinstance(g := example.get(n, "T"), str) and g != "T"
                  for n in equation.variables}
        for dtype in TESTED:
            try:
                before = left_graph(equation, example, dtype)
            except OperatorError:
                continue
            driver = Driver([equation], "fast")
            after = rebuild(before, driver.visit)
            if not driver.fired:
                continue
            verify(after, infer)
            arrays = operands(before, dtype, [shaped[v.name] for v in before.inputs])
            try:
                evaluate_all(before, arrays)
            except RunError:
                continue
            yield before, after, arrays


def same_bits(a: Array, b: Array) -> bool:
    """Equality bit for bit; all NaNs are one."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    nan = np.isnan(a.astype(np.complex128 if a.dtype.kind == "c" else np.float64))
    other = np.isnan(b.astype(np.complex128 if b.dtype.kind == "c" else np.float64))
    if not np.array_equal(nan, other):
        return False
    zero = np.zeros((), a.dtype)
    return np.where(nan, zero, a).tobytes() == np.where(nan, zero, b).tobytes()
