"""What the tests of every device's runtime surface share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import treadle
from treadle.backends.devices import DEVICES, device
from treadle.declare.arrays import Array
from treadle.runtime.executable import Executable

HERE = [name for name in DEVICES if not device(name).unavailable()]
Traced = Callable[..., Any]


def compiled(on: str, fn: Traced, *types: str) -> Executable:
    exe = treadle.trace(fn, *types).compile(on)
    assert isinstance(exe, Executable)
    return exe


def names(exe: Executable) -> tuple[list[str], list[str]]:
    return ([leaf.name for leaf in exe.signature.inputs],
            [leaf.name for leaf in exe.signature.outputs])


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)
