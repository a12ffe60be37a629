"""The path: its ends are the modules, its middle their sum, its barrier what a hand computes."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from intarsia.composition import compose
from intarsia.data import Data, Split
from intarsia.errors import CompositionError, DataError, RecipeError
from intarsia.measure import evaluate, path
from intarsia.measure.pair import blend
from intarsia.measure.path import PathCurve, WeightPath
from intarsia.models import initialise
from intarsia.modules import Architecture, Module
from small_modules import small_module

CATALOGUE = ("a", "b", "c", "[red]")


def part(name: str, seed: int, model: str = "mlp(9)") -> Module:
    """A module with weights large enough that loss and accuracy change along the path."""
    state = {k: 8 * v for k, v in initialise(model, (6,), 4, seed).state_dict().items()}
    return small_module(name, state, {}, CATALOGUE, model, (6,), temperature=3.0, origin="0")


def normalised(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A small network with BatchNorm."""
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, outputs))


@pytest.fixture(scope="module")
def split() -> Split:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (90, 6), dtype=torch.uint8, generator=generator)
    return Split(x, torch.randint(0, 4, (90,), generator=generator))


def test_ends_are_the_modules_and_the_middle_is_their_sum(split: Split) -> None:
    a, b = part("a", 0), part("[red]", 1)
    result = path(a, b, split, points=5, batch=7)
    curve = result.curves["split"]
    assert result.rewarded == ("a", "[red]")
    assert result.t.tolist() == [0, 0.25, 0.5, 0.75, 1]
    for place, model in ((0, a), (2, compose([a, b], "sum")), (4, b)):
        seen = evaluate(model, split, ["a", "[red]"])
        assert curve.accuracy[place] == seen.accuracy
        assert curve.entropy[place] == pytest.approx(seen.entropy, rel=1e-6)
    assert len(set(curve.accuracy)) > 1


def test_classes_of_other_data_are_matched_by_name(split: Split) -> None:
    a, b, chosen = part("a", 0), part("b", 1), split.select([0, 1])
    swapped = Split(chosen.x, 1 - chosen.y)
    data = Data.build("two", ("b", "a"), swapped, swapped, swapped, "unit")
    curve, expected = path(a, b, data).curves["test"], path(a, b, chosen).curves["split"]
    assert np.array_equal(curve.loss, expected.loss)
    assert np.array_equal(curve.accuracy, expected.accuracy)


def test_every_point_is_the_formula_of_the_paper(split: Split) -> None:
    """Loss by plain numpy on weights blended by hand, in both halves."""
    a, b = part("a", 0), part("b", 1)
    result = path(a, b, split, points=9)
    target = np.full((4, 4), 0.25)
    target[:2] = np.eye(4)[:2]
    for place, t in enumerate(result.t):
        weights = (1, 2 * t) if t <= 0.5 else (2 * (1 - t), 1)
        model = a.to_module()
        model.network.load_state_dict(
            {k: weights[0] * v + weights[1] * b.state[k] for k, v in a.state.items()}
        )
        with torch.no_grad():
            z = model(split.x).double().numpy() / 3.0
        log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
        q = target[split.y.numpy()]
        kl = (q * (np.log(np.where(q > 0, q, 1)) - log_p)).sum(1).mean()
        assert result.curves["split"].loss[place] == pytest.approx(kl, rel=1e-5)


def test_cross_entropy_is_larger_by_the_entropy_of_the_targets(split: Split) -> None:
    a, b = part("a", 0), part("b", 1)
    kl = path(a, b, split, points=3).curves["split"]
    cross = path(a, b, split, points=3, kind="cross_entropy").curves["split"]
    hidden = float((split.y > 1).double().mean())
    assert cross.loss == pytest.approx(kl.loss + hidden * math.log(4))


def hand_made(*losses: float) -> WeightPath:
    values = np.array(losses)
    curve = PathCurve(values, np.full_like(values, 0.5), np.full_like(values, np.nan), 10, 40)
    return WeightPath(("a", "b"), ("a", "b"), "kl", np.linspace(0, 1, len(values)), {"test": curve})


def test_barrier_by_hand() -> None:
    # straight from 1 to 2: 1, 1.25, 1.5, 1.75, 2; the excess is largest at 1.4 / 1.25
    result = hand_made(1.0, 1.4, 0.3, 1.8, 2.0)
    expected = [0, 12, -80, 100 * 0.05 / 1.75, 0]
    assert result.curves["test"].excess == pytest.approx(expected)
    assert result.barrier == pytest.approx(12)
    assert not result.connected
    low = hand_made(1.0, 1.0, 1.0, 1.0, 2.0)
    assert low.barrier == 0
    assert low.connected


def test_connected_at_two_percent_of_the_straight_line() -> None:
    assert hand_made(1.0, 1.0199, 1.0).connected
    assert not hand_made(1.0, 1.0201, 1.0).connected
    assert hand_made(0.0, 0.0, 0.0).barrier == 0
    assert hand_made(0.0, 0.1, 0.0).barrier == math.inf


