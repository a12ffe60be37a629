"""Study `single`: numbers of every module as evaluate gives them, in Table 1's scale."""

import statistics

import numpy as np
import pytest
from fake_data import paper_context

import intarsia as ia
from intarsia.modules import Bank, compact
from intarsia.studies import Measured, Store, StudyContext, find_study, run
from intarsia.studies.maxent.single import STATES, cells, measure, tables
from intarsia.studies.tables import Difference, Paper, Spread

STUDY = find_study("single")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyContext, list[Measured]]:
    store = Store(tmp_path_factory.mktemp("store") / "s")
    context = StudyContext(store, "cpu")
    return context, run(STUDY, STUDY.options("small"), store, context=context)


def test_numbers_are_those_of_evaluate(done: tuple[StudyContext, list[Measured]]) -> None:
    context, measured = done
    data = context.data("digits")
    cell = cells(STUDY.options("small"), context)[1]
    assert measured[1].settings["seed"] == 1
    for state, pruned in STATES.items():
        bank = context.bank(cell.banks[state], pruned=pruned)
        found = measured[1].result[state]
        for number, name in enumerate(data.catalogue):
            seen = ia.evaluate(bank[name], data.test)
            assert found["accuracy"][number] == pytest.approx(seen.accuracy, rel=1e-5)
            assert found["entropy"][number] == pytest.approx(seen.entropy, rel=1e-5)
            assert found["density"][number] == pytest.approx(bank[name].density, rel=1e-5)
            hidden = compact(bank[name]).state["layers.0.weight"].shape[0]
            assert (found["live"][number], found["units"][number]) == (hidden, 32)
    assert np.mean(measured[1].result["pruned"]["density"]) < 0.25
    assert set(measured[1].result["unpruned"]["density"]) == {1.0}


def test_both_halves_are_of_one_bank_except_as_released(done: tuple[StudyContext, list]) -> None:
    context, _ = done
    for preset, plans in (("paper", 1), ("released", 2)):
        for cell in cells(STUDY.options("small", preset=preset), context):
            assert len({plan.key for plan in cell.banks.values()}) == plans
            assert cell.banks["pruned"].modules == 10


def test_a_module_that_diverged_leaves_a_hole(done: tuple[StudyContext, list[Measured]]) -> None:
    context, _ = done
    cell = cells(STUDY.options("small"), context)[0]
    merged = {state: list(context.bank(cell.banks[state], pruned=p)) for state, p in STATES.items()}

    class Holey(StudyContext):
        def bank(self, plan: object, pruned: bool = True) -> Bank:
            return Bank(merged["pruned" if pruned else "unpruned"][1:])

    result = measure(cell, Holey(None, "cpu"))  # type: ignore[arg-type]
    assert result["pruned"]["accuracy"][0] is None
    assert None not in result["pruned"]["accuracy"][1:]
    table = tables([Measured(cell.settings, result)])[0]
    assert [row[3].n for row in table.rows] == [9, 9]  # type: ignore[union-attr]


def test_table_is_the_plain_mean_of_all_classes_and_seeds(done: tuple[StudyContext, list]) -> None:
    _, measured = done
    known, sizes = tables(measured)
    assert [row[:3] for row in known.rows] == [["mlp(32)", imp, "digits"] for imp in ("no", "yes")]
    values = [v for m in measured for v in m.result["pruned"]["entropy"]]
    assert known.rows[1][6] == Spread(
        pytest.approx(statistics.fmean(values)), pytest.approx(statistics.stdev(values)), 20
    )
    assert sizes.rows[0][-1] == 32
    for one in measured:  # a store under way
        assert [table.title for table in tables([one])] == [known.title, sizes.title]


def test_the_paper_stands_beside() -> None:
    numbers = {"accuracy": [0.90, 0.92], "entropy": [2.29, 2.30], "density": [0.01, 0.01],
               "live": [70, 71], "units": [512, 512]}  # fmt: skip
    settings = {
        "data": "mnist",
        "model": "shallow",
        "preset": "paper",
        "objective": "me",
        "seed": 0,
    }
    both = {"pruned": numbers, "unpruned": numbers}
    row = tables([Measured(settings, both)])[0].rows[1]
    assert row[4] == Paper(0.999, 0.001, suspect=True)
    assert row[5] == Difference(pytest.approx(0.91 - 0.999), beyond=True)
    assert row[7] == Paper(2.293, 0.004, suspect=True)
    assert row[8] == Difference(pytest.approx(0.002), beyond=False)
    other = tables([Measured({**settings, "objective": "xe"}, both)])[0].rows[1]
    assert other[4] is other[5] is None  # Table 1 is of ME alone


def test_paper_form_has_a_cell_for_every_network_that_can_read_the_data() -> None:
    context = paper_context()
    result = cells(STUDY.options("paper"), context)
    assert len(result) == (2 * 3 + 2 * 2) * 5
    assert len({cell.key for cell in result}) == len(result)
    assert {c.settings["data"] for c in result if c.settings["model"] == "cnn"} == {
        "mnist",
        "fashion_mnist",
    }
