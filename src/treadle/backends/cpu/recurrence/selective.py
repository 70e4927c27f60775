"""The kernel of the selective scan: two vectors of channels walk through all tokens."""

from __future__ import annotations

from ....codegen.llvm.kernel import Kernel
from ....codegen.llvm.target import Target
from ....codegen.llvm.text import F32, I64, PTR, Function, Module, Type, Value
from ....records import dataclass
from .vectors import exp, load, multiply_add, store

_ABREAST = 2
"""Vectors of channels of a unit: they share what is read of b and c."""
_CHUNK_WORK, _MOST_CHUNKS = 1 << 13, 256
_OPERANDS = ("x", "dt", "b", "c")


@dataclass(frozen=True, slots=True)
class Selective:
    """A scan over `channels` with `states` numbers each; `kinds` are those of x, dt, b, c, a."""

    channels: int
    states: int
    kinds: tuple[Type, ...]
    past: bool
    state: Type

    @property
    def words(self) -> list[str]:
        """Addresses, then N, T, and the distances of batch entries and tokens by operand."""
        return [*_OPERANDS, "a", *["past"] * self.past, "y", "state", "n", "t",
                *(f"{name}_{axis}" for name in _OPERANDS for axis in ("batch", "token"))]


def scratch_bytes(spec: Selective, target: Target) -> int:
    """Scratch memory of a lane: rates and states by number, then channel."""
    return 8 * spec.states * _ABREAST * target.lanes(F32) + 64


def chunks_for(spec: Selective, target: Target, n: int, tokens: int) -> int:
    """How many chunks a plan cuts the kernel into."""
    units = n * -(-spec.channels // (_ABREAST * target.lanes(F32)))
    work = n * spec.channels * spec.states * (tokens + 1)
    return max(1, min(units, work // _CHUNK_WORK, _MOST_CHUNKS))


def emit_selective(module: Module, spec: Selective, name: str) -> Kernel:
    """Write the kernel."""
    addresses = {*_OPERANDS, "a", "past", "y", "state"}
    kernel = Kernel(module, name, [(w, PTR if w in addresses else I64) for w in spec.words])
    _Emitter(kernel, module, spec).run()
    kernel.finish()
    return kernel


class _Emitter:
    """Writes one kernel."""

    def __init__(self, kernel: Kernel, module: Module, spec: Selective) -> None:
        self.kernel, self.spec = kernel, spec
        self.f: Function = kernel.function
        self.lanes = module.target.lanes(F32)
        self.block = _ABREAST * self.lanes
        self.rates = kernel.scratch()
        self.held = self.f.address(self.rates, spec.states * self.block, F32)
        names: list[str] = [*_OPERANDS, "a"]
        self.kinds = dict(zip(names, spec.kinds, strict=True))

    def run(self) -> None:
        """Block of channels by block."""
        f, spec = self.f, self.spec
        blocks = -(-spec.channels // self.block)
        low, high = self.kernel.share(self.kernel["n"] * blocks)
        with f.loop(low, high) as unit:
            self.batch = f.binary("udiv", unit.index, blocks)
            self.column = f.binary("urem", unit.index, blocks) * self.block
            left = f.constant(I64, spec.channels) - self.column
            self.count = f.minimum(left, self.block)
            self.masks = [None if spec.channels % self.block == 0 else f.tail_mask(
                left - v * self.lanes, self.lanes) for v in range(_ABREAST)]
            self._turn("a", self.kinds["a"], self.rates, self.column)
            row = self.batch * spec.channels + self.column
            if spec.past:
                self._turn("past", spec.state, self.held, row)
            else:
                f.fill(self.held, 0, 4 * spec.states * self.block)
            with f.loop(0, self.kernel["t"]) as t:
                self._token(t.index)
            self._hand_on(row)

    def _turn(self, name: str, kind: Type, target: Value, row: Value) -> None:
        """Rows [channel, number] from `row` on by number, then channel; zeros beyond the last."""
        f, states = self.f, self.spec.states
        f.fill(target, 0, 4 * states * self.block)
        with f.loop(0, self.count) as c, f.loop(0, states) as s:
            item = load(f, kind, 1, self.kernel[name], (row + c.index) * states + s.index)
            f.store(item, target, s.index * self.block + c.index)

    def _hand_on(self, row: Value) -> None:
        f, spec = self.f, self.spec
        with f.loop(0, self.count) as c, f.loop(0, spec.states) as s:
            item = f.load(F32, self.held, s.index * self.block + c.index)
            store(f, item, spec.state, self.kernel["state"],
                  (row + c.index) * spec.states + s.index)

    def _row(self, name: str, t: Value) -> Value:
        offset = (self.batch * self.kernel[f"{name}_batch"] + t * self.kernel[f"{name}_token"])
        offset = offset + self.column if name in ("x", "dt") else offset
        return self.f.address(self.kernel[name], offset, self.kinds[name])

    def _token(self, t: Value) -> None:
        f, spec, lanes = self.f, self.spec, self.lanes
        kind = F32.vector(lanes)
        rows = {name: self._row(name, t) for name in _OPERANDS}
        x, dt = ([load(f, self.kinds[name], lanes, rows[name], v * lanes, self.masks[v])
                  for v in range(_ABREAST)] for name in ("x", "dt"))
        driven = [a * b for a, b in zip(x, dt, strict=True)]
        with f.loop(0, spec.states, 1, [f.constant(kind, 0)] * _ABREAST) as s:
            b, c = (f.splat(load(f, self.kinds[name], 1, rows[name], s.index), lanes)
                    for name in ("b", "c"))
            sums = list[Value]()
            for v, total in enumerate(s.values):
                at = s.index * self.block + v * lanes
                decay = exp(f, dt[v] * f.load(kind, self.rates, at))
                h = multiply_add(f, decay, f.load(kind, self.held, at), b * driven[v])
                f.store(h, self.held, at)
                sums.append(multiply_add(f, c, h, total))
            s.carry(*sums)
        element = self.kinds["x"]
        row = (self.batch * self.kernel["t"] + t) * spec.channels + self.column
        target = f.address(self.kernel["y"], row, element)
        for v, value in enumerate(s.results):
            store(f, value, element, target, v * lanes, self.masks[v])
