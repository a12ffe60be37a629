"""Folders of image files as data."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from intarsia.data import load_data
from intarsia.errors import DataError

pytest.importorskip("PIL")
from PIL import Image

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (20, 6, 5), np.uint8)


def save(folder: Path, arrays: np.ndarray, first: int = 0, ending: str = "png") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, array in enumerate(arrays, first):
        Image.fromarray(array).save(folder / f"{number:03}.{ending}")


def test_a_folder_per_class_is_what_its_arrays_are(tmp_path: Path) -> None:
    save(tmp_path / "10", GREY[:10])
    save(tmp_path / "9" / "deeper", GREY[10:])
    (tmp_path / "9" / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden").mkdir()
    data = load_data(tmp_path)
    names = ["10"] * 10 + ["9"] * 10
    assert data.digest == load_data(GREY, names).digest
    assert (data.catalogue, data.shape) == (("9", "10"), (1, 6, 5))
    assert data.train.x.dtype == torch.uint8
    assert data.scaling.kind == "unit"
    assert data.name == tmp_path.name


def test_train_and_test_stay_apart_and_grey_joins_colour(tmp_path: Path) -> None:
    colour = RNG.integers(0, 256, (20, 6, 5, 3), np.uint8)
    for name, rows in (("a", slice(0, 10)), ("b", slice(10, 20))):
        save(tmp_path / "train" / name, colour[rows], ending="bmp")
        save(tmp_path / "test" / name, GREY[rows][:3])
    data = load_data(tmp_path)
    grey = np.concatenate([GREY[:3], GREY[10:13]])
    expected = load_data(
        {
            "x_train": colour,
            "y_train": ["a"] * 10 + ["b"] * 10,
            "x_test": np.repeat(grey[..., None], 3, axis=3),
            "y_test": ["a"] * 3 + ["b"] * 3,
        }
    )
    assert data.digest == expected.digest
    assert data.shape == (3, 6, 5)


def test_a_size_brings_them_together(tmp_path: Path) -> None:
    save(tmp_path / "a", GREY[:10])
    save(tmp_path / "b", GREY[10:].transpose(0, 2, 1))
    with pytest.raises(DataError, match=r"000.png is 5 x 6 pixels, .* is 6 x 5: .*size=5"):
        load_data(tmp_path)
    assert load_data(tmp_path, size=4).shape == (1, 4, 4)
    data = load_data(tmp_path, size=[6, 5])
    assert data.shape == (1, 6, 5)
    assert data.options == {"size": [6, 5]}
    upright = {tuple(image.flatten().tolist()) for image in data.train.x}
    assert upright & {tuple(image.flatten().tolist()) for image in GREY[:10]}


def test_what_is_no_image_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="has no images in folders"):
        load_data(tmp_path)
    save(tmp_path / "a", GREY[:3])
    (tmp_path / "a" / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"broken.png cannot be read as an image"):
        load_data(tmp_path)
    (tmp_path / "a" / "broken.png").unlink()
    Image.fromarray(GREY[0].astype(np.uint16) * 200).save(tmp_path / "a" / "deep.png")
    with pytest.raises(DataError, match=r"deep.png has more than 8 bits"):
        load_data(tmp_path)
    with pytest.raises(DataError, match="size is 0"):
        load_data(tmp_path, size=0)
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError, match="has the folders train and 'a'"):
        load_data(tmp_path)
    with pytest.raises(DataError, match="target= has no meaning"):
        load_data(tmp_path, target="a")
    monkeypatch.setitem(sys.modules, "PIL", None)
    (tmp_path / "train").rmdir()
    with pytest.raises(DataError, match=r"pip install 'intarsia\[images\]'"):
        load_data(tmp_path)


def test_a_folder_here_needs_no_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "flowers" / "a", GREY[:10])
    save(tmp_path / "flowers" / "b", GREY[10:])
    monkeypatch.chdir(tmp_path)
    assert load_data("flowers").catalogue == ("a", "b")
    with pytest.raises(DataError, match="there is no such folder"):
        load_data("trees")


def test_no_picture_starts_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EPS under the name of another format would be handed to Ghostscript."""
    from PIL import EpsImagePlugin

    started: list[object] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *args: started.append(args))
    (tmp_path / "a").mkdir()
    content = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
    (tmp_path / "a" / "one.png").write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as an image"):
        load_data(f"{tmp_path}/")
    assert not started
