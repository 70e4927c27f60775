"""Running steps one after another: building MLX's graph, or evaluating as it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import mlx.core as mx
import numpy as np

from ...declare import evaluate as interpreter
from ...declare.arrays import Array, Encoded
from ...declare.evaluate import Binding, Watch
from ...errors import OperatorError, RunError, TreadleError
from ...ir.graph import Graph, Node, Value
from ...records import dataclass, field
from .arrays import to_mlx, to_numpy
from .images import ALWAYS, KERNELS
from .kernels.template import launched
from .layout import first, spread
from .lowering import Fault, Form, Kernel, Pack, Untraceable, fault_of, where
from .plan import Leaves, Packed, Plans, Step, empty_like
from .ready import Ready

if TYPE_CHECKING:
    from collections.abc import Iterable

Held: TypeAlias = "mx.array | Array | Encoded"


class Frame:
    """The values of one run of a graph; a region reads those of the frame around it."""

    __slots__ = ("binding", "device", "host", "last", "outer")

    def __init__(self, binding: Binding, outer: Frame | None = None) -> None:
        self.binding, self.outer = binding, outer
        self.device: dict[Value, mx.array] = {}
        self.host: dict[Value, Array] = {}
        self.last: dict[Value, mx.array] = {}  # images with their channels last

    def put(self, v: Value, held: Held) -> None:
        """Give a value."""
        if isinstance(held, mx.array):
            self.device[v] = held
        else:
            self.host[v] = cast(Array, held)

    def holder(self, v: Value) -> Frame:
        """The innermost frame that has a value."""
        frame: Frame | None = self
        while frame is not None:
            if v in frame.device or v in frame.host or v in frame.last:
                return frame
            frame = frame.outer
        raise KeyError(v)

    def drop(self, values: Iterable[Value]) -> None:
        """Forget values of this frame."""
        for held in (self.device, self.host, self.last):
            if held:
                for v in values:
                    held.pop(v, None)


@dataclass(eq=False)
class Run:
    """One run: its mode, the checks that it collects, the packed parameters.

    `eager` evaluates after every step. `tracing` means that arrays have no values. `made` are the
    leaves of the outermost graph, which a later run under the same binding need not make.
    """

    plans: Plans
    leaves: Leaves
    packed: Mapping[Packed, Form]
    eager: bool = False
    tracing: bool = False
    watch: Watch | None = None
    faults: list[Fault] = field(default_factory=list[Fault])
    leaf_ids: set[int] = field(default_factory=set[int])
    made: dict[Value, Array] = field(default_factory=dict[Value, Array])

    def graph(self, graph: Graph, frame: Frame) -> list[Held]:
        """Run the steps of a graph whose inputs the frame has."""
        for step in self.plans.of(graph):
            self._step(step, frame)
            if self.watch is not None:
                self.watch(step.node, [self.host(v, frame) for v in step.node.outputs])
            frame.drop(step.dead)
        return [self._held(v, frame) for v in graph.outputs]

    def _held(self, v: Value, frame: Frame) -> Held:
        found = frame.holder(v)
        return found.host[v] if v in found.host else self.device(v, frame)

    def device(self, v: Value, frame: Frame) -> mx.array:
        """A value as an MLX array."""
        if (near := frame.device.get(v)) is not None:
            return near
        found = frame.holder(v)
        if (held := found.device.get(v)) is None and v in found.last:
            held = found.device[v] = first(found.last[v])
        if held is None:
            array = found.host[v]
            held = self.leaves.device(array) if id(array) in self.leaf_ids else to_mlx(array)
            if id(array) not in self.leaf_ids:
                found.device[v] = held
        return held

    def host(self, v: Value, frame: Frame) -> Array:
        """A value as a NumPy array; what is not evaluated yet is now."""
        found = frame.holder(v)
        if (held := found.host.get(v)) is None:
            if self.tracing:
                raise Untraceable(f"the value of {v!r} is needed on the host")
            held = found.host[v] = self.numpy(self.device(v, frame), v)
        return held

    def numpy(self, x: mx.array, v: Value) -> Array:
        """An array evaluated and copied, once no check has failed."""
        self.evaluate([x])
        return to_numpy(x, v.dtype)

    def evaluate(self, arrays: Sequence[mx.array], node: Node | None = None) -> None:
        """Evaluate arrays, of one node if given, and the checks so far.

        A failure leaves no values behind.
        """
        faults, self.faults = self.faults, []
        evaluate([*arrays, *[f.state for f in faults]], node)
        for f in faults:
            f.check()

    def _step(self, step: Step, frame: Frame) -> None:
        if step.how == "leaf":
            if step.node.outputs[0] not in frame.host:
                self._leaf(step, frame)
        elif step.how == "host":
            self._host(step, frame)
        elif step.ready is None or not self._at_once(step, step.ready, frame):
            self._native(step, frame)
        if step.inner.makes:
            shapes = [self._held(v, frame) for v in step.node.outputs]
            interpreter.bind_shapes([v.type for v in step.node.outputs],
                                    cast("list[Array]", shapes), frame.binding)

    def _leaf(self, step: Step, frame: Frame) -> None:
        inputs = {v: self._shaped(v, frame) for v in step.node.inputs}
        out = self.leaves.host(step, inputs, frame.binding)
        self.leaf_ids.update(map(id, out))
        if frame.outer is None:
            self.made.update(zip(step.node.outputs, out, strict=True))
        for v, array in zip(step.node.outputs, out, strict=True):
            frame.put(v, array)

    def _shaped(self, v: Value, frame: Frame) -> Array:
        """A leaf's value, or an array without storage of the size of another value."""
        found = frame.holder(v)
        if v in found.host:
            return found.host[v]
        return np.broadcast_to(np.False_, tuple(self.device(v, frame).shape))

    def _host(self, step: Step, frame: Frame) -> None:
        env = {v: self.host(v, frame) for v in dict.fromkeys(step.node.uses())}
        out = interpreter.perform(step.inner, env, frame.binding)
        for v, array in zip(step.node.outputs, out, strict=True):
            frame.put(v, array)

    def _at_once(self, step: Step, ready: Ready, frame: Frame) -> bool:
        """Run a step whose operands lie as it needs them, or leave it to `_native`."""
        if self.eager or frame.last:
            return False
        held = frame.device
        try:
            arrays = [held[v] for v in step.node.inputs]
        except KeyError:
            return False
        if ready.nonempty and empty_like(arrays):
            return False
        launched.clear()
        try:
            held.update(zip(step.node.outputs, ready.run(arrays, self.tracing), strict=True))
        except FAILURES as e:
            raise _located(step.node, e) from None
        if launched:
            step.launches = tuple(launched)
        return True

    def _native(self, step: Step, frame: Frame) -> None:
        node, low = step.node, step.lowering
        assert low is not None
        turned = step.images and self._turned(step, frame)
        arrays = self._operands(step, turned, frame)
        if not low.empty and step.op.kind not in ("elementwise", "view") and empty_like(arrays):
            if self.tracing:
                raise Untraceable(f"{node.op} has an operand without elements")
            self._host(step, frame)
            return
        kernel = KERNELS.get(node.op, low.kernel) if turned else low.kernel
        try:
            out = self._made(step, kernel, arrays, frame)
        except FAILURES as e:
            raise _located(node, e) from None
        (frame.last if turned else frame.device).update(zip(node.outputs, out, strict=True))

    def _operands(self, step: Step, turned: bool, frame: Frame) -> list[Form | None]:
        form = self.packed.get(step.joint) if step.joint else None
        if form is None:
            read = self._image if turned else self._operand
            return [read(step, i, v, frame) for i, v in enumerate(step.node.inputs)]
        return [self._operand(step, i, v, frame) if i not in step.joined else
                form if i == step.joined[0] else None for i, v in enumerate(step.node.inputs)]

    def _made(self, step: Step, kernel: Kernel, arrays: list[Form | None], frame: Frame
              ) -> list[mx.array]:
        split, call = step.split, StepCall(self, step, frame)
        named = dict(zip(step.node.keys, arrays[split:], strict=True))
        launched.clear()
        out = kernel(call, *step.op.group(arrays[:split]), **named, **step.attrs(frame.binding))
        if launched:
            step.launches = tuple(launched)
        many = list(out) if isinstance(out, list | tuple) else [cast(mx.array, out)]
        if self.eager:
            self.evaluate(many, step.node)
        return many

    def _turned(self, step: Step, frame: Frame) -> bool:
        """Whether the step runs on images with their channels last."""
        if step.node.op in ALWAYS:
            return True
        rank = step.node.outputs[0].type.rank
        return any(v.type.rank == rank and v in frame.holder(v).last for v in step.node.inputs)

    def _image(self, step: Step, i: int, v: Value, frame: Frame) -> Form:
        if i in step.packed or v.type.rank == 0:
            return self._operand(step, i, v, frame)
        found = frame.holder(v).last.get(v)
        return spread(self.device(v, frame), step.node.outputs[0].type.rank) if (
            found is None) else found

    def _operand(self, step: Step, i: int, v: Value, frame: Frame) -> Form:
        if (key := step.packed.get(i)) is None:
            return self.device(v, frame)
        if (found := self.packed.get(key)) is not None:
            return found
        return cast(Pack, key[1])(self.device(v, frame))


