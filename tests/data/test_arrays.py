from pathlib import Path

import numpy as np
import pytest
import torch

import intarsia as ia
from intarsia.data import Data, load_data
from intarsia.errors import DataError, DataWarning


def table(rows: int = 60, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, 4)), np.arange(rows) % classes


def test_arrays_in_every_form_give_the_same_data(tmp_path: Path) -> None:
    x, y = table()
    np.savez(tmp_path / "mine.npz", x=x, y=y)
    lines = [
        ",".join([*map(repr, map(float, row)), str(label)]) for row, label in zip(x, y, strict=True)
    ]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    forms = [
        load_data(x, y),
        load_data((x, y)),
        load_data(x.tolist(), y.tolist()),
        load_data(torch.tensor(x), torch.tensor(y)),
        load_data(x, y.astype(float)),
        load_data(x, y[:, None]),
        load_data(x, y.astype(str)),
        load_data(x, y.astype("S")),
        load_data(x, y.astype(object)),
        load_data({"x": x, "y": y}),
        load_data({"x_train": x, "y_train": y}),
        load_data({"x": x, "y": y, "classes": ["0", "1", "2"]}),
        load_data(tmp_path / "mine.npz"),
        load_data(str(tmp_path / "mine.csv")),
    ]
    assert len({data.digest for data in forms}) == 1
    assert [data.name for data in forms[-3:]] == ["arrays", "mine", "mine"]
    first = forms[0]
    assert load_data(first) is first
    assert first.scaling.kind == "capped"
    assert (len(first.train), len(first.validation), len(first.test)) == (38, 10, 12)


def test_rows_keep_their_labels_and_none_is_lost() -> None:
    x, y = np.arange(90, dtype=float).reshape(90, 1), np.arange(90) % 3
    data = load_data(x, y, seed=5)
    parts = (data.train, data.validation, data.test)
    assert sorted(torch.cat([p.x for p in parts]).flatten().tolist()) == list(range(90))
    assert all((p.x.flatten().long() % 3 == p.y).all() for p in parts)


def test_validation_rows_of_ones_own_are_not_dropped_in_silence(tmp_path: Path) -> None:
    x, y = table()
    arrays = {"x_train": x, "y_train": y, "x_test": x, "y_test": y, "x_val": x, "y_val": y}
    np.savez(tmp_path / "mine.npz", **arrays)
    for source in (arrays, tmp_path / "mine.npz"):
        with pytest.warns(DataWarning, match="not read: x_val and its labels; validation"):
            assert len(load_data(source).validation) == 12


def test_a_test_part_is_kept_where_the_target_is_named() -> None:
    x, y = table()
    expected = load_data({"x": x[:40], "y": y[:40], "x_test": x[40:], "y_test": y[40:]})
    named = {"x": x[:40], "kind": y[:40], "x_test": x[40:], "kind_test": y[40:]}
    data = load_data(named, target="kind")
    assert torch.equal(data.test.x, expected.test.x)
    assert torch.equal(data.test.y, expected.test.y)
    assert len(data.test) == 20
    labelled = np.column_stack([x.astype(float), y])
    for column in (labelled.shape[1] - 1, -1):
        parts = {"x": labelled[:40], "x_test": labelled[40:]}
        by_column = load_data(parts, target=column)
        assert torch.equal(by_column.test.y, expected.test.y)
        assert by_column.test.x.shape == (20, x.shape[1])
    del named["kind_test"]
    with pytest.raises(DataError, match="has x_test and no array 'kind_test'"):
        load_data(named, target="kind")


def test_data_are_a_copy() -> None:
    x, y = table()
    given = {"x_train": np.float32(x), "y_train": y, "x_test": np.float32(x), "y_test": y}
    data = load_data(given)
    given["x_test"][:] = 0
    given["y_test"][:] = 0
    assert data.test.x.abs().min() > 0
    assert data.test.y.max() == 2


