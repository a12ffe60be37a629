"""Complete merges: the small scale against a plain loop, and what tables say of them."""

import statistics

import pytest
import torch

import intarsia as ia
from intarsia.composition import OPERATORS
from intarsia.plots import svg
from intarsia.studies import Measured, Spread, StudyContext, find_study
from intarsia.studies.maxent.complete import EQUAL, ROUTERS, SCALES
from intarsia.studies.maxent.shared.complete_merges import figure_name, orders_of

pytestmark = pytest.mark.usefixtures("one_thread")

STUDY = find_study("complete")
OPTIONS = STUDY.options("small")
# Measured by other studies: on experts of one base by `base`, on past classes by `apart`.
ELSEWHERE = (
    "stick_breaking",
    *("breadcrumbs", "della", "sce", "tsvm", "iso_c", "slerp", "multislerp", "karcher"),
    *("model_stock", "emr"),
)


def test_cells_are_what_a_plain_loop_measures(done, store):
    context = StudyContext(store, "cpu")
    data = context.data("digits")
    assert [(c.settings["imp"], c.settings["seed"]) for c in done] == [
        *[(True, 0), (True, 1), (False, 0), (False, 1)]
    ]
    cell = STUDY.plan(OPTIONS, context)[2]
    bank = context.bank(cell.banks["modules"], pruned=False)
    assert all(module.density == 1 for module in bank)
    for operator, count in (("sum", 2), ("regmean", 1), ("own", 2)):
        found = done[2].result["curves"][operator]
        assert len(found) == count
        for order, curve in zip(orders_of(data.catalogue, count), found, strict=True):
            merged = ia.compose([bank[order[0]]], operator, samples=data)
            for n, name in enumerate(order):
                if n:
                    merged.add(bank[name])
                seen = ia.evaluate(merged, data.test)
                assert curve["accuracy"][n] == pytest.approx(seen.accuracy, abs=1e-6)
                if n < 9:
                    assert curve["entropy"][n] == pytest.approx(seen.entropy, rel=1e-5)
            assert curve["entropy"][9] is None


def test_pruned_and_unpruned_cells_come_out_of_one_bank(store):
    cells = STUDY.plan(OPTIONS, StudyContext(store, "cpu"))
    pruned, unpruned = cells[0], cells[2]
    assert pruned.banks["modules"].key == unpruned.banks["modules"].key
    assert pruned.key != unpruned.key


def test_tables_give_the_end_by_seed_and_the_way_by_order(done):
    end, way = STUDY.tables(done)
    curves = [m.result["curves"]["own"] for m in done if m.settings["imp"]]
    row = next(r for r in end.rows if r[:3] == ["mlp(32)", "yes", "own"])
    last = [both[0]["accuracy"][9] for both in curves]
    assert row[3] == Spread(statistics.fmean(last), statistics.stdev(last), 2)
    row = next(r for r in way.rows if r[:3] == ["mlp(32)", "yes", "own"])
    for place, key, n in ((3, "accuracy", 1), (4, "accuracy", 4), (5, "entropy", 8)):
        values = [curve[key][n] for both in curves for curve in both]
        assert row[place] == Spread(statistics.fmean(values), statistics.stdev(values), 4)
    assert next(r for r in way.rows if r[:3] == ["mlp(32)", "yes", "ties"])[3].n == 2
    assert "measured on the first 1 of 2 class orders only: inlay, regmean, ties" in way.notes
    assert len(end.rows) == len(way.rows) == 2 * 7
    logits, inlay = (
        [r[3] for r in end.rows if r[2] == operator] for operator in ("logits", "inlay")
    )
    assert logits == inlay


def test_tables_and_figures_take_part_of_the_cells(done):
    for cell in done:
        assert {table.rows[0][1] for table in STUDY.tables([cell])} == {
            "yes" if cell.settings["imp"] else "no"
        }
        (drawn,) = STUDY.figures([cell]).values()
        assert [ax.get_title() for ax in drawn.axes] == [
            f"{what}, {'with' if cell.settings['imp'] else 'without'} IMP"
            for what in ("accuracy", "entropy")
        ]
    (drawn,) = STUDY.figures(done).values()
    text_of_all = svg(drawn)
    for text in ("accuracy, with IMP", "entropy, without IMP", "logits = inlay", "regmean"):
        assert text in text_of_all
    assert ">own<" not in text_of_all


def test_lost_modules_and_refusals_are_told(done):
    settings = {**done[0].settings, "seed": 7}
    lost = Measured(settings, {"curves": {}, "refused": {}, "diverged": ["4"]})
    refused = Measured(settings, {**done[0].result, "refused": {"dare": "no origin"}})
    end, way = STUDY.tables([*done, lost, refused])
    assert "digits, mlp(32), seed 7: left out because module 4 diverged" in end.notes
    assert "dare does not apply to digits, mlp(32): no origin" in way.notes
    assert end.rows[0][3].n == 3
    assert [table.rows for table in STUDY.tables([lost])] == [[], []]
    assert STUDY.figures([lost]) == {}


def test_a_short_catalogue_has_no_fifth_module(done):
    curve = {"accuracy": [1.0, 0.5, 0.25], "entropy": [1.0, 0.75, None]}
    tiny = Measured(done[0].settings, {"curves": {"sum": [curve]}, "refused": {}, "diverged": []})
    end, way = STUDY.tables([tiny])
    assert end.rows[0][3].mean == 0.25
    assert [entry and entry.mean for entry in way.rows[0][3:]] == [0.5, None, 0.75]


def test_every_operator_is_measured_or_is_another(done, store):
    assert {*SCALES["paper"]["operators"], *EQUAL, *ROUTERS, *ELSEWHERE} == set(OPERATORS)
    assert {name for name, operator in OPERATORS.items() if operator.chooses} == set(ROUTERS)
    context = StudyContext(store, "cpu")
    bank = context.bank(STUDY.plan(OPTIONS, context)[0].banks["modules"])
    x = context.data("digits").test.x
    for operator, other in EQUAL.items():
        assert torch.equal(ia.compose(bank, operator)(x), ia.compose(bank, other)(x))


def test_slow_operators_get_fewer_orders_and_some_models_fewer_operators(store):
    context = StudyContext(store, "cpu")
    given = {"data": ["digits"], "models": ["shallow", "cnn"], "seeds": 1, "imp": [True]}
    shallow, cnn = STUDY.plan(STUDY.options("paper", **given), context)
    orders = shallow.settings["orders"]
    assert orders["sum"] == orders["own"] == 10
    assert orders["ties"] == orders["fisher"] == orders["inlay"] == 3
    assert orders.keys() - cnn.settings["orders"].keys() == {"regmean", "inlay"}
    subsample = STUDY.options("paper", **given, orders=2, operators=["ties(density=0.1)"])
    assert STUDY.plan(subsample, context)[0].settings["orders"] == {"ties(density=0.1)": 2}
    measured = Measured(cnn.settings, {"curves": {}, "refused": {}, "diverged": []})
    assert any("not run on the cnn" in note for note in STUDY.tables([measured])[0].notes)


def test_figures_have_names_of_files():
    assert figure_name("complete", "fashion_mnist", "mlp(hidden=[32], dropout=0.5)") == (
        "complete-fashion_mnist-mlp-hidden-32-dropout-0.5"
    )
