"""Packed parameters, shared by the programs of a process that pack the same array alike."""

from __future__ import annotations

import threading
from typing import TypeAlias, cast
from weakref import WeakValueDictionary

from ...declare.arrays import Array
from .addresses import Place, array_at
from .assembly import Assembled, HostStep
from .lowered import Packed

Use: TypeAlias = "tuple[str, int]"
"""A kernel's key and the number of its word: what a packed form must be good for."""


class Shared:
    """A packed form, and the array that it was made of."""

    __slots__ = ("__weakref__", "base", "data")

    def __init__(self, base: Array, data: Array) -> None:
        self.base, self.data = base, data


_made: WeakValueDictionary[tuple[Use, int, Place], Shared] = WeakValueDictionary()
_lock = threading.Lock()


def packs(whole: Assembled) -> dict[Packed, Use]:
    """The packed words of a program with their uses."""
    return {w: (c.lowered.key, i) for s in whole.stages for step in s.steps
            if not isinstance(step, HostStep) for c in step.calls()
            for i, w in enumerate(c.lowered.words) if isinstance(w, Packed)}


def shared(packed: Packed, use: Use, base: Array, at: Place) -> Shared:
    """The packed form of a view of an array; made unless some program holds it.

    Kernels of equal key read equal layouts, and an array that is a parameter never changes.
    """
    key = (use, id(base), at)  # whoever holds the form holds the array, so that its id is its own
    with _lock:
        found = _made.get(key)
    if found is None:
        view = array_at(base, at, packed.view.base)
        found = Shared(base, cast(Array, packed.pack(view)))
        with _lock:
            found = _made.setdefault(key, found)
    return found
