"""Memory for results: one that cannot fit is refused before anything is allocated."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..errors import OperatorError
from ..ir.dims import Size
from ..ir.types import TensorType, count

LARGEST = 2**59
"""Elements of the largest array that NumPy can describe, empty axes apart."""
SMALL = 1 << 26
"""Results of fewer bytes are not checked."""


def array_bytes(t: TensorType) -> Size:
    """Bytes of the NumPy array of a type, where narrow elements take whole bytes."""
    if t.dtype.sort == "block":
        return t.nbytes()
    return count(t.shape) * max(1, (t.dtype.bits + 7) // 8)


def check_room(nbytes: int) -> None:
    """Raise OperatorError when `nbytes` are more than this process can still get."""
    if nbytes < SMALL:
        return
    if nbytes > (free := available()):
        raise OperatorError(
            f"the result would need {nbytes / 2**30:.4g} GiB, {free / 2**30:.4g} GiB are available",
            hint="bind smaller sizes to the symbolic dims, or check the size that a shape, repeat "
                 "or depth input gives")


def available() -> int:
    """Bytes that this process can still allocate: the machine's, within the address limit."""
    return min(_machine(), _address_space())


def _machine() -> int:
    try:
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return sys.maxsize


def _address_space() -> int:
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        used = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    except (ImportError, OSError, ValueError):
        return sys.maxsize
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(limit - used * resource.getpagesize(), 0)
