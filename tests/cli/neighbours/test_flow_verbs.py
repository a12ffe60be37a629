"""flow cumulants, propagate, iterate and fit: what they print is what the room gives."""

from pathlib import Path

import pytest
from command_line import CommandLine

import intarsia as ia

flow = CommandLine("flow")
pytestmark = pytest.mark.usefixtures("one_thread")


def test_cumulants_of_a_law_and_of_a_file(tmp_path: Path) -> None:
    answer = flow.answer("cumulants", "exponential", "--samples", 100, "--unbiased")
    expected = ia.flow.cumulants(ia.flow.draw("exponential", 100, 1), unbiased=True)
    assert answer["cumulants"] == expected.to_json()["cumulants"]
    table = tmp_path / "t.csv"
    table.write_text("1,2\n3,4\n5,9\n")
    answer = flow.answer("cumulants", table, "--order", 2)
    assert answer["cumulants"][0] == [3.0, 5.0]
    assert "3 samples of 2 dimensions" in flow.call("cumulants", table).stdout
    assert "did you mean" in flow.refusal("cumulants", "digitss")
    assert "no law, data set or file 'expo': known:" in flow.refusal("cumulants", "expo")


def test_propagate_shows_every_layer(two_modules: Path, tmp_path: Path) -> None:
    file, picture = next(two_modules.glob("*.safetensors")), tmp_path / "closure.svg"
    answer = flow.answer("propagate", file, "--figure", picture)
    names = [layer["name"] for layer in answer["layers"]]
    assert names[-3:] == ["layers.0", "layers.0 relu", "layers.1"]
    assert answer["layers"][-1]["covariance_error"] > 0
    assert picture.read_text().startswith("<")
    assert "layers.0 relu" in flow.call("propagate", file, "--data", "digits").stdout
    sampled = flow.answer("propagate", file, "--closure", "sample", "--split", "train")
    assert sampled["layers"][-1]["covariance_error"] is None
    assert "holds a bank" in flow.refusal("propagate", two_modules)
    assert "did you mean 'gaussian'" in flow.refusal("propagate", file, "--closure", "gausian")


def test_iterate_by_the_exact_step_and_by_a_network(tmp_path: Path) -> None:
    answer = flow.answer("iterate", "--steps", 2, "--samples", 512)
    assert [row["samples"] for row in answer["steps"]] == [512, 256, 128]
    arm = ("--unit", "quadratic", "--fit-steps", 20, "--steps", 2, "--samples", 512, "--resample")
    picture = tmp_path / "flow.png"
    assert flow.answer("iterate", *arm)["network"]["unit"] == "quadratic"
    assert "symmetric quadratic" in flow.call("iterate", *arm, "--figure", picture).stdout
    assert picture.stat().st_size > 1000
    assert "too few" in flow.refusal("iterate", "--samples", 16)
    assert "did you mean" in flow.refusal("iterate", "--unit", "quadratc")
    assert "give --unit" in flow.refusal("iterate", "--form", "free")
    samples = tmp_path / "one.csv"
    samples.write_text("\n".join(map(str, range(64))))
    assert flow.answer("iterate", samples, "--steps", 1)["steps"][1]["samples"] == 32


def test_fit_tests_every_seed_on_every_law() -> None:
    words = ("--steps", 20, "--batch", 16, "--pairs", 64, "--seeds", "0,3")
    answer = flow.answer("fit", *words)
    assert [row["seed"] for row in answer["networks"]] == [0, 3]
    assert set(answer["networks"][0]["mse"]) == set(ia.flow.LAWS)
    counted = flow.answer("fit", *words[:-1], 2)
    assert [row["seed"] for row in counted["networks"]] == [0, 1]
    shown = flow.call("fit", "--unit", "tanh", *words).stdout
    assert "laplace" in shown
    assert "did you mean 'symmetric'" in flow.refusal("fit", "--form", "symmetrical")
