"""A value carried over to a result that changes in part: copied, or nothing if it lies there."""

from __future__ import annotations

from ...codegen.llvm.kernel import Kernel
from ...codegen.llvm.text import I8, I64, PTR, Module
from ...ir.dims import Size, evaluate
from ...ir.types import count
from ...memory.views import View
from .lowered import MOST_CHUNKS, Lowered
from .pointwise import copy

_CHUNK_BYTES = 1 << 18


def carry(source: View, target: View) -> Lowered:
    """The elements of `source` in `target`; free where the plan gives both the same memory."""
    if not (source.whole and target.whole and source.base.dtype is target.base.dtype):
        return copy(source, target)
    size: Size = count(source.shape) * (source.base.dtype.bits // 8)
    return Lowered("carry", _emit, (source, target, size), (target.base,),
                   lambda b: max(1, min(evaluate(size, b) // _CHUNK_BYTES, MOST_CHUNKS)),
                   reuse=((target.base, source.base),))


def _emit(module: Module, name: str) -> Kernel:
    kernel = Kernel(module, name, [("source", PTR), ("target", PTR), ("size", I64)])
    f, source, target = kernel.function, kernel["source"], kernel["target"]
    with f.when(f.compare("ne", source, target)):
        low, high = kernel.share(kernel["size"])
        f.copy(f.address(target, low, I8), f.address(source, low, I8), high - low)
    kernel.finish()
    return kernel
