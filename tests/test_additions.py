"""What a user adds from outside, one registration each, works as if it were intarsia's own."""

from collections.abc import Sequence
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

import intarsia as ia
from intarsia.errors import RecipeError
from intarsia.objectives import OBJECTIVES, Objective
from intarsia.pruning import PRUNINGS, Group, Mask, prunable
from intarsia.training import PRESETS, Optimiser
from intarsia.training.engines.base import Engine
from intarsia.training.engines.plain import PlainEngine
from intarsia.training.engines.select import ENGINES
from intarsia.training.job import Job
from intarsia.training.settings.optimisers import OptimiserState

SETTINGS: dict[str, Any] = {"model": "mlp(12)", "epochs": 1, "progress": False}


@pytest.fixture(scope="module")
def data() -> ia.Data:
    return ia.load_data("digits", classes=["0", "1", "2"])


def test_a_pruning(data: ia.Data) -> None:
    @PRUNINGS.register("first_columns", own_sparsity=True, before_training=lambda settings: True)
    def first_columns(group: Group, columns: int = 3) -> list[Mask]:
        """Keep the first columns of every weight."""
        masks = []
        for state in group.states:
            shapes = {name: state[name].shape for name in prunable(state, group.wiring)}
            kept = {name: torch.zeros(shape, dtype=torch.bool) for name, shape in shapes.items()}
            for mask in kept.values():
                mask[:, :columns] = True
            masks.append(kept)
        return masks

    bank = ia.train(data, pruning="first_columns(columns=4)", **SETTINGS)
    for module in bank:
        for name in ("layers.0.weight", "layers.1.weight"):
            assert module.mask[name].sum() == 4 * len(module.mask[name])
            assert not module.state[name][:, 4:].any()
    recipe = bank[0].provenance["recipe"]
    assert (recipe["pruning"], recipe["rounds"]) == ("first_columns(columns=4)", 0)
    with pytest.raises(RecipeError, match="how much first_columns prunes follows from its rule"):
        ia.train(data, pruning="first_columns", sparsity=0.5, **SETTINGS)
    with pytest.raises(RecipeError, match=r"unknown pruning 'first_column': .*first_columns"):
        ia.train(data, pruning="first_column", **SETTINGS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("every_other(step='a')", "every_other: step is 'a': expected a whole number"),
        ("every_other(step=2.5)", "every_other: step is 2.5: expected a whole number"),
        ("every_other(rows=1)", "every_other: rows is 1: expected true or false"),
        ("every_other(fraction='x')", "every_other: fraction is 'x': expected a number"),
        ("every_other(axis='colum')", "every_other has no axis 'colum': did you mean 'column'"),
        ({"name": "every_other", "step": None}, "every_other: step is None"),
    ],
)
def test_settings_of_a_pruning_fit_its_annotations(data: ia.Data, given: Any, message: str) -> None:
    """Before anything is trained, and before its traits are asked."""

    @PRUNINGS.register("every_other", ranks_layers_together=lambda settings: settings["step"] > 1)
    def every_other(
        group: Group,
        step: int = 2,
        rows: bool = False,
        fraction: float | None = None,
        axis: Literal["row", "column"] = "row",
    ) -> list[Mask]:
        """Never called."""
        raise AssertionError

    with pytest.raises(RecipeError, match=message):
        ia.train(data, pruning=given, **SETTINGS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda states: [{}], "1 masks for 3 modules"),
        (lambda states: [{"layer.0.weight": s["layers.0.weight"] > 0} for s in states], "did you"),
        (lambda states: [{"layers.0.weight": s["layers.0.weight"]} for s in states], "float32"),
        (lambda states: [{"layers.0.weight": torch.ones(12, 1) > 0} for _ in states], r"\(12, 1\)"),
    ],
)
def test_masks_that_fit_no_network_are_refused(data: ia.Data, given: Any, message: str) -> None:
    @PRUNINGS.register("of_mine", own_sparsity=True, before_training=lambda settings: True)
    def of_mine(group: Group) -> list[Mask]:
        """Whatever is given."""
        return given(group.states)

    with pytest.raises(RecipeError, match=f"pruning of_mine gives .*{message}"):
        ia.train(data, pruning="of_mine", **SETTINGS)


