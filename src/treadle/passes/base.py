"""What a pass is, what it is given, and how it reports.

A pass is a frozen dataclass whose fields are its options. It takes valid IR and gives valid IR. It
never changes the graph it is given: it returns another one, or the same object when there was
nothing to do. Names of inputs, parameters and outputs and the source locations survive.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol, TypeAlias

from ..declare.arrays import Array, Encoded
from ..ir.graph import Graph, Node
from ..ir.types import Shape
from ..records import dataclass, field, fields

Data: TypeAlias = "Array | Encoded"


class Legaliser(Protocol):
    """What a backend tells the passes."""

    def declines(self, node: Node) -> str:
        """Why the backend has no lowering for `node`; empty when it has one."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the report: what a pass did so often, or what stopped it."""

    by: str
    what: str
    count: int
    stopped: bool = False

    def __str__(self) -> str:
        return f"{self.by}: {'not done: ' if self.stopped else ''}{self.what} x{self.count}"


Look: TypeAlias = "tuple[str, str, tuple[Shape, ...], tuple[Shape, ...]]"


def look(node: Node) -> Look:
    """What tells a node from others while passes copy it: operator, source, shapes."""
    return (node.op, node.loc, tuple([v.type.shape for v in node.outputs]),
            tuple([v.type.shape for v in node.inputs]))


@dataclass(slots=True)
class Context:
    """What passes share: the data of frozen parameters, the backend, the report.

    A parameter named in `params` is frozen: passes may fold it, drop it and add others. The
    mapping is the context's own; after the passes it holds what the graph's parameters are.
    """

    params: dict[str, Data] = field(default_factory=dict[str, Data])
    legaliser: Legaliser | None = None
    origins: dict[Look, str] = field(default_factory=dict["Look", str])
    """The pass after which nodes of a look were first seen; "" for those of the loaded graph."""
    _counts: dict[tuple[str, str, bool], int] = field(
        default_factory=dict[tuple[str, str, bool], int])

    def saw(self, graph: Graph, by: str = "") -> None:
        """Remember which looks of nodes a pass brought, those inside regions included."""
        for node in graph.walk():
            self.origins.setdefault(look(node), by)

    def did(self, by: Pass, what: str, count: int = 1) -> None:
        """Report `count` changes."""
        if count:
            self._counts[by.name, what, False] = self._counts.get((by.name, what, False), 0) + count

    def stopped(self, by: Pass, why: str, count: int = 1) -> None:
        """Report what a pass could not do; a later round that meets it again adds nothing."""
        key = (by.name, why, True)
        self._counts[key] = max(self._counts.get(key, 0), count)

    def counts(self, did: Mapping[str, int], stopped: Mapping[str, int], by: Pass) -> None:
        """Report two tables at once."""
        for what, n in did.items():
            self.did(by, what, n)
        for why, n in stopped.items():
            self.stopped(by, why, n)

    @property
    def report(self) -> list[Entry]:
        """The report so far, in the order in which things first happened."""
        return [Entry(by, what, n, stopped) for (by, what, stopped), n in self._counts.items()]


@dataclass(frozen=True, slots=True)
class Pass:
    """Base of every pass; `name` is the name of its file."""

    name: ClassVar[str] = ""

    def run(self, graph: Graph, ctx: Context) -> Graph:
        """The improved graph, or `graph` itself."""
        raise NotImplementedError

    def options(self) -> dict[str, object]:
        """The options and their values."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def unique_name(graph: Graph, wanted: str, taken: Mapping[str, object]) -> str:
    """`wanted`, or it with a number, unlike every input and parameter and every name in `taken`."""
    names = {v.name for v in (*graph.inputs, *graph.params)}
    name, n = wanted, 1
    while name in names or name in taken:
        n += 1
        name = f"{wanted}_{n}"
    return name


def at(node: Node) -> str:
    """A node for the report: operator, operands and source."""
    where = f" at {node.loc}" if node.loc else ""
    return f"{node.op}({', '.join([str(v.type) for v in node.inputs])}){where}"
