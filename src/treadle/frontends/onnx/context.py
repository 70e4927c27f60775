"""What importer entries may ask for: constants, sizes, symbols and regions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...declare.arrays import Array, blob, type_of
from ...declare.content import content, sizes_of
from ...errors import Declined, ImportFailure, ParseError, TreadleError
from ...ir.dims import Size, parse_size, substitute, sym, symbol_name, symbols
from ...ir.graph import Value
from ...ir.types import I64, MOST_AXES, TensorType, host_dtype
from ...ops.library import REGISTRY
from ...records import dataclass, field
from ...rewrite.constants import array_value
from .conditions import Condition, Key
from .protocol import onnx
from .reading import Beside, dtype_of

PARAM_BYTES = 4096
"""Larger constants become parameters, so that the graph's text stays readable."""
LONGEST = 1024
"""Most sizes that a tensor known only to the run may give."""
Region = Callable[..., tuple[Value, ...]]


class LateBinding(TreadleError):
    """The graph cannot be built before some facts about the inputs are known.

    `values` names inputs whose values it depends on, `sizes` symbols that must be numbers; `ranks`
    says that the rank of some input is not stated. It is enough to know a `condition` if there is
    one.
    """

    def __init__(self, reason: str, values: Sequence[str] = (), sizes: Iterable[str] = (),
                 ranks: bool = False, condition: Condition | None = None) -> None:
        super().__init__(reason)
        self.condition = condition
        self.values, self.sizes, self.ranks = tuple(values), frozenset(sizes), ranks


