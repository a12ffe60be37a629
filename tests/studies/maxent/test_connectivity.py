"""The study `path`: its cells are paths of measure.path, its table what a hand counts."""

from xml.etree import ElementTree

import numpy as np
import pytest

from intarsia.measure import path
from intarsia.modules import Bank
from intarsia.plots import svg
from intarsia.studies import Measured, StudyContext, find_study
from intarsia.studies.maxent.pairs import pairs_of
from intarsia.studies.study import Study
from intarsia.studies.tables import Spread

Ran = tuple[Study, StudyContext, list[Measured]]
STUDY = find_study("path")


def test_every_walk_is_the_path_between_two_modules(small: Ran) -> None:
    study, context, done = small
    cells = study.plan(study.options("small"), context)
    data = context.data("digits")
    pairs = pairs_of(data.catalogue, 1, 3)
    assert [cell.settings["seed"] for cell in done] == [0, 1]
    for cell, measured in zip(cells, done, strict=True):
        for way in ("pruned", "unpruned"):
            bank = context.bank(cell.banks[way], way == "pruned")
            walks = measured.result[way]
            assert [walk["pair"] for walk in walks] == [[a[0], b[0]] for a, b in pairs]
            one, other = walks[1]["pair"]
            expected = path(bank[one], bank[other], data, 9, samples=300)
            for split in ("train", "test"):
                curve = expected.curves[split]
                assert walks[1][split]["loss"] == pytest.approx(curve.loss, rel=1e-5)
                assert walks[1][split]["samples"] == [curve.n, curve.of]
    assert done[0].result["pruned"] != done[0].result["unpruned"]


def test_excess_is_measured_from_the_straight_line(small: Ran) -> None:
    for cell in small[2]:
        for walk in cell.result["pruned"] + cell.result["unpruned"]:
            for split in ("train", "test"):
                found = walk[split]
                loss, t = np.array(found["loss"]), np.array(cell.result["t"])
                line = (1 - t) * loss[0] + t * loss[-1]
                excess = 100 * (loss - line) / line
                assert found["excess"] == pytest.approx(excess, abs=1e-2)
                assert found["ends"] == [loss[0], loss[-1]]
                assert found["largest"] == pytest.approx(excess[1:-1].max(), abs=1e-2)
                assert found["barrier"] == pytest.approx(max(0, excess.max()), abs=1e-2)
                assert found["connected"] is (found["barrier"] <= 2)


def test_all_studies_of_single_classes_share_the_bank(small: Ran) -> None:
    study, context, _ = small
    options = study.options("small", seeds=1)
    (cell,) = study.plan(options, context)
    sets = [(c,) for c in context.data("digits").catalogue]
    plan = context.plan("digits", "mlp(32)", sets, 0, **options["recipe"])
    assert {result.key for result in cell.banks.values()} == {plan.key}
    (released,) = study.plan(options | {"preset": "released"}, context)
    assert released.banks["pruned"].key != released.banks["unpruned"].key


def walk(*excess: float, samples: tuple[int, int] = (10, 10)) -> dict[str, object]:
    """A walk between ends of loss 1: a loss is 1 and its excess in percent."""
    inner = max(excess[1:-1])
    one = {
        "loss": [1 + e / 100 for e in excess],
        "ends": [1.0, 1.0],
        "excess": list(excess),
        "largest": inner,
        "barrier": max(0.0, inner),
        "connected": inner <= 2,
        "samples": list(samples),
    }
    return {"pair": ["0", "1"], "train": one, "test": one}


def by_hand(seed: int, pruned: list[object], unpruned: list[object]) -> Measured:
    settings = {"data": "digits", "model": "mlp(32)", "seed": seed}
    return Measured(settings, {"t": [0.0, 0.5, 1.0], "pruned": pruned, "unpruned": unpruned})


def test_table_by_hand() -> None:
    study = find_study("path")
    done = [
        by_hand(0, [walk(0, 1.0, 0)], [walk(0, 3.0, 0), walk(0, -4.0, 0)]),
        by_hand(1, [walk(0, -5.0, 0, samples=(10, 40))], [walk(0, 1.0, 0)]),
    ]
    (table,) = study.tables(done)
    rows = {(row[2], row[3]): row[4:] for row in table.rows}
    assert rows["yes", "test"][:3] == [1.0, 1.0, 1.0]
    assert rows["no", "train"][0] == pytest.approx(2 / 3)
    assert rows["no", "train"][1] == 1.0  # one pair of classes: 3, -4 and 1 are 0 in the mean
    assert rows["no", "train"][2] == pytest.approx(2 / 3)
    assert rows["yes", "train"][3] == Spread.of([1.0, -5.0])
    assert rows["no", "test"][4] == Spread.of([3.0, -4.0, 1.0])
    assert rows["no", "test"][5] == Spread(1.0, 0.0, 3)
    assert any("10 of 40 training samples, evenly spaced" in note for note in table.notes)
    assert len(study.tables(done[:1])[0].rows) == 4


def test_figure_has_a_panel_for_each_split_and_the_band(small: Ran) -> None:
    study, _, done = small
    for some in (done, done[:1]):
        (name, drawn), *more = study.figures(some).items()
        words = {t.text for t in ElementTree.fromstring(svg(drawn)).iter() if t.text}
        assert name == "path-digits"
        assert not more
        assert {"mlp(32), train", "mlp(32), test", "with IMP", "without IMP", "up to 2%"} <= words


def test_pairs_of_a_module_that_diverged_are_left_out(small: Ran) -> None:
    study, context, _ = small
    (cell,) = study.plan(study.options("small", seeds=1), context)
    (gone,), _ = pairs_of(context.data("digits").catalogue, 1, 3)[0]
    merged = context.bank(cell.banks["pruned"])

    class Lacking:
        def bank(self, plan: object) -> Bank:
            return Bank([module for module in merged if module.name != gone], [gone])

    result = study.measure(cell, StudyContext(Lacking(), "cpu"))
    kept = [w["pair"] for w in result["pruned"]]
    assert 0 < len(kept) < 3
    assert all(gone not in pair for pair in kept)
    assert study.tables([Measured(cell.settings, result)])[0].rows


def test_a_study_without_any_walk_still_has_its_rows() -> None:
    (table,) = find_study("path").tables([by_hand(0, [], [])])
    assert [row[4:] for row in table.rows] == [[None] * 7] * 4
