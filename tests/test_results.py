"""The pages of results hold the numbers that lie beside them, and nothing else."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from intarsia.cli.study.study_options import StudyChoice
from intarsia.studies import Store, StudyContext, find_study, run
from intarsia.studies.archive import make_archive, save_archive
from intarsia.studies.options import run_command

ROOT = Path(__file__).resolve().parents[1]
LAYER = {"pruning": "magnitude(scope='layer')", "select": "last"}


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.syspath_prepend(ROOT / "docs" / "build")


def test_pages_are_what_their_numbers_make() -> None:
    import results
    import studies

    files = [*results.written().items(), *studies.written().items()]
    stale = [str(path) for path, text in files if _text(path) != text]
    assert not stale, f"run `make results`: {stale} are older than their numbers"


@pytest.mark.usefixtures("one_thread")
def test_a_measured_study_becomes_a_page(tmp_path: Path) -> None:
    """The small scale, measured: the page has its command, origin, verdict and tables."""
    import studies

    study, store = find_study("single"), Store(tmp_path / "store")
    options = study.options("small", seeds=1)
    context = StudyContext(store, "cpu")
    measured = run(study, options, store, context=context)
    result = make_archive(study, options, study.plan(options, context), store)
    save_archive(tmp_path / "study_single.json", replace(result, missing=2))
    (tmp_path / "study_speed.json").write_text("{}")  # not an archive
    read = studies.read_studies(tmp_path)
    verdict = studies.verdicts_of(read)["single"]
    page = studies.study_page(read["single"], verdict)
    assert "intarsia study run single --scale small --seeds 1\n" in page
    assert "intarsia study table single --from docs/results/study_single.json\n" in page
    assert "| 1, 2 missing | 1 seed | 10 |" in page
    assert verdict.markdown() in page
    assert all(table.markdown().rstrip() in page for table in study.tables(measured))
    assert f"| [single](study_single.md) | {study.paper} | {verdict.line} |" in (
        studies.index_table({"single": verdict}, {})
    )
    assert verdict.line in " ".join(studies.readme_lines(read, {"single": verdict}).split())


def test_variants_of_a_study_are_told_apart_and_tables_stand_once() -> None:
    import studies

    variants = studies.read_studies(ROOT / "docs" / "results")["pairs"]
    assert [v.label for v in variants] == ["preset `paper`", "preset `released`"]
    assert "study_pairs_cnn.json" in variants[0].archives
    page = studies.study_page(variants, studies.verdicts_of({"pairs": variants})["pairs"])
    assert "**Table 4" in page
    assert "**Table 2" not in page


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"data": ["mnist"], "models": ["mlp(512, 256)", "cnn"], "seeds": 2},
        {"preset": "released", "seeds": [3], "recipe": LAYER},
        {"seeds": [0, 2], "imp": [True], "operators": ["sum", "ties(density=0.2)"], "slow": []},
        {"recipe": {"learning_rate": 1e-05, "pruning": {"name": "magnitude", "scope": "layer"}}},
    ],
)
@pytest.mark.parametrize("scale", ["paper", "small"])
def test_a_pages_command_gives_its_options(scale: str, given: dict[str, Any]) -> None:
    study = find_study("complete")
    options = study.options(scale, **given)
    words = shlex.split(run_command(study, options))[4:]
    flags = {key: _after(words, f"--{key}") for key in ("data", "models", "seeds", "preset")}
    named = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    choice = StudyChoice("complete", scale=_after(words, "--scale"), set_=named, **flags)
    assert choice.options() == options


@pytest.mark.parametrize(("plain", "shown"), [(3.5, False), (0.5, True)])
def test_the_plain_way_is_shown_where_it_was_timed_long_enough(plain: float, shown: bool) -> None:
    from studies import speed_page

    key = "seconds_per_module_epoch"
    study = {"data": "mnist", "model": "shallow", "cells": 4, "modules": 9, "module_epochs": 100}
    seconds = {"seconds": 10.0, "training_seconds": 8.0, "measuring_seconds": 1.0}
    speed = {
        **{"command": "time", "date": "today", "machine": "one", "versions": {}},
        "study": study | seconds,
        "ways": {
            "usual": {key: 3.0, f"all_{key}": [3.0, 3.1]},
            "plain": {key: plain, f"all_{key}": [plain], "seconds": 3 * plain, "modules": 1},
        },
        "extrapolated_seconds": {"usual": 300.0, "plain": 100 * plain},
        "ratios": {"usual": 30.0, "plain": 10 * plain},
    }
    page = speed_page(speed, None, {"study_speed": {"usual": 20}, "study_kills": {}})
    assert ("| plain way |" in page) == shown
    assert ("one whole run of 3 epochs" in page) != shown
    assert "30 times as long, 20 were aimed at: met." in page


def test_kills_are_shown_with_what_was_done_by_the_last() -> None:
    from studies import speed_page

    runs = [{"kills": 3, "cells_at_last_kill": done, "repeated": 0} for done in (2, 5)]
    trial = {"at_once": 2, "kills": 6, "runs": runs, "equal": True, "differing": []}
    kills = {
        **{"command": "kill", "date": "today", "machine": "one", "versions": {}},
        **{"options": {"objectives": ["me", "xe"], "seeds": 4}, "undisturbed_seconds": 1.0},
        **{"files": 7, "bytes": 99, "equal": True, "trials": [trial]},
    }
    page = speed_page(None, kills, {"study_speed": {}, "study_kills": {"kills": 6}})
    assert "| 2 | 6 | 2 of 8 and 5 of 8 | 0 | yes |" in page
    assert "2 to 5 of its 8 cells" in page


def test_the_page_of_kills_counts_every_engine_and_flip() -> None:
    from speed_pages import kills

    row = {"model": "mlp", "recipe": "paper", "runs": 3, "files": 16, "equal": True}
    row |= {"differing": [], "kills": 4, "operations": 5, "by": {"TERM": 1, "operation": 3}}
    cases = [
        {**row, "engine": "mlp", "locks": "flock", "hit": [1, 2]},
        {**row, "engine": "stack", "locks": "flock", "hit": [2, 5]},
        {**row, "engine": "mlp", "locks": "files", "operations": 7, "hit": [3]},
    ]
    flips = [{"what": "a note", "outcome": "refused by name", "count": 2}]
    result = {
        **{"command": "kill", "date": "today", "machine": "one", "versions": {}, "seconds": 3.0},
        **{"device": "cpu", "kills": 12, "equal": True, "cases": cases, "flips": flips},
    }

    def shown(target: dict[str, int], **change: Any) -> str:
        known = {"targets": {"kills": target}, "kills": {**result, **change}}
        gpu = {**result, "device": "cuda", "kills": 0, "cases": [], "flips": []}
        return kills(lambda name: known.get(name, gpu))

    page = shown({"kills": 12, "flips": 2})
    assert "| CPU | stack | mlp | paper | flock | 1 | 3 | 3 | 16 | yes |" in page
    assert "has 5 file operations; kills came before 3 of them" in page
    assert "| a note | refused by name | 2 |" in page
    assert "12 kills and 2 flips: met." in page
    assert "2 flips: missed." in shown({"kills": 13, "flips": 2})
    silent = [{"what": "a note", "outcome": "OTHER MODULES, SILENTLY", "count": 2}]
    assert "2 flips: missed." in shown({"kills": 12, "flips": 2}, flips=silent)


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _after(words: list[str], flag: str) -> str | None:
    return words[words.index(flag) + 1] if flag in words else None
