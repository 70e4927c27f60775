"""The device "mlx": Apple's array library, on Apple GPUs, NVIDIA GPUs or the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING

from ...config import MLX_MODES, Config
from ...errors import DeviceError
from ...ir.graph import Graph, Node
from ...records import dataclass, field
from ..base import Claim, Data

if TYPE_CHECKING:
    from .program import MlxProgram


@dataclass(frozen=True)
class Mlx:
    """MLX's default device. `mode` says when operators are evaluated; None is the configured one.

    eager: one by one, so that a fault names its node. lazy: the whole graph at once. compiled:
    traced once for each binding of sizes and replayed; a graph that cannot be traced runs lazily,
    and explain() says why. Without a choice it is compiled on a GPU, and lazy on the CPU, where
    MLX calls a C++ compiler for every kernel. async: as without a choice, and a run whose outputs
    all stay on the device is not waited for.
    """

    mode: str | None = field(default_factory=lambda: Config.from_environment().mlx_mode)
    name: str = "mlx"

    def describe(self) -> str:
        """MLX's version and the device that it drives here."""
        from .device import text

        return f"MLX {version('mlx')}, {text()}"

    def unavailable(self) -> str:
        """Why MLX cannot be used here, or nothing."""
        try:
            import mlx.core  # noqa: F401
        except ImportError as e:
            return f"{e} (pip install 'treadle[mlx]')"
        return ""

    def with_mode(self, mode: str) -> Mlx:
        """The same device in another mode."""
        if mode not in MLX_MODES:
            raise DeviceError(f"there is no mode '{mode}'", hint=f"one of {', '.join(MLX_MODES)}")
        return Mlx(mode)

    def claim(self, node: Node) -> Claim:
        """How a node runs, and why not better."""
        from .claims import claim

        return claim(node)

    def declines(self, node: Node) -> str:
        """Why a composite has no lowering of its own; empty if it has one."""
        found = self.claim(node)
        return "" if found.how == "native" else found.reason

    def keeps(self, node: Node) -> str:
        """Why the weight of a product or look-up is not kept quantised; empty if it is."""
        return self.declines(node)

    def joins(self, node: Node) -> bool:
        """Whether a product may become part of a wider one: on a GPU each launch costs."""
        from .arrays import on_gpu

        return on_gpu() and not self.declines(node)

    def compile(self, graph: Graph, params: Mapping[str, Data]) -> MlxProgram:
        """A program for a graph."""
        from .device import usual_mode
        from .program import MlxProgram

        return MlxProgram(graph, params, self.mode or usual_mode())
