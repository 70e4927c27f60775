"""Conditions of `If` that sizes and small inputs decide, so that a graph depends on no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from ...declare import evaluate as interpreter
from ...declare.arrays import Array, np_dtype
from ...errors import RunError, TreadleError
from ...ir.dims import evaluate, symbols
from ...ir.graph import Value
from ...records import dataclass

SMALL = 64
"""Most elements of an input whose values may decide."""
Key = tuple[str, int]
"""The name of an `If`, and how many of that name come before it."""
Choices = tuple[tuple[Key, bool], ...]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Condition:
    """What an `If` looks at; it is reached where other conditions have the values in `reached`.

    `inputs` are those of the model by name, `params` the data of parameters.
    """

    key: Key
    value: Value
    reached: Sequence[tuple[Value, bool]]
    inputs: Mapping[Value, str]
    params: Mapping[Value, Array]

    def decidable(self, known: Iterable[str]) -> bool:
        """Whether small inputs and the `known` symbols decide it."""
        return self._decidable(self.value, {*known})

    def decide(self, binding: Mapping[str, int], arrays: Mapping[str, Array]) -> bool | None:
        """Its value for inputs; None where nothing reaches it."""
        for value, wanted in self.reached:
            if self._decidable(value, {*binding}) and (
                    self._holds(value, binding, arrays) is not wanted):
                return None
        return self._holds(self.value, binding, arrays)

    def _decidable(self, value: Value, known: set[str]) -> bool:
        for v in _ancestors(value):
            node = v.producer
            if v.dtype.sort in ("host", "string"):
                return False
            if node is None:
                small = isinstance(n := v.type.nbytes(), int) and n * 8 <= SMALL * v.dtype.bits
                if v not in self.params and not (v in self.inputs and small):
                    return False
                continue
            needed = {s for d in node.inputs[0].shape for s in symbols(d)} if (
                node.op == "shape_of") else set(node.reads())
            if node.regions or node.makes() or not needed <= known:
                return False
        return True

    def _holds(self, value: Value, binding: Mapping[str, int], arrays: Mapping[str, Array]) -> bool:
        env: dict[Value, Array] = {}
        for v in reversed(_ancestors(value)):
            if v in env:
                continue
            if (node := v.producer) is None:
                name = self.inputs.get(v)
                env[v] = self.params[v] if name is None else arrays[name]
                continue
            given = env
            if node.op == "shape_of":
                x = node.inputs[0]
                shape = tuple([evaluate(d, binding) for d in x.shape])
                given = {x: np.broadcast_to(np.zeros((), np_dtype(x.dtype)), shape)}
            out = interpreter.perform(interpreter.Step(node), given, dict(binding))
            env.update(zip(node.outputs, out, strict=True))
        if env[value].size != 1:
            raise RunError(f"{self.key[0]}: the condition has {env[value].size} elements, not one")
        return bool(env[value].reshape(())[()])


def _ancestors(value: Value) -> list[Value]:
    """`value` and what it is computed from, readers before what they read."""
    order: list[Value] = []
    seen: set[Value] = set()
    stack = [(value, False)]
    while stack:
        at, done = stack.pop()
        if done:
            order.append(at)
        elif at not in seen:
            seen.add(at)
            stack.append((at, True))
            if at.producer is not None and at.producer.op != "shape_of":
                stack.extend((x, False) for x in at.producer.uses())
    return order[::-1]


class Decisions:
    """What is known of the conditions that a graph depends on, in the order of their discovery.

    Which condition comes next may depend on those before it, and on a `base`: the other facts that
    the graph was built with.
    """

    def __init__(self) -> None:
        self._next: dict[tuple[object, Choices], Condition] = {}
        self._free: dict[tuple[object, Choices], bool] = {}

    def path(self, base: object, binding: Mapping[str, int], arrays: Mapping[str, Array]
             ) -> Choices:
        """The choices for inputs, as far as conditions are known.

        One that nothing reaches goes the way that worked before.
        """
        path: Choices = ()
        while (condition := self._next.get((base, path))) is not None:
            found = condition.decide(binding, arrays)
            found = self._free[base, path] if found is None else found
            path = (*path, (condition.key, found))
        return path

    def learn(self, base: object, path: Choices, found: Mapping[Choices, Condition]) -> None:
        """Remember the conditions on a path that led to a graph."""
        for at, choice in enumerate(path):
            if (condition := found.get(path[:at])) is not None:
                self._next[base, path[:at]] = condition
                self._free.setdefault((base, path[:at]), choice[1])

    def forget(self) -> None:
        """Know nothing."""
        self._next.clear()
        self._free.clear()

    def __len__(self) -> int:
        return len(self._next)


Found = tuple[T, Choices, dict[Choices, Condition]]
"""A graph, the choices that led to it, and the conditions that asked for them."""
_DEEPEST = 32


def explore(build: Callable[[Choices], T], condition: Callable[[TreadleError], Condition | None],
            decide: Callable[[Condition], bool | None], path: Choices,
            found: Mapping[Choices, Condition] | None = None) -> Found[T]:
    """Build with the choices that conditions ask for, one after the other.

    Of a condition that nothing reaches both choices are tried; the graph that asks for fewer others
    is better. Raises the error of the first attempt if all fail.
    """
    known = dict(found or {})
    try:
        return build(path), path, known
    except TreadleError as e:
        if (asked := condition(e)) is None or asked.key in dict(path) or len(path) >= _DEEPEST:
            raise
    known[path] = asked
    value = decide(asked)
    best: Found[T] | None = None
    errors: list[TreadleError] = []
    for choice in (True, False) if value is None else (value,):
        try:
            made = explore(build, condition, decide, (*path, (asked.key, choice)), known)
        except TreadleError as e:
            errors.append(e)
            continue
        best = made if best is None or len(made[1]) < len(best[1]) else best
        if len(best[1]) == len(path) + 1:
            break
    if best is None:
        raise errors[0]
    return best
