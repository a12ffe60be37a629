"""Pictures: sound SVG whose cells say what the matrix says."""

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from intarsia.errors import DataError
from intarsia.figures import answers_figure, confusion_figure, line_figure, matrix_figure
from intarsia.figures.styles import COLOURS

SVG = "{http://www.w3.org/2000/svg}"


def cells(text: str) -> dict[str, int]:
    """How many cells have each colour."""
    paths = ElementTree.fromstring(text).iter(f"{SVG}path")
    return {p.get("fill", ""): p.get("d", "").count("z") for p in paths if p.get("fill") != "none"}


def words(text: str) -> list[str]:
    return [t.text or "" for t in ElementTree.fromstring(text).iter(f"{SVG}text")]


def test_confusion_colours_are_shares_of_the_row() -> None:
    counts = np.array([[4, 0, 0], [1, 1, 0], [0, 0, 0]])
    text = confusion_figure({"one": counts}, ["a", "b", "c"])
    # walnut for 1, maple for 0, half-way for 1/2, grey for a class without samples
    assert cells(text) == {"#5a2d0c": 1, "#f7f1e6": 3, "#a88f79": 2, "#e4e0da": 3}
    assert [w for w in words(text) if w.isdigit()] == ["4", "1", "1"]


def test_confusion_cells_lie_at_row_and_column() -> None:
    counts = np.zeros((3, 3), dtype=int)
    counts[:, 2] = 5  # everything is answered with the last class
    text = confusion_figure({"one": counts}, ["a", "b", "c"])
    dark = re.search(r'fill="#5a2d0c" d="([^"]*)"', text)
    assert dark
    places = np.array(re.findall(r"M(\S+) (\d+)h", dark[1]), dtype=float)
    assert len(set(places[:, 0])) == 1
    assert np.diff(places[:, 1]).tolist() == [26, 26]
    pale = re.search(r'fill="#f7f1e6" d="([^"]*)"', text)
    assert pale
    assert max(float(x) for x in re.findall(r"M(\S+) ", pale[1])) == places[0, 0] - 26


def test_numbers_stand_out_from_their_cells() -> None:
    """By the contrast that WCAG 2 asks of small letters, whatever share the cell has."""
    for first in range(1, 100, 11):
        matrix = np.zeros((11, 11), dtype=int)
        matrix[:, :2] = [[k, 100 - k] for k in range(first, first + 11)]
        text = confusion_figure({"": matrix}, [f"c{i}" for i in range(11)])
        shares = matrix / matrix.sum(axis=1, keepdims=True)
        letters = ElementTree.fromstring(text).iter(f"{SVG}text")
        numbers = [t for t in letters if (t.text or "").isdigit()]
        grounds = [_mixed(share) for share in shares[shares > 0]]
        assert len(numbers) == len(grounds) == 22
        for number, context in zip(numbers, grounds, strict=True):
            assert _contrast(number.get("fill", ""), context) >= 4.5


def _mixed(share: float) -> str:
    pale, dark = (0xF7, 0xF1, 0xE6), (0x5A, 0x2D, 0x0C)
    return "#" + "".join(
        f"{round(p + (d - p) * share):02x}" for p, d in zip(pale, dark, strict=True)
    )


