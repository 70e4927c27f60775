"""What MLX drives here."""

from __future__ import annotations

import shutil
from typing import cast

import mlx.core as mx

from .arrays import on_gpu
from .owner import owner


def text() -> str:
    """The device in words."""
    return owner().call(_text)


def _text() -> str:
    if not on_gpu():
        return "on the CPU" + (f" ({why})" if (why := uncompiled()) else "")
    found = mx.device_info(cast("mx.DeviceType", mx.gpu))
    memory = found.get("memory_size") or found.get("total_memory")
    size = f", {int(memory) / 2**30:.0f} GiB" if isinstance(memory, int) else ""
    return f"on {found.get('device_name', 'a GPU')}{size}"


def usual_mode() -> str:
    """The mode of whoever chooses none: on the CPU each kernel of a trace costs a second."""
    return "compiled" if on_gpu() else "lazy"


def uncompiled() -> str:
    """Why MLX's compiler fuses nothing here, or nothing.

    On the CPU it calls the C++ compiler `g++` while running, and without one silently leaves
    operations apart.
    """
    if on_gpu() or shutil.which("g++"):
        return ""
    return "no g++ in PATH, without which MLX compiles nothing on the CPU"
