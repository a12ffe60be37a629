"""How pictures look: names alike in all of them, settings of the user's matplotlib left alone."""

import itertools
import threading
from pathlib import Path

import matplotlib
import pytest

from intarsia.composition import OPERATORS
from intarsia.objectives import OBJECTIVES
from intarsia.plots import COLOURS, bars, curves, house_style, svg
from intarsia.plots.style import MARKS, looks
from intarsia.studies.maxent.continual import JOINT, TUNING
from intarsia.studies.maxent.unlearning import ASCENT, RETRAINING

# What studies draw together, and the colours they give to what is no operator or objective.
WAYS = {TUNING: COLOURS[3], JOINT: COLOURS[4], ASCENT: COLOURS[3], RETRAINING: COLOURS[4]}
TOGETHER = [
    ("me", "qme", "xe", "smoothing", "confidence_penalty", "other"),
    ("sum", "mean", "ties", "fisher", "regmean", "logits"),
    ("sum", "mean", "ties", "logits = inlay", JOINT, TUNING),
    ("sum", "mean", "ties", "logits = inlay", RETRAINING, ASCENT),
]


def lightness(colour: str) -> float:
    """CIE L* of a colour, what is left of it in grey."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return 116 * light ** (1 / 3) - 16


@pytest.mark.parametrize("names", TOGETHER)
def test_names_that_meet_differ_in_grey_and_in_mark(names: tuple[str, ...]) -> None:
    for one, other in itertools.combinations(looks(names, WAYS).values(), 2):
        assert abs(lightness(one.colour) - lightness(other.colour)) > 8
        assert one.mark != other.mark


@pytest.mark.parametrize("names", TOGETHER)
def test_a_known_name_looks_the_same_in_any_company(names: tuple[str, ...]) -> None:
    for name in names:
        alone = looks([name], WAYS)[name]
        assert looks(reversed(names), WAYS)[name] == alone
        assert looks(["something else", name, "more"], WAYS)[name] == alone


@pytest.mark.parametrize("registry", [OPERATORS, OBJECTIVES])
def test_registered_colours_of_a_kind_differ(registry: dict) -> None:
    colours = [entry.colour for entry in registry.values() if entry.colour]
    assert len(set(colours)) == len(colours) >= 6
    assert set(colours) <= set(COLOURS)


def test_an_operator_from_outside_brings_its_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = type("Entry", (), {"colour": "#123456"})()
    monkeypatch.setitem(OPERATORS, "mine", entry)
    assert looks(["sum", "mine(amount=2)"])["mine(amount=2)"].colour == "#123456"


def test_others_take_what_is_left_in_their_order() -> None:
    chosen = looks(["new", "mean", "sum", "newer"])
    taken = [chosen["sum"].colour, chosen["mean"].colour]
    left = [colour for colour in COLOURS if colour not in taken]
    assert [chosen["new"].colour, chosen["newer"].colour] == left[:2]
    # Two of one colour, and one with another amount.
    names = ["mean", "qme", "TIES", "ties(density=0.5)"]
    assert len({look.colour for look in looks(names).values()}) == 4
    assert looks(["TIES"])["TIES"] == looks(["ties(density=0.5)"])["ties(density=0.5)"]
    many = looks([f"c{i}" for i in range(3 * len(COLOURS))])
    assert len(set(many.values())) == len(many)
    assert len(MARKS) == len(COLOURS)


def test_curves_and_bars_agree() -> None:
    lines = curves({"b": {0: 1.0}, "xe": {0: 2.0}, "me": {0: 3.0}}).lines
    ax = bars({"1": {"me": (1.0, 0.0), "xe": (2.0, 0.0)}})
    fills = {c.get_label(): c.patches[0].get_facecolor() for c in ax.containers}  # type: ignore[attr-defined]
    for line in lines[1:]:
        assert matplotlib.colors.to_rgba(line.get_color()) == fills[line.get_label()]


def test_drawing_leaves_the_settings_of_matplotlib_alone() -> None:
    before = dict(matplotlib.rcParams)
    svg(curves({"a": {0: 1.0, 1: 2.0}}).figure)  # type: ignore[arg-type]
    assert dict(matplotlib.rcParams) == before


def test_settings_of_the_user_do_not_change_a_picture() -> None:
    def drawn() -> str:
        return svg(curves({"a": {0: 1.0, 1: 2.0}}).figure)  # type: ignore[arg-type]

    plain = drawn()
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.fonttype": "path"}):
        assert drawn() == plain


def test_pictures_can_be_drawn_in_threads() -> None:
    expected = svg(curves({"a": {0: 1.0, 1: 2.0}}).figure)  # type: ignore[arg-type]
    before, drawn = dict(matplotlib.rcParams), []

    def draw() -> None:
        drawn.append(svg(curves({"a": {0: 1.0, 1: 2.0}}).figure))  # type: ignore[arg-type]

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert drawn == [expected] * 4
    assert dict(matplotlib.rcParams) == before


def test_the_style_can_be_used_for_own_figures(tmp_path: Path) -> None:
    with house_style():
        figure = matplotlib.figure.Figure()
        ax = figure.subplots()
    assert not ax.spines["top"].get_visible()
    assert matplotlib.rcParams["axes.spines.top"]
