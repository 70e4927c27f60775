"""The resident inputs of an executable, and its runs with them."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ..backends.base import Buffer, Program
from ..declare.arrays import Array, np_dtype
from ..declare.evaluate import Binding, Watch
from ..declare.room import SMALL, available
from ..errors import BindingError
from ..ir.dims import Size, evaluate, symbols
from ..ir.types import Shape
from .line import Line
from .ready import Readies, Ready
from .resident import Feed, Resident
from .results import Outputs, apart, fill, own
from .signature import Leaf, Signature, as_array

Spans: TypeAlias = "dict[Resident, tuple[int, int]]"


class States:
    """Residents by the names of their inputs."""

    def __init__(self, signature: Signature, line: Line) -> None:
        self.signature, self.line = signature, line
        self.held: dict[str, Resident] = {}
        self.asked = signature
        self._program: Program | None = None
        self._ready = Readies()

    def changed(self) -> None:
        """What the program was made for holds no longer."""
        self._program, self._ready = None, Readies()
        self.asked = Signature(tuple([leaf for leaf in self.signature.inputs
                                      if leaf.name not in self.held]), self.signature.outputs)

    def bind(self, name: str, program: Program, value: Any, shape: Sequence[int] | None,  # noqa: ANN401 - arrays of any library
             axis: int | None, capacity: int | None) -> Resident:
        """Storage for an input."""
        leaves = {leaf.name: leaf for leaf in self.signature.inputs}
        if (leaf := leaves.get(name)) is None or name in self.held:
            why = "is resident already" if leaf else "is no input"
            raise BindingError(f"'{name}' {why}", hint=f"the model takes {self.asked}")
        axis = _whole(leaf, "axis", axis)
        capacity = _whole(leaf, "capacity", capacity)
        first = initial(leaf, value, shape, capacity)
        axis = chosen(leaf, first, axis, capacity)
        if capacity is not None and axis is not None:
            _check_room(leaf, (*first.shape[:axis], capacity, *first.shape[axis + 1:]))
        found = Resident(self.signature, leaf, program.storage, self.line, self.changed, first,
                         axis, capacity)
        self.held[name] = found
        self.changed()
        return found

    def release(self, name: str) -> None:
        """Ask for the input again."""
        if (found := self.held.pop(name, None)) is None:
            raise BindingError(f"'{name}' is not resident")
        found.released = True
        self.changed()

    def program(self, plain: Program) -> Program:
        """The program for the residents as they are."""
        if self._program is None:
            numbers = {leaf.name: i for i, leaf in enumerate(self.signature.inputs)}
            held = list(self.held.values())
            states = [replace(r.state, input=numbers[r.leaf.name]) for r in held]
            self._program, grants = plain.with_states(states)
            for resident, grant in zip(held, grants, strict=True):
                resident.grant = grant
        return self._program

    def run(self, plain: Program, arrays: Sequence[Array], hidden: Sequence[Array],
            out: Mapping[str, Array] | None, watch: Watch | None) -> Outputs:
        """One run; outputs that are fed are written back if it succeeds.

        `hidden` are inputs of the program that no signature has.
        """
        program = self.program(plain)
        self._check_out(out)
        given = dict(zip([leaf.name for leaf in self.asked.inputs], arrays, strict=True))
        held, inputs = self.held, self.signature.inputs
        full: list[Buffer] = [held[x.name].given() if x.name in held else given[x.name]
                              for x in inputs]
        alone = watch is None and out is None and not hidden
        if alone and (ready := self._ready.find(full)) is not None:
            return ready.run(full, given)
        seen = [held[x.name].active() if x.name in held else given[x.name] for x in inputs]
        binding = self.signature.bind(seen)
        rules = [(r, r.rule) for r in held.values() if r.rule is not None]
        spans = self._spans(rules, binding, given)
        kept = {rule.output for _, rule in rules}
        if alone:
            self._prepare(program, full, binding, rules)
        buffers = [r.buffer for r in held.values() if isinstance(r.buffer, np.ndarray)]
        taken = {id(a) for a in (*arrays, *buffers)}
        try:
            found = program.run([*full, *hidden], binding, watch, kept)
            result = own(self.signature, found, taken, out, buffers, kept)
        except BaseException:
            for resident, _ in rules:
                resident.lost = resident.grant.in_place and resident.capacity is None
            raise
        self._take(rules, spans, found, given, taken)
        return fill(result, out)

    def _prepare(self, program: Program, inputs: Sequence[Buffer], binding: Binding,
                 rules: Sequence[tuple[Resident, Feed]]) -> None:
        """Keep a ready run for these shapes if sizes do not change from run to run."""
        outputs = self.signature.outputs
        shapes = [self._shape(outputs[rule.output].shape, binding) for _, rule in rules]
        fed = [(r, rule, shape) for (r, rule), shape in zip(rules, shapes, strict=True)
               if shape is not None]
        kept = {rule.output for _, rule in rules}
        grows = any(r.capacity is not None for r in self.held.values())
        if grows or len(fed) < len(rules) or len(kept) < len(rules):
            return
        if (call := program.direct(binding)) is not None:
            names = [(x.name, i) for i, x in enumerate(outputs) if i not in kept]
            self._ready.keep(inputs, Ready(call, fed, names))

    def _shape(self, sizes: Shape | None, binding: Mapping[str, int]) -> tuple[int, ...] | None:
        known = [_number(n, binding) for n in sizes or ()]
        found = tuple([n for n in known if n is not None])
        return found if sizes is not None and len(found) == len(known) else None

    def _check_out(self, out: Mapping[str, Array] | None) -> None:
        for r in self.held.values():
            if r.rule is not None and (name := self.signature.outputs[r.rule.output].name) in (
                    out or {}):
                raise BindingError(f"out: '{name}' is fed back to {r.leaf.name}, it is no result")

    def _spans(self, rules: Sequence[tuple[Resident, Feed]], binding: Mapping[str, int],
               given: Mapping[str, Array]) -> Spans:
        """Where outputs go, for those whose shapes are known before the run."""
        found: Spans = {}
        known: dict[Size, int | None] = {}
        for resident, rule in rules:
            sizes = self.signature.outputs[rule.output].shape
            if sizes is None:
                continue
            for n in sizes:
                if n not in known:
                    known[n] = _number(n, binding)
            shape = [m for n in sizes if (m := known[n]) is not None]
            if len(shape) == len(sizes):
                found[resident] = resident.span(rule, shape, given)
        return found

    def _take(self, rules: Sequence[tuple[Resident, Feed]], spans: Spans,
              found: Sequence[Buffer], given: Mapping[str, Array], taken: set[int]) -> None:
        """Write outputs back: first what is in place already, which other states may want too."""
        for resident, rule in rules:
            if resident not in spans and (value := found[rule.output]) is not None:
                spans[resident] = resident.span(rule, value.shape, given)
        values = dict(enumerate(found))
        if len(rules) > 1:
            values.update(self._views(rules, found, taken))
        placed = [x for x in rules if x[0].grant.in_place]
        for resident, rule in placed:
            resident.take(rule, None, spans[resident], taken)
            values[rule.output] = resident.active()
        for resident, rule in rules:
            if not resident.grant.in_place:
                resident.take(rule, values[rule.output], spans[resident], taken)

    def _views(self, rules: Sequence[tuple[Resident, Feed]], found: Sequence[Buffer],
               taken: set[int]) -> dict[int, Array]:
        """Copies of outputs inside states, which other outputs will change."""
        buffers = [r.buffer for r in self.held.values() if isinstance(r.buffer, np.ndarray)]
        return {rule.output: apart(value, buffers) for _, rule in rules
                if isinstance(value := found[rule.output], np.ndarray) and (
                    value.base is not None or id(value) in taken)}

    def clone(self, program: Program, line: Line) -> States:
        """Residents of the same contents and rules for another executable."""
        made = States(self.signature, line)
        for name, old in self.held.items():
            new = made.bind(name, program, old.contents(), None, old.axis, old.capacity)
            new.rule, new.lost = old.rule, old.lost
        return made

    def notes(self, plain: Program) -> list[str]:
        """What stays on the device, and how."""
        self.program(plain)
        return [f"{r!r}: {r.grant.reason}" for r in self.held.values()]


def _number(size: Size, binding: Mapping[str, int]) -> int | None:
    """What a size is before the run, or None if only the run tells."""
    return evaluate(size, binding) if all(s in binding for s in symbols(size)) else None


def initial(leaf: Leaf, value: Any, shape: Sequence[int] | None, capacity: int | None) -> Array:  # noqa: ANN401 - arrays of any library
    """The first contents: what was given, or zeros of a known shape."""
    if leaf.dtype.sort in ("host", "string", "block") or leaf.shape is None:
        raise BindingError(f"{leaf} cannot stay on the device")
    if value is not None:
        array = as_array(leaf, value)
        if shape is not None and _sizes(leaf, shape) != array.shape:
            raise BindingError(f"{leaf}: shape={shape!r} is not that of the value, "
                               f"{list(array.shape)}", hint="give the value alone")
        return array
    if shape is None:
        unknown = [n for n in leaf.shape if not isinstance(n, int)]
        if len(unknown) > 1 or (unknown and capacity is None):
            raise BindingError(f"the storage of {leaf} has no known shape",
                               hint="resident(name, value) or resident(name, shape=...)")
        shape = [n if isinstance(n, int) else 0 for n in leaf.shape]
    sizes = _sizes(leaf, shape)
    if len(sizes) != len(leaf.shape) or any(
            isinstance(n, int) and n != given for n, given in zip(leaf.shape, sizes, strict=True)):
        raise BindingError(f"storage of {list(sizes)} does not fit {leaf}")
    _check_room(leaf, sizes)
    return np.zeros(sizes, np_dtype(leaf.dtype))


def _whole(leaf: Leaf, what: str, value: Any) -> int | None:  # noqa: ANN401 - what callers have
    if value is not None and not hasattr(value, "__index__"):
        raise BindingError(f"{leaf}: {what}={value!r} is no whole number")
    return None if value is None else operator.index(value)


def _sizes(leaf: Leaf, shape: Any) -> tuple[int, ...]:  # noqa: ANN401 - what callers have
    """The shape of storage as numbers."""
    given = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    if not isinstance(shape, Iterable) or not all(
            hasattr(n, "__index__") and operator.index(n) >= 0 for n in given):
        raise BindingError(f"{leaf}: shape={shape!r}, whole numbers from 0 are needed",
                           hint="shape=(1, 8, 0, 64)")
    return tuple([operator.index(n) for n in given])


def _check_room(leaf: Leaf, shape: Sequence[int]) -> None:
    """Refuse storage that memory does not suffice for."""
    size = math.prod(shape) * np_dtype(leaf.dtype).itemsize
    if size >= SMALL and size > (free := available()):
        raise BindingError(f"storage of {list(shape)} for {leaf} takes {size / 2**30:.4g} GiB, "
                           f"{free / 2**30:.4g} are available", hint="a smaller capacity or shape")


def chosen(leaf: Leaf, first: Array, axis: int | None, capacity: int | None) -> int | None:
    """The axis of rows: as given, or the only one of unknown size; checked with the capacity."""
    if axis is not None:
        if not -first.ndim <= axis < first.ndim:
            raise BindingError(f"{leaf} has no axis {axis}")
        axis %= first.ndim
    elif capacity is not None:
        free = [i for i, n in enumerate(leaf.shape or ()) if not isinstance(n, int)]
        if len(free) != 1:
            raise BindingError(f"which axis of {leaf} has the capacity?",
                               hint="resident(..., axis=..., capacity=...)")
        axis = free[0]
    if capacity is None or axis is None:
        return axis
    size = (leaf.shape or ())[axis]
    if isinstance(size, int) or capacity < first.shape[axis]:
        why = f"is always {size}" if isinstance(size, int) else f"starts with {first.shape[axis]}"
        raise BindingError(f"axis {axis} of {leaf} {why}: a capacity of {capacity} does not fit")
    return axis
