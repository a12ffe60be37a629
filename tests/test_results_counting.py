"""What the verdicts on studies count, on made-up cells that can be counted by hand."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from intarsia.studies import Measured, find_study
from intarsia.studies.archive import Pack

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def test_dead_modules_are_neither_met_nor_missed() -> None:
    """Yeast's pruned modules have no live unit; their entropy is that of the paper."""
    from study_verdicts import single

    cells = [_single("mnist", 0.998, 2.3, live=9), _single("yeast", 0.25, 1.297, live=0)]
    result = single([_variant("single", cells)], {})
    assert "2 of 2 printed numbers" in result.line  # Yeast without IMP; MNIST's are suspect
    assert "; 1 group (Yeast with IMP), cut through by pruning, not counted" in result.line
    assert "2 of 2 of Yeast, shallow" in result.markdown()
    cells[1] = _single("yeast", 0.25, 1.297, live=1)
    result = single([_variant("single", cells)], {})
    assert "3 of 4 printed numbers" in result.line
    assert "not counted" not in result.line
    assert "entropy of" not in result.markdown()
    assert "Farthest off: accuracy of modules on Yeast (shallow, with IMP), -0.748." in (
        result.markdown()
    )


@pytest.mark.parametrize(("value", "dead"), [(0.5, True), (0.500001, False)])
def test_pairs_are_alike_to_the_digit_or_not(value: float, dead: bool) -> None:
    """Objectives of which not all seeds are there are compared in those that both have."""
    from study_dead import alike

    cells = [_pair(objective, 0, 0.5) for objective in ("xe", "qme")]
    cells += [_pair("xe", 1, 0.7), _pair("me", 0, value)]
    assert alike(cells) == ([("shallow", 1, "yes", "mnist")] if dead else [])
    assert alike(cells[:1]) == []  # nothing to compare it with


def test_missing_cells_are_named_by_what_they_share() -> None:
    from study_missing import missing

    study = find_study("pairs")
    given: dict[str, Any] = {"data": ["mnist", "yeast"], "models": ["shallow", "deep", "cnn"]}
    options = study.options("paper", seeds=2, **given)
    every = [
        {"data": data, "model": model, "size": size, "objective": objective, "seed": seed}
        for data, model, size, objective, seed in product(
            given["data"], given["models"], (1, 2, 5), ("xe", "qme", "me"), range(2)
        )
        # Ten classes and four; Yeast has no pictures.
        if not (data == "yeast" and (size == 5 or model == "cnn"))
    ]
    gone = [
        lambda s: s["model"] == "deep" and s["data"] == "mnist",
        lambda s: s["model"] == "cnn" and s["size"] == 5 and s["objective"] == "me",
        lambda s: list(s.values()) == ["yeast", "shallow", 2, "xe", 1],
    ]
    there = [s for s in every if not any(is_gone(s) for is_gone in gone)]
    cells = [Measured(settings, {}) for settings in there]
    words = missing(Pack("pairs", options, cells, len(every) - len(there), []))
    assert words == (
        "mnist deep (18 cells), mnist cnn |R| = 5 me (2 cells), yeast shallow |R| = 2 xe seed 1"
    )
    assert missing(Pack("pairs", options, cells, 1, [])) == ""  # something else makes the cells
    assert missing(Pack("pairs", options, cells, 0, [])) == ""


def test_operators_are_best_where_the_test_says_so() -> None:
    from study_operators import best_operators, operators

    clear = {"sum": [0.5, 0.51, 0.52], "logits": [0.9, 0.91, 0.92], "inlay": [0.9, 0.91, 0.92]}
    level = {"sum": [0.5, 0.51, 0.52], "logits": [0.5, 0.52, 0.53], "mean": [0.1, 0.11, 0.12]}
    alike = {"sum": [0.25, 0.25], "logits": [0.25, 0.25]}
    assert best_operators(clear) == ["logits", "inlay"]
    assert best_operators(level) == ["logits", "sum"]
    result = operators([clear, level, alike], "with IMP")
    assert result["Operators with IMP"] == (
        "of 2 settings (data, model), above all others by the test logits and inlay in 1; "
        "elsewhere not to be told from the best logits and sum in 1; 1 more, where all answer "
        "alike, left out."
    )
    assert result["Those that give one network of the same shape, with IMP"] == (
        "of 1 setting (data, model), above all others by the test sum in 1."
    )
    assert operators([alike], "with IMP") == {}


def test_controls_compare_what_all_objectives_have_and_count_an_inlay_once() -> None:
    from study_verdicts_beyond import controls

    ends = {"me": (0.9, 0.8), "xe": (0.3, 0.2), "other": (0.95, 0.1)}
    cells = [
        _control(objective, imp, seed, logits, weights)
        for (objective, (logits, weights)), imp, seed in product(
            ends.items(), (True, False), range(3)
        )
    ]
    result = controls([_variant("controls", cells)], {})
    assert result.line == (
        "the best objective is by logits `other` (by the test) with IMP and `other` (by the test) "
        "without IMP; by sum `me` (by the test) with IMP and `me` (by the test) without IMP"
    )
    assert "Inlay is logits to the digit" in result.words
    assert len(result.points) == 4
    assert result.points[0] == (
        "By logits, MNIST, shallow, with IMP: `other` 0.9510 (0.0010) against `me` 0.9010 "
        "(0.0010), by the test."
    )


