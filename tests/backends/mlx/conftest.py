"""Where MLX has no build the tests of its device are left out, and a warning says so."""

from __future__ import annotations

import warnings

from treadle.backends.devices import device

collect_ignore_glob: list[str] = []
if why := device("mlx").unavailable():
    warnings.warn(f"the device 'mlx' is not tested: {why}", stacklevel=1)
    collect_ignore_glob.append("test_*.py")
