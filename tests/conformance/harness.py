"""Cases drawn from the operator table, and what it takes to run one.

An operator is tested by being declared: every sample of every operator is a case.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np

from treadle.declare import evaluate
from treadle.declare.arrays import Array, Encoded, host, np_dtype, type_of
from treadle.declare.opdef import OpDef
from treadle.declare.schema import Sample, Typed
from treadle.ir.dims import evaluate as bind_size
from treadle.ir.graph import Graph, Value, trace
from treadle.ir.types import DTYPES, DType, TensorType, parse_dtype, parse_type
from treadle.ops.library import REGISTRY
from treadle.runtime.model import Built, Model

Arrays = Sequence[Array]
Region = Callable[..., Any]


@dataclass
class Case:
    """One sample of one operator."""

    op: OpDef
    sample: Sample
    index: int
    seed: int = field(init=False)

    def __post_init__(self) -> None:
        self.seed = zlib.crc32(f"{self.op.name}{self.index}".encode())

    @property
    def id(self) -> str:
        """The test's name."""
        return f"{self.op.name}-{self.index}"

    @cached_property
    def operands(self) -> list[Array]:
        """Positional operands, the variadic ones spread out."""
        s, rng = self.sample, np.random.default_rng(self.seed)
        if s.data is None:
            return [draw(parse_type(t), s, rng) for t in s.types]
        n = len(self.op.schema.operands)
        data = list(s.data)
        if self.op.schema.variadic and len(data) == n and isinstance(data[-1], list):
            spread = data[-1] if data[-1] and _holds_tensors(data[-1]) else [data[-1]]
            data = [*data[:-1], *spread]
        return [array(d) for d in data]

    @cached_property
    def named(self) -> dict[str, Array]:
        """Optional operands."""
        s, rng = self.sample, np.random.default_rng(self.seed + 1)
        given = {k: s.attrs[k] for k in self.op.schema.optional if s.attrs.get(k) is not None}
        return {k: draw(parse_type(v), s, rng) if isinstance(v, str) else array(v)
                for k, v in given.items()}

    @property
    def attrs(self) -> dict[str, object]:
        """The stated attributes; dtypes may be given by name."""
        specs = self.op.schema.attrs
        return {k: parse_dtype(v) if "DType" in specs[k].annotation and isinstance(v, str)
                and v in DTYPES else v for k, v in self.sample.attrs.items() if k in specs}

    @property
    def regions(self) -> dict[str, Region]:
        """The closures that become regions."""
        return {k: cast(Region, v) for k, v in self.sample.attrs.items()
                if k in self.op.schema.regions}

    @property
    def arrays(self) -> list[Array]:
        """Every operand, the optional ones last."""
        return [*self.operands, *self.named.values()]

    def eager(self, operands: Arrays | None = None) -> tuple[Array, ...]:
        """The operator called on arrays."""
        xs = self.arrays if operands is None else operands
        split = len(xs) - len(self.named)
        named = dict(zip(self.named, xs[split:], strict=True))
        if not self.op.schema.operands:  # without operands nothing says that arrays are meant
            return execute(self.graph, xs)
        regions = {k: _on_arrays(r) for k, r in self.regions.items()}
        out = self.op(*self.op.group(xs[:split]), **named, **self.attrs, **regions)
        return tuple(out) if isinstance(out, tuple | list) else (cast(Array, out),)

    def trace(self, types: Sequence[TensorType], attrs: Mapping[str, object] | None = None
              ) -> Graph:
        """The operator recorded on operands of these types."""
        split = len(types) - len(self.named)

        def call(*xs: Value) -> Any:  # noqa: ANN401 - as many outputs as the operator has
            named = dict(zip(self.named, xs[split:], strict=True))
            return self.op(*self.op.group(xs[:split]), **named, **self.regions,
                           **(self.attrs if attrs is None else attrs))

        return trace(call, *types, name=self.op.name)

    @cached_property
    def types(self) -> list[TensorType]:
        """The types of `arrays`."""
        return [type_of(x) for x in self.arrays]

    @cached_property
    def graph(self) -> Graph:
        """The operator recorded on the operands' types."""
        return self.trace(self.types)


def _holds_tensors(items: Sequence[object]) -> bool:
    return isinstance(items[0], list | tuple | Typed | np.ndarray)


def array(data: object) -> Array:
    """Stated data: floats are f32, complex numbers c64, integers i64, unless a dtype is stated."""
    if isinstance(data, Typed):
        dtype = DTYPES[data.dtype]
        wide = np.asarray(data.data, object if dtype.sort == "string" else None)
        return wide.astype(np_dtype(dtype))
    if isinstance(data, np.ndarray | Encoded):
        return cast(Array, data)
    found = np.asarray(data)
    kinds = {"f": np.float32, "c": np.complex64, "i": np.int64, "U": np.object_}
    return found.astype(kinds.get(found.dtype.kind, found.dtype))


