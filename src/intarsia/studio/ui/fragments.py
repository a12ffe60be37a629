"""Fragments of the page as HTML: numbers, tiles, small bars, the picture that the network sees."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape

import numpy as np
from torch import Tensor

from intarsia.data import set_name
from intarsia.encoders import Encoder
from intarsia.measure import Evaluation, Matrix
from intarsia.measure.compatibility import MEASURES
from intarsia.modules import Health
from intarsia.plots import confusion_panels, entropy_by_layer, png, svg
from intarsia.studio.answers import Answer, Sample
from intarsia.studio.encoder_inputs import EncodedInput
from intarsia.studio.scores import largest_changes, overall_accuracy
from intarsia.studio.session import ModuleTile

LONGEST = 40  # letters of a name below a bar; the style sheet cuts it where there is less room
NAMED_UP_TO = 12  # classes whose names are written below their bars
SHOWN_NUMBERS = 12  # of a row of a table that is shown
PICTURES = 200  # confusion matrices that are cached
DRAWN = "as the network sees it"
DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
IN_PYTHON = re.compile(r" \((bank\.seed\(0\) picks one|align=\"weights\")\)")
PERCENT = ("interference",)  # measures that are small fractions of accuracy


def tile(module: ModuleTile) -> str:
    """The lines of a tile: its name, and below it its accuracy and how much of it is kept."""
    name, classes = module.name, set_name(module.rewarded, ())
    named = name == classes or name.startswith(f"{classes} (")  # a second one of its name
    decimals = 0 if module.density >= 0.1 else 1
    lines = [
        name if named else f"{name} ({classes})",
        f"{_number(module.accuracy, 3)} · {module.density:.{decimals}%} kept",
    ]
    return "\n".join(lines + [f"\u26a0 {', '.join(module.health)}"] * bool(module.health))


def health_banner(health: Health) -> str:
    """What is wrong, at the top of the page; empty where all is well."""
    if health.ok:
        return ""
    return f"<p class='bad' role='note'><b>Not healthy</b> {escape(health.summary)}</p>"


def accuracy_number(score: Evaluation) -> str:
    on, total = len(score.rewarded), len(score.catalogue)
    return _big(
        "Accuracy, classes that are on",
        _number(score.accuracy),
        f"{on} of {total} classes",
        f"{_number(overall_accuracy(score))} on all {score.n:,} test samples",
    )


def entropy_number(score: Evaluation) -> str:
    """High is right for the classes that are off, low for those that are on."""
    others = set(score.catalogue) - set(score.rewarded)
    on, off = score.entropy_on(score.rewarded), score.entropy_on(others)
    most = f"of {score.ceiling:.3f} at most; "
    if math.isnan(off):
        return _big("Entropy, classes that are on", _number(on, 3), f"{most}no class is off")
    lines = f"{most}high is unsure", f"{_number(on, 3)} on the classes that are on"
    return _big("Entropy, classes that are off", _number(off, 3), *lines)


def change_summary(switch: str, before: Evaluation | None, after: Evaluation) -> str:
    """What the last switch changed; before it there may have been nothing."""
    title = f"Last switch: {escape(switch)}"
    if before is None:
        text = f"{_number(overall_accuracy(after))} on all samples"
        return f"<div class='number'><h2>{title}</h2><p>{text}</p></div>"
    lines = [
        f"<li><b>{escape(name)}</b> {_number(was, 3)} &rarr; {_number(now, 3)}</li>"
        for name, was, now in largest_changes(before, after)
    ]
    all_samples = [_number(overall_accuracy(score)) for score in (before, after)]
    moved = f"{' &rarr; '.join(all_samples)} on all samples"
    per_class = f"<ul>{''.join(lines)}</ul>" if lines else _small("no class changed much")
    return f"<div class='number'><h2>{title}</h2><p>{moved}</p>{per_class}</div>"


def no_change() -> str:
    """In place of the last switch, before there was one."""
    return "<div class='number'><h2>Last switch</h2>" + _small("none yet: click a tile") + "</div>"


def blank_number(title: str) -> str:
    """In place of a number that cannot be computed."""
    return _big(escape(title), "-")


def confusion_picture(score: Evaluation, title: str) -> str:
    """The confusion matrix; a screen reader gets the accuracy of every class."""
    rows = "".join(
        f"<li>{escape(name)}: {_number(float(accuracy), 3)}</li>"
        for name, accuracy in zip(score.catalogue, score.accuracy_per_class, strict=True)
    )
    picture = _confusion_svg(title, score.catalogue, score.confusion.astype(np.int64).tobytes())
    return f"<div class='picture'>{picture}</div><ul class='unseen'>{rows}</ul>"


@lru_cache(maxsize=PICTURES)
def _confusion_svg(title: str, catalogue: tuple[str, ...], counts: bytes) -> str:
    """Drawn once for all visitors who look at it: drawing takes longer than all else."""
    confusion = np.frombuffer(counts, dtype=np.int64).reshape(len(catalogue), len(catalogue))
    return svg(confusion_panels({title: confusion}, catalogue))


def answer_rows(answers: Sequence[Answer], on: Sequence[str]) -> str:
    """Every module's distribution as small bars, those that are off paler."""
    return "<div class='answers'>" + "".join(_row(a, a.name in on) for a in answers) + "</div>"


