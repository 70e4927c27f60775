"""The device "cpu": native code through LLVM, NumPy bodies for what has none yet."""

from __future__ import annotations

from collections.abc import Mapping

from ...codegen.llvm.processors import default_threads
from ...codegen.llvm.target import host
from ...ir.graph import Graph, Node
from ...ir.types import DType
from ...records import dataclass
from ..base import Claim, Data
from . import epilogues
from .claims import claim, widened
from .groups import fuses
from .program import CpuProgram


@dataclass(frozen=True)
class Cpu:
    """The processor. `threads` is that of `TREADLE_THREADS` or all usable cores."""

    threads: int | None = None
    name: str = "cpu"

    def describe(self) -> str:
        """The processor as LLVM names it, its vectors and threads."""
        return (f"{host().cpu}, vectors of {host().vector_bytes} bytes, "
                f"{self.threads or default_threads()} threads")

    def unavailable(self) -> str:
        """Why there is no code generator here, or nothing."""
        try:
            import llvmlite.binding  # noqa: F401
        except (ImportError, OSError) as e:
            return f"{e} (pip install llvmlite)"
        return ""

    def with_threads(self, threads: int | None) -> Cpu:
        """The same device on so many threads."""
        return Cpu(threads)

    def claim(self, node: Node) -> Claim:
        """How a node runs, and why not better."""
        return claim(node)

    def declines(self, node: Node) -> str:
        """Why a composite has no native lowering of its own; empty if it has one."""
        found = claim(node)
        return "" if found.how == "native" else found.reason

    def fuses(self, node: Node) -> bool:
        """Whether an elementwise operator or a fold may be part of a larger kernel."""
        return fuses(node)

    def widens(self, node: Node) -> DType | None:
        """The type in which a node is to be computed, if not its own."""
        return widened(node)

    def heads(self, node: Node) -> bool:
        """Whether a node's kernel can go on with elementwise operators."""
        return node.op in epilogues.HEADS

    def finishes(self, body: Graph) -> str:
        """Why a head and elementwise operators after it are no single kernel; empty if they are."""
        return epilogues.declined(body)

    def compile(self, graph: Graph, params: Mapping[str, Data]) -> CpuProgram:
        """Machine code for a graph."""
        return CpuProgram(graph, params, self.threads, backend=self)
