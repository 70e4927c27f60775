"""Vector mathematics as expressions of simpler primitives, in f32 and f64.

Errors are in units in the last place (ulp) against the exact result rounded once: `table.BOUNDS`,
measured by tests/loops/test_functions.py. Infinities, NaN, signed zeros and denormals come out as
IEEE 754 functions should give them. Coefficients that are not cited come from tools/polynomials.py.
"""

from .opening import open_functions
from .table import BOUNDS, FUNCTIONS, UNITS

__all__ = ["BOUNDS", "FUNCTIONS", "UNITS", "open_functions"]
