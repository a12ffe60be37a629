"""Targets: by name, by file and by array; the published ones where they are."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from damage import flip
from intarsia.errors import DataError
from intarsia.sweetspot import PatternNetwork, TargetPicture, available, load, load_genome
from intarsia.sweetspot.pictures import png, read_picture
from intarsia.sweetspot.targets import PUBLISHED, load_network, published_picture

# Counted in the published files: weights, those that are not 0, those that are not 0 or 1.
COUNTS = {
    "skull": (5478, 147, 57),
    "butterfly": (8096, 281, 104),
    "apple": (46474, 918, 264),
}


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTARSIA_DATA", str(tmp_path / "data"))


@pytest.mark.usefixtures("no_data")
def test_the_totem_is_always_there() -> None:
    network = load()
    assert isinstance(network, PatternNetwork)
    assert network.name == "totem"
    assert available() == ["totem"]
    torch.testing.assert_close(network.image(32), load_genome().image(32), atol=1e-5, rtol=0)
    assert network.image(32).std() > 0.1


@pytest.mark.usefixtures("no_data")
def test_what_is_missing_says_where_it_goes(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="skull is not on this machine") as error:
        load("skull")
    assert str(tmp_path / "data" / "cppn") in str(error.value)
    assert "pickle" in str(error.value)
    with pytest.raises(DataError, match="did you mean 'skull'"):
        load("skul")


def test_networks_genomes_and_pictures_are_read(tmp_path: Path) -> None:
    network = load_network("totem")
    network.save(tmp_path / "one.safetensors")
    assert torch.equal(load(tmp_path / "one.safetensors").image(8), network.image(8))
    assert load(network) is network
    picture = network.image(16)
    (tmp_path / "mine.png").write_bytes(png(picture))
    read = load(tmp_path / "mine.png")
    assert isinstance(read, TargetPicture)
    assert read.name == "mine"
    torch.testing.assert_close(read.image(), picture, atol=1 / 255, rtol=0)
    assert read.image(8).shape == (8, 8, 3)
    assert torch.equal(load(picture.numpy()).image(16), picture)
    assert torch.equal(load(picture.numpy()[::-1]).image(16), picture.flip(0))
    with pytest.raises(DataError, match=r"is a folder: give a file of it, such as .*one\.safe"):
        load(tmp_path)
    with pytest.raises(DataError, match="a picture, not a network"):
        load_network(tmp_path / "mine.png")


def test_an_altered_file_is_refused(
    tmp_path: Path, cppn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cppn"
    folder.mkdir()
    for name in ("cppn.json", "skull.npz"):
        shutil.copyfile(cppn / name, folder / name)
    monkeypatch.setenv("INTARSIA_DATA", str(tmp_path))
    assert available() == ["totem", "skull", "skull-sgd"]
    assert load_network("skull").nonzero == 147
    flip(folder / "skull.npz", 1000)
    with pytest.raises(DataError, match="was altered"):
        load("skull")
    (folder / "cppn.json").write_text(json.dumps({"targets": {}}))
    with pytest.raises(DataError, match="says nothing of skull"):
        load("skull")


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.usefixtures("cppn")
def test_published_networks_draw_their_pictures(name: str) -> None:
    network, twin = load_network(name), load_network(f"{name}-sgd")
    ones = sum(int((w == 1).sum()) for w in network.weights)
    seen = (network.layout.parameters, network.nonzero, network.nonzero - ones)
    assert seen == COUNTS[name]
    picture = published_picture(name)
    assert float((network.image(256) - picture).square().mean()) <= 3e-5
    assert twin.nonzero == twin.layout.parameters
    assert float((twin.image(256) - picture).square().mean()) <= 5e-4
    # Our own layers of the genome are those that were published.
    laid = load_genome(name).network()
    assert (laid.layout, laid.nonzero) == (network.layout, network.nonzero)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.full((8, 8, 3), 0.5), "one colour"),
        (np.zeros((8, 9, 3)), "8 x 9 pixels"),
        (np.zeros((0, 0, 3)), "0 x 0"),
        (np.zeros((8, 8, 4)), "expected H x W"),
        (np.zeros(8), "expected H x W"),
        (np.eye(8) * np.nan, "finite"),
        (np.eye(8) * 255.0, "from 0 to 255"),
        (np.eye(8, dtype=np.int64), "holds int64"),
        (np.array(["a"]), "holds no pixels"),
        (object(), "holds no pixels"),
        (np.eye(1), "one colour"),
    ],
)
def test_what_is_no_picture_is_refused(array: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(array)


def test_image_files_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "bad.png"
    path.write_bytes(b"not a picture")
    with pytest.raises(DataError, match=r"bad\.png cannot be read as an image"):
        load(path)
    path.write_bytes(png(torch.rand(16, 16, 3))[:200])
    with pytest.raises(DataError, match=r"bad\.png cannot be read as an image"):
        load(path)
    path.write_bytes(png(torch.ones(16, 16, 3)))
    with pytest.raises(DataError, match=r"bad\.png has one colour"):
        load(path)
    with pytest.raises(DataError, match="neither a file nor"):
        load(tmp_path / "none.png")


def test_transparent_pixels_are_white(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.zeros((4, 4, 4), np.uint8)
    pixels[:2, :, 3] = 255  # black above, nothing below
    image.fromarray(pixels).save(tmp_path / "half.png")
    picture = read_picture(tmp_path / "half.png")
    assert picture[0].max() == 0
    assert picture[3].min() == 1


def test_a_picture_never_starts_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EPS under the name of another format would be handed to Ghostscript."""
    from PIL import EpsImagePlugin

    started: list[object] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *args: started.append(args))
    path = tmp_path / "picture.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n")
    with pytest.raises(DataError, match="cannot be read as an image"):
        load(path)
    assert not started
