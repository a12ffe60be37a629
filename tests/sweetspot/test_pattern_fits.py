"""Fits: banks against single networks, masks, folders that go on, and what cannot be fitted."""

from pathlib import Path
from typing import Any

import pytest
import torch

from damage import flip
from intarsia.errors import (
    DataError,
    FileWarning,
    HealthWarning,
    ModelError,
    RecipeError,
    TrainingError,
)
from intarsia.sweetspot import (
    PatternBank,
    PatternLayout,
    PatternNetwork,
    fit,
    fit_grid,
    initial_bank,
    load_network,
    losses_of,
    pattern_fits,
    prune,
)
from intarsia.sweetspot.pattern_steps import PatternStack

pytestmark = pytest.mark.usefixtures("one_thread")
QUICK: dict[str, Any] = {"size": 8, "steps": 30, "blocks": "cache 3, gaussian 2, sin 1", "depth": 2}
CPU = {"device": "cpu", "progress": False}


def quick(target: Any = "totem", **settings: Any) -> PatternBank:
    return fit(target, **{**QUICK, **CPU, "seeds": 3, **settings})


def same(first: PatternBank, second: PatternBank) -> bool:
    """Whether every weight of two banks is the same number."""
    pairs = zip(first.weights, second.weights, strict=True)
    return first.names == second.names and all(torch.equal(a, b) for a, b in pairs)


def near(first: PatternBank, second: PatternBank) -> None:
    torch.testing.assert_close(first.weights, second.weights, atol=1e-4, rtol=0)


