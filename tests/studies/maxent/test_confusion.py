"""The study `confusion`: counts by a plain loop, and numbers read off a matrix by hand."""

import math
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from intarsia import plots
from intarsia.composition import compose
from intarsia.modules import Bank
from intarsia.plots import svg
from intarsia.studies import Measured, StudyContext, find_study
from intarsia.studies.study import Study

Ran = tuple[Study, StudyContext, list[Measured]]
STUDY = find_study("confusion")


def test_a_cell_for_each_objective_and_way_and_a_bank_for_each_objective(small: Ran) -> None:
    study, context, done = small
    cells = study.plan(study.options("small"), context)
    assert [(c.settings["imp"], c.settings["objective"]) for c in done] == [
        (imp, objective) for imp in (False, True) for objective in ("xe", "qme", "me")
    ]
    assert len({cell.banks["bank"].key for cell in cells}) == 3


def test_counts_are_those_of_a_loop_over_samples(small: Ran) -> None:
    study, context, done = small
    cells = study.plan(study.options("small"), context)
    test = context.data("digits").test
    for cell, measured in zip(cells, done, strict=True):
        bank = context.bank(cell.banks["bank"], cell.settings["imp"])
        merges = measured.result["merges"]
        assert len(measured.result["modules"]) == 10
        assert [len(m["parts"]) for m in merges] == [2, 2, 2, 2, 10, 10]
        for found in (measured.result["modules"][3], merges[0], merges[3], merges[5]):
            parts = [bank[name] for name in found["parts"]]
            merged = compose(parts, found.get("operator", "sum"))
            counts = np.zeros((10, 10), int)
            for true, answer in zip(test.y.tolist(), merged.predict(test.x).tolist(), strict=True):
                counts[true, answer] += 1
            assert found["counts"] == counts.tolist()


def hand_made(counts: list[list[int]], parts: list[str]) -> Measured:
    matrix = {"parts": parts, "counts": counts}
    settings = {"data": "toy", "model": "mlp", "objective": "me", "imp": True, "seed": 0}
    return Measured(settings, {"catalogue": ["a", "b", "c"], "modules": [matrix], "merges": []})


def test_numbers_read_off_a_matrix_by_hand() -> None:
    study = find_study("confusion")
    # module b answers 3 of its 4 samples right; of 10 others 5 fall on b, 4 on a and 1 on c
    one = hand_made([[3, 3, 0], [0, 3, 1], [1, 2, 1]], ["b"])
    (table,) = study.tables([one])
    accuracy, fallen, entropy, most = (entry.mean for entry in table.rows[0][5:])
    assert accuracy == pytest.approx(3 / 4)
    assert fallen == pytest.approx(5 / 10)
    assert entropy == pytest.approx(-sum(p * math.log(p) for p in (0.5, 0.4, 0.1)))
    assert most == pytest.approx(5 / 10)
    other = hand_made([[0, 6, 0], [0, 4, 0], [0, 4, 0]], ["b"])
    (table,) = study.tables([one, other])
    assert [entry.n for entry in table.rows[0][5:]] == [2, 2, 2, 2]
    assert table.rows[0][7].mean == pytest.approx(entropy / 2)  # all on one column: no entropy


def test_table_has_a_row_for_each_kind_of_matrix(small: Ran) -> None:
    study, _, done = small
    (table,) = study.tables(done)
    assert len(table.rows) == 6 * 5
    kinds = [row[4] for row in table.rows[:5]]
    assert kinds[0] == "single modules"
    assert kinds[1:] == [f"{k}, {o}" for k in ("pairs", "complete") for o in ("sum", "logits")]
    for row in table.rows:
        complete = row[4].startswith("complete")
        assert (row[6:] == [None] * 3) is complete  # every class is rewarded
        assert all(0 <= entry.mean <= math.log(10) for entry in row[5:] if entry is not None)
    (partial,) = study.tables(done[:1])
    assert len(partial.rows) == 5


def test_figures_show_a_pair_its_merges_and_the_whole(small: Ran) -> None:
    study, _, done = small
    drawn = study.figures(done)
    assert len(drawn) == 6
    text = svg(drawn["confusion-digits-mlp-32-me-imp"])
    words = {t.text for t in ElementTree.fromstring(text).iter()}
    one, other = done[0].result["merges"][0]["parts"]
    assert {f"module {one}", f"module {other}", f"{one}+{other} by sum", "all by logits"} <= words


def test_a_figure_is_drawn_when_it_is_asked_for(
    small: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that shows four of them does not wait for all; none is drawn twice."""
    asked: list[object] = []
    monkeypatch.setattr(plots, "confusion_panels", lambda *given: asked.append(given) or Figure())
    drawn = small[0].figures(small[2])
    assert "confusion-digits-mlp-32-me-imp" in drawn
    assert not asked
    assert drawn["confusion-digits-mlp-32-me-imp"] is drawn["confusion-digits-mlp-32-me-imp"]
    assert len(asked) == 1


def test_merges_that_lack_a_diverged_module_are_left_out(small: Ran) -> None:
    study, context, _ = small
    cell = study.plan(study.options("small", objectives=["me"], imp=[True]), context)[0]
    merged = context.bank(cell.banks["bank"])

    class Lacking:
        def bank(self, plan: object) -> Bank:
            return Bank([module for module in merged if module.name != "9"], ["9"])

    result = study.measure(cell, StudyContext(Lacking(), "cpu"))
    assert len(result["modules"]) == 9
    assert all(len(m["parts"]) == 2 for m in result["merges"])
    measured = Measured(cell.settings, result)
    assert "complete, sum" not in [row[4] for row in study.tables([measured])[0].rows]
    assert study.figures([measured])
    assert int(torch.tensor(result["modules"][0]["counts"]).sum()) == len(
        context.data("digits").test
    )
