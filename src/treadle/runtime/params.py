"""What takes the place of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..backends.base import Data
from ..declare.arrays import Encoded, type_of
from ..errors import BindingError
from ..ir.graph import Value
from .signature import Leaf, as_array


def replacements(held: Mapping[str, Value], given: Any) -> dict[str, Data]:  # noqa: ANN401 - what callers have
    """Copies of arrays for parameters by name, row-major and in the machine's byte order."""
    if not isinstance(given, Mapping):
        raise BindingError(f"names of parameters with arrays are needed, got "
                           f"{type(given).__name__}", hint="set_params({name: array})")
    check_names(held, given)
    return {n: _copied(held[n], array) for n, array in given.items()}


def check_names(held: Mapping[str, Value], given: Mapping[str, object]) -> None:
    """Raise for a name that no parameter has."""
    if unknown := [n for n in given if n not in held]:
        names = sorted(held)
        shown = ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
        known = f"the parameters are {shown}" if names else "the model has no parameters"
        raise BindingError(f"there is no parameter '{unknown[0]}'",
                           hint=f"{known}; integers are constants, and so are "
                                "numbers inside bodies and in models built at their first run")


def check_type(value: Value, array: Data) -> None:
    """Raise unless an array has the parameter's type."""
    if (found := type_of(array)) != value.type:
        raise BindingError(f"the parameter {value.name} is {value.type}, got {found}")


def _copied(value: Value, given: Any) -> Data:  # noqa: ANN401 - what callers have
    if isinstance(given, Encoded):
        check_type(value, given)
        return Encoded(given.dtype, given.shape, given.data.copy())
    if value.dtype.sort == "block":
        raise BindingError(f"the parameter {value.name} is {value.type}, got "
                           f"{type(given).__name__}", hint="give encoded blocks of that type")
    leaf = Leaf(value.name, value.dtype, value.type.shape, "parameter")
    array = np.array(as_array(leaf, given), order="C", copy=True)
    check_type(value, array)
    return array