def stop_at_the_end(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    """A run that is stopped after its last step, before its bank is written."""
    with monkeypatch.context() as patch:
        patch.setattr(pattern_fits._Run, "_bank", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            quick(**settings)


def test_fitting_brings_the_loss_down() -> None:
    bank = quick(steps=200, learning_rate=1e-2)
    assert bank.losses is not None
    begun = losses_of(initial_bank(bank.layout, 3), "totem", 8)
    assert all(after < before / 2 for after, before in zip(bank.losses, begun, strict=True))
    assert bank.losses == pytest.approx(losses_of(bank, "totem", 8), rel=1e-4)
    picture = load_network("totem").image(8)
    by_hand = [float((own.image(8) - picture).square().mean()) for own in bank]
    assert bank.losses == pytest.approx(by_hand, rel=1e-4)
    curve = bank.report["curve"]
    assert curve["steps"] == [100, 200]
    assert [len(row) for row in curve["losses"]] == [3, 3]


@pytest.mark.parametrize("settings", [{}, {"optimiser": "muon"}, {"pixels": 10}, {"at_once": 2}])
def test_a_bank_is_its_networks_one_by_one(settings: dict[str, Any]) -> None:
    bank = quick(learning_rate=[3e-3, 1e-3], **settings)
    assert bank.names[1] == "seed-0-rate-0.001"
    assert len(bank) == 6
    alone = [
        quick(seeds=[seed], learning_rate=rate, **settings)[0]
        for seed in range(3)
        for rate in (3e-3, 1e-3)
    ]
    torch.testing.assert_close(bank.weights, PatternBank.of(alone).weights, atol=1e-4, rtol=0)


def test_seeds_give_the_same_networks_everywhere() -> None:
    layout = PatternLayout((("cache", 20), ("sin", 20)), 3)
    both, one = initial_bank(layout, [4, 7]), initial_bank(layout, [7])
    assert torch.equal(both[1].weights[2], one[0].weights[2])
    assert not torch.equal(both[0].weights[2], both[1].weights[2])
    hidden = initial_bank(layout, 4).weights[1]
    assert float(hidden.std()) == pytest.approx(40**-0.5, rel=0.05)
    assert float(hidden.abs().max()) <= 2 / 0.87 * 40**-0.5


def test_the_layout_comes_from_the_target_unless_it_is_given() -> None:
    totem = load_network("totem").layout
    settings: dict[str, Any] = {"size": 4, "steps": 1, "seeds": 1, **CPU}
    assert fit("totem", **settings).layout == totem
    assert fit("totem", depth=2, **settings).layout == PatternLayout(totem.blocks, 2)
    assert fit("totem", width=20, **settings).layout.blocks == tuple(
        (n, 2 * u) for n, u in totem.blocks
    )
    array = torch.rand(4, 4, 3)
    assert fit(array, depth=2, **settings).layout == PatternLayout.of_width(22, 2)
    with pytest.raises(RecipeError, match="needs a depth"):
        fit(array, **settings)


def test_masked_weights_stay_at_zero_and_held_ones_where_they_were() -> None:
    begun = initial_bank(PatternLayout("cache 3, gaussian 2, sin 1", 2), 2)  # type: ignore[arg-type]
    draw = torch.Generator().manual_seed(0)
    masks = [torch.rand(shape, generator=draw) > 0.5 for shape in begun.layout.shapes]
    held = [torch.rand(shape, generator=draw) > 0.7 for shape in begun.layout.shapes]
    settings: dict[str, Any] = {"size": 8, "steps": 20, **CPU}
    for optimiser in ("adam", "muon"):
        bank = fit("totem", start=begun, masks=masks, held=held, optimiser=optimiser, **settings)
        for layer, (mask, hold) in enumerate(zip(masks, held, strict=True)):
            weights, before = bank.weights[layer], begun.weights[layer]
            assert not weights[:, ~mask].any()
            assert torch.equal(weights[:, mask & hold], before[:, mask & hold])
            assert (weights != before)[:, mask & ~hold].float().mean() > 0.5
        again = fit("totem", start=bank, **settings)  # its masks go on with it
        assert again.masks is not None
        assert not again.weights[1][:, ~masks[1]].any()


def test_masks_may_differ_between_networks() -> None:
    begun = initial_bank(PatternLayout("cache 3, sin 1", 1), 2)  # type: ignore[arg-type]
    masks = [torch.ones(2, *shape, dtype=torch.bool) for shape in begun.layout.shapes]
    masks[0][1] = False
    bank = fit("totem", start=begun, masks=masks, size=4, steps=3, **CPU)
    assert bank.weights[0][0].all()
    assert not bank.weights[0][1].any()
    assert bank.names == begun.names


@pytest.mark.parametrize("settings", [{}, {"optimiser": "muon"}, {"pixels": 7, "at_once": 2}])
def test_a_run_that_is_killed_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """The same bytes as a run that was left alone, wherever it ends."""
    settings = {"steps": 450, "schedule": "cosine", "size": 4, "every": 0.0, **settings}
    expected = quick(**settings)
    left, run = [3], PatternStack.run

    def dying(stack: PatternStack, steps: int) -> None:
        left[0] -= 1
        run(stack, steps)
        if left[0] == 0:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PatternStack, "run", dying)
        for _ in range(2):
            left[0] = 3
            with pytest.raises(KeyboardInterrupt):
                quick(out=tmp_path, **settings)
    assert list(tmp_path.glob("*.checkpoint"))
    counted = []
    with monkeypatch.context() as patch:
        patch.setattr(PatternStack, "run", lambda s, steps: (counted.append(steps), run(s, steps)))
        bank = quick(out=tmp_path, **settings)
    parts = 2 if "at_once" in settings else 1
    assert sum(counted) < 450 * parts  # it began where it was
    assert same(bank, expected)
    assert bank.losses == expected.losses
    assert bank.report["curve"] == expected.report["curve"]
    assert not list(tmp_path.glob("*.checkpoint"))
    monkeypatch.setattr(PatternStack, "run", None)  # what is done is read, not trained
    assert same(quick(out=tmp_path, **settings), expected)


def test_pixels_are_drawn_anew_in_every_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, run = [], PatternStack.run

    def watched(stack: PatternStack, steps: int) -> None:
        assert stack.chosen is not None
        drawn.append(stack.chosen.clone())
        run(stack, steps)

    monkeypatch.setattr(PatternStack, "run", watched)
    quick(pixels=5, steps=150)
    assert [tuple(pixels.shape) for pixels in drawn] == [(100, 5), (100, 5)]
    assert not torch.equal(*drawn)
    assert set(drawn[0].flatten().tolist()) == set(range(64))
    assert all(len(set(step)) == 5 for pixels in drawn for step in pixels.tolist())


def test_a_folder_belongs_to_one_run(tmp_path: Path) -> None:
    quick(out=tmp_path)
    for other in ({"steps": 31}, {"learning_rate": 1e-3}, {"seeds": 2}, {"target": torch.eye(8)}):
        with pytest.raises(TrainingError, match="other settings"):
            quick(out=tmp_path, **other)


def test_pruned_networks_do_not_pass_for_those_of_the_fit(tmp_path: Path) -> None:
    fitted = quick(out=tmp_path)
    prune(fitted, "magnitude", weights=40).save(tmp_path / "bank.safetensors")
    with pytest.raises(TrainingError, match="other settings"):
        quick(out=tmp_path)


def test_a_damaged_checkpoint_is_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"steps": 150, "size": 4, "every": 0.0}
    expected = quick(**settings)
    stop_at_the_end(monkeypatch, out=tmp_path, **settings)
    flip(next(tmp_path.glob("*.checkpoint")), -5)
    with pytest.warns(FileWarning, match="damaged.*trained again"):
        bank = quick(out=tmp_path, **settings)
    assert same(bank, expected)


