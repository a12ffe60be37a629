"""The pages of results hold the figures that lie beside them, and nothing else."""

import random
import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from intarsia.cli.study.study_options import StudyChoice
from intarsia.reports.study.option_inference import run_command
from intarsia.studies import Measured, Store, StudyContext, find_study, run
from intarsia.studies.archive import Pack, pack, save_pack
from intarsia.studies.maxent.paper import pair_cell

ROOT = Path(__file__).resolve().parents[1]
RUN = {"date": "2026-01-01", "device": "a device", "versions": {"torch": "2"}}
EVENTS = [
    {**RUN, "event": "banks", "keys": ["a"], "modules": 1200, "seconds": 30.0},
    {**RUN, "event": "cell", "key": "b", "seconds": 4.0},
]
LAYER = {"pruning": "magnitude(scope='layer')", "select": "last"}


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def test_pages_are_what_their_figures_make() -> None:
    import results

    stale = [str(p) for p, text in results.written().items() if _text(p) != text]
    assert not stale, f"run `make results`: {stale} are older than their figures"


@pytest.mark.usefixtures("one_thread")
def test_a_measured_study_becomes_a_page(tmp_path: Path) -> None:
    """The small form, measured: beside its tables the page has command, origin and counts."""
    import study_pages
    from study_packs import read_studies

    study, store = find_study("single"), Store(tmp_path / "store")
    options = study.options("small", seeds=1)
    context = StudyContext(store, "cpu")
    measured = run(study, options, store, context=context)
    result = pack(study, options, study.plan(options, context), store)
    save_pack(tmp_path / "study_single.json", replace(result, missing=2))
    (tmp_path / "study_speed.json").write_text("{}")  # not a pack
    studies = read_studies(tmp_path)
    files = study_pages.study_files(studies, study_pages.verdicts(studies), tmp_path)
    page = files[tmp_path / "study_single.md"]
    assert "intarsia study run single --form small --seeds 1\n" in page
    assert "intarsia study table single --from docs/results/study_single.json\n" in page
    assert "| 1, 2 missing | 1 seed | 10 |" in page
    assert "printed no number" in page
    assert all(table.markdown().rstrip() in page for table in study.tables(measured))


def test_pairs_are_counted_as_a_plain_loop_counts_them(tmp_path: Path) -> None:
    """Made-up cells near the paper's: what is met, missed and ordered, counted here again.

    Modules of Yeast are dead with IMP, and HAR lacks ME: neither counts in the order.
    """
    import study_pages
    import study_summary
    from study_packs import read_studies

    merged = ["mnist", "fashion_mnist", "yeast"]
    cells = {
        "study_pairs.json": _pairs("paper", "shallow", 0.03, merged, dead=["yeast"])
        + [c for c in _pairs("paper", "shallow", 0.0, ["har"]) if c.settings["objective"] != "me"],
        "study_pairs_deep.json": _pairs("paper", "deep", 0.0, merged),
        "study_pairs_released.json": _pairs("released", "shallow", 0.0, merged),
    }
    for file, measured in cells.items():
        first = measured[0].settings
        given = {"models": [first["model"]], "preset": first["preset"], "seeds": 2}
        _save(tmp_path / file, "pairs", measured, data=[*merged, "har"], sizes=[1, 2], **given)
    studies = read_studies(tmp_path)
    assert [list(v.packs) for v in studies["pairs"]] == [
        ["study_pairs.json", "study_pairs_deep.json"],
        ["study_pairs_released.json"],
    ]
    said = study_pages.verdicts(studies)
    text, line = said["pairs"].markdown(), said["pairs"].line

    ours = _off(cells["study_pairs.json"]) | _off(cells["study_pairs_deep.json"])
    ours = {place: off for place, off in ours.items() if not _dead(place)}
    missed = {place for place, off in ours.items() if off}
    released = _off(cells["study_pairs_released.json"])
    both = [place for place in ours if place in released]
    again = [place for place in missed if place in released]
    assert 0 < len(again) < len(missed) < len(ours)
    met = f"{len(ours) - len(missed)} of {len(ours)} printed numbers"
    assert met in text
    assert line.startswith(met)
    assert (
        f"meets {sum(not released[p] for p in both)} of {len(both)} of the same numbers, "
        f"{sum(not released[p] for p in again)} of {len(again)} of those missed before" in text
    )
    held = _ordered(cells["study_pairs.json"] + cells["study_pairs_deep.json"])
    pruned = [result for place, result in held.items() if place[-1] == "pruned"]
    assert 0 < sum(held.values()) < len(held)
    assert "In 2 groups (Yeast with IMP) pruning cut every module through" in text
    assert f"in {sum(pruned)} of the other {len(pruned)} with IMP" in text
    assert f"ME > QME > XE in {sum(held.values())} of {len(held)} groups" in line
    page = study_pages.study_page(studies["pairs"], said["pairs"])
    assert f"- ME > QME > XE in {sum(held.values())} of {len(held)} groups" in page
    assert "**Table 4" in page
    assert "**Table 2" not in page
    short = " ".join(study_summary.studies_in_short(studies, said).split())
    assert "The 3,600 modules of Tables 2 and 4 took 90 s of training" in short
    assert f"| [pairs](study_pairs.md) | {study_summary.SHOWN['pairs']} | {line} |" in (
        study_summary.studies_table(said, {})
    )


