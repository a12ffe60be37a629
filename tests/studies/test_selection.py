"""Selection: options as people type them, and cells that are missing or dead."""

from typing import Any

import pytest

from intarsia.errors import StudyError
from intarsia.studies import Cell, Measured, find_study
from intarsia.studies.selection import (
    count_dead,
    default_scale,
    missing_lines,
    read_options,
    unmatched_values,
)


def test_groups_of_missing_cells_leave_out_what_is_last() -> None:
    """Three data sets, three models, sizes and seeds: too many groups with the sizes."""
    cells = [
        Cell("any", {"data": d, "model": m, "size": z, "preset": "paper", "seed": s, "x": [1]}, {})
        for d in ("har", "mnist", "yeast")
        for m in ("deep", "shallow", "cnn")
        for z in (1, 2)
        for s in range(5)
    ]
    assert missing_lines(cells[3:], cells)[:2] == [
        "missing: har deep: 7",
        "missing: har shallow: 10",
    ]
    of_har = [cell for cell in cells if cell.settings["data"] == "har"]
    assert missing_lines(of_har[1:], cells)[:2] == [
        "missing: har deep size=1: 4", "missing: har deep size=2: 5",
    ]  # fmt: skip
    assert missing_lines(cells[:1], cells) == [f"missing: {cells[0]}"]


def test_dead_needs_a_group_without_a_live_unit() -> None:
    def cell(*lives: list[Any]) -> Measured:
        return Measured(
            {}, {"classes": ["0"], **{str(i): {"live": v} for i, v in enumerate(lives)}}
        )

    measured = [cell([3, 2], [0, 0]), cell([0, None])]
    assert count_dead(measured) == 2
    assert count_dead([cell([3, 0]), cell([None, None]), cell([])]) == 0


def test_options_take_the_types_of_the_study() -> None:
    study = find_study("pairs")
    given = read_options(study, {"data": "mnist,har", "seeds": 3, "sizes": 2}, None)
    assert given == {"data": ["mnist", "har"], "seeds": 3, "sizes": [2]}
    assert default_scale(study) == "paper"
    with pytest.raises(StudyError, match="did you mean 'sizes'"):
        read_options(study, {"size": 2}, "small")


def test_values_without_a_cell_are_remarked_where_some_have_one() -> None:
    cells = [Cell("any", {"size": size, "seed": 0}, {}) for size in (1, 2)]
    assert unmatched_values({"sizes": [1, 9], "seeds": 3}, cells) == ["no cell has sizes=9"]
    assert unmatched_values({"sizes": [8, 9], "others": [1]}, cells) == []
