"""Parameters that are constants of the code: replacing one compiles anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from ..backends.base import Data, Program
from ..declare.arrays import Array, type_of
from ..ir.graph import Value
from ..records import dataclass
from .specialise import Specialised

Remake: TypeAlias = "Callable[[Mapping[str, Array]], tuple[Program, Specialised | None]]"


@dataclass(frozen=True, slots=True)
class Constants:
    """Values by name, and what compiles the model with others."""

    values: Mapping[str, Array]
    remake: Remake

    def leaves(self) -> dict[str, Value]:
        """Names and types, as parameters have them."""
        return {name: Value(type_of(array), name) for name, array in self.values.items()}

    def others(self, given: Mapping[str, Data]) -> dict[str, Array]:
        """Of what is given, the constants that would change."""
        return {name: array for name, array in given.items()
                if name in self.values and isinstance(array, np.ndarray)
                and array.tobytes() != self.values[name].tobytes()}

    def replaced(self, given: Mapping[str, Array], params: Mapping[str, Data]
                 ) -> tuple[Constants, Program, Specialised | None]:
        """Constants, program and specialised programs with other values; `params` carry over."""
        values = {**self.values, **given}
        program, special = self.remake(values)
        names = {v.name for v in program.graph.params}
        for name, array in params.items():
            if name in names:
                program.set_param(name, array)
        return Constants(values, self.remake), program, special
