"""Every named data set read from files as its publisher writes them, and sets of one's own."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import intarsia as ia
from benchmarks.small_data import zipped
from intarsia.data import DATASETS, File
from intarsia.data.sources.datasets import _parsed_digits
from intarsia.errors import DataError, RecipeError

RNG = np.random.default_rng(0)


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_idx_files_of_images_and_labels(tmp_path: Path, idx) -> None:
    made = [RNG.integers(0, 256, shape, np.uint8) for shape in ((5, 4, 3), (5,), (2, 4, 3), (2,))]
    paths = [put(tmp_path / str(i), idx(array)) for i, array in enumerate(made)]
    read = DATASETS["fashion_mnist"](*paths)
    for key, array in zip(("x_train", "y_train", "x_test", "y_test"), made, strict=True):
        assert np.array_equal(read[key], array)
    assert len(set(read["classes"].tolist())) == 10
    assert DATASETS["mnist"](*paths)["classes"].tolist() == list("0123456789")


@pytest.fixture
def har() -> bytes:
    top = "UCI HAR Dataset/"
    return zipped(
        {
            "__MACOSX/" + top + "train/._X_train.txt": b"\x00\x05\x16",
            top + "activity_labels.txt": b"1 WALKING\n2 LAYING\n",
            top + "train/X_train.txt": b"  1.0e-001 -2.0e-001\n  3.0e-001  4.0e-001\n",
            top + "train/y_train.txt": b"2\n1\n",
            top + "train/subject_train.txt": b"7\n9\n",
            top + "train/Inertial Signals/body_acc_x_train.txt": b"skipped",
            top + "test/X_test.txt": b"  5.0e-001 -1.0e+000\n",
            top + "test/y_test.txt": b"2\n",
            top + "test/subject_test.txt": b"8\n",
        }
    )


@pytest.mark.parametrize("nested", [False, True])
def test_har_archive(tmp_path: Path, har: bytes, nested: bool) -> None:
    data = zipped({"UCI HAR Dataset.zip": har, "UCI HAR Dataset.names": b""}) if nested else har
    read = DATASETS["har"](put(tmp_path / "har.zip", data))
    np.testing.assert_array_equal(read["x_train"], np.float32([[0.1, -0.2], [0.3, 0.4]]))
    np.testing.assert_array_equal(read["x_test"], np.float32([[0.5, -1]]))
    assert read["y_train"].tolist() == [1, 0]
    assert read["y_test"].tolist() == [1]
    assert read["classes"].tolist() == ["WALKING", "LAYING"]
    assert (read["subject_train"].tolist(), read["subject_test"].tolist()) == ([7, 9], [8])


def test_damaged_har_archives(tmp_path: Path, har: bytes) -> None:
    for data, message in (
        (har[:-30], "truncated or altered"),
        (b"", "truncated or altered"),
        (zipped({"readme": b""}), "activity_labels"),
    ):
        with pytest.raises(DataError, match=message):
            DATASETS["har"](put(tmp_path / "har.zip", data))


YEAST = b"""ADT1_YEAST  0.58  0.61  0.47  0.13  0.50  0.00  0.48  0.22  MIT
ADT2_YEAST  0.43  0.67  0.48  0.27  0.50  0.00  0.53  0.22  NUC