def test_scaling_sees_the_training_split_only() -> None:
    x, y = table()
    data = load_data({"x_train": x, "y_train": y, "x_test": x + 100, "y_test": y}, scale="unit")
    assert torch.equal(data.scaling.shift, data.train.x.min(dim=0).values)
    assert data.scaling(data.test.x).min() > 1


def test_image_layouts() -> None:
    y = np.arange(20) % 2
    channels_last = np.random.default_rng(0).integers(0, 256, (20, 6, 5, 3), np.uint8)
    last = load_data(channels_last, y)
    first = load_data(channels_last.transpose(0, 3, 1, 2), y)
    assert last.shape == (3, 6, 5)
    assert last.digest == first.digest
    assert last.train.x.dtype == torch.uint8
    assert last.scaling.kind == "unit"
    grey = load_data(channels_last[..., 0] / 7, y)
    assert grey.shape == (1, 6, 5)
    assert grey.train.x.dtype == torch.float32
    assert grey.scaling.kind == "unit"
    assert grey.scaling.shift.shape == ()


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        ([10, 9, 2] * 4, ("2", "9", "10")),
        ([-1, 1] * 6, ("-1", "1")),
        (["10", "9", "2"] * 4, ("2", "9", "10")),
        (["b", "a", "10"] * 4, ("10", "a", "b")),
        ([True, False] * 6, ("0", "1")),
        (["nan", "1"] * 6, ("1", "nan")),
    ],
)
def test_catalogue_of_the_labels(y: list, expected: tuple[str, ...]) -> None:
    data = load_data(np.ones((12, 1)) * np.arange(12)[:, None], y)
    assert data.catalogue == expected
    for part in (data.train, data.validation, data.test):
        for row, label in zip(part.x[:, 0].long().tolist(), part.y.tolist(), strict=True):
            assert data.catalogue[label] == str(int(y[row]) if y[row] in (True, False) else y[row])


def test_given_catalogue_takes_indices_or_names() -> None:
    x = np.arange(12.0)[:, None]
    indices = np.arange(12) % 3
    names = np.array(["z", "m", "7"])
    digests = {
        load_data({"x": x, "y": y, "classes": names}).digest for y in (indices, names[indices])
    }
    assert len(digests) == 1
    numbers = load_data({"x": x, "y": indices * 3 + 3, "classes": ["9", "6", "3"]})
    assert numbers.catalogue == ("9", "6", "3")


def test_classes_keep_those_in_that_order() -> None:
    x, y = np.arange(60.0)[:, None], np.arange(60) % 3
    data = load_data({"x_train": x, "y_train": y, "x_test": x, "y_test": y}, classes=[2, "0"])
    assert data.catalogue == ("2", "0")
    for part in (data.train, data.validation, data.test):
        assert torch.equal(part.x.flatten().long() % 3, torch.tensor([2, 0])[part.y])
    assert len(data.test) == 40
    assert load_data(x, y, classes="all").classes == 3


def test_shares_of_nothing() -> None:
    data = load_data(*table(), validation=0, test=0)
    assert (len(data.train), len(data.validation), len(data.test)) == (60, 0, 0)
    assert data.validation.x.shape == (0, 4)


def bad_value(value: float) -> tuple[np.ndarray, np.ndarray]:
    x, y = table()
    x[[7, 9], 1] = value
    return x, y


