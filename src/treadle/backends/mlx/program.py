"""A compiled graph on MLX: parameters, bindings, modes and outputs."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import mlx.core as mx
import numpy as np

from ...declare.arrays import Array, Encoded, dtype_of_array
from ...declare.evaluate import Binding, Watch
from ...ir.graph import Graph, Node, Value
from ...records import dataclass
from ...rewrite.constants import array_value
from ..base import Data, Fact, HostStorage
from .arrays import EXACT, holds, to_mlx, to_numpy
from .claims import blockers
from .device import uncompiled, usual_mode
from .facts import dump, facts
from .lowering import Fault, Form, Join, Pack, Untraceable
from .owner import owner
from .plan import Leaves, Packed, Plans
from .script import Known, Script, Unscripted, write
from .shared import Shared, shared
from .traces import KEPT, Trace, Traces
from .walk import FAILURES, Frame, Held, Run, evaluate

if TYPE_CHECKING:
    from ..base import Buffer, Call, Grant, State


@dataclass(frozen=True, slots=True)
class Pending:
    """A run whose arrays are not evaluated yet."""

    outputs: Sequence[Held]
    faults: Sequence[Fault]

    def arrays(self) -> list[mx.array]:
        """What is to be evaluated."""
        return [*[x for x in self.outputs if isinstance(x, mx.array)],
                *[f.state for f in self.faults]]


class MlxProgram:
    """A graph with its parameters. Every method may be called from any thread."""

    def __init__(self, graph: Graph, params: Mapping[str, Data], mode: str) -> None:
        self.graph, self.mode = graph, mode
        self.plans = Plans(graph)
        self.leaves = Leaves()
        self.notes: list[str] = []
        self._host: dict[Value, Data] = {v: params[v.name] for v in graph.params}
        self._plain, self._packs = self.plans.weights()
        self._weights: dict[Value, mx.array] = {}
        self._packed: dict[Packed, Form] = {}
        self._shares: dict[tuple[tuple[Value, ...], Pack | Join | None], Shared] = {}
        self._given: tuple[list[mx.array], list[Form]] | None = None  # all of them, in order
        self._checked: OrderedDict[tuple[int, ...], dict[Value, Array] | None] = OrderedDict()
        self.scripts: dict[tuple[int, ...], Script | None] = {}
        self._patient = False
        self.traces: Traces | None = None
        if mode == "compiled" or (mode == "async" and usual_mode() == "compiled"):
            self._decide()

    def _decide(self) -> None:
        """Whether the graph can be traced; the reason against it is a note."""
        why = blockers(self.graph.walk())
        why += [f"the input '{v.name}' is {v.dtype}" for v in self.graph.inputs
                if not holds(v.dtype)]
        if reason := uncompiled():
            why.insert(0, reason)
        if why:
            more = f" and {len(why) - 1} more" if len(why) > 1 else ""
            self.notes.append(f"mlx: runs in the mode lazy, not compiled: {why[0]}{more}")
        else:
            self.traces = Traces()

    @property
    def storage(self) -> MlxStorage:
        """MLX arrays as storage."""
        return MlxStorage()

    def facts(self) -> Mapping[Node, Fact]:
        """The kernels of native nodes; those of quantised weights also tell how they are chosen."""
        from .quantized import Weight, described

        if any(step.joint for step in self.plans.all()):
            owner().call(self._prepare)
        weights = {step.node: Fact(described(step.node, cast("Weight | None", self._packed.get(
            step.joint)))) for step in self.plans.all() if step.joint}
        return {**facts(self.plans), **weights}

    def dump(self, folder: Path) -> None:
        """Write the text of kernels of our own, once they were launched."""
        dump(self.plans, folder)

    # Parameters

    @property
    def params(self) -> Mapping[str, Data]:
        """Parameters by name."""
        return {v.name: array for v, array in self._host.items()}

    def set_param(self, name: str, array: Data) -> None:
        """Replace a parameter between runs; packed forms are made again when they are needed."""
        value = next(v for v in self.graph.params if v.name == name)
        self._host[value], self._given = array, None
        self._weights.pop(value, None)
        for key in [k for k in self._packed if value in k[0]]:
            del self._packed[key]
        for part in [p for p in self._shares if value in p[0]]:
            del self._shares[part]

    def _prepare(self) -> None:
        """Parameters on the device, evaluated, plain and packed."""
        if self._given is not None:
            return
        for v in self._plain:
            if v not in self._weights:
                self._weights[v] = cast(mx.array, self._share((v,), None))
        for key in self._packs:
            if key not in self._packed:
                self._packed[key] = self._share(*key)
        self._given = ([self._weights[v] for v in self._plain],
                       [self._packed[k] for k in self._packs])

    def _array(self, v: Value) -> Array:
        held = self._host.get(v)
        return cast(Array, array_value(v) if held is None else held)

    def _share(self, values: tuple[Value, ...], pack: Pack | Join | None) -> Form:
        made = self._shares[values, pack] = shared([self._array(v) for v in values], pack)
        return made.form

    def clone(self) -> MlxProgram:
        """A program that shares traces and parameters until one of them is set."""
        other = copy.copy(self)
        other._host, other._weights = dict(self._host), dict(self._weights)
        other._packed, other._shares = dict(self._packed), dict(self._shares)
        return other

    def with_states(self, states: Sequence[State]) -> tuple[MlxProgram, Sequence[Grant]]:
        """The program itself: MLX arrays never change, so nothing is written in place.

        With a capacity each run may have a length of its own, so that a trace is worth its time
        only where the sizes come again.
        """
        from ..base import Grant

        plain = "stays on the device; what is fed makes a new array, since MLX's never change"
        grows = f"{plain}; a length in use is traced when it comes again" if self.traces else plain
        made = self.clone()
        made._patient = any(s.capacity is not None for s in states)
        return made, [Grant(reason=plain if s.capacity is None else grows) for s in states]

    # Running

    def run(self, inputs: Sequence[Buffer], binding: Binding, watch: Watch | None = None,
            kept: Collection[int] = ()) -> Sequence[Buffer]:
        """Outputs for inputs, which may be MLX's arrays; `kept` outputs stay such."""
        return owner().call(self._run, inputs, binding, watch, kept)

    def direct(self, binding: Binding) -> Call | None:
        """A replayed trace for one binding, if there is one.

        A trace that was dropped since is made again: who holds the call holds no trace.
        """
        key = self._key(binding)
        if self.traces is None or self.traces.find(key) is None:
            return None

        def call(arrays: Sequence[Array], out: Sequence[Array | None] = ()) -> list[Array] | None:
            return None if out else owner().call(self._replay, key, binding, arrays)

        return call

    def _replay(self, key: tuple[int, ...], binding: Binding, arrays: Sequence[Array]
                ) -> list[Array]:
        self._prepare()
        pending = self._call(self._trace(key, binding), [to_mlx(a) for a in arrays])
        found = self._finish(pending, ())  # what the host holds is kept for later runs
        return [cast(Array, copy.deepcopy(x) if x is held else x)
                for x, held in zip(found, pending.outputs, strict=True)]

    def _key(self, binding: Binding) -> tuple[int, ...]:
        return tuple([binding[s] for s in sorted(binding)])

    def _run(self, inputs: Sequence[Buffer], binding: Binding, watch: Watch | None,
             kept: Collection[int]) -> Sequence[Buffer]:
        return self._finish(self._start(inputs, binding, watch), kept)

    def _start(self, inputs: Sequence[Buffer], binding: Binding, watch: Watch | None) -> Pending:
        """The arrays of a run, not evaluated where the mode allows it."""
        self._prepare()
        key = self._key(binding)
        if new := key not in self._checked:
            self.plans.check_room(binding)
            self._checked[key] = None
            if len(self._checked) > KEPT:
                self.scripts.pop(self._checked.popitem(last=False)[0], None)
        traced = self.traces is not None and watch is None and not (new and self._patient)
        if traced and self.traces is not None and self.traces.may(key):
            device = [x if isinstance(x, mx.array) else to_mlx(x) for x in inputs]
            try:
                return self._call(self._trace(key, binding), device)
            except Untraceable as e:
                self.traces.give_up(key)
                self.notes = [*self.notes[-KEPT + 1:],
                              f"mlx: sizes {dict(binding)} run in the mode lazy: {e}"]
        if watch is None and (script := self._script(key, binding)) is not None:
            return self._scripted(script, inputs, binding)
        return self._walk(inputs, binding, watch)

    def _script(self, key: tuple[int, ...], binding: Binding) -> Script | None:
        """The script for a binding, written when its second run begins."""
        if (made := self._checked[key]) is not None and key not in self.scripts:
            try:
                self.scripts[key] = write(Known(self.graph, self.plans, self.leaves, self._plain,
                                                self._packs, made, binding, self.mode == "eager"))
            except (Unscripted, *FAILURES):  # the walk says what is wrong, if anything is
                self.scripts[key] = None
        return self.scripts.get(key)

    def _scripted(self, script: Script, inputs: Sequence[Buffer], binding: Binding) -> Pending:
        """A run by script; what fails is run again step by step, which says where."""
        assert self._given is not None
        device = [x if isinstance(x, mx.array) else to_mlx(x) for x in inputs]
        try:
            return Pending(*script(device, *self._given))
        except FAILURES as e:
            pending = self._walk(inputs, binding, None)
            self.scripts[self._key(binding)] = None
            self.notes = [*self.notes[-KEPT + 1:],
                          f"mlx: sizes {dict(binding)} run step by step: {e}"]
            return pending

    def _walk(self, inputs: Sequence[Buffer], binding: Binding, watch: Watch | None) -> Pending:
        run = Run(self.plans, self.leaves, self._packed, watch=watch,
                  eager=self.mode == "eager" or watch is not None)
        frame, key = Frame(binding), self._key(binding)
        self._give(frame, inputs, self._weights)
        known = self._checked.get(key)
        if known:
            frame.host.update(known)
            frame.device.update(self.leaves.on_device(known))
            run.leaf_ids.update(map(id, known.values()))
        names = frozenset(binding)
        outputs = run.graph(self.graph, frame)
        if known is None:
            self._checked[key] = self.plans.fixed(run.made, names)
        return Pending(outputs, run.faults)

    def _give(self, frame: Frame, inputs: Sequence[Buffer], weights: Mapping[Value, mx.array]
              ) -> None:
        """Inputs and parameters; the host keeps what MLX does not hold."""
        frame.host.update(cast("dict[Value, Array]", self._host))
        frame.device.update(weights)
        for v, x in zip(self.graph.inputs, inputs, strict=True):
            frame.put(v, x)

    # Traces

    def _trace(self, key: tuple[int, ...], binding: Binding) -> Trace:
        assert self.traces is not None
        if (found := self.traces.find(key)) is None:
            found = self.traces.add(key, Trace(lambda *a: self._body(binding, *a)))
        return found

    def _body(self, binding: Binding, trace: Trace, inputs: Sequence[mx.array],
              weights: Sequence[mx.array], packed: Sequence[Form]) -> list[mx.array]:
        """What MLX traces: outputs and checks as functions of inputs and parameters."""
        run = Run(self.plans, self.leaves, dict(zip(self._packs, packed, strict=True)),
                  tracing=True)
        frame = Frame(dict(binding))
        self._give(frame, inputs, dict(zip(self._plain, weights, strict=True)))
        out = run.graph(self.graph, frame)
        return trace.record(out, run.faults)

    def _call(self, trace: Trace, inputs: list[mx.array]) -> Pending:
        assert self._given is not None
        return Pending(*trace(inputs, *self._given))

    def _finish(self, pending: Pending, kept: Collection[int]) -> Sequence[Buffer]:
        if self.mode == "async" and not pending.faults and len(kept) == len(pending.outputs):
            evaluate(pending.arrays(), wait=False)  # nobody reads them yet
        else:
            evaluate(pending.arrays())
            for f in pending.faults:
                f.check()
        return [self._output(i, x, i in kept) for i, x in enumerate(pending.outputs)]

    def _output(self, i: int, x: Held, keep: bool) -> Buffer:
        dtype = self.graph.outputs[i].dtype
        keep = keep and dtype in EXACT
        if isinstance(x, mx.array):
            return x if keep else to_numpy(x, dtype)
        return to_mlx(x) if keep and not isinstance(x, Encoded) else x


