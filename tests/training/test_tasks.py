"""Tasks: one per set and seed, with label weights that balance what is rewarded."""

from dataclasses import replace

import pytest
import torch

import intarsia as ia
from intarsia.data import Data
from intarsia.data.dataset import Split
from intarsia.training import Recipe
from intarsia.training.settings.presets import DataSize
from intarsia.training.tasks import balanced, tasks_of

COUNTS = torch.tensor([10.0, 30.0, 40.0, 20.0])


@pytest.mark.parametrize(
    ("rewarded", "balance", "factor"),
    [
        ([0], 1.0, 9.0),  # 90 others, 10 of its own
        ([0], 0.5, 3.0),
        ([0], 0.0, 1.0),
        ([1, 3], 1.0, 1.0),
        ([1, 2], 1.0, 3 / 7),  # more of its own than others
    ],
)
def test_factors_by_hand(rewarded: list[int], balance: float, factor: float) -> None:
    expected = [factor if label in rewarded else 1.0 for label in range(4)]
    assert balanced(COUNTS, rewarded, balance).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("rewarded", [[0, 1, 2, 3], [4]])
def test_without_others_or_samples_of_its_own_nothing_is_balanced(rewarded: list[int]) -> None:
    counts = torch.cat([COUNTS, torch.zeros(1)])
    assert balanced(counts, rewarded, 1.0).tolist() == [1.0] * 5


def test_at_one_the_rewarded_weigh_as_much_as_all_others() -> None:
    factors = balanced(COUNTS, [2], 1.0)
    assert float(factors[2] * COUNTS[2]) == pytest.approx(60.0)


def uneven(data: Data) -> Data:
    """Of the last class, every fourth sample only."""
    keep = (data.train.y != 3) | (torch.arange(len(data.train)) % 16 == 3)
    return replace(data, train=Split(data.train.x[keep], data.train.y[keep]))


def weights(data: Data, **settings: object) -> list[list[float]]:
    recipe = Recipe.read(settings).resolve(DataSize(len(data.train), 64, data.classes))
    return [task.objective.weight.tolist() for task in tasks_of(recipe, data)]


def test_tasks_have_the_factors_in_their_label_weights(small_data: Data) -> None:
    data = uneven(small_data)
    assert torch.bincount(data.train.y).tolist() == [50, 50, 50, 13]
    root = (150 / 13) ** 0.5
    assert weights(data)[3] == pytest.approx([1, 1, 1, root])  # auto's is one half
    assert weights(data, balance=1.0)[3] == pytest.approx([1, 1, 1, 150 / 13])
    assert weights(data, balance=1.0, objective="me(reward=2)")[3] == pytest.approx(
        [1, 1, 1, 300 / 13]
    )
    assert weights(data, objective="xe", balance=1.0)[3] == pytest.approx([0, 0, 0, 150 / 13])
    for none in ({"preset": "paper"}, {"preset": "released"}, {"balance": 0}):
        assert weights(data, **none) == [[1.0] * 4] * 4


def test_balance_counts_samples_by_their_weights(small_data: Data) -> None:
    """A sample that weighs 2 is as good as two of it."""
    data = uneven(small_data)
    recipe = Recipe(balance=1.0).resolve(DataSize(len(data.train), 64, data.classes))
    heavy = torch.where(data.train.y == 3, 2.0, 0.5)
    assert tasks_of(recipe, data, heavy)[3].objective.weight.tolist() == pytest.approx(
        [1, 1, 1, 75 / 26]
    )
    alike = [t.objective.weight for t in tasks_of(recipe, data, torch.full_like(heavy, 3.0))]
    for weight, task in zip(alike, tasks_of(recipe, data), strict=True):
        torch.testing.assert_close(weight, task.objective.weight)


def test_balance_is_in_the_provenance_and_changes_what_is_learned(small_data: Data) -> None:
    data = uneven(small_data)
    settings = {"model": "mlp([8])", "epochs": 1, "sparsity": 0}
    one, other = (ia.train(data, balance=b, **settings)[3] for b in (0.0, 1.0))
    assert other.provenance["recipe"]["balance"] == 1.0
    assert not torch.equal(one.state["layers.0.weight"], other.state["layers.0.weight"])
    own = ia.train(data, balance=1.0, tasks=lambda d: tasks_of(Recipe.read(
        one.provenance["recipe"]), d)[3:], **settings)[0]  # fmt: skip
    assert "balance" not in own.provenance["recipe"]  # tasks of one's own bring their weights
    assert torch.equal(own.state["layers.0.weight"], one.state["layers.0.weight"])
