"""Calls of operators over their whole attribute space, right and wrong ones."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from hypothesis import strategies as st

from tests.conformance.harness import Case
from treadle.declare.arrays import Array, Encoded, host, np_dtype
from treadle.declare.opdef import OpDef
from treadle.declare.schema import AttrSpec, _split_union
from treadle.ir.dims import Dim, evaluate, sym
from treadle.ir.graph import Graph, Value, trace
from treadle.ir.types import DTYPES, TensorType, host_dtype

ENDLESS = {"loop", "while"}
"""Operators that run as often as their data say."""
HUGE = (2**31, 2**40, 2**62, 2**63 - 1, -(2**31), -(2**63), 10**30)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 3.4e38, 1e308, float("inf"), float("-inf"),
           float("nan"))
NUMBERS = ("f32", "f32", "f32", "i64", "i64", "i32", "bool", "f16", "bf16", "f64", "u8",
           "i8", "u64")
OTHERS = ("u16", "u32", "i16", "i4", "u2", "f8e4m3fn", "f8e8m0fnu", "f4e2m1fn", "c64", "c128",
          "string")
SEQUENCE = host_dtype("seq", TensorType((2,), DTYPES["f32"]))
OPTIONAL = host_dtype("opt", TensorType((2,), DTYPES["f32"]))
BLOCK = DTYPES["q8_0"]
N = sym("n")
CHANGES = ("dtype", "size", "size", "size", "drop", "insert", "symbol", "any")
TEXTS = ("", "a", "b", "n0", "relu", "tanh", "ij,jk->ik", "...i->i", "ii", "i->ij", "(",
         "é", "a" * 70)

ints = st.one_of(st.integers(-3, 4), st.integers(-3, 4), st.integers(-3, 4), st.integers(5, 1000),
                 st.sampled_from(HUGE))
floats = st.one_of(st.sampled_from(SPECIAL), st.floats(-2, 2, width=32))
dtypes = st.one_of(*([st.sampled_from(NUMBERS)] * 3), st.sampled_from(OTHERS)).map(DTYPES.get)
sizes = st.sampled_from([0, 1, 1, 2, 2, 3, 4, 5])
_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "int": ints, "float": floats, "bool": st.booleans(), "str": st.sampled_from(TEXTS),
    "DType": dtypes, "complex": floats.map(lambda x: complex(x, 1.0)), "None": st.none(),
    "Size": st.one_of(ints, ints, st.sampled_from([N, N - 5, N * 2])),
    "Blob": st.sampled_from([np.zeros((2, 2), np.float32), np.arange(3), np.zeros(0),
                             np.array(True), np.array(["a"], object)])}
wrong = st.one_of(st.none(), st.just(1.5), st.just("x"), st.just(object()), st.just((1, "y")),
                  st.just(1 + 2j), st.just(DTYPES["i4"]), st.booleans())


def values(annotation: str) -> st.SearchStrategy[Any]:
    """Values of an attribute annotation."""
    parts = _split_union(annotation)
    if len(parts) > 1:
        return st.one_of(*map(values, parts))
    if annotation.startswith("Literal["):
        return st.sampled_from(list(ast.literal_eval(f"({annotation[8:-1]},)")))
    if annotation == "Shape":
        annotation = "tuple[Size, ...]"
    if annotation.startswith("tuple["):
        return st.lists(values(annotation[6:-6]), max_size=5).map(tuple)
    return _PLAIN[annotation]


@dataclass
class Call:
    """An operator with operand types, attributes and the sizes that symbols stand for."""

    op: OpDef
    types: list[TensorType]
    named: dict[str, TensorType]
    attrs: dict[str, Any]
    regions: dict[str, Any]
    seed: int
    special: bool
    data: dict[int, Array] = field(default_factory=dict)

    def __repr__(self) -> str:
        shown = [*map(str, self.types), *(f"{k}: {t}" for k, t in self.named.items()),
                 *(f"{k}={v!r}" for k, v in self.attrs.items())]
        more = f"seed={self.seed}" + (" special" if self.special else "")
        return f"{self.op.name}({', '.join(shown)}) {more} {list(self.data) or ''}"

    @property
    def all_types(self) -> list[TensorType]:
        """Positional operands, then the optional ones."""
        return [*self.types, *self.named.values()]

    def trace(self) -> Graph:
        """The call recorded on symbols."""
        split = len(self.types)

        def call(*xs: Value) -> Any:  # noqa: ANN401 - as many outputs as the operator has
            named = dict(zip(self.named, xs[split:], strict=True))
            return self.op(*self.op.group(xs[:split]), **named, **self.regions, **self.attrs)

        return trace(call, *self.all_types, name=self.op.name)

    def arrays(self) -> list[Array]:
        """Data of the operands; `n` stands for 3."""
        rng = np.random.default_rng(self.seed)
        return [self.data[i] if i in self.data else draw_array(t, rng, self.special)
                for i, t in enumerate(self.all_types)]


def concrete(t: TensorType) -> tuple[int, ...]:
    """The shape in which every symbol is 3."""
    return tuple([d if isinstance(d, int) else 3 for d in t.shape])


def draw_array(t: TensorType, rng: np.random.Generator, special: bool) -> Array:
    """Random data of a type."""
    shape, dtype = concrete(t), t.dtype
    if dtype.sort == "host":
        return _host_data(t, rng)
    if dtype.sort == "block":
        assert (nbytes := t.nbytes()) is not None
        return cast(Array, Encoded(dtype, shape, rng.integers(0, 60, cast(int, nbytes), np.uint8)))
    if dtype.sort == "string":
        return rng.choice(np.array(["a", "bc", "", "12", "déf"], object), shape)
    if dtype.sort == "bool":
        return rng.random(shape) < 0.5
    wide = rng.integers(-3 if dtype.sort == "int" else 0, 5, shape).astype(np.float64)
    if dtype.sort in ("float", "complex"):
        wide += rng.normal(size=shape)
    if special and wide.size:
        extreme = SPECIAL if dtype.sort in ("float", "complex") else (127.0, -128.0, 2.0**31, 9e18)
        wide.flat[rng.integers(wide.size)] = extreme[rng.integers(len(extreme))]
    with np.errstate(all="ignore"):
        if dtype.bits < 8:
            wide = np.clip(wide, 0 if dtype.sort == "uint" else -2, 1)
        return np.asarray(wide).astype(np_dtype(dtype))


def _host_data(t: TensorType, rng: np.random.Generator) -> Array:
    elem = t.dtype.elem
    item = draw_array(elem, rng, False) if elem is not None else np.zeros(2, np.float32)
    if t.dtype.name.startswith("seq"):
        return host([] if elem is None else [item, item])
    return host({} if t.dtype.name.startswith("map") else item)


@st.composite
def mutated(draw: Any, t: TensorType) -> TensorType:  # noqa: ANN401 - Hypothesis's own
    """A type with another dtype, size or rank."""
    what = draw(st.sampled_from(CHANGES))
    shape = list(t.shape)
    at = draw(st.integers(0, max(len(shape) - 1, 0)))
    if what == "dtype":
        return _fitting(t.with_(dtype=draw(dtypes)))
    if what == "any":
        return draw(any_type())
    if what == "insert":
        shape.insert(at, draw(sizes))
    elif shape and what == "drop":
        del shape[at]
    elif shape and what == "symbol":
        old = shape[at]
        shape = [N if d == old == 3 else d for d in shape]
    elif shape:
        shape[at] = draw(sizes)
    return _fitting(t.with_(shape=tuple(shape)))


def _fitting(t: TensorType) -> TensorType:
    """Host values have rank 0; a block encoding needs whole blocks."""
    if t.dtype.sort == "host":
        return t.with_(shape=())
    if t.dtype.sort == "block" and (not t.shape or not isinstance(t.shape[-1], int)
                                    or t.shape[-1] % t.dtype.block
                                    or not all(isinstance(d, int) for d in t.shape)):
        return t.with_(dtype=DTYPES["f32"])
    return t


@st.composite
def any_type(draw: Any) -> TensorType:  # noqa: ANN401 - Hypothesis's own
    """Any small tensor type, now and then a host value or an encoded tensor."""
    if draw(st.integers(0, 15)) == 0:
        return draw(st.sampled_from([TensorType((), SEQUENCE), TensorType((), OPTIONAL),
                                     TensorType((2, 32), BLOCK)]))
    return TensorType(tuple(draw(st.lists(sizes, max_size=4))), draw(dtypes))


def _attribute(draw: Any, spec: AttrSpec) -> object:  # noqa: ANN401 - Hypothesis's own
    if draw(st.integers(0, 7)) == 0:
        return draw(wrong)
    return draw(values(spec.annotation))


def _wild_operands(draw: Any, op: OpDef, call: Call) -> None:  # noqa: ANN401 - Hypothesis's own
    count = len(op.schema.operands)
    if op.schema.variadic:
        count += draw(st.integers(-1, 2))
    one = draw(any_type())
    like = draw(st.booleans())
    call.types = [one if like else draw(any_type()) for _ in range(count)]
    call.named = {k: one if like else draw(any_type()) for k in op.schema.optional
                  if draw(st.booleans())}
    call.data = {}


def _tame_operands(draw: Any, op: OpDef, call: Call) -> None:  # noqa: ANN401 - Hypothesis's own
    for i in range(len(call.types)):
        if draw(st.integers(0, 2)) == 0:
            call.types[i] = draw(mutated(call.types[i]))
            call.data.pop(i, None)
    if op.schema.variadic and draw(st.integers(0, 4)) == 0:
        call.types = call.types[:-1] if draw(st.booleans()) else [*call.types, draw(any_type())]
        call.data = {}
    for k in op.schema.optional:
        if k in call.named and draw(st.integers(0, 2)) == 0:
            call.named[k] = draw(mutated(call.named[k]))
        elif draw(st.integers(0, 9)) == 0:
            call.named[k] = draw(any_type())
    call.named = {k: call.named[k] for k in op.schema.optional if k in call.named}
    call.data = {i: a for i, a in call.data.items() if i < len(call.types)}


@st.composite
def calls(draw: Any, op: OpDef) -> Call:  # noqa: ANN401 - Hypothesis's own
    """A call: a sample of the operator with some things changed, or anything at all."""
    at = draw(st.integers(0, len(op.samples) - 1))
    case = Case(op, op.samples[at], at)
    split = len(case.operands)
    data = dict(enumerate(case.operands))
    call = Call(op, case.types[:split], dict(zip(case.named, case.types[split:], strict=True)),
                dict(case.attrs), dict(case.regions), draw(st.integers(0, 99)), False, data)
    call.special = op.name not in ENDLESS and draw(st.integers(0, 4)) == 0
    if op.schema.operands or op.schema.optional:
        (_wild_operands if draw(st.integers(0, 4)) == 0 else _tame_operands)(draw, op, call)
    for name, spec in op.schema.attrs.items():
        if draw(st.integers(0, 3)) == 0:
            call.attrs[name] = _attribute(draw, spec)
    known = any(N in t.shape for t in call.all_types)
    call.attrs = {k: v if known else _numbers(v) for k, v in call.attrs.items()}
    if call.attrs and draw(st.integers(0, 30)) == 0:
        call.attrs.pop(next(iter(call.attrs)))
    return call


def _numbers(value: object) -> object:
    """An attribute value without symbols."""
    if isinstance(value, tuple):
        return tuple(map(_numbers, value))
    return evaluate(value, {"n": 3}) if isinstance(value, Dim) else value
