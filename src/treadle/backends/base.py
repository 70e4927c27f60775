"""What every device offers: availability, claims with reasons, and programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from ..declare.arrays import Array, Encoded
from ..declare.evaluate import Binding, Watch
from ..ir.graph import Graph, Node
from ..records import dataclass

Data: TypeAlias = "Array | Encoded"
"""What a parameter holds."""
Buffer: TypeAlias = Any
"""An array of a device, with `shape`, `ndim` and `dtype`; NumPy's where a device has no own."""
How = Literal["native", "decomposed", "host", "unsupported"]


@dataclass(frozen=True, slots=True)
class Claim:
    """How a device runs a node, and why not better."""

    how: How
    reason: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """An input whose storage stays on the device, and the output that is written back to it.

    `capacity` is the storage's size along `axis` where only a part of it is in use: then the input
    is the first rows of the storage. `output` counts outputs; -1 means none. The output replaces
    the input whole if `whole`, else some of its rows.
    """

    input: int
    axis: int | None = None
    capacity: int | None = None
    output: int = -1
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Grant:
    """What a program does for a state, and why not more.

    `strided`: it takes the whole storage and reads the rows in use where they lie. `in_place`: its
    kernels write the output into the storage, so that it must be written afresh after an error.
    """

    strided: bool = False
    in_place: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """What a program knows of a node: its kernels by name, where its first output lies.

    `host` is why the host runs it after all.
    """

    kernel: str = ""
    slot: str = ""
    host: str = ""


class Call(Protocol):
    """A way to run row-major inputs of known shapes."""

    def __call__(self, inputs: Sequence[Array], out: Sequence[Array | None] = (), /
                 ) -> list[Array] | None:
        """Outputs, fresh or in `out`, which has row-major storage of its dtype or None for each.

        None if `out` does not serve; nothing has been written then.
        """
        ...


class Storage(Protocol):
    """A device's own arrays."""

    def put(self, array: Array) -> Buffer:
        """A copy on the device."""
        ...

    def get(self, buffer: Buffer) -> Array:
        """A copy on the host, row-major."""
        ...

    def rows(self, buffer: Buffer, axis: int, count: int) -> Buffer:
        """The first `count` rows along an axis."""
        ...

    def write(self, buffer: Buffer, axis: int, start: int, rows: Buffer) -> Buffer:
        """The buffer with `rows` at `start` along an axis; it may be the same buffer, changed."""
        ...


class Program(Protocol):
    """A compiled graph."""

    graph: Graph
    storage: Storage
    params: Mapping[str, Data]

    def run(self, inputs: Sequence[Buffer], binding: Binding, watch: Watch | None = None,
            kept: Collection[int] = ()) -> Sequence[Buffer]:
        """Outputs for inputs in the graph's order; `binding` has every symbol.

        Inputs are NumPy arrays or the device's own. Outputs are NumPy arrays, but those whose
        numbers are `kept` stay on the device; None stands for one that is where its state wants
        it.
        """
        ...

    def direct(self, binding: Binding) -> Call | None:
        """A quicker way to run under one binding without watching, or None."""
        ...

    def set_param(self, name: str, array: Data) -> None:
        """Replace a parameter between runs."""
        ...

    def clone(self) -> Program:
        """A program that shares code and parameters, and nothing that a run changes."""
        ...

    def with_states(self, states: Sequence[State]) -> tuple[Program, Sequence[Grant]]:
        """The program for these states, and what it grants each of them."""
        ...


class Backend(Protocol):
    """A device."""

    name: str

    def describe(self) -> str:
        """What hardware or library stands behind it here, for `treadle devices`."""
        ...

    def unavailable(self) -> str:
        """Why it cannot run here, or an empty string."""
        ...

    def claim(self, node: Node) -> Claim:
        """How a node would run."""
        ...

    def declines(self, node: Node) -> str:
        """Why the passes should open a composite, or an empty string to keep it whole."""
        ...

    def compile(self, graph: Graph, params: Mapping[str, Data]) -> Program:
        """A program for a graph whose parameters hold `params`."""
        ...


class HostStorage:
    """NumPy arrays as a device's storage."""

    def put(self, array: Array) -> Array:
        """A copy of its own."""
        return np.array(array, order="C", copy=True)

    def get(self, buffer: Array) -> Array:
        """A copy of its own."""
        return np.array(buffer, order="C", copy=True)

    def rows(self, buffer: Array, axis: int, count: int) -> Array:
        """A view."""
        return buffer[(slice(None),) * axis + (slice(count),)]

    def write(self, buffer: Array, axis: int, start: int, rows: Array) -> Array:
        """The same buffer, changed."""
        stop = start + rows.shape[axis]
        buffer[(slice(None),) * axis + (slice(start, stop),)] = rows
        return buffer