def draw(type_: TensorType, sample: Sample, rng: np.random.Generator) -> Array:
    """Random data of a type in [low, high], both included for integers."""
    shape, dtype = cast("tuple[int, ...]", type_.shape), type_.dtype
    low, high = sample.low, sample.high
    if dtype.sort in ("int", "uint"):
        first = int(np.ceil(max(low, 0) if dtype.sort == "uint" else low))
        drawn = rng.integers(first, max(first, int(np.floor(high))), shape, endpoint=True)
        return drawn.astype(np_dtype(dtype))
    if dtype.sort == "bool":
        return rng.random(shape) < 0.5
    if dtype.sort == "string":
        return rng.choice(np.array(["a", "bc", "", "déf"], object), shape)
    if dtype.sort == "block":
        return cast(Array, Encoded(dtype, shape, _random_blocks(type_, rng)))
    wide = rng.uniform(low, high, shape)
    if dtype.sort == "complex":
        return (wide + 1j * rng.uniform(low, high, shape)).astype(np_dtype(dtype))
    return np.asarray(wide).astype(np_dtype(dtype))


def _random_blocks(type_: TensorType, rng: np.random.Generator) -> Array:
    """Bytes below 0x3c: every f16 scale among them is finite."""
    return rng.integers(0, 0x3c, cast(int, type_.nbytes()), np.uint8)


def _on_arrays(region: Region) -> Region:
    """A closure on graph values as one on arrays."""
    def call(*xs: Array) -> tuple[Array, ...]:
        return execute(trace(region, *[type_of(x) for x in xs]), xs)

    return call


def execute(graph: Graph, arrays: Arrays, binding: dict[str, int] | None = None
            ) -> tuple[Array, ...]:
    """The graph's outputs by the reference interpreter; `binding` gains the sizes it made."""
    return evaluate.run(graph, arrays, {}, {} if binding is None else binding)


def check_types(values: Sequence[Value], arrays: Arrays, binding: Mapping[str, int]) -> None:
    """The arrays are what the values' types say, under the sizes of the run."""
    for v, a in zip(values, arrays, strict=True):
        assert tuple(a.shape) == tuple(bind_size(d, binding) for d in v.type.shape), v.type
        found: DType = type_of(a).dtype
        assert found is v.dtype or (found.sort == v.dtype.sort == "host") or not a.size, v.type


def assert_same(got: Arrays, want: Arrays) -> None:
    """Bit for bit, but any NaN is a NaN."""
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if a.dtype == object:
            assert _same_object(a.tolist(), b.tolist()), (a, b)
        elif a.tobytes() != b.tobytes():
            np.testing.assert_array_equal(widest(a), widest(b))


def _same_object(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        assert_same([a], [b])
        return True
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same_object, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same_object(a[k], b[k]) for k in a)
    return bool(a == b)


def widest(a: Array) -> Array:
    """Narrow and unusual number types as f64, in which NumPy compares."""
    return a.astype(np.float64) if a.dtype.kind == "V" or a.dtype == np.float16 else a


CASES = [Case(op, s, i) for op in REGISTRY.values() for i, s in enumerate(op.samples)]


def spread(cases: Sequence[Case], most: int = 6) -> list[Case]:
    """At most so many cases of each operator, evenly spaced."""
    out: list[Case] = []
    for op in REGISTRY.values():
        own = [c for c in cases if c.op is op]
        out += own[::-(-len(own) // most) or 1]
    return out


@dataclass(frozen=True)
class Device:
    """Where graphs run: `run(graph, arrays)` gives the outputs."""

    name: str
    run: Callable[[Graph, Arrays], Sequence[Array]]
    exact: bool = True


def on_cpu(graph: Graph, arrays: Arrays) -> Sequence[Array]:
    """The graph's outputs by the CPU backend, twice: as a first call and as a bound one."""
    exe = Model("case", Built(graph, {})).compile("cpu")
    first = list(exe.run(arrays).values())
    if not any(v.dtype.sort == "host" for v in (*graph.inputs, *graph.outputs)):
        assert_same(list(exe(*arrays).values()), first)
    return [host(a) if v.dtype.sort == "host" else a
            for v, a in zip(graph.outputs, first, strict=True)]


DEVICES = [Device("reference", execute), Device("cpu", on_cpu, exact=False)]
