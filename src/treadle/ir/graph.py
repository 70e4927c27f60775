"""Values, nodes, graphs and the builder that records them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from functools import lru_cache
from types import FrameType, MappingProxyType
from typing import TypeAlias

from ..errors import OperatorError
from ..records import dataclass, field
from .arithmetic import Arithmetic
from .dims import Dim, symbols
from .types import DType, Shape, TensorType

Attr: TypeAlias = (
    "None | bool | int | float | complex | str | Dim | DType | Blob | tuple[Attr, ...]")
Attrs: TypeAlias = Mapping[str, Attr]


class Blob:
    """A tensor as an attribute: row-major bytes with their type. Equal contents are equal."""

    __slots__ = ("data", "digest", "dtype", "shape")

    def __init__(self, dtype: DType, shape: tuple[int, ...], data: bytes) -> None:
        self.dtype, self.shape, self.data = dtype, shape, data
        head = f"{dtype.name}{shape}".encode()
        self.digest = hashlib.sha256(head + data).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blob) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Blob({self.type}, sha256={self.digest[:12]})"

    @property
    def type(self) -> TensorType:
        """The tensor type of the contents."""
        return TensorType(self.shape, self.dtype)


@dataclass(slots=True, eq=False, repr=False)
class Value(Arithmetic["Value"]):
    """One SSA value: a graph input or output number `index` of `producer`."""

    type: TensorType
    name: str = ""
    producer: Node | None = None
    index: int = 0

    def _apply(self, op: str, *args: object) -> Value:
        return _apply_hook[0](op, args)

    def __repr__(self) -> str:
        return f"%{self.name or '?'}: {self.type}"

    @property
    def shape(self) -> Shape:
        """The sizes of the value's axes."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype


_apply_hook: list[Callable[[str, tuple[object, ...]], Value]] = []


def set_operator_hook(apply: Callable[[str, tuple[object, ...]], Value]) -> None:
    """Let the operator library say what `a + b` on values means."""
    _apply_hook[:] = [apply]


NO_REGIONS: Mapping[str, Graph] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Node:
    """One application of an operator. The last `len(keys)` inputs are its optional operands."""

    op: str
    inputs: tuple[Value, ...]
    attrs: Attrs
    outputs: tuple[Value, ...] = ()
    keys: tuple[str, ...] = ()
    regions: Mapping[str, Graph] = field(default_factory=lambda: NO_REGIONS)
    loc: str = ""

    def uses(self) -> Iterator[Value]:
        """Every value read: inputs and what the regions capture. Passes must ask this."""
        yield from self.inputs
        for region in self.regions.values():
            yield from region.captures

    def operands(self) -> tuple[tuple[Value, ...], dict[str, Value]]:
        """Positional operands, and optional ones by keyword."""
        split = len(self.inputs) - len(self.keys)
        return self.inputs[:split], dict(zip(self.keys, self.inputs[split:], strict=True))

    def makes(self) -> set[str]:
        """Size symbols that are first known when this node has run (data-dependent sizes)."""
        out = {s for v in self.outputs for d in v.type.shape if isinstance(d, Dim)
               for s in symbols(d)}
        if not out:
            return out
        return out - {s for v in self.uses() for d in v.type.shape for s in symbols(d)} - (
            self.reads())

    def reads(self) -> set[str]:
        """Size symbols that the attributes mention."""
        return {s for a in self.attrs.values() if isinstance(a, Dim | tuple)
                for s in _attr_symbols(a)}


def _attr_symbols(value: Attr) -> Iterator[str]:
    if isinstance(value, Dim):
        yield from symbols(value)
    elif isinstance(value, tuple):
        for v in value:
            yield from _attr_symbols(v)


