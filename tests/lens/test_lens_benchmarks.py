"""What the lens's benchmarks compare: networks by held-out seeds, and work that is counted."""

from argparse import Namespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.experiments import lens_family
from benchmarks.speed import lens_profile
from intarsia.lens import LanguageModel, LensParts, LlamaNetwork, LlamaShape, Profile

pytestmark = pytest.mark.usefixtures("one_thread")


def test_families_are_trained_and_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ("all work and no play makes a dull text. " * 8, "short words, " * 30)
    sources = [(f"{n:02d}", text[n % 2]) for n in range(20)]
    monkeypatch.setattr(lens_family, "WRITTEN", 4)
    monkeypatch.setitem(lens_family.KINDS, "own", lambda: iter(sources))
    options = Namespace(
        depths=[1, 2], seeds=2, width=16, steps=2, batch=2, length=8, samples=2, kinds=["own"],
        workers=1, device="cpu",
    )  # fmt: skip
    found = lens_family.measure(options)
    assert len(found["networks"]) == 2 * 3 * 2
    assert found["scores"]["depth"]["number of layers"]["accuracy"]["mean"] == 1
    assert [len(own["profile"]) for own in found["networks"][:2]] == [1, 2]
    assert 0 <= found["scores"]["form"]["profile"]["f1"]["mean"] <= 1
    points = found["plane"]["points"]
    assert {len(own) for own in points.values()} == {2 * 3 * 2 * 2}
    assert [own["seed"] for own in found["networks"]] == [0] * 6 + [1] * 6


def test_a_seed_that_is_tested_is_not_learned() -> None:
    """Profiles that tell the single network, and nothing of its form, are of no use."""
    rows = [{"form": form, "depth": 2, "seed": seed, "loss": 1.0}
            for seed in range(3) for form in ("a", "b")]  # fmt: skip
    generator = np.random.default_rng(0)

    def made(level: float) -> Profile:
        values = level + 0.01 * generator.normal(size=(20, 1, 2))
        return Profile(values, np.full(20, 3), 1.0, "m", np.zeros(20), np.zeros(20))

    own = lens_family.scores_of("form", rows, [made(10.0 * n) for n in (0, 1, 3, 2, 4, 5)])
    assert own["profile"]["accuracy"]["mean"] < 0.7
    shared = lens_family.scores_of("form", rows, [made(10.0 * (n % 2)) for n in range(6)])
    assert shared["profile"]["accuracy"]["mean"] == 1


def test_without_positions_the_order_of_earlier_bytes_is_not_seen() -> None:
    tokens = torch.tensor([[5, 9, 70, 8], [9, 5, 70, 8]])
    seen: dict[str, Any] = {}
    for form in lens_family.FORMS:
        torch.manual_seed(0)
        network = lens_family.made(form, 1, 16, 8)
        with torch.no_grad():
            first, second = network(tokens)[:, -1]
        seen[form] = torch.allclose(first, second, atol=1e-6)
    assert seen == {"gpt2": False, "llama": False, "llama without positions": True}


def test_products_are_counted() -> None:
    torch.manual_seed(0)
    network = LlamaNetwork(LlamaShape(16, 24, 3, 4, 2, 270, 32))
    parts, tokens = LensParts.of(network), torch.zeros(2, 8)
    body = sum(own.numel() for own in network.blocks.parameters())
    head = 270 * 16
    for settings, rows in (({}, 8), ({"stride": 3}, 3), ({"positions": "last"}, 1)):
        expected = (body + 3 * head * rows / 8) / (body + head)
        assert lens_profile.products(parts, tokens, settings) == pytest.approx(expected, abs=1e-3)
    options = Namespace(texts=4, tokens=16, batch=2, repetitions=1, device="cpu",
                        networks=["float32", "bfloat16"])  # fmt: skip
    found = lens_profile.measure(LanguageModel(network, None, "tiny"), options)
    assert [row["way"] for row in found["rows"]] == ["plain forward pass", *lens_profile.WAYS] * 2
