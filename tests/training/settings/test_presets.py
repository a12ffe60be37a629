"""Settings by the size of the data: sane at every size, filled in once, and what is given wins."""

import itertools
import math

import pytest

from intarsia.errors import RecipeError
from intarsia.training import Recipe
from intarsia.training.settings.presets import BATCHES, FEWEST, MANY, MOST, STEPS, DataSize, by_size

ROWS = (3, 20, 150, 1_000, 1_437, 9_000, 60_000, 1_000_000)
FEATURES = (1, 4, 20, 21, 64, 784, 20_000)
CLASSES = (2, 3, 10, 100, 1_000)
SIZES = [DataSize(*size) for size in itertools.product(ROWS, FEATURES, CLASSES)]


def steps(chosen: dict, size: DataSize) -> float:
    """Batches of the last round."""
    rows = size.rows * (1.0 if chosen["negatives"] == "none" else 1.5)
    return chosen["epochs"] * rows / chosen["batch"]


@pytest.mark.parametrize("rows", ROWS)
def test_every_size_gives_a_recipe_that_can_be_trained(rows: int) -> None:
    for size in (size for size in SIZES if size.rows == rows):
        chosen = by_size(size, {}, bare=True)
        assert chosen["epochs"] >= 2
        assert 1 <= chosen["pruning_epochs"] <= chosen["epochs"]
        assert BATCHES[0] <= chosen["batch"] <= BATCHES[1]
        assert 0 <= chosen["sparsity"] < 1
        assert chosen["rounds"] == (1 if chosen["sparsity"] else 0)
        assert (chosen["negatives"] == "none") == (size.features <= 20)
        full = Recipe().resolve(size)
        open_still = [k for k, v in full.as_dict().items() if v is None and k != "patience"]
        assert open_still == []


def test_the_values_of_some_sizes() -> None:
    iris, digits, mnist = DataSize(120, 4, 3), DataSize(1_437, 64, 10), DataSize(60_000, 784, 10)
    small, middle, large = (by_size(size, {}, bare=True) for size in (iris, digits, mnist))
    assert small["model"] == {"name": "mlp", "hidden": [64], "dropout": 0.0}
    assert middle["model"] == {"name": "mlp", "hidden": [128], "dropout": 0.0}
    assert large["model"] == {"name": "mlp", "hidden": [256], "dropout": 0.1}
    assert [c["batch"] for c in (small, middle, large)] == [16, 64, 64]
    assert [c["sparsity"] for c in (small, middle, large)] == [0.0, 0.5, 0.8]


@pytest.mark.parametrize("rows", [150, 1_437, 60_000])
def test_steps_grow_as_the_root_of_the_rows(rows: int) -> None:
    size = DataSize(rows, 64, 10)
    wanted = min(MOST, max(FEWEST, STEPS * math.sqrt(rows)))
    assert steps(by_size(size, {}, bare=True), size) == pytest.approx(wanted, rel=0.1)


def test_few_rows_are_not_pruned_and_get_the_smallest_network() -> None:
    for size in SIZES:
        if size.rows < 500 or size.rows < 50 * size.classes:
            chosen = by_size(size, {}, bare=True)
            assert (chosen["sparsity"], chosen["rounds"]) == (0.0, 0)
            assert chosen["model"]["hidden"] == [64]


def test_of_many_classes_each_takes_fewer_steps() -> None:
    counts = []
    for classes in (10, MANY, 2 * MANY, 4 * MANY):
        size = DataSize(6_000, 64, classes)
        counts.append(steps(by_size(size, {}, bare=True), size))
    assert counts[0] == counts[1]
    assert counts[2] == pytest.approx(counts[1] / 2, rel=0.1)
    assert counts[3] == pytest.approx(counts[1] / 4, rel=0.1)


