"""From a graph to stages of steps: views are followed, equal kernels are emitted once.

A stage ends where a step makes sizes that only its result tells; within one, every size is known
from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

from ...codegen.llvm.cache import default_cache
from ...codegen.llvm.jit import Program, build_all
from ...codegen.llvm.kernel import addresses, export
from ...codegen.llvm.processors import default_threads
from ...codegen.llvm.scalars import holds
from ...codegen.llvm.target import host
from ...codegen.llvm.text import Module
from ...declare.evaluate import Step as HostBody
from ...errors import Declined
from ...ir.dims import Size
from ...ir.graph import Graph, Node, Value
from ...ir.types import axis_of, count
from ...memory.views import View, certain, follow, whole
from ...ops.library import REGISTRY
from ...passes.base import Legaliser
from ...records import dataclass, field
from .claims import is_leaf, is_view, lower, writes_anywhere
from .lowered import Lowered, kernel_name
from .pointwise import copy
from .pointwise import part as part_of


@dataclass(frozen=True, eq=False)
class NativeStep:
    """A kernel call; `kernel` is its number in the program's table."""

    node: Node
    lowered: Lowered
    kernel: int

    def calls(self) -> Sequence[NativeStep]:
        """The kernel calls behind the step, each once."""
        return (self,)

    def flags(self) -> Sequence[View]:
        """What its guards look at."""
        return ()


@dataclass(frozen=True, eq=False)
class GuardStep:
    """The next `steps` steps run only where a bool of one element is `value`.

    `nodes`, `leaves` and `checks` are theirs, as a stage has them. Sizes that these do not admit
    are an error only where the steps would run: then `refuse` runs instead, and fails.
    """

    node: Node
    flag: View
    value: bool
    steps: int
    nodes: Sequence[Node] = ()
    leaves: Sequence[Node] = ()
    checks: Sequence[Node] = ()
    refuse: NativeStep | None = None

    def calls(self) -> Sequence[NativeStep]:
        """The kernel calls behind the step, each once."""
        return ()

    def flags(self) -> Sequence[View]:
        """What it looks at."""
        return (self.flag,)


@dataclass(frozen=True, eq=False)
class RepeatStep:
    """A body of kernel calls that runs `count` times; the turn is the size `turn` in its words.

    What it carries moves between two sets of buffers: `bodies[p]` reads set p and writes the other,
    `start[p]` fills set p. The last turn writes set 0.
    """

    node: Node
    start: tuple[Sequence[NativeStep], Sequence[NativeStep]]
    bodies: tuple[Sequence[NativeStep | GuardStep], Sequence[NativeStep | GuardStep]]
    count: Size
    turn: str

    def calls(self) -> Sequence[NativeStep]:
        """The kernel calls behind the step, each once."""
        return [c for part in (*self.start, *self.bodies) for step in part for c in step.calls()]

    def flags(self) -> Sequence[View]:
        """What the guards in its body look at."""
        return [flag for body in self.bodies for step in body for flag in step.flags()]


@dataclass(frozen=True, eq=False)
class HostStep:
    """A node that runs its NumPy body on views of its operands, and why."""

    node: Node
    body: HostBody
    views: Mapping[Value, View]
    reason: str


PARTS = 4
"""Modules that the kernels of a graph are compiled in, some at the same time."""
SAFE = frozenset({"dequantize_affine"})
"""Operators, beside elementwise ones, that no values make fail."""
PREPARED = 1 << 28
"""Most bytes of a result that is kept because parameters alone decide it."""
AnyNative: TypeAlias = "NativeStep | GuardStep | RepeatStep"
AnyStep: TypeAlias = "AnyNative | HostStep"


@dataclass(eq=False)
class Stage:
    """Steps whose sizes are known together. `leaves` are computed once for each binding.

    `checks` are views whose sizes must be verified for each binding. Steps `inside` a branch belong
    to a node of the graph.
    """

    steps: list[AnyStep] = field(default_factory=list[AnyStep])
    leaves: list[Node] = field(default_factory=list[Node])
    checks: list[Node] = field(default_factory=list[Node])
    views: list[Node] = field(default_factory=list[Node])
    inside: dict[AnyStep, Node] = field(default_factory=dict[AnyStep, Node])


@dataclass(eq=False)
class Assembled:
    """A graph as stages, with the views of its values and the code of its kernels."""

    graph: Graph
    stages: list[Stage]
    views: Mapping[Value, View]
    programs: Sequence[Program]
    """What holds the code."""
    addresses: Sequence[int]
    native: frozenset[Value]
    """Bases that kernels write."""
    prepared: Sequence[Node]
    """Nodes that follow from parameters alone: computed once, and again when one is set."""
    emitted: Sequence[Lowered] = ()
    """The kernels, in the order of the program's table."""

    def text(self) -> str:
        """The LLVM IR of all kernels, written again."""
        return written(list(enumerate(self.emitted))).text()


