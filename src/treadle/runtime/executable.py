"""A compiled model: call it with arrays, get a dict of arrays."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..backends.base import Backend, Program
from ..declare.arrays import Array, dtype_of_array, type_of
from ..errors import BindingError, RunError
from ..ir.graph import Graph, Node
from .calls import Calls
from .explain import Explanation, explain
from .signature import Leaf, Signature

Watch = Callable[[Node, Sequence[Array]], None]
Outputs = dict[str, Any]
"""Arrays by name; sequences are lists, optionals the value or None, maps dicts."""


class Executable:
    """A model compiled for one device.

    Calls are serialised by a lock; compile twice to run from two threads at once.
    """

    def __init__(self, program: Program, signature: Signature, backend: Backend,
                 passes: Sequence[str] = (), *, frozen: bool = True) -> None:
        self.signature, self.backend, self.frozen = signature, backend, frozen
        self._program, self._passes = program, tuple(passes)
        self._lock = threading.Lock()
        self._calls = Calls(signature)

    def __repr__(self) -> str:
        return f"<Executable on {self.backend.name}: {self.signature}>"

    @property
    def graph(self) -> Graph:
        """The graph that runs, after the passes."""
        return self._program.graph

    def __call__(self, *args: Any, out: Mapping[str, Array] | None = None,  # noqa: ANN401 - arrays of any library
                 **named: Any) -> Outputs:  # noqa: ANN401 - arrays of any library
        """Run on arrays given by position, by name or as one dict.

        Returns name -> array in the graph's order. The arrays are fresh: no later call touches
        them. `out` maps output names to arrays that take the results instead.
        """
        if out is None and (ready := self._calls.find(args, named)) is not None:
            call, arrays = ready
            with self._lock:
                return dict(zip(self._calls.outputs, call(arrays), strict=True))
        return self.run(self.signature.arrange(args, named), out=out)

    def run(self, arrays: Sequence[Array], *, out: Mapping[str, Array] | None = None,
            watch: Watch | None = None) -> Outputs:
        """Run on one array per input; `watch(node, outputs)` sees every step."""
        check_out(self.signature, out)
        arrays = self.signature.arrange(arrays, {})
        binding = self.signature.bind(arrays)
        with self._lock:
            if watch is None and self._calls.misses(arrays):
                self._calls.keep(arrays, self._program.direct(binding))
            found = self._program.run(arrays, binding, watch)
        try:
            return deliver(self.signature, found, arrays, out)
        except MemoryError as e:
            raise RunError(f"out of memory for the outputs: {e}",
                           hint="bind smaller sizes to the symbolic dims") from None

    def set_param(self, name: str, array: Array) -> None:
        """Replace a parameter by a copy of `array`; the type must be the parameter's own."""
        if self.frozen:
            raise BindingError(f"the parameter '{name}' was frozen when the model was compiled",
                               hint="compile(freeze=False)")
        held = {v.name: v for v in self.graph.params}
        if name not in held:
            raise BindingError(f"there is no parameter '{name}'",
                               hint=f"the parameters are {', '.join(sorted(held)[:8])} ...")
        if type_of(array) != held[name].type:
            raise BindingError(f"the parameter {name} is {held[name].type}, got {type_of(array)}")
        with self._lock:
            self._program.set_param(name, np.array(array, order="C", copy=True))

    def set_params(self, arrays: Mapping[str, Array]) -> None:
        """Replace several parameters."""
        for name, array in arrays.items():
            self.set_param(name, array)

    def explain(self) -> Explanation:
        """What runs: for each node its source, the device's claim, and sizes."""
        return explain(self.graph, self.backend, self._passes)


Compile = Callable[[Sequence[Array]], Executable]


class Needs(Protocol):
    """What a late-bound graph depends on."""

    reason: str

    def key(self, arrays: Sequence[Array]) -> object:
        """Equal keys share a program."""
        ...


LATE_KEPT = 16
"""Specialised programs a late-bound executable keeps."""


