"""Calls that need no checks but a few: the shapes have been bound before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..backends.base import Call
from ..declare.arrays import Array, np_dtype
from .signature import Signature

KEPT = 64
"""Shapes whose calls an executable keeps."""
_SOLID = 0x101
"""NPY_ARRAY_C_CONTIGUOUS and NPY_ARRAY_ALIGNED in `ndarray.flags.num`."""
Shapes: TypeAlias = "tuple[tuple[int, ...], ...]"


class Calls:
    """Calls by the shapes of their inputs.

    What a call found here skips has been checked for equal shapes: ranks, limits, and agreement of
    sizes. Names, dtypes, byte order, contiguity and alignment are looked at each time; anything
    unusual takes the long way, which also words the errors.
    """

    def __init__(self, signature: Signature) -> None:
        self.outputs = [leaf.name for leaf in signature.outputs]
        self._names = [leaf.name for leaf in signature.inputs]
        leaves = (*signature.inputs, *signature.outputs)
        self._able = all(leaf.dtype.numpy and leaf.dtype.sort not in ("host", "string")
                         for leaf in leaves)
        self._dtypes, self._made = (
            [np_dtype(leaf.dtype) for leaf in leaves] if self._able else []
            for leaves in (signature.inputs, signature.outputs))
        self._kept: OrderedDict[Shapes, Call] = OrderedDict()

    def find(self, args: Sequence[Any], named: Mapping[str, Any]
             ) -> tuple[Call, Sequence[Array]] | None:
        """The call for these arguments with one array for each input, or None."""
        if not self._kept:
            return None
        arrays: Sequence[Any] = args
        if not args or (len(args) == 1 and type(args[0]) is dict):
            if args and named:
                return None
            given = args[0] if args else named
            try:
                arrays = [given[n] for n in self._names]
            except KeyError:
                return None
            if len(given) != len(arrays):
                return None
        elif named or len(args) != len(self._names):
            return None
        return self._match(arrays)

    def _match(self, arrays: Sequence[Any]) -> tuple[Call, Sequence[Array]] | None:
        shapes: list[tuple[int, ...]] = []
        for array, dtype in zip(arrays, self._dtypes):  # noqa: B905 - equal, and strict is slower
            if (type(array) is not np.ndarray or array.dtype != dtype
                    or array.flags.num & _SOLID != _SOLID):
                return None
            shapes.append(array.shape)
        call = self._kept.get(tuple(shapes))
        return None if call is None else (call, arrays)

    def targets(self, out: Mapping[str, Array] | None) -> Sequence[Array | None] | None:
        """What takes each output; None where the long way has to look at `out`."""
        if out is None:
            return ()
        if type(out) is not dict:
            return None
        found = [out.get(n) for n in self.outputs]
        plain = self._able and all(
            a is None or solid(a) and a.dtype == dtype and a.flags.writeable
            for a, dtype in zip(found, self._made, strict=True))
        return found if plain and sum(a is not None for a in found) == len(out) else None

    def misses(self, arrays: Sequence[Array]) -> bool:
        """Whether there is no call for these shapes yet."""
        return tuple([a.shape for a in arrays]) not in self._kept

    def keep(self, arrays: Sequence[Array], call: Call) -> None:
        """Use `call` for inputs of these shapes from now on."""
        if self._able:
            self._kept[tuple([a.shape for a in arrays])] = call
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def clear(self) -> None:
        """Forget all calls."""
        self._kept.clear()


def solid(array: object) -> bool:
    """Whether kernels can read an array where it lies: row by row, aligned, without gaps."""
    return type(array) is np.ndarray and array.flags.num & _SOLID == _SOLID
