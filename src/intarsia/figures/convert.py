"""Figures into files: SVG as it is drawn, PDF and PNG by vl-convert."""

from collections.abc import Callable
from pathlib import Path

from intarsia.errors import FileError, nearest
from intarsia.files import write_whole

FORMATS = ("svg", "pdf", "png")
SCALE = 3  # of a PNG: pixels for each of the drawing's


def save_figure(path: str | Path, svg: str) -> None:
    """Write an SVG text to a file whose ending says the format: .svg, .pdf or .png.

    PDF and PNG need the extra `figures`, which brings its own letters and asks for no network. A
    PDF's letters stay text; its objects may come in another order each time.
    """
    kind = figure_format(path)
    write_whole(path, svg.encode() if kind == "svg" else _converter(kind)(svg))


def figure_format(path: str | Path) -> str:
    """The format that a name's ending says; a format that cannot be written here is an error."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise FileError(
            f"{path}: the ending of a figure is one of .{', .'.join(FORMATS)}: "
            f"{nearest(kind, FORMATS)}"
        )
    if kind != "svg":
        _converter(kind)
    return kind


def _converter(kind: str) -> Callable[[str], bytes]:
    try:
        import vl_convert
    except ImportError:
        raise FileError(
            f"a figure as {kind} needs the package vl-convert-python: "
            "pip install 'intarsia[figures]', or take .svg"
        ) from None
    if kind == "pdf":
        return vl_convert.svg_to_pdf
    return lambda svg: vl_convert.svg_to_png(svg, scale=SCALE)
