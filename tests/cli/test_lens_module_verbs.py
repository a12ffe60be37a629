"""lens modules: what it prints is what the lens measures, and errors are one line."""

from pathlib import Path

import pytest
from command_line import CommandLine, run_without_torch

import intarsia as ia
from intarsia.lens import tuned

lens = CommandLine("lens")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("modules") / "bank"
    ia.train(
        ia.load_data("digits"), model="mlp(8)", epochs=1, partition=[["0"], ["1"]], out=folder,
        progress=False,
    )  # fmt: skip
    return folder


def test_help_is_light() -> None:
    assert "modules" in run_without_torch("lens", "--help")


def test_it_prints_what_the_lens_measures(bank: Path, tmp_path: Path) -> None:
    figure = tmp_path / "entropy.svg"
    how = ("--rows", 200, "--device", "cpu")
    answer = lens.answer("modules", bank, *how, "--figure", figure)
    expected = tuned(ia.Bank.load(bank), ia.load_data("digits"), rows=200).to_json()
    assert answer["data"] == "digits"
    for one, other in zip(answer["modules"], expected["modules"], strict=True):
        for layer, own in zip(one["layers"], other["layers"], strict=True):
            assert layer["rewarded"] == pytest.approx(own["rewarded"], abs=1e-6)
    assert figure.read_text().startswith("<")
    shown = lens.call("modules", bank, *how).stdout
    assert "means over 2 modules" in shown


def test_a_bad_ridge_is_one_line(bank: Path) -> None:
    assert "ridge is 0.0: expected a number above 0" in lens.refusal("modules", bank, "--ridge", 0)
