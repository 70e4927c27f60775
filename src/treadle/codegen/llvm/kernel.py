"""What every kernel looks like to the worker runtime.

A kernel is `i32 kernel(ptr args, ptr lane, i64 chunk, i64 chunks)`. `args` are 8-byte words:
addresses and extents of this step. `lane` belongs to whoever runs the chunk and holds its scratch
memory. The result is 0, or a code of the kernel's own choice; then the run ends with that error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from .jit import Program
from .text import Function, Module
from .types import I32, I64, PTR, Type
from .value import Index, Value

SCRATCH_AT, VALUE_AT = 0, 8
"""Byte offsets in a lane: the address of its scratch memory, the value that goes with an error."""
TABLE = "treadle_kernels"
PARAMETERS = (("args", PTR), ("lane", PTR), ("chunk", I64), ("chunks", I64))


class Kernel:
    """A kernel being written. `words` name its arguments in order, each `PTR` or `I64`."""

    def __init__(self, module: Module, name: str, words: Sequence[tuple[str, Type]]) -> None:
        self.name = name
        self.words = tuple(words)
        self.function: Function = module.function(name, I32, PARAMETERS)
        args, self.lane, self.chunk, self.chunks = self.function.args
        self._loaded = {word: self.function.load(kind, args, at)
                        for at, (word, kind) in enumerate(words)}

    def __getitem__(self, word: str) -> Value:
        """An argument by name."""
        return self._loaded[word]

    def scratch(self) -> Value:
        """The lane's scratch memory, 64-byte aligned, as large as the schedule asked for."""
        return self.function.load(PTR, self.lane, SCRATCH_AT // 8)

    def share(self, total: Index) -> tuple[Value, Value]:
        """The half-open range of `total` items that belongs to this chunk."""
        f = self.function
        items = f.constant(I64, total)
        low = f.binary("udiv", self.chunk * items, self.chunks)
        return low, f.binary("udiv", (self.chunk + 1) * items, self.chunks)

    def fail(self, code: int, value: Value) -> None:
        """End the chunk with an error: a code above zero and an `i64` that explains it."""
        f = self.function
        f.store(value, f.address(self.lane, VALUE_AT // 8, I64))
        f.give(f.constant(I32, code))

    def finish(self) -> None:
        """End the chunk well."""
        self.function.give(self.function.constant(I32, 0))


def export(module: Module, kernels: Sequence[Kernel]) -> None:
    """Keep these kernels, in this order, in the table that `addresses` reads."""
    items = ", ".join(f"ptr @{kernel.name}" for kernel in kernels)
    module.data(TABLE, f"constant [{len(kernels)} x ptr] [{items}]")


def addresses(program: Program, count: int) -> list[int]:
    """The addresses of a loaded program's kernels, in the order of `export`."""
    if not count:
        return []
    return list((ctypes.c_uint64 * count).from_address(program.address(TABLE)))
