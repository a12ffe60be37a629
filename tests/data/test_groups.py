"""Rows that belong together stay on one side: groups, and rows that come twice."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intarsia.data import load_data
from intarsia.data.load import options_for
from intarsia.errors import DataError

ROWS, PEOPLE, CLASSES = 240, 12, 3


def table() -> dict[str, np.ndarray]:
    """Rows of twelve people, each with all classes; the first feature numbers the rows."""
    generator = np.random.default_rng(0)
    y = np.arange(ROWS) % CLASSES
    person = np.arange(ROWS) // CLASSES % PEOPLE
    x = generator.normal(size=(ROWS, 4))
    x[:, 0] = np.arange(ROWS)
    return {"x": x, "y": y, "person": np.array([f"p{p}" for p in person])}


def people(data: Any, person: np.ndarray) -> list[set[str]]:
    """The people of every split, known by the first feature of its rows."""
    parts = (data.train, data.validation, data.test)
    return [set(person[part.x[:, 0].long().numpy()].tolist()) for part in parts]


def written(path: Path, ending: str) -> Path:
    """The table as a file, with the groups as its second column and the labels as the last."""
    arrays, file = table(), path / f"table{ending}"
    if ending == ".npz":
        np.savez(file, **arrays)
        return file
    head = ["a", "person", "b", "c", "d", "label"]
    x, y, person = arrays["x"], arrays["y"], arrays["person"]
    if ending == ".csv":
        rows = [
            ",".join([repr(float(r[0])), p, *(repr(float(v)) for v in r[1:]), f"k{label}"])
            for r, p, label in zip(x, person, y, strict=True)
        ]
        file.write_text("\n".join([",".join(head), *rows]) + "\n")
        return file
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = [x[:, 0], person, x[:, 1], x[:, 2], x[:, 3], y]
    parquet.write_table(arrow.table(dict(zip(head, map(arrow.array, columns), strict=True))), file)
    return file


@pytest.mark.parametrize("source", ["mapping", ".npz", ".csv", ".parquet"])
def test_a_group_is_in_one_split_and_not_among_the_features(tmp_path: Path, source: str) -> None:
    given = table() if source == "mapping" else written(tmp_path, source)
    data = load_data(given, groups="person", scale="none")
    assert data.shape == (4,)
    splits = people(data, table()["person"])
    assert all(splits)
    assert sum(map(len, splits)) == PEOPLE == len(set.union(*splits))
    assert data.options["groups"] == "person"
    kept = {key: value for key, value in table().items() if key != "person"}
    assert len(set.intersection(*people(load_data(kept, scale="none"), table()["person"])))


def test_a_group_column_is_named_by_its_place_too(tmp_path: Path) -> None:
    path = written(tmp_path, ".csv")
    by_name, by_place = (load_data(path, groups=groups) for groups in ("person", 1))
    assert by_name.digest == by_place.digest


def test_a_test_part_of_its_own_stays_and_validation_goes_by_groups() -> None:
    arrays = table()
    given = {f"{key}_train": value for key, value in arrays.items()}
    given |= {"x_test": arrays["x"][:30], "y_test": arrays["y"][:30]}
    given["person_test"] = arrays["person"][:30]
    data = load_data(given, groups="person", scale="none")
    train, validation, _ = people(data, arrays["person"])
    assert not train & validation
    assert train | validation == set(arrays["person"])
    np.testing.assert_allclose(data.test.x.numpy(), arrays["x"][:30].astype(np.float32))


def test_groups_go_with_the_classes_that_are_kept() -> None:
    data = load_data(table(), groups="person", scale="none", classes=["2", "0"])
    splits = people(data, table()["person"])
    assert sum(map(len, splits)) == PEOPLE


def test_another_file_is_read_with_the_same_groups(tmp_path: Path) -> None:
    learned = {"recipe": {"data": "a.csv", "data_options": {"groups": "person", "seed": 3}}}
    assert options_for("b.csv", learned) == {"groups": "person"}


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"groups": "persn"}, "no array 'persn': did you mean 'person'"),
        ({}, {"groups": 3}, "expected the name of an array"),
        ({}, {"groups": ["person"]}, r"groups is \['person'\]: expected the name of an array"),
        ({}, {"target": [["y"]]}, r"target is \[\['y'\]\]: expected the name of an array"),
        ({"person": np.arange(5)}, {"groups": "person"}, r"shape \(5,\): expected one for each"),
        (
            {"person": np.array([None, *["a", "b"] * (ROWS // 2)][:ROWS], dtype=object)},
            {"groups": "person"},
            "the group of row 0",
        ),
        (
            {"person": np.where(np.arange(ROWS) % CLASSES == 1, 1, np.arange(ROWS))},
            {"groups": "person"},
            "class '1' has rows in 1 groups",
        ),
        ({}, {"groups": "person", "duplicates": "together"}, "both say which rows"),
        ({}, {"duplicates": "dorp"}, "did you mean 'drop'"),
    ],
)
def test_says_what_is_wrong(change: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_data({**table(), **change}, **options)


def test_sources_without_groups_say_so(tmp_path: Path) -> None:
    arrays = table()
    with pytest.raises(DataError, match="give a mapping with x, y"):
        load_data(arrays["x"], arrays["y"], groups="person")
    with pytest.raises(DataError, match="digits has no groups 'writer': it has none"):
        load_data("digits", groups="writer")
    path = written(tmp_path, ".csv")
    with pytest.raises(DataError, match="that of the groups and of the labels"):
        load_data(path, groups="label")
    path.write_text("a,person,label\n1,,x\n2,p,y\n")
    with pytest.raises(DataError, match="line 2: the group"):
        load_data(path, groups="person")
    path.write_text("person,label\np,x\nq,y\n")
    with pytest.raises(DataError, match="two columns only; expected features, a label and groups"):
        load_data(path, groups="person")


def twice() -> tuple[np.ndarray, np.ndarray]:
    """Sixty rows, and forty of them again, in another order."""
    generator = np.random.default_rng(1)
    x, y = generator.normal(size=(60, 3)), np.arange(60) % 2
    again = generator.permutation(60)[:40]
    return np.concatenate([x, x[again]]), np.concatenate([y, y[again]])


def inputs(split: Any) -> list[tuple[float, ...]]:
    return [tuple(row) for row in split.x.tolist()]


def test_rows_that_come_twice_stay_together_or_go() -> None:
    x, y = twice()
    loaded = {
        way: load_data(x, y, duplicates=way, scale="none") for way in ("keep", "together", "drop")
    }
    splits = {
        way: [inputs(part) for part in (data.train, data.validation, data.test)]
        for way, data in loaded.items()
    }
    crossing = {
        way: [set(a) & set(b) for a, b in ((one, two), (one, three), (two, three))]
        for way, (one, two, three) in splits.items()
    }
    assert any(crossing["keep"])
    assert not any(crossing["together"] + crossing["drop"])
    sizes = {way: [len(part) for part in own] for way, own in splits.items()}
    assert sum(sizes["keep"]) == sum(sizes["together"]) == 100
    assert sum(sizes["drop"]) == 60
    assert abs(sizes["together"][2] - 20) <= 1
    assert loaded["keep"].digest == load_data(x, y, scale="none").digest
    assert "duplicates" not in loaded["keep"].options
    assert loaded["drop"].options["duplicates"] == "drop"


def test_zero_is_one_number_whatever_its_sign() -> None:
    x, y = twice()
    x[:60, 0] = 0.0
    x[60:, 0] = -0.0
    assert len(load_data(x, y, duplicates="drop", test=0).train.y) < 60


def test_rows_with_other_labels_are_no_duplicates_to_drop() -> None:
    x, y = twice()
    y[60:] = 1 - y[60:]
    data = load_data(x, y, duplicates="drop")
    assert len(data.train) + len(data.validation) + len(data.test) == 100


def test_a_given_test_part_keeps_its_rows_and_training_loses_them() -> None:
    x, y = twice()
    given = {"x_train": x[:60], "y_train": y[:60], "x_test": x[60:], "y_test": y[60:]}
    data = load_data(given, duplicates="drop", scale="none")
    assert len(data.test) == 40
    assert len(data.train) + len(data.validation) == 20
    assert not set(inputs(data.test)) & set(inputs(data.train) + inputs(data.validation))
    with pytest.raises(DataError, match="40 training rows have the inputs of rows of its test"):
        load_data(given, duplicates="together")
