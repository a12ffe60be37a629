"""How pictures look: the style sheet, and a colour, a mark and dashes for every name."""

import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import as_file, files
from itertools import cycle
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_rgb

INK, PAPER, EMPTY, BAND = "#33261b", "#fffdf9", "#e4e0da", "#d3ccc1"
# Six steps from dark to light, so that they stay apart in grey and for colour-blind eyes; four more
# for pictures of many names, which their marks tell from their neighbours in grey.
COLOURS = (
    *("#1d120a", "#0a3a8c", "#9d2a6b", "#d0570f", "#2fa894", "#e8b32a"),
    *("#7fb2e5", "#4f7a1f", "#8c7f74", "#b58fd0"),
)
"""What names are drawn in, in this order."""
MARKS = ("o", "s", "^", "D", "v", "P", "X", "p", "<", ">")  # one for each of the colours
Dashes = Literal["-"] | tuple[float, tuple[float, ...]]
SOLID: Literal["-"] = "-"
DASHES: tuple[Dashes, ...] = (SOLID, (0, (7, 3)), (0, (2, 3)))  # for each time colours are used up
LETTERS = (INK, PAPER, "#000000", "#ffffff")  # on a coloured ground, by preference
MISSING_LETTERS = "Glyph .* missing from font"
ENOUGH = 4.5  # contrast that small letters need (WCAG 2, level AA)

WOOD = LinearSegmentedColormap.from_list("maple_walnut", ["#f7f1e6", "#5a2d0c"]).with_extremes(
    bad=EMPTY
)
"""From nothing to much; what is not known is grey."""
SIGNS = LinearSegmentedColormap.from_list("against_for", ["#0a3a8c", "#f7f1e6", "#7a3a0a"])
"""Against, nothing, for: two hues that colour-blind eyes tell apart."""

_LOCK = threading.RLock()  # matplotlib's settings are one for all threads


@contextmanager
def house_style() -> Iterator[None]:
    """Matplotlib's defaults with intarsia's style sheet, whatever the user's own settings are."""
    with _LOCK, matplotlib.rc_context(_settings()), warnings.catch_warnings():
        # Of names in other scripts: whoever shows an SVG has letters of its own.
        warnings.filterwarnings("ignore", message=MISSING_LETTERS)
        yield


class Look(NamedTuple):
    """How a curve is drawn."""

    colour: str
    mark: str
    dashes: Dashes


def looks(names: Iterable[str], colours: Mapping[str, str] | None = None) -> dict[str, Look]:
    """A look for every name; of at most as many names as there are COLOURS, all colours differ.

    A name of `colours` has that colour, and an operator or objective the one it is registered with,
    in every picture; other names take the first that are left, in their order.
    """
    names = list(dict.fromkeys(names))
    fixed: dict[str, str] = {}
    for name in names:
        colour = (colours or {}).get(name) or _registered(name)
        if colour and colour not in fixed.values():
            fixed[name] = colour
    taken = set(fixed.values())
    every = [(colour, dashes) for dashes in DASHES for colour in COLOURS]
    left = cycle([pair for pair in every if pair[0] not in taken or pair[1] != SOLID])
    chosen = {name: (fixed[name], SOLID) if name in fixed else next(left) for name in names}
    return {
        name: Look(colour, _mark(colour, place), dashes)
        for place, (name, (colour, dashes)) in enumerate(chosen.items())
    }


def largest(values: np.ndarray) -> float:
    """The largest magnitude, which lies at the ends of SIGNS; 1 where all are zero."""
    return float(np.abs(values).max()) or 1.0


@cache
def letters_on(ground: Any) -> str:
    """The colour of small letters on a coloured ground: the first that stands out enough."""
    contrasts = {letters: contrast(ground, letters) for letters in LETTERS}
    enough = [letters for letters, value in contrasts.items() if value >= ENOUGH]
    return enough[0] if enough else max(contrasts, key=lambda letters: contrasts[letters])


def contrast(one: Any, other: Any) -> float:
    """From 1 to 21, as WCAG 2 defines it."""
    low, high = sorted(map(_luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def _registered(name: str) -> str | None:
    """The colour of an operator or objective; `sum = mean` is sum, `ties(density=0.2)` is ties."""
    from intarsia.composition import OPERATORS
    from intarsia.objectives import OBJECTIVES

    plain = name.partition(" = ")[0].partition("(")[0].strip().casefold()
    entry = OBJECTIVES.get(plain) or OPERATORS.get(plain)
    return entry.colour if entry else None


def _mark(colour: str, place: int) -> str:
    return MARKS[COLOURS.index(colour) if colour in COLOURS else place % len(MARKS)]


def _luminance(colour: Any) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@cache
def _settings() -> Any:
    """Of all that has to do with looks; which backend draws, and how windows behave, is left."""
    with as_file(files("intarsia.plots") / "intarsia.mplstyle") as sheet:
        own = matplotlib.rc_params_from_file(sheet, use_default_template=False)
    others = ("backend", "interactive", "toolbar", "timezone", "webagg", "tk.", "keymap", "date.")
    default = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith(others)}
    return default | dict(own)
