"""What every device offers: availability, claims with reasons, and programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from ..declare.arrays import Array, Encoded
from ..declare.evaluate import Binding, Watch
from ..ir.graph import Graph, Node

Data: TypeAlias = "Array | Encoded"
"""What a parameter holds."""
How = Literal["native", "decomposed", "host", "unsupported"]


@dataclass(frozen=True, slots=True)
class Claim:
    """How a device runs a node, and why not better."""

    how: How
    reason: str = ""


Call: TypeAlias = Callable[[Sequence[Array]], list[Array]]
"""Row-major inputs of known shapes to fresh outputs."""


class Program(Protocol):
    """A compiled graph."""

    graph: Graph

    def run(self, inputs: Sequence[Array], binding: Binding, watch: Watch | None = None
            ) -> Sequence[Array]:
        """Outputs for arrays in the order of the graph's inputs; `binding` has every symbol."""
        ...

    def direct(self, binding: Binding) -> Call | None:
        """A quicker way to run under one binding without watching, or None."""
        ...

    def set_param(self, name: str, array: Array) -> None:
        """Replace a parameter between runs."""
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
