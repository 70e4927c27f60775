"""The message classes of ONNX, without the rest of its package.

`import onnx` also brings its checker, composer and text forms, which takes longer than to read and
import a model. `onnx` here has the classes alone; where they are not where they always were, it is
the whole package. A later `import onnx` finds the same classes: protobuf has one for each message.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

_FILE = "onnx_ml_pb2.py"

if TYPE_CHECKING:
    import onnx
    from onnx import AttributeProto
else:
    def _messages() -> object:
        """What defines the classes: the package if it is there already, else one of its files."""
        package = None if "onnx" in sys.modules else find_spec("onnx")
        folders = (package and package.submodule_search_locations) or ()
        path = next((p for f in folders if (p := Path(f, _FILE)).is_file()), None)
        spec = path and spec_from_file_location("_treadle_onnx_messages", path)
        if not spec or spec.loader is None:
            return import_module("onnx")
        found = module_from_spec(spec)
        spec.loader.exec_module(found)
        return found

    onnx = _messages()
    AttributeProto = onnx.AttributeProto

__all__ = ["AttributeProto", "onnx"]