def test_complete_merges_are_compared_by_what_their_packs_differ_in(tmp_path: Path) -> None:
    import study_pages
    from study_packs import read_studies

    packs: list[tuple[str, dict[str, Any], float]]
    packs = [("paper", {}, 0.7), ("paper", LAYER, 0.93), ("released", {}, 0.95)]
    for number, (preset, recipe, end) in enumerate(packs):
        given = {"data": ["mnist"], "models": ["shallow"], "seeds": 2}
        cells = [_complete(preset, seed, end) for seed in range(2)]
        file = tmp_path / f"study_complete_{number}.json"
        _save(file, "complete", cells, preset=preset, recipe=recipe, **given)
    studies = read_studies(tmp_path)
    layer = "preset `paper` with `pruning=magnitude(scope='layer'), select=last`"
    assert [v.label for v in studies["complete"]] == ["preset `paper`", layer, "preset `released`"]
    said = study_pages.verdicts(studies)["complete"]
    assert "does not reproduce: it ends at 0.7050 (0.0071) on MNIST." in said.words
    assert "Not run: Fashion-MNIST (shallow)." in said.words
    assert "deep" not in said.words
    assert f"{layer} 0.9350 (0.0071)" in said.markdown()
    assert f"{layer} differs from preset `paper` in what it names alone" in said.markdown()
    assert said.line == (
        f"on MNIST the sum of all 2 reaches 0.705, 0.935 under {layer} and 0.955 under preset "
        "`released`; the paper says above 0.90"
    )


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
@pytest.mark.parametrize("form", ["paper", "small"])
def test_a_pages_command_gives_its_options(form: str, given: dict[str, Any]) -> None:
    study = find_study("complete")
    options = study.options(form, **given)
    words = shlex.split(run_command(study, options))[4:]
    flags = {key: _after(words, f"--{key}") for key in ("data", "models", "seeds", "preset")}
    named = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    choice = StudyChoice("complete", scale=_after(words, "--form"), set_=named, **flags)
    assert choice.options() == options


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _after(words: list[str], flag: str) -> str | None:
    return words[words.index(flag) + 1] if flag in words else None


def _save(path: Path, study: str, cells: list[Measured], missing: int = 0, **given: Any) -> None:
    options = find_study(study).options("paper", **given)
    save_pack(path, Pack(study, options, cells, missing, EVENTS))


def _pairs(
    preset: str, model: str, shift: float, data_sets: list[str], dead: Sequence[str] = ()
) -> list[Measured]:
    """Cells of two sizes and seeds, three pairs each, around the paper's means."""
    chance = random.Random(0)
    found = []
    for data, size, objective, seed in product(data_sets, (1, 2), ("xe", "qme", "me"), range(2)):
        result: dict[str, Any] = {"pairs": []}
        for half in ("unpruned", "pruned"):
            cell = pair_cell(model, data, size, objective, half == "pruned")
            assert cell is not None
            accuracy = cell.accuracy.mean - shift
            entropy = cell.entropy.mean if cell.entropy else None
            numbers = {
                "accuracy": [chance.gauss(accuracy, 0.01) for _ in range(3)],
                "entropy": [entropy and chance.gauss(entropy, 0.05) for _ in range(3)],
            }
            if data in dead and half == "pruned":
                numbers = {"accuracy": [0.5, 0.0, 0.5], "entropy": [entropy and 1.25] * 3}
            result[half] = {"sum": numbers, "logits": numbers}
        settings: dict[str, Any] = {"data": data, "model": model, "preset": preset}
        found.append(
            Measured({**settings, "size": size, "objective": objective, "seed": seed}, result)
        )
    return found


def _complete(preset: str, seed: int, end: float) -> Measured:
    curve = {"accuracy": [0.99, end + seed / 100], "entropy": [2.0, None]}
    settings = {"data": "mnist", "model": "shallow", "preset": preset, "imp": True, "seed": seed}
    result = {"curves": {"sum": [curve], "logits": [curve]}, "refused": {}, "diverged": []}
    return Measured({**settings, "orders": {"sum": 1, "logits": 1}}, result)


def _means(cells: list[Measured], half: str, what: str) -> dict[tuple[Any, ...], float]:
    groups: dict[tuple[Any, ...], list[float]] = {}
    for cell in cells:
        s = cell.settings
        place = (s["data"], s["model"], s["size"], s["objective"])
        values = cell.result[half]["sum"][what]
        groups.setdefault(place, []).extend(v for v in values if v is not None)
    return {place: sum(values) / len(values) for place, values in groups.items() if values}


def _off(cells: list[Measured]) -> dict[tuple[Any, ...], bool]:
    """By number that the paper printed and that is not suspect, whether ours is beyond 2 sd."""
    result = {}
    for half in ("unpruned", "pruned"):
        for what in ("accuracy", "entropy"):
            for place, mean in _means(cells, half, what).items():
                data, model, size, objective = place
                cell = pair_cell(model, data, size, objective, half == "pruned")
                paper = getattr(cell, what)
                if paper is not None and not paper.suspect:
                    off = abs(round(mean, 3) - paper.mean) > 2 * paper.sd + 1e-9
                    result[*place, half, what] = off
    return result


def _ordered(cells: list[Measured]) -> dict[tuple[Any, ...], bool]:
    """By group that is not dead and has all three objectives, whether they are in order."""
    held = {}
    for half in ("unpruned", "pruned"):
        means = _means(cells, half, "accuracy")
        for group in {place[:3] for place in means}:
            if (*group, "me") in means and not _dead((*group, "me", half)):
                order = means[*group, "me"] > means[*group, "qme"] > means[*group, "xe"]
                held[*group, half] = order
    return held


def _dead(place: tuple[Any, ...]) -> bool:
    """Data, model, size, objective, half: where the test makes modules that are cut through."""
    return place[0] == "yeast" and place[1] == "shallow" and place[4] == "pruned"
