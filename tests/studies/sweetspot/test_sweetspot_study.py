from collections.abc import Sequence
from pathlib import Path
from typing import Any

from intarsia.studies import Measured, Store, Study, StudyContext, run
from intarsia.studies.archive import load_archive, make_archive, save_archive
from intarsia.studies.options import run_command, variant_label
from intarsia.studies.selection import select_archived


def test_tables_show_every_cell_and_claim(study: Study, measured: Sequence[Measured]) -> None:
    claims, references, arms, depth, wiring, optimisers, volume = study.tables(measured)
    assert {row[0] for row in claims.rows} >= {"1", "2", "3", "5", "6", "7", "optimisers"}
    assert len(references.rows) == 1
    assert [row[:2] for row in arms.rows][:3] == [
        [570, "dense"], [142, "similarity"], [142, "ticket"]
    ]  # fmt: skip
    assert [row[1] for row in depth.rows] == ["-1", "+0", "+1"] * 2
    assert [row[0] for row in wiring.rows] == ["trained", "held"]
    assert len(optimisers.rows) == 2
    assert [row[0] for row in volume.rows] == [4, 4, 6, 6, 8, 8]
    for table in (arms, depth, wiring, optimisers):
        assert table.columns[-2:] == ["flat", "n"]


def test_two_seeds_tell_nothing(study: Study, measured: Sequence[Measured]) -> None:
    verdict = study.judge(measured)
    assert verdict.claims
    assert {claim.holds for claim in verdict.claims} == {None}
    assert {claim.n for claim in verdict.claims} == {2}
    assert "8 pixels, 2 seeds" in verdict.line
    assert "at 8 pixels with 2 seeds, 5 steps for dense networks and 3 after" in verdict.text


def test_figures_are_drawn_of_what_is_there(study: Study, measured: Sequence[Measured]) -> None:
    figures = study.figures(measured)
    names = ["arms-totem", "depth-totem", "volume-totem", "png"]
    assert list(figures) == [f"sweetspot-{name}" for name in names]
    for name in figures:
        assert figures[name].axes
    assert list(study.figures([])) == []


def test_an_archive_keeps_it_all(
    study: Study, options: Any, measured: Sequence[Measured], store: Store, tmp_path: Path
) -> None:
    cells = study.plan(options, StudyContext(store, "cpu"))
    save_archive(tmp_path / "study.json", make_archive(study, options, cells, store))
    archive = load_archive(tmp_path / "study.json")
    assert len(archive.measured) == len(measured)
    chosen = select_archived(study, {"parts": ["wiring"]}, tmp_path / "study.json")
    assert {cell.settings["part"] for cell in chosen.measured} == {"wiring"}
    assert "--scale small" in run_command(study, archive.options)
    assert "size=8" in variant_label(study, archive.options)


def test_a_second_run_measures_nothing(
    study: Study, options: Any, measured: Sequence[Measured], store: Store
) -> None:
    said: list[str] = []
    again = run(study, options, store, device="cpu", say=said.append)
    assert said == []
    assert [cell.key for cell in again] == [cell.key for cell in measured]
