"""A picture or a text that a visitor brings, as features: read and encoded once, then kept."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from intarsia.data.sources.image_folders import pixels_of
from intarsia.encoders import Encoder
from intarsia.errors import DataError, FileError, IntarsiaError, ModelError
from intarsia.modules import Module
from intarsia.studio.web.studio_limits import StudioLimits, megabytes

FORMATS = {
    "PNG": (".png",),
    "JPEG": (".jpg", ".jpeg"),
    "WEBP": (".webp",),
    "GIF": (".gif",),
    "BMP": (".bmp",),
}
"""What pictures may be: Pillow's names, and the endings of files. It has many more readers."""

ENDINGS = tuple(ending for endings in FORMATS.values() for ending in endings)
WHITE = 255.0  # of a picture's pixels


@dataclass(frozen=True, eq=False)
class EncodedInput:
    """A raw input by its features, 1 x F, and what is shown of it."""

    features: Tensor
    pixels: Tensor | None = None  # 1 x C x H x W in 8 bits, of a picture
    text: str = ""


class InputReader:
    """Reads what visitors bring for one encoder: pictures, or texts."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    @classmethod
    def of(cls, modules: Sequence[Module]) -> "InputReader | None":
        """For the encoder that these modules share; None where there is none.

        Of an encoder of one's own, that module's is taken which has the network.
        """
        encoders = [module.encoder for module in modules if module.encoder is not None]
        here = [encoder for encoder in encoders if encoder.network is not None]
        return cls([*here, *encoders][0]) if encoders else None

    @property
    def kind(self) -> Literal["picture", "text", "other"]:
        """What the encoder reads; rows of a table, say, are no input that a page could take."""
        if getattr(self.encoder, "reads_texts", False):
            return "text"
        shape = self.encoder.shape
        return "picture" if len(shape) == 3 and shape[0] in (1, 3) else "other"

    def missing(self) -> str:
        """Why the encoder cannot be used on this machine; empty where it can."""
        try:
            self.encoder.found()
        except IntarsiaError as error:
            return str(error)
        except Exception as error:  # of whatever package makes it
            return f"the encoder {self.encoder} cannot be made: {type(error).__name__}: {error}"
        return ""

    def picture(self, pixels: Tensor) -> EncodedInput:
        """The features of C x H x W pixels in 8 bits, as `read_picture` gives them."""
        rows, white = pixels[None], self._white()
        scaled = rows if white == WHITE else rows.to(torch.float32) * (white / WHITE)
        return EncodedInput(self._features(lambda: scaled), pixels=rows)

    def text(self, given: Any, limits: StudioLimits) -> EncodedInput:
        """The features of a text."""
        if not isinstance(given, str) or not given.strip():
            raise DataError("the text is empty: write something first")
        if len(given) > limits.text_characters:
            raise DataError(
                f"the text has {len(given):,} characters, the limit is {limits.text_characters:,}: "
                "give a part of it"
            )
        text = given.encode("utf-8", "replace").decode()  # half of a surrogate pair is no text
        return EncodedInput(self._features(lambda: self.encoder.tokens([text])), text=text)

    def _features(self, rows: Callable[[], Tensor]) -> Tensor:
        try:
            return self.encoder(rows())
        except IntarsiaError:
            raise
        except Exception as error:  # an encoder of one's own may raise anything
            raise ModelError(
                f"the encoder {self.encoder} fails on this: {type(error).__name__}: {error}"
            ) from error

    def _white(self) -> float:
        """The value that white had in training: that of a setting, or that of 8 bits."""
        spec = self.encoder.spec
        return WHITE if spec is None else float(spec.arguments.get("white", WHITE))


def read_picture(path: Path, shape: tuple[int, ...], limits: StudioLimits) -> Tensor:
    """A file as C x H x W pixels in 8 bits, brought to the size and the colours of a shape.

    It is refused by its bytes, its format and the pixels that its header names, before any of them
    is unpacked. Of an animation it is the first picture.
    """
    from PIL import Image

    name, size = path.name, path.stat().st_size
    if size > limits.picture_bytes:
        raise FileError(
            f"{name}: has {megabytes(size)}, the limit is {megabytes(limits.picture_bytes)}: make "
            "the picture smaller"
        )
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            Image.open(path, formats=tuple(FORMATS)) as image,
        ):
            if image.width * image.height > limits.picture_pixels:
                raise _too_large(name, f"{image.width:,} x {image.height:,}", limits)
            pixels = pixels_of(image, name, (shape[1], shape[2]), shape[0])
    except IntarsiaError:
        raise
    except Image.UnidentifiedImageError:
        raise FileError(f"{name}: is not a picture: choose one of {', '.join(FORMATS)}") from None
    except Image.DecompressionBombError:  # so large that Pillow does not even tell how large
        raise _too_large(name, "far more", limits) from None
    except Exception as error:  # what Pillow's readers raise for damaged files is anything
        said = str(error).replace(str(path), name)
        raise FileError(f"{name}: cannot be read as a picture: {said}") from error
    return torch.tensor(pixels).permute(2, 0, 1).contiguous()


def _too_large(name: str, seen: str, limits: StudioLimits) -> FileError:
    return FileError(
        f"{name}: has {seen} pixels, the limit is {limits.picture_pixels:,} in all: make the "
        "picture smaller"
    )
