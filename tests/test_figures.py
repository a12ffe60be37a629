"""Pictures: sound SVG whose cells say what the matrix says."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from intarsia.errors import DataError
from intarsia.figures import answers_figure, confusion_figure

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


def test_panels_stand_side_by_side_with_their_titles() -> None:
    counts = np.eye(2, dtype=int)
    text = confusion_figure({"before": counts, "after": counts}, ["0", "1"])
    assert [w for w in words(text) if w in ("before", "after")] == ["before", "after"]
    assert sum(cells(text).values()) <= 8
    assert text == confusion_figure({"before": counts, "after": counts}, ["0", "1"])


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
