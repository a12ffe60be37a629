"""Pictures: hue, saturation and value as RGB, image files and arrays, and PNG bytes.

A picture is square, size x size x 3, floats from 0 to 1. Pixels of a network are (3, pixels), row
by row from the top left.
"""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from intarsia.data.sources.budget import check_entries, file_size
from intarsia.data.sources.image_folders import FORMATS, pillow, pixels_of
from intarsia.errors import DataError, RecipeError, shortened

SMALLEST, LARGEST = 2, 2048  # pixels along an edge
NEEDS = "image files and PNG sizes"  # the package pillow
FLAT = 1e-6  # a picture whose channels all vary less than this has one colour


def rgb(hsv: Tensor) -> Tensor:
    """Raw outputs h, s, v of networks, (..., 3, pixels), as red, green and blue.

    hue = (h + 1) mod 1, saturation = clip(s, 0, 1), value = clip(|v|, 0, 1). Each channel is
    value - value * saturation * clip(min(k, 4 - k), 0, 1), where k = (n + 6 hue) mod 6 and n is 5
    for red, 3 for green and 1 for blue.
    """
    hue, saturation, value = hsv.unbind(-2)
    hue = (hue + 1) % 1
    value = value.abs().clamp(0, 1)
    chroma = value * saturation.clamp(0, 1)
    channels = []
    for n in (5, 3, 1):
        k = (n + 6 * hue) % 6
        channels.append(value - chroma * torch.minimum(k, 4 - k).clamp(0, 1))
    return torch.stack(channels, -2)


def check_size(size: Any, name: str = "size") -> int:
    """The edge of a picture in pixels, or our error."""
    if isinstance(size, bool) or not isinstance(size, int) or not SMALLEST <= size <= LARGEST:
        raise RecipeError(
            f"{name} is {shortened(size)}: expected a whole number of pixels from {SMALLEST} to "
            f"{LARGEST}"
        )
    return size


def read_picture(source: Any, size: int | None = None) -> Tensor:
    """A picture from an image file or an array, brought to `size` where one is given.

    An array is H x W, grey, or H x W x 3, of bytes or of floats from 0 to 1; anything that is not
    square, is not finite or has one colour is refused.
    """
    if isinstance(source, str | os.PathLike):
        where, values = str(source), _pixels_of_file(Path(source))
    else:
        where, values = "the picture", source
    picture = _checked(values, where)
    if size is None:
        check_size(len(picture), f"the edge of {where}")
        return picture
    return resized(picture, check_size(size))


def resized(picture: Tensor, size: int) -> Tensor:
    """The picture at another size: bilinear, averaged where it becomes smaller."""
    if len(picture) == size:
        return picture
    stacked = picture.permute(2, 0, 1)[None]
    scaled = functional.interpolate(
        stacked, (size, size), mode="bilinear", align_corners=False, antialias=True
    )
    return scaled[0].permute(1, 2, 0).clamp(0, 1).contiguous()


def to_bytes(picture: Tensor) -> np.ndarray:
    """H x W x 3 as uint8, rounded."""
    values: np.ndarray = (picture.detach().cpu().clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    return values


def png(picture: Tensor | np.ndarray) -> bytes:
    """The picture as a PNG file: as small as Pillow makes it, with `optimize`."""
    pixels = to_bytes(picture) if isinstance(picture, Tensor) else picture
    file = io.BytesIO()
    pillow(NEEDS).fromarray(pixels).save(file, format="PNG", optimize=True)
    return file.getvalue()


def png_encoder() -> str:
    """The versions of what writes PNG files here, since sizes depend on them."""
    from PIL import features

    pillow(NEEDS)
    return f"pillow {features.version('pil')}, zlib {features.version('zlib')}"


def side_by_side(pictures: Tensor, columns: int = 8) -> Tensor:
    """Pictures K x size x size x 3 as one, in rows with a white line of a pixel between them."""
    count, size = len(pictures), pictures.shape[1]
    columns = min(columns, count)
    rows = -(-count // columns)
    page = torch.ones(rows * (size + 1) - 1, columns * (size + 1) - 1, 3)
    for place, picture in enumerate(pictures):
        row, column = divmod(place, columns)
        top, left = row * (size + 1), column * (size + 1)
        page[top : top + size, left : left + size] = picture.cpu()
    return page


def _checked(values: Any, where: str) -> Tensor:
    """H x W x 3 floats from 0 to 1, once they are a picture with more than one colour."""
    try:
        # a copy, since torch reads no array that was flipped
        pixels = values if isinstance(values, Tensor) else torch.tensor(np.array(values, order="C"))
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{where} is a {type(values).__name__}, which holds no pixels ({error}): give the path "
            "of an image file, or an array of H x W x 3"
        ) from error
    pixels = pixels.detach().cpu()
    pixels = pixels[..., None].expand(-1, -1, 3) if pixels.ndim == 2 else pixels
    shape = tuple(pixels.shape)
    if len(shape) != 3 or shape[2] != 3:
        raise DataError(
            f"{where} has shape {shape}: expected H x W, or H x W x 3 for red, green and blue"
        )
    if shape[0] != shape[1] or not shape[0]:
        raise DataError(
            f"{where} has {shape[0]} x {shape[1]} pixels: a pattern network draws squares; crop it "
            "to as many rows as columns"
        )
    if pixels.dtype == torch.uint8:
        pixels = pixels.float() / 255
    elif not pixels.is_floating_point():
        raise DataError(
            f"{where} holds {str(pixels.dtype).removeprefix('torch.')}: expected bytes (uint8), or "
            "floats from 0 to 1"
        )
    pixels = pixels.float().contiguous()
    if not bool(pixels.isfinite().all()):
        raise DataError(f"{where} has a pixel that is not a finite number: expected 0 to 1")
    low, high = float(pixels.min()), float(pixels.max())
    if low < 0 or high > 1:
        raise DataError(
            f"{where} has values from {low:g} to {high:g}: expected floats from 0 to 1, or bytes"
        )
    if float((pixels.amax((0, 1)) - pixels.amin((0, 1))).max()) < FLAT:
        raise DataError(
            f"{where} has one colour alone: there is no pattern to fit, and no map or score would "
            "mean anything; give a picture with at least two"
        )
    return pixels


def _pixels_of_file(path: Path) -> np.ndarray:
    if not path.is_file():
        raise DataError(f"there is no image file {path}: check the path")
    images = pillow(NEEDS)
    try:
        with images.open(path, formats=FORMATS) as image:
            check_entries(3 * image.width * image.height, file_size(path), path)
            if image.has_transparency_data:
                ground = images.new("RGBA", image.size, "white")
                image = images.alpha_composite(ground, image.convert("RGBA"))
            return pixels_of(image, path, channels=3)
    except DataError:
        raise
    except Exception as error:  # what Pillow's readers raise for damaged files is anything
        raise DataError(f"{path} cannot be read as an image: {error}") from error
