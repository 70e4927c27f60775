"""The devices by name, imported when asked for."""

from __future__ import annotations

import warnings
from importlib import import_module

from ..errors import DeviceError
from .base import Backend

DEVICES: dict[str, str] = {"reference": "reference:Reference", "cpu": "cpu.backend:Cpu",
                          "mlx": "mlx.backend:Mlx"}
"""Module and class of each device; a module is imported at first use."""
DEFAULT, FALLBACK = "cpu", "reference"
"""The device of whoever names none, and the one in its place where it cannot run."""


def device(name: str) -> Backend:
    """The device `name`, available or not."""
    if (where := DEVICES.get(name) if isinstance(name, str) else None) is None:
        raise DeviceError(f"there is no device '{name}'", hint=f"one of {', '.join(DEVICES)}")
    module, _, cls = where.partition(":")
    return getattr(import_module(f".{module}", __package__), cls)()


def default() -> str:
    """The name of the device for whoever names none; a warning says why it is the fallback."""
    if not (why := device(DEFAULT).unavailable()):
        return DEFAULT
    warnings.warn(f"models run on the slow device '{FALLBACK}': '{DEFAULT}' cannot run here: {why}",
                  stacklevel=4)
    return FALLBACK


def usable(name: str | None = None) -> Backend:
    """The device `name`, or the default one; an error says why a device cannot run here."""
    found = device(name or default())
    if why := found.unavailable():
        raise DeviceError(f"the device '{found.name}' cannot run here: {why}",
                          hint="`treadle devices` lists what can")
    return found
