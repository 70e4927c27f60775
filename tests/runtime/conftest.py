"""The devices that are here."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import pytest

from tests.runtime.surface import HERE
from treadle.config import MLX_MODES


@pytest.fixture(params=HERE)
def on(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a device. Tests are dealt out to the modes of the device "mlx"."""
    name = str(request.param)
    if name != "mlx":
        yield name
        return
    import mlx.core as mx

    monkeypatch.setenv("TREADLE_MLX_MODE", MLX_MODES[crc32(request.node.name.encode()) % 4])
    mx.disable_compile()  # traces run as they are: on the CPU MLX calls g++ for each kernel
    yield name
    mx.enable_compile()