AAR2_YEAST  0.58  0.44  0.57  0.13  0.50  0.00  0.54  0.22  MIT
"""


@pytest.mark.parametrize("packed", [False, True])
def test_yeast_table(tmp_path: Path, packed: bool) -> None:
    data = zipped({"yeast.names": b"about", "yeast.data": YEAST}) if packed else YEAST
    read = DATASETS["yeast"](put(tmp_path / "yeast.data", data))
    assert read["x"].shape == (3, 8)
    assert read["x"][1].tolist() == [0.43, 0.67, 0.48, 0.27, 0.5, 0, 0.53, 0.22]
    assert read["classes"][read["y"]].tolist() == ["MIT", "NUC", "MIT"]


@pytest.mark.parametrize("data", [YEAST[:-8], YEAST.replace(b"0.61", b"abcd"), b"\xff\xfe"])
def test_damaged_yeast_table(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DataError, match="truncated or altered"):
        DATASETS["yeast"](put(tmp_path / "yeast.data", data))


def records(count: int, labels: int) -> np.ndarray:
    return RNG.integers(0, 256, (count, labels + 3072), np.uint8)


def test_cifar10_records(tmp_path: Path, tarred) -> None:
    batches = [records(2, 1) for _ in range(6)]
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    files = {f"cifar-10-batches-bin/{n}": b.tobytes() for n, b in zip(names, batches, strict=True)}
    files["cifar-10-batches-bin/batches.meta.txt"] = b"airplane\ncat\n\n"
    path = put(tmp_path / "c.tar.gz", tarred(files))
    read = DATASETS["cifar10"](path)
    assert read["x_train"].shape == (10, 3, 32, 32)
    assert read["x_test"].shape == (2, 3, 32, 32)
    # Red, green and blue planes follow the label byte, row by row.
    assert read["x_train"][3, 2, 1, 5] == batches[1][1, 1 + 2 * 1024 + 32 + 5]
    assert read["y_train"][3] == batches[1][1, 0]
    assert read["y_test"][1] == batches[5][1, 0]
    assert read["classes"].tolist() == ["airplane", "cat"]


def test_cifar100_records(tmp_path: Path, tarred) -> None:
    train, test = records(3, 2), records(2, 2)
    files = {
        "cifar-100-binary/train.bin": train.tobytes(),
        "cifar-100-binary/test.bin": test.tobytes(),
        "cifar-100-binary/fine_label_names.txt": b"apple\nbear\n",
        "cifar-100-binary/coarse_label_names.txt": b"fruit\n",
    }
    read = DATASETS["cifar100"](put(tmp_path / "c.tar.gz", tarred(files)))
    assert read["y_train_coarse"].tolist() == train[:, 0].tolist()
    assert read["y_train"].tolist() == train[:, 1].tolist()
    assert np.array_equal(read["x_test"].reshape(2, -1), test[:, 2:])
    assert read["classes"].tolist() == ["apple", "bear"]
    assert read["coarse_classes"].tolist() == ["fruit"]


def test_damaged_cifar_archives(tmp_path: Path, tarred) -> None:
    merged = tarred({f"b/data_batch_{i}.bin": records(1, 1).tobytes() for i in range(1, 6)})
    short = tarred(
        {f"b/{n}.bin": b"123" for n in ("train", "test")}
        | {f"b/{kind}_label_names.txt": b"a" for kind in ("fine", "coarse")}
    )
    for read, data, message in (
        (DATASETS["cifar10"], merged[: len(merged) // 2], "truncated or altered"),
        (DATASETS["cifar10"], merged, "test_batch.bin"),
        (DATASETS["cifar10"], b"nothing", "truncated or altered"),
        (DATASETS["cifar100"], short, "3 bytes are not whole records"),
    ):
        with pytest.raises(DataError, match=message):
            read(put(tmp_path / "c.tar.gz", data))


def clouds() -> dict[str, object]:
    """Three clouds of points in four dimensions, far apart."""
    y = np.arange(90) % 3
    x = 4 * np.eye(4)[y] + np.random.default_rng(0).normal(size=(90, 4))
    return {"x": x, "y": y, "classes": ["left", "right", "far"]}


def test_a_set_of_ones_own_loads_by_name_and_trains() -> None:
    @DATASETS.register("mine", title="three clouds", scale="standard", keep=("far", "left"))
    def mine() -> dict[str, object]:
        return clouds()

    data = ia.load_data("mine")
    assert data.name == "mine"
    assert data.catalogue == ("far", "left")
    assert data.scaling.kind == "standard"
    assert ia.load_data("mine", classes="all").catalogue == ("left", "right", "far")
    bank = ia.train("mine", data_options={"classes": "all"}, model="mlp(16)", epochs=20, rounds=1)
    whole = ia.compose(bank)
    test = ia.load_data("mine", classes="all").test
    assert ia.evaluate(whole, test).accuracy > 0.9


def test_a_set_of_ones_own_is_offered_in_errors() -> None:
    DATASETS.register("clouds_of_mine")(clouds)
    with pytest.raises(DataError, match="clouds_of_mine"):
        ia.load_data("clouds_of_mind")
    with pytest.raises(RecipeError, match="title"):
        DATASETS.register("other", titel="misspelt")


def test_a_set_of_ones_own_is_checked_against_what_it_says() -> None:
    DATASETS.register("fits", shape=(4,), classes=3)(clouds)
    assert ia.load_data("fits").shape == (4,)
    DATASETS.register("another_shape", shape=(5,))(clouds)
    DATASETS.register("more_classes", classes=4)(clouds)
    DATASETS.register("bare_arrays")(lambda: (1, 2))
    for name, message in (
        ("another_shape", "expected .5,."),
        ("more_classes", "and 4"),
        ("bare_arrays", "returned a tuple"),
    ):
        with pytest.raises(DataError, match=message):
            ia.load_data(name)
    with pytest.raises(DataError, match="only cifar100 has coarse labels"):
        ia.load_data("fits", labels="coarse")


def test_a_set_of_ones_own_is_fetched_verified_and_kept(site, cache: Path) -> None:
    content = b"1 2 0\n2 1 0\n8 9 1\n9 8 1\n" * 5
    address, digest = site.serve("table.txt", content)

    @DATASETS.register("fetched", files=(File("table.txt", ((address, digest),)),), own_test=False)
    def fetched(path: Path) -> dict[str, np.ndarray]:
        table = np.loadtxt(path)
        return {"x": table[:, :2], "y": table[:, 2].astype(int)}

    with pytest.raises(DataError, match=r"arrays x, y, classes(.|\n)*table.txt"):
        ia.load_data("fetched", download=False)
    DATASETS.register("objects", files=(File("table.txt", ((address, digest),)),))(
        lambda path: {"x": np.array([{}, []], dtype=object)}
    )
    with pytest.raises(DataError, match="not plain numbers"):
        ia.load_data("objects")
    assert not (cache / "objects.npz").exists()
    first = ia.load_data("fetched")
    assert (cache / "fetched.npz").is_file()
    site.files.clear()
    assert ia.load_data("fetched").digest == first.digest
    assert len(site.asked) == 2


@pytest.fixture
def parsed_anew() -> Iterator[None]:
    _parsed_digits.cache_clear()
    yield
    _parsed_digits.cache_clear()


@pytest.mark.usefixtures("parsed_anew")
@pytest.mark.parametrize("file_is_there", [True, False])
def test_digits_are_those_of_scikit_learn(
    file_is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = load_digits()
    if file_is_there:  # and nothing of scikit-learn is imported
        monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    else:
        monkeypatch.setattr("intarsia.data.sources.datasets.find_spec", lambda name: None)
    digits = DATASETS["digits"]()
    for array, other in ((digits["x"], expected.images), (digits["y"], expected.target)):
        assert array.dtype == other.dtype
        assert np.array_equal(array, other)


@pytest.mark.usefixtures("parsed_anew")
def test_digits_are_parsed_once_and_nobody_changes_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = DATASETS["digits"]()
    monkeypatch.setattr("sklearn.datasets.load_digits", None)
    monkeypatch.setattr(np, "loadtxt", None)
    for name, array in first.items():
        array[:] = 7
        assert (DATASETS["digits"]()[name] != 7).any()
