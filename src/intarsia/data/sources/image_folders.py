"""Folders of image files: one folder per class, or train/ and test/ with one per class in each."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.data.arrays import Raw, as_raw
from intarsia.data.sources.budget import check_entries, file_size
from intarsia.data.sources.formats import reading
from intarsia.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # EPS would start Ghostscript
GREY = ("1", "L", "LA")  # Pillow's modes without colour; a palette may have some
_DEEP = ("I", "F")  # more than 8 bits for each pixel


def from_folder(folder: Path, size: int | Sequence[int] | None = None) -> Raw:
    """Images as uint8, grey if all of them are, else RGB; `size` makes them H x W, or square.

    Names of files do not matter but for their endings; what is hidden, and files of other
    endings, are left out.
    """
    shape = _size(size)
    inside = _folders(folder)
    names = {path.name for path in inside}
    if "train" not in names:
        return as_raw(str(folder), *_read(folder, inside, shape))
    if not names <= {"train", "test"}:
        other = min(names - {"train", "test"})
        raise DataError(
            f"{folder} has the folders train and {other!r}: expected train and test with a folder "
            "for each class in both, or a folder for each class"
        )
    train = _read(folder / "train", _folders(folder / "train"), shape)
    if "test" not in names:
        return as_raw(str(folder), *train)
    height_and_width = train[0].shape[1:3]
    test = _read(folder / "test", _folders(folder / "test"), shape, height_and_width)
    return as_raw(str(folder), *_alike(train, test))


def holds_images(folder: Path) -> bool:
    """Whether a path is a folder with two classes or more, and images in the folder of each."""
    try:
        inside = _folders(folder)
        if "train" in {path.name for path in inside}:
            inside = _folders(folder / "train")
        return len(inside) > 1 and all(
            any(path.suffix.lower() in ENDINGS for path in own.iterdir()) for own in inside
        )
    except (DataError, OSError):  # no folder, or one that may not be read
        return False


def _alike(train: tuple[Any, Any], test: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Both parts with as many channels as the one that has more."""
    most = max(train[0].shape[3], test[0].shape[3])
    x, x_test = (np.repeat(part[0], most // part[0].shape[3], axis=3) for part in (train, test))
    return x, train[1], x_test, test[1]


def _read(
    folder: Path,
    classes: Sequence[Path],
    size: tuple[int, int] | None,
    expected: tuple[int, ...] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """N x H x W x C, and the name of each image's folder."""
    files = [(path, own.name) for own in classes for path in _images(own)]
    if not files:
        raise DataError(
            f"{folder} has no images in folders: expected a folder for each class, with files "
            f"that end in {', '.join(ENDINGS)}"
        )
    pictures = []
    entries = bytes_read = 0
    first: tuple[Path | None, tuple[int, ...] | None] = (None, expected)
    for path, _ in files:
        bytes_read += file_size(path)
        entries += _pixels(path, size)
        check_entries(3 * entries, bytes_read, folder)  # one grey picture may be among colours
        picture = _picture(path, size)
        if first[1] is None:
            first = path, picture.shape[:2]
        elif picture.shape[:2] != first[1]:
            seen, wanted = (" x ".join(map(str, s)) for s in (picture.shape[:2], first[1]))
            raise DataError(
                f"{path} is {seen} pixels, {first[0] or 'the train part'} is {wanted}: have them "
                f"brought to one size with size=, as in size={min(first[1])}"
            )
        pictures.append(picture)
    most = max(picture.shape[2] for picture in pictures)
    x = np.stack([np.repeat(p, most // p.shape[2], axis=2) for p in pictures])
    return x, np.array([name for _, name in files])


def _picture(path: Path, size: tuple[int, int] | None) -> np.ndarray:
    """H x W x 1 or 3."""
    images = pillow()
    try:
        with images.open(path, formats=FORMATS) as image:
            return pixels_of(image, path, size)
    except DataError:
        raise
    except Exception as error:  # what Pillow's many readers raise for damaged files is anything
        raise DataError(f"{path} cannot be read as an image: {error}") from error


def pixels_of(
    image: "Image",
    where: object,
    size: tuple[int, int] | None = None,
    channels: int | None = None,
) -> np.ndarray:
    """H x W x 1 or 3 in 8 bits; as many channels as the picture has, unless they are given."""
    if image.mode.partition(";")[0] in _DEEP:
        raise DataError(
            f"{where} has more than 8 bits for each pixel (mode {image.mode}): convert it to 8 "
            "bits, or give the arrays as .npz"
        )
    is_grey = image.mode in GREY if channels is None else channels == 1
    plain = image.convert("L" if is_grey else "RGB")
    if size is not None and (plain.height, plain.width) != size:
        plain = plain.resize((size[1], size[0]), pillow().Resampling.BILINEAR)
    array = np.asarray(plain)
    return array.reshape(*array.shape[:2], -1)


def _pixels(path: Path, size: tuple[int, int] | None) -> int:
    """How many a picture has by its header, or will have, whichever is more."""
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            pillow().open(path, formats=FORMATS) as image,
        ):
            return max(image.width * image.height, 1 if size is None else size[0] * size[1])
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path} cannot be read as an image: {error}") from error


def pillow(what: str = "folders of images") -> Any:
    """The package's Image, which `what` needs."""
    try:
        from PIL import Image
    except ImportError:
        raise DataError(
            f"{what} need the package pillow: install it with pip install 'intarsia[images]'"
        ) from None
    return Image


def _folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}")
    with reading(folder):
        inside = [path for path in folder.iterdir() if path.is_dir() and path.name[0] not in "._"]
    return sorted(inside, key=lambda path: path.name)


def _images(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).parts):
        if path.suffix.lower() in ENDINGS and path.name[0] != "." and path.is_file():
            yield path


def _size(given: Any) -> tuple[int, int] | None:
    if given is None:
        return None
    sizes = [given, given] if isinstance(given, int) else given
    if (
        not isinstance(sizes, list | tuple)
        or len(sizes) != 2
        or not all(type(n) is int and n > 0 for n in sizes)
    ):
        raise DataError(f"size is {given!r}: expected pixels as one number, or as [height, width]")
    return sizes[0], sizes[1]