def test_confusions_are_counted_model_by_model() -> None:
    """ME is better for one model, QME far better for the other: one of two each."""
    from study_verdicts_others import confusion

    right = {"shallow": {"qme": 6, "me": 8}, "deep": {"qme": 10, "me": 1}}
    cells = [
        _confusion(model, objective, number)
        for model, own in right.items()
        for objective, number in own.items()
    ]
    result = confusion([_variant("confusion", cells)], {})
    assert "the most accurate under QME in 1 of 2 and ME in 1 of 2 (1 seed)" in result.line
    assert "nearly uniform" in result.words
    assert len(result.points) == 2


@pytest.mark.parametrize(
    ("n", "ends", "said"),
    [
        (2, (0.1, 0.11), "stays near chance at every width (0.101 to 0.111, chance 0.100)"),
        (2, (0.3, 0.9), "with 64 (it rises in 1 of 1 steps, n = 2)."),
        (3, (0.3, 0.9), "with 64 (it rises in 1 of 1 steps, n = 3, by the test)."),
    ],
)
def test_width_is_tested_where_there_are_seeds_enough(
    n: int, ends: tuple[float, float], said: str
) -> None:
    from study_verdicts_steps import width

    cells = []
    for (units, end), seed in product(zip((32, 64), ends, strict=True), range(n)):
        curve = {"accuracy": [0.9] * 9 + [end + seed / 500], "entropy": []}
        settings = {"data": "mnist", "model": f"mlp(hidden=[{units}])", "imp": True, "seed": seed}
        cells.append(Measured(settings, {"curves": {"sum": [curve]}}))
    assert said in width([_variant("width", cells)], {}).words


@pytest.mark.parametrize(("plain", "shown"), [(3.5, False), (0.5, True)])
def test_the_plain_way_is_shown_where_it_was_timed_long_enough(plain: float, shown: bool) -> None:
    from study_speed_page import study_speed

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
    page = study_speed(speed, None, {"study_speed": {"usual": 20}, "study_kills": {}})
    assert ("| plain way |" in page) == shown
    assert ("one whole run of 3 epochs" in page) != shown
    assert "30 times as long, 20 were aimed at: met." in page


def test_kills_are_shown_with_what_was_done_by_the_last() -> None:
    from study_speed_page import study_speed

    runs = [{"kills": 3, "cells_at_last_kill": done, "repeated": 0} for done in (2, 5)]
    trial = {"at_once": 2, "kills": 6, "runs": runs, "equal": True, "differing": []}
    kills = {
        **{"command": "kill", "date": "today", "machine": "one", "versions": {}},
        **{"options": {"objectives": ["me", "xe"], "seeds": 4}, "undisturbed_seconds": 1.0},
        **{"files": 7, "bytes": 99, "equal": True, "trials": [trial]},
    }
    page = study_speed(None, kills, {"study_speed": {}, "study_kills": {"kills": 6}})
    assert "| 2 | 6 | 2 of 8 and 5 of 8 | 0 | yes |" in page
    assert "2 to 5 of its 8 cells" in page


def _variant(name: str, cells: list[Measured]) -> Any:
    from study_packs import Variant, label_of

    study = find_study(name)
    options = study.options("paper")
    return Variant(study, label_of(study, options), {"pack": Pack(name, options, cells, 0, [])})


def _single(data: str, accuracy: float, entropy: float, live: int) -> Measured:
    """Two modules; those without IMP are as the paper's of Yeast."""
    unpruned = {"accuracy": [0.995] * 2, "entropy": [1.298] * 2, "live": [512] * 2}
    pruned = {"accuracy": [accuracy] * 2, "entropy": [entropy] * 2, "live": [live] * 2}
    sizes = {"density": [0.5] * 2, "units": [512] * 2}
    result = {"classes": ["0", "1"], "unpruned": unpruned | sizes, "pruned": pruned | sizes}
    settings = {"data": data, "model": "shallow", "preset": "paper", "objective": "me", "seed": 0}
    return Measured(settings, result)


def _pair(objective: str, seed: int, pruned: float) -> Measured:
    """One pair; without IMP every objective gives another accuracy."""
    other = {"xe": 0.6, "qme": 0.7, "me": 0.8}[objective]
    halves = {
        half: {"sum": {"accuracy": [accuracy], "entropy": [None]}}
        for half, accuracy in (("pruned", pruned), ("unpruned", other))
    }
    settings = {"data": "mnist", "model": "shallow", "size": 1, "objective": objective}
    return Measured({**settings, "seed": seed}, halves)


def _control(objective: str, imp: bool, seed: int, logits: float, weights: float) -> Measured:
    complete: dict[str, float | None] = {
        "inlay": None if objective == "other" else logits + seed / 1000,
        "logits": logits + seed / 1000,
        "sum": weights + seed / 1000,
    }
    settings = {"data": "mnist", "model": "shallow", "objective": objective, "amount": None}
    alone = {key: [0.5] for key in ("accuracy", "entropy", "live_units", "mask_jaccard")}
    return Measured(
        {**settings, "imp": imp, "seed": seed, "sparsity": 0.99},
        {**alone, "validation": 0.5, "complete": complete},
    )


def _confusion(model: str, objective: str, right: int) -> Measured:
    """Two classes of ten samples; the sum of both modules answers so many of the first right."""
    counts = [[right, 10 - right], [0, 10]]
    modules = [{"parts": [name], "counts": counts} for name in ("0", "1")]
    merge = {"parts": ["0", "1"], "operator": "sum", "counts": counts}
    settings = {"data": "mnist", "model": model, "imp": True, "objective": objective, "seed": 0}
    return Measured(settings, {"catalogue": ["0", "1"], "modules": modules, "merges": [merge]})