@dataclass(slots=True, eq=False, weakref_slot=True)
class Graph:
    """Nodes in topological order. A graph inside a node is a region and lists its captures."""

    name: str
    inputs: list[Value] = field(default_factory=list[Value])
    params: list[Value] = field(default_factory=list[Value])
    nodes: list[Node] = field(default_factory=list[Node])
    outputs: tuple[Value, ...] = ()
    captures: tuple[Value, ...] = ()
    output_names: tuple[str, ...] = ()

    def __str__(self) -> str:
        from .printer import print_graph

        return print_graph(self)

    def free_values(self) -> tuple[Value, ...]:
        """Values read here but made outside, in order of first use."""
        own = {*self.inputs, *self.params}
        free: dict[Value, None] = {}
        for node in self.nodes:
            for v in node.uses() if node.regions else node.inputs:
                if v not in own:
                    free[v] = None
            own.update(node.outputs)
        free.update((v, None) for v in self.outputs if v not in own)
        return tuple(free)

    def walk(self) -> Iterator[Node]:
        """Every node, those inside regions included, outer ones first."""
        for node in self.nodes:
            yield node
            for region in node.regions.values():
                yield from region.walk()


Expand: TypeAlias = Callable[[Node], bool]
_current: ContextVar[Builder | None] = ContextVar("builder", default=None)
_HERE = __file__.rsplit("ir", 1)[0]


class Builder:
    """Records nodes while it is entered. `expand` picks composites to open up on the way in."""

    def __init__(self, name: str, expand: Expand = lambda _: False) -> None:
        self.graph = Graph(name)
        self.expand = expand
        self.loc: str | None = None  # None: the Python caller; "": unknown
        self._tokens: list[Token[Builder | None]] = []

    def __enter__(self) -> Builder:
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._tokens.pop())

    @contextmanager
    def at(self, loc: str) -> Generator[None]:
        """Give nodes recorded inside this source location instead of the Python caller's."""
        before, self.loc = self.loc, loc or self.loc
        try:
            yield
        finally:
            self.loc = before

    def input(self, name: str, type_: TensorType, *, param: bool = False) -> Value:
        """Add a graph input, or a parameter."""
        value = Value(type_, name)
        (self.graph.params if param else self.graph.inputs).append(value)
        return value

    def emit(self, node: Node, types: Sequence[TensorType]) -> tuple[Value, ...]:
        """Append `node` with outputs of these types."""
        node.outputs = tuple([Value(t, "", node, i) for i, t in enumerate(types)])
        self.graph.nodes.append(node)
        return node.outputs

    def finish(self, outputs: Value | Sequence[Value], names: Sequence[str] = ()) -> Graph:
        """Close the graph; `names` are what callers know the outputs by."""
        self.graph.outputs = (outputs,) if isinstance(outputs, Value) else tuple(outputs)
        self.graph.output_names = tuple(names)
        self.graph.captures = self.graph.free_values()
        return self.graph


def current() -> Builder:
    """The builder being recorded into."""
    if (builder := _current.get()) is None:
        raise OperatorError("operators on graph values need an open builder",
                            hint="call them inside trace(fn, ...) or `with Builder(...)`")
    return builder


def caller() -> str:
    """`file:line` of the innermost frame outside this package."""
    frame: FrameType | None = sys._getframe(2)  # pyright: ignore[reportPrivateUsage] - no public way
    while frame is not None:
        if name := _file_name(frame.f_code.co_filename):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@lru_cache(4096)
def _file_name(path: str) -> str:
    """The last part of a path, empty for the files of this package."""
    return "" if path.startswith(_HERE) else path.rsplit("/", 1)[-1]


Out: TypeAlias = "Value | Sequence[Value]"


def trace(fn: Callable[..., Out], /, *types: TensorType, name: str = "",
          expand: Expand = lambda _: False) -> Graph:
    """Record `fn` on inputs of these types, named after its parameters."""
    code = getattr(fn, "__code__", None)
    names: Sequence[str] = code.co_varnames if code else ()
    variadic = len(types) > (code.co_argcount if code else 0)
    with Builder(name or getattr(fn, "__name__", "graph").strip("<>"), expand) as b:
        args = [b.input(f"x{i}" if variadic else names[i], t) for i, t in enumerate(types)]
        graph = b.finish(fn(*args))
    if graph.captures:
        raise OperatorError(f"{graph.name} uses {graph.captures[0]!r}, a value of another graph",
                            hint="pass it as an input")
    return graph
