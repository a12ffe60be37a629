"""The pages of results hold the numbers that lie beside them, and nothing else."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from intarsia.cli.study.study_options import StudyChoice
from intarsia.demos.demo import SETTINGS
from intarsia.studies import Store, StudyContext, find_study, run
from intarsia.studies.archive import load_archive, make_archive, save_archive
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


def test_one_more_archive_is_taken_in_without_being_named(tmp_path: Path) -> None:
    """Paths on HAR: a file beside the others, and the page and its verdict speak of HAR too."""
    import studies

    known = load_archive(ROOT / "docs" / "results" / "study_path_fashion.json")
    first = [m for m in known.measured if m.settings["seed"] == 0]
    save_archive(tmp_path / "study_path_fashion.json", replace(known, measured=first))
    before = studies.verdicts_of(studies.read_studies(tmp_path))["path"]
    assert before.line.startswith("on Fashion-MNIST, connected")
    assert before.line.endswith("HAR, which the paper shows too, not run")
    har = [replace(m, settings={**m.settings, "data": "har"}, key=f"har{m.key}") for m in first]
    options = {**known.options, "data": ["har"]}
    save_archive(tmp_path / "study_path_har.json", replace(known, options=options, measured=har))
    read = studies.read_studies(tmp_path)
    after = studies.verdicts_of(read)["path"]
    assert after.line.startswith("on Fashion-MNIST and HAR, connected")
    assert "not run" not in after.line
    assert "[study_path_har.json](study_path_har.json)" in studies.study_page(read["path"], after)


def test_numbers_typed_by_hand_are_few_and_right() -> None:
    """Outside of what is made from JSON files, pages that greet a reader measure nothing."""
    for page in ("README.md", "docs/index.md", "docs/results/index.md"):
        typed = {n.strip(".,") for n in re.findall(r"\d[\d.,]*%?", _typed(ROOT / page))}
        # the demo's sparsity, the digit 3, ResNet-18 and VGG-11, the licence, years of conferences
        assert typed <= {"95%", "3", "18", "11", "2.0", "2025", "2026"}, page
    assert SETTINGS["sparsity"] == 0.95
    results = ROOT / "docs" / "results"
    assert "on twelve data sets" in _typed(results / "index.md")
    assert len(json.loads((results / "defaults.json").read_text())["entries"]) == 12
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert not re.search(r"\d+ kills", changes)
    assert not re.search(r"\d+ of \d+", changes)


def test_variants_of_a_study_are_told_apart_and_tables_stand_once() -> None:
    import studies

    variants = studies.read_studies(ROOT / "docs" / "results")["pairs"]
    subjects = " with `data_options={groups: subject, scale: standard}`"
    together = " with `data_options={duplicates: together}`"
    assert [v.label for v in variants] == [
        f"preset `{preset}`{data}"
        for preset in ("paper", "released")
        for data in ("", together, subjects)
    ]
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
    assert "30 times as long; the target of 20 times is met." in page


def test_an_experts_loop_comes_first() -> None:
    from studies import speed_page

    key = "seconds_per_module_epoch"
    study = {"data": "mnist", "model": "shallow", "cells": 4, "modules": 9, "module_epochs": 70}
    seconds = {"seconds": 10.0, "training_seconds": 8.0, "measuring_seconds": 1.0}
    times = {"usual": 3.0, "expert": 0.5, "graph": 0.1}
    ways = {n: {key: s, f"all_{key}": [s] * 3, "epochs": 6} for n, s in times.items()}
    speed = {
        **{"command": "time", "date": "today", "machine": "one", "versions": {}},
        "study": study | seconds | {"epochs_of_modules": 100},
        "ways": ways,
        "extrapolated_seconds": {name: 70 * s for name, s in times.items()},
        "ratios": {name: 7 * s for name, s in times.items()},
    }
    page = speed_page(speed, None, {"study_speed": {"usual": 20}, "study_kills": {}})
    rows = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| ")]
    assert rows[2:] == ["| the study", "| graph way", "| expert way", "| usual way"]
    assert "100 epochs of modules, which are 70 module-epochs over all samples" in page
    assert "every epoch counts alike" not in page
    assert page.index("The graph way takes 1 times") < page.index("The usual way takes 21 times")


def _speed_results(name: str) -> dict[str, Any]:
    """Results of training with the expert's loops, made up from those that are there."""
    import results

    result, key = results.load(name), "seconds_per_module_epoch"
    if name == "training_cpu":
        row = {key: 1.25, f"all_{key}": [1.25] * 3, "modules": 2, "epochs": 6, "processes": 2}
        result["ways"]["expert"] = row | {"peak_MiB": 400, "peak_MiB_of_a_worker": 500}
        result["ratios"]["expert/intarsia"] = 2.05
    if name == "training_cuda":
        result["first_call"] = {"modules": 50, "engine": "mlp", "seconds": 19.25}
        ways = {"expert": 0.25, "graph": 0.0625}
        result["ways"] = {n: {key: s, "modules": 1, "epochs": 6} for n, s in ways.items()}
        result["stacks"] = [row | {key: 0.004} for row in result["stacks"]]
    return result


def test_the_ratio_to_an_experts_loop_is_given_first() -> None:
    import speed_pages

    cpu = speed_pages.training_cpu(_speed_results)
    ways = [line.split("`")[1] for line in cpu.splitlines() if line.startswith("| `")]
    assert ways == ["expert", "plain", "usual", "intarsia"]
    assert "The four ways" in cpu
    assert cpu.index("2.0 times as fast as `expert`") < cpu.index("times as fast as `plain`")
    assert "not timed" not in cpu
    cuda = speed_pages.training_cuda(_speed_results)
    assert "| an expert's loop with its step as a CUDA graph | 1 | 6 | 62.5 | 15.6 |" in cuda
    assert "takes 19.2 s for 50 modules" in cuda
    assert cuda.index("an expert's loop") < cuda.index("Run: ")
    lines = " ".join(speed_pages.speed(_speed_results).split())
    assert "(19.2 s in the first call of a new process)" in lines
    assert "15.6 times as fast per module and epoch as an expert's loop with its step" in lines
    plain = lines.index("times as fast as a plain loop")
    assert lines.index("2.0 times as fast as the loop that an expert") < plain


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


def _typed(path: Path) -> str:
    """A page without what scripts write into it, code and addresses."""
    text = re.sub(r"<!-- (\w+) -->.*?<!-- end of \1 -->", "", path.read_text(), flags=re.DOTALL)
    for other in (r"```.*?```", r"`[^`]*`", r"\]\([^)]*\)"):
        text = re.sub(other, "", text, flags=re.DOTALL)
    return text


def _after(words: list[str], flag: str) -> str | None:
    return words[words.index(flag) + 1] if flag in words else None
