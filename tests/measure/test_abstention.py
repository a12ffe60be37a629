"""Abstention: entropies as fractions, thresholds, and how well the unknown is found."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from intarsia.data import Scaling, Split
from intarsia.errors import DataError
from intarsia.measure import auroc, entropy
from intarsia.measure.abstention import abstention, threshold, threshold_of
from intarsia.modules import Classifier
from intarsia.modules.classifier import uncertainty

SAME = Scaling("none", torch.zeros(()), torch.ones(()))


@pytest.fixture
def model() -> Classifier:
    """The inputs are the logits, over four classes."""
    return Classifier(nn.Identity(), catalogue="abcd", shape=(4,), scaling=SAME, temperature=2.0)


def test_uncertainty_is_the_entropy_as_a_share() -> None:
    logits = torch.randn(50, 7, generator=torch.Generator().manual_seed(0)) * 5
    expected = entropy(logits, 3.0) / math.log(7)
    assert uncertainty(logits, 3.0).numpy() == pytest.approx(expected, abs=1e-12)
    assert uncertainty(torch.zeros(2, 7)).tolist() == [1, 1]
    assert uncertainty(torch.tensor([[1e30, 0, 0]])).tolist() == [0]
    assert uncertainty(torch.randn(3, 1)).tolist() == [0, 0, 0]


def test_predict_answers_minus_one_above_the_share(model: Classifier) -> None:
    rows = torch.tensor([[0.0, 9, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
    fractions = uncertainty(rows, 2.0)
    assert fractions[0] < 0.3 < 0.9 < fractions[2] < fractions[1]
    assert model.predict(rows).tolist() == [1, 0, 0]
    assert model.predict(rows, abstain=0.5).tolist() == [1, -1, -1]
    assert model.predict(rows, abstain=float(fractions[2])).tolist() == [1, -1, 0]
    assert model.predict(rows, abstain=1).tolist() == [1, 0, 0]
    for fraction in (-0.1, 1.1, math.nan, True, "much"):
        with pytest.raises(DataError, match="abstain"):
            model.predict(rows, abstain=fraction)  # type: ignore[arg-type]


@given(
    fractions=st.lists(st.floats(0, 1), min_size=1, max_size=40, unique=True),
    answered=st.integers(0, 20).map(lambda n: n / 20),
)
def test_a_threshold_answers_as_many_as_asked(fractions: list[float], answered: float) -> None:
    limit = threshold_of(fractions, answered)
    got = sum(fraction <= limit for fraction in fractions) / len(fractions)
    assert answered - 1e-9 <= got < answered + 1.0000001 / len(fractions)


def test_a_threshold_lies_halfway_to_the_next_entropy() -> None:
    fractions = [0.7, 0.1, 0.3, 0.5]
    assert threshold_of(fractions, 0.5) == pytest.approx(0.4)
    assert threshold_of(fractions, 0.0) == pytest.approx(0.05)
    assert threshold_of(fractions, 1.0) == pytest.approx(0.85)
    assert threshold_of([*fractions, *[0.9] * 16], 0.95) == pytest.approx(0.9)
    assert threshold_of([n / 100 for n in range(100)]) == pytest.approx(0.945)
    one, following = 0.5, math.nextafter(0.5, 1)
    assert threshold_of([one, following], 0.5) == one
    last = math.nextafter(math.nextafter(0.5, 1), 1)
    assert threshold_of([following, last], 0.5) == following  # their middle is rounded to the last
    for answered in (-0.1, 1.1):
        with pytest.raises(DataError, match="answered is"):
            threshold_of(fractions, answered)
    with pytest.raises(DataError, match="the entropies have shape"):
        threshold_of([[0.1]], 0.5)  # type: ignore[list-item]


def test_threshold_reads_samples_of_any_form(model: Classifier) -> None:
    rows = torch.randn(100, 4, generator=torch.Generator().manual_seed(1)) * 4
    limit = threshold(model, rows, answered=0.9)
    assert int((model.predict(rows, abstain=limit) >= 0).sum()) == 90
    assert threshold(model, Split(rows, torch.zeros(100, dtype=torch.int64)), 0.9) == limit
    assert threshold(model, rows.numpy(), answered=0.9) == limit
    with pytest.raises(DataError, match="no samples"):
        threshold(model, rows[:0])
    with pytest.raises(DataError, match="answered"):
        threshold(model, rows, answered=95)


@given(
    known=st.lists(st.integers(0, 9), min_size=1, max_size=15),
    unknown=st.lists(st.integers(0, 9), min_size=1, max_size=15),
)
def test_auroc_counts_pairs(known: list[int], unknown: list[int]) -> None:
    pairs = [(u > k) + 0.5 * (u == k) for u in unknown for k in known]
    assert auroc(known, unknown) == pytest.approx(sum(pairs) / len(pairs))  # type: ignore[arg-type]


def test_auroc_of_nothing_is_nan() -> None:
    assert math.isnan(auroc([], [1.0]))
    assert math.isnan(auroc([1.0], []))
    with pytest.raises(DataError, match="the scores have"):
        auroc([math.nan], [1.0])


def test_abstention_against_its_parts(model: Classifier) -> None:
    draw = torch.Generator().manual_seed(2)
    y = torch.randint(4, (80,), generator=draw)
    x = torch.randn(80, 4, generator=draw) + 6 * torch.nn.functional.one_hot(y, 4)
    foreign = torch.randn(60, 4, generator=draw)
    result = abstention(model, Split(x, y), foreign, threshold=0.6)
    answers = model.predict(x, abstain=0.6)
    assert result.answered == pytest.approx(float((answers >= 0).double().mean()))
    assert result.refused == pytest.approx(
        float((model.predict(foreign, abstain=0.6) < 0).double().mean())
    )
    assert result.accuracy == pytest.approx(float((answers == y)[answers >= 0].double().mean()))
    assert result.auroc_entropy == auroc(_shares(x), _shares(foreign)) > 0.9
    probabilities = [1 - model.predict_proba(rows).amax(dim=1).double() for rows in (x, foreign)]
    assert result.auroc_softmax == pytest.approx(auroc(*probabilities), abs=1e-3)
    assert (result.known, result.unknown) == (80, 60)
    assert json.loads(json.dumps(result.to_json()))["threshold"] == 0.6
    assert f"{result.auroc_entropy:.4f} by entropy" in str(result)


def test_the_largest_probability_is_read_at_the_models_temperature(model: Classifier) -> None:
    """Scores that overlap, and whose order the temperature changes."""
    draw = torch.Generator().manual_seed(5)
    x, foreign = torch.randn(60, 4, generator=draw) * 3, torch.randn(50, 4, generator=draw) * 2
    result = abstention(model, Split(x, torch.zeros(60, dtype=torch.int64)), foreign, threshold=0.5)
    sure = [torch.softmax(rows.double() / 2.0, dim=1).amax(dim=1) for rows in (x, foreign)]
    pairs = (sure[1][:, None] < sure[0][None]).double()
    assert result.auroc_softmax == pytest.approx(float(pairs.mean()))
    assert 0.55 < result.auroc_softmax < 0.95


def test_a_sample_at_the_threshold_is_answered(model: Classifier) -> None:
    rows = torch.tensor([[0.0, 9, 0, 0], [1, 0, 0, 0]])
    edge = float(uncertainty(rows, 2.0)[1])
    labels = torch.tensor([1, 3])
    result = abstention(model, Split(rows, labels), Split(rows[1:], labels[1:]), threshold=edge)
    assert (result.answered, result.refused, result.accuracy) == (1.0, 0.0, 0.5)
    below = abstention(model, Split(rows, labels), rows[1:], threshold=math.nextafter(edge, 0))
    assert (below.answered, below.refused, below.accuracy) == (0.5, 1.0, 1.0)
    with pytest.raises(DataError, match="abstain"):
        abstention(model, Split(rows, labels), rows, threshold=2.0)


def test_a_plain_network_is_read_at_temperature_1(model: Classifier) -> None:
    rows = torch.randn(20, 4, generator=torch.Generator().manual_seed(4))
    plain = threshold(nn.Identity(), rows, answered=0.5)
    assert plain == threshold_of(uncertainty(rows.double(), 1.0), 0.5)
    assert threshold(model, rows, answered=0.5) == threshold_of(_shares(rows.double()), 0.5)


def _shares(rows: Tensor) -> Tensor:
    return uncertainty(rows, 2.0)


def test_known_classes_are_matched_by_name(model: Classifier) -> None:
    rows = 9 * torch.eye(4)[[1, 3]]
    named = Split(rows, torch.tensor([1, 0]), ("d", "b"))
    assert abstention(model, named, torch.zeros(3, 4), 0.5).accuracy == 1.0