FAILURES = (TreadleError, Untraceable, ValueError, RuntimeError, IndexError, TypeError,
             OverflowError, MemoryError)
"""What a kernel may raise: errors of ours, and MLX's."""


def _located(node: Node, e: BaseException) -> BaseException:
    """An error of an operator or of MLX with its node; errors that name theirs stay as they are."""
    if isinstance(e, OperatorError):
        return RunError(f"{where(node)}: {e.message}", hint=e.hint)
    return e if isinstance(e, TreadleError | Untraceable) else RunError(f"{where(node)}: MLX: {e}")


def evaluate(arrays: Sequence[Form], node: Node | None = None, *, wait: bool = True) -> None:
    """Evaluate arrays, those of `node` if it is given, or begin to.

    After a failure nobody reads the arrays again: MLX would give zeros.
    """
    try:
        (mx.eval if wait else mx.async_eval)(*arrays)
    except (RuntimeError, ValueError, MemoryError) as e:
        if node is not None:
            raise RunError(f"{where(node)}: MLX failed to evaluate it: {e}") from None
        raise RunError(f"MLX failed to evaluate the graph: {e}",
                       hint="the mode 'eager' names the operator") from None


class StepCall:
    """What a kernel may ask of the run."""

    __slots__ = ("fixed", "frame", "node", "run", "tracing")

    def __init__(self, run: Run, step: Step, frame: Frame) -> None:
        self.run, self.node, self.frame, self.tracing = run, step.node, frame, run.tracing
        self.fixed = step.inner.fixed

    def fault(self, bad: mx.array, value: mx.array, text: Callable[[int], str]) -> None:
        """Fail the run where `bad` holds."""
        if bad.size:
            self.run.faults.append(fault_of(self.node, bad, value, text))

    def region(self, name: str, arrays: Sequence[mx.array], when: mx.array | None = None
               ) -> list[mx.array]:
        """A region's outputs on the device; its checks count where `when` holds."""
        before = len(self.run.faults)
        region, binding = self.node.regions[name], dict(self.frame.binding)
        frame = Frame(binding, self.frame)
        for v, x in zip(region.inputs, arrays, strict=True):
            frame.put(v, x)
        interpreter.bind_shapes([v.type for v in region.inputs], cast("list[Array]", arrays),
                                binding)
        self.run.graph(region, frame)
        if when is not None:
            faults = self.run.faults
            faults[before:] = [f.only(when) for f in faults[before:]]
        return [self.run.device(v, frame) for v in region.outputs]

    def read(self, x: mx.array) -> Any:  # noqa: ANN401 - a Python number
        """The one element of x."""
        if self.tracing:
            raise Untraceable(f"{self.node.op} needs a value that only a run gives")
        self.run.evaluate([x])
        return x.item()


