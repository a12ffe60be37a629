"""What train refuses, notes and writes down."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import intarsia as ia
from intarsia.data.dataset import Split
from intarsia.errors import DataError, RecipeError, TrainingError
from intarsia.objectives import objective
from intarsia.training import Task


def test_options_that_contradict_loaded_data_are_refused(small_data):
    with pytest.raises(RecipeError, match="seed=3"):
        ia.train(small_data, data_options={"seed": 3}, epochs=1)


def test_a_preset_that_wants_another_scaling_is_refused_for_loaded_data():
    data = ia.load_data("digits", classes=["0", "1"])
    renamed = type(data)(**{**vars(data), "name": "mnist"})
    with pytest.raises(RecipeError, match="scale='signed'"):
        ia.train(renamed, preset="released", epochs=1)


def test_the_recipe_of_a_module_says_how_its_data_were_loaded():
    data = ia.load_data("digits", classes=["0", "1"], seed=3)
    bank = ia.train(data, model="mlp([8])", epochs=1, sparsity=0.5)
    options = bank[0].provenance["recipe"]["data_options"]
    again = ia.load_data("digits", **options)
    assert again.digest == data.digest


def test_no_validation_samples_is_an_error_not_a_divergence():
    data = ia.load_data("digits", validation=0)
    with pytest.raises(DataError, match="validation samples"):
        ia.train(data, epochs=1)


def test_batchnorm_needs_two_samples_a_batch(small_data):
    with pytest.raises(RecipeError, match="at least 2"):
        ia.train(small_data, model="resnet18(width=4)", batch=1, epochs=1)


def test_territory_makes_the_sum_exact_with_batchnorm_too(small_data):
    def factory(shape, outputs):
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, outputs)
        )

    bank = ia.train(small_data, model=factory, pruning="territory", epochs=3)
    with torch.no_grad():
        summed = ia.compose(bank, "sum")(small_data.test.x)
        joined = ia.compose(bank, "logits")(small_data.test.x)
    torch.testing.assert_close(summed, joined, rtol=1e-5, atol=1e-5)


def test_tasks_of_ones_own_leave_nothing_untrue_in_the_provenance(small_data):
    goal = objective("xe", 4, (2,))

    def tasks(data):
        return [Task("c", ("c",), (2,), 0, 1e-3, goal)]

    (module,) = ia.train(small_data, model="mlp([8])", epochs=1, sparsity=0.5, tasks=tasks)
    recipe = module.provenance["recipe"]
    assert "objective" not in recipe
    assert "partition" not in recipe
    me = ia.train(small_data, model="mlp([8])", epochs=1, sparsity=0.5, partition=[["c"]])
    assert module.provenance["objective"] != me[0].provenance["objective"]


def test_a_layer_pruned_to_nothing_is_noted(small_data):
    settings = {"preset": "paper", "model": "mlp([4])", "epochs": 1}
    settings["pruning"] = "magnitude(scope='layer')"
    bank = ia.train(small_data, sparsity=0.99, **settings)
    assert "no weight of layers.1.weight survives" in str(bank.health)
    fine = ia.train(small_data, sparsity=0.5, **settings)
    assert "survives" not in str(fine.health)


def test_when_every_module_diverges_the_folder_stays_free(small_data, tmp_path):
    settings = {"model": "mlp([8])", "epochs": 1, "sparsity": 0.5, "out": tmp_path / "run"}
    with pytest.raises(TrainingError, match="every module diverged"):
        ia.train(small_data, learning_rate=1e30, **settings)
    assert len(ia.train(small_data, learning_rate=1e-3, **settings)) == 4


def test_only_our_own_leftovers_are_swept(small_data, tmp_path):
    mine = tmp_path / ".notes.part"
    ours = tmp_path / f".{'0f' * 8}.part"
    for path in (mine, ours):
        path.write_text("x")
    ia.train(small_data, model="mlp([8])", epochs=1, sparsity=0.5, out=tmp_path)
    assert mine.exists()
    assert not ours.exists()


def test_a_bank_keeps_the_order_of_its_tasks(small_data):
    def tasks(data):
        return [
            Task(f"{c}-s{seed}", (c,), (i,), seed, 1e-3, objective("me", 4, (i,)))
            for i, c in enumerate(data.catalogue[:2])
            for seed in (0, 1)
        ]

    bank = ia.train(small_data, model="mlp([8])", epochs=1, sparsity=0.5, tasks=tasks)
    assert bank.names == ("a-s0", "a-s1", "b-s0", "b-s1")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0] * 199, r"shape \(199,\): expected one number for each of the 200"),
        (torch.ones(200, 1), r"shape \(200, 1\)"),
        (1.0, r"shape \(\)"),
        ([-1.0] + [1.0] * 199, "at least 0"),
        ([float("nan")] + [1.0] * 199, "finite"),
        ([float("inf")] + [1.0] * 199, "finite"),
        ([0.0] * 200, "above 0 for some sample"),
        (["heavy"] * 200, "not a list of numbers"),
    ],
)
def test_sample_weights_that_cannot_be_used_are_refused(small_data, weights, message):
    with pytest.raises(DataError, match=f"sample_weight .*{message}"):
        ia.train(small_data, epochs=1, sample_weight=weights)


@pytest.mark.parametrize("engine", ["plain", "single", "stack", "mlp"])
def test_samples_that_weigh_nothing_are_not_learned(small_data, engine):
    """What they hold reaches no bit; every third weighs nothing."""
    settings = {"model": "mlp(16)", "epochs": 2, "sparsity": 0}
    settings |= {"negatives": "none", "balance": 0.0}  # which look at samples whatever they weigh
    weight = (torch.arange(200) % 3 > 0).float()
    noise = torch.rand(200, 1, 8, 8, generator=torch.Generator().manual_seed(4))
    x = torch.where(weight.bool()[:, None, None, None], small_data.train.x, noise)
    y = torch.where(weight.bool(), small_data.train.y, 2)
    other = replace(small_data, train=Split(x, y))
    one, two, merged = (
        ia.train(data, engine=engine, sample_weight=given, **settings)[0].state
        for data, given in ((small_data, weight), (other, weight), (small_data, None))
    )
    assert all(torch.equal(one[n], t) for n, t in two.items())
    assert not all(torch.equal(one[n], t) for n, t in merged.items())


def test_sample_weights_are_part_of_what_tells_runs_apart(small_data, tmp_path):
    settings = {"model": "mlp([8])", "epochs": 1, "sparsity": 0, "out": tmp_path / "run"}
    bank = ia.train(small_data, sample_weight=[2.0] * 200, **settings)
    again = ia.train(small_data, sample_weight=torch.full((200,), 2.0), **settings)
    assert [m.digest for m in again] == [m.digest for m in bank]
    with pytest.raises(TrainingError, match=r"another recipe, data set.* keep_rounds: train"):
        ia.train(small_data, **settings)
    with pytest.raises(TrainingError, match=r"\(epochs is 1 there and 2 here; pruning_epochs"):
        ia.train(small_data, **settings | {"epochs": 2})


def test_what_is_given_in_the_wrong_place_is_told(small_data):
    with pytest.raises(
        RecipeError, match=r"inputs and labels go together, as in train\(\(x, y\)\)"
    ):
        ia.train(small_data.train.x, small_data.train.y)
    with pytest.raises(RecipeError, match=r"an option of the data: .* data_options=\{missing"):
        ia.train("digits", missing="mean")


@pytest.mark.parametrize("device", ["gpu", "cuda:x", None])
def test_a_device_that_is_none_is_told_in_few_words(small_data, device):
    with pytest.raises(TrainingError, match=f"device {device!r} cannot be used") as caught:
        ia.train(small_data, device=device, epochs=1)
    assert len(str(caught.value)) < 120


def test_data_and_recipe_in_the_wrong_place_are_told(small_data):
    with pytest.raises(RecipeError, match=r"comes second: train\(data, recipe\)"):
        ia.train(ia.Recipe(epochs=1))
    with pytest.raises(RecipeError, match=r"the recipe is a str: .*Recipe\.load\(path\)"):
        ia.train(small_data, "recipe.yaml")
