"""sweetspot show and fit on the embedded network: no data is needed."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from command_line import CommandLine

from intarsia.sweetspot import PatternBank, fit, initial_bank, load_network
from intarsia.sweetspot.pictures import png, read_picture

sweetspot = CommandLine("sweetspot")
pytestmark = pytest.mark.usefixtures("one_thread")
QUICK = ("--steps", 3, "--size", 4, "--seeds", 2, "--device", "cpu")


def test_show_says_what_a_network_is(tmp_path: Path) -> None:
    picture = tmp_path / "totem.png"
    answer = sweetspot.answer("show", "--picture", picture, "--size", 32)
    network = load_network("totem")
    assert (answer["name"], answer["nonzero"]) == ("totem", network.nonzero)
    torch.testing.assert_close(read_picture(picture), network.image(32), atol=1 / 255, rtol=0)
    assert str(network.layout.parameters) in sweetspot.call("show", "totem").stdout
    assert sweetspot.answer("show", picture)["kind"] == "picture"
    assert "must end in .png" in sweetspot.refusal("show", "--picture", "x.svg")
    assert "did you mean 'totem'" in sweetspot.refusal("show", "totme")


def test_fit_writes_a_bank_and_reads_it_again(tmp_path: Path) -> None:
    out = tmp_path / "fits"
    answer = sweetspot.answer("fit", "--width", 5, "-o", out, *QUICK)
    bank = PatternBank.load(out / "bank.safetensors")
    assert [row["loss"] for row in answer["banks"][0]["networks"]] == list(bank.losses or ())
    expected = fit("totem", width=5, seeds=2, steps=3, size=4, device="cpu", progress=False)
    torch.testing.assert_close(bank.weights, expected.weights, atol=1e-5, rtol=0)
    assert sweetspot.answer("fit", "--width", 5, "-o", out, *QUICK) == answer
    assert "other settings" in sweetspot.refusal("fit", "--width", 6, "-o", out, *QUICK)
    shown = sweetspot.answer("show", out / "bank.safetensors", "--picture", tmp_path / "all.png")
    assert len(shown["networks"]) == 2
    assert "seed-1" in sweetspot.call("show", out / "bank.safetensors").stdout
    more = ("--start", out / "bank.safetensors", "-o", tmp_path / "more")
    assert sweetspot.answer("fit", *more, *QUICK)["banks"][0]["layout"] == shown["layout"]
    longer = ("fit", *more[:2], "-o", tmp_path / "longer", "--steps", 1, "--size", 4)
    assert len(sweetspot.answer(*longer)["banks"][0]["networks"]) == 2
    assert "leave seeds out" in sweetspot.refusal(*longer, "--seeds", 5)


def test_fit_takes_lists_and_files(tmp_path: Path) -> None:
    (tmp_path / "mine.png").write_bytes(png(load_network("totem").image(16)))
    words = ("--depth", "1,2", "--width", "3", "--learning-rate", "0.01,0.001", *QUICK)
    answer = sweetspot.answer("fit", tmp_path / "mine.png", "-o", tmp_path / "out", *words)
    assert [len(bank["networks"]) for bank in answer["banks"]] == [4, 4]
    assert (tmp_path / "out" / "depth-2-width-3" / "bank.safetensors").is_file()
    refused = sweetspot.refusal("fit", tmp_path / "mine.png", "-o", tmp_path / "x", *QUICK)
    assert "needs a depth" in refused
    refused = sweetspot.refusal("fit", tmp_path / "mine.png", "--width", "3,4", *QUICK)
    assert "give --depth" in refused
    assert "expected numbers" in sweetspot.call("fit", "--depth", "1,x", code=2).stderr


def test_networks_that_diverged_are_shown(tmp_path: Path) -> None:
    bank = initial_bank(load_network("totem").layout, 2)
    path = tmp_path / "bank.safetensors"
    replace(bank, losses=(0.25, float("nan"))).save(path)
    assert [n["loss"] for n in sweetspot.answer("show", path)["networks"]] == [0.25, None]
    assert "diverged" in sweetspot.call("show", path).stdout
    one = tmp_path / "one.safetensors"
    replace(bank[1:], losses=(float("nan"),)).save(one)
    assert sweetspot.answer("show", one)["losses"] == [None]