HOST = HostStorage()


class MlxStorage:
    """MLX arrays that stay on the device between runs, or NumPy's where MLX lacks their dtype."""

    def put(self, array: Array) -> Buffer:
        """A copy on the device."""
        if dtype_of_array(array) not in EXACT:
            return HOST.put(array)
        return owner().call(self._put, array)

    def _put(self, array: Array) -> mx.array:
        out = to_mlx(array)
        evaluate([out])
        return out

    def get(self, buffer: Buffer) -> Array:
        """A copy on the host."""
        from .arrays import OURS

        if isinstance(buffer, np.ndarray):
            return HOST.get(buffer)
        return owner().call(to_numpy, buffer, OURS[buffer.dtype])

    def rows(self, buffer: Buffer, axis: int, count: int) -> Buffer:
        """The first rows along an axis."""
        if isinstance(buffer, np.ndarray):
            return HOST.rows(buffer, axis, count)
        return owner().call(lambda: buffer[(slice(None),) * axis + (slice(0, count),)])

    def write(self, buffer: Buffer, axis: int, start: int, rows: Buffer) -> Buffer:
        """A buffer with other rows at `start`."""
        if isinstance(buffer, np.ndarray):
            return HOST.write(buffer, axis, start, rows)
        return owner().call(self._write, buffer, axis, start, rows)

    def _write(self, buffer: mx.array, axis: int, start: int, rows: mx.array) -> mx.array:
        at = mx.array([start], dtype=mx.int32)
        out = mx.slice_update(buffer, rows, at, (axis,))
        evaluate([out])
        return out
