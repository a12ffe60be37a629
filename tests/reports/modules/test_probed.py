"""A report's section on a fresh head: only if asked for, with its numbers and its contract."""

from dataclasses import replace
from html import escape, unescape
from pathlib import Path

import pytest

import intarsia as ia
from intarsia.data import subsample
from intarsia.measure import FRESH_HEAD
from intarsia.reports import SECTIONS, ReportContext
from intarsia.reports.modules.report_input import Source, subject_of

pytestmark = pytest.mark.usefixtures("one_thread")


def body(artifact: Source, data: ia.Data, **options: object) -> str | None:
    """The section by itself; None where it leaves itself out."""
    return SECTIONS["fresh-head"](ReportContext(subject_of(artifact, data, **options)))


def test_a_fresh_head_is_shown_where_it_is_asked_for(two_seeds: Path) -> None:
    bank, data = ia.Bank.load(two_seeds), ia.load_data("digits")
    whole = ia.compose(bank.seed(0), "mean")
    assert body(whole, data) is None
    html = body(whole, data, probe=True, rows=100)
    assert html is not None
    result = ia.fresh_head(whole, replace(data, test=subsample(data.test, 100)))
    assert f"{result.native.mean:.4f}" in html
    assert f"{result.fresh.mean:.4f}" in html
    for label, statement in FRESH_HEAD.labelled().items():
        assert f"<dt>{label}</dt><dd>{escape(statement)}</dd>" in html
    alone = unescape(ia.report(bank[0], data, rows=20, probe=True).html)
    assert FRESH_HEAD.not_identified in alone
    assert "--probe" in alone.partition('<section id="reproduce"')[2]


def test_logits_are_probed_as_a_sum_of_weights(two_seeds: Path) -> None:
    """And a network to compare with that knows all classes is the joint reference."""
    bank, data = ia.Bank.load(two_seeds).seed(0), ia.load_data("digits")
    joint = replace(bank[0], name="joint", rewarded=bank[0].catalogue)
    compared = {"all": joint, "one": bank[1]}
    html = body(ia.compose(bank, "logits"), data, compared=compared, probe=True)
    result = ia.fresh_head(ia.compose(bank, "sum"), data, joint=joint)
    for score in (result.native, result.fresh, result.joint):
        assert score is not None
        assert f"{score.mean:.4f}" in str(html)


def test_labels_of_all_splits_are_places_in_the_modules_catalogue(two_seeds: Path) -> None:
    """The epoch is chosen on validation samples: their labels must be right as well."""
    bank = ia.Bank.load(two_seeds).seed(0)
    data = subject_of(bank, ia.load_data("digits", classes=["9", "0", "5"])).data
    assert data is not None
    for split in (data.train, data.validation, data.test):
        assert set(split.y.tolist()) == {0, 5, 9}


def test_what_cannot_be_probed_is_said(two_seeds: Path) -> None:
    data = ia.load_data("digits")
    none = replace(data, validation=ia.Split(data.test.x[:0], data.test.y[:0]))
    html = str(body(ia.Bank.load(two_seeds), none, probe=True))
    assert "No fresh head can be trained here" in html
    assert "no validation samples" in html