class Assembler:
    """Walks a graph once."""

    def __init__(self, graph: Graph, backend: Legaliser | None = None,
                 views: Mapping[Value, View] | None = None,
                 placed: Mapping[Value, View] | None = None,
                 known: Assembled | None = None, optional: bool = False) -> None:
        """`views` says where some inputs lie, `placed` where some values are to be written.

        The kernels of `known` are not compiled again. `optional` is for a body that may never run.
        """
        self.graph, self.backend = graph, backend
        self.views: dict[Value, View] = {v: whole(v) for v in (*graph.inputs, *graph.params)}
        self.views.update(views or {})
        self.known = known
        self.stages = [Stage()]
        self.kernels: dict[str, int] = {}
        self.emitted: list[Lowered] = []
        self.native: set[Value] = set()
        self.fixed = set(graph.params)
        self.prepared: list[Node] = []
        self.constants: set[Node] = set()
        self.optional = int(optional)
        """How many bodies that a run may leave out are around what is added."""

        self.placed = self._places(graph.nodes, placed or {})

    def _places(self, nodes: Sequence[Node], given: Mapping[Value, View]) -> dict[Value, View]:
        """Operands of concatenations that their producers write where the result has them."""
        part, since = 0, dict[Node, int]()
        found = dict(given)
        for node in nodes:
            since[node] = part
            part += bool(node.makes())
            if node.op != "concat" or not holds(node.outputs[0].dtype):
                continue
            axis = axis_of(cast(int, node.attrs["axis"]), node.outputs[0].type.rank)
            start: Size = 0
            for v in node.inputs:
                p = v.producer
                if p is not None and since.get(p) == since[node] and writes_anywhere(p):
                    out = given.get(node.outputs[0]) or whole(node.outputs[0])
                    found.setdefault(v, part_of(out, axis, start, v.shape[axis]))
                start = start + v.shape[axis]
        return found

    def run(self) -> Assembled:
        """All nodes in order, then the machine code."""
        for node in self.graph.nodes:
            self._node(node)
        for v in self.graph.outputs:
            self._gather(v)
        programs, found = self._code()
        return Assembled(self.graph, self.stages, self.views, programs, found,
                         frozenset(self.native), self.prepared, self.emitted)

    def _gather(self, v: Value) -> None:
        """Copy an output natively that is all of what is not the caller's, in another order."""
        view = self.views[v]
        base = view.base
        ours = self.views[base].whole if base in self.graph.inputs else base in self.native
        if ours and not view.dense and v.producer and count(view.shape) == count(base.shape):
            target = whole(v)
            self._add(v.producer, [copy(view, target)])
            self.views[v] = target

    def _code(self) -> tuple[list[Program], list[int]]:
        """What holds the code, and the address of every kernel."""
        programs, table = list[Program](), dict[str, int]()
        if self.known is not None:
            programs += self.known.programs
            table.update(zip([k.key for k in self.known.emitted], self.known.addresses,
                             strict=True))
        fresh = [(i, k) for i, k in enumerate(self.emitted) if k.key not in table]
        if fresh:
            count = PARTS if len(fresh) >= 2 * PARTS else 1
            parts = [fresh[n::count] for n in range(count)]
            made = build_all([_module(part) for part in parts], host(), default_cache(),
                             default_threads())
            programs += made
            for part, program in zip(parts, made, strict=True):
                table.update(zip([k.key for _, k in part], addresses(program, len(part)),
                                 strict=True))
        return programs, [table[k.key] for k in self.emitted]

    def _node(self, node: Node) -> None:
        stage = self.stages[-1]
        if self._prepares(node):
            self._prepared(node)
        elif is_leaf(node):
            self.leaf(node, stage)
        elif is_view(node):
            self._view(node, stage)
        elif node.op not in CONTROL or not CONTROL[node.op](self, node):
            self.compute(node, stage)

    def _prepares(self, node: Node) -> bool:
        """Whether a node follows from parameters and constants alone, and its result fits.

        Constants of several axes count too: they may be weights, which kernels pack. What could
        fail in a branch, or a scan of perhaps no turns, waits until it is reached.
        """
        if node.op == "constant" and node.outputs[0].type.rank > 1:
            return holds(node.outputs[0].dtype)
        inputs = [v for v in node.inputs if v in self.fixed or v.producer not in self.constants]
        if not inputs or node.regions or is_view(node) or node.reads():
            return False
        if self.optional and node.op not in SAFE and REGISTRY[node.op].kind != "elementwise":
            return False
        return _fits(node) and all(v in self.fixed and v.dtype.sort != "block" for v in inputs)

    def _prepared(self, node: Node) -> None:
        """Have a node computed once, whenever parameters are set."""
        self.prepared.append(node)
        self.fixed.update(node.outputs)
        self.views.update({v: whole(v) for v in node.outputs})

    def body(self, nodes: Sequence[Node]) -> Stage | None:
        """The steps of a body on views that are set; None if the host has to run one."""
        outer, inner = self.stages, Stage()
        self.stages, before = [inner], self.placed
        self.placed = self._places(nodes, before)
        for node in nodes:
            self._node(node)
        stages, self.stages, self.placed = self.stages, outer, before
        hosted = len(stages) > 1 or any(isinstance(s, HostStep) for s in inner.steps)
        return None if hosted else inner

    def mark(self) -> tuple[int, int, set[Value]]:
        """What `back` needs to undo what follows."""
        return len(self.emitted), len(self.prepared), set(self.native)

    def back(self, mark: tuple[int, int, set[Value]]) -> None:
        """Forget the kernels, and what they write, since a mark."""
        emitted, prepared, self.native = mark
        del self.emitted[emitted:], self.prepared[prepared:]
        self.kernels = {key: n for key, n in self.kernels.items() if n < emitted}

    def leaf(self, node: Node, stage: Stage) -> None:
        """Equal elements are one element that every index reads; bodies may be walked twice."""
        stage.leaves.append(node)
        for v in node.outputs:
            if not node.inputs and not node.reads():
                self.constants.add(node)
            if v in self.views:
                continue
            if node.op == "full" and holds(v.dtype):
                one = Value(v.type.with_(shape=()), v.name, node)
                self.views[v] = View(one, v.shape, (0,) * len(v.shape))
            else:
                self.views[v] = whole(v)

    def _view(self, node: Node, stage: Stage) -> None:
        source = self.views[node.inputs[0]]
        found = follow(node, source)
        fixed = node.inputs[0] in self.fixed and not node.reads()
        if found is None and fixed and _fits(node):
            self._prepared(node)
            return
        stage.views.append(node)
        if found is None:
            fixed = False
            moved = whole(Value(node.inputs[0].type, node.inputs[0].name))
            self._add(node, [copy(source, moved)])
            found = follow(node, moved)
        assert found is not None
        if not certain(node):
            stage.checks.append(node)
        self.views.update(zip(node.outputs, found, strict=True))
        if fixed and _static(node):
            self.fixed.update(node.outputs)

    def compute(self, node: Node, stage: Stage) -> None:
        """Kernels where there is a lowering, else a host step."""
        ins = [self.views[v] for v in node.inputs]
        try:
            outs = [self.placed.get(v) or whole(v) for v in node.outputs]
            self._add(node, lower(node, ins, outs, self.fixed))
            self.views.update(zip(node.outputs, outs, strict=True))
        except Declined as e:
            used = {v: self.views[v] for v in node.uses()}
            step = HostStep(node, HostBody(node), used, e.message)
            stage.steps.append(step)
            if step.body.makes:
                self.stages.append(Stage())
            self.views.update({v: whole(v) for v in node.outputs})

    def _add(self, node: Node, calls: Sequence[Lowered]) -> None:
        self.stages[-1].steps += [self.call(node, lowered) for lowered in calls]

    def call(self, node: Node, lowered: Lowered) -> NativeStep:
        """A kernel call; the kernel is emitted unless its equal is."""
        number = self.kernels.setdefault(lowered.key, len(self.emitted))
        if number == len(self.emitted):
            self.emitted.append(lowered)
        self.native.update(lowered.writes)
        return NativeStep(node, lowered, number)


def _module(kernels: Sequence[tuple[int, Lowered]]) -> tuple[Callable[[], str], str]:
    """What writes a module of kernels, and what decides its text."""
    keys = "\n".join([f"{kernel_name(i, k)}: {k.key}" for i, k in kernels])
    return lambda: written(kernels).text(), keys


def _static(node: Node) -> bool:
    """Whether the sizes of a node's results are the same in every run."""
    return all(isinstance(v.type.nbytes(), int) for v in node.outputs)


def _fits(node: Node) -> bool:
    """Whether a node's results may be kept beside the parameters."""
    return all(isinstance(n := v.type.nbytes(), int) and n <= PREPARED for v in node.outputs)


def written(kernels: Sequence[tuple[int, Lowered]]) -> Module:
    """A module of kernels, named by their numbers and what they are."""
    module = Module(host())
    export(module, [low.emit(module, kernel_name(i, low)) for i, low in kernels])
    return module


from .branches import branch_natively  # noqa: E402 - they build what is declared above
from .counted import count_natively  # noqa: E402
from .scans import scan_natively  # noqa: E402

CONTROL = {"scan": scan_natively, "if": branch_natively, "loop": count_natively}
"""Control flow that can be native: whether it was added."""
