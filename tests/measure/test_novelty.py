"""Novelty: what each score sees, how one is chosen, and that it comes back from JSON."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from intarsia.errors import DataError
from intarsia.measure.novelty import SCORES, Novelty, novelty


class Sure(nn.Module):
    """Sure of class 0 where the first feature is above 0, uniform elsewhere; surer the larger."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        evidence = torch.relu(x[:, :1].double()) * 4
        return torch.cat([evidence, torch.zeros(len(x), 3, dtype=torch.float64)], dim=1)


def known(rows: int = 300) -> np.ndarray:
    generator = np.random.default_rng(0)
    x = generator.normal(0, 0.1, (rows, 12)).astype(np.float32)
    x[:, 0] = generator.uniform(0.8, 1.2, rows)
    return x


def test_entropy_sees_what_no_class_speaks_for_and_not_what_lies_far_out() -> None:
    x = known()
    score = novelty(Sure(), x, "entropy")
    silent = x.copy()
    silent[:, 0] = -1
    assert bool(score.unknown(Sure(), silent).all())
    assert not bool(score.unknown(Sure(), 10 * x).any())


def test_distance_sees_what_lies_far_out() -> None:
    x = known()
    for name in ("distance", "entropy+distance", "energy+distance"):
        score = novelty(Sure(), x, name)
        assert bool(score.unknown(Sure(), 10 * x).all()), name
        assert bool(score.unknown(Sure(), x / 100).all()), name


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("answered", [0.5, 0.95, 1.0])
def test_the_threshold_answers_as_many_as_asked_for(name: str, answered: float) -> None:
    x = known()
    score = novelty(Sure(), x, name, answered=answered)
    kept = 1 - float(score.unknown(Sure(), x).double().mean())
    assert kept == pytest.approx(answered, abs=1 / len(x))


def test_the_score_is_chosen_by_outliers_made_of_the_samples() -> None:
    chosen = novelty(Sure(), known())
    assert set(chosen.auroc) == set(SCORES)
    best = max(chosen.auroc.values())
    assert chosen.auroc[chosen.score] == pytest.approx(best, abs=1e-3)
    assert "distance" in chosen.score  # nothing else sees samples scaled up
    again = novelty(Sure(), known())
    assert again == chosen


def test_energy_falls_as_logits_part() -> None:
    x = np.zeros((5, 12), dtype=np.float32)
    x[:, 0] = [0, 0.5, 1, 2, 4]
    scores = novelty(Sure(), known(), "energy").scores(Sure(), x)
    assert bool((scores.diff() < 0).all())
    assert float(scores[0]) == pytest.approx(1)  # uniform


def test_it_comes_back_from_json() -> None:
    score = novelty(Sure(), known())
    back = Novelty.from_json(json.loads(json.dumps(score.to_json())))
    assert back == score


@pytest.mark.parametrize(
    "damage",
    [{"score": "entopy"}, {"spread": 0.0}, {"temperature": -1.0}, {"threshold": math.inf},
     {"limits": {"entropy": 1.0}}, {"limits": 3}, {"centre": "0"}],
)  # fmt: skip
def test_damage_is_refused(damage: dict[str, object]) -> None:
    values = novelty(Sure(), known()).to_json() | damage
    with pytest.raises(DataError, match="damaged"):
        Novelty.from_json(values)
    with pytest.raises(DataError, match="damaged"):
        Novelty.from_json([1])


def test_mistakes_are_named() -> None:
    with pytest.raises(DataError, match=r"'entopy'.*entropy"):
        novelty(Sure(), known(), "entopy")
    with pytest.raises(DataError, match="no samples"):
        novelty(Sure(), known()[:0])
