"""Elementwise steps of a script: on a GPU those that feed one another are one kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import mlx.core as mx
import numpy as np

from ...declare.scalar import Scalar, walk
from ...ir.graph import Value
from ...records import dataclass
from . import arrays
from .expressions import expressions
from .plan import Step
from .ready import MANY
from .spelling import Names, spell

Shape: TypeAlias = "tuple[int, ...]"
MOST = 12
"""Operands beyond which a step waits for no further one: MLX's kernels take about 24."""
LARGEST = 64
"""Primitives beyond which it does not: MLX's kernels hold about a dozen one after another."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """An elementwise step with what it reads: names, or steps that become part of it.

    `shapes` are those with which operands broadcast, `out` the shape of the results.
    """

    step: Step
    reads: Sequence[str | Part]
    shapes: Sequence[Shape]
    out: Shape
    turned: bool

    def names(self) -> dict[str, None]:
        """The names that it reads, each once."""
        found = dict[str, None]()
        for read in self.reads:
            found.update(read.names() if isinstance(read, Part) else {read: None})
        return found

    def count(self) -> int:
        """Primitives that it computes."""
        inner = sum([r.count() for r in self.reads if isinstance(r, Part)])
        return inner + sum(bool(s.args) for s in walk(*expressions(self.step.node)))

    def merged(self) -> bool:
        """Whether it holds other steps."""
        return any(isinstance(r, Part) for r in self.reads)


class Parts:
    """Steps that wait for their only reader, and their text."""

    def __init__(self, names: Names, steps: Sequence[Step], outputs: Sequence[Value], eager: bool
                 ) -> None:
        self._names, self._fuse = names, arrays.on_gpu() and not eager
        self._readers = dict[Value, list[Step | None]]()
        for step in steps:
            for v in dict.fromkeys(step.node.uses()):
                self._readers.setdefault(v, []).append(step)
        for v in outputs:
            self._readers.setdefault(v, []).append(None)
        self.waiting: dict[Value, Part] = {}

    def readers(self, v: Value) -> list[Step | None]:
        """The steps that read a value; None stands for the caller of the graph."""
        return self._readers.get(v, [])

    def turned(self, v: Value) -> bool:
        """Whether v waits to be made with its channels last."""
        return v in self.waiting and self.waiting[v].turned

    def take(self, v: Value, turned: bool) -> Part | None:
        """The step that makes v and waits for this reader, laid out as this one."""
        found = self.waiting.get(v)
        return None if found is None or found.turned != turned else self.waiting.pop(v)

    def waits(self, part: Part, shape: Callable[[Value], Shape]) -> bool:
        """Whether a step is better left to its reader, which computes as many elements."""
        made, *more = part.step.node.outputs
        readers = self.readers(made)
        if not self._fuse or more or len(readers) != 1 or len(part.names()) > MOST or (
                part.count() > LARGEST):
            return False
        reader = readers[0]
        return (reader is not None and reader.how == "native" and reader.inner.fixed
                and reader.op.kind == "elementwise" and reader.node.inputs.count(made) == 1
                and shape(reader.node.outputs[0]) == shape(made))

    def text(self, part: Part) -> tuple[list[str], list[str]]:
        """Statements, and the text of each result or of all in one.

        Nothing is compiled for arrays without elements: on CUDA such kernels ended the process.
        """
        lines, results = self._spelled(part)
        if not arrays.on_gpu() or 0 in part.out or part.count() < (2 if part.merged() else MANY):
            return lines, results
        given = ", ".join(part.names())
        out = results[0] if len(results) == 1 else f"[{', '.join(results)}]"
        body = "".join([f"    {line}\n" for line in [*lines, f"return {out}"]])
        space = dict(self._names.held)
        exec(f"def part({given}):\n{body}", space)  # the text is ours
        call = f"{self._names.of(mx.compile(space['part']))}({given})"  # type: ignore[arg-type]
        if len(results) == 1:
            return [], [call]
        made = [self._names.fresh("t") for _ in results]
        return [f"{', '.join(made)} = {call}"], made

    def _spelled(self, part: Part) -> tuple[list[str], list[str]]:
        lines, args = list[str](), list[str]()
        for read in part.reads:
            if isinstance(read, Part):
                more, (text,) = self._spelled(read)
                name = self._names.fresh("t")
                lines += [*more, f"{name} = {text}"]
                args.append(name)
            else:
                args.append(read)
        roots = expressions(part.step.node)
        more, results = spell(roots, args, self._names)
        return [*lines, *more], [self._full(part, r, t) for r, t in zip(
            roots, results, strict=True)]

    def _full(self, part: Part, root: Scalar, text: str) -> str:
        """A result in the common shape: it may have read some of the operands."""
        read = [part.shapes[s.value] for s in walk(root) if s.op == "var"]  # type: ignore[index]
        if np.broadcast_shapes(*read) == part.out:
            return text
        return f"{self._names.of(mx.broadcast_to)}({text}, {part.out})"
