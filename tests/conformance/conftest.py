"""The devices that every case runs on."""

from __future__ import annotations

import pytest

from tests.conformance.harness import DEVICES, Device


@pytest.fixture(params=DEVICES, ids=[d.name for d in DEVICES])
def device(request: pytest.FixtureRequest) -> Device:
    return request.param