def _contrast(one: str, other: str) -> float:
    lights = []
    for colour in (one, other):
        red, green, blue = (
            (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4)
            for v in (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        )
        lights.append(0.2126 * red + 0.7152 * green + 0.0722 * blue)
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def test_panels_stand_side_by_side_with_their_titles() -> None:
    counts = np.eye(2, dtype=int)
    text = confusion_figure({"before": counts, "after": counts}, ["0", "1"])
    assert [w for w in words(text) if w in ("before", "after")] == ["before", "after"]
    assert sum(cells(text).values()) <= 8
    assert text == confusion_figure({"before": counts, "after": counts}, ["0", "1"])


@pytest.mark.parametrize(("count", "rows"), [(1, [1]), (3, [3]), (4, [2, 2]), (6, [3, 3])])
def test_at_most_three_matrices_stand_in_a_row(count: int, rows: list[int]) -> None:
    names = [f"module {i}" for i in range(count)]
    values = np.eye(10)
    for text in (confusion_figure(dict.fromkeys(names, values), list("0123456789")),
                 matrix_figure(dict.fromkeys(names, values), list("0123456789"))):  # fmt: skip
        root = ElementTree.fromstring(text)
        titles = [t for t in root.iter(f"{SVG}text") if t.text in names]
        heights = [float(t.get("y", "nan")) for t in titles]
        assert [heights.count(y) for y in sorted(set(heights))] == rows
        assert len({t.get("x") for t in titles}) == max(rows)  # columns stand below one another
        assert float(root.get("width", "nan")) < 1000
        # Each grid begins below its own title, and the last ends on the page.
        tops = {float(y) for y in re.findall(r"M\S+ (\S+?)h25", text)}
        assert min(y - max(heights) for y in tops if y > max(heights)) == 24
        assert max(tops) + 26 < float(root.get("height", "nan"))


def test_answers_show_parts_and_whole() -> None:
    uniform = np.full((4, 4), 0.25)
    text = answers_figure(dict.fromkeys("abc", uniform), {"together": np.eye(4)}, list("wxyz"))
    assert {"a", "b", "c", "together", "each module alone"} <= set(words(text))
    paths = list(ElementTree.fromstring(text).iter(f"{SVG}path"))
    drawn = [p.get("d", "").count("z") for p in paths if p.get("fill") != "none"]
    assert sum(drawn) == 4 * 16


def test_names_are_escaped_and_shortened() -> None:
    names = ['<script>"&', "a name that is far too long for a label"]
    text = confusion_figure({"<b>&": np.eye(2, dtype=int)}, names)
    assert "<b>&" in words(text)
    assert '<script>"&' in words(text)
    assert all(len(w) <= 40 for w in words(text))


def test_large_catalogues_have_no_numbers() -> None:
    counts = np.eye(30, dtype=int) * 7
    assert "7" not in words(confusion_figure({"one": counts}, [f"c{i}" for i in range(30)]))


@pytest.mark.parametrize("shape", [(2, 3), (3, 3), (4,)])
def test_a_matrix_of_another_size_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="needs a matrix 2 x 2"):
        confusion_figure({"one": np.zeros(shape)}, ["a", "b"])


def test_matrix_colours_run_from_least_to_most() -> None:
    values = np.array([[np.nan, -2.0], [2.0, np.nan]])
    text = matrix_figure({"one": values, "none": np.full((2, 2), np.nan)}, ["a", "b"])
    assert cells(text) == {"#e4e0da": 4, "#f7f1e6": 1, "#5a2d0c": 1}
    assert [w for w in words(text) if w in ("-2.00", "2.00")] == ["-2.00", "2.00"]
    assert "-2 (pale) to 2 (dark)" in words(text)
    assert "no values" in words(text)


def test_matrix_numbers_are_short_and_never_minus_zero() -> None:
    values = np.array([[np.nan, -0.001], [0.254, np.nan]])
    assert {".00", ".25"} <= set(words(matrix_figure({"one": values}, ["a", "b"])))
    same = np.full((2, 2), 3.0)
    assert words(matrix_figure({"one": same}, ["a", "b"])).count("3.00") == 4


def test_numbers_that_would_all_be_zero_are_left_out() -> None:
    values = np.array([[np.nan, 0.001], [-0.004, np.nan]])
    assert not {".00", "-.00"} & set(words(matrix_figure({"one": values}, ["a", "b"])))
    values[0, 1] = 0.005
    assert {".01", ".00"} & set(words(matrix_figure({"one": values}, ["a", "b"])))


def test_small_differences_are_no_colours() -> None:
    values = np.array([[np.nan, 0.001], [0.002, np.nan]])
    text = matrix_figure({"one": values}, ["a", "b"])
    assert "0.001 to 0.002, all pale" in words(text)
    assert "#5a2d0c" not in cells(text)


@pytest.mark.parametrize("names", [["a", "b"], ["airplane", "automobile"]])
def test_texts_of_small_panels_do_not_meet(names: list[str]) -> None:
    """Taking 7 pixels for a letter, as the figures do."""
    values = np.array([[0.0, 0.123], [0.234, 0.0]])
    panels = {"sign conflicts": values, "mask jaccard": values}
    for text in (matrix_figure(panels, names), confusion_figure(panels, names)):
        root = ElementTree.fromstring(text)
        spans: dict[str, list[tuple[float, float]]] = {}
        for mark in root.iter(f"{SVG}text"):
            if "rotate" in mark.get("transform", ""):
                continue
            half = 7 * len(mark.text or "") / 2
            x = float(mark.get("x", "0"))
            middle = {"middle": x, "end": x - half, "start": x + half}[mark.get("text-anchor", "")]
            if half > 14:  # the numbers of cells are written smaller
                spans.setdefault(mark.get("y", ""), []).append((middle - half, middle + half))
        ends = [end for row in spans.values() for span in sorted(row) for end in span]
        assert ends
        assert 0 <= min(ends) <= max(ends) <= float(root.get("width", "0"))
        for row in spans.values():
            in_order = [end for span in sorted(row) for end in span]
            assert in_order == sorted(in_order)


