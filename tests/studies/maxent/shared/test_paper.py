"""The paper's cells: those its tables have, with the copied ones marked by rule."""

import json
from importlib.resources import files
from pathlib import Path

import pytest

from intarsia.studies.maxent.shared.paper import PaperCell, pair_cell, printed_n, single_cell
from intarsia.studies.tables import Paper

REFERENCE = Path(__file__).resolve().parents[5] / "shared" / "reference" / "maxent_tables.json"
MODELS = {"Shallow MLP": "shallow", "Deep MLP": "deep", "CNN": "cnn"}
CONTENT = json.loads(files("intarsia.studies.maxent").joinpath("maxent.json").read_text("utf-8"))


def test_single_cells_as_printed() -> None:
    assert single_cell("deep", "yeast", True) == PaperCell(Paper(1.0, 0.0), Paper(1.302, 0.056))
    assert single_cell("shallow", "har", False) == PaperCell(
        Paper(0.997, 0.007), Paper(1.762, 0.017)
    )


def test_pair_cells_as_printed() -> None:
    assert pair_cell("cnn", "mnist", 2, "qme", True) == PaperCell(
        Paper(0.928, 0.074), Paper(0.312, 0.307)
    )
    assert pair_cell("deep", "yeast", 2, "me", False) == PaperCell(Paper(0.587, 0.036), None)
    anchor = pair_cell("cnn", "mnist", 1, "me", True, "logits")
    assert anchor == PaperCell(Paper(0.997, None), None)


def test_there_are_all_cells_and_no_others() -> None:
    assert len(CONTENT["single"]) == 20
    assert len(CONTENT["sum"]) == 156
    assert len({tuple(row[:5]) for row in CONTENT["sum"]}) == len(CONTENT["sum"])
    assert single_cell("cnn", "har", True) is None
    assert single_cell("mlp(32)", "digits", True) is None
    assert pair_cell("shallow", "har", 5, "me", True) is None
    assert pair_cell("shallow", "mnist", 1, "me", True, "inlay") is None


def test_suspect_are_the_shallow_me_values_that_two_data_sets_share() -> None:
    result = set()
    for model, data, size, objective, imp, *_ in CONTENT["sum"]:
        cell = pair_cell(model, data, size, objective, imp)
        assert cell
        for measure in ("accuracy", "entropy"):
            value = getattr(cell, measure)
            if value is not None and value.suspect:
                result.add((model, objective, data, size, imp, measure))
    both = {
        (1, False, "accuracy"), (1, False, "entropy"), (1, True, "entropy"),
        (2, False, "accuracy"), (2, False, "entropy"),
        (5, False, "accuracy"), (5, True, "accuracy"),
    }  # fmt: skip
    expected = {
        ("shallow", "me", data, *rest) for rest in both for data in ("mnist", "fashion_mnist")
    }
    assert result == expected


def test_a_printed_number_is_over_seeds_by_classes_or_pairs() -> None:
    assert [printed_n(data) for data in ("mnist", "har", "yeast")] == [50, 30, 20]
    assert [printed_n("mnist", size) for size in (1, 2, 5)] == [50, 50, 50]
    assert [printed_n("har", size) for size in (1, 2)] == [50, 50]
    assert [printed_n("yeast", size) for size in (1, 2)] == [6 * 5, 3 * 5]  # all that there are
    for data, size in {(row[1], row[2]) for row in CONTENT["sum"]}:
        assert printed_n(data, size) > 0


def test_suspect_single_cells() -> None:
    suspects = []
    for model, data, imp, *_ in CONTENT["single"]:
        cell = single_cell(model, data, imp)
        assert cell
        assert cell.entropy
        assert cell.accuracy.suspect == cell.entropy.suspect
        if cell.accuracy.suspect:
            suspects.append((model, data, imp))
    assert sorted(suspects) == [
        ("shallow", data, imp) for data in ("fashion_mnist", "mnist") for imp in (False, True)
    ]


@pytest.mark.skipif(not REFERENCE.is_file(), reason="the tables' transcript is not here")
def test_every_number_is_the_transcript_s() -> None:
    reference = json.loads(REFERENCE.read_text())

    def number(paper: Paper | None) -> list[float | None] | None:
        return None if paper is None else [paper.mean, paper.sd]

    assert len(reference["single_modules"]) == len(CONTENT["single"])
    assert len(reference["pairwise_weight_sum"]) == len(CONTENT["sum"])
    for row in reference["single_modules"]:
        cell = single_cell(MODELS[row["model"]], row["dataset"], row["imp"])
        assert cell
        assert number(cell.accuracy) == row["rewarded_accuracy"]
        assert number(cell.entropy) == row["entropy"]
    for row in reference["pairwise_weight_sum"]:
        key = MODELS[row["model"]], row["dataset"], row["rewarded_classes"], row["loss"].lower()
        cell = pair_cell(*key, row["imp"])
        assert cell
        assert number(cell.accuracy) == row["rewarded_accuracy"]
        assert number(cell.entropy) == row["entropy"]