X, Y = table()
CASES = [
    (
        lambda: load_data(*bad_value(np.nan)),
        "2 values of x are NaN or infinite, in 2 rows, .*row 7",
    ),
    (lambda: load_data(*bad_value(-np.inf)), "2 values .* row 7"),
    (lambda: load_data(*bad_value(1e300)), "too large for float32"),
    (lambda: load_data(X, Y[:-1]), "x has 60 rows but y has 59 labels"),
    (lambda: load_data(X, None), "labels are missing"),
    (lambda: load_data(X, np.where(Y == 0, np.nan, Y)), "20 labels are not whole numbers"),
    (lambda: load_data(X, Y + 0.5), "first 0.5 in row 0"),
    (lambda: load_data(X, np.eye(3)[Y]), "one label per row"),
    (lambda: load_data(X, [None] * 60), "text or whole numbers"),
    (lambda: load_data(X, np.zeros(60)), "one class only"),
    (lambda: load_data(X, [9, *Y[1:]]), "at least 3 rows.*'9' has 1"),
    (lambda: load_data(X, [9, 9, *Y[2:]]), "'9' has 2"),
    (lambda: load_data(X.astype(str), Y), "must hold numbers"),
    (lambda: load_data(X[:, 0], Y), "rows x features"),
    (lambda: load_data(X[:0], Y[:0]), "at least one row"),
    (lambda: load_data([[1.0], [1.0, 2.0]], [0, 1]), "different lengths"),
    (lambda: load_data((X, Y, Y)), "must be .x, y., got 3"),
    (lambda: load_data({"x_train": X}), "no array 'y_train'"),
    (lambda: load_data({"x_train": X, "y_train": Y, "x_test": X}), "no array 'y_test'"),
    (lambda: load_data({}), "it has none"),
    (
        lambda: load_data({"x_train": X, "y_train": Y, "x_test": X[:, :3], "y_test": Y}),
        r"train part has inputs of shape \(4,\), the test part of shape \(3,\)",
    ),
    (
        lambda: load_data({"x_train": X, "y_train": Y, "x_test": X, "y_test": Y + 1}),
        "test part: label '3' .row 2. is outside the catalogue",
    ),
    (
        lambda: load_data({"x": X, "y": Y, "classes": ["a", "b"]}),
        "first 2 in row 2; expected 0 to 1",
    ),
    (lambda: load_data({"x": X, "y": Y - 1, "classes": ["a", "b", "c"]}), "first -1 in row 0"),
    (lambda: load_data({"x": X, "y": Y, "classes": list("abcd")}), "'d' has 0"),
    (lambda: load_data({"x": X, "y": Y, "classes": list("aba")}), "is named twice"),
    (
        lambda: load_data({"x": X, "y": ["cat", "dot"] * 30, "classes": ["cat", "dog"]}),
        "label 'dot' .row 1. is outside the catalogue: did you mean 'dog'",
    ),
    (lambda: load_data(X, Y, classes=["0", "5"]), "no class '5'"),
    (lambda: load_data(X, Y, classes=["0", "0"]), "distinct"),
    (lambda: load_data(X, Y, classes="0"), "'all' or a list"),
    (lambda: load_data(X, Y, classes=3), "'all' or a list of names, got 3"),
    (lambda: load_data(X, Y, classes={"0", "1"}), "'all' or a list"),
    (lambda: load_data(X, Y, scale="minmax"), "unknown scaling"),
    (lambda: load_data(X, Y, validation=1.5), "validation is a fraction"),
    (lambda: load_data(X, Y, test=-1), "test is a fraction"),
    (lambda: load_data(X, Y, seed=-1), "seed"),
    (lambda: load_data(X, Y, target="label"), "target= has no meaning"),
    (lambda: load_data(X, Y, labels="coarse"), "only cifar100"),
    (lambda: load_data(X, labels=Y), r"labels is a .*load_data\(x, y\)"),
    (lambda: load_data("mnits"), "did you mean 'mnist'"),
    (lambda: load_data("digits", Y), "y= has no meaning"),
    (lambda: load_data("none.npz"), "there is no file none.npz"),
    (lambda: load_data("none.csv"), "there is no file none.csv"),
    (lambda: load_data("folder/none.txt"), "ends in .npz or .csv"),
]


