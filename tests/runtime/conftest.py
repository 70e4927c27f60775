"""The devices that are here."""

from __future__ import annotations

import pytest

from tests.runtime.surface import HERE


@pytest.fixture(params=HERE)
def on(request: pytest.FixtureRequest) -> str:
    """The name of a device."""
    return str(request.param)
