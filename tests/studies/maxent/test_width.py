"""Widths: one hidden layer of so many units, the paper's own among them."""

import statistics

import pytest

from intarsia.plots import svg
from intarsia.studies import Spread, StudyContext, find_study
from intarsia.studies.maxent.width import model_of, width_of

pytestmark = pytest.mark.usefixtures("one_thread")

STUDY = find_study("width")
OPTIONS = STUDY.options("small")


def test_modules_have_the_width_that_the_table_says(done, store):
    context = StudyContext(store, "cpu")
    cells = STUDY.plan(OPTIONS, context)
    for cell in cells:
        bank = context.bank(cell.banks["modules"], cell.settings["imp"])
        width = width_of(cell.settings["model"])
        assert {len(m.state["layers.0.weight"]) for m in bank} == {width}
        assert {m.density < 1 for m in bank} == {cell.settings["imp"]}
    assert len({cell.banks["modules"].key for cell in cells}) == len(cells) / 2
    end, _ = STUDY.tables(done)
    assert [row[1:4] for row in end.rows[:4]] == [
        *[[16, "yes", "sum"], [16, "yes", "mean"], [16, "yes", "logits"], [16, "no", "sum"]]
    ]
    values = [
        m.result["curves"]["logits"][1]["accuracy"][-1]
        for m in done
        if m.settings["imp"] and "[64]" in m.settings["model"]
    ]
    row = next(r for r in end.rows if r[1:4] == [64, "yes", "logits"])
    assert row[4] == Spread(statistics.fmean(values), statistics.stdev(values), 2)


def test_the_figure_is_over_the_width(done):
    ((name, drawn),) = STUDY.figures(done).items()
    assert name == "width-digits"
    for text in ("with IMP", "without IMP", "hidden units", ">16<", ">64<"):
        assert text in svg(drawn)
    assert STUDY.figures(done[:1]).keys() == {"width-digits"}


def test_the_papers_width_is_its_shallow_network(store):
    assert [width_of(model_of(w)) for w in (32, 512, 4096)] == [32, 512, 4096]
    context = StudyContext(store, "cpu")
    options = STUDY.options("paper", data="digits", seeds=1, imp=True)
    cells = STUDY.plan(options, context)
    sets = [(name,) for name in context.data("digits").catalogue]
    assert cells[2].banks["modules"].key == context.plan("digits", "shallow", sets, 0).key
    # the others differ from it in nothing but their width
    narrow, own = (cells[i].banks["modules"].recipe.as_dict() for i in (0, 2))
    assert {key for key in own if own[key] != narrow[key]} == {"model"}
    assert narrow["model"] == "mlp(hidden=[32], dropout=0.5)"
    assert own["model"] == {"name": "mlp", "hidden": [512], "dropout": 0.5}
