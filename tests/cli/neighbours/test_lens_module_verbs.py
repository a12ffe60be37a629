"""lens modules: what it prints is what the lens measures, and errors are one line."""

from pathlib import Path

import pytest
from command_line import CommandLine

import intarsia as ia
from intarsia.lens import tuned

lens = CommandLine("lens")
pytestmark = pytest.mark.usefixtures("one_thread")


def test_it_prints_what_the_lens_measures(two_modules: Path, tmp_path: Path) -> None:
    figure = tmp_path / "entropy.svg"
    how = ("--rows", 200, "--device", "cpu")
    answer = lens.answer("modules", two_modules, *how, "--figure", figure)
    expected = tuned(ia.Bank.load(two_modules), ia.load_data("digits"), rows=200).to_json()
    assert answer["data"] == "digits"
    for one, other in zip(answer["modules"], expected["modules"], strict=True):
        for layer, own in zip(one["layers"], other["layers"], strict=True):
            assert layer["rewarded"] == pytest.approx(own["rewarded"], abs=1e-6)
    assert figure.read_text().startswith("<")
    least = lens.answer("modules", two_modules, *how, "--alpha", "inf")
    assert least["alpha"] == "inf"
    assert least["modules"][0]["layers"][-1]["other"] < answer["modules"][0]["layers"][-1]["other"]
    shown = lens.call("modules", two_modules, *how).stdout
    assert "means over 2 modules" in shown


def test_a_bad_ridge_is_one_line(two_modules: Path) -> None:
    assert "ridge is 0.0: expected a number above 0" in lens.refusal(
        "modules", two_modules, "--ridge", 0
    )