def test_a_pruning_of_units_that_wants_its_seed_together(
    data: ia.Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    @PRUNINGS.register("as_they_are", whole_group=True, needs_units=True, own_sparsity=True)
    def as_they_are(group: Group) -> list[Mask]:
        seen.append(list(group.seeds))
        return [dict(mask) for mask in group.masks]

    monkeypatch.setattr("intarsia.training.engines.select.CPU_CHUNK", (2, 2))
    ia.train(data, pruning="as_they_are", seeds=[0, 1], **SETTINGS)
    assert seen == [[0] * 3, [1] * 3]

    def unnamed(shape: tuple[int, ...], outputs: int) -> nn.Module:
        class Odd(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.last = nn.Linear(64, outputs)

            def forward(self, x: Tensor) -> Tensor:
                return self.last(torch.fft.fft(x.flatten(1)).real)

        return Odd()

    with pytest.raises(ia.errors.WiringError, match="pruning by as_they_are gives out units"):
        ia.train(data, pruning="as_they_are", **{**SETTINGS, "model": unnamed})


def test_an_objective(data: ia.Data) -> None:
    @OBJECTIVES.register("firm", colour="#123456", uncertain_elsewhere=True)
    def firm(classes: int, rewarded: list[int], weight: float = 1.0) -> Objective:
        """MaxEnt, with a weight for rewarded labels."""
        table = torch.full((classes, classes), 1 / classes)
        table[rewarded] = torch.eye(classes)[rewarded]
        return Objective(table, torch.ones(classes).index_fill(0, torch.tensor(rewarded), weight))

    mine = ia.train(data, objective="firm(weight=2)", **SETTINGS)
    same = ia.train(data, objective="me(reward=2)", **SETTINGS)
    for own, known in zip(mine, same, strict=True):
        assert all(torch.equal(own.state[name], known.state[name]) for name in own.state)
    assert OBJECTIVES.entry("firm(2)").colour == "#123456"
    with pytest.raises(RecipeError, match="firm: weight is 'x': expected a number"):
        ia.train(data, objective="firm(weight='x')", **SETTINGS)
    with pytest.raises(RecipeError, match=r"unknown objective 'frim': .*firm"):
        ia.train(data, objective="frim", **SETTINGS)


def test_a_model(data: ia.Data) -> None:
    @ia.MODELS.register("filters", convolutional=True)
    def filters(shape: tuple[int, ...], outputs: int, count: int = 4) -> nn.Module:
        """A convolution over the whole image, and a linear layer."""
        convolution = nn.Conv2d(shape[0], count, shape[1])
        return nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), nn.Linear(count, outputs))

    settings = {**SETTINGS, "model": "filters(count=6)", "preset": "paper"}
    bank = ia.train(data, **settings)
    assert bank[0].state["0.weight"].shape[0] == 6
    assert bank[0].provenance["recipe"]["sparsity"] == 0.6  # as convolutional networks have it
    assert ia.compose(bank, "logits").predict(data.test.x).shape == data.test.y.shape
    with pytest.raises(RecipeError, match=r"unknown model 'filter': .*filters"):
        ia.train(data, **{**settings, "model": "filter"})


def test_negatives(data: ia.Data) -> None:
    @ia.NEGATIVES.register("inverted")
    def inverted(samples: Tensor, generator: torch.Generator, amount: float = 0.5) -> Tensor:
        """Images with dark and light exchanged."""
        count = round(amount * len(samples))
        rows = torch.randint(len(samples), (count,), generator=generator)
        return samples.amin() + samples.amax() - samples[rows]

    bank = ia.train(data, negatives="inverted(0.25)", **SETTINGS)
    assert bank[0].provenance["recipe"]["negatives"] == "inverted(amount=0.25)"
    without = ia.train(data, negatives="none", **SETTINGS)
    name = "layers.0.weight"
    assert not torch.equal(bank[0].state[name], without[0].state[name])
    with pytest.raises(RecipeError, match=r"unknown negatives 'invert': .*inverted"):
        ia.train(data, negatives="invert", **SETTINGS)


def test_an_optimiser(data: ia.Data) -> None:
    class Sign(Optimiser):
        moments = ("last",)

        def update(
            self,
            weights: Sequence[Tensor],
            grads: Sequence[Tensor],
            state: OptimiserState,
            learning_rate: Tensor,
        ) -> None:
            last = state.moments["last"].values()
            for weight, grad, before in zip(weights, grads, last, strict=True):
                weight -= learning_rate * (grad + before).sign()
                before.copy_(grad)

    @ia.OPTIMISERS.register("sign")
    def sign(decay: float = 0.0) -> Optimiser:
        """Steps of one size, whatever the gradient."""
        return Sign(decay)

    settings = {**SETTINGS, "model": "mlp([12], dropout=0)", "sparsity": 0.5, "learning_rate": 1e-3}
    banks = {
        engine: ia.train(data, optimiser="sign(decay=0.1)", engine=engine, **settings)
        for engine in ("auto", "stack", "plain")
    }
    by_adam = ia.train(data, **settings)
    for engine, bank in banks.items():
        recipe = bank[0].provenance["recipe"]
        assert recipe["optimiser"] == "sign(decay=0.1)"
        assert bank[0].provenance["engine"] == ("single" if engine == "auto" else engine)
        for module, same in zip(bank, banks["plain"], strict=True):
            assert module.digest != by_adam[module.name].digest
            for name, mask in module.mask.items():
                assert not module.state[name][~mask].any()
                close = (module.state[name] - same.state[name]).abs() < 1e-6
                assert float(close.float().mean()) > 0.9  # a sign may turn with the rounding
    with pytest.raises(RecipeError, match=r"unknown optimiser 'sing': .*sign"):
        ia.train(data, optimiser="sing", **SETTINGS)


def test_a_preset(data: ia.Data) -> None:
    @PRESETS.register("brisk")
    def brisk(recipe: ia.Recipe, size: Any = None) -> dict[str, Any]:
        """The paper's, with few and large steps."""
        chosen: dict[str, Any] = PRESETS["paper"](recipe)
        return {**chosen, "learning_rate": 0.02, "batch": 100, "pruning_epochs": 1}

    recipe = ia.train(data, preset="brisk", **SETTINGS)[0].provenance["recipe"]
    assert (recipe["preset"], recipe["batch"], recipe["temperature"]) == ("brisk", 100, 5.0)
    with pytest.raises(RecipeError, match=r"unknown preset 'brisq': .*brisk"):
        ia.train(data, preset="brisq", **SETTINGS)


def test_an_engine(data: ia.Data) -> None:
    @ENGINES.register(
        "slow", unfit=lambda job, patience: "knows no patience: leave it out" if patience else None
    )
    def slow(job: Job) -> Engine:
        return PlainEngine(job)

    assert ia.train(data, engine="slow", **SETTINGS).report["engine"] == "slow"
    assert ia.train(data, **SETTINGS).report["engine"] == "mlp"
    with pytest.raises(RecipeError, match="engine 'slow' knows no patience: leave it out"):
        ia.train(data, engine="slow", patience=2, **SETTINGS)
    with pytest.raises(RecipeError, match=r"unknown engine 'slov': .*slow"):
        ia.train(data, engine="slov", **SETTINGS)
