"""What the studio shows is what compose, evaluate, path and compatibility_matrix say."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import intarsia as ia
from intarsia import measure
from intarsia.composition import OPERATORS
from intarsia.data import Split
from intarsia.encoders import Encoder
from intarsia.errors import CompositionError
from intarsia.measure.compatibility import MEASURES
from intarsia.modules import logits_of
from intarsia.studio import Session
from intarsia.studio.scores import describe_switch, largest_changes, overall_accuracy
from intarsia.studio.ui.views import Views
from tiny_encoder import pictures


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_every_operator_gives_the_figures_of_compose_and_evaluate(
    operator: str, session: Session, bank: ia.Bank, digits: ia.Data
) -> None:
    merged = ia.compose([bank["0"], bank["8+9"]], operator, samples=digits)
    expected = ia.evaluate(merged, digits.test)
    result = session.score(["8+9", "0"], operator)
    assert (result.confusion == expected.confusion).all()
    assert result.rewarded == expected.rewarded == ("0", "8", "9")
    assert result.accuracy == expected.accuracy
    assert result.entropy == pytest.approx(expected.entropy, rel=1e-6)
    logits = session.joined_logits(["0", "8+9"], operator)
    torch.testing.assert_close(logits, logits_of(merged, digits.test.x))


def test_what_a_composition_does_around_its_operator_is_done_here(
    bank: ia.Bank, digits: ia.Data
) -> None:
    subsample = digits.train.select([0, 3])
    subsample = Split(subsample.x[:40], subsample.y[:40])
    merged = ia.compose([bank["0"], bank["3"]], "logits", samples=subsample, calibrate=True)
    session = Session(merged.parts, digits, merged.operator, like=merged)
    expected = ia.evaluate(merged, digits.test)
    result = session.score(session.names, merged.operator)
    assert (result.confusion == expected.confusion).all()
    assert result.entropy == pytest.approx(expected.entropy, rel=1e-6)
    assert result.entropy != session.score(session.names, "logit_mean").entropy
    views = Views(session)
    assert views.about("logits").endswith("As in the composition: calibrated.")
    assert "calibrated" not in views.about("sum")


def test_answers_are_computed_once_whatever_the_order(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = session.score(["0", "3"], "ties(density=0.5)")

    def never(*args: Any, **settings: Any) -> None:
        raise AssertionError("joined again")

    monkeypatch.setattr("intarsia.studio.session.Composition", never)
    assert session.score(["3", "0"], {"name": "ties", "density": 0.5}) is first


def test_a_class_that_was_taken_out_comes_back_bit_for_bit(own_session: Session) -> None:
    session = own_session
    before = session.joined_logits(session.names, "sum").clone()
    without = session.joined_logits(["0", "8+9"], "sum")
    session._logits.clear()
    session._compositions.clear()
    assert not torch.equal(before, without)
    assert torch.equal(session.joined_logits(session.names, "sum"), before)


def test_a_module_may_be_added_while_cards_are_made(
    session: Session, bank: ia.Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another request of the same visitor."""
    own, score, known = session.for_visitor(), Session.own_score, len(session.names)

    def added_meanwhile(self: Session, name: str) -> measure.Evaluation:
        if len(self.names) == known:
            self.add_renamed(bank[0])
        return score(self, name)

    monkeypatch.setattr(Session, "own_score", added_meanwhile)
    assert len(own.tiles) == known
    assert len(own.tiles) == known + 1


def test_cards_say_what_evaluate_says_of_each_module(
    session: Session, bank: ia.Bank, digits: ia.Data
) -> None:
    for card, module in zip(session.tiles, bank, strict=True):
        score = ia.evaluate(module, digits.test)
        assert (card.name, card.rewarded) == (module.name, module.rewarded)
        assert card.accuracy == score.accuracy
        assert card.entropy == pytest.approx(score.entropy / score.ceiling)
        assert card.density == module.density


def test_a_path_and_the_matrix_are_those_of_the_library(
    session: Session, bank: ia.Bank, digits: ia.Data
) -> None:
    way = session.path("0", "3")
    expected = ia.path(bank["0"], bank["3"], digits, samples=1000)
    for split in ("train", "test"):
        np.testing.assert_allclose(way.curves[split].loss, expected.curves[split].loss)
    assert session.path("0", "3") is way
    with pytest.raises(CompositionError, match="needs two modules, both are '0'"):
        session.path("0", "0")
    matrix = ia.compatibility_matrix(bank, digits)
    result = session.matrix()
    for name in MEASURES:
        np.testing.assert_allclose(result[name], matrix[name])


def test_nothing_on_and_unknown_names_are_told(session: Session) -> None:
    with pytest.raises(CompositionError, match="no module is on: switch at least one on"):
        session.score([], "sum")
    with pytest.raises(CompositionError, match="has no module '7'"):
        session.score(["7"], "sum")
    with pytest.raises(CompositionError, match="a weight is given for '7': known: 0, 3"):
        session.score(["0"], {"name": "weighted", "weights": {"7": 2.0}})
    # A weight of a module that is off waits for it.
    weighted = session.score(["0"], {"name": "weighted", "weights": {"3": 2.0}})
    assert weighted.accuracy == session.score(["0"], "sum").accuracy