def merged_bars(answers: Mapping[str, Answer], truth: str | None) -> str:
    """The answer of the modules joined, and next to it the one with a class taken out."""
    panels = []
    for title, answer in answers.items():
        known = truth is not None and not answer.unsure
        right = "" if not known else (" right" if answer.best == truth else " wrong")
        verdict = f"{answer.best} with {answer.confidence:.3f}"
        verdict = f"not sure: {verdict}" if answer.unsure else verdict
        panels.append(
            f"<section class='joined{right}'><h2>{escape(title)}</h2>"
            f"<p class='verdict'>{escape(verdict)}</p>{_bars(answer, truth)}"
            f"<p class='small'>entropy {answer.entropy:.2f} of its maximum</p></section>"
        )
    return f"<div class='joined-answers'>{''.join(panels)}</div>"


def layer_picture(entropies: Mapping[str, Mapping[str, float]], classes: int) -> str:
    """Entropy by module and layer as curves; a screen reader gets every number."""
    named = {f"module {name}": own for name, own in entropies.items()}
    rows = "".join(
        f"<li>{escape(name)}: {escape(layer)} {value:.3f}</li>"
        for name, own in named.items()
        for layer, value in own.items()
    )
    drawn = entropy_by_layer(named, ceiling=math.log(classes), title="entropy of this sample")
    return (
        "<h2>Entropy through the layers</h2>"
        f"<div class='picture'>{svg(drawn)}</div><ul class='unseen'>{rows}</ul>"
        + _small(
            "Of the surest modules that are on. A hidden layer answers through a linear map to its "
            "module's logits; it is called after the layer that reads it."
        )
    )


def sample_picture(
    sample: Sample, bounds: tuple[float, float], encoder: Encoder | None = None
) -> str:
    """A test sample, with its number and class; of an encoder's features there is no picture."""
    title, about = f"test sample {sample.number}", f"class {sample.label}"
    if encoder is None:
        return seen_picture(sample.x, title, about, bounds)
    return _seen_numbers(sample.x, title, about, f"features of {encoder}")


def given_input(given: EncodedInput) -> str:
    """A picture as the encoder got it, or a text, which visitors brought."""
    if given.pixels is not None:
        return seen_picture(given.pixels, "your picture", DRAWN, (0, 255), "picture")
    return f"{_seen('your text', 'text')}<blockquote>{escape(given.text)}</blockquote></div>"


def no_encoder(kind: str, missing: str) -> str:
    """In place of the field for pictures or texts, where their encoder is not here."""
    what = {"picture": "a picture", "text": "a text"}[kind]
    return f"<p class='note' role='note'>{escape(f'No place for {what} of yours: {missing}')}</p>"


def seen_picture(
    x: Tensor, title: str, about: str, bounds: tuple[float, float], kind: str = "sample"
) -> str:
    """What the network sees: small pictures as they are, rows of a table as numbers."""
    shape = tuple(x.shape[1:])
    if len(shape) != 3 or shape[0] not in (1, 3):
        return _seen_numbers(x, title, about, "numbers")
    low, high = bounds
    grey = ((x[0].double() - low) / max(high - low, 1e-12)).clamp(0, 1) * 255
    address = png(grey.round().byte().expand(3, -1, -1).permute(1, 2, 0).numpy())
    size = f"{shape[2]} by {shape[1]} pixels"
    alt = f"the {size} that the network sees"
    image = f"<img src='{address}' alt='{alt}'/>"
    return f"{_seen(title, kind)}{image}{_small(f'{about}, {size}')}</div>"


