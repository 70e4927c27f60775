"""Inputs whose storage stays on the device between runs, and outputs that are fed back to them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ..backends.base import Buffer, Grant, State, Storage
from ..declare.arrays import Array
from ..errors import BindingError, RunError
from ..records import dataclass
from .line import Line
from .results import fresh
from .signature import Leaf, Signature, as_array

T = TypeVar("T")
END = "end"
"""The position after the rows in use."""


@dataclass(frozen=True, slots=True)
class Feed:
    """An output that is written back after each run: whole (`at` is None), or rows at a position.

    `at` is a number, `END`, or the name of the input that holds the number.
    """

    output: int
    at: int | str | None


class Resident:
    """Storage on the device for one input. `Executable.resident` makes it.

    It holds zeros at first. With a `capacity` only the first `length` rows along `axis` are in
    use: they are what the model sees. Every method waits for the runs submitted before. After
    `Executable.release` every method is an error.
    """

    released = False

    def __init__(self, signature: Signature, leaf: Leaf, storage: Storage, line: Line,
                 changed: Callable[[], None], first: Array, axis: int | None,
                 capacity: int | None) -> None:
        self.leaf, self.axis, self.capacity = leaf, axis, capacity
        self.grant = Grant()
        self._signature, self._storage, self._line = signature, storage, line
        self._changed = changed
        self.rule: Feed | None = None
        self.lost = False
        self._length = first.shape[axis] if capacity is not None and axis is not None else 0
        self.buffer: Buffer = storage.put(self._room(first))

    def _room(self, first: Array) -> Array:
        if self.capacity is None or self.axis is None:
            return first
        shape = list(first.shape)
        shape[self.axis] = self.capacity
        room = np.zeros(shape, first.dtype)
        room[(slice(None),) * self.axis + (slice(first.shape[self.axis]),)] = first
        return room

    def __repr__(self) -> str:
        rule = self.rule
        fed = "" if rule is None else f", fed by {self._signature.outputs[rule.output].name}" + (
            "" if rule.at is None else f" at {rule.at}")
        room = "" if self.capacity is None else f" of {self.capacity} along axis {self.axis}"
        return f"<Resident {self.leaf.name}: {list(self.active().shape)}{room}{fed}>"

    # What its owner calls, one run at a time

    @property
    def state(self) -> State:
        """What the device is told about it; its input is numbered by the owner."""
        rule = self.rule
        return State(-1, self.axis, self.capacity, -1 if rule is None else rule.output,
                     rule is None or rule.at is None)

    def active(self) -> Buffer:
        """The rows in use."""
        if self.capacity is None or self.axis is None:
            return self.buffer
        return self._storage.rows(self.buffer, self.axis, self._length)

    def contents(self) -> Array:
        """A copy of the rows in use on the host."""
        return self._storage.get(self.active())

    def given(self) -> Buffer:
        """What the program takes."""
        if self.lost:
            raise RunError(f"the contents of {self.leaf.name} are lost: a run failed that wrote "
                           "in place", hint=f"write() {self.leaf.name} again")
        return self.buffer if self.grant.strided else self.active()

    def _start(self, rule: Feed, numbers: Mapping[str, Array]) -> int:
        if rule.at is None:
            return 0
        if isinstance(rule.at, int):
            return rule.at
        if rule.at == END:
            return self._length
        given = numbers.get(rule.at)
        if given is None or np.size(given) != 1:
            why = "it is resident itself" if given is None else f"it has {np.size(given)} elements"
            raise RunError(f"the input '{rule.at}' gives no position in {self.leaf.name}: {why}",
                           hint="one whole number says where")
        return int(np.asarray(given).item())

    def span(self, rule: Feed, shape: Sequence[int], numbers: Mapping[str, Array]
             ) -> tuple[int, int]:
        """First row and end of what an output of a shape replaces; raises if it does not fit."""
        name, axis = self._signature.outputs[rule.output].name, self.axis
        have = tuple(self.buffer.shape)
        if axis is None:
            if tuple(shape) == have or self.capacity is None and rule.at is None and (
                    len(shape) == len(have)):
                return 0, 0
            raise RunError(f"{name} has shape {list(shape)}, it cannot replace {self.leaf.name} "
                           f"of {list(have)}")
        start = self._start(rule, numbers)
        end = start + (shape[axis] if len(shape) == len(have) else 0)
        fits = len(shape) == len(have) and all(
            a == b for i, (a, b) in enumerate(zip(shape, have, strict=True)) if i != axis)
        limit = self._length if self.capacity is not None else have[axis]
        if not fits or not 0 <= start <= limit or end > have[axis]:
            raise RunError(
                f"{name} of shape {list(shape)} does not fit {self.leaf.name} at row {start} of "
                f"axis {axis}: its storage is {list(have)}, {limit} rows are in use",
                hint="a larger capacity, or a shorter length")
        return start, end

    def take(self, rule: Feed, value: Buffer | None, span: tuple[int, int],
             taken: set[int]) -> None:
        """Write an output back; None is one that is in place already."""
        start, end = span
        if value is not None and self.axis is not None:
            self.buffer = self._storage.write(self.buffer, self.axis, start, value)
        elif value is not None:
            self.buffer = fresh(value, taken) if isinstance(value, np.ndarray) else value
        if self.capacity is not None:
            self._length = end if rule.at is None else max(self._length, end)

    # What users call

    def _use(self, job: Callable[[], T]) -> T:
        def use() -> T:
            if self.released:
                raise BindingError(f"{self.leaf.name} was released, its handle holds nothing",
                                   hint="exe.resident(...) gives a new one")
            return job()

        return self._line.run(use)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the model sees."""
        return self._use(lambda: tuple(self.active().shape))

    @property
    def length(self) -> int:
        """Rows in use along the axis. Setting it forgets rows, or shows rows written before."""
        if self.capacity is None:
            raise BindingError(f"{self.leaf.name} has no capacity, so all its rows are in use",
                               hint="resident(..., capacity=...)")
        return self._use(lambda: self._length)

    @length.setter
    def length(self, rows: int) -> None:
        self.length  # noqa: B018 - raises without a capacity
        if not hasattr(rows, "__index__") or not 0 <= operator.index(rows) <= (self.capacity or 0):
            raise BindingError(f"{self.leaf.name} has room for {self.capacity} rows, not {rows!r}",
                               hint=f"a whole number from 0 to {self.capacity}")
        self._use(lambda: setattr(self, "_length", operator.index(rows)))

    def read(self) -> Array:
        """A copy of the rows in use on the host."""
        return self._use(self.contents)

    def write(self, value: Any) -> None:  # noqa: ANN401 - arrays of any library
        """Replace the contents; the length becomes that of `value`."""
        array = as_array(self.leaf, value)
        check(self.leaf, array, self.buffer.shape, self.axis, self.capacity)

        def write() -> None:
            self.buffer = self._storage.put(self._room(array))
            self.lost = False
            if self.capacity is not None and self.axis is not None:
                self._length = array.shape[self.axis]

        self._use(write)

    def feed(self, output: str | None, at: int | str | None = None) -> Resident:
        """Write an output back after every run from now on; None ends it. Returns the handle.

        Without `at` the output becomes the contents: with a capacity its rows are the rows in use.
        With `at`, its rows replace or follow those at a position: a number, the name of an input
        that holds it, or `"end"`. An output that is fed back is no result of the run.
        """
        rule = None if output is None else self._rule(output, at)

        def change() -> None:
            self.rule = rule
            self._changed()

        self._use(change)
        return self

    def _rule(self, output: str, at: int | str | None) -> Feed:
        names = [leaf.name for leaf in self._signature.outputs]
        if output not in names:
            raise BindingError(f"there is no output '{output}'",
                               hint=f"the outputs are {', '.join(names)}")
        leaf = self._signature.outputs[names.index(output)]
        if leaf.dtype is not self.leaf.dtype:
            raise BindingError(f"{leaf} cannot be fed to {self.leaf}: other dtype")
        inputs = [leaf.name for leaf in self._signature.inputs
                  if leaf.dtype.sort in ("int", "uint") and leaf.name != self.leaf.name]
        if not isinstance(at, str | None):
            at = _row(self.leaf, at)
        elif at not in (None, END, *inputs):
            raise BindingError(f"there is no input '{at}' that holds a position",
                               hint=", or ".join([f"a number, \"{END}\"", *inputs]))
        if at is not None and self.axis is None:
            raise BindingError(f"{self.leaf.name} has no axis of rows",
                               hint="resident(..., axis=...)")
        if at == END and self.capacity is None:
            raise BindingError(f"{self.leaf.name} has no capacity, so it has no end to append at",
                               hint="resident(..., capacity=...)")
        return Feed(names.index(output), at)


def _row(leaf: Leaf, at: int) -> int:
    """The number of a row."""
    if not hasattr(at, "__index__") or operator.index(at) < 0:
        raise BindingError(f"{leaf.name} has no row {at!r}",
                           hint=f"a whole number from 0, \"{END}\", or the name of an input")
    return operator.index(at)


def check(leaf: Leaf, array: Array, have: Sequence[int], axis: int | None, capacity: int | None
          ) -> None:
    """Raise unless an array fits the storage."""
    want = [None if i == axis and capacity is not None else n for i, n in enumerate(have)]
    fits = array.ndim == len(want) and all(
        w is None or n == w for n, w in zip(array.shape, want, strict=True))
    if not fits or (capacity is not None and array.shape[axis or 0] > capacity):
        raise BindingError(f"{leaf.name} of {list(array.shape)} does not fit storage of "
                           f"{list(have)}")
