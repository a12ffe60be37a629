"""scale="auto", density="auto": what is tried, taken and recorded; changes find it anew."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

from intarsia.composition import Composition, MergeContext, build, compose
from intarsia.composition.operators.registry import is_entrywise, looks_at_samples
from intarsia.composition.scale_search import (
    DENSITIES,
    SCALES,
    candidates,
    search_settings,
)
from intarsia.data import Split
from intarsia.errors import CompositionError
from intarsia.modules import Module, logits_of

pytestmark = pytest.mark.usefixtures("one_thread")
Make = Callable[..., MergeContext]
AUTO = ["task_arithmetic", "ties", "dare", "breadcrumbs", "della", "sce", "tsvm", "iso_c"]


def samples() -> Split:
    draw = torch.Generator().manual_seed(3)
    x = torch.randint(0, 256, (60, 6), dtype=torch.uint8, generator=draw)
    return Split(x, torch.arange(60) % 5 - 1)  # a fifth has no label


def state_of(merged: Composition) -> dict[str, Tensor]:
    assert isinstance(merged.joined, Module)
    return dict(merged.joined.state)


def accuracy(merged: Composition) -> float:
    known = samples().y >= 0
    answers = logits_of(merged, samples().x[known]).argmax(1)
    return float((answers == samples().y[known]).double().mean())


def test_the_first_of_the_best_is_taken() -> None:
    scores = {0.5: 0.2, 0.1: 0.9, 0.7: 0.9}
    found = search_settings([{"scale": s} for s in scores], lambda own: scores[own["scale"]], 9)
    assert found.settings == {"scale": 0.1}
    tried = [{"scale": 1.0}, {"scale": 0.5}]
    search = search_settings(tried, lambda settings: settings["scale"], 10)
    assert (search.settings, search.samples) == ({"scale": 1.0}, 10)
    assert search.tried == [({"scale": 1.0}, 1.0), ({"scale": 0.5}, 0.5)]
    assert search_settings(tried, lambda settings: 0.7, 10).settings == {"scale": 1.0}
    assert candidates(3, [0.5, 1.0]) == [0.5, 1.0, 1 / 3]
    assert candidates(2, [0.5, 1.0]) == [0.5, 1.0]


@pytest.mark.parametrize("name", AUTO)
def test_the_best_scale_is_found_and_recorded(name: str, make_context: Make) -> None:
    parts = make_context(3, density=1.1).parts
    merged = compose(parts, f"{name}(scale='auto')", samples=samples())
    record = merged.report["search"]
    scores = {}
    for scale in [*SCALES, 1 / 3]:
        by_hand = compose(parts, f"{name}(scale={scale!r})", samples=samples())
        scores[scale] = accuracy(by_hand)
    assert {entry["scale"]: entry["accuracy"] for entry in record["tried"]} == scores
    assert record["samples"] == 48
    assert record["scale"] == max(scores, key=scores.__getitem__)
    assert record["accuracy"] == max(scores.values()) == accuracy(merged)
    assert merged.resolved.arguments == {"scale": record["scale"]}
    same = state_of(compose(parts, merged.resolved, samples=samples()))
    assert all(torch.equal(tensor, same[key]) for key, tensor in state_of(merged).items())
    assert len(set(scores.values())) > 1


@pytest.mark.parametrize("scale", ["'auto'", "0.5"])
def test_density_and_scale_are_searched_together(scale: str, make_context: Make) -> None:
    """Every pair, density by density; and a density alone where the scale is given."""
    parts = make_context(3, density=1.1).parts
    merged = compose(parts, f"ties(density='auto', scale={scale})", samples=samples())
    record = merged.report["search"]
    scales = [*SCALES, 1 / 3] if "auto" in scale else [0.5]
    scores = {}
    for density, value in product(DENSITIES, scales):
        by_hand = compose(parts, f"ties(density={density}, scale={value!r})", samples=samples())
        scores[density, value] = accuracy(by_hand)
    tried = {(e["density"], e.get("scale", 0.5)): e["accuracy"] for e in record["tried"]}
    assert tried == scores
    best = max(scores, key=scores.__getitem__)
    assert (record["density"], record.get("scale", 0.5)) == best
    assert record["accuracy"] == max(scores.values()) == accuracy(merged)
    assert merged.resolved.arguments == {"density": best[0], "scale": best[1]}


@pytest.mark.parametrize(
    "how", ["task_arithmetic(scale='auto')", "ties(density='auto', scale='auto')"]
)
def test_it_is_found_anew_for_other_parts_and_kept_in_a_file(
    how: str, make_context: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = make_context(3, density=1.1).parts
    merged = compose(parts, how, samples=samples())
    rest = compose(parts[:2], how, samples=samples())
    fewer = merged - parts[2]
    assert fewer.report["search"] == rest.report["search"]
    assert 1 / 3 in [entry["scale"] for entry in merged.report["search"]["tried"]]
    assert 1 / 3 not in [entry["scale"] for entry in rest.report["search"]["tried"]]
    back = fewer + parts[2]
    assert back.report == merged.report
    merged.save(tmp_path / "merged.safetensors")
    with monkeypatch.context() as patch:
        patch.setattr(build, "search_settings", None)
        loaded = Composition.load(tmp_path / "merged.safetensors", quiet=True)
    loaded.save(tmp_path / "again.safetensors")
    kept, again = (tmp_path / f"{name}.safetensors" for name in ("merged", "again"))
    assert kept.read_bytes() == again.read_bytes()
    assert (loaded - parts[2]).report["search"] == rest.report["search"]
    assert str(loaded.operator) == how
    assert loaded.report == merged.report
    for other in (back, loaded):
        assert all(torch.equal(t, state_of(other)[k]) for k, t in state_of(merged).items())


def test_statistics_are_recomputed_at_every_scale(make_context: Make) -> None:
    parts = make_context(2, "resnet18(2)", (1, 8, 8), density=1.1).parts
    draw = torch.Generator().manual_seed(3)
    x = torch.randint(0, 256, (20, 1, 8, 8), dtype=torch.uint8, generator=draw)
    split = Split(x, torch.arange(20) % 4)
    merged = compose(parts, "task_arithmetic(scale='auto')", samples=split)
    scale = merged.resolved.arguments["scale"]
    once = compose(parts, f"task_arithmetic(scale={scale})", samples=split)
    right = (logits_of(once, split.x).argmax(1) == split.y).double().mean()
    assert merged.report["search"]["accuracy"] == float(right)
    assert "recomputed" in merged.report["notes"][0]


def test_without_a_search_nothing_is_recorded(make_context: Make) -> None:
    merged = compose(make_context(2).parts, "task_arithmetic(scale=0.5)")
    assert "search" not in merged.report
    assert merged.resolved == merged.operator


@pytest.mark.parametrize("given", [None, Split(samples().x, torch.full((60,), -1))])
def test_labelled_samples_are_asked_for(given: Split | None, make_context: Make) -> None:
    with pytest.raises(CompositionError, match=r"ties\(scale='auto'\) needs labelled samples"):
        compose(make_context(2).parts, "ties(scale='auto')", samples=given)
    with pytest.raises(CompositionError, match="to find its density and scale: compose"):
        compose(make_context(2).parts, "ties(scale='auto', density='auto')", samples=given)


def test_who_needs_samples() -> None:
    assert looks_at_samples("ties(scale='auto')")
    assert looks_at_samples("fisher")
    assert looks_at_samples("della(density='auto')")
    assert not is_entrywise("ties(preset='mergekit', density='auto')")  # it trims at most of them
    assert is_entrywise("ties(preset='mergekit')")
    assert not looks_at_samples("ties(scale=0.3)")
