"""Tables of users: label columns, encodings, missing values, parquet."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.impute import SimpleImputer

from intarsia.data import Split, load_data, options_for
from intarsia.errors import DataError, DataWarning

ROWS = [(i % 3, i * 7 % 11, i * i % 13) for i in range(60)]
KINDS = ("red", "green", "blau")


def write(path: Path, lines: list[str], encoding: str = "utf-8") -> Path:
    path.write_bytes("\n".join(lines).encode(encoding))
    return path


def kinds_first(path: Path, names: tuple[str, ...] = KINDS, encoding: str = "utf-8") -> Path:
    lines = [f"{names[k]},{a},{b}" for k, a, b in ROWS]
    return write(path, ["kind,one,two", *lines], encoding)


@pytest.fixture
def parquet(tmp_path: Path) -> Any:
    """A function that writes columns by name."""
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")

    def save(columns: dict[str, Any], name: str = "own.parquet") -> Path:
        from pyarrow import parquet as files

        files.write_table(pyarrow.table(columns), tmp_path / name)
        return tmp_path / name

    return save


def test_the_label_column_is_found_by_name_and_position_in_every_format(
    tmp_path: Path, parquet: Any
) -> None:
    table = kinds_first(tmp_path / "own.csv")
    columns = {
        "kind": [KINDS[k] for k, _, _ in ROWS],
        "one": [a for _, a, _ in ROWS],
        "two": [float(b) for _, _, b in ROWS],
    }
    same = parquet(columns)
    result = [load_data(path, target=t) for path in (table, same) for t in ("kind", 0, -3)]
    assert len({data.digest for data in result}) == 1
    assert result[0].catalogue == ("blau", "green", "red")
    assert result[0].options == {"target": "kind"}
    assert result[1].options == {"target": 0}
    assert result[3].scaling.kind == "capped"
    assert result[3].train.x.dtype == torch.float32  # whole numbers of a table are measurements


def test_npz_names_its_labels_or_their_column(tmp_path: Path) -> None:
    rows = np.array(ROWS)
    x, y = rows[:, 1:].astype(float), rows[:, 0]
    usual = load_data(x, y)
    np.savez(tmp_path / "a.npz", features=x, diagnosis=y)
    np.savez(tmp_path / "b.npz", table=rows)
    np.savez(tmp_path / "c.npz", x=x, z=x, y=1 - y, diagnosis=y)
    forms = [
        load_data(tmp_path / "a.npz", target="diagnosis"),
        load_data(tmp_path / "b.npz", target=0),
        load_data(tmp_path / "c.npz", target="diagnosis"),
        load_data({"x": rows}, target=0),
    ]
    assert {data.digest for data in forms} == {usual.digest}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
def test_encodings_are_named_or_found(tmp_path: Path, encoding: str) -> None:
    names = ("größer", "kleiner", "gleich")
    path = kinds_first(tmp_path / "own.csv", names, encoding)
    named = load_data(path, target="kind", encoding=encoding)
    assert named.catalogue == ("gleich", "größer", "kleiner")
    assert named.options["encoding"] == encoding
    if encoding == "utf-16-le":  # without a mark it is not told apart
        with pytest.raises(DataError, match=r"not text in utf-8.*encoding="):
            load_data(path, target="kind")
    elif encoding == "latin-1":
        with pytest.warns(DataWarning, match="line 2, and was read as latin-1"):
            assert load_data(path, target="kind").digest == named.digest
    else:
        assert load_data(path, target="kind").digest == named.digest


@pytest.mark.parametrize("encoding", ["utf8x", "ascii"])
def test_a_wrong_encoding_is_told(tmp_path: Path, encoding: str) -> None:
    path = kinds_first(tmp_path / "own.csv", ("ö", "b", "c"))
    with pytest.raises(DataError, match=r"no encoding|not text in ascii, see byte .* in line 2"):
        load_data(path, encoding=encoding)


def gaps(path: Path, mark: str) -> Path:
    """Every seventh value of the second column is missing."""
    rows = [f"{a},{mark if i % 7 == 4 else b},{k}" for i, (k, a, b) in enumerate(ROWS)]
    return write(path, ["one,two,kind", *rows])


@pytest.mark.parametrize("mark", ["", " ", "NA", "nan", "null", "?"])
def test_missing_values_are_refused_by_column_and_line(tmp_path: Path, mark: str) -> None:
    with pytest.raises(DataError, match=r"own.csv, line 6, column 'two': .*missing.*missing=mean"):
        load_data(gaps(tmp_path / "own.csv", mark))


@pytest.mark.parametrize("way", ["mean", "median", "most_frequent"])
def test_missing_values_are_filled_from_the_training_part(tmp_path: Path, way: str) -> None:
    x = np.array([[a, np.nan if i % 7 == 4 else b] for i, (_, a, b) in enumerate(ROWS)], float)
    y = np.array([k for k, _, _ in ROWS])
    # Numbered rows tell which of them are in which part.
    parts = load_data(np.arange(60.0)[:, None], y)
    rows = {p: getattr(parts, p).x[:, 0].long().numpy() for p in ("train", "validation", "test")}
    oracle = SimpleImputer(strategy=way).fit(x[rows["train"]])
    for data in (
        load_data(gaps(tmp_path / "own.csv", "NA"), missing=way),
        load_data(x, y, missing=way),
    ):
        assert data.fill == pytest.approx(oracle.statistics_)
        for part, own in rows.items():
            np.testing.assert_allclose(getattr(data, part).x, oracle.transform(x[own]), rtol=1e-6)
        assert data.options == {"missing": way}
        assert bool(torch.isfinite(data.scaling(data.test.x)).all())


def test_another_file_is_filled_with_the_values_of_the_training(tmp_path: Path) -> None:
    data = load_data(gaps(tmp_path / "own.csv", ""), missing="mean")
    learned = {
        "recipe": {"data": str(tmp_path / "own.csv"), "data_options": dict(data.options)},
        "data": {"fill": list(data.fill or ())},
    }
    assert options_for(str(tmp_path / "own.csv"), learned) == {"missing": "mean"}
    later = write(tmp_path / "new.csv", ["one,two,kind", *["5,,0", "6,,1"] * 10])
    again = load_data(later, **options_for(str(later), learned))
    assert set(again.train.x[:, 1].tolist()) == {np.float32((data.fill or ())[1]).item()}
    assert options_for("mnist", learned) == {}
    assert options_for(str(tmp_path / "x.npz"), learned) == {}


def test_how_a_table_is_read_holds_for_others_of_its_kind(tmp_path: Path) -> None:
    recipe = {"data": "a.csv", "data_options": {"target": "kind", "seed": 3, "encoding": "latin-1"}}
    assert options_for("a.csv", {"recipe": recipe}) == recipe["data_options"]
    expected = {"target": "kind", "encoding": "latin-1"}
    assert options_for("b.csv", {"recipe": recipe}) == expected
    assert options_for("b.parquet", {"recipe": recipe}) == {"target": "kind"}
    assert options_for("digits", {"recipe": recipe}) == {}


def test_parquet_fills_and_refuses_like_csv(parquet: Any) -> None:
    one = [None if i == 4 else float(a) for i, (_, a, _) in enumerate(ROWS)]
    path = parquet({"one": one, "is": [a > 4 for _, a, _ in ROWS], "k": [k for k, _, _ in ROWS]})
    with pytest.raises(DataError, match=r"row 4 \(counted from 0\), column 'one': .*missing"):
        load_data(path)
    data = load_data(path, missing="median")
    assert data.shape == (2,)
    assert set(data.train.x[:, 1].tolist()) == {0.0, 1.0}


def test_parquet_labels_may_be_categories_truths_or_numbers(parquet: Any) -> None:
    import pyarrow

    one = [float(a) for _, a, _ in ROWS]
    labels = [KINDS[k] for k, _, _ in ROWS]
    coded = pyarrow.array(labels).dictionary_encode()
    assert load_data(parquet({"one": one, "k": coded})).catalogue == ("blau", "green", "red")
    assert load_data(parquet({"one": one, "k": [k > 0 for k, _, _ in ROWS]})).catalogue == (
        "0",
        "1",
    )
    empty = [None if i == 2 else k for i, k in enumerate(labels)]
    with pytest.raises(DataError, match="the label of row 2"):
        load_data(parquet({"one": one, "k": empty}))


def test_columns_that_are_dropped_are_not_read(tmp_path: Path, parquet: Any) -> None:
    pandas = pytest.importorskip("pandas")
    columns = {
        "name": [f"T{i}" for i in range(60)],
        "one": [a for _, a, _ in ROWS],
        "tree_id": range(60),
        "two": [float(b) for _, _, b in ROWS],
        "kind": [KINDS[k] for k, _, _ in ROWS],
    }
    frame = pandas.DataFrame(columns)
    frame.to_csv(tmp_path / "own.csv", index=False)
    sources = (tmp_path / "own.csv", parquet(columns), frame)
    found = [load_data(source, drop=["name", 2]) for source in sources]
    plain = load_data(kinds_first(tmp_path / "plain.csv"), target="kind")
    assert {data.digest for data in found} == {plain.digest}
    assert found[0].options == {"drop": ["name", 2]}
    assert {data.columns for data in found} == {("one", "two")}
    for source in sources:
        with pytest.raises(DataError, match=r"column 'name': .* drop='name'"):
            load_data(source)
        with pytest.warns(DataWarning, match="'tree_id' has another number in every row"):
            load_data(source, drop="name")
        with pytest.raises(DataError, match="did you mean 'tree_id'"):
            load_data(source, drop="treeid")
        with pytest.raises(DataError, match="'kind' is to be dropped, and is that of the labels"):
            load_data(source, drop="kind")
        with pytest.raises(DataError, match="no column of features left"):
            load_data(source, drop=[0, 1, 2, 3])
    with pytest.raises(DataError, match="drop= has no meaning for digits"):
        load_data("digits", drop="one")


def test_a_data_frame_is_a_table(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=["kind", "one", "two"]).astype({"one": "Int64"})
    frame["kind"] = [KINDS[k] for k in frame["kind"]]
    expected = load_data(kinds_first(tmp_path / "own.csv"), target="kind")
    assert load_data(frame, target="kind").digest == expected.digest
    for inputs in (frame[["one", "two"]], frame[["one", "two"]].astype(float)):
        given = load_data(inputs, frame["kind"])
        assert (given.digest, given.columns) == (expected.digest, expected.columns)
    with pytest.raises(DataError, match=r"column 'kind': .* x.drop\(columns='kind'\)"):
        load_data(frame, frame["kind"])
    frame.loc[3, "one"] = pandas.NA
    with pytest.raises(DataError, match=r"row 3 .*, column 'one'"):
        load_data(frame, target="kind")
    assert load_data(frame, target="kind", missing=0).fill == (0.0, 0.0)
    grouped = load_data(frame, target="kind", groups="two", missing="mean")
    assert grouped.shape == (1,)


def test_data_frames_in_a_mapping_are_measurements() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=["kind", "one", "two"]).astype({"one": "Int64"})
    x, y = frame[["one", "two"]], frame["kind"].to_numpy()
    expected = load_data(x, y)
    assert expected.scaling.kind == "capped"
    for mapping, reading in (
        ({"x": x, "y": y, "unread": frame[["two"]].astype(str)}, {}),
        ({"features": x, "kind": frame[["kind"]]}, {"target": "kind"}),
    ):
        given = load_data(mapping, **reading)
        assert (given.digest, given.columns) == (expected.digest, expected.columns)
    parts = {"x_train": x[:40], "y_train": y[:40], "x_test": x[40:], "y_test": y[40:]}
    given = load_data(parts)
    assert torch.equal(given.test.x, torch.tensor(x[40:].to_numpy(dtype=np.float32)))
    turned = {**parts, "x_test": x[40:][["two", "one"]]}
    with pytest.raises(DataError, match=r"x_test has the columns .* x_test\[x_train.columns\]"):
        load_data(turned)
    with pytest.raises(DataError, match=r"x_test, column 'one': .* x_test.drop"):
        load_data({**parts, "x_test": x[40:].astype({"one": object})})
    with pytest.warns(DataWarning, match=r"'plant_id' .* x.drop\(columns='plant_id'\)"):
        load_data(x.assign(plant_id=range(60)), y)


def test_the_index_of_pandas_is_no_feature(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"one": range(40), "two": range(40), "k": ["a", "b"] * 20})
    frame.index = [f"row {i}" for i in range(40)]
    frame.to_parquet(tmp_path / "own.parquet")
    assert load_data(tmp_path / "own.parquet").shape == (2,)


def csv(tmp_path: Path, *lines: str) -> Path:
    return write(tmp_path / "own.csv", list(lines))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "knid"}, "has no column 'knid': did you mean 'kind'"),
        ({"target": 3}, "3 columns, so there is no column 3"),
        ({"target": 1.5}, "target is 1.5"),
        ({"missing": "meen"}, "missing is 'meen': did you mean 'mean'"),
        ({"missing": [1.0]}, "2 of them, one per feature"),
        ({"missing": float("nan")}, "a number, or 2 of them"),
        ({"missing": 10**400}, "a number, or 2 of them"),
        ({"missing": [1e300, 0.0]}, r"missing is \[1e\+300, 0.0\]: expected"),
        ({"size": 8}, "size= has no meaning for"),
    ],
)
def test_options_that_do_not_fit_are_told(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    path = write(tmp_path / "own.csv", ["one,two,kind", *(f"{a},{b},{k}" for k, a, b in ROWS)])
    with pytest.raises(DataError, match=said):
        load_data(path, **options)


def test_a_column_without_any_value_and_one_of_text_are_told(tmp_path: Path) -> None:
    path = csv(tmp_path, "one,two,kind", *(f"{a},,{k}" for k, a, _ in ROWS))
    with pytest.raises(DataError, match=r"feature 1 .* has no value in any training row"):
        load_data(path, missing="mean")
    path = csv(tmp_path, "one,two,kind", *(f"{a},red,{k}" for k, a, _ in ROWS))
    with pytest.raises(DataError, match="line 2, column 'two': 'red' is not a number; encode or"):
        load_data(path, missing="mean")


def test_truth_values_are_numbers_in_every_format(tmp_path: Path, parquet: Any) -> None:
    """As pandas writes what get_dummies makes."""
    truths = [[b % 2 == 0, a] for _, a, b in ROWS]
    kinds = [KINDS[k] for k, _, _ in ROWS]
    lines = [f"{truth},{a},{kind}" for (truth, a), kind in zip(truths, kinds, strict=True)]
    table = load_data(csv(tmp_path, "even,one,kind", *lines))
    columns = {"even": [t for t, _ in truths], "one": [a for _, a in truths], "kind": kinds}
    assert table.digest == load_data(parquet(columns)).digest
    assert set(table.train.x[:, 0].tolist()) == {0.0, 1.0}
    bare = [f"{truth},{not truth},{kind}" for (truth, _), kind in zip(truths, kinds, strict=True)]
    assert sum(map(len, _splits(csv(tmp_path, *bare)))) == len(bare)  # no row is a header
    named = csv(tmp_path, "true,guess,kind", *(f"{a},{b},{k}" for k, a, b in ROWS))
    assert load_data(named).columns == ("true", "guess")


def _splits(path: Path) -> tuple[Split, ...]:
    data = load_data(path)
    return data.train, data.validation, data.test


def test_all_columns_of_text_are_told_together(tmp_path: Path, parquet: Any) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=["kind", "one", "two"])
    frame = frame.assign(land="DE", day="2024-01-01")[["land", "one", "two", "day", "kind"]]
    frame.to_csv(tmp_path / "own.csv", index=False)
    columns = {name: frame[name].tolist() for name in frame}
    for source in (tmp_path / "own.csv", parquet(columns), frame):
        with pytest.raises(DataError, match=r"'land' .*, 'day' .* drop=\['land', 'day'\]"):
            load_data(source)
    with pytest.raises(DataError, match=r"'land' .* x.drop\(columns=\['land', 'day'\]\)"):
        load_data(frame.drop(columns="kind"), frame["kind"])
    many = ",".join(f"a{i}" for i in range(40))
    path = csv(tmp_path, f"{many},one,kind", *(f"{many},{a},{k}" for k, a, _ in ROWS))
    with pytest.raises(DataError, match=r"'a11' .* and 28 more: not numbers"):
        load_data(path)


def test_a_decimal_comma_is_told(tmp_path: Path) -> None:
    path = csv(tmp_path, "one;two;kind", *(f"{a};{b},5;{k}" for k, a, b in ROWS))
    with pytest.raises(DataError, match=r"column 'two': '0,5' is not a number \(a decimal comma"):
        load_data(path)


def test_missing_is_for_tables() -> None:
    x = np.zeros((20, 4, 4))
    x[3] = np.nan
    with pytest.raises(DataError, match="missing= is for tables"):
        load_data(x, [0, 1] * 10, missing="mean")
    with pytest.raises(DataError, match="1 values of x are infinite"):
        load_data(np.array([[np.inf], [np.nan]] * 1 + [[1.0]] * 18), [0, 1] * 10, missing="mean")
    with pytest.raises(DataError, match=r"row 1, column 0 .*missing='mean'"):
        load_data(np.array([[0.0], [np.nan]] + [[1.0]] * 18), [0, 1] * 10)
    with pytest.raises(DataError, match="missing= has no meaning for digits"):
        load_data("digits", missing="mean")


def test_parquet_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"pip install 'intarsia\[parquet\]'"):
        load_data(tmp_path / "own.parquet")


@pytest.mark.parametrize("missing", [None, "mean"])
def test_infinite_values_are_refused_by_column_and_line(tmp_path: Path, missing: Any) -> None:
    path = tmp_path / "own.csv"
    path.write_text("\n".join(["one,two,kind", *["1,2,a", "3,4,b"] * 3, "1,-inf,a"]))
    with pytest.raises(DataError, match=r"line 8, column 'two'.*leave the row out"):
        load_data(path, missing=missing)