class LateExecutable:
    """An executable whose graph depends on values or ranks that only a run gives.

    It is specialised at the first call with new ones; the most recent specialisations are kept.
    """

    def __init__(self, signature: Signature, backend: Backend, needs: Needs,
                 compile_: Compile) -> None:
        self.signature, self.backend, self._needs = signature, backend, needs
        self._compile = compile_
        self._kept: OrderedDict[object, Executable] = OrderedDict()
        self._lock = threading.Lock()
        self.compilations = 0

    def __repr__(self) -> str:
        return (f"<Executable on {self.backend.name}, specialised at each new binding: "
                f"{self.signature}>")

    @property
    def graph(self) -> Graph:
        """The graph of the most recent specialisation."""
        return self._latest().graph

    def __call__(self, *args: Any, out: Mapping[str, Array] | None = None,  # noqa: ANN401 - arrays of any library
                 **named: Any) -> Outputs:  # noqa: ANN401 - arrays of any library
        """Run as `Executable` does, specialising first when the binding is new."""
        return self.run(self.signature.arrange(args, named), out=out)

    def run(self, arrays: Sequence[Array], *, out: Mapping[str, Array] | None = None,
            watch: Watch | None = None) -> Outputs:
        """Run on one array per input."""
        self.signature.bind(arrays)
        inner = self._specialise(arrays)
        kept = {leaf.name for leaf in inner.signature.inputs}
        given = [a for leaf, a in zip(self.signature.inputs, arrays, strict=True)
                 if leaf.name in kept]
        return inner.run(given, out=out, watch=watch)

    def _specialise(self, arrays: Sequence[Array]) -> Executable:
        with self._lock:
            if (found := self._kept.get(self._needs.key(arrays))) is None:
                found = self._compile(arrays)
                self.compilations += 1
                self._kept[self._needs.key(arrays)] = found  # compiling may have found more needs
                if len(self._kept) > LATE_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(self._needs.key(arrays))
        return found

    def _latest(self) -> Executable:
        if not self._kept:
            raise BindingError(f"there is no graph before the first run: {self._needs.reason}",
                               hint="call it once")
        return next(reversed(self._kept.values()))

    def explain(self) -> Explanation:
        """What the most recent specialisation runs, and why the model is late-bound."""
        found = self._latest().explain()
        found.notes.insert(0, f"specialised at each new binding: {self._needs.reason}")
        return found


def check_out(signature: Signature, out: Mapping[str, Array] | None) -> None:
    """Refuse names and dtypes in `out` that no output has."""
    leaves = {leaf.name: leaf for leaf in signature.outputs}
    for name, array in (out or {}).items():
        if (leaf := leaves.get(name)) is None:
            raise BindingError(f"out: there is no output '{name}'",
                               hint=f"the outputs are {', '.join(leaves)}")
        if not isinstance(array, np.ndarray):
            raise BindingError(f"out: '{name}' needs a NumPy array, got {type(array).__name__}")
        if any(array is other for n, other in (out or {}).items() if n != name):
            raise BindingError(f"out: '{name}' and another output share one array")
        if dtype_of_array(array) is not leaf.dtype or not array.flags.writeable:
            raise BindingError(f"out: '{name}' needs a writeable array of {leaf.dtype}, got "
                               f"{array.dtype}")


def deliver(signature: Signature, found: Sequence[Array], inputs: Sequence[Array],
            out: Mapping[str, Array] | None) -> Outputs:
    """Results as fresh arrays, or copied into the storage that the caller supplied."""
    taken = {id(a) for a in inputs}
    result: Outputs = {}
    for leaf, array in zip(signature.outputs, found, strict=True):
        if out is not None and leaf.name in out:
            result[leaf.name] = _fill(leaf, out[leaf.name], array)
            continue
        if leaf.dtype.sort == "host":
            result[leaf.name] = plain(array)
            continue
        fresh = array.base is None and array.flags.owndata and array.flags.writeable and (
            array.flags.c_contiguous)
        if not fresh or id(array) in taken or array.dtype == object:
            array = np.array(array, order="C", copy=True)
        taken.add(id(array))
        result[leaf.name] = array
    return result


def plain(value: object) -> Any:  # noqa: ANN401 - whatever a host value holds
    """A host value as its user knows it: lists, dicts and None, with fresh arrays inside."""
    if isinstance(value, np.ndarray):
        host = value.dtype == object and not value.ndim and not isinstance(value.item(), str)
        return plain(value.item()) if host else np.array(value, order="C", copy=True)
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) if isinstance(v, np.ndarray) else v for k, v in value.items()}
    return value


def _fill(leaf: Leaf, target: Array, array: Array) -> Array:
    if target.shape != array.shape:
        raise BindingError(f"out: '{leaf.name}' has shape {list(target.shape)}, the result is "
                           f"{list(array.shape)}")
    np.copyto(target, array)
    return target