@pytest.mark.parametrize(("load", "message"), CASES, ids=[message for _, message in CASES])
def test_bad_input(load, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load()


def test_a_class_may_be_missing_from_a_given_test_part() -> None:
    data = load_data({"x_train": X, "y_train": Y, "x_test": X[Y > 0], "y_test": Y[Y > 0]})
    assert sorted(set(data.test.y.tolist())) == [1, 2]


INDEXED = ",a,b,label\n" + "".join(f"{i},{i},1,{i % 2}\n" for i in range(12))
NUMBERED = "0,1,label\n" + "".join(f"{i},1,{i % 2}\n" for i in range(12))
CSV = "width;name;height\n" + "".join(f"{i};{'ab'[i % 2]};{-i}.5\n" for i in range(12))


def load_csv(tmp_path: Path, text: str, **options: object) -> Data:
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    return load_data(tmp_path / "t.csv", **options)


def test_csv_with_header_and_named_target(tmp_path: Path) -> None:
    data = load_csv(tmp_path, "\ufeff" + CSV + "\n\n", target="name")
    assert data.catalogue == ("a", "b")
    assert data.shape == (2,)
    assert all(
        (p.x[:, 0].long() % 2 == p.y).all() for p in (data.train, data.validation, data.test)
    )
    for target in (1, -2):
        assert load_csv(tmp_path, CSV, target=target).digest == data.digest
    bare = CSV.split("\n", 1)[1]
    assert load_csv(tmp_path, bare, target=1).digest == data.digest


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        (CSV, "nmae", "no column 'nmae': did you mean 'name'"),
        (CSV, 3, "3 columns, so there is no column 3"),
        (CSV, None, r"line 2, column 'name': 'a' is not a number"),
        (CSV.replace("5;b;", "x5;b;"), "name", r"line 7, column 'width': 'x5' is not a number"),
        (CSV.replace("5;b;", ";b;"), "name", r"line 7, column 'width': '' is not a number"),
        (CSV.replace("5;b;", "5;;"), "name", r"line 7: the label \(column 'name'\) is empty"),
        (CSV.replace("5;b;", "5;b;1;"), "name", "line 7: 4 columns where the first line has 3"),
        (CSV.replace("5;b;", "nan;b;"), "name", r"line 7, column 'width': 'nan' is not a num"),
        (INDEXED, None, r"column 0 .* has no name; .* index=False"),
        (INDEXED.replace("a,b", "0,1"), None, r"column 0 .* has no name; .* index=False"),
        (NUMBERED, None, r"line 1 looks like a header .* target='label'"),
        (NUMBERED.replace("0,1,l", "9,y,l"), None, r"line 1 looks like a header"),
        ("", None, "is empty"),
        ("a,b\n", None, "header but no rows"),
        ("a\n1\n", None, "one column only"),
        ('a,b\n1,"2', None, "cannot be read as .csv"),
    ],
)
def test_bad_csv(tmp_path: Path, text: str, target: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_csv(tmp_path, text, target=target)


def test_csv_with_numbers_for_names(tmp_path: Path) -> None:
    data = load_csv(tmp_path, NUMBERED, target="label")
    assert data.digest == load_csv(tmp_path, NUMBERED.split("\n", 1)[1]).digest


def test_csv_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"1,2\n\xff\xfe\n")
    with pytest.raises(DataError, match=r"cannot be read as \.csv"):
        load_data(tmp_path / "t.csv")


