"""One sample: what each module and the whole say is what predict_proba says."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import intarsia as ia
from intarsia.errors import CompositionError, DataError
from intarsia.studio import Session
from intarsia.studio.answers import (
    Sample,
    merged_answer,
    module_answers,
    next_sample,
    removable_modules,
    sample_at,
)


@pytest.mark.parametrize("number", [5, None])
def test_answers_are_those_of_the_modules_and_of_the_whole(
    number: int | None, session: Session, bank: ia.Bank, digits: ia.Data
) -> None:
    x = digits.test.x[5:6]
    seen = Sample(x, number)  # without a number it is a drawing, and goes through the networks
    for answer, module in zip(module_answers(session, seen), bank, strict=True):
        expected = module.to_module().predict_proba(x)[0]
        np.testing.assert_allclose(answer.probabilities, expected, rtol=1e-4)
        best = float(expected[module.catalogue.index(answer.best)])  # of a tie, either
        assert best == pytest.approx(float(expected.max()), rel=1e-4)
        assert answer.confidence == pytest.approx(float(expected.max()), rel=1e-4)
        share = -(expected * expected.log()).sum() / np.log(10)
        assert answer.entropy == pytest.approx(float(share), rel=1e-4)
    for operator in ("sum", "inlay", "logits"):
        merged = ia.compose(bank, operator)
        answer = merged_answer(session, seen, session.names, operator)
        np.testing.assert_allclose(answer.probabilities, merged.predict_proba(x)[0], rtol=1e-4)
        less = merged_answer(session, seen, session.names, operator, without="3")
        expected = (merged - "3").predict_proba(x)[0]
        np.testing.assert_allclose(less.probabilities, expected, rtol=1e-4)


def test_a_class_goes_with_its_module_or_not_at_all(session: Session) -> None:
    assert removable_modules(session, session.names, "3") == ("3",)
    with pytest.raises(CompositionError, match="'8' cannot be taken out alone, module '8\\+9'"):
        removable_modules(session, session.names, "8")
    with pytest.raises(CompositionError, match="no module that is on recognises '3'"):
        removable_modules(session, ["0"], "3")
    with pytest.raises(CompositionError, match="without '3' no module is left"):
        merged_answer(session, sample_at(session, 0), ["3"], "sum", without="3")


def test_all_modules_of_a_class_go_with_it(own_session: Session, bank: ia.Bank) -> None:
    session, seen = own_session, sample_at(own_session, 0)
    name, _ = session.add_renamed(replace(bank["3"], provenance={}))
    assert name == "3 (2)"
    assert removable_modules(session, session.names, "3") == ("3", "3 (2)")
    less = merged_answer(session, seen, session.names, "logits", without="3")
    expected = merged_answer(session, seen, ["0", "8+9"], "logits")
    assert (less.probabilities == expected.probabilities).all()


def test_samples_are_found_by_number_and_class(session: Session, digits: ia.Data) -> None:
    seen = sample_at(session, 7.0)
    assert torch.equal(seen.x, digits.test.x[7:8])
    assert (seen.number, seen.label) == (7, str(int(digits.test.y[7])))
    for wrong in (None, -1, 359, 2.5):
        with pytest.raises(DataError, match="a whole number from 0 to 358") as error:
            sample_at(session, wrong)
        assert "None" not in str(error.value)
    threes = (digits.test.y == 3).nonzero().flatten().tolist()
    assert next_sample(session, "3", None) == threes[0]
    assert next_sample(session, "3", threes[0]) == threes[1]
    assert next_sample(session, "3", threes[-1]) == threes[0]
    assert next_sample(session, "", 7) == 8
    assert next_sample(session, "", 358) == 0
    subsample = Session(session.modules, digits, rows=1)
    other = next(c for c in subsample.catalogue if c != sample_at(subsample, 0).label)
    with pytest.raises(DataError, match=f"no sample of class '{other}'"):
        next_sample(subsample, other, None)
