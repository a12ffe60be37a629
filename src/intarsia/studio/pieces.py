"""Pieces of the page as HTML: figures, tiles, small bars, the picture that the network sees."""

import base64
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from torch import Tensor

from intarsia.figures import confusion_figure
from intarsia.measure import Evaluation, Matrix
from intarsia.measure.compatibility import MEASURES
from intarsia.studio.answers import Answer
from intarsia.studio.scores import changes, entropy_on, overall
from intarsia.studio.session import Card

NAMED_UP_TO = 12  # classes whose names stand below their bars
SHOWN_NUMBERS = 12  # of a row of a table that is shown


def tile(card: Card) -> str:
    """The lines of a tile: its name, and below it how good it is and how much of it is left."""
    classes = "+".join(card.rewarded)
    title = card.name if card.name == classes else f"{card.name} ({classes})"
    decimals = 0 if card.density >= 0.1 else 1
    return f"{title}\n{_number(card.accuracy, 3)} · {card.density:.{decimals}%} kept"


def accuracy_figure(score: Evaluation) -> str:
    on, there = len(score.rewarded), len(score.catalogue)
    return _big(
        "Accuracy",
        _number(score.accuracy),
        f"on the classes that are on, {on} of {there}",
        f"{_number(overall(score))} on all {score.n:,} test samples",
    )


def entropy_figure(score: Evaluation) -> str:
    off = entropy_on(score, rewarded=False)
    what = "on the classes that are off" if not math.isnan(off) else "no class is off"
    return _big(
        "Entropy",
        _number(off, 3),
        f"{what}; at most {score.ceiling:.3f}",
        f"{_number(entropy_on(score, rewarded=True), 3)} on the classes that are on",
    )


def change_figure(done: str, before: Evaluation, after: Evaluation) -> str:
    """What the last switch did."""
    lines = [
        f"<li><b>{escape(name)}</b> {_number(was, 3)} &rarr; {_number(now, 3)}</li>"
        for name, was, now in changes(before, after)
    ]
    moved = f"{_number(overall(before))} &rarr; {_number(overall(after))} on all samples"
    per_class = f"<ul>{''.join(lines)}</ul>" if lines else _small("no class changed much")
    title = f"Last switch: {escape(done)}"
    return f"<div class='figure'><h2>{title}</h2><p>{moved}</p>{per_class}</div>"


def first_figure() -> str:
    return "<div class='figure'><h2>Last switch</h2>" + _small("none yet: click a tile") + "</div>"


def confusion_picture(score: Evaluation, title: str) -> str:
    """The matrix on its own paper; a screen reader gets the figures of every class."""
    rows = "".join(
        f"<li>{escape(name)}: {_number(float(share), 3)}</li>"
        for name, share in zip(score.catalogue, score.accuracy_per_class, strict=True)
    )
    svg = confusion_figure({title: score.confusion}, score.catalogue)
    return f"<div class='picture'>{svg}</div><ul class='unseen'>{rows}</ul>"


def answer_rows(answers: Sequence[Answer], on: Sequence[str]) -> str:
    """Every module's distribution as small bars, those that are off paler."""
    return "<div class='answers'>" + "".join(_row(a, a.name in on) for a in answers) + "</div>"


def whole_bars(answers: Mapping[str, Answer], truth: str | None) -> str:
    """The composition's distribution, beside it the one with a class taken out."""
    panels = []
    for title, answer in answers.items():
        right = "" if truth is None else (" right" if answer.best == truth else " wrong")
        verdict = f"{answer.best} with {answer.sureness:.3f}"
        panels.append(
            f"<section class='whole{right}'><h2>{escape(title)}</h2>"
            f"<p class='verdict'>{escape(verdict)}</p>{_bars(answer, truth)}"
            f"<p class='small'>entropy {answer.entropy:.2f} of the largest</p></section>"
        )
    return f"<div class='wholes'>{''.join(panels)}</div>"


def seen_picture(x: Tensor, caption: str, bounds: tuple[float, float]) -> str:
    """What the network is given: small pictures as they are, rows of a table as numbers."""
    words = f"<p class='small'>{escape(caption)}</p>"
    shape = tuple(x.shape[1:])
    if len(shape) != 3 or shape[0] not in (1, 3):
        numbers = [f"{value:.3g}" for value in x[0].flatten()[:SHOWN_NUMBERS].tolist()]
        more = ", ..." if x[0].numel() > SHOWN_NUMBERS else ""
        return f"<div class='seen'><code>{', '.join(numbers)}{more}</code>{words}</div>"
    low, high = bounds
    grey = ((x[0].double() - low) / max(high - low, 1e-12)).clamp(0, 1) * 255
    address = png(grey.round().byte().permute(1, 2, 0).numpy())
    size = f"{shape[2]} by {shape[1]} pixels"
    alt = f"the {size} that the network sees"
    return f"<div class='seen'><img src='{address}' alt='{alt}'/>{words}</div>"