def test_data_is_measured_on_train_and_test(split: Split) -> None:
    a, b = part("a", 0), part("b", 1)
    test = Split(split.x[:30], split.y[:30])
    data = Data.build("toy", CATALOGUE, split, test, test, "unit")
    result = path(a, b, data, points=3, samples=45)
    assert list(result.curves) == ["train", "test"]
    assert [(c.n, c.of) for c in result.curves.values()] == [(45, 90), (30, 30)]
    assert "45 of 90" in str(result)
    every_other = Split(split.x[::2], split.y[::2])
    alone = path(a, b, every_other, points=3).curves["split"]
    assert result.curves["train"].loss.tolist() == alone.loss.tolist()
    assert result.barrier == max(c.barrier for c in result.curves.values())


def test_running_statistics_stay_between_the_modules(split: Split) -> None:
    """Shares that sum to one: at the ends each module's own, in the middle the mean."""
    modules = []
    for seed, name, level in ((0, "a", 1.0), (1, "b", 4.0)):
        state = initialise(normalised, (6,), 4, seed).state_dict()
        state |= {k: torch.full_like(v, level) for k, v in state.items() if "running" in k}
        kind = Architecture(None, (6,), 4)
        modules.append(replace(part(name, 0), state=state, architecture=kind, factory=normalised))
    curve = path(*modules, split, points=5).curves["split"]
    assert np.isfinite(curve.loss).all()
    joined = compose(modules, recalibrate=False)
    for place, model in ((0, modules[0]), (4, modules[1]), (2, joined)):
        seen = evaluate(model, split, ["a", "b"])
        assert curve.entropy[place] == pytest.approx(seen.entropy, rel=1e-5)
    quarter = blend(*modules, 1.0, 0.5).network.state_dict()
    assert quarter["1.running_var"] == pytest.approx(np.full(5, 2.0))  # (1 * 1 + 0.5 * 4) / 1.5


def test_statistics_of_a_pruned_unit_come_from_the_other_module() -> None:
    modules = []
    for name, level, gain in (("a", 1.0, [0.0, 1, 1, 0, 1]), ("b", 4.0, [1, 0.0, 1, 0, 1])):
        state = initialise(normalised, (6,), 4, 0).state_dict()
        state |= {k: torch.full_like(v, level) for k, v in state.items() if "running" in k}
        state["1.weight"] = torch.tensor(gain)
        kind = Architecture(None, (6,), 4)
        modules.append(replace(part(name, 0), state=state, architecture=kind, factory=normalised))
    result = blend(*modules, 0.5, 1.0).network.state_dict()["1.running_mean"]
    assert result.tolist() == [4, 1, 3, 3, 3]
    own = blend(*modules, 1.0, 0.0).network.state_dict()["1.running_mean"]
    assert own.tolist() == [1] * 5


def test_it_prints_draws_and_is_json(split: Split) -> None:
    result = path(part("a", 0), part("[red]", 1), split, points=5)
    text = str(result)
    assert "path from a to [red]: barrier split" in text
    assert "90" in text
    value = json.loads(json.dumps(result.to_json()))
    assert value["curves"]["split"]["barrier"] == pytest.approx(result.barrier)
    assert value["connected"] is result.connected
    figure = result.figure()
    panels = ["loss", "rewarded accuracy", "non-rewarded entropy"]
    assert [ax.get_title() for ax in figure.axes] == panels
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "split",
        "split: straight line + 2%",
    ]
    loss = figure.axes[0].lines[0]
    assert loss.get_xdata().tolist() == result.t.tolist()
    assert loss.get_ydata() == pytest.approx(result.curves["split"].loss)
    assert [ax.get_title() for ax in hand_made(1.0, 1.5, 1.0).figure().axes] == panels[:2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"points": 4}, "points is 4: expected an odd number"),
        ({"points": 1}, "points is 1"),
        ({"samples": 0}, "samples is 0"),
        ({"kind": "mse"}, "no loss 'mse' along a path"),
    ],
)
def test_settings_that_cannot_be_used(
    settings: dict[str, object], message: str, split: Split
) -> None:
    with pytest.raises(RecipeError, match=message):
        path(part("a", 0), part("b", 1), split, **settings)  # type: ignore[arg-type]


def test_modules_and_samples_that_do_not_fit(split: Split) -> None:
    a, b = part("a", 0), part("b", 1)
    foreign = replace(b, origin="f")
    with pytest.raises(CompositionError, match=r"origin is f, not 0.*bank.seed\(0\).*align"):
        path(a, foreign, split)
    aligned = path(a, foreign, split, points=3, aligned=True)
    assert (
        aligned.curves["split"].loss.tolist() == path(a, b, split, 3).curves["split"].loss.tolist()
    )
    with pytest.raises(CompositionError, match=r"model is mlp\(hidden=\[8\]"):
        path(a, part("b", 1, "mlp(8)"), split)
    with pytest.raises(DataError, match="measured on a Tensor"):
        path(a, b, split.x)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="needs labelled samples"):
        path(a, b, Split(split.x, torch.full_like(split.y, -1)))
    none = Split(split.x[:0], split.y[:0])
    with pytest.raises(DataError, match="needs labelled samples"):
        path(a, b, Data.build("toy", CATALOGUE, split, none, none, "unit"))
    with pytest.raises(DataError, match="label 4 is outside"):
        path(a, b, Split(split.x, split.y + 1))