@dataclass
class State:
    """What a whole import shares, whatever the nesting."""

    file: str
    beside: Beside
    functions: Mapping[tuple[str, str], onnx.FunctionProto]
    statics: Mapping[str, Array]
    fixed: Mapping[str, Size] = field(default_factory=dict)
    """Symbols of the inputs that are numbers now, or multiples with a remainder."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Upper bounds of symbols, which the graph was found to imply."""
    params: dict[str, Array] = field(default_factory=dict)
    param_values: dict[str, Value] = field(default_factory=dict)
    leaves: dict[int, str] = field(default_factory=dict)
    """Main graph inputs by identity."""
    symbols: dict[str, Size] = field(default_factory=dict)
    """By dim_param."""
    input_symbols: set[str] = field(default_factory=set)
    witnesses: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Main graph inputs whose values tell a symbol."""
    counts: dict[str, int] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    """Floating initializers of at most one element."""
    notes: list[str] = field(default_factory=list)
    choices: Mapping[Key, bool] = field(default_factory=dict)
    """Branches that are known to be taken."""
    ifs: dict[str, int] = field(default_factory=dict)
    """How many times an `If` of a name was met."""
    room: int = 5_000
    """Nodes that may still be imported, those of opened functions and bodies included."""
    add_param: Callable[[str, TensorType], Value] | None = None

    def size(self, name: str) -> Size:
        """The size that an input symbol is: a number, or a symbol with its bound."""
        if name in self.fixed:
            found = self.fixed[name]
            other = symbol_name(found)
            return found if other in (None, name) else self.size(other)
        return sym(name, self.limits.get(name))

    def fresh(self, stem: str) -> str:
        """A symbol or parameter name not used before."""
        word = identifier(stem)
        n = self.counts[word] = self.counts.get(word, -1) + 1
        return f"{word}_{n}" if n else word


def identifier(text: str) -> str:
    """`text` as an identifier."""
    word = re.sub(r"[^A-Za-z0-9_]", "_", text)[:64] or "_"
    return word if not word[0].isdigit() else f"_{word}"


class Context:
    """The services of one graph or function body under import."""

    def __init__(self, state: State, opsets: Mapping[str, int]) -> None:
        self.state, self.opsets = state, opsets
        self.version = 0
        self.reached: tuple[tuple[Value, bool], ...] = ()
        self.outputs: tuple[str, ...] = ()
        self.node_name = ""

    def wants(self, index: int) -> bool:
        """Whether the node's output `index` is used."""
        return index < len(self.outputs) and self.outputs[index] != ""

    def fresh(self, stem: str = "n") -> str:
        """A new symbol name."""
        return self.state.fresh(f"{stem}_")

    def constant(self, array: Array, name: str = "") -> Value:
        """A constant, or a parameter when it is large."""
        array = np.asarray(array)
        if array.nbytes <= PARAM_BYTES or array.dtype == object:
            value = REGISTRY["constant"](value=blob(array))
            assert isinstance(value, Value)
            return value
        return self.param(self.state.fresh(name or "constant"), array)

    def param(self, name: str, array: Array) -> Value:
        """The parameter `name`, made at its first use."""
        if (found := self.state.param_values.get(name)) is None:
            assert self.state.add_param is not None
            found = self.state.add_param(name, type_of(array))
            self.state.params[name] = array
            self.state.param_values[name] = found
        return found

    def array(self, value: Value, what: str) -> Array:
        """The elements of `value`, which must be known before the run."""
        if (found := content(value)) is None:
            found = array_value(value)
        if found is None and value in self.state.param_values.values():
            found = self.state.params[value.name]
        if found is None or found.dtype == object and value.dtype.sort != "string":
            raise self.late(value, what)
        return found

    def ints(self, value: Value, what: str) -> tuple[int, ...]:
        """The elements of an integer vector or scalar, known before the run."""
        _check_integers(value, what)
        return tuple([int(x) for x in self.array(value, what).reshape(-1)])

    def sizes(self, value: Value, stem: str = "n") -> tuple[Size, ...]:
        """The elements of `value` as sizes; what depends on data becomes fresh symbols."""
        _check_integers(value, stem)
        if (found := sizes_of(value)) is not None:
            return found
        total = value.type.shape[0] if value.type.rank == 1 else 1
        if not isinstance(total, int):
            self.known(total, f"the length of {stem}")
            raise Declined(f"the length of {stem} depends on data")
        if total > LONGEST:
            raise Declined(f"a {stem} of {total} entries")
        names = tuple([self.fresh(stem) for _ in range(total)])
        self.state.witnesses.update(dict.fromkeys(names, self.depends(value)[0]))
        REGISTRY["witness"](REGISTRY["cast"](value, dtype=I64), names=names)
        return tuple(map(sym, names))

    def late(self, value: Value, what: str) -> TreadleError:
        """The error for a value that must be known earlier than it is."""
        inputs, sizes = self.depends(value)
        if not inputs and not sizes:
            return Declined(f"{what} depends on data computed in the graph")
        return LateBinding(f"{self.node_name}: {what} must be known before the graph is built; "
                           f"it comes from {', '.join([*inputs, *sorted(sizes)])}", inputs, sizes)

    def choice(self) -> tuple[Key, bool | None]:
        """The name of the `If` that is being imported, and its branch if that is known."""
        count = self.state.ifs[self.node_name] = self.state.ifs.get(self.node_name, -1) + 1
        key = self.node_name, count
        return key, self.state.choices.get(key)

    def undecided(self, key: Key, value: Value, what: str) -> TreadleError:
        """The error for a condition that must be known before the graph is built."""
        error = self.late(value, what)
        above = [v for x in (value, *[v for v, _ in self.reached]) for v in ancestors(x)]
        found = Condition(
            key, value, self.reached,
            {v: self.state.leaves[id(v)] for v in above if id(v) in self.state.leaves},
            {v: self.state.params[v.name] for v in self.state.param_values.values()})
        if isinstance(error, LateBinding) and found.decidable(self.state.input_symbols):
            error.condition = found
        return error

    def depends(self, value: Value) -> tuple[tuple[str, ...], set[str]]:
        """The inputs whose values, and the input symbols, that `value` is computed from."""
        found: set[str] = set()
        sizes: set[str] = set()
        for v in ancestors(value):
            if id(v) in self.state.leaves:
                found.add(self.state.leaves[id(v)])
            if v.producer is not None:
                sizes |= v.producer.reads()
                if v.producer.op == "shape_of":
                    sizes |= {s for d in v.producer.inputs[0].type.shape for s in symbols(d)}
        return tuple(sorted(found)), sizes & self.state.input_symbols

    def known(self, size: Size, what: str) -> int:
        """`size` as a number; a symbolic one is bound at the first run."""
        if isinstance(size, int):
            return size
        inputs = {x for s in symbols(size) for x in self.state.witnesses.get(s, ())}
        sizes = self.state.input_symbols.intersection(symbols(size))
        if not inputs and not sizes:
            raise Declined(f"{what} must be a number, it is {size}, which data decides")
        raise LateBinding(f"{self.node_name}: {what} must be a number, it is {size}",
                          tuple(sorted(inputs)), sizes)

    def type_proto(self, proto: onnx.TypeProto, stem: str) -> TensorType | None:
        """Our type for a TypeProto; None when the rank is unknown."""
        kind = proto.WhichOneof("value")
        if kind == "tensor_type":
            dtype = dtype_of(proto.tensor_type.elem_type, stem)
            if not proto.tensor_type.HasField("shape"):
                return None
            dims = proto.tensor_type.shape.dim
            if len(dims) > MOST_AXES:
                raise ImportFailure(f"{self.state.file}: {stem} has {len(dims)} dimensions; at "
                                    f"most {MOST_AXES} are possible")
            return TensorType(tuple([self.dim(d, f"{stem}_{i}") for i, d in enumerate(dims)]),
                              dtype)
        return TensorType((), self._host(proto, kind, stem))

    def _host(self, proto: onnx.TypeProto, kind: str | None, stem: str) -> Any:  # noqa: ANN401 - a DType
        if kind in ("sequence_type", "optional_type"):
            inner = getattr(proto, kind).elem_type
            elem = self.type_proto(inner, stem) if inner.WhichOneof("value") else None
            short = "seq" if kind == "sequence_type" else "opt"
            if elem is None and inner.WhichOneof("value") == "tensor_type":
                return host_dtype(short, text=dtype_of(inner.tensor_type.elem_type, stem).name)
            return host_dtype(short, elem)
        if kind == "map_type":
            key = dtype_of(proto.map_type.key_type, stem)
            item = self.type_proto(proto.map_type.value_type, stem)
            return host_dtype("map", text=f"{key},{item}")
        raise Declined(f"{stem} has a type that is not supported: {kind or 'none'}")

    def dim(self, dim: onnx.TensorShapeProto.Dimension, stem: str) -> Size:
        """A dimension: a number, a named symbol, or a symbol made up for an unnamed one."""
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            return dim.dim_value
        given = dim.dim_param
        name = given if isinstance(given, str) and given not in ("?", "-1") else ""
        return self.symbol(name) if name else self.state.size(self.state.fresh(stem))

    def symbol(self, name: str) -> Size:
        """The size that a dim_param stands for; `past + seq` is an expression."""
        if (found := self.state.symbols.get(name)) is None:
            spelled = self._expression(name)
            found = self.state.size(self.state.fresh(name)) if spelled is None else spelled
            self.state.symbols[name] = found
        return found

    def _expression(self, name: str) -> Size | None:
        """The size that a name spells over symbols seen before."""
        if name.isidentifier():
            return None
        try:
            found = parse_size(name)
        except ParseError:
            return None
        known = {s: v for s, v in self.state.symbols.items() if s.isidentifier()}
        return substitute(found, known) if {*symbols(found)} <= known.keys() else None


def _check_integers(value: Value, what: str) -> None:
    if value.dtype.sort not in ("int", "uint"):
        raise Declined(f"{what} is {value.type}; it must hold integers")


def ancestors(value: Value) -> list[Value]:
    """Values that `value` is computed from, itself included; a shape is not its tensor's data."""
    seen: dict[int, Value] = {}
    stack = [value]
    while stack:
        v = stack.pop()
        if id(v) in seen:
            continue
        seen[id(v)] = v
        if v.producer is not None and v.producer.op != "shape_of":
            stack.extend(v.producer.uses())
    return list(seen.values())
