"""Heat maps: cells say what the matrix says, in colours, numbers and names that can be read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from intarsia.errors import DataError
from intarsia.plots import answers, confusion, confusion_panels, matrix, matrix_panels, weights
from intarsia.plots.panels import short_names
from intarsia.plots.style import EMPTY, SIGNS, WOOD, contrast

PALE, DARK = "#f7f1e6", "#5a2d0c"
DIGITS = list("0123456789")


def cells(ax: Axes) -> dict[tuple[float, float], str]:
    """The colour of every cell, by the row and column of its corner."""
    result = {}
    ax.figure.draw_without_rendering()  # colours are mapped as it is drawn
    for drawn in ax.collections:
        assert isinstance(drawn, PathCollection)
        for path, colour in zip(drawn.get_paths(), drawn.get_facecolors(), strict=True):
            for x, y in path.vertices[::5]:
                result[y, x] = to_hex(colour)
    return result


def words(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def written(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.texts]


def test_confusion_colours_are_fractions_of_the_row() -> None:
    counts = np.array([[4, 0, 0], [1, 1, 0], [0, 0, 0]])
    ax = confusion(counts, ["a", "b", "c"], title="one")
    half = to_hex(WOOD(round(0.5 * 255)))
    expected = [[DARK, PALE, PALE], [half, half, PALE], [EMPTY] * 3]
    colours = cells(ax)
    assert [[colours[row, column] for column in range(3)] for row in range(3)] == expected
    assert words(ax) == ["4", "1", "1"]
    assert ax.get_ylim() == (3, 0)  # rows go down


def test_axes_that_are_given_are_drawn_on() -> None:
    given = Figure().subplots()
    assert confusion(np.eye(2), ["a", "b"], given, title="t") is given
    assert (given.get_xlabel(), given.get_ylabel()) == ("answer", "true class")
    other = Figure().subplots()
    assert matrix(np.eye(2), ["a", "b"], other) is other
    assert len(cells(other)) == 4


def test_numbers_stand_out_from_their_cells() -> None:
    """By the contrast that WCAG 2 asks of small letters, whatever fraction the cell has."""
    for first in range(1, 100, 11):
        counts = np.zeros((11, 11), dtype=int)
        counts[:, :2] = [[k, 100 - k] for k in range(first, first + 11)]
        ax = confusion(counts, [f"c{i}" for i in range(11)])
        colours = cells(ax)
        assert len(ax.texts) == 22
        for text in ax.texts:
            x, y = text.get_position()
            assert contrast(text.get_color(), colours[int(y), int(x)]) >= 4.5


@pytest.mark.parametrize(("count", "rows"), [(1, [1]), (3, [3]), (4, [2, 2]), (6, [3, 3])])
def test_at_most_three_matrices_lie_in_a_row(count: int, rows: list[int]) -> None:
    names = [f"module {i}" for i in range(count)]
    for draw in (confusion_panels, matrix_panels):
        figure = draw(dict.fromkeys(names, np.eye(10)), DIGITS)
        assert [ax.get_title() for ax in figure.axes] == names
        tops = [round(ax.get_position().y0, 6) for ax in figure.axes]
        assert [tops.count(top) for top in sorted(set(tops), reverse=True)] == rows
        assert len({round(ax.get_position().x0, 6) for ax in figure.axes}) == max(rows)
        assert figure.get_size_inches()[0] * 72 < 1000


def test_names_are_shortened_and_taken_as_they_are() -> None:
    names = ['<script>"&', "a name that is far too long for a label", "$x^2$"]
    ax = confusion(np.eye(3, dtype=int), names, title="<b>&")
    assert ax.get_title() == "<b>&"
    rows = [label.get_text() for label in ax.get_yticklabels()]
    assert rows == ['<script>"&', "a name that is fa…", "$x^2$"]
    columns = [label.get_text() for label in ax.get_xticklabels()]
    assert columns == ['<script>"&', "a name that…", "$x^2$"]


def test_names_that_begin_alike_stay_apart() -> None:
    names = [f"experts/cifar100/vehicles/seed-{seed}" for seed in (1, 2, 12)]
    ax = matrix(np.eye(4), [*names, "experts/cifar"])
    rows = [label.get_text() for label in ax.get_yticklabels()]
    assert rows == [f"experts/cif…{end}" for end in ("seed-1", "seed-2", "eed-12")] + [
        "experts/cifar"
    ]
    columns = [label.get_text() for label in ax.get_xticklabels()]
    assert columns == ["experts…ed-1", "experts…ed-2", "experts…d-12", "experts…ifar"]
    titles = [ax.get_title() for ax in weights(dict.fromkeys(names, np.eye(2))).axes]
    assert len(set(titles)) == 3
    tiles = answers(dict.fromkeys(names, np.eye(2)), {"all": np.eye(2)}, ["a", "b"]).axes[0]
    assert len(set(words(tiles))) == 3


@given(
    names=st.lists(st.text("ab…", max_size=9), unique=True, max_size=30), letters=st.integers(4, 6)
)
def test_short_names_fit_and_differ(names: list[str], letters: int) -> None:
    labels = short_names([*names, *names], letters)
    assert labels[: len(names)] == labels[len(names) :]
    assert len(set(labels)) == len(names)
    for name, label in zip(names, labels, strict=False):
        assert len(label) <= letters
        assert label == name or (len(name) > letters and "…" in label)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_names_above_columns_have_room(count: int) -> None:
    """Below the titles, and inside the figure, also beyond the last column."""
    names = [f"WWWWWWWWWWWWWWWWWWWWWW {place}" for place in range(count)]
    square = np.eye(count)
    panels = {"one": square, "two": square}
    for figure in (confusion_panels(panels, names), matrix_panels(panels, names),
                   answers(panels, panels, names)):  # fmt: skip
        figure.draw_without_rendering()
        width = figure.get_size_inches()[0] * 72
        for ax in figure.axes:
            for label in ax.get_xticklabels():
                box = label.get_window_extent()
                assert box.x1 <= width
                assert not ax.get_title() or box.y1 <= ax.title.get_window_extent().y0


def test_large_catalogues_have_no_numbers() -> None:
    assert not words(confusion(np.eye(30, dtype=int) * 7, [f"c{i}" for i in range(30)]))


@pytest.mark.parametrize("shape", [(2, 3), (3, 3), (4,)])
def test_a_matrix_of_another_size_is_refused(shape: tuple[int, ...]) -> None:
    for draw in (confusion, matrix):
        with pytest.raises(DataError, match="needs a matrix 2 x 2"):
            draw(np.zeros(shape), ["a", "b"])


def test_matrix_colours_run_from_least_to_most() -> None:
    values = np.array([[np.nan, -2.0], [2.0, np.nan]])
    figure = matrix_panels({"one": values, "none": np.full((2, 2), np.nan)}, ["a", "b"])
    one, none = figure.axes
    assert cells(one) == {(0, 0): EMPTY, (0, 1): PALE, (1, 0): DARK, (1, 1): EMPTY}
    assert set(cells(none).values()) == {EMPTY}
    assert words(one) == ["-2.00", "2.00"]
    assert written(figure) == ["-2 (pale) to 2 (dark)", "no values"]
    drawn = one.collections[0]
    assert isinstance(drawn, PathCollection)
    assert drawn.get_clim() == (-2, 2)  # so that a colour bar says the values


def test_matrix_numbers_are_short_and_never_minus_zero() -> None:
    values = np.array([[np.nan, -0.001], [0.254, np.nan]])
    assert words(matrix(values, ["a", "b"])) == [".00", ".25"]
    assert words(matrix(np.full((2, 2), 3.0), ["a", "b"])) == ["3.00"] * 4


def test_numbers_that_would_all_be_zero_are_left_out() -> None:
    values = np.array([[np.nan, 0.001], [-0.004, np.nan]])
    assert not words(matrix(values, ["a", "b"]))
    values[0, 1] = 0.005
    assert words(matrix(values, ["a", "b"]))


def test_small_differences_are_no_colours() -> None:
    values = np.array([[np.nan, 0.001], [0.002, np.nan]])
    figure = matrix_panels({"one": values}, ["a", "b"])
    assert written(figure) == ["0.001 to 0.002, all pale"]
    values[1, 0] = 0.009  # nearly as dark as can be
    assert written(matrix_panels({"one": values}, ["a", "b"])) == ["0.001 (pale) to 0.011 (dark)"]
    assert DARK not in cells(figure.axes[0]).values()


@pytest.mark.parametrize("names", [["a", "b"], ["airplane", "automobile"]])
def test_texts_of_small_panels_do_not_meet(names: list[str]) -> None:
    values = np.array([[0.0, 0.123], [0.234, 0.0]])
    panels = {"sign conflicts": values, "mask jaccard": values}
    for figure in (matrix_panels(panels, names), confusion_panels(panels, names)):
        boxes = [text.get_window_extent() for text in figure.texts]
        boxes += [ax.title.get_window_extent() for ax in figure.axes]
        boxes += [label.get_window_extent() for ax in figure.axes for label in ax.get_yticklabels()]
        width, height = figure.get_size_inches() * 72
        for place, box in enumerate(boxes):
            assert box.x0 >= 0
            assert box.x1 <= width
            assert box.y0 >= 0
            assert box.y1 <= height
            assert not any(box.overlaps(other) for other in boxes[:place])


def test_answers_show_parts_and_merged() -> None:
    uniform = np.full((4, 4), 0.25)
    figure = answers(dict.fromkeys("abc", uniform), {"together": np.eye(4)}, list("wxyz"))
    tiles, _, merged = figure.axes
    assert words(tiles) == ["a", "b", "c"]
    assert len(cells(tiles)) == 3 * 16
    assert merged.get_title() == "together"
    assert [label.get_text() for label in merged.get_yticklabels()] == list("wxyz")
    assert cells(merged)[1, 1] == DARK
    assert "each module alone" in written(figure)
    assert figure.get_label() == "answers: together"


def test_what_two_classes_answer_has_room_for_its_words() -> None:
    values = np.eye(2)
    figure = answers({"cat": values, "dog": values}, {"logits added": values}, ["cat", "dog"])
    boxes = [text.get_window_extent() for text in (*figure.texts, figure.axes[-1].title)]
    width = figure.get_size_inches()[0] * 72
    for place, box in enumerate(boxes):
        assert 0 <= box.x0 < box.x1 <= width
        assert not any(box.overlaps(other) for other in boxes[:place])


def test_weights_of_every_module_are_an_image_with_zero_in_the_middle() -> None:
    names = ["a<b", "c", "d", "e", "f", "g"]
    figure = weights({name: np.eye(3) * place for place, name in enumerate(names)})
    assert [ax.get_title() for ax in figure.axes] == names
    for place, ax in enumerate(figure.axes):
        (image,) = ax.images
        assert image.get_array().tolist() == (np.eye(3) * place).tolist()  # type: ignore[union-attr]
        assert image.get_clim() == (-(place or 1), place or 1)
        assert image.get_cmap() == SIGNS
