"""ModularClassifier: scikit-learn's own checks, and classes that come and go."""

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from joblib.externals.loky import ProcessPoolExecutor
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.estimator_checks import parametrize_with_checks

from intarsia.errors import HealthWarning, IntarsiaError
from intarsia.estimator import EstimatorError, ModularClassifier
from intarsia.measure.novelty import SCORES
from intarsia.modules import logits_of
from intarsia.modules.grow import grown

QUICK = {"model": "mlp(64, dropout=0.0)", "epochs": 8, "batch": 16, "random_state": 0}
# As for scikit-learn's own estimators that train on shuffled batches: a row of weight 2 is not in
# the batches that two such rows would be in.
STOCHASTIC = {
    f"check_sample_weight_equivalence_on_{kind}_data": "rows come in shuffled batches"
    for kind in ("dense", "sparse")
}


@parametrize_with_checks(
    [ModularClassifier(model="mlp(16)", epochs=10)], expected_failed_checks=lambda _: STOCHASTIC
)
def test_scikit_learn_rules(estimator: ModularClassifier, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Five classes: rows to fit, then rows to test."""
    x, y = load_digits(n_class=5, return_X_y=True)
    return x[:600], y[:600], x[600:], y[600:]


@pytest.fixture(scope="module")
def fitted(digits: Any) -> ModularClassifier:
    """Of the classes 0 to 3; tests work on copies."""
    x, y, _, _ = digits
    return ModularClassifier(**QUICK).fit(x[y < 4], y[y < 4])


@pytest.fixture
def four(fitted: ModularClassifier) -> ModularClassifier:
    return deepcopy(fitted)


@pytest.fixture(scope="module")
def of_five(fitted: ModularClassifier, digits: Any) -> ModularClassifier:
    """The same after class 4 was added."""
    x, y, _, _ = digits
    return deepcopy(fitted).add_class(x[y == 4], 4)


@pytest.fixture
def five(of_five: ModularClassifier) -> ModularClassifier:
    return deepcopy(of_five)


@pytest.mark.parametrize("partial", [False, True])
def test_new_class_that_earlier_modules_take_for_their_own(partial: bool) -> None:
    """Modules of two irises take setosas for versicolors; both trained again tell them apart."""
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    clf = ModularClassifier(random_state=0).fit(x[y > 0], names[y > 0])
    more = clf.partial_fit if partial else clf.add_class
    with pytest.warns(HealthWarning, match="'setosa' is the answer to 0 of the 50 rows.*'versic"):
        more(x[y == 0], names[y == 0] if partial else "setosa")
    clf.partial_fit(x[y < 2], names[y < 2])
    assert clf.score(x, names) > 0.95


def test_learns_digits(four: ModularClassifier, digits: Any) -> None:
    _, _, x, y = digits
    assert four.score(x[y < 4], y[y < 4]) > 0.95
    assert four.predict_proba(x).sum(axis=1) == pytest.approx(1)
    best = four.classes_[four.decision_function(x).argmax(axis=1)]
    assert np.array_equal(best, four.predict(x))


def test_answers_are_the_sum_of_the_modules_logits(five: ModularClassifier, digits: Any) -> None:
    x = digits[2].astype(np.float32)
    total = sum(logits_of(m.to_module(), x).double() for m in five.modules_)
    scores = five.decision_function(x) * five.temperature_
    assert scores == pytest.approx(total.numpy(), abs=1e-4)


def test_a_random_state_repeats_a_fit(four: ModularClassifier, digits: Any) -> None:
    x, y, _, _ = digits
    again = clone(four).fit(x[y < 4], y[y < 4])
    assert [m.digest for m in again.modules_] == [m.digest for m in four.modules_]
    other = clone(four).set_params(random_state=1).fit(x[y < 4], y[y < 4])
    assert other.modules_[0].digest != four.modules_[0].digest


def test_add_class_trains_one_module_only(
    four: ModularClassifier, five: ModularClassifier, digits: Any
) -> None:
    _, _, x, y = digits
    catalogue = ("0", "1", "2", "3", "4")
    kept = [grown(m, catalogue).digest for m in four.modules_]
    assert [m.digest for m in five.modules_[:4]] == kept
    assert five.modules_[4].rewarded == ("4",)
    assert five.modules_[4].scaling is five.modules_[0].scaling or (
        five.modules_[4].scaling.to_json() == four.modules_[0].scaling.to_json()
    )
    assert five.classes_.tolist() == [0, 1, 2, 3, 4]
    assert five.score(x, y) > 0.93
    assert (five.predict(x)[y == 4] == 4).mean() > 0.85


def test_a_class_in_between_keeps_the_classes_sorted(digits: Any) -> None:
    x, y, x_test, y_test = digits
    words = np.array(["zero", "one", "two", "three", "four"])
    some = np.isin(y, [0, 1, 2])
    model = ModularClassifier(**QUICK).fit(x[some], words[y[some]])
    model.add_class(x[y == 4], "four")
    assert model.classes_.tolist() == ["four", "one", "two", "zero"]
    assert model.modules_[0].catalogue == ("one", "two", "zero", "four")
    known = y_test != 3
    assert model.score(x_test[known], words[y_test[known]]) > 0.93
    assert log_loss(words[y_test[known]], model.predict_proba(x_test[known])) < 0.4


def test_add_class_without_a_background_makes_its_negatives_up(
    four: ModularClassifier, digits: Any
) -> None:
    x, y, x_test, y_test = digits
    model = clone(four).set_params(background=0, shape=(1, 8, 8)).fit(x[y < 4], y[y < 4])
    before = model.temperature_
    model.add_class(x[y == 4], 4)
    recipe = model.modules_[4].provenance["recipe"]
    assert recipe["visibility"] == "own"
    assert "bent" in recipe["negatives"]
    assert model.temperature_ == before
    known = y_test < 5
    assert model.score(x_test[known], y_test[known]) > 0.85
    few = clone(model).fit(x[y < 4], y[y < 4])
    few.add_class(x[y == 4], 4, background=x[y == 0][:3])
    assert few.modules_[4].provenance["recipe"]["visibility"].startswith("past(order=")
    enough = clone(model).fit(x[y < 4], y[y < 4])
    enough.add_class(x[y == 4], 4, background=x[y < 4])
    assert "visibility" not in enough.modules_[4].provenance["recipe"]


def test_add_class_takes_a_background_of_the_callers(four: ModularClassifier, digits: Any) -> None:
    x, y, x_test, y_test = digits
    bare = clone(four).set_params(background=0).fit(x[y < 4], y[y < 4])
    assert len(bare.background_) == 0
    bare.add_class(x[y == 4], 4, background=x[y < 4])
    assert bare.score(x_test, y_test) > 0.93
    before = set(four.background_.train.y.tolist())
    four.add_class(x[y == 4], 4, background=x[y == 3], background_y=y[y == 3])
    assert set(four.background_.train.y.tolist()) == before | {4}
    four.remove_class(0)
    with pytest.raises(EstimatorError, match="background_y"):
        four.add_class(x[y == 0], 0, background=x[:5], background_y=[0] * 5)


def test_a_removed_class_is_never_predicted_and_looks_unknown(
    five: ModularClassifier, digits: Any
) -> None:
    _, _, x, y = digits
    five.remove_class(2)
    assert five.classes_.tolist() == [0, 1, 3, 4]
    assert 2 not in five.predict(x)
    assert five.predict_proba(x).shape == (len(x), 4)
    assert five.predict_proba(x).sum(axis=1) == pytest.approx(1)
    answers = five.predict(x, abstain=True)
    assert (answers[y == 2] == -1).mean() > 0.8
    assert (answers[y != 2] == -1).mean() < 0.2


def test_removing_and_putting_back_gives_the_same_bits(
    five: ModularClassifier, digits: Any
) -> None:
    x = digits[2]
    before = five.predict_proba(x), five.predict(x, abstain=True), five.novelty_
    out = [five.remove_class(1), five.remove_class(3)]
    assert not np.array_equal(before[0][:, 0], five.predict_proba(x)[:, 0])
    for module in out:
        five.add_module(module)
    assert np.array_equal(before[0], five.predict_proba(x))
    assert np.array_equal(before[1], five.predict(x, abstain=True))
    assert five.novelty_ == before[2]


def test_a_module_taken_out_grows_when_it_comes_back(four: ModularClassifier, digits: Any) -> None:
    x, y, x_test, y_test = digits
    module = four.remove_class(0)
    four.add_class(x[y == 4], 4)
    four.add_module(module)
    assert four.classes_.tolist() == [0, 1, 2, 3, 4]
    assert four.score(x_test, y_test) > 0.93


@pytest.mark.parametrize("operator", ["inlay", "logits"])
def test_one_module_can_still_say_none_of_mine(
    operator: str, four: ModularClassifier, digits: Any
) -> None:
    _, _, x, y = digits
    four.set_params(operator=operator)
    for label in (0, 1, 2):
        four.remove_class(label)
    assert set(four.predict(x)) == {3}
    answers = four.predict(x, abstain=0.7)
    assert (answers[y == 3] == 3).mean() > 0.8
    assert (answers[y < 3] == -1).mean() > 0.9
    with pytest.raises(EstimatorError, match="last one"):
        four.remove_class(3)


def test_weights_of_one_origin_can_be_summed_and_parted(digits: Any) -> None:
    x, y, _, _ = digits
    model = ModularClassifier(operator="sum", **QUICK).fit(x[y < 3], y[y < 3])
    before = model.predict_proba(x)
    module = model.remove_class(1)
    assert np.array_equal(model.add_module(module).predict_proba(x), before)
    with pytest.raises(EstimatorError, match="origin"):
        model.add_class(x[y == 4], 4)
    assert np.array_equal(model.predict_proba(x), before)


def test_partial_fit_trains_the_modules_of_its_labels(digits: Any) -> None:
    x, y, x_test, y_test = digits
    model = ModularClassifier(**QUICK)
    first = y < 2
    model.partial_fit(x[first][:60], y[first][:60], classes=range(5))
    assert model.classes_.tolist() == [0, 1]
    before = [grown(m, ("0", "1", "2")).digest for m in model.modules_]
    later = np.isin(y, [1, 2])
    model.partial_fit(x[later], y[later])
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.modules_[0].digest == before[0]
    assert model.modules_[1].digest != before[1]
    known = y_test < 3  # the module of 0 has never seen a 2
    assert model.score(x_test[known], y_test[known]) > 0.8


@pytest.mark.parametrize("operator", ["sum", "logits"])
def test_room_is_made_for_labels_to_come_where_weights_are_joined(
    operator: str, digits: Any
) -> None:
    x, y, _, _ = digits
    model = ModularClassifier(operator=operator, **QUICK | {"epochs": 1})
    model.partial_fit(x[y < 2], y[y < 2], classes=range(5))
    room = operator == "sum"
    assert model.modules_[0].catalogue == (tuple("01234") if room else ("0", "1"))
    with pytest.raises(EstimatorError, match="of one kind"):
        model.partial_fit(x[y < 2], y[y < 2], classes=["a"])
    before = model.modules_[0].digest
    model.partial_fit(x[y == 4], y[y == 4])
    assert model.classes_.tolist() == [0, 1, 4]
    assert (len({m.origin for m in model.modules_}) == 1) == room
    assert (model.modules_[0].digest == before) == room


def test_the_background_is_bounded_and_has_every_class(digits: Any) -> None:
    x, y, _, _ = digits
    model = ModularClassifier(**QUICK, background=50).fit(x[y < 4], y[y < 4])
    model.add_class(x[y == 4], 4)
    assert len(model.background_) <= 50
    counts = torch.bincount(model.background_.train.y)
    assert counts.tolist() == [9] * 5
    held = {tuple(row) for row in model.background_.validation.x.tolist()}
    assert not held & {tuple(row) for row in model.background_.train.x.tolist()}


def test_abstained_labels(four: ModularClassifier, digits: Any) -> None:
    x, y, _, _ = digits
    assert four.predict(x, abstain=0.0).dtype == four.classes_.dtype
    assert set(four.predict(x[y == 4], abstain=0.3)) <= {-1, 0, 1, 2, 3}
    assert np.array_equal(four.predict(x, abstain=1.0), four.predict(x))
    for flag in (np.False_, np.True_):
        same = four.predict(x, abstain=bool(flag))
        assert np.array_equal(four.predict(x, abstain=flag), same)
    four.set_params(unknown=3)
    with pytest.raises(EstimatorError, match="is a class"):
        four.predict(x, abstain=True)
    four.set_params(unknown=99)
    assert 99 in four.predict(x[y == 4], abstain=True)
    with pytest.raises(EstimatorError, match="abstain"):
        four.predict(x, abstain=2.0)


@pytest.mark.parametrize(
    ("labels", "unknown"),
    [
        (np.array(["a", "b", "c"]), "unknown"),
        (np.array(["a", "b", "c"], dtype=object), "unknown"),
        (np.array([7, 9, 200], dtype=np.uint8), -1),
        (np.array([0.0, 1.0, 2.0]), -1.0),
        (np.array([False, True]), -1),
        (np.array(["", "''x", "y"]), "unknown"),
    ],
)
def test_labels_keep_their_kind(labels: np.ndarray, unknown: Any, digits: Any) -> None:
    x, y, _, _ = digits
    some = y < len(labels)
    model = ModularClassifier(**QUICK | {"epochs": 2}).fit(x[some], labels[y[some]])
    assert model.classes_.dtype == labels.dtype
    assert model.predict(x).dtype == labels.dtype
    assert set(model.predict(x, abstain=0.0)) == {unknown}


def test_works_in_pipelines_searches_and_processes(digits: Any) -> None:
    x, y, _, _ = digits
    words = np.array(["zero", "one", "two", "three", "four"])[y]
    pipe = make_pipeline(StandardScaler(), ModularClassifier(**QUICK, scale="none"))
    grid = {"modularclassifier__epochs": np.array([1, 4])}
    search = GridSearchCV(pipe, grid, cv=2).fit(x[:100], words[:100])
    assert search.best_params_["modularclassifier__epochs"] == 4
    assert search.best_estimator_.predict(x[:3]).dtype.kind == "U"
    model, some = ModularClassifier(**QUICK | {"epochs": 2}), np.flatnonzero(y < 3)[:60]
    alone = cross_val_score(model, x[some], y[some], cv=2)
    with ProcessPoolExecutor(1) as pool:  # as `n_jobs` starts them
        elsewhere = pool.submit(cross_val_score, model, x[some], y[some], cv=2)
        assert np.array_equal(alone, elsewhere.result())


def test_flat_images_go_through_a_convolutional_network(digits: Any) -> None:
    x, y, x_test, y_test = digits
    some = np.flatnonzero(y < 3)[:200]
    settings = {"epochs": 6, "learning_rate": 0.02, "random_state": 0}
    model = ModularClassifier(_small_convolution, shape=(1, 8, 8), **settings)
    model.fit(x[some], y[some])
    known = y_test < 3
    assert model.score(x_test[known], y_test[known]) > 0.85
    model.set_params(epochs=1).add_class(x[y == 3], 3)
    assert {str(m.architecture) for m in model.modules_} == {
        "custom model, inputs 1x8x8, 4 outputs"
    }


def test_classes_of_one_row_are_learned(digits: Any) -> None:
    x, y, _, _ = digits
    rows = [int(np.flatnonzero(y == label)[0]) for label in (0, 1)]
    model = ModularClassifier(**QUICK).fit(x[rows], y[rows])
    assert np.array_equal(model.predict(x[rows]), [0, 1])


def test_rows_that_are_all_the_same_tell_nothing() -> None:
    x, y = np.ones((20, 3)), [0, 1] * 10
    model = ModularClassifier(**QUICK).fit(x, y)
    assert model.predict_proba(x) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs"),
        ({"model": "mpl"}, "mlp"),
        ({"operator": "sun"}, "sum"),
        ({"background": -1}, "background"),
        ({"validation": 1.5}, "validation"),
        ({"schedule": "linear"}, "cosine"),
        ({"scale": "big"}, "scaling"),
        ({"shape": 64}, "shape is 64"),
        ({"shape": "8x8"}, "shape is '8x8'"),
        ({"shape": (8.0, 8.0)}, "shape is"),
        ({"learning_rate": 1e30, "epochs": 1}, "diverged"),
    ],
)
def test_settings_are_checked_in_fit(settings: dict[str, Any], message: str, digits: Any) -> None:
    x, y, _, _ = digits
    model = ModularClassifier(**settings)
    with pytest.raises(ValueError, match=message) as caught:
        model.fit(x[:50], y[:50])
    assert isinstance(caught.value, IntarsiaError)


def test_a_failed_fit_or_change_leaves_what_was_there(four: ModularClassifier, digits: Any) -> None:
    x, y, _, _ = digits
    before = four.predict_proba(x)
    with pytest.raises(EstimatorError):
        four.set_params(learning_rate=1e30).add_class(x[y == 4], 4)
    assert np.array_equal(four.predict_proba(x), before)


def test_mistakes_are_named(four: ModularClassifier, five: ModularClassifier, digits: Any) -> None:
    x, y, _, _ = digits
    with pytest.raises(NotFittedError):
        ModularClassifier().add_class(x, 1)
    with pytest.raises(EstimatorError, match="1 class only"):
        ModularClassifier().fit(x[:5], np.ones(5))
    with pytest.raises(EstimatorError, match="already"):
        four.add_class(x[y == 3], 3)
    with pytest.raises(EstimatorError, match="of one kind"):
        four.add_class(x[y == 4], "four")
    with pytest.raises(EstimatorError, match="not a whole number"):
        four.add_class(x[y == 4], 4.5)
    with pytest.raises(EstimatorError, match="no class 7"):
        four.remove_class(7)
    for nothing in ([3], None, np.array([1, 2])):
        with pytest.raises(EstimatorError, match="is not a label"):
            four.remove_class(nothing)
        with pytest.raises(EstimatorError, match="is not a label"):
            four.add_class(x[y == 4], nothing)
    with pytest.raises(EstimatorError, match="background_y has labels of no rows"):
        four.add_class(x[y == 4], 4, background_y=[1, 2])
    with pytest.raises(EstimatorError, match="catalogue"):
        four.add_module(five.modules_[4])
    with pytest.raises(EstimatorError, match="has a module"):
        four.add_module(four.modules_[0])
    with pytest.raises(EstimatorError, match="a str is not a module: give what remove_class"):
        four.add_module("4")


def _small_convolution(shape: tuple[int, ...], outputs: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(shape[0], 6, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(54, outputs),
    )


def test_a_row_of_weight_nothing_is_as_if_it_were_not_there(digits: Any) -> None:
    x, y, test, _ = digits
    weight = np.where(np.arange(len(y)) % 5 == 0, 0.0, 1.0)
    weighted = ModularClassifier(**QUICK).fit(x, y, sample_weight=weight)
    without = ModularClassifier(**QUICK).fit(x[weight > 0], y[weight > 0])
    assert np.allclose(weighted.predict_proba(test), without.predict_proba(test), atol=1e-5)
    with pytest.raises(ValueError, match="at least one non-zero"):
        ModularClassifier(**QUICK).fit(x, y, sample_weight=np.zeros(len(y)))


def test_a_class_of_one_row_is_learned_although_none_is_held_out() -> None:
    """The held-out rows of other classes are answered best by a module that has learned nothing."""
    generator = np.random.default_rng(3)
    y = np.repeat([0, 1, 2], [60, 60, 1])
    x = 3 * generator.normal(size=(3, 6))[y] + generator.normal(size=(121, 6))
    classifier = ModularClassifier(random_state=0).fit(x, y)
    assert not (classifier.background_.validation.y == 2).any()
    assert classifier.predict(x[y == 2]) == 2
    kept = [module.provenance["scores"]["validation"]["epoch"] for module in classifier.modules_]
    assert kept[2] + 1 == classifier.modules_[2].provenance["recipe"]["epochs"]


def test_balanced_classes_count_rows_by_their_weight(digits: Any) -> None:
    """As if a row of weight 3 were there three times."""
    x, y, test, _ = digits
    weight = np.random.default_rng(0).integers(1, 4, len(y)) + 6 * (y == 1)
    classes = np.unique(y)
    repeated = compute_class_weight("balanced", classes=classes, y=np.repeat(y, weight))
    factors = dict(zip(classes.tolist(), repeated.tolist(), strict=True))
    answers = [
        ModularClassifier(**QUICK, class_weight=given)
        .fit(x, y, sample_weight=weight)
        .predict_proba(test)
        for given in ("balanced", factors)
    ]
    assert np.allclose(*answers, atol=1e-5)


def test_weights_of_classes_move_the_border() -> None:
    """Two classes that overlap: the heavier one takes more of the middle."""
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.normal(-0.5, 1, (300, 12)), generator.normal(0.0, 1, (300, 12))])
    y = np.repeat([0, 1], 300)
    shares = [
        (ModularClassifier(**QUICK, class_weight=weight).fit(x, y).predict(x) == 1).mean()
        for weight in ({0: 8.0, 1: 1.0}, None, "balanced", {0: 1.0, 1: 8.0})
    ]
    assert shares[0] + 0.1 < shares[1] < shares[3] - 0.1
    assert shares[2] == pytest.approx(shares[1], abs=0.02)  # the classes are equally large


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rare_classes_are_found_as_well_as_by_an_mlp() -> None:
    ours, theirs = [], []
    for seed in range(3):
        x, y = make_classification(
            3000, 12, n_informative=6, weights=[0.99], flip_y=0, class_sep=1.5, random_state=seed
        )
        usual = make_pipeline(StandardScaler(), MLPClassifier(random_state=0))
        for scores, model in ((ours, ModularClassifier(random_state=0)), (theirs, usual)):
            answers = model.fit(x[::2], y[::2]).predict(x[1::2])
            scores.append(balanced_accuracy_score(y[1::2], answers))
    assert np.mean(ours) >= np.mean(theirs)


def test_probabilities_are_calibrated_on_held_out_rows(five: ModularClassifier) -> None:
    """No factor of the temperature makes the held-out rows much more probable."""
    held = five.background_.validation
    z = five.decision_function(held.x.numpy()) * five.temperature_

    def cost(factor: float) -> float:
        scaled = torch.tensor(z / (five.temperature_ * factor))
        return float(torch.nn.functional.cross_entropy(scaled, held.y, reduction="sum"))

    assert five.temperature_ > 0
    assert cost(1.0) <= min(cost(f) for f in (0.25, 0.5, 2.0, 4.0)) + 2.0  # nats, for the pull


def test_nonsense_is_refused(digits: Any) -> None:
    x, y, test, _ = digits
    model = ModularClassifier(random_state=0).fit(x, y)
    generator = np.random.default_rng(0)
    noise = generator.uniform(0, 16, test.shape)
    shuffled = np.stack([generator.permutation(row) for row in test])
    for rows in (noise, shuffled, 16 - test, 10 * test):
        assert (model.predict(rows, abstain=True) == -1).mean() > 0.9
    assert (model.predict(test, abstain=True) == -1).mean() < 0.2
    assert set(model.novelty_.auroc) == set(SCORES)


def test_verbose_says_what_was_chosen(digits: Any, capsys: pytest.CaptureFixture[str]) -> None:
    x, y, _, _ = digits
    ModularClassifier(**QUICK, verbose=True).fit(x[:100], y[:100])
    assert "settings for" in capsys.readouterr().err.replace("\n", " ")
    ModularClassifier(**QUICK).fit(x[:100], y[:100])
    assert capsys.readouterr().err == ""


def test_a_class_that_comes_later_has_the_network_of_the_others(digits: Any) -> None:
    """The rule would choose another width for so many rows."""
    x, y, _, _ = digits
    model = ModularClassifier(epochs=2, random_state=0, background=5000)
    model.fit(x[y < 2][:100], y[y < 2][:100])
    more = np.concatenate([x[y == 3]] * 12)
    model.add_class(more, 3)
    assert len({str(module.architecture.model) for module in model.modules_}) == 1