def lines(text: str) -> list[list[tuple[float, float]]]:
    """The corners of every curve, as drawn."""
    result = []
    for path in ElementTree.fromstring(text).iter(f"{SVG}path"):
        if path.get("stroke-width") and "h26" not in path.get("d", ""):
            corners = path.get("d", "")[1:].split("L")
            result.append([tuple(map(float, c.split())) for c in corners])
    return result  # type: ignore[return-value]


def test_lines_rise_where_the_numbers_do() -> None:
    curves = {"up": {0: 1.0, 1: 2.0, 2: 4.0}, "down": {2: 0.0, 0: 4.0}}
    up, down = lines(line_figure({"one": curves}, title="t"))
    assert [x for x, _ in up] == sorted(x for x, _ in up)
    assert up[0][1] > up[1][1] > up[2][1]  # SVG counts from the top
    assert math.isclose((up[0][1] - up[1][1]) * 2, up[1][1] - up[2][1], abs_tol=0.05)
    assert (down[0][0], down[1][0]) == (up[0][0], up[2][0])
    assert down[0][1] == up[2][1]


def test_shades_reach_one_deviation_or_from_low_to_high() -> None:
    curves = {"a": {0: (1.0, 0.5), 1: (1.0, 0.5)}, "b": {0: (1.0, 0.5, 1.5), 1: (1.0, 0.5, 1.5)}}
    text = line_figure({"one": curves, "two": {"a": {0: 1.0, 1: 2.0}}}, title="t")
    shades = re.findall(r'd="(M[^"]*z)" fill="[^"]*" fill-opacity', text)
    assert len(shades) == 2
    assert shades[0] == shades[1]


def test_a_name_has_one_colour_in_all_panels_and_is_told_once() -> None:
    panels = {"one": {"a": {0: 1.0, 1: 2.0}, "b": {0: 2.0, 1: 1.0}}, "two": {"b": {0: 0.0, 1: 1.0}}}
    text = line_figure(panels, title="A <title>", x="modules", y="accuracy")
    assert words(text).count("b") == 1
    drawn = re.findall(r'fill="none" stroke="(#[0-9a-f]{6})" stroke-width', text)
    assert drawn == [*COLOURS[:2], COLOURS[1], *COLOURS[:2]]  # two panels, and the key
    assert {"one", "two", "accuracy"} <= set(words(text))
    assert words(text).count("modules") == 2
    root = ElementTree.fromstring(text)
    assert root.get("aria-label") == root.findtext(f"{SVG}title") == "A <title>"


def test_more_names_than_colours_are_dashed() -> None:
    curves = {f"c{i}": {0: float(i), 1: float(i)} for i in range(10)}
    text = line_figure({"one": curves}, title="t")
    drawn = re.findall(r'L[^"]*" fill="none" stroke="(#\w+)" stroke-width="1.8"(.*?)/>', text)
    assert [colour for colour, _ in drawn] == [*COLOURS, *COLOURS[:2]]
    assert [bool(dashes) for _, dashes in drawn] == [False] * 8 + [True] * 2


def test_panels_may_share_their_heights() -> None:
    panels = {"low": {"a": {0: 0.0, 1: 1.0}}, "high": {"a": {0: 9.0, 1: 10.0}}}
    apart, shared = (lines(line_figure(panels, title="t", share_y=s)) for s in (False, True))
    assert [y for _, y in apart[0]] == [y for _, y in apart[1]]
    assert shared[0][1][1] > shared[1][0][1]


def test_a_few_whole_places_are_all_written() -> None:
    text = line_figure({"one": {"a": {k: 20.0 + k for k in range(1, 11)}}}, title="t")
    assert {str(k) for k in range(1, 11)} <= set(words(text))
    text = line_figure({"one": {"a": {k: 200.0 + k for k in range(1, 41)}}}, title="t")
    assert [w for w in words(text) if w.isdigit() and int(w) <= 40] == ["10", "20", "30", "40"]


def test_points_that_are_not_numbers_are_left_out() -> None:
    curve = {0: 1.0, 1: math.nan, 2: (3.0, math.nan), 3: (math.nan, 0.0)}
    (drawn,) = lines(line_figure({"one": {"a": curve}}, title="t"))
    assert len(drawn) == 2
    assert lines(line_figure({"one": {"a": {5: 2.0}}}, title="t")) == []  # a mark alone
    with pytest.raises(DataError, match="panel 'one' has no finite point"):
        line_figure({"one": {"a": {0: math.nan}}}, title="t")
    with pytest.raises(DataError, match="has no panel"):
        line_figure({}, title="t")
    with pytest.raises(DataError, match="is not a number"):
        line_figure({"one": {"a": {0: (1.0, 2.0, 3.0, 4.0)}}}, title="t")  # type: ignore[dict-item]