def matrix_table(
    matrix: Matrix, measure: str, chosen: tuple[str, str] | None, note: str = ""
) -> str:
    """One measure between every two modules; a cell is a button that chooses its pair."""
    values, percent = matrix[measure], measure in PERCENT
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    heads = "".join(f"<th scope='col'>{escape(name)}</th>" for name in matrix.names)
    rows = []
    for i, one in enumerate(matrix.names):
        cells = "".join(
            _cell(one, other, float(values[i, j]), percent, (low, high), chosen)
            for j, other in enumerate(matrix.names)
        )
        rows.append(f"<tr><th scope='row'>{escape(one)}</th>{cells}</tr>")
    title = measure.replace("_", " ")
    unit = ", in percentage points" if percent else ""
    meaning = f"{title}{unit}: {MEASURES[measure]}; {matrix.samples} samples"
    return (
        f"<p class='small' id='meaning'>{escape(meaning)}</p>{_small(note) if note else ''}"
        f"<div class='scrolls'><table class='matrix' aria-labelledby='meaning'>"
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def message(text: str, bad: bool = False) -> str:
    """One line for the user; errors stand out."""
    if not text:
        return ""
    text = IN_PYTHON.sub("", DIGEST.sub(r"\1...", text))
    return f"<p class='{'bad' if bad else 'good'}' role='status'>{escape(text)}</p>"


def _seen(title: str, kind: str) -> str:
    """The beginning of what is shown of a sample; studio.css knows the kinds."""
    return f"<div class='seen {kind}'><h2>Shown: {escape(title)}</h2>"


def _seen_numbers(x: Tensor, title: str, about: str, unit: str) -> str:
    """The first numbers of a row."""
    numbers = [f"{value:.3g}" for value in x[0].flatten()[:SHOWN_NUMBERS].tolist()]
    more = ", ..." if x[0].numel() > SHOWN_NUMBERS else ""
    words = _small(f"{about}, {x[0].numel()} {unit}")
    return f"{_seen(title, 'sample')}<code>{', '.join(numbers)}{more}</code>{words}</div>"


def _row(answer: Answer, on: bool) -> str:
    verdict = "none of mine" if answer.unsure else f"{answer.best} {answer.confidence:.2f}"
    state = "" if on else "<span class='small'>off</span>"
    return (
        f"<div class='answer{'' if on else ' off'}'><b>{escape(answer.name)}</b>{state}"
        f"{_bars(answer, None, named=False)}<span class='small'>{escape(verdict)}</span></div>"
    )


def _bars(answer: Answer, truth: str | None, named: bool = True) -> str:
    """One bar per class; the names below where there is room for them."""
    named = named and len(answer.catalogue) <= NAMED_UP_TO
    bars = []
    for name, p in zip(answer.catalogue, answer.probabilities, strict=True):
        kind = "best" if name == answer.best else ""
        mark = "<i aria-hidden='true'></i>" if name == truth else ""
        label = f"<span>{escape(name[:LONGEST])}</span>" if named else ""
        height = max(0.0, min(1.0, float(p))) * 100
        bars.append(
            f"<div class='bar {kind}' title='{escape(name, quote=True)}: {p:.3f}'>"
            f"<div><em style='height:{height:.1f}%'></em></div>{label}{mark}</div>"
        )
    doubt = "not sure, " if answer.unsure else ""
    label = f"{answer.name}: {doubt}{answer.best} with {answer.confidence:.3f}"
    label = escape(label, quote=True)
    return f"<div class='bars' role='img' aria-label='{label}'>{''.join(bars)}</div>"


def _cell(
    one: str,
    other: str,
    value: float,
    percent: bool,
    ends: tuple[float, float],
    chosen: tuple[str, str] | None,
) -> str:
    if one == other:
        return "<td class='none'></td>"
    shade = 0.0 if math.isnan(value) else (value - ends[0]) / max(ends[1] - ends[0], 0.01)
    number = _number(100 * value, 2) if percent else _number(value, 3)
    label = f"{one} and {other}: {number}"
    pressed = "true" if chosen and {*chosen} == {one, other} else "false"
    return (
        f"<td><button type='button' style='--shade:{shade * 100:.0f}%' "
        f"data-one='{escape(one, quote=True)}' data-other='{escape(other, quote=True)}' "
        f"aria-pressed='{pressed}' aria-label='{escape(label, quote=True)}'>"
        f"{number}</button></td>"
    )


def _big(title: str, value: str, *lines: str) -> str:
    below = "".join(map(_small, lines))
    return f"<div class='number'><h2>{title}</h2><p class='big'>{value}</p>{below}</div>"


def _small(text: str) -> str:
    return f"<p class='small'>{escape(text)}</p>"


def _number(value: float, decimals: int = 4) -> str:
    return "-" if math.isnan(value) else f"{round(value, decimals) + 0.0:.{decimals}f}"
