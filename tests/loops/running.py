"""Runs loop kernels on arrays, cut into any number of chunks."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from treadle.codegen.llvm.jit import Program, build
from treadle.codegen.llvm.kernel import addresses, export
from treadle.codegen.llvm.loops import emit_loops
from treadle.codegen.llvm.runtime import ThreadPool
from treadle.codegen.llvm.schedule import Frame, Phase, Schedule, Step
from treadle.codegen.llvm.target import host
from treadle.codegen.llvm.text import Module
from treadle.ir.dims import evaluate
from treadle.loops.build import Draft
from treadle.loops.ir import Kernel
from treadle.loops.schedule import Machine, schedule

POOL = ThreadPool(1)


@functools.cache
def program(text: str) -> Program:
    """The code of a module, made once."""
    return build(text, host())


def run(draft: Draft, kernel: Kernel, arrays: Sequence[np.ndarray], binding: Mapping[str, int],
        chunks: int = 1) -> None:
    """Run on one array per buffer; outputs are written in place."""
    module = Module(host())
    plan = schedule(kernel, Machine(host().vector_bytes, host().has_masks))
    made = emit_loops(module, kernel, plan, "kernel")
    export(module, [made])
    made_of = program(module.text())
    sizes = [evaluate(n, binding) for n in draft.sizes]
    step = Step(addresses(made_of, 1)[0], 0, 0)
    frame = Frame([*(a.ctypes.data for a in arrays), *sizes])
    POOL.run_serial(Schedule([Phase((step,), chunks)], made_of), frame)