def test_damaged_npz(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez_compressed(path, x=X, y=Y)
    merged = path.read_bytes()
    np.save(tmp_path / "plain.npy", X)
    np.savez(tmp_path / "objects.npz", x=X, y=np.array([{}] * 60, dtype=object))
    damaged = [b"", b"text", merged[:200], merged[:-50], (tmp_path / "plain.npy").read_bytes()]
    damaged += [(tmp_path / "objects.npz").read_bytes()]
    damaged += [
        merged[:at] + bytes([merged[at] ^ 255]) + merged[at + 1 :] for at in (60, 200, 1500)
    ]
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(DataError, match=r"cannot be read as \.npz"):
            load_data(path)


def test_whole_numbers_stay_whole_unless_a_scale_is_given(tmp_path: Path) -> None:
    """They may be tokens, which an embedding looks up: a mean of them means nothing."""
    tokens = np.random.default_rng(0).integers(0, 50_000, (60, 7))
    y = np.arange(60) % 3
    np.savez(tmp_path / "own.npz", x=tokens.astype(np.uint16), y=y)
    forms = [
        load_data(tokens, y),
        load_data(tokens.astype(np.int32), y),
        load_data(torch.tensor(tokens), y),
        load_data(tokens.tolist(), y),
        load_data(tmp_path / "own.npz"),
        load_data({"x": tokens, "y": y}),
    ]
    assert len({data.digest for data in forms}) == 1
    data = forms[0]
    assert (data.train.x.dtype, data.scaling.kind) == (torch.int64, "none")
    assert data.options == {}
    rows = {tuple(row) for row in tokens.tolist()}
    scaled = data.scaling(data.train.x)
    assert scaled.dtype == torch.int64
    assert all(tuple(row) in rows for row in scaled.tolist())
    measured = load_data(tokens, y, scale="capped")
    assert measured.train.x.dtype == torch.float32
    assert measured.digest == load_data(tokens.astype(float), y).digest


def test_pixels_truths_and_images_of_whole_numbers_are_measured() -> None:
    y = np.arange(20) % 2
    pixels = np.random.default_rng(0).integers(0, 256, (20, 6), np.uint8)
    assert load_data(pixels, y).scaling.kind == "capped"
    assert load_data(pixels > 99, y).train.x.dtype == torch.float32
    images = load_data(pixels.reshape(20, 2, 3).astype(int), y)
    assert (images.scaling.kind, images.train.x.dtype) == ("unit", torch.float32)


def test_a_network_without_embedding_gets_floats_of_whole_numbers() -> None:
    x, y = np.arange(60)[:, None] % 3, np.arange(60) % 3
    data = load_data(x, y)
    bank = ia.train(data, model="mlp(8)", epochs=1, rounds=0, sparsity=0.0, progress=False)
    answers = bank["1"].to_module().predict(x)
    assert torch.equal(answers, bank["1"].to_module().predict(x.astype(np.float32)))


def test_a_network_that_looks_tokens_up_learns_from_them() -> None:
    """The class is the token at the first place; mixed up by a scaling it cannot be learned."""

    class Lookup(torch.nn.Module):
        def __init__(self, outputs: int) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(1000, 8)
            self.out = torch.nn.Linear(8, outputs)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.table(x[:, 0].long()))

    rng = np.random.default_rng(0)
    x = np.stack([rng.choice([7, 8, 900], 90), rng.integers(0, 1000, 90)], axis=1)
    data = load_data(x, x[:, 0])
    bank = ia.train(
        data, model=lambda shape, outputs: Lookup(outputs), objective="xe", epochs=30, batch=8,
        learning_rate=0.05, rounds=0, sparsity=0.0, partition=[["7", "8", "900"]], progress=False,
    )  # fmt: skip
    assert ia.evaluate(bank[0].to_module(), data.test).accuracy == 1.0


@pytest.mark.parametrize(
    "y",
    [
        ["a", None] * 30,
        [1, None] * 30,
        ("a", float("nan")) * 30,
        np.array(["a", None] * 30, object),
        np.array([["a"], [None]] * 30, object),
    ],
    ids=["text", "numbers", "nan", "array", "column"],
)
def test_a_missing_label_is_told_by_its_row(y: object) -> None:
    with pytest.raises(DataError, match=r"the label of row 1 \(counted from 0\) is missing"):
        load_data(X, y)
    with pytest.raises(ValueError, match="the label of row 1") as refused:
        ia.ModularClassifier().fit(X, y)
    assert isinstance(refused.value, ia.IntarsiaError)


def test_a_missing_label_of_pandas_is_told_by_its_row() -> None:
    pandas = pytest.importorskip("pandas")
    for kind in ("object", "string", "Int64"):
        label = 1 if kind == "Int64" else "a"
        with pytest.raises(DataError, match=r"the label of row 2|first nan in row 2"):
            load_data(X, pandas.Series([label, label, None] * 20, dtype=kind))
