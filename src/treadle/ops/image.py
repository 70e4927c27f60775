"""Image files, read by Pillow where it is installed."""

from __future__ import annotations

import io
from typing import Literal

import numpy as np

from ..declare.arrays import Array
from ..declare.kinds import structured
from ..declare.schema import arr, known
from ..errors import OperatorError
from ..ir.dims import sym
from ..ir.types import U8, TensorType

PIXELS = arr(np.frombuffer(b"P6 2 1 255\n\x01\x02\x03\xff\x00\x80", np.uint8), "u8")
"""A binary PPM file of two pixels."""
GRAY = arr(np.frombuffer(b"P5 1 2 255\n\x07\x09", np.uint8), "u8")


def _types(stream: TensorType, *, pixel_format: str, fresh: str) -> TensorType:
    if stream.rank != 1 or stream.dtype is not U8:
        raise OperatorError(f"an encoded image is u8[n], got {stream}")
    if not fresh:
        raise OperatorError("the size of the image depends on the run",
                            hint='name it: fresh="image1"')
    channels = 1 if pixel_format == "Grayscale" else 3
    return TensorType((sym(f"{fresh}_0"), sym(f"{fresh}_1"), channels), U8)


@structured(types=_types, samples=[
    known(PIXELS, fresh="i", expect=[arr([[[1, 2, 3], [255, 0, 128]]], "u8")]),
    known(PIXELS, pixel_format="BGR", fresh="i", expect=[arr([[[3, 2, 1], [128, 0, 255]]], "u8")]),
    known(GRAY, pixel_format="Grayscale", fresh="i", expect=[arr([[[7]], [[9]]], "u8")])])
def decode_image(stream: Array, *, pixel_format: Literal["RGB", "BGR", "Grayscale"] = "RGB",
                 fresh: str = "") -> Array:
    """The pixels [H, W, channels] of an image file given as bytes (ONNX ImageDecoder).

    Reads what Pillow reads: BMP, JPEG, JPEG 2000, TIFF, PNG, WebP and PNM among others. Height
    and width are the symbols `{fresh}_0` and `{fresh}_1`.
    """
    try:
        from PIL import Image
    except ImportError:
        raise OperatorError(
            "image files are read by Pillow, which is not installed",
            hint="pip install 'treadle[images]', or decode before the model") from None
    mode = "L" if pixel_format == "Grayscale" else "RGB"
    try:
        pixels = np.asarray(Image.open(io.BytesIO(stream.tobytes())).convert(mode), np.uint8)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as e:
        raise OperatorError(f"no readable image: {e}",
                            hint="the bytes must be a whole image file") from None
    if pixel_format == "Grayscale":
        return pixels[:, :, None]
    return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels
