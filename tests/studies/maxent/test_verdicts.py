"""What the verdicts of the studies say, on made-up cells that can be counted by hand."""

import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from intarsia.studies import STUDIES, Findings, Measured, Verdict, find_study
from intarsia.studies.maxent.complete import best_operators, operator_claims
from intarsia.studies.maxent.shared.dead import dead_modules, dead_pairs
from intarsia.studies.maxent.shared.paper import pair_cell

PAPER, RELEASED = "preset `paper`", "preset `released`"
LAYER = "preset `paper` with `pruning=magnitude(scope='layer'), select=last`"


def judge(study: str, cells: Sequence[Measured], **more: Any) -> Verdict:
    return find_study(study).judge(Findings(cells, PAPER, **more))


def test_every_study_of_the_package_has_a_verdict_and_says_what_the_paper_shows() -> None:
    for study in STUDIES.values():
        if study.cells.__module__.startswith("intarsia."):
            assert study.verdict is not None, study.name
            assert study.paper, study.name


def test_dead_modules_are_neither_met_nor_missed() -> None:
    """Yeast's pruned modules have no live unit; their entropy is that of the paper."""
    cells = [_single("mnist", 0.998, 2.3, live=9), _single("yeast", 0.25, 1.297, live=0)]
    result = judge("single", cells)
    met, cut = result.claims
    assert (met.evidence["count"], met.evidence["of"]) == (2, 2)  # Yeast without IMP
    assert met.holds
    assert met.evidence["suspect"] == 4  # MNIST's
    assert list(result.left_out) == ["Yeast with IMP"]
    assert "(1 group)" in result.left_out["Yeast with IMP"]
    assert result.line.startswith("2 of 2 printed numbers")
    assert "not counted: Yeast with IMP" in result.line
    assert cut.evidence == {"cut through": {"Yeast, shallow": (2, 2)}}
    cells[1] = _single("yeast", 0.25, 1.297, live=1)
    result = judge("single", cells)
    (met,) = result.claims
    assert (met.evidence["count"], met.evidence["of"], met.holds) == (3, 4, False)
    assert not result.left_out
    assert "not counted" not in result.line
    farthest = "Farthest off: accuracy of modules on Yeast (shallow, with IMP), -0.748."
    assert farthest in met.details


@pytest.mark.parametrize(
    ("live", "dead"),
    [([0, 0], True), ([0, None], True), ([3, 0], False), ([None], False), ([], False)],
)
def test_a_group_is_dead_without_a_live_unit(live: list[int | None], dead: bool) -> None:
    """None is a module that diverged: it says nothing of the others."""
    cell = _single("yeast", 0.5, 1.0, live=1)
    cell.result["pruned"]["live"] = live
    assert dead_modules([cell]) == ([("shallow", True, "yeast")] if dead else [])


@pytest.mark.parametrize(("value", "dead"), [(0.5, True), (0.500001, False)])
def test_pairs_are_alike_to_the_digit_or_not(value: float, dead: bool) -> None:
    """Objectives of which not all seeds are there are compared in those that both have."""
    cells = [_pair(objective, 0, 0.5) for objective in ("xe", "qme")]
    cells += [_pair("xe", 1, 0.7), _pair("me", 0, value)]
    assert dead_pairs(cells) == ([("shallow", 1, True, "mnist")] if dead else [])
    assert dead_pairs(cells[:1]) == []  # nothing to compare it with


def test_pairs_are_counted_as_a_plain_loop_counts_them() -> None:
    """Made-up cells near the paper's: what is met, missed and ordered, counted here again.

    Modules of Yeast are dead with IMP, and HAR lacks ME: neither counts in the order.
    """
    data_sets = ["mnist", "fashion_mnist", "yeast"]
    cells = _pairs("paper", "shallow", 0.03, data_sets, dead=["yeast"])
    cells += [
        c for c in _pairs("paper", "shallow", 0.0, ["har"]) if c.settings["objective"] != "me"
    ]
    cells += _pairs("paper", "deep", 0.0, data_sets)
    others = _pairs("released", "shallow", 0.0, data_sets)
    result = judge("pairs", cells, variants={RELEASED: others})
    met, order, logits = result.claims

    ours = {place: off for place, off in _off(cells).items() if not _dead(place)}
    missed = {place for place, off in ours.items() if off}
    released = _off(others)
    both = [place for place in ours if place in released]
    same = [place for place in missed if place in released]
    assert 0 < len(same) < len(missed) < len(ours)
    assert met.counted == f"{len(ours) - len(missed)} of {len(ours)}"
    assert met.evidence["variants"] == {RELEASED: [sum(not released[p] for p in both), len(both)]}
    assert (
        f"Preset `released`: meets {sum(not released[p] for p in both)} of {len(both)} of the same "
        f"numbers, {sum(not released[p] for p in same)} of {len(same)} of those missed before."
    ) in met.details
    held = _ordered(cells)
    pruned = [result for place, result in held.items() if place[-1] == "pruned"]
    assert 0 < sum(held.values()) < len(held)
    assert (order.evidence["count"], order.n) == (sum(held.values()), len(held))
    assert f"in {sum(pruned)} of the other {len(pruned)} with IMP" in order.text
    assert list(result.left_out) == ["Yeast with IMP"]
    assert "(2 groups)" in result.left_out["Yeast with IMP"]
    for claim in (met, order):
        assert f"{claim.counted} {claim.short}" in result.line
    assert logits.holds is None


def test_a_study_that_the_paper_did_not_print_says_so() -> None:
    (claim,) = judge("single", [_single("digits", 0.9, 2.0, live=5)]).claims
    assert "printed no number" in claim.text
    assert claim.holds is None


def test_complete_merges_are_compared_by_what_their_archives_differ_in() -> None:
    ends = {PAPER: 0.7, LAYER: 0.93, RELEASED: 0.95}
    main, *variants = (
        [_complete("paper", seed, end) for seed in range(2)] for end in ends.values()
    )
    result = judge("complete", main, variants=dict(zip(list(ends)[1:], variants, strict=True)))
    assert result.claims[0].holds is False
    assert "does not reproduce: it ends at 0.7050 (0.0071) on MNIST." in result.claims[0].text
    assert "Not run: Fashion-MNIST (shallow)." in result.text
    assert "deep" not in result.text
    assert f"{LAYER} 0.9350 (0.0071)" in result.markdown()
    assert f"{LAYER} differs from {PAPER} in what it names alone" in result.markdown()
    assert result.line == (
        f"on MNIST the sum of all 2 reaches 0.705, 0.935 under {LAYER} and 0.955 under "
        f"{RELEASED}; the paper says above 0.90"
    )


def test_operators_are_best_where_the_test_says_so() -> None:
    clear = {"sum": [0.5, 0.51, 0.52], "logits": [0.9, 0.91, 0.92], "inlay": [0.9, 0.91, 0.92]}
    level = {"sum": [0.5, 0.51, 0.52], "logits": [0.5, 0.52, 0.53], "mean": [0.1, 0.11, 0.12]}
    alike = {"sum": [0.25, 0.25], "logits": [0.25, 0.25]}
    assert best_operators(clear) == ["logits", "inlay"]
    assert best_operators(level) == ["logits", "sum"]
    (claim,) = operator_claims([clear, level, alike], "with IMP")
    assert claim.evidence == {"logits": 1, "inlay": 1}
    assert claim.n == 2
    assert claim.text == (
        "Operators with IMP: of 2 settings (data, model), above all others by the test logits and "
        "inlay in 1; elsewhere not to be told from the best logits and sum in 1; 1 more, where all "
        "answer alike, left out."
    )
    assert claim.details == [
        "Operators that give one network of the same shape, with IMP: of 1 setting (data, model), "
        "above all others by the test sum in 1."
    ]
    assert operator_claims([alike], "with IMP") == []


def test_controls_compare_what_all_objectives_have_and_count_an_inlay_once() -> None:
    ends = {"me": (0.9, 0.8), "xe": (0.3, 0.2), "other": (0.95, 0.1)}
    cells = [
        _control(objective, imp, seed, logits, weights)
        for (objective, (logits, weights)), imp, seed in product(
            ends.items(), (True, False), range(3)
        )
    ]
    result = judge("controls", cells)
    assert result.line == (
        "the best objective is by logits `other` (by the test) with IMP and `other` (by the test) "
        "without IMP; by sum `me` (by the test) with IMP and `me` (by the test) without IMP"
    )
    (claim,) = result.claims
    assert claim.evidence["sum with IMP"] == ["me"]
    assert "Inlay is logits to the digit" in claim.text
    assert len(claim.details) == 4
    assert claim.details[0] == (
        "By logits, MNIST, shallow, with IMP: `other` 0.9510 (0.0010) against `me` 0.9010 "
        "(0.0010), by the test."
    )


def test_confusions_are_counted_model_by_model() -> None:
    """ME is better for one model, QME far better for the other: one of two each."""
    right = {"shallow": {"qme": 6, "me": 8}, "deep": {"qme": 10, "me": 1}}
    cells = [
        _confusion(model, objective, number)
        for model, own in right.items()
        for objective, number in own.items()
    ]
    result = judge("confusion", cells)
    assert result.claims[0].evidence["sum"] == {"qme": [1, 2], "me": [1, 2]}
    assert "the most accurate under QME in 1 of 2 and ME in 1 of 2 (1 seed)" in result.line
    assert "nearly uniform" in result.text
    assert len(result.details) == 2


@pytest.mark.parametrize(
    ("n", "ends", "text", "holds"),
    [
        (2, (0.1, 0.11), "stays near chance at every width (0.101 to 0.111, chance 0.100)", True),
        (2, (0.3, 0.9), "with 64 (it rises in 1 of 1 steps, n = 2).", True),
        (3, (0.3, 0.9), "with 64 (it rises in 1 of 1 steps, n = 3, by the test).", True),
        (
            3,
            (0.9, 0.3),
            "with 64 (it rises in 0 of 1 steps, n = 3, not surely by the test).",
            False,
        ),
    ],
)
def test_width_is_tested_where_there_are_seeds_enough(
    n: int, ends: tuple[float, float], text: str, holds: bool
) -> None:
    cells = []
    for (units, end), seed in product(zip((32, 64), ends, strict=True), range(n)):
        curve = {"accuracy": [0.9] * 9 + [end + seed / 500], "entropy": []}
        settings = {"data": "mnist", "model": f"mlp(hidden=[{units}])", "imp": True, "seed": seed}
        cells.append(Measured(settings, {"curves": {"sum": [curve]}}))
    _, claim = judge("width", cells).claims
    assert text in claim.text
    assert claim.holds is holds


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
    states = {
        state: {"sum": {"accuracy": [accuracy], "entropy": [None]}}
        for state, accuracy in (("pruned", pruned), ("unpruned", other))
    }
    settings = {"data": "mnist", "model": "shallow", "size": 1, "objective": objective}
    return Measured({**settings, "seed": seed}, states)


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


def _pairs(
    preset: str, model: str, shift: float, data_sets: list[str], dead: Sequence[str] = ()
) -> list[Measured]:
    """Cells of two sizes and seeds, three pairs each, around the paper's means."""
    chance = random.Random(0)
    cells = []
    for data, size, objective, seed in product(data_sets, (1, 2), ("xe", "qme", "me"), range(2)):
        result: dict[str, Any] = {"pairs": []}
        for state in ("unpruned", "pruned"):
            cell = pair_cell(model, data, size, objective, state == "pruned")
            assert cell is not None
            accuracy = cell.accuracy.mean - shift
            entropy = cell.entropy.mean if cell.entropy else None
            numbers = {
                "accuracy": [chance.gauss(accuracy, 0.01) for _ in range(3)],
                "entropy": [entropy and chance.gauss(entropy, 0.05) for _ in range(3)],
            }
            if data in dead and state == "pruned":
                numbers = {"accuracy": [0.5, 0.0, 0.5], "entropy": [entropy and 1.25] * 3}
            result[state] = {"sum": numbers, "logits": numbers}
        settings: dict[str, Any] = {"data": data, "model": model, "preset": preset}
        cells.append(
            Measured({**settings, "size": size, "objective": objective, "seed": seed}, result)
        )
    return cells


def _complete(preset: str, seed: int, end: float) -> Measured:
    curve = {"accuracy": [0.99, end + seed / 100], "entropy": [2.0, None]}
    settings = {"data": "mnist", "model": "shallow", "preset": preset, "imp": True, "seed": seed}
    result = {"curves": {"sum": [curve], "logits": [curve]}, "refused": {}, "diverged": []}
    return Measured({**settings, "orders": {"sum": 1, "logits": 1}}, result)


def _means(cells: list[Measured], state: str, what: str) -> dict[tuple[Any, ...], float]:
    groups: dict[tuple[Any, ...], list[float]] = {}
    for cell in cells:
        s = cell.settings
        place = (s["data"], s["model"], s["size"], s["objective"])
        values = cell.result[state]["sum"][what]
        groups.setdefault(place, []).extend(v for v in values if v is not None)
    return {place: sum(values) / len(values) for place, values in groups.items() if values}


def _off(cells: list[Measured]) -> dict[tuple[Any, ...], bool]:
    """By number that the paper printed and that is not suspect, whether ours is beyond 2 sd."""
    result = {}
    for state in ("unpruned", "pruned"):
        for what in ("accuracy", "entropy"):
            for place, mean in _means(cells, state, what).items():
                data, model, size, objective = place
                cell = pair_cell(model, data, size, objective, state == "pruned")
                paper = getattr(cell, what)
                if paper is not None and not paper.suspect:
                    off = abs(round(mean, 3) - paper.mean) > 2 * paper.sd + 1e-9
                    result[*place, state, what] = off
    return result


def _ordered(cells: list[Measured]) -> dict[tuple[Any, ...], bool]:
    """By group that is not dead and has all three objectives, whether they are in order."""
    held = {}
    for state in ("unpruned", "pruned"):
        means = _means(cells, state, "accuracy")
        for group in {place[:3] for place in means}:
            if (*group, "me") in means and not _dead((*group, "me", state)):
                order = means[*group, "me"] > means[*group, "qme"] > means[*group, "xe"]
                held[*group, state] = order
    return held


def _dead(place: tuple[Any, ...]) -> bool:
    """Data, model, size, objective, state: where the test makes modules that are cut through."""
    return place[0] == "yeast" and place[1] == "shallow" and place[4] == "pruned"
