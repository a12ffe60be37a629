"""The epochs of a round: checkpoints, patience and step sizes, on an engine that plays scores."""

import math

import pytest
import torch

from intarsia.training import Recipe
from intarsia.training.engines.base import Scores
from intarsia.training.loop import RoundProgress, run_round

NAN = math.nan


class Playback:
    """Gives out scores as written down, and notes what is asked of it."""

    def __init__(self, accuracy, loss, train_loss=None):
        self.scores = [torch.tensor(s, dtype=torch.float64) for s in (accuracy, loss)]
        self.train_loss = torch.tensor(train_loss or loss)
        self.now, self.kept, self.actives, self.rates = -1, [], [], []
        task = type("Task", (), {"learning_rate": 0.1})
        steps = staticmethod(lambda task: 2)
        self.job = type("Job", (), {"tasks": [task] * self.scores[0].shape[1], "steps": steps})

    def epoch(self, round_, epoch, rates, active):
        assert epoch == self.now + 1
        self.now = epoch
        self.actives.append(list(active))
        self.rates.append(rates[0])
        return self.train_loss[epoch]

    def validate(self):
        accuracy, loss = (s[self.now] for s in self.scores)
        return Scores(accuracy, torch.ones_like(accuracy), loss)

    def keep(self, which):
        self.kept.append(list(which))


def play(engine, epochs, **settings):
    recipe = Recipe.read({"epochs": epochs, **settings}).resolve()
    progress = RoundProgress(len(engine.job.tasks))
    saved, watched = [], []
    run_round(
        engine,
        recipe,
        progress,
        epochs,
        lambda s, scores, n: watched.append((s.epoch, n)),
        lambda s: saved.append(s.epoch),
    )
    assert [e for e, _ in watched] == saved == list(range(1, engine.now + 2))
    return progress


ACCURACY = [[0.5], [0.9], [0.8], [0.9], [0.9]]
LOSS = [[3.0], [2.0], [1.0], [1.5], [2.5]]


@pytest.mark.parametrize(
    ("select", "kept"),
    [
        ("accuracy", [0, 1, 3]),  # of equal accuracies the lower loss
        ("loss", [0, 1, 2]),
        ("last", [0, 1, 2, 3, 4]),
    ],
)
def test_the_checkpoint_is_the_best_or_the_last(select, kept):
    engine = Playback(ACCURACY, LOSS)
    progress = play(engine, 5, select=select)
    assert [epoch for epoch, which in enumerate(engine.kept) if which] == kept
    assert progress.best[0]["epoch"] == kept[-1]
    assert progress.best[0]["accuracy"] == ACCURACY[kept[-1]][0]


@pytest.mark.parametrize("select", ["accuracy", "loss", "last"])
def test_without_an_accuracy_the_last_epoch_is_kept(select):
    """No validation sample is of the module's own classes: the others cannot tell what it learned.

    Their loss rises from the first epoch on, as of a module that begins with uniform answers.
    """
    engine = Playback([[NAN]] * 5, [[1.0], [1.1], [1.2], [1.3], [1.4]])
    progress = play(engine, 5, select=select, patience=2)
    assert engine.kept == [[0]] * 5
    assert progress.best[0]["epoch"] == 4


def test_patience_stops_one_module_and_leaves_the_others():
    loss = [[1.0, 5.0], [2.0, 4.0], [2.0, 3.0], [0.1, 2.0], [0.1, 1.0]]
    engine = Playback([[0.5, 0.5]] * 5, loss)
    progress = play(engine, 5, patience=2, select="last")
    assert engine.actives == [[True, True]] * 3 + [[False, True]] * 2
    assert engine.kept == [[0, 1]] * 3 + [[1]] * 2
    assert progress.stopped == [True, False]
    assert progress.best[0]["epoch"] == 2


def test_a_round_ends_when_all_have_stopped():
    engine = Playback([[0.5]] * 5, [[1.0], [2.0], [2.0], [2.0], [2.0]])
    play(engine, 5, patience=1)
    assert engine.now == 1


@pytest.mark.parametrize("where", ["validation", "training"])
def test_a_module_that_gives_nan_is_out_for_good(where):
    bad = [[1.0, 1.0], [NAN, 1.0], [0.5, 0.5]]
    good = [[1.0, 1.0], [1.0, 1.0], [0.5, 0.5]]
    loss, train_loss = (bad, good) if where == "validation" else (good, bad)
    engine = Playback([[0.5, 0.5]] * 3, loss, train_loss)
    progress = play(engine, 3, select="last")
    assert progress.diverged == [True, False]
    assert engine.actives == [[True, True], [True, True], [False, True]]
    assert engine.kept == [[0, 1], [1], [1]]
    progress.new_round(1)
    assert progress.active == [False, True]


def test_step_sizes():
    engine = Playback([[0.5]] * 4, [[1.0]] * 4)
    play(engine, 4, schedule="cosine")
    half = math.sqrt(0.5)
    expected = [0.1, 0.05 * (1 + half), 0.05, 0.05 * (1 - half)]
    assert engine.rates == pytest.approx(expected)
    engine = Playback([[0.5]] * 4, [[1.0]] * 4)
    play(engine, 4, schedule="constant")
    assert engine.rates == [0.1] * 4


def test_progress_can_be_written_down():
    import json

    engine = Playback(ACCURACY, LOSS)
    progress = play(engine, 3)
    again = RoundProgress.from_json(json.loads(json.dumps(progress.to_json())), progress.modules)
    assert vars(again) == vars(progress)
    fresh = RoundProgress(2)
    again = RoundProgress.from_json(json.loads(json.dumps(fresh.to_json())), 2)
    assert vars(again) == vars(fresh)


@pytest.mark.parametrize(
    "change", [{"modules": 3}, {"epoch": "1"}, {"stale": [0]}, {"best": [{}, None]}, {"more": 1}]
)
def test_progress_of_other_types_is_not_read(change):
    with pytest.raises(ValueError, match="it "):
        RoundProgress.from_json({**RoundProgress(2).to_json(), **change}, 2)
