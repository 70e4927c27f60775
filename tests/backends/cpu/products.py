"""Builds and runs one matrix product kernel on NumPy arrays."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from treadle.backends.cpu.contraction import Matmul, emit_matmul, scratch_bytes
from treadle.codegen.llvm.jit import build
from treadle.codegen.llvm.kernel import addresses, export
from treadle.codegen.llvm.runtime import ThreadPool
from treadle.codegen.llvm.schedule import Frame, Phase, Schedule, Step
from treadle.codegen.llvm.target import host
from treadle.codegen.llvm.text import Module

ALONE = ThreadPool(1)


class Product:
    """A compiled product."""

    def __init__(self, spec: Matmul) -> None:
        self.spec, self.module = spec, Module(host())
        export(self.module, [emit_matmul(self.module, spec, "product")])
        self.program = build(self.module.text(), host())
        self.address = addresses(self.program, 1)[0]

    def __call__(self, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any],
                 extras: Sequence[NDArray[Any]] = (), sizes: Mapping[str, int] | None = None,
                 chunks: int = 3) -> None:
        """Run on arrays whose first element each operand begins at."""
        sizes = sizes or {}
        words = [x.ctypes.data for x in (a, b, c, *extras)]
        words += [sizes[name] for name in self.spec.run_time_words()]
        schedule = Schedule([Phase((Step(self.address, 0, 0),), chunks)], self.program,
                            scratch_bytes(self.module, self.spec, sizes))
        ALONE.run(schedule, Frame(words))


product = functools.cache(Product)
"""The compiled product of a specification, made once."""


def canvas(rows: int, columns: int, dtype: DTypeLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """A matrix of sevens inside a larger one, and the larger one."""
    whole = np.full((rows + 4, columns + 40), 7, dtype)
    return whole[2:2 + rows, 19:19 + columns], whole


def untouched(whole: NDArray[Any], rows: int, columns: int) -> bool:
    """Whether everything around the matrix of `canvas` still holds sevens."""
    around = np.ones(whole.shape, bool)
    around[2:2 + rows, 19:19 + columns] = False
    return bool((whole[around] == 7).all())