def test_few_rows_and_a_catalogue_in_another_order(bank: ia.Bank, digits: ia.Data) -> None:
    subsample = Session(bank, digits, rows=50)
    assert len(subsample.test) == 50
    turned = replace(
        digits,
        catalogue=digits.catalogue[::-1],
        test=Split(digits.test.x, 9 - digits.test.y),
        train=Split(digits.train.x, 9 - digits.train.y),
        validation=Split(digits.validation.x, 9 - digits.validation.y),
    )
    both = [Session(bank, data).score(["0", "3"], "sum") for data in (digits, turned)]
    assert (both[0].confusion == both[1].confusion).all()


def test_modules_that_do_not_fit_are_refused_or_come_with_a_caution(
    own_session: Session, bank: ia.Bank
) -> None:
    session = own_session
    with pytest.raises(CompositionError, match="module '3' is given twice"):
        session.add(bank["3"])
    hot = replace(bank["3"], name="hot", temperature=2 * bank["3"].temperature)
    with pytest.raises(CompositionError, match="its temperature is"):
        session.add(hot)
    assert session.names == bank.names
    foreign = replace(bank["3"], name="foreign", origin="0" * 64)
    assert "its origin is 000" in session.add(foreign)
    assert session.score(["0", "foreign"], "logits").accuracy > 0
    with pytest.raises(CompositionError, match="its origin is 000"):
        session.score(["0", "foreign"], "sum")
    before = session.matrix()["cosine"]
    loud = replace(
        bank["3"], name="loud", scaling=replace(bank["3"].scaling, scale=torch.tensor(0.5))
    )
    # The caution is about the new one, whatever came before; the matrix goes on without it.
    caution = session.add(loud)
    assert "module 'loud' does not fit module '0': its scaling" in caution
    assert caution.endswith("; join it by logits")
    assert session.matrix().names == (*bank.names, "foreign")
    assert "cannot be compared: loud." in Views(session).matrix("cosine", None)
    np.testing.assert_allclose(session.matrix()["cosine"], before)
    session.remove("foreign")
    with pytest.raises(CompositionError, match="has no module 'foreign'"):
        session.score(["0", "foreign"], "logits")
    # Another module under its name is not taken for it.
    session.add(replace(bank["8+9"], name="foreign"))
    expected = session.score(["0", "8+9"], "logits").confusion
    assert (session.score(["0", "foreign"], "logits").confusion == expected).all()
    assert session.path("0", "foreign").barrier == session.path("0", "8+9").barrier


def test_visitors_share_answers_and_not_modules(
    own_session: Session, bank: ia.Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = own_session
    one, two = shared.for_visitor(), shared.for_visitor()
    one.add(replace(bank["3"], name="mine"))
    two.add(replace(bank["0"], name="mine"))
    assert shared.names == bank.names
    assert (one.initial, one.names) == (bank.names, (*bank.names, "mine"))
    assert one.score(["mine"], "sum").rewarded == ("3",)
    assert two.score(["mine"], "sum").rewarded == ("0",)
    with pytest.raises(CompositionError, match="has no module 'mine'"):
        shared.score(["mine"], "sum")
    first = shared.score(["0", "3"], "sum")
    assert one.score(["0", "3"], "sum") is two.score(["3", "0"], "sum") is first
    monkeypatch.setattr("intarsia.studio.session.SCORES", 2)
    for names in (["0"], ["3"], ["0"], ["8+9"]):
        shared.score(names, "sum")
    assert [[name for name, _ in key[0]] for key in shared._scores] == [["0"], ["8+9"]]


def test_overall_accuracy_and_entropy_by_hand(session: Session, digits: ia.Data) -> None:
    score = session.score(["0", "3"], "sum")
    logits = session.joined_logits(["0", "3"], "sum")
    assert overall_accuracy(score) == pytest.approx(
        float((logits.argmax(dim=1) == digits.test.y).double().mean())
    )
    entropies = measure.entropy(logits, session["0"].temperature)
    mine = np.isin(digits.test.y, [0, 3])
    assert score.entropy_on(score.rewarded) == pytest.approx(entropies[mine].mean())
    assert score.entropy_on(set(score.catalogue) - set(score.rewarded)) == pytest.approx(
        score.entropy
    )
    every = Session([replace(session["0"], rewarded=session.catalogue)], digits)
    assert np.isnan(every.score(["0"], "sum").entropy_on(()))


def test_what_a_switch_did_is_said_in_few_words(session: Session) -> None:
    assert describe_switch(["0", "3"], ["0"]) == "3 off"
    assert describe_switch(["0"], ["0", "3", "8"]) == "3 and 8 on"
    assert describe_switch(["0"], ["3"], ("sum", "inlay")) == "0 off, 3 on, sum to inlay"
    assert describe_switch("abcde", "f") == "5 modules off, f on"
    assert describe_switch("abcde", "") == "all off"
    assert describe_switch("", "ab", None, "ab") == "all on"
    assert describe_switch("", "ab", None, "abc") == "a and b on"
    before, after = (session.score(names, "sum") for names in (["0", "3"], ["0"]))
    told = largest_changes(before, after)
    assert told[0] == ("3", before.accuracy_per_class[3], after.accuracy_per_class[3])
    assert largest_changes(after, after) == []


def test_raw_pictures_are_encoded_once_for_all_operators(
    feature_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(feature_session.modules, ia.load_data(*pictures(90)))
    torch.testing.assert_close(session.samples.x, feature_session.samples.x)
    monkeypatch.setattr(Encoder, "__call__", lambda *given: pytest.fail("it was encoded again"))
    for operator in ("fisher", "regmean", "logits"):
        score = session.score(session.names, operator)
        assert score.accuracy == feature_session.score(session.names, operator).accuracy
    assert session.matrix()["interference"].shape == (3, 3)
