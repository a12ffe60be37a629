"""What profiles tell apart: planted differences, nothing without them, folds by group."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from intarsia.errors import DataError, RecipeError
from intarsia.lens import Profile, classify
from intarsia.lens.classification import _auc, _folds, feature_sets


def planted(rows: int = 40, gap: float = 3.0, layers: int = 4, seed: int = 0) -> Profile:
    """The second layer differs between the first and the second half."""
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(2 * rows, 1, layers))
    values[rows:, :, 1] += gap
    return Profile(values, np.full(2 * rows, 8), 1.0, "m", values[:, 0, 0], values[:, 0, 3])


LABELS = ["a"] * 40 + ["b"] * 40


def test_what_differs_is_told_and_the_rest_is_not() -> None:
    found = classify(planted(), LABELS, folds=5, neighbours=9)
    assert found.mean("layer 2") > 95
    assert found.mean("all layers") > 90
    for name in ("first layer", "log-probability", "logit spread", "permuted labels"):
        assert 25 < found.mean(name) < 75
    assert 30 < found.mean("stratified dummy") < 70
    assert all(len(own) == 5 for own in found.scores.values())
    assert found.sd("layer 2") == pytest.approx(np.std(found.scores["layer 2"], ddof=1))
    assert found.to_json()["scores"]["layer 2"]["auc"] == found.mean("layer 2")
    heights = [bar.get_height() for bar in found.figure().axes[0].patches]
    shown = ("all layers", "first layer", "middle layer", "last layer", "first, middle and last",
             "log-probability", "logit spread", "permuted labels")  # fmt: skip
    assert heights == pytest.approx([found.mean(name) for name in shown])


@pytest.mark.parametrize("votes", [None, 5])
def test_areas_are_scikit_learns(votes: int | None) -> None:
    """Also of few neighbours' votes, where most chances are the same."""
    names = np.array([*["a", "b", "c"] * 10, *"aab"])
    drawn = np.random.default_rng(0)
    chances = drawn.dirichlet([1, 1, 1], 33)
    if votes is not None:
        chances = drawn.multinomial(votes, chances) / votes
    expected = roc_auc_score(names, chances, multi_class="ovr")
    assert _auc(names, chances, ["a", "b", "c"]) == pytest.approx(100 * expected, rel=1e-12)


def test_a_group_is_never_on_both_sides() -> None:
    names = np.array(LABELS)
    groups = np.array([str(place % 40) for place in range(80)])
    folds = _folds(names, groups, 5, 0)
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(80))
    for train, test in folds:
        assert not set(groups[train]) & set(groups[test])


def test_groups_keep_copies_from_telling() -> None:
    """Rows come twice with a label that nothing explains: alone a copy would give it away."""
    generator = np.random.default_rng(1)
    one = generator.normal(size=(60, 1, 3))
    values = np.concatenate([one, one])
    labels = list(generator.permutation(["a", "b"] * 30)) * 2
    rows = Profile(values, np.full(120, 1), 1.0, "m", values[:, 0, 0], values[:, 0, 0])
    alone = classify(rows, labels, folds=3, neighbours=1)
    grouped = classify(rows, labels, list(range(60)) * 2, folds=3, neighbours=1)
    assert alone.mean("all layers") > 75  # two of three copies are seen: 5 in 6 are right
    assert grouped.mean("all layers") < 70


def test_folds_of_permuted_labels_may_leave_too_few_to_learn_from() -> None:
    """These are cut anew, and groups are as uneven as before."""
    labels = np.array(["a", "b"] * 20)
    groups = np.array([f"{n} {p if p > 24 else 'large'}" for p, n in enumerate(labels)])
    rows = Profile(np.ones((40, 1, 2)), np.ones(40), 1.0, "m", np.ones(40), np.ones(40))

    def learned(names: np.ndarray, seed: int) -> int:
        return min(len(train) for train, _ in _folds(names, groups, 2, seed))

    for seed in range(20):
        permuted = learned(np.random.default_rng(seed).permutation(labels), seed)
        if permuted < min(learned(labels, seed), 19):
            break
    with pytest.raises(DataError, match=f"leaves {permuted} texts to learn from"):
        classify(rows, labels, groups, folds=2, neighbours=permuted + 1, seed=seed)


def test_depths_are_made_alike_and_baselines_stand_beside() -> None:
    deep, flat = planted(layers=8), planted(layers=4)
    assert feature_sets([deep, flat])["all layers"].shape == (160, 4)
    labels = [*LABELS, *LABELS]
    extra = {"answer": [float(label == "a") for label in labels]}
    found = classify([deep, flat], labels, folds=4, neighbours=5, points=6, baselines=extra)
    assert found.mean("answer") == 100
    assert "layer 6" in found.scores
    assert "layer 7" not in found.scores


def test_bad_inputs_are_named() -> None:
    rows = planted()
    for labels, how in (
        (LABELS[:-1], {}),
        (["a"] * 80, {}),
        (LABELS, {"groups": [0] * 79}),
        (LABELS, {"groups": [0] * 80}),
        (LABELS, {"neighbours": 80}),
        (LABELS, {"baselines": {"short": [1.0]}}),
        (LABELS, {"baselines": {"none": []}}),
        (LABELS, {"baselines": {"words": ["x"] * 80}}),
        (LABELS, {"baselines": {"unknown": [math.nan] * 80}}),
        (LABELS, {"baselines": {"all layers": [1.0] * 80}}),
    ):
        with pytest.raises(DataError):
            classify(rows, labels, **{"folds": 5, **how})  # type: ignore[arg-type]
    for wrong in ({"folds": 1}, {"neighbours": 0}, {"seed": -1}):
        with pytest.raises(RecipeError):
            classify(rows, LABELS, **wrong)  # type: ignore[arg-type]
    uneven = (["a"] * 72 + ["b"] * 8, {"groups": [0] * 70 + [*range(1, 11)]})
    with pytest.raises(DataError, match=r"leaves 6 texts to learn from"):
        classify(rows, uneven[0], **uneven[1], folds=2, neighbours=30)
    with pytest.raises(DataError, match="of no text"):
        classify(planted(0), [])
    broken = replace(rows, values=rows.values * math.nan)
    with pytest.raises(DataError, match="not finite"):
        classify(broken, LABELS, folds=5)
    with pytest.raises(DataError, match="expected profiles"):
        classify([], LABELS)
