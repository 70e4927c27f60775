"""The text that a program of the CPU device leaves: LLVM IR, assembly, memory plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...codegen.llvm.jit import assembly
from ...codegen.llvm.target import host
from .facts import memory_text

if TYPE_CHECKING:
    from .program import CpuProgram


def write(program: CpuProgram, folder: Path) -> None:
    """`kernels.ll`, `kernels.s` once, `memory.txt` anew; programs of regions in folders inside."""
    folder.mkdir(exist_ok=True)
    (folder / "memory.txt").write_text(memory_text(program), "utf-8")
    code = folder / "kernels.ll"
    if program.whole.emitted and not code.exists():
        text = program.whole.text()
        code.write_text(text, "utf-8")
        (folder / "kernels.s").write_text(assembly(text, host()), "utf-8")
    for i, region in enumerate(program.regions.values()):
        write(region, folder / f"region_{i}")
