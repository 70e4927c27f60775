"""One token on a state that stays where it lies: it is read twice and written once.

Generation takes this path. The second reading finds the state in the second-level cache.
"""

from __future__ import annotations

from ....codegen.llvm.text import F32, PTR, VOID, Function, Module, Value
from .spec import Cut, Linear
from .vectors import broadcast, load, multiply_add, store

_ABREAST = 4
"""Vectors of columns that walk down the state together."""
_MOST_QUERIES = 2
"""Query heads whose sums fit registers beside them."""
ARGUMENTS = ("past", "state", "k", "keys", "q", "decay", "beta", "v", "y")


def columns(cut: Cut) -> int:
    """Columns of a call."""
    return _ABREAST * cut.lanes


def fits(spec: Linear, cut: Cut) -> bool:
    """Whether single tokens may take this path."""
    return (spec.past and spec.window < 2 and spec.group <= _MOST_QUERIES
            and cut.covers(spec.dv) and cut.width % columns(cut) == 0)


def step_function(module: Module, spec: Linear, cut: Cut) -> Function:
    """The function for a group of columns, made once per module.

    `keys` are those that the delta rule asks the old state for: under the token's decay.
    """
    name = f"state_step_{columns(cut)}_{spec.dk}_{spec.dv}_{spec.group}_{spec.decay}_{spec.delta}"
    name += f"_{spec.state.mangled}"
    if name in module.functions:
        return module.functions[name]
    f = module.function(name, VOID, [(word, PTR) for word in ARGUMENTS])
    _Step(f, spec, cut).run()
    return f


class _Step:
    """Writes the function."""

    def __init__(self, f: Function, spec: Linear, cut: Cut) -> None:
        self.f, self.spec, self.cut, self.lanes = f, spec, cut, cut.lanes
        self.at = dict(zip(ARGUMENTS, f.args, strict=True))
        self.kind = F32.vector(cut.lanes)

    def run(self) -> None:
        """Ask the old state for the key, then update it and ask the new one for the queries."""
        f, spec = self.f, self.spec
        added = [f.load(self.kind, self.at["v"], v * self.lanes) for v in range(_ABREAST)]
        if spec.delta:
            rate = broadcast(f, self.at["beta"], 0, self.lanes)
            added = [rate * (a - r) for a, r in zip(added, self._ask(), strict=True)]
        zero = f.constant(self.kind, 0)
        every = broadcast(f, self.at["decay"], 0, self.lanes) if spec.decay == "head" else zero
        with f.loop(0, spec.dk, 1, [zero] * (_ABREAST * spec.group)) as d:
            sums = list(d.values)
            key = broadcast(f, self.at["k"], d.index, self.lanes)
            kept = broadcast(f, self.at["decay"], d.index, self.lanes) if (
                spec.decay == "key") else every
            queries = [broadcast(f, self.at["q"], d.index + g * self.cut.chunk * self.cut.depth,
                                 self.lanes) for g in range(spec.group)]
            row = d.index * spec.dv
            for v in range(_ABREAST):
                s = load(f, spec.state, self.lanes, self.at["past"], row + v * self.lanes)
                s = multiply_add(f, key, added[v], s if spec.decay == "none" else s * kept)
                store(f, s, spec.state, self.at["state"], row + v * self.lanes)
                for g, q in enumerate(queries):
                    at = g * _ABREAST + v
                    sums[at] = multiply_add(f, q, s, sums[at])
            d.carry(*sums)
        for i, value in enumerate(d.results):
            g, v = divmod(i, _ABREAST)
            f.store(value, self.at["y"], g * self.cut.chunk * self.cut.width + v * self.lanes)
        f.give()

    def _ask(self) -> list[Value]:
        """What the old state gives for the key."""
        f, spec = self.f, self.spec
        with f.loop(0, spec.dk, 1, [f.constant(self.kind, 0)] * _ABREAST) as d:
            key = broadcast(f, self.at["keys"], d.index, self.lanes)
            row = d.index * spec.dv
            d.carry(*[multiply_add(f, key, load(
                f, spec.state, self.lanes, self.at["past"], row + v * self.lanes), s)
                for v, s in enumerate(d.values)])
        return d.results
