"""Temperatures: modules are trained and read at their own."""

import statistics

import pytest

import intarsia as ia
from intarsia.plots import svg
from intarsia.studies import Spread, StudyContext, find_study
from intarsia.studies.maxent.shared.complete_merges import orders_of

pytestmark = pytest.mark.usefixtures("one_thread")

STUDY = find_study("temperature")
OPTIONS = STUDY.options("small")


def test_cells_are_what_a_plain_loop_measures(done, store):
    context = StudyContext(store, "cpu")
    data = context.data("digits")
    for number, cell in enumerate(STUDY.plan(OPTIONS, context)):
        bank = context.bank(cell.banks["modules"])
        assert {module.temperature for module in bank} == {cell.settings["temperature"]}
        order = orders_of(data.catalogue, 2)[1]
        for operator in ("sum", "logits"):
            curve = done[number].result["curves"][operator][1]
            for n in (1, 4, 8):
                merged = ia.compose([bank[name] for name in order[: n + 1]], operator)
                seen = ia.evaluate(merged, data.test)
                assert curve["accuracy"][n] == pytest.approx(seen.accuracy, abs=1e-6)
                assert curve["entropy"][n] == pytest.approx(seen.entropy, rel=1e-5)


def test_tables_and_figure(done):
    end, way = STUDY.tables(done)
    assert [row[2:4] for row in end.rows] == [
        *[["1", "sum"], ["1", "logits"], ["5", "sum"], ["5", "logits"]]
    ]
    values = [m.result["curves"]["sum"][0]["accuracy"][9] for m in done[2:]]
    assert end.rows[2][4] == Spread(statistics.fmean(values), statistics.stdev(values), 2)
    assert way.rows[2][4].n == 4
    assert [row[2] for row in STUDY.tables(done[3:])[0].rows] == ["5", "5"]
    ((name, drawn),) = STUDY.figures(done).items()
    assert name == "temperature-digits-mlp-32"
    assert "t = 1" in svg(drawn)
    assert "entropy, logits = inlay" in svg(drawn)


def test_the_usual_temperature_is_the_bank_of_other_studies(store):
    context = StudyContext(store, "cpu")
    options = STUDY.options("paper", data=["digits"], seeds=1, temperatures=[3, 5])
    three, five = STUDY.plan(options, context)
    sets = [(name,) for name in context.data("digits").catalogue]
    usual = context.plan("digits", "shallow", sets, 0)
    assert five.banks["modules"].key == usual.key != three.banks["modules"].key
