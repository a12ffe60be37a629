import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from intarsia.data import DATASETS, File, load_data, locate
from intarsia.data.sources import lookup
from intarsia.errors import DataError


def tiny_mnist() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "x_train": rng.integers(0, 256, (50, 28, 28), np.uint8),
        "y_train": np.uint8(np.arange(50) % 10),
        "x_test": rng.integers(0, 256, (20, 28, 28), np.uint8),
        "y_test": np.uint8(np.arange(20) % 10),
        "classes": np.array([str(d) for d in range(10)]),
    }


def publish(monkeypatch: pytest.MonkeyPatch, files: tuple[File, ...]) -> None:
    """Let mnist have other published files."""
    known = DATASETS["mnist"]
    changed = type(known)(known.name, known.function, {**known.traits, "files": files})
    monkeypatch.setitem(DATASETS, "mnist", changed)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setenv("INTARSIA_DATA", str(folder))
    return folder


@pytest.fixture
def published(site, idx, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Point mnist at a tiny copy on a server of ours."""
    arrays = tiny_mnist()
    keys = ("x_train", "y_train", "x_test", "y_test")
    files = tuple(File(f"{key}.gz", (site.serve(f"{key}.gz", idx(arrays[key])),)) for key in keys)
    publish(monkeypatch, files)
    return arrays


def test_digits_need_no_file() -> None:
    data = load_data("digits")
    assert (len(data.train), len(data.validation), len(data.test)) == (1150, 288, 359)
    assert data.shape == (1, 8, 8)
    assert data.train.x.dtype == torch.float32
    assert data.train.x.min() == 0
    assert data.train.x.max() == 16
    assert data.scaling(data.train.x).max() == 1
    assert data.catalogue == tuple("0123456789")
    overall = torch.bincount(torch.cat([p.y for p in (data.train, data.validation, data.test)]))
    for part in (data.train, data.validation, data.test):
        fraction = torch.bincount(part.y) / len(part)
        assert (fraction - overall / 1797).abs().max() < 2 / len(part)


def test_own_folder_comes_before_the_cache(own_folder: Path, cache: Path) -> None:
    cache.mkdir()
    for folder in (cache, own_folder):
        np.savez(folder / "mnist.npz", **tiny_mnist())
        assert locate("mnist") == folder / "mnist.npz"
    data = load_data("mnist", download=False)
    assert (len(data.train), len(data.validation), len(data.test)) == (40, 10, 20)
    assert data.shape == (1, 28, 28)
    assert data.train.x.dtype == torch.uint8


def test_publisher_fills_the_cache_once(published, site, cache: Path) -> None:
    first = load_data("mnist")
    assert len(site.asked) == 4
    assert [p.name for p in cache.iterdir() if p.is_file()] == ["mnist.npz"]
    assert not list((cache / "published" / "mnist").iterdir())
    assert torch.equal(first.test.x[:, 0], torch.tensor(published["x_test"]))
    site.files.clear()
    assert load_data("mnist").digest == first.digest
    assert len(site.asked) == 4


@pytest.mark.parametrize("change", ["value", "label", "class", "missing", "seal"])
def test_cached_arrays_are_checked_whenever_they_are_read(published, cache: Path, change) -> None:
    load_data("mnist")
    path = cache / "mnist.npz"
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    if change == "value":
        arrays["x_test"][3, 4, 5] ^= 1
    elif change == "label":
        arrays["y_train"] = arrays["y_train"].astype(np.int64)
    elif change == "class":
        arrays["classes"][0] = "?"
    elif change == "missing":
        del arrays["y_test"]
    else:
        arrays["sha256"] = np.array([["?"]])
    np.savez(path, **arrays)
    with pytest.raises(DataError, match=f"{path} was altered since it was written"):
        load_data("mnist")
    path.unlink()
    assert len(load_data("mnist").test) == 20


def test_an_array_of_text_or_of_nothing_has_a_digest() -> None:
    empty, text = np.empty((0, 3), np.float32), np.array(["a", "ä"])
    digests = {
        lookup._digest({"a": empty}),
        lookup._digest({"a": empty.reshape(3, 0)}),
        lookup._digest({"a": text}),
        lookup._digest({"a": text[::-1]}),
        lookup._digest({"b": text}),
        lookup._digest({"a": np.array("a")}),
        lookup._digest({"a": np.array(["a"])}),
    }
    assert len(digests) == 7


def test_a_second_copy_is_tried(published, site, monkeypatch) -> None:
    files = tuple(
        File(f.name, (("http://127.0.0.1:9/f", f"sha256:{'0' * 64}"), *f.copies))
        for f in DATASETS["mnist"].files
    )
    publish(monkeypatch, files)
    assert len(load_data("mnist").test) == 20


def test_files_put_in_place_by_hand_are_used_and_kept(published, site, cache: Path) -> None:
    folder = cache / "published" / "mnist"
    folder.mkdir(parents=True)
    for name, content in site.files.items():
        (folder / name).write_bytes(content)
    load_data("mnist", download=False)
    assert site.asked == []
    assert len(list(folder.iterdir())) == 4


def test_altered_publication_leaves_no_data(published, site, cache: Path) -> None:
    site.files["y_test.gz"] = site.files["y_test.gz"][:-1] + b"?"
    with pytest.raises(DataError, match=r"altered.*\n.*put mnist.npz(.|\n)*y_test.gz"):
        load_data("mnist")
    assert not (cache / "mnist.npz").exists()
    names = {p.name for p in (cache / "published" / "mnist").iterdir()}
    assert names == {"x_train.gz", "y_train.gz", "x_test.gz"}  # whole and verified: kept


def test_truncated_transfer_goes_on_next_time(published, site, cache: Path) -> None:
    site.cuts = [100] * 4
    with pytest.raises(DataError, match="broke off at 400"):
        load_data("mnist")
    assert not (cache / "mnist.npz").exists()
    assert len(load_data("mnist").test) == 20
    assert "bytes=400-" in site.asked


@pytest.mark.parametrize("name", [name for name, known in DATASETS.items() if known.files])
def test_without_network_the_error_says_which_file_goes_where(name: str, cache: Path) -> None:
    with pytest.raises(DataError) as error:
        load_data(name, download=False)
    message = str(error.value)
    assert f"{name}.npz" in message
    assert "INTARSIA_DATA" in message
    assert str(cache / "published" / name) in message
    for file in DATASETS[name].files:
        assert file.name in message
        assert file.copies[0][0] in message
    assert not cache.exists()


def test_own_folder_is_named_in_the_advice(own_folder: Path) -> None:
    with pytest.raises(DataError, match=f"classes. in {own_folder}"):
        load_data("har", download=False)


def test_files_under_a_wrong_name(own_folder: Path) -> None:
    arrays = tiny_mnist()
    for change, message in (
        (
            {"x_train": arrays["x_train"][:, :14], "x_test": arrays["x_test"][:, :14]},
            "is not mnist",
        ),
        ({"classes": np.array(list("0123456789a"))}, "is not mnist"),
        ({"x_test": arrays["x_test"][:, :14]}, "test part of shape"),
        ({"y_train": arrays["y_train"] + 1}, "outside the catalogue"),
    ):
        np.savez(own_folder / "mnist.npz", **(arrays | change))
        with pytest.raises(DataError, match=message):
            load_data("mnist")
    (own_folder / "mnist.npz").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"cannot be read as \.npz"):
        load_data("mnist")


def test_yeast_keeps_its_four_largest_classes(own_folder: Path) -> None:
    names = ["MIT", "NUC", "CYT", "ME1", "EXC", "ME2", "ME3", "VAC", "POX", "ERL"]
    y = np.repeat(np.arange(10), 20)
    x = np.random.default_rng(0).normal(size=(200, 8))
    np.savez(own_folder / "yeast.npz", x=x, y=y, classes=np.array(names))
    four = load_data("yeast")
    assert four.catalogue == ("CYT", "NUC", "MIT", "ME3")
    assert (len(four.train), len(four.validation), len(four.test)) == (52, 12, 16)
    assert four.scaling.kind == "standard"
    assert load_data("yeast", classes="all").catalogue == tuple(names)
    assert load_data("yeast", classes=["POX", "ERL"]).catalogue == ("POX", "ERL")


def test_coarse_labels(own_folder: Path) -> None:
    fine = np.uint8(np.repeat(np.arange(100), 3))
    arrays = {
        "x_train": np.zeros((300, 32, 32, 3), np.uint8),
        "y_train": fine,
        "x_test": np.zeros((300, 32, 32, 3), np.uint8),
        "y_test": fine,
        "classes": np.array([f"fine {i}" for i in range(100)]),
    }
    np.savez(own_folder / "cifar100.npz", **arrays)
    assert load_data("cifar100").classes == 100
    with pytest.raises(DataError, match="no array 'y_train_coarse'"):
        load_data("cifar100", labels="coarse")
    coarse = {"y_train_coarse": fine // 5, "y_test_coarse": fine // 5}
    names = np.array([f"coarse {i}" for i in range(20)])
    np.savez(own_folder / "cifar100.npz", **arrays, **coarse, coarse_classes=names)
    data = load_data("cifar100", labels="coarse")
    assert data.catalogue == tuple(names)
    assert data.shape == (3, 32, 32)
    assert data.test.y.tolist() == (fine // 5).tolist()


def test_cache_folder(monkeypatch, tmp_path: Path) -> None:
    assert lookup.cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("INTARSIA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert lookup.cache_folder() == tmp_path / "xdg" / "intarsia"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert lookup.cache_folder() == tmp_path / ".cache" / "intarsia"


def test_cache_that_cannot_be_written(published, monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="mnist is not on this machine"):
        load_data("mnist")


def test_every_published_file_has_well_formed_digests() -> None:
    for source in DATASETS.values():
        for file in source.files:
            for address, digest in file.copies:
                algorithm, _, value = digest.partition(":")
                assert address.startswith(("https://", "http://"))
                assert len(bytes.fromhex(value)) == hashlib.new(algorithm).digest_size
