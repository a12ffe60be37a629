"""Verdicts: lists, one paragraph and JSON of the same claims; missing cells in words."""

import json
from itertools import product

import pytest

from intarsia.errors import StudyError
from intarsia.studies import Cell, Claim, Paper, Spread, Table, Verdict
from intarsia.studies.tables import Difference
from intarsia.studies.verdict import missing_cells, table_verdict

VERDICT = Verdict(
    "2 of 3 numbers met",
    [
        Claim("Two of three are met.", False, {"count": 2, "of": 3}, 3, "numbers met", ["Far: x."]),
        Claim("Nobody asked."),
    ],
    failed={"Yeast with IMP": "cut through"},
    missing=["mnist, deep: 4 cells"],
)


def test_all_that_is_shown_says_the_same() -> None:
    shown = [VERDICT.markdown(), " ".join(str(VERDICT).split())]
    for text in shown:
        for claim in VERDICT.claims:
            assert claim.text in text
            assert all(point in text for point in claim.details)
        assert "Counted as missed: Yeast with IMP, cut through." in text
        assert "mnist, deep: 4 cells" in text
    lines = VERDICT.markdown().splitlines()
    assert lines[:3] == ["- ✗ Two of three are met.", "    - Far: x.", "- Nobody asked."]
    assert not any("Far" in line for line in VERDICT.lines(details=False))
    assert Claim("Ours is more.", True).marked == "✓ Ours is more."
    assert [claim.holds for claim in VERDICT.statements] == [False, None, False]
    assert VERDICT.text.startswith("✗ Two of three are met. Nobody asked. ✗ Counted as missed")
    assert VERDICT.claims[0].counted == "2 of 3"
    assert VERDICT.claims[1].counted == ""


def test_what_is_counted_has_its_count() -> None:
    with pytest.raises(StudyError, match=r"evidence \['ours'\]: expected 'count' and 'of'"):
        Claim("Ours is more.", True, {"ours": 0.5}, short="seeds with ours above")


def test_json_has_every_value() -> None:
    result = json.loads(json.dumps(VERDICT.to_json()))
    assert result["claims"][0]["evidence"] == {"count": 2, "of": 3}
    assert [claim["holds"] for claim in result["claims"]] == [False, None]
    assert result["failed"] == {"Yeast with IMP": "cut through"}
    assert result["missing"] == ["mnist, deep: 4 cells"]


def test_missing_cells_are_named_by_what_they_share() -> None:
    planned = [
        Cell(
            "pairs",
            {"data": data, "model": model, "size": size, "objective": objective, "seed": seed},
            {},
        )
        for data, model, size, objective, seed in product(
            ["mnist", "yeast"], ["shallow", "deep"], (1, 2), ("xe", "me"), range(2)
        )
    ]
    gone = [
        lambda s: s["model"] == "deep" and s["data"] == "mnist",
        lambda s: s["model"] == "deep" and s["size"] == 2 and s["objective"] == "me",
        lambda s: list(s.values()) == ["yeast", "shallow", 2, "xe", 1],
    ]
    keys = {cell.key for cell in planned if any(is_gone(cell.settings) for is_gone in gone)}
    assert missing_cells(planned, keys) == [
        "mnist, deep: 8 cells",
        "yeast, shallow, size 2, xe, seed 1",
        "yeast, deep, size 2, me: 2 cells",
    ]
    assert missing_cells(planned, ()) == []


def test_many_sets_of_missing_cells_are_counted() -> None:
    planned = [
        Cell("a", {"data": "d", "power": p, "seed": s}, {}) for p in range(15) for s in (0, 1)
    ]
    keys = {cell.key for cell in planned if cell.settings["seed"] == 1}
    lines = missing_cells(planned, keys)
    assert lines[0] == "d, power 0, seed 1"
    assert lines[12:] == ["and 3 more such sets"]


def test_a_study_without_a_verdict_counts_what_the_paper_printed() -> None:
    ours = Spread.of([0.5, 0.52])
    papers = [Paper(0.51, 0.01), Paper(0.9, 0.01), Paper(0.9, 0.01, suspect=True)]
    rows = [[name, ours, p, Difference.of(ours, p)] for name, p in zip("abc", papers, strict=True)]
    result = table_verdict([Table("T", ["data", "accuracy", "paper", "difference"], rows)])
    assert (result.claims[0].evidence, result.claims[0].holds) == ({"count": 1, "of": 2}, False)


def test_a_study_without_any_says_where_its_number_is_highest_and_lowest() -> None:
    rows = [["a", 2, Spread.of([0.5])], ["b", 2, Spread.of([0.7])], ["c", 2, Spread.of([])]]
    table = Table("Heights", ["data", "size", "accuracy"], rows)
    assert (
        table_verdict([table]).line == "accuracy is highest for b, 0.7000, and lowest for a, 0.5000"
    )
    same = Table(
        "Heights", ["data", "accuracy"], [["a", Spread.of([1.0])], ["b", Spread.of([1.0])]]
    )
    assert table_verdict([same]).line == "accuracy is 1.0000 in every row"
    assert table_verdict([]).claims == ()
