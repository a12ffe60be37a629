"""Checks that the networks for images share."""

from intarsia.errors import ModelError


def image_shape(model: str, shape: tuple[int, ...], least: int) -> tuple[int, int, int]:
    """Channels, height and width, or our error where there is no image or a too small one."""
    if len(shape) != 3:
        raise ModelError(
            f"{model} reads images: expected a shape (channels, height, width), got {shape}; "
            "use mlp for tables"
        )
    channels, height, width = shape
    if min(height, width) < least:
        raise ModelError(
            f"{model} needs images of at least {least} x {least}, got {height} x {width}: "
            "use mlp, or enlarge the images"
        )
    return channels, height, width


def check_width(model: str, width: int) -> None:
    if not isinstance(width, int) or width < 1:
        raise ModelError(f"{model}: width is {width!r}: expected a whole number of at least 1")
