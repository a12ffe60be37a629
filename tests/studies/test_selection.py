"""Selection: options as people type them, and values that no cell has."""

import pytest

from intarsia.errors import StudyError
from intarsia.studies import Cell, find_study
from intarsia.studies.selection import (
    default_scale,
    read_options,
    unmatched_values,
)


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