def test_steps_are_as_many_in_other_batches_and_without_negatives() -> None:
    size = DataSize(1_437, 64, 10)
    usual = by_size(size, {}, bare=True)
    halved = by_size(size, {"batch": 32}, bare=True)
    assert halved["epochs"] == pytest.approx(usual["epochs"] / 2, abs=1)
    for none in ("none", "", []):
        without = by_size(size, {"negatives": none}, bare=True)
        assert without["epochs"] == pytest.approx(usual["epochs"] * 1.5, abs=1)


GIVEN = [
    {},
    {"epochs": 7},
    {"pruning_epochs": 3},
    {"batch": 11},
    {"sparsity": 0.9},
    {"sparsity": 0},
    {"rounds": 3},
    {"rounds": 0},
    {"negatives": "none"},
    {"negatives": ["mixed(0.1)", {"name": "noise", "amount": 1.0}]},
    {"balance": 0.0},
    {"silent": False},
    {"model": "mlp(9)"},
    {"model": "lenet"},
    {"pruning": "territory"},
    {"pruning": "territory(by='magnitude')"},
    {"learning_rate": 0.5, "temperature": 2.0, "select": "last", "schedule": "constant"},
    {"objective": "xe", "batches": "all"},
]


@pytest.mark.parametrize("size", [DataSize(150, 4, 3), DataSize(60_000, 784, 10)], ids=str)
@pytest.mark.parametrize("given", GIVEN, ids=str)
def test_what_is_given_wins_and_nothing_is_chosen_twice(given: dict, size: DataSize) -> None:
    recipe = Recipe.read(given)
    full = recipe.resolve(size)
    for key, value in given.items():
        if key != "negatives":
            assert getattr(full, key) == value
    for again in (
        full.resolve(size),
        full.resolve(),
        recipe.resolve().resolve(size),
        Recipe.read(full.as_dict()).resolve(size),
        full.resolve(DataSize(999, 50, 7)),  # all is settled
    ):
        assert again.as_dict() == full.as_dict()
        assert again.digest() == full.digest()


def test_what_hangs_on_a_given_setting_follows_it() -> None:
    size = DataSize(150, 4, 3)  # too few rows to prune unasked
    assert Recipe(sparsity=0.9).resolve(size).rounds == 1
    assert Recipe(rounds=2).resolve(size).sparsity == 0.5
    assert Recipe(epochs=7).resolve(size).pruning_epochs == 7
    assert Recipe(pruning="territory").resolve(size).rounds == 0
    assert Recipe(model="lenet").resolve(size).learning_rate == 1e-3


def test_without_the_size_what_follows_from_it_is_open() -> None:
    recipe = Recipe().resolve()
    for key in ("batch", "epochs", "sparsity", "rounds", "negatives"):
        assert getattr(recipe, key) is None
    assert (recipe.silent, recipe.balance, recipe.select) == (True, 0.5, "loss")
    assert recipe.model == "mlp"


@pytest.mark.parametrize("preset", ["paper", "released"])
def test_the_size_is_nothing_to_the_other_presets(preset: str) -> None:
    recipe = Recipe(preset=preset)
    assert recipe.resolve(DataSize(20, 3, 2)).as_dict() == recipe.resolve().as_dict()
    full = recipe.resolve()
    assert (full.silent, full.balance, full.negatives) == (False, 0.0, "none")
    assert not {"silent", "balance", "negatives"} & set(full.identity())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("balance", -0.1),
        ("balance", 1.5),
        ("balance", "half"),
        ("balance", True),
        ("silent", 1),
        ("silent", "yes"),
        ("negatives", 3),
    ],
)
def test_bad_values_are_named(key: str, value: object) -> None:
    for preset in ("auto", "paper"):
        with pytest.raises(RecipeError, match=f"{key} is "):
            Recipe.read({"preset": preset, key: value}).resolve()


def test_an_unknown_source_is_named_before_anything_is_trained() -> None:
    with pytest.raises(RecipeError, match=r"'nois'.*noise"):
        Recipe(negatives="nois(0.2)").resolve()
