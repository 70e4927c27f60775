"""Matrix multiplication templates: packed panels, register tiles, epilogues."""

from .integer import integer_plan, pack_integer
from .kernel import emit_matmul
from .pack import pack
from .shape import chunks_for, scratch_bytes
from .spec import BatchAxis, Epilogue, Extent, ExtraOperand, Matmul, Place, Prologue
from .tiles import Tile, tile_for

__all__ = [
    "BatchAxis", "Epilogue", "Extent", "ExtraOperand", "Matmul", "Place", "Prologue", "Tile",
    "chunks_for", "emit_matmul", "integer_plan", "pack", "pack_integer", "scratch_bytes",
    "tile_for",
]
