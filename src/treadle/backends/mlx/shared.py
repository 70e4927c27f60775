"""Parameters on the device, shared by the programs of a process that hold the same arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast
from weakref import WeakValueDictionary

import mlx.core as mx

from ...declare.arrays import Array
from .arrays import to_mlx
from .lowering import Form, Join, Pack
from .walk import evaluate

Key: TypeAlias = "tuple[object, tuple[int, ...]]"


class Shared:
    """A form of arrays on the device, evaluated, and the arrays that it was made of."""

    __slots__ = ("__weakref__", "bases", "form")

    def __init__(self, bases: Sequence[Array], form: Form) -> None:
        self.bases, self.form = tuple(bases), form


_made: WeakValueDictionary[Key, Shared] = WeakValueDictionary()


def shared(bases: Sequence[Array], pack: Pack | Join | None) -> Shared:
    """The plain form of one array, or a packed one; made unless some program holds it.

    Arrays that are parameters never change. It is called in the owner's turn alone.
    """
    key = (pack, tuple([id(b) for b in bases]))  # whoever holds the form holds the arrays
    if (found := _made.get(key)) is None:
        form = _form(bases, pack)
        evaluate([form])
        found = _made[key] = Shared(bases, form)
    return found


def _form(bases: Sequence[Array], pack: Pack | Join | None) -> Form:
    if pack is None:
        return to_mlx(bases[0])
    if callable(pack):
        return cast("Callable[[mx.array], Form]", pack)(to_mlx(bases[0]))
    return pack.join(bases)
