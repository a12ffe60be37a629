"""--features on the command line: from pictures to modules that take raw pictures again."""

from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine

import intarsia as ia
from intarsia.encoders import ENCODERS
from tiny_encoder import TinyEncoder, pictures

pytestmark = pytest.mark.usefixtures("one_thread")
CLI = CommandLine()
call, answer, refusal = CLI.call, CLI.answer, CLI.refusal
SHORT = ["--model", "mlp(8)", "--rounds", "0", "--epochs", "20", "--learning-rate", "0.01"]


@pytest.fixture
def trained(here: Path) -> Path:
    ENCODERS.register("tiny", resizes=False)(lambda seed=0: TinyEncoder(seed))
    x, y = pictures()
    np.savez(here / "pictures.npz", x=x, y=y)
    call("train", "bank", "--data", "pictures.npz", "--features", "tiny(1)", *SHORT)
    return here / "bank"


def test_features_are_remembered_by_every_verb(trained: Path, tmp_path: Path) -> None:
    assert "features: tiny(1)" in (trained / "recipe.yaml").read_text()
    call("compose", "bank", "-o", "whole.safetensors")
    mine = answer("evaluate", "whole.safetensors")
    elsewhere = tmp_path / "others.npz"
    elsewhere.write_bytes((tmp_path / "pictures.npz").read_bytes())
    theirs = answer("evaluate", "whole.safetensors", "--data", "others.npz")
    assert mine["trained_on_this_data"]
    assert theirs["models"] == mine["models"]
    told = answer("inspect", "bank/0.safetensors")
    assert told["encoder"] == "tiny(seed=1), from 3 x 6 x 5 to 7 features"
    call("export", "bank/0.safetensors", "-o", "tensors.safetensors")
    raw = ia.Composition.load("whole.safetensors", quiet=True)
    x, y = pictures()
    assert (raw.predict(x).numpy() == y).mean() > 0.8


def test_data_shows_the_encoder(trained: Path) -> None:
    told = answer("data", "pictures.npz", "--features", "tiny")
    assert told["encoder"] == "tiny, from 3 x 6 x 5 to 7 features"
    assert told["shape"] == [7]
    assert "encoder" in call("data", "pictures.npz", "--features", "tiny").stdout
    assert "encoder" not in answer("data", "pictures.npz")
    assert "did you mean 'tiny'" in refusal("data", "pictures.npz", "--features", "tinyy")


def test_the_report_says_what_the_features_are_of(trained: Path, tmp_path: Path) -> None:
    call("report", "bank", "-o", "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "tiny(seed=1)" in page
    assert "7 features of raw inputs of 3 x 6 x 5" in page
    assert "<span>feature " in page
    assert "Effective weights of the module" not in page
