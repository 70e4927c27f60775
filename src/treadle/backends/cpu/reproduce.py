"""Runs one dumped kernel alone, compares it with its node's reference body, and times it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from ...codegen.llvm.jit import build
from ...codegen.llvm.kernel import addresses
from ...codegen.llvm.runtime import KernelFault, ThreadPool, aligned
from ...codegen.llvm.schedule import Frame, Phase, Schedule, Step
from ...codegen.llvm.target import host
from ...declare import evaluate as interpreter
from ...declare.arrays import Array, Encoded, np_dtype
from ...errors import RunError
from ...ir.parser import parse_graph
from ...ir.types import DTYPES
from ...ops import library  # noqa: F401 - operators that a graph's text may name
from ...records import dataclass
from ..compare import compare
from .addresses import address
from .recipe import Area, Recipe, Seen

SECONDS = 0.2
"""How long a kernel is timed."""


def rerun(folder: Path, words: Sequence[str]) -> int:
    """Run the kernel of a folder on inputs drawn by a seed, 0 by default; 0 if all agree."""
    recipe = Recipe.read((folder / "recipe.json").read_text("utf-8"))
    with np.load(folder / "data.npz") as held:
        given = {name: held[name] for name in held.files}
    seed = int(words[0]) if words else 0
    work = _Work(folder, recipe)
    memory = _Memory(recipe, given, seed)
    wanted = work.reference(memory)
    fault = work.run(memory)
    if fault and memory.whole:  # numbers other than 0 may be no indices
        memory = _Memory(recipe, given, seed, whole=False)
        wanted, fault = work.reference(memory), work.run(memory)
    if fault:
        print(f"{recipe.kernel}: {fault}")
        return 1
    same = [compare(f"{recipe.kernel}, output {i}", memory.value(seen), b)
            for i, (seen, b) in enumerate(zip(recipe.results, wanted, strict=True))]
    if not same:
        print(f"{recipe.kernel}: not compared: {recipe.obstacle}")
    seconds, runs = work.timed(memory)
    print(f"{recipe.kernel}: {seconds * 1e6:.2f} us on one thread, the least of {runs}")
    return 0 if all(same) else 1


@dataclass(eq=False)
class _Memory:
    """The areas of a recipe.

    What is drawn are normal numbers, bytes of all values, and small whole numbers, in whose place
    are zeros if not `whole`.
    """

    recipe: Recipe
    given: Mapping[str, Array]
    seed: int
    whole: bool = True

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.arrays = [self._array(i, a, rng) for i, a in enumerate(self.recipe.areas)]

    def _array(self, i: int, area: Area, rng: np.random.Generator) -> Array:
        if (data := self.given.get(f"a{i}")) is None:
            dtype = np_dtype(DTYPES[area.dtype])
            data = np.full(int(np.prod(area.shape)) * dtype.itemsize, 0xFF, np.uint8) if (
                area.role == "written") else _bytes_of(self._drawn(area, rng).astype(dtype))
        out = aligned(data.size)
        out[...] = data
        return out

    def _drawn(self, area: Area, rng: np.random.Generator) -> Array:
        dtype = DTYPES[area.dtype]
        if dtype.sort in ("float", "complex"):
            return rng.normal(size=area.shape)
        if dtype.sort == "bool":
            return rng.integers(0, 2, area.shape)
        if dtype.bits == 8:
            low = -128 if dtype.sort == "int" else 0
            return rng.integers(low, low + 256, area.shape)
        return rng.integers(1, 3, area.shape) if self.whole else np.zeros(area.shape)

    def value(self, seen: Seen) -> Any:  # noqa: ANN401 - an array or an encoded one
        """A copy of what lies somewhere."""
        at, shape, strides, offset = seen
        area = self.recipe.areas[at]
        dtype = DTYPES[area.dtype]
        if dtype.sort == "block":
            return Encoded(dtype, tuple(shape), self.arrays[at].copy())
        if 0 in shape:
            return np.zeros(tuple(shape), np_dtype(dtype))
        return np.ndarray(tuple(shape), np_dtype(dtype), self.arrays[at], offset,
                          tuple(strides)).copy()


class _Work:
    """The compiled kernels of a folder, and its node."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.recipe = recipe
        self.graph = parse_graph((folder / "node.ir").read_text("utf-8"))
        self.program = build((folder / "kernel.ll").read_text("utf-8"), host())
        names = list(dict.fromkeys([c.kernel for c in recipe.calls]))
        self.table = dict(zip(names, addresses(self.program, len(names)), strict=True))
        self.pool = ThreadPool(1)

    def reference(self, memory: _Memory) -> tuple[Array, ...]:
        """What the node's body makes of the operands; nothing where there is no comparison."""
        if self.recipe.obstacle:
            return ()
        operands = [cast(Array, memory.value(s)) for s in self.recipe.operands]
        try:
            with np.errstate(all="ignore"):
                return interpreter.run(self.graph, operands, {}, dict(self.recipe.binding))
        except RunError:
            return ()

    def run(self, memory: _Memory) -> str:
        """Run the calls in order; what a kernel reports as an error, or nothing."""
        try:
            for i, call in enumerate(self.recipe.calls):
                if call.chunks:
                    self.pool.run(*self._ready(memory, i))
        except KernelFault as e:
            return f"the kernel reports error {e.code} ({e.value})"
        return ""

    def timed(self, memory: _Memory) -> tuple[float, int]:
        """The least seconds of a run of the kernel, and how often it ran."""
        schedule, frame = self._ready(memory, self.recipe.at)
        best, runs, start = float("inf"), 0, time.perf_counter()
        while not runs or time.perf_counter() - start < SECONDS:
            before = time.perf_counter()
            self.pool.run(schedule, frame)
            best, runs = min(best, time.perf_counter() - before), runs + 1
        return best, runs

    def _ready(self, memory: _Memory, i: int) -> tuple[Schedule, Frame]:
        call = self.recipe.calls[i]
        words = [n if at < 0 else address(memory.arrays[at]) + n for at, n in call.words]
        step = Step(self.table[call.kernel], 0, 0)
        return Schedule([Phase((step,), call.chunks)], self.program, call.scratch), Frame(words)


def _bytes_of(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
