"""The text that a program of the CPU device leaves: LLVM IR, assembly, memory plan, kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...codegen.llvm.jit import assembly
from ...codegen.llvm.target import host
from ...files import replacing, write_text
from ...ir.printer import print_graph
from .assembly import written
from .facts import memory_text
from .recipe import Recorded, recorded

if TYPE_CHECKING:
    from .program import CpuProgram

SCRIPT = '''"""Runs {kernel} alone, compares it with its node, and times it.

python reproduce.py [SEED]
"""

import sys
from pathlib import Path

from treadle.backends.cpu.reproduce import rerun

sys.exit(rerun(Path(__file__).parent, sys.argv[1:]))
'''


def write(program: CpuProgram, folder: Path) -> None:
    """`kernels.ll`, `kernels.s` once, `memory.txt` anew; programs of regions in folders inside.

    Each kernel has a folder of its own in `kernels` once sizes are known.
    """
    folder.mkdir(exist_ok=True)
    write_text(folder / "memory.txt", memory_text(program))
    code = folder / "kernels.ll"
    if program.whole.emitted and not code.exists():
        text = program.whole.text()
        write_text(code, text)
        write_text(folder / "kernels.s", assembly(text, host()))
    for found in recorded(program):
        _kernel(found, folder / "kernels")
    for i, region in enumerate(program.regions.values()):
        write(region, folder / f"region_{i}")


def _kernel(found: Recorded, folder: Path) -> None:
    name = found.recipe.kernel
    if (folder / name).exists():
        return
    folder.mkdir(exist_ok=True)
    text = written([(s.kernel, s.lowered) for s in found.steps]).text()
    with replacing(folder / name) as made:
        made.mkdir()
        (made / "kernel.ll").write_text(text, "utf-8")
        (made / "kernel.s").write_text(assembly(text, host()), "utf-8")
        (made / "kernel.txt").write_text(f"{found.key}\n", "utf-8")
        (made / "node.ir").write_text(print_graph(found.graph, locs=True), "utf-8")
        (made / "recipe.json").write_text(found.recipe.json(), "utf-8")
        (made / "reproduce.py").write_text(SCRIPT.format(kernel=name), "utf-8")
        np.savez(made / "data.npz", **dict[str, Any](found.data))
