"""Study `impact`: the cells of `pairs`, read as the change that pruning makes."""

import statistics
from xml.etree import ElementTree

import pytest
from scipy import stats

from intarsia.plots import svg
from intarsia.studies import Measured, Store, StudyContext, find_study, run
from intarsia.studies.tables import Paper, Spread

STUDY, PAIRS = find_study("impact"), find_study("pairs")


def plans_by_state(before: list, after: list) -> dict:
    """A result in which pruning turns these accuracies into those, and does so to entropies too."""
    return {
        state: {"sum": {"accuracy": values, "entropy": [v and 2 * v for v in values]}}
        for state, values in (("unpruned", before), ("pruned", after))
    }


def cell(before: list, after: list, **settings: object) -> Measured:
    base = {"data": "mnist", "model": "deep", "preset": "paper", "size": 1, "objective": "me"}
    return Measured({**base, "seed": 0, **settings}, plans_by_state(before, after))


def test_its_cells_are_those_of_pairs(tmp_path_factory: pytest.TempPathFactory) -> None:
    store = Store(tmp_path_factory.mktemp("store") / "s")
    context = StudyContext(store, "cpu")
    options = STUDY.options("small", sizes=[5], seeds=1, objectives=["me"], pairs=1)
    assert options == PAIRS.options("small", sizes=[5], seeds=1, objectives=["me"], pairs=1)
    first = run(PAIRS, options, store, context=context)
    before = {p: p.stat().st_mtime_ns for p in (store.path / "cells").rglob("*.json")}
    assert run(STUDY, options, store, context=context) == first
    assert {p: p.stat().st_mtime_ns for p in (store.path / "cells").rglob("*.json")} == before
    assert {p.parent.name for p in before} == {"pairs"}
    assert len(STUDY.tables(first)) == 1
    assert list(STUDY.figures(first)) == ["impact-digits-accuracy"]  # all rewarded: no entropy


def test_change_is_taken_pair_by_pair() -> None:
    before, after = [0.5, 0.6, 0.7], [0.9, 0.8, 0.9]
    (table,) = STUDY.tables([cell(before, after), cell([0.5], [0.4], seed=1)])
    (row,) = table.rows
    changes = [0.4, 0.2, 0.2, -0.1]
    assert row[:4] == ["deep", 1, "mnist", "me"]
    assert row[4] == Spread(
        pytest.approx(statistics.fmean(changes)), pytest.approx(statistics.stdev(changes)), 4
    )
    test = stats.ttest_ind([*after, 0.4], [*before, 0.5], equal_var=False)
    assert row[5] == pytest.approx(test.pvalue)
    seeds = stats.ttest_1samp([statistics.fmean(changes[:3]), changes[3]], 0)
    assert row[6] == pytest.approx(seeds.pvalue)
    assert row[7] == Paper(0.171, None)  # 0.990 - 0.819
    assert row[8].mean == pytest.approx(2 * statistics.fmean(changes))  # type: ignore[union-attr]
    assert row[11] == Paper(-0.008, None)  # 2.291 - 2.299


def test_a_pair_that_lacks_a_half_is_left_out() -> None:
    (table,) = STUDY.tables([cell([0.5, None, 0.7], [0.9, 0.8, None])])
    assert table.rows[0][4].n == 1  # type: ignore[union-attr]
    assert STUDY.tables([cell([None], [0.8])])[0].rows[0][5] is None
    # p is of the same pairs as the change
    before, after = [0.5, None, 0.7, 0.6, 0.9], [0.9, 0.8, 0.8, None, 0.91]
    (table,) = STUDY.tables([cell(before, after)])
    both = [(b, a) for b, a in zip(before, after, strict=True) if b is not None and a is not None]
    assert table.rows[0][4].n == len(both) == 3  # type: ignore[union-attr]
    test = stats.ttest_ind(*zip(*both, strict=True), equal_var=False)
    assert table.rows[0][5] == pytest.approx(test.pvalue)
    assert STUDY.figures([cell([None], [0.8])]) == {}


def test_changes_of_suspect_cells_are_suspect() -> None:
    (table,) = STUDY.tables([cell([0.5, 0.6], [0.7, 0.8], model="shallow")])
    assert table.rows[0][7] == Paper(0.021, None, suspect=True)
    (table,) = STUDY.tables([cell([0.5, 0.6], [0.7, 0.8], model="mlp(32)")])
    assert table.rows[0][7] is None


def test_figure_has_a_panel_a_model_and_a_bar_an_objective() -> None:
    cells = [
        cell([0.5, 0.6], [0.7, 0.7], model=model, size=size, objective=objective)
        for model in ("shallow", "deep")
        for size in (1, 2)
        for objective in ("xe", "me")
    ]
    result = STUDY.figures(cells)
    assert set(result) == {"impact-mnist-accuracy", "impact-mnist-entropy"}
    drawn = result["impact-mnist-accuracy"]
    root = ElementTree.fromstring(svg(drawn))
    words = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"shallow", "deep", "xe", "me", "|R|", "change of accuracy"} <= set(words)
    assert [len(ax.patches) for ax in drawn.axes] == [2 * 2] * 2
