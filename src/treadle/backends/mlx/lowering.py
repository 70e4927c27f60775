"""What a lowering is: a kernel on MLX arrays, and when it declines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

import mlx.core as mx

from ...declare.arrays import Array
from ...errors import RunError
from ...ir.graph import Node
from ...records import dataclass, field

Arrays: TypeAlias = "Sequence[mx.array]"
Kernel: TypeAlias = Callable[..., "mx.array | Sequence[mx.array]"]
"""Called as `kernel(call, *operands, **optional operands, **attributes)`, like a body."""
Pack: TypeAlias = Callable[[mx.array], mx.array]
Form: TypeAlias = "mx.array | tuple[mx.array, ...]"
"""What a packed operand is to its kernel."""


class Join(Protocol):
    """How operands known before a run become one of another form; equal joins give equal forms."""

    def join(self, arrays: Sequence[Array]) -> tuple[mx.array, ...]:
        """The form of these operands."""
        ...

    def __hash__(self) -> int:
        """Joins are keys."""
        ...


class Untraceable(Exception):
    """A step needs values of arrays that a trace does not have; the message says which."""


class Call(Protocol):
    """What a kernel may ask of the run that calls it."""

    node: Node
    tracing: bool
    fixed: bool
    """Whether no attribute depends on sizes."""

    def fault(self, bad: mx.array, value: mx.array, text: Callable[[int], str]) -> None:
        """Fail the run if any of `bad` holds, with a text about the first `value` that does."""
        ...

    def region(self, name: str, arrays: Arrays, when: mx.array | None = None) -> list[mx.array]:
        """The outputs of a region on arrays; its checks count where `when` holds."""
        ...

    def read(self, x: mx.array) -> Any:  # noqa: ANN401 - a Python number
        """The one element of x; raises `Untraceable` in a trace."""
        ...


def never(node: Node) -> str:
    """No node is refused."""
    return ""


@dataclass(frozen=True, slots=True)
class Lowering:
    """A kernel; `refuse` gives the reason for nodes it cannot honour.

    Operands named by `pack` arrive in the form that it makes, which parameters take once. `join`
    names several that are parameters or constants: the first arrives as their common form, the
    others as None. `reads` says that the kernel needs the values of arrays (`Call.read`); `empty`
    that it takes operands without elements. `bare` is the kernel of a lowering that asks nothing of
    the run, called without a `call`.
    """

    kernel: Kernel
    refuse: Callable[[Node], str] = never
    pack: Mapping[int, Pack] = field(default_factory=dict[int, Pack])
    join: Callable[[Node], tuple[tuple[int, ...], Join] | None] | None = None
    reads: bool = False
    empty: bool = False
    note: str = ""
    bare: Kernel | None = None


def plain(kernel: Kernel, refuse: Callable[[Node], str] = never, *, empty: bool = False,
          pack: Mapping[int, Pack] | None = None) -> Lowering:
    """A lowering whose kernel asks nothing of the run."""
    def call(_: Call, /, *args: object, **kw: object) -> mx.array | Sequence[mx.array]:
        return kernel(*args, **kw)

    return Lowering(call, refuse, pack or {}, empty=empty, bare=kernel)


def where(node: Node) -> str:
    """A node for an error: operator, operands and source."""
    shown = ", ".join(str(v.type) for v in node.inputs)
    return f"{node.op}({shown})" + (f" at {node.loc}" if node.loc else "")


@dataclass(frozen=True, slots=True)
class Fault:
    """A check that an evaluation decides: `state` holds whether it failed and the value."""

    node: Node
    state: mx.array
    text: Callable[[int], str]

    def only(self, when: mx.array) -> Fault:
        """The check where `when` holds, a bool."""
        return Fault(self.node, self.state * when.astype(mx.int64), self.text)

    def check(self) -> None:
        """Raise for a check that failed."""
        failed, value = cast("list[int]", self.state.tolist())
        if failed:
            raise RunError(f"{where(self.node)}: {self.text(value)}")


def fault_of(node: Node, bad: mx.array, value: mx.array, text: Callable[[int], str]) -> Fault:
    """A check of every element of `bad`; `value` has its shape."""
    flat = mx.reshape(bad, (-1,))
    at = mx.argmax(flat.astype(mx.int32))
    found = mx.take(mx.reshape(mx.broadcast_to(value, bad.shape), (-1,)), at)
    state = mx.stack([mx.any(flat).astype(mx.int64), found.astype(mx.int64)])
    return Fault(node, state, text)
