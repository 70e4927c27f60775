"""A graph under one binding of sizes as Python text: nothing but calls, most of them MLX's own.

What can be known before a run is: shapes, layouts, attributes, constants, packed weights. A graph
that needs a run's values on the way has no script.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

import mlx.core as mx

from ...declare.arrays import Array, Encoded
from ...declare.evaluate import Binding
from ...ir.dims import evaluate as bind_size
from ...ir.graph import Graph, Node, Value
from ...records import dataclass
from .arrays import HELD, holds
from .fusing import Part, Parts
from .images import ALWAYS, KERNELS
from .layout import rank_of, spread
from .lowering import Fault, Form, Kernel, Pack, Untraceable, fault_of
from .plan import Leaves, Packed, Plans, Step
from .sites import SITES, TURNED, Place, Shape
from .spelling import Names

Body: TypeAlias = "Callable[[list[mx.array], list[mx.array], list[Form]], list[mx.array | Array]]"


class Unscripted(Exception):
    """Why a graph has no script."""


class ScriptCall:
    """What a kernel may ask of a script: checks alone."""

    __slots__ = ("_faults", "fixed", "node", "tracing")

    def __init__(self, node: Node, fixed: bool, faults: list[Fault]) -> None:
        self.node, self.fixed, self.tracing, self._faults = node, fixed, False, faults

    def fault(self, bad: mx.array, value: mx.array, text: Callable[[int], str]) -> None:
        """Fail the run where `bad` holds."""
        if bad.size:
            self._faults.append(fault_of(self.node, bad, value, text))

    def region(self, name: str, arrays: Sequence[mx.array]) -> list[mx.array]:  # noqa: ARG002
        """No script has regions."""
        raise Untraceable(f"{self.node.op} has a region")

    def read(self, x: mx.array) -> object:  # noqa: ARG002
        """No script reads values."""
        raise Untraceable(f"{self.node.op} needs a value that only a run gives")


class Script:
    """Text, compiled: outputs of inputs, parameters and packed parameters."""

    def __init__(self, text: str, names: Mapping[str, object], faults: list[Fault]) -> None:
        self.text, self._faults = text, faults
        space = dict(names)
        exec(compile(text, "<mlx script>", "exec"), space)  # the text is ours
        self._body = cast(Body, space["body"])

    def __call__(self, inputs: list[mx.array], plain: list[mx.array], packed: list[Form]
                 ) -> tuple[list[mx.array | Array | Encoded], list[Fault]]:
        """Outputs, not evaluated unless the script does so, and the checks of the run."""
        self._faults.clear()
        return cast("list[mx.array | Array | Encoded]", self._body(inputs, plain, packed)), list(
            self._faults)


@dataclass(frozen=True, slots=True)
class Known:
    """What a script may take for granted."""

    graph: Graph
    plans: Plans
    leaves: Leaves
    plain: Sequence[Value]
    packs: Sequence[Packed]
    made: Mapping[Value, Array]
    binding: Binding
    eager: bool


def write(known: Known) -> Script:
    """The script of a graph; raises `Unscripted` for one that has none."""
    writer = Writer(known)
    for step in known.plans.of(known.graph):
        writer.step(step)
    return writer.finish()


class Writer:
    """Writes the body, one step after another."""

    def __init__(self, known: Known) -> None:
        self.known, self.names = known, Names()
        self.faults: list[Fault] = []
        self.near: dict[Value, str] = {}
        self.last: dict[Value, str] = {}  # images with their channels last
        self._spread: dict[tuple[Value, int], str] = {}
        self.parts = Parts(self.names, known.plans.of(known.graph), known.graph.outputs,
                           known.eager)
        self.lines: list[str] = []
        for letter, values in (("x", known.graph.inputs), ("w", known.plain)):
            if wrong := [v for v in values if not holds(v.dtype)]:
                raise Unscripted(f"MLX has no arrays of {wrong[0].dtype}")
            self.near.update({v: f"{letter}{i}_" for i, v in enumerate(values)})
        self._packed = {key: f"p{i}_" for i, key in enumerate(known.packs)}
        for letter, source, many in (("x", "inputs", known.graph.inputs),
                                     ("w", "plain", known.plain), ("p", "packed", known.packs)):
            if many:
                named = ", ".join([f"{letter}{i}_" for i in range(len(many))])
                self.lines.append(f"{named}, = {source}")

    # Values

    def shape(self, v: Value) -> Shape:
        """The sizes of a value."""
        try:
            return tuple([bind_size(d, self.known.binding) for d in v.shape])
        except KeyError as e:
            raise Unscripted(f"the size {e} is made by a run") from None

    def device(self, v: Value) -> str:
        """A value, axes as the graph has them."""
        if v in self.near:
            return self.near[v]
        if v in self.last:
            n = v.type.rank
            turn = (0, n - 1, *range(1, n - 1))
            name = self.near[v] = self.names.fresh("v")
            self.lines.append(f"{name} = {self.names.of(mx.transpose)}({self.last[v]}, {turn})")
            return name
        return self.names.of(self._constant(v))

    def _constant(self, v: Value) -> mx.array:
        if (array := self.known.made.get(v)) is None:
            raise Unscripted(f"{v!r} is not known before a run")
        return self.known.leaves.device(array)

    def _turned_operand(self, v: Value, rank: int) -> str:
        """An operand of a step on images whose channels are last."""
        if v.type.rank == 0:
            return self.device(v)
        if v in self.last:
            return self.last[v]
        if (v, rank) not in self._spread:
            if v in self.known.made:
                found = spread(self._constant(v), rank)
                mx.eval(found)
                self._spread[v, rank] = self.names.of(found)
            else:
                name = self._spread[v, rank] = self.names.fresh("v")
                self.lines.append(f"{name} = {self.names.of(spread)}({self.device(v)}, {rank})")
        return self._spread[v, rank]

    def operand(self, step: Step, i: int, v: Value, turned: bool) -> str:
        """The text of an operand in the form that its kernel takes."""
        if (key := step.packed.get(i)) is None:
            return self._turned_operand(v, rank_of(step.node)) if turned else self.device(v)
        if key in self._packed:
            return self._packed[key]
        pack = cast(Pack, key[1])
        if v in self.known.made:
            form = pack(self._constant(v))
            mx.eval(form)
            return self.names.of(form)
        return f"{self.names.of(pack)}({self.device(v)})"

    def operands(self, step: Step, turned: bool) -> list[str]:
        """All operands; joined ones are in the first."""
        form = self._packed.get(step.joint) if step.joint else None
        return [self.operand(step, i, v, turned) if form is None or i not in step.joined else
                form if i == step.joined[0] else "None" for i, v in enumerate(step.node.inputs)]

    # Steps

    def step(self, step: Step) -> None:
        """Write one step."""
        if step.how == "leaf":
            if any(v not in self.known.made for v in step.node.outputs):
                raise Unscripted(f"{step.node.op} follows from sizes that a run makes")
            return
        low = step.lowering
        if low is None or low.reads or step.node.regions or step.inner.makes:
            raise Unscripted(f"{step.node.op} needs values of a run")
        elementwise = step.op.kind == "elementwise"
        if not (low.empty or elementwise or step.op.kind == "view") and any(
                0 in self.shape(v) for v in step.node.inputs):
            raise Unscripted(f"{step.node.op} has an operand without elements")
        turned = step.images and self._turned(step)
        if elementwise and step.inner.fixed:
            self._elementwise(step, turned)
        elif turned or not self._split(step):
            self._call(step, turned)

    def _turned(self, step: Step) -> bool:
        """Whether the step runs on images with their channels last."""
        rank = rank_of(step.node)
        return step.node.op in ALWAYS or any(
            v.type.rank == rank and (v in self.last or self.parts.turned(v))
            for v in step.node.inputs)

    def laid(self, v: Value, turned: bool) -> Shape:
        """The sizes of a value as its array lies."""
        shape = self.shape(v)
        return (shape[0], *shape[2:], shape[1]) if turned else shape

    def _elementwise(self, step: Step, turned: bool) -> None:
        rank, reads = rank_of(step.node), list[str | Part]()
        for i, v in enumerate(step.node.inputs):
            waiting = self.parts.take(v, turned)
            if waiting is None and v in self.parts.waiting:
                self.flush(v)
            reads.append(waiting or self.operand(step, i, v, turned))
        shapes = [self._reach(v, rank if turned else 0) for v in step.node.inputs]
        part = Part(step, reads, shapes, self.laid(step.node.outputs[0], turned), turned)
        if self.parts.waits(part, self.shape):
            self.parts.waiting[step.node.outputs[0]] = part
        else:
            self._emit(part)

    def _reach(self, v: Value, rank: int) -> Shape:
        """The shape with which an operand broadcasts."""
        shape = self.shape(v)
        if not rank or not shape:
            return shape
        full = (*[1] * (rank - len(shape)), *shape)
        return (full[0], *full[2:], full[1])

    def flush(self, v: Value) -> None:
        """Write a step that waited for its reader."""
        self._emit(self.parts.waiting.pop(v))

    def _emit(self, part: Part) -> None:
        lines, results = self.parts.text(part)
        self.lines += lines
        self.results(part.step, results, part.turned)

    def results(self, step: Step, text: Sequence[str] | str, turned: bool) -> None:
        """Name what a step makes; `text` is one text for each output, or makes all of them."""
        made = [self.names.fresh("v") for _ in step.node.outputs]
        if isinstance(text, str):
            self.lines.append(f"{', '.join(made)} = {text}")
        else:
            self.lines += [f"{name} = {t}" for name, t in zip(made, text, strict=True)]
        (self.last if turned else self.near).update(zip(step.node.outputs, made, strict=True))
        if self.known.eager:
            self._settle(step, made)

    def _settle(self, step: Step, made: Sequence[str]) -> None:
        """Forget what nothing reads any more and evaluate; their readers evaluate views."""
        places = (self.near, self.last, self._spread)
        dead = {*step.dead}
        for place in places:
            for key in [k for k in place if (k[0] if isinstance(k, tuple) else k) in dead]:
                if (name := place.pop(key)).startswith("v") and name not in made:  # type: ignore[arg-type]
                    self.lines.append(f"del {name}")
        if step.op.kind != "view":
            fn = self.names.of(self.settle if step.lowering and step.lowering.bare is None and
                               step.op.kind != "elementwise" else mx.eval)
            self.lines.append(f"{fn}({', '.join(made)})")

    def settle(self, *arrays: mx.array) -> None:
        """Evaluate arrays and the checks so far."""
        faults = list(self.faults)
        self.faults.clear()
        mx.eval(*arrays, *[f.state for f in faults])
        for f in faults:
            f.check()

    def _split(self, step: Step) -> bool:
        """Whether the step is a part of a value that was split in one call."""
        if step.node.outputs[0] in self.near:
            return True
        whole, axis = step.node.inputs[0], step.node.attrs.get("axis")
        readers = self.parts.readers(whole)
        if step.node.op != "narrow" or self.known.eager or len(readers) < 2 or any(
                r is None or r.node.op != "narrow" or r.node.attrs["axis"] != axis
                for r in readers):
            return False
        found = sorted([(*_stretch(r, self.known.binding), r) for r in readers if r],
                       key=lambda x: x[0])
        ends = [start + length for start, length, _ in found]
        if [start for start, *_ in found] != [0, *ends[:-1]] or ends[-1] != self.shape(whole)[
                cast(int, axis)]:
            return False
        made = [self.names.fresh("v") for _ in found]
        self.near.update({r.node.outputs[0]: name for (*_, r), name in zip(
            found, made, strict=True)})
        call = f"{self.names.of(mx.split)}({self.device(whole)}, {ends[:-1]}, {axis})"
        self.lines.append(f"{', '.join(made)} = {call}")
        return True

    def _call(self, step: Step, turned: bool) -> None:
        node, given = step.node, self.operands(step, turned)
        attrs = step.attrs(self.known.binding)
        site = SITES.get(node.op) if not turned or node.op in TURNED else None
        shapes = tuple([self.laid(v, turned and i == 0) for i, v in enumerate(node.inputs)])
        found = site and site(Place(node, attrs, shapes, self.laid(node.outputs[0], turned),
                                    HELD[node.inputs[0].dtype], turned))
        of = self.names.of
        if found:
            more = [*map(of, found.args), *[f"{k}={of(x)}" for k, x in found.named.items()]]
            self.results(step, [f"{of(found.fn)}({', '.join([*given, *more])})"], turned)
        elif step.ready is not None and step.ready.whole is not None:
            text = f"{of(step.ready.whole)}({', '.join(given)})"
            self.results(step, text if len(node.outputs) > 1 else [f"{text}[0]"], turned)
        else:
            self._kernel(step, given, attrs, turned)

    def _kernel(self, step: Step, given: Sequence[str], attrs: Mapping[str, object], turned: bool
                ) -> None:
        """Call a kernel as the walk does."""
        node, low, of = step.node, step.lowering, self.names.of
        assert low is not None
        kernel: Kernel = KERNELS.get(node.op, low.kernel) if turned else low.kernel
        call = [of(ScriptCall(node, step.inner.fixed, self.faults))]
        if low.bare is not None and not turned:
            kernel, call = low.bare, []
        grouped = [f"[{', '.join(cast('list[str]', g))}]" if isinstance(g, list) else cast(str, g)
                   for g in step.op.group(given[:step.split])]
        named = [f"{k}={x}" for k, x in zip(node.keys, given[step.split:], strict=True)]
        named += [f"{k}={of(x)}" for k, x in attrs.items()]
        text = f"{of(kernel)}({', '.join([*call, *grouped, *named])})"
        one = [f"{of(first_of)}({text})"]
        self.results(step, text if len(node.outputs) > 1 else one, turned)

    def finish(self) -> Script:
        """The script."""
        known, out = self.known, list[str]()
        for v in known.graph.outputs:
            if v in self.parts.waiting:
                self.flush(v)
            made = v in self.near or v in self.last
            out.append(self.device(v) if made else self.names.of(self._host(v)))
        lines = [*self.lines, f"return [{', '.join(out)}]"]
        body = "".join(f"    {line}\n" for line in lines)
        return Script(f"def body(inputs, plain, packed):\n{body}", self.names.held, self.faults)

    def _host(self, v: Value) -> Array:
        if v not in self.known.made:
            raise Unscripted(f"{v!r} is a parameter and an output")
        return self.known.made[v]


def first_of(out: mx.array | Sequence[mx.array]) -> mx.array:
    """The one result of a kernel."""
    return out if isinstance(out, mx.array) else out[0]


def _stretch(step: Step, binding: Binding) -> tuple[int, int]:
    """Start and length of a stretch."""
    attrs = step.attrs(binding)
    return cast(int, attrs["start"]), cast(int, attrs["length"])
