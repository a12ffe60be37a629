"""Sparsities: complete merges and pairs against compositions laid one by one."""

import statistics

import pytest

import intarsia as ia
from intarsia.plots import svg
from intarsia.studies import Measured, Spread, StudyContext, find_study
from intarsia.studies.maxent.pairs import pairs_of

pytestmark = pytest.mark.usefixtures("one_thread")

STUDY = find_study("sparsity")
OPTIONS = STUDY.options("small")


def test_modules_are_as_sparse_as_the_table_says(done, store):
    context = StudyContext(store, "cpu")
    for cell in STUDY.plan(OPTIONS, context):
        for module in context.bank(cell.banks["modules"]):
            assert module.density == pytest.approx(1 - cell.settings["sparsity"], abs=0.02)
    assert [m.settings["sparsity"] for m in done] == [0.5, 0.5, 0.9, 0.9, 0.3, 0.6]


def test_pairs_are_what_evaluate_says_of_each(done, store):
    context = StudyContext(store, "cpu")
    data = context.data("digits")
    cell = STUDY.plan(OPTIONS, context)[5]
    bank = context.bank(cell.banks["modules"])
    pairs = pairs_of(data.catalogue, 2, 3)
    assert len(pairs) == 3
    for operator in ("sum", "logits"):
        for number, (one, other) in enumerate(pairs):
            merged = ia.compose([bank["+".join(one)], bank["+".join(other)]], operator)
            assert set(merged.rewarded) == {*one, *other}
            seen = ia.evaluate(merged, data.test)
            found = done[5].result
            assert found["accuracy"][operator][number] == pytest.approx(seen.accuracy, abs=1e-6)
            assert found["entropy"][operator][number] == pytest.approx(seen.entropy, rel=1e-5)


def test_tables_and_figures_of_both_kinds(done):
    end, way, pairs = STUDY.tables(done)
    assert [row[2:4] for row in end.rows] == [
        *[["0.5", "sum"], ["0.5", "logits"], ["0.9", "sum"], ["0.9", "logits"]]
    ]
    assert way.rows[0][4].n == 4
    values = done[5].result["entropy"]["logits"]
    assert pairs.rows[3][:5] == ["digits", "mlp(16)", 2, "0.6", "logits"]
    assert pairs.rows[3][6] == Spread(statistics.fmean(values), statistics.stdev(values), 3)
    found = STUDY.figures(done)
    assert found.keys() == {"sparsity-digits-mlp-32", "sparsity-pairs-digits-mlp-16"}
    assert "entropy, |R| = 2" in svg(found["sparsity-pairs-digits-mlp-16"])
    assert "sparsity 0.9" in svg(found["sparsity-digits-mlp-32"])
    # of a run under way
    assert len(STUDY.tables(done[:1])) == 2
    assert len(STUDY.tables(done[4:])) == 1
    assert STUDY.figures(done[:1]).keys() == {"sparsity-digits-mlp-32"}
    assert STUDY.figures(done[4:]).keys() == {"sparsity-pairs-digits-mlp-16"}


def test_pairs_that_reward_everything_have_no_entropy(done):
    nothing = {"accuracy": {"sum": [0.5, 0.7]}, "entropy": {"sum": [None, None]}}
    settings = {**done[5].settings, "size": 5, "operators": ["sum"]}
    merged = Measured(settings, nothing)
    (table,) = STUDY.tables([merged])
    assert table.rows[0][5] == Spread.of([0.5, 0.7])
    assert table.rows[0][6] is None
    (drawn,) = STUDY.figures([merged]).values()
    assert [ax.get_title() for ax in drawn.axes] == ["accuracy, |R| = 5"]


def test_the_papers_form_has_both_figures(store):
    context = StudyContext(store, "cpu")
    cells = STUDY.plan(STUDY.options("paper", data=["digits"]), context)
    sizes = [cell.settings.get("size") for cell in cells]
    assert sizes.count(None) == 3 * 5
    assert sizes.count(2) == sizes.count(5) == 3
    assert all(len(cell.settings["pairs"]) == 10 for cell in cells[15:])
