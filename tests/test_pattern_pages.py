"""The pages on pattern networks say of every aim whether it is met."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import pattern_pages

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"


def load(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def page_with(**changes: Any) -> str:
    """The page on facts of which some parts are others."""
    facts = deepcopy(load("sweetspot_facts"))
    facts["parts"] |= changes
    files = {"sweetspot_facts": facts, "targets": load("targets")}
    return pattern_pages.sweetspot(files.__getitem__)


@pytest.mark.parametrize(("loss", "word"), [(4e-4, "met"), (6e-4, "missed")])
def test_an_aim_is_met_or_missed(loss: float, word: str) -> None:
    dense = {"size": 32, "steps": 10, "losses": {"cosine": [loss] * 3}, "device": "cpu"}
    (line,) = [row for row in page_with(dense=dense).splitlines() if "dense networks, 32 px" in row]
    assert line.endswith(f"| {word} |")
    assert "n 3" in line


@pytest.mark.parametrize(("few", "word"), [(3e-3, "met"), (1e-3, "missed")])
def test_fewer_layers_are_held_against_more(few: float, word: str) -> None:
    losses = {"constant": {"10": [few], "12": [1e-3]}}
    depth = {"size": 32, "steps": 10, "pixels": 5, "losses": losses, "device": "cpu"}
    (line,) = [row for row in page_with(depth=depth).splitlines() if "layers to 12" in row]
    assert line.endswith(f"| {word} |")


def test_the_order_of_png_ratios_must_break_at_64_pixels() -> None:
    targets = {
        name: {"depth": depth, "image": 0.2, "by_size": {"256": depth / 100, "64": depth / 100}}
        for name, depth in (("skull", 12), ("apple", 33))
    }
    lines = page_with(png={"targets": targets, "device": "cpu"}).splitlines()
    words = {
        row.split("|")[1].strip(): row.split("|")[4].strip() for row in lines if "ratios at" in row
    }
    assert words == {"PNG ratios at 256 pixels": "met", "PNG ratios at 64 pixels": "missed"}


def test_a_gpu_has_an_aim_that_a_cpu_has_not() -> None:
    result = load("pattern_fits_cpu")
    assert "The target" not in "\n".join(pattern_pages._timed(result, None))
    told = "\n".join(pattern_pages._timed({**result, "clock": "wall"}, 30))
    assert "The target is a stack at least 30 times as fast" in told
    assert told.endswith("missed.")