def test_a_checkpoint_of_other_settings_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at_the_end(monkeypatch, out=tmp_path)
    with pytest.raises(TrainingError, match="delete it"):
        quick(out=tmp_path, learning_rate=1e-3)


def test_grids_are_fitted_layout_by_layout(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"seeds": 2, "steps": 3, "size": 4, **CPU}
    banks = fit_grid("totem", depths=[1, 2], widths=[3, 5], out=tmp_path, **settings)
    assert [(b.layout.depth, b.layout.width) for b in banks] == [(1, 3), (1, 5), (2, 3), (2, 5)]
    assert (tmp_path / "depth-2-width-5" / "bank.safetensors").is_file()
    near(banks[3], fit("totem", depth=2, width=5, **settings))


def test_memory_decides_how_many_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = quick()
    monkeypatch.setattr(pattern_fits, "CPU_BYTES", 40_000)
    bank = quick()
    assert bank.report["networks_at_once"] < 3
    near(bank, expected)


def test_a_run_goes_on_in_parts_as_large_as_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory that is free may have changed meanwhile."""
    settings: dict[str, Any] = {"steps": 150, "size": 8, "every": 0.0}
    monkeypatch.setattr(pattern_fits, "CPU_BYTES", 40_000)
    expected = quick(**settings)
    assert expected.report["networks_at_once"] < 3
    stop_at_the_end(monkeypatch, out=tmp_path, **settings)
    monkeypatch.setattr(pattern_fits, "CPU_BYTES", 2**24)
    with pytest.raises(TrainingError, match="same device and at_once"):
        quick(out=tmp_path, at_once=3, **settings)
    monkeypatch.setattr(PatternStack, "run", None)  # all steps are done
    bank = quick(out=tmp_path, **settings)
    assert bank.report["networks_at_once"] == expected.report["networks_at_once"]
    assert same(bank, expected)
    assert not (tmp_path / pattern_fits.PARTS).exists()


def overflowing() -> PatternBank:
    """Three networks, of which the second is too large for any number."""
    begun = initial_bank(PatternLayout("cache 3, gaussian 2, sin 1", 2), 3)  # type: ignore[arg-type]
    weights = [w.clone() for w in begun.weights]
    for matrix in weights:
        matrix[1] = 1e30
    return PatternBank(begun.layout, tuple(weights), names=begun.names)


def test_a_network_that_diverges_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"size": 8, "steps": 150, "normalise": False, "every": 0.0, **CPU}
    begun = overflowing()
    with monkeypatch.context() as patch:
        patch.setattr(pattern_fits._Run, "_bank", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fit("totem", start=begun, out=tmp_path, **settings)
    with pytest.warns(HealthWarning, match=r"1 of 3 networks diverged, \['seed-1'\]"):
        bank = fit("totem", start=begun, out=tmp_path, **settings)
    assert bank.report["diverged"] == ["seed-1"]
    assert bank.losses is not None
    assert [loss == loss for loss in bank.losses] == [True, False, True]
    assert torch.equal(bank[1].weights[0], begun[1].weights[0])
    near(PatternBank.of([bank[2]]), fit("totem", start=begun[2:], **settings))
    again = fit("totem", start=begun, out=tmp_path, **settings)
    assert same(again, bank)
    assert again.report == bank.report
    assert [loss == loss for loss in again.losses or ()] == [True, False, True]


def test_progress_shows_the_loss(capsys: pytest.CaptureFixture[str]) -> None:
    quick(progress=True)
    assert "loss" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps"),
        ({"steps": 1.5}, "steps"),
        ({"size": 1}, "size"),
        ({"pixels": 0}, "pixels"),
        ({"pixels": 65}, "from 1 to 64"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"learning_rate": []}, "learning_rate"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": [1, 1]}, "twice"),
        ({"seeds": [-1]}, "seeds"),
        ({"optimiser": "adm"}, "did you mean adam|did you mean 'adam'"),
        ({"optimiser": "muon(0)"}, "Newton-Schulz"),
        ({"schedule": "cosin"}, "cosine"),
        ({"step": 3}, "did you mean 'steps'"),
        ({"normalise": 1}, "normalise"),
        ({"width": 5}, "width or blocks"),
        ({"at_once": 0}, "at_once"),
        ({"graph": True}, "graph needs a GPU"),
        ({"held": []}, "give start"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        quick(**settings)


def test_what_contradicts_the_start() -> None:
    begun = initial_bank(PatternLayout("cache 3, sin 1", 1), 2)  # type: ignore[arg-type]
    settings: dict[str, Any] = {"start": begun, "size": 4, "steps": 1, **CPU}
    for other in ({"depth": 2}, {"width": 5}, {"blocks": "cache 4"}):
        with pytest.raises(RecipeError, match="start has 1 layers of 4"):
            fit("totem", **settings, **other)
    with pytest.raises(RecipeError, match="leave seeds out"):
        fit("totem", **settings, seeds=3)
    with pytest.raises(ModelError, match="not a bank"):
        losses_of(begun[0], "totem")  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="one for each"):
        fit("totem", **settings, learning_rate=[1e-3, 1e-3, 1e-3])
    with pytest.raises(ModelError, match="expected 2"):
        fit("totem", **settings, masks=[torch.ones(4, 4, dtype=torch.bool)])
    with pytest.raises(ModelError, match="true and false"):
        fit("totem", **settings, masks=[torch.ones(4, 4), torch.ones(3, 4)])
    three = [torch.ones(3, *shape, dtype=torch.bool) for shape in begun.layout.shapes]
    with pytest.raises(ModelError, match="3 networks"):
        fit("totem", **settings, masks=three)


def test_a_flat_picture_is_not_fitted() -> None:
    network = load_network("totem")
    dead = PatternNetwork(network.layout, tuple(0 * w for w in network.weights))
    for flat in (torch.full((8, 8, 3), 0.5), dead):
        with pytest.raises(DataError, match="one colour"):
            quick(flat)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("settings", [{}, {"optimiser": "muon"}, {"pixels": 10}])
def test_graphs_do_what_single_launches_do(settings: dict[str, Any]) -> None:
    settings = {**settings, "device": "cuda", "schedule": "cosine", "steps": 120}
    recorded, launched = quick(graph=True, **settings), quick(graph=False, **settings)
    assert recorded.report["graph"]
    assert not launched.report["graph"]
    near(recorded, launched)
