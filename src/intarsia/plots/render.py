"""Figures as SVG text for pages, as files, and small images inside a page."""

import base64
import io
import re
import warnings
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imsave

from intarsia.errors import FileError, nearest
from intarsia.files import write_whole
from intarsia.plots.style import MISSING_LETTERS, SIGNS, house_style, largest

FORMATS = ("svg", "pdf", "png")
NO_METADATA = {"svg": ("Creator", "Date", "Format", "Type"), "pdf": ("CreationDate",), "png": ()}
TEXT = "font-size: 12px; font-family: 'DejaVu Sans', sans-serif; "
ROOT = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" '
    'font-family="\'DejaVu Sans\', sans-serif" font-size="12" stroke-linejoin="round" role="img" '
    'aria-label="{2}">\n<title>{2}</title>\n<desc>{3}</desc>\n'
)


def svg(figure: Figure) -> str:
    """The figure as SVG text, the same bytes each time, with its title and what its panels show.

    Text stays text, so that a page's reader can search and copy it.
    """
    drawing = _rendered(figure, "svg").decode()
    head = re.search(r'<svg [^>]*viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*>', drawing)
    assert head is not None
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", drawing[head.end() :], count=1)
    root = ROOT.format(head[1], head[2], escape(_title(figure)), escape(_description(figure)))
    return root + _compact(body)


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file whose ending says the format: .svg, .pdf or .png."""
    kind = check_format(path)
    content = svg(figure).encode() if kind == "svg" else _rendered(figure, kind)
    write_whole(path, content)


def check_format(path: str | Path) -> str:
    """The format that a file's ending says; one that is not written here is an error."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise FileError(
            f"{path}: the ending of a figure is one of .{', .'.join(FORMATS)}: "
            f"{nearest(kind, FORMATS)}"
        )
    return kind


def png(pixels: np.ndarray) -> str:
    """A small image as an address that holds it, to be put into a page.

    H x W x 3 bytes are colours; H x W numbers are drawn like weights, zero pale and the largest
    magnitude darkest.
    """
    content, most = io.BytesIO(), largest(pixels)
    how: Any = {"cmap": SIGNS, "vmin": -most, "vmax": most, "metadata": {"Software": None}}
    imsave(content, pixels, format="png", **how)
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"


def _rendered(figure: Figure, kind: str) -> bytes:
    content = io.BytesIO()
    with house_style():
        if kind != "svg":  # these carry their letters, so that others are boxes
            warnings.filterwarnings("default", message=MISSING_LETTERS)
        figure.savefig(content, format=kind, metadata=dict.fromkeys(NO_METADATA[kind]))
    return content.getvalue()


def _title(figure: Figure) -> str:
    return str(figure.get_label()) or ", ".join(filter(None, (a.get_title() for a in figure.axes)))


def _description(figure: Figure) -> str:
    """What every panel shows against what, and the names in the legends."""
    parts = []
    for ax in figure.axes:
        axes = " against ".join(filter(None, (ax.get_ylabel(), ax.get_xlabel())))
        parts.append(": ".join(filter(None, (ax.get_title(), axes))))
    legends = [*figure.legends, *filter(None, (ax.get_legend() for ax in figure.axes))]
    names = [text.get_text() for legend in legends for text in legend.get_texts()]
    said = "; ".join(filter(None, parts))
    return said + (f". Shown are {', '.join(names)}." if names else ".")


def _compact(body: str) -> str:
    """Without what a browser does not need: ids that nothing names, and small parts of pixels."""
    used = set(re.findall(r"#([\w.-]+)", body))
    body = re.sub(r' id="([^"]*)"', lambda name: name[0] if name[1] in used else "", body)
    body = body.replace("xlink:href", "href").replace(TEXT, "")
    body = re.sub(r' transform="rotate\(-0 [^"]*"', "", body)
    body = re.sub(r"<[^>]+>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), body)
    return re.sub(r"\s*\n\s*", "\n", body.strip()) + "\n"
