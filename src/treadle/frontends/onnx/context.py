"""What importer entries may ask for: constants, sizes, symbols and regions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...declare.arrays import Array, blob, type_of
from ...declare.content import content, sizes_of
from ...errors import Declined, ParseError, TreadleError
from ...ir.dims import Size, parse_size, sym, symbols
from ...ir.graph import Value
from ...ir.types import I64, TensorType, host_dtype
from ...ops.library import REGISTRY
from .reading import dtype_of

PARAM_BYTES = 4096
"""Larger constants become parameters, so that the graph's text stays readable."""
Region = Callable[..., tuple[Value, ...]]


class LateBinding(TreadleError):
    """The graph cannot be built before the values or shapes of some inputs are known."""

    def __init__(self, reason: str, values: Sequence[str] = (), shapes: bool = False) -> None:
        super().__init__(reason)
        self.values, self.shapes = tuple(values), shapes


@dataclass
class State:
    """What a whole import shares, whatever the nesting."""

    file: str
    folder: Path | None
    functions: Mapping[tuple[str, str], onnx.FunctionProto]
    statics: Mapping[str, Array]
    params: dict[str, Array] = field(default_factory=dict)
    param_values: dict[str, Value] = field(default_factory=dict)
    leaves: dict[int, str] = field(default_factory=dict)
    """Main graph inputs by identity."""
    symbols: dict[str, Size] = field(default_factory=dict)
    witnesses: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Main graph inputs whose values tell a symbol."""
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    add_param: Callable[[str, TensorType], Value] | None = None

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
        found = content(value)
        if found is None and value in self.state.param_values.values():
            found = self.state.params[value.name]
        if found is None or found.dtype == object and value.dtype.sort != "string":
            raise self.late(value, what, found is not None)
        return found

    def ints(self, value: Value, what: str) -> tuple[int, ...]:
        """The elements of an integer vector or scalar, known before the run."""
        return tuple([int(x) for x in self.array(value, what).reshape(-1)])

    def sizes(self, value: Value, stem: str = "n") -> tuple[Size, ...]:
        """The elements of `value` as sizes; what depends on data becomes fresh symbols."""
        if (found := sizes_of(value)) is not None:
            return found
        total = value.type.shape[0] if value.type.rank == 1 else 1
        if not isinstance(total, int):
            raise self.late(value, f"the length of {stem}", True)
        names = tuple([self.fresh(stem) for _ in range(total)])
        self.state.witnesses.update(dict.fromkeys(names, self.inputs_of(value)))
        REGISTRY["witness"](REGISTRY["cast"](value, dtype=I64), names=names)
        return tuple(map(sym, names))

    def late(self, value: Value, what: str, symbolic: bool) -> TreadleError:
        """The error for a value that must be known earlier than it is."""
        inputs = self.inputs_of(value)
        if not inputs and not symbolic:
            return Declined(f"{what} depends on data computed in the graph")
        return LateBinding(f"{self.node_name}: {what} must be known before the graph is built; "
                           f"it comes from {', '.join(inputs) or 'the input shapes'}",
                           () if symbolic else inputs, symbolic)

    def inputs_of(self, value: Value) -> tuple[str, ...]:
        """The main graph inputs that `value` is computed from."""
        return tuple(sorted({self.state.leaves[id(v)] for v in ancestors(value)
                             if id(v) in self.state.leaves}))

    def known(self, size: Size, what: str) -> int:
        """`size` as a number; a symbolic one is bound at the first run."""
        if isinstance(size, int):
            return size
        inputs = {x for s in symbols(size) for x in self.state.witnesses.get(s, ())}
        raise LateBinding(f"{self.node_name}: {what} must be a number, it is {size}",
                          tuple(sorted(inputs)), not inputs)

    def type_proto(self, proto: onnx.TypeProto, stem: str) -> TensorType | None:
        """Our type for a TypeProto; None when the rank is unknown."""
        kind = proto.WhichOneof("value")
        if kind == "tensor_type":
            dtype = dtype_of(proto.tensor_type.elem_type, stem)
            if not proto.tensor_type.HasField("shape"):
                return None
            dims = proto.tensor_type.shape.dim
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
        name = dim.dim_param if dim.dim_param not in ("", "?", "-1") else ""
        return self.symbol(name) if name else sym(self.state.fresh(stem))

    def symbol(self, name: str) -> Size:
        """The size that a dim_param stands for; `past + seq` is an expression."""
        if (found := self.state.symbols.get(name)) is None:
            try:
                found = parse_size(name)
                if any(s not in self.state.symbols and not name.isidentifier()
                       for s in symbols(found)):
                    found = sym(self.state.fresh(name))
            except ParseError:
                found = sym(self.state.fresh(name))
            self.state.symbols[name] = found
        return found


def ancestors(value: Value) -> list[Value]:
    """Values that `value` is computed from, itself included."""
    seen: dict[int, Value] = {}
    stack = [value]
    while stack:
        v = stack.pop()
        if id(v) in seen:
            continue
        seen[id(v)] = v
        if v.producer is not None:
            stack.extend(v.producer.uses())
    return list(seen.values())
