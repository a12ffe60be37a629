"""Colours, marks and dashes: a known name looks the same in every figure."""

from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from intarsia.figures.svg import INK, PAPER

# Six steps from dark to light, so that they stay apart in grey and for colour-blind eyes; two more
# for figures of many names, which their marks tell from their neighbours in grey.
COLOURS = (
    *("#1d120a", "#0a3a8c", "#9d2a6b", "#d0570f", "#2fa894", "#e8b32a"),
    *("#7fb2e5", "#4f7a1f"),
)
LETTERS = (INK, PAPER, "#000000", "#ffffff")  # on a coloured ground, by preference
ENOUGH = 4.5  # contrast that small letters need (WCAG 2, level AA)
DASHES = ("", "7 3", "2 3")  # one for each time the colours are used up
# One shape for each of the six steps: disc, square, triangle, diamond, triangle down, bar.
SHAPES = (
    "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z",
    "m-2.8 -2.8h5.6v5.6h-5.6z",
    "m0 -3.6l3.4 6h-6.8z",
    "m0 -3.9l3.9 3.9l-3.9 3.9l-3.9 -3.9z",
    "m0 3.6l3.4 -6h-6.8z",
    "m-1.2 -4h2.4v8h-2.4z",
)

# Places among the colours; from 8 on dashed. Equal places are of names that do not meet; sum and
# mean, whose curves often lie on one another, are as unlike as can be.
OBJECTIVES = ("other", "me", "smoothing", "xe", "confidence_penalty", "qme")
OPERATORS = (
    *("sum", "logits", "ties", "fisher", "regmean", "mean"),
    *("inlay", "task_arithmetic", "dare", "own", "probabilities"),
)
KNOWN = {
    **{name: place for place, name in enumerate(OBJECTIVES)},
    **{name: place for place, name in enumerate(OPERATORS)},
    **{"with imp": 1, "without imp": 3},
    **{"fine-tuning": 3, "gradient ascent": 3, "joint training": 4, "retraining": 4},
}


class Style(NamedTuple):
    """How a curve is drawn."""

    colour: str
    shape: str
    dashes: str


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Colour, shape and dashes of every curve."""
    return {
        name: Style(
            COLOURS[place % len(COLOURS)],
            SHAPES[place % len(SHAPES)],
            DASHES[place // len(COLOURS) % len(DASHES)],
        )
        for name, place in _places(names, len(COLOURS) * len(DASHES)).items()
    }


def fills(names: Iterable[str]) -> dict[str, str]:
    """The colour of every bar; of at most as many names as there are colours, all differ."""
    return {name: COLOURS[place] for name, place in _places(names, len(COLOURS)).items()}


def letters_on(context: str) -> str:
    """The colour of small letters on a ground `#rrggbb`: the first that stands out enough."""
    contrasts = {letters: _contrast(context, letters) for letters in LETTERS}
    enough = [letters for letters, result in contrasts.items() if result >= ENOUGH]
    return enough[0] if enough else max(contrasts, key=lambda letters: contrasts[letters])


def _places(names: Iterable[str], room: int) -> dict[str, int]:
    """Known names have their own places, others the first that are left, in their order."""
    names = list(names)
    known: dict[str, int] = {}
    for name in names:
        place = KNOWN.get(_plain(name))
        if place is not None and place % room not in known.values():
            known[name] = place % room
    left = (place for place in count() if place not in known.values())
    return {name: known[name] if name in known else next(left) for name in names}


def _plain(name: str) -> str:
    """`sum = mean` is drawn as sum, and `ties(density=0.2)` as ties."""
    return name.partition(" = ")[0].partition("(")[0].strip().casefold()


def _contrast(one: str, other: str) -> float:
    """From 1 to 21, as WCAG 2 defines it."""
    lights = sorted(map(_luminance, (one, other)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(colour: str) -> float:
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return sum(weight * s for weight, s in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