def matrix_table(matrix: Matrix, measure: str, chosen: tuple[str, str] | None) -> str:
    """One measure between every two modules; a cell is a button that chooses its pair."""
    values = matrix[measure]
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    heads = "".join(f"<th scope='col'>{escape(name)}</th>" for name in matrix.names)
    rows = []
    for i, one in enumerate(matrix.names):
        cells = "".join(
            _cell(one, other, float(values[i, j]), (low, high), chosen)
            for j, other in enumerate(matrix.names)
        )
        rows.append(f"<tr><th scope='row'>{escape(one)}</th>{cells}</tr>")
    title = measure.replace("_", " ")
    meaning = f"{title}: {MEASURES[measure]}; {matrix.samples} samples"
    return (
        f"<div class='scrolls'><table class='matrix'><caption>{escape(meaning)}</caption>"
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def message(text: str, bad: bool = False) -> str:
    """One line to the person; what went wrong stands out."""
    if not text:
        return ""
    return f"<p class='{'bad' if bad else 'good'}' role='status'>{escape(text)}</p>"


def png(pixels: np.ndarray) -> str:
    """A picture, H x W x 1 or 3 bytes, as an address that holds it."""
    height, width, channels = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)  # no filter
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
    whole = b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
    return "data:image/png;base64," + base64.b64encode(whole).decode()


def _row(answer: Answer, on: bool) -> str:
    verdict = f"{answer.best} {answer.sureness:.2f}"
    state = "" if on else "<span class='small'>off</span>"
    return (
        f"<div class='answer{'' if on else ' off'}'><b>{escape(answer.name)}</b>{state}"
        f"{_bars(answer, None, named=False)}<span class='small'>{escape(verdict)}</span></div>"
    )


def _bars(answer: Answer, truth: str | None, named: bool = True) -> str:
    """One bar a class; the names below where there is room for them."""
    named = named and len(answer.catalogue) <= NAMED_UP_TO
    bars = []
    for name, p in zip(answer.catalogue, answer.probabilities, strict=True):
        kind = "best" if name == answer.best else ""
        mark = "<i aria-hidden='true'></i>" if name == truth else ""
        label = f"<span>{escape(name[:6])}</span>" if named else ""
        height = max(0.0, min(1.0, float(p))) * 100
        bars.append(
            f"<div class='bar {kind}' title='{escape(name, quote=True)}: {p:.3f}'>"
            f"<div><em style='height:{height:.1f}%'></em></div>{label}{mark}</div>"
        )
    words = escape(f"{answer.name}: {answer.best} with {answer.sureness:.3f}", quote=True)
    return f"<div class='bars' role='img' aria-label='{words}'>{''.join(bars)}</div>"


def _cell(
    one: str,
    other: str,
    value: float,
    ends: tuple[float, float],
    chosen: tuple[str, str] | None,
) -> str:
    if one == other:
        return "<td class='none'></td>"
    share = 0.0 if math.isnan(value) else (value - ends[0]) / max(ends[1] - ends[0], 0.01)
    words = f"{one} and {other}: {_number(value, 3)}"
    pressed = "true" if chosen and {*chosen} == {one, other} else "false"
    return (
        f"<td><button type='button' style='--share:{share * 100:.0f}%' "
        f"data-one='{escape(one, quote=True)}' data-other='{escape(other, quote=True)}' "
        f"aria-pressed='{pressed}' aria-label='{escape(words, quote=True)}'>"
        f"{_number(value, 3)}</button></td>"
    )


def _big(title: str, value: str, *lines: str) -> str:
    words = "".join(map(_small, lines))
    return f"<div class='figure'><h2>{title}</h2><p class='big'>{value}</p>{words}</div>"


def _small(words: str) -> str:
    return f"<p class='small'>{escape(words)}</p>"


def _number(value: float, decimals: int = 4) -> str:
    return "-" if math.isnan(value) else f"{round(value, decimals) + 0.0:.{decimals}f}"
