"""Regions of interest, sampling grids, columns and image files."""

from __future__ import annotations

from importlib.util import find_spec

from ....errors import Declined
from ....ir.graph import Value
from ..context import Context
from ..registry import MICROSOFT, importer
from .shape import op

_MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic",
          "nearest": "nearest"}


def _mode(mode: str) -> str:
    if mode not in _MODES:
        raise Declined(f"the mode '{mode}'", hint=f"one of {', '.join(_MODES)}")
    return _MODES[mode]


@importer("RoiAlign", until=15)
def roi_align_10(ctx: Context, x: Value, rois: Value, batch_indices: Value, *, mode: str = "avg",
                 output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
                 spatial_scale: float = 1.0) -> Value:
    """Corners that are not shifted by half a pixel."""
    return op("roi_align", x, rois, batch_indices, mode=mode, size=(output_height, output_width),
              sampling_ratio=sampling_ratio, scale=spatial_scale, half_pixel=False)


@importer("RoiAlign", since=16)
def roi_align(ctx: Context, x: Value, rois: Value, batch_indices: Value, *,
              coordinate_transformation_mode: str = "half_pixel", mode: str = "avg",
              output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
              spatial_scale: float = 1.0) -> Value:
    """Bins of regions, read bilinearly."""
    modes = {"half_pixel": True, "output_half_pixel": False}
    if coordinate_transformation_mode not in modes:
        raise Declined(f"RoiAlign with '{coordinate_transformation_mode}'")
    return op("roi_align", x, rois, batch_indices, mode=mode, size=(output_height, output_width),
              sampling_ratio=sampling_ratio, scale=spatial_scale,
              half_pixel=modes[coordinate_transformation_mode])


@importer("MaxRoiPool")
def max_roi_pool(ctx: Context, x: Value, rois: Value, *, pooled_shape: tuple[int, ...],
                 spatial_scale: float = 1.0) -> Value:
    """The maximum of each bin of regions."""
    return op("max_roi_pool", x, rois, size=pooled_shape, scale=spatial_scale)


@importer("CropAndResize", domain=MICROSOFT)
def crop_and_resize(ctx: Context, x: Value, rois: Value, batch_indices: Value, crop_size: Value,
                    *, mode: str = "bilinear", extrapolation_value: float = 0.0) -> Value:
    """Regions resized to one size."""
    return op("crop_and_resize", x, rois, batch_indices, size=ctx.sizes(crop_size, "crop_size"),
              mode=_mode(mode), fill=extrapolation_value)


@importer("GridSample")
@importer("GridSample", domain=MICROSOFT)
def grid_sample(ctx: Context, x: Value, grid: Value, *, align_corners: int = 0,
                mode: str = "bilinear", padding_mode: str = "zeros") -> Value:
    """x read at the positions of a grid; the modes had other names before opset 20."""
    return op("grid_sample", x, grid, mode=_mode(mode), padding=padding_mode,
              align_corners=bool(align_corners))


@importer("AffineGrid")
def affine_grid(ctx: Context, theta: Value, size: Value, *, align_corners: int = 0) -> Value:
    """The positions of affine maps; `size` starts with N and C."""
    batch, _, *space = ctx.sizes(size, "size")
    theta = op("expand", theta, shape=(batch, *theta.shape[1:]))
    return op("affine_grid", theta, size=tuple(space), align_corners=bool(align_corners))


@importer("Col2Im")
def col2im(ctx: Context, x: Value, image_shape: Value, block_shape: Value, *,
           dilations: tuple[int, ...] = (), pads: tuple[int, ...] = (),
           strides: tuple[int, ...] = ()) -> Value:
    """Columns added up in images."""
    return op("col2im", x, image=ctx.sizes(image_shape, "image_shape"),
              kernel=ctx.ints(block_shape, "block_shape"), strides=strides, dilations=dilations,
              pads=pads)


@importer("ImageDecoder")
def image_decoder(ctx: Context, stream: Value, *, pixel_format: str = "RGB") -> Value:
    """An image file as pixels, where Pillow is there to read it."""
    if find_spec("PIL") is None:
        raise Declined("ImageDecoder reads images by Pillow, which is not installed",
                       hint="pip install 'treadle[images]', or decode before the model")
    return op("decode_image", stream, pixel_format=pixel_format, fresh=ctx.fresh("image"))
