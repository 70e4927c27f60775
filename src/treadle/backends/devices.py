"""The devices by name, imported when asked for."""

from __future__ import annotations

from importlib import import_module

from ..errors import DeviceError
from .base import Backend

DEVICES: dict[str, str] = {"reference": "reference:Reference", "cpu": "cpu.backend:Cpu"}
"""Module and class of each device; a module is imported at first use."""


def device(name: str) -> Backend:
    """The device `name`, available or not."""
    if (where := DEVICES.get(name)) is None:
        raise DeviceError(f"there is no device '{name}'", hint=f"one of {', '.join(DEVICES)}")
    module, _, cls = where.partition(":")
    return getattr(import_module(f".{module}", __package__), cls)()


def usable(name: str) -> Backend:
    """The device `name`; an error says why it cannot run here."""
    found = device(name)
    if why := found.unavailable():
        raise DeviceError(f"the device '{name}' cannot run here: {why}",
                          hint="`treadle devices` lists what can")
    return found
