"""What the verdicts of the studies say, on made-up cells that can be counted by hand."""

import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from scipy import stats

from intarsia.studies import STUDIES, Findings, Measured, Spread, Verdict, find_study
from intarsia.studies.maxent.complete import best_operators, operator_claims
from intarsia.studies.maxent.shared.dead import dead_modules, dead_pairs
from intarsia.studies.maxent.shared.paper import pair_cell, single_cell
from intarsia.studies.verdict import surely_best
from intarsia.studies.wording import by_the_test, capital

PAPER, RELEASED = "preset `paper`", "preset `released`"
LAYER = "preset `paper` with `pruning=magnitude(scope='layer'), select=last`"


def judge(study: str, cells: Sequence[Measured], **more: Any) -> Verdict:
    return find_study(study).judge(Findings(cells, PAPER, **more))


def test_every_study_of_the_package_has_a_verdict_and_says_what_the_paper_shows() -> None:
    for study in STUDIES.values():
        if study.cells.__module__.startswith("intarsia."):
            assert study.verdict is not None, study.name
            assert study.paper, study.name


def test_numbers_of_dead_modules_are_missed() -> None:
    """Yeast's pruned modules have no live unit; their entropy is that of the paper by accident."""
    cells = [_single("mnist", 0.998, 2.3, live=9), _single("yeast", 0.25, 1.297, live=0)]
    result = judge("single", cells)
    met, cut = result.claims
    assert (met.evidence["count"], met.evidence["of"]) == (2, 4)  # Yeast without IMP
    assert met.evidence["dead"] == 2  # both numbers of Yeast with IMP
    assert met.holds is False
    assert met.evidence["suspect"] == 4  # MNIST's
    assert list(result.failed) == ["Yeast with IMP"]
    assert "(1 group)" in result.failed["Yeast with IMP"]
    assert result.line.startswith("2 of 4 printed numbers")
    assert "2 of the 2 missed are from dead modules, Yeast with IMP" in result.line
    assert cut.evidence == {"cut through": {"Yeast, shallow": (2, 2)}}
    farthest = "Largest difference: accuracy of modules on Yeast (shallow, with IMP{}), -0.748."
    assert farthest.format(", dead") in met.details
    cells[1] = _single("yeast", 0.25, 1.297, live=1)
    result = judge("single", cells)
    (met,) = result.claims
    assert (met.evidence["count"], met.evidence["of"], met.holds) == (3, 4, False)
    assert met.evidence["dead"] == 0
    assert not result.failed
    assert "dead" not in result.line
    assert farthest.format("") in met.details


def test_agreement_is_tested_for_every_printed_number() -> None:
    """TOST and Welch's test by scipy, from the table's own moments; dead modules agree in none."""
    cells = [
        _spread_out("deep", data, seed, dead=data == "yeast")
        for data in ("mnist", "har", "yeast")
        for seed in range(5)
    ]
    (met, *_) = judge("single", cells).claims
    agree, differ = [], []
    for row in find_study("single").tables(cells)[0].records():
        for what, margin in (("accuracy", 0.02), ("entropy", 0.05)):
            ours, theirs = row[what], row[f"paper's {what}"]
            if row["data"] == "yeast" and row["IMP"] == "yes":
                agree, differ = [*agree, 1.0], [*differ, 0.0]
                continue
            n = {"mnist": 50, "har": 30, "yeast": 20}[row["data"]]
            agree.append(_tost(ours, theirs, n, margin))
            moments = (ours.mean, ours.sd, ours.n, theirs.mean, theirs.sd, n)
            differ.append(stats.ttest_ind_from_stats(*moments, equal_var=False).pvalue)
    expected = {
        "equivalent": sum(p < 0.05 for p in _holm(agree)),
        "equivalent alone": sum(p < 0.05 for p in agree),
        "different": sum(p < 0.05 for p in _holm(differ)),
        "different alone": sum(p < 0.05 for p in differ),
        "undecided": sum(
            min(both) >= 0.05 for both in zip(_holm(agree), _holm(differ), strict=True)
        ),
    }
    assert 0 < expected["equivalent"] < expected["equivalent alone"] < len(agree)
    assert 0 < expected["different"] < expected["different alone"]
    assert met.evidence["tests"] == expected
    equivalent = f"{expected['equivalent']} of {len(agree)} are equivalent by two one-sided tests"
    assert equivalent in met.text


def test_released_is_said_to_have_been_run_for_some_and_not_for_the_rest() -> None:
    cells = [_single(data, 0.5, 1.0, live=5) for data in ("har", "yeast")]
    meets = [_single("yeast", 0.998, 1.0, live=5)]  # the accuracy and not the entropy
    (met, *_) = judge("single", cells, variants={RELEASED: meets}).claims
    assert met.evidence["released"] == {"missed": 5, "run": 2, "met": 1}
    assert (
        "was run for 2 of the 5 missed numbers and reproduces 1 of these 2; it was not run for the "
        "other 3."
    ) in met.text
    both = [*meets, _single("har", 0.5, 1.0, live=5)]
    (met, *_) = judge("single", cells, variants={RELEASED: both}).claims
    assert met.evidence["released"] == {"missed": 5, "run": 5, "met": 1}
    assert "was not run" not in met.text


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

    Modules of Yeast are dead with IMP, and so met and ordered in none; HAR lacks ME and has no
    order.
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

    ours = {place: off or _dead(place) for place, off in _off(cells).items()}
    missed = {place for place, off in ours.items() if off}
    released = _off(others)
    both = [place for place in ours if place in released]
    same = [place for place in missed if place in released]
    assert 0 < len(same) < len(missed) < len(ours)
    assert met.counted == f"{len(ours) - len(missed)} of {len(ours)}"
    assert met.evidence["variants"] == {RELEASED: [sum(not released[p] for p in both), len(both)]}
    assert (
        f"Preset `released`: reproduces {sum(not released[p] for p in both)} of {len(both)} of the "
        f"same numbers and {sum(not released[p] for p in same)} of {len(same)} of those missed "
        "above."
    ) in met.details
    held = _ordered(cells)
    pruned = [result for place, result in held.items() if place[-1] == "pruned"]
    assert 0 < sum(held.values()) < len(held)
    assert (order.evidence["count"], order.n) == (sum(held.values()), len(held))
    assert f"in {sum(pruned)} of {len(pruned)} groups with IMP" in order.text
    assert (order.evidence["dead"], met.evidence["dead"]) == (2, sum(map(_dead, ours)))
    assert list(result.failed) == ["Yeast with IMP"]
    assert "(2 groups)" in result.failed["Yeast with IMP"]
    number = logits.evidence["with IMP"]
    assert (number["count"], number["dead"]) == (0, 6)  # logits are the same numbers here
    assert number["of"] == 3 * len(pruned) + 2 * 2  # with HAR's two objectives
    for claim in (met, order):
        assert f"{claim.counted} {claim.short}" in result.line
    assert logits.holds is None


def test_a_study_that_the_paper_did_not_print_says_so() -> None:
    (claim,) = judge("single", [_single("digits", 0.9, 2.0, live=5)]).claims
    assert "prints no number" in claim.text
    assert claim.holds is None


def test_complete_merges_are_compared_by_what_their_archives_differ_in() -> None:
    ends = {PAPER: 0.7, LAYER: 0.93, RELEASED: 0.95}
    main, *variants = (
        [_complete("paper", seed, end) for seed in range(2)] for end in ends.values()
    )
    result = judge("complete", main, variants=dict(zip(list(ends)[1:], variants, strict=True)))
    assert result.claims[0].holds is False
    assert f"does not reproduce under {PAPER}: " in result.claims[0].text
    assert "the accuracy of all modules is 0.7050 (0.0071) on MNIST." in result.claims[0].text
    assert "Not run: Fashion-MNIST (shallow)." in result.text
    assert "deep" not in result.text
    assert f"{LAYER} 0.9350 (0.0071)" in result.markdown()
    assert f"{capital(LAYER)} differs from {PAPER} only in the settings it names" in result.text
    assert result.line == (
        f"on MNIST, the sum of all 2 modules has accuracy 0.705 (0.935 under {LAYER} and 0.955 "
        f"under {RELEASED}); the paper reports above 0.90"
    )


def test_operators_are_best_where_the_test_says_so() -> None:
    clear = {"sum": [0.5, 0.51, 0.52], "logits": [0.9, 0.91, 0.92], "inlay": [0.9, 0.91, 0.92]}
    level = {"sum": [0.5, 0.51, 0.52], "logits": [0.5, 0.52, 0.53], "mean": [0.1, 0.11, 0.12]}
    alike = {"sum": [0.25, 0.25], "logits": [0.25, 0.25]}
    assert best_operators([clear, level]) == [["logits", "inlay"], ["logits", "sum"]]
    (claim,) = operator_claims([clear, level, alike], "with IMP")
    assert claim.evidence == {"logits": 1, "inlay": 1}
    assert claim.n == 2
    test = "significant: by Welch's t-test at 95%"
    assert claim.text == (
        "Operators with IMP: in 2 settings (data, model), significantly above all others: logits "
        "and inlay in 1; in the rest, not significantly below the best: logits and sum in 1 "
        f"({test}, with Holm's correction for 4 comparisons); in 1 more setting, all operators "
        "give the same answers, as dead modules do."
    )
    assert claim.details == [
        "Operators that give one network of the same shape, with IMP: in 1 setting (data, model), "
        f"significantly above all others: sum in 1 ({test})."
    ]
    assert operator_claims([alike], "with IMP") == []


def test_operators_are_tested_as_one_family() -> None:
    """One comparison at p = 0.03 is clear; twenty of the kind are not, by Holm's correction."""
    sums, logits = [0.5, 0.6, 0.7, 0.8], [0.68, 0.78, 0.88, 0.98]
    ends = {"sum": sums, "logits": [value + 0.05 for value in logits]}
    assert 0.02 < stats.ttest_ind(ends["logits"], sums, equal_var=False).pvalue < 0.05
    assert best_operators([ends]) == [["logits"]]
    assert best_operators([ends] * 20) == [["logits", "sum"]] * 20


def test_a_best_one_is_sure_for_the_number_of_places_that_are_asked() -> None:
    values = {0.1: [0.5, 0.6, 0.7, 0.8], 0.9: [0.73, 0.83, 0.93, 1.03], None: []}
    assert surely_best({"one": values}) == {"one": True}
    assert surely_best(dict.fromkeys(range(20), values)) == dict.fromkeys(range(20), False)
    assert surely_best({"alone": {0.1: [0.5, 0.6]}, "few": {0.1: [0.5], 0.2: [0.9]}}) == {
        "alone": False,
        "few": False,
    }
    assert "Holm" in by_the_test(2)
    assert "Holm" not in by_the_test(1)


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
        "best objective for logits: `other` (significant) with IMP and `other` (significant) "
        "without IMP; for sum: `me` (significant) with IMP and `me` (significant) without IMP"
    )
    (claim,) = result.claims
    assert claim.evidence["sum with IMP"] == ["me"]
    assert "Inlay gives the same numbers as logits" in claim.text
    assert len(claim.details) == 4
    assert claim.details[0] == (
        "Accuracy by logits (MNIST, shallow, with IMP): `other` 0.9510 (0.0010), next `me` 0.9010 "
        "(0.0010), significant."
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
    assert result.claims[0].evidence["sum"] == {"qme": [1, 0, 2], "me": [1, 0, 2]}
    assert (
        "most accurate under QME in 1 of 2 (significant in 0) and ME in 1 of 2 (significant in 0) "
        "(1 seed)"
    ) in result.line
    assert "Figures 15 to 21 average five seeds" in result.text
    assert "nearly uniform" in result.text
    assert len(result.details) == 2


@pytest.mark.parametrize(
    ("n", "ends", "text", "holds"),
    [
        (2, (0.1, 0.11), "stays near chance at every width (0.101 to 0.111, chance 0.100)", False),
        (2, (0.3, 0.9), "with 64 (rising in 1 of 1 steps, n = 2).", True),
        (3, (0.3, 0.9), "with 64 (rising in 1 of 1 steps, n = 3, significant).", True),
        (
            3,
            (0.9, 0.3),
            "with 64 (rising in 0 of 1 steps, n = 3, not significant).",
            False,
        ),
        (3, (0.3, 0.301), "with 64 (rising in 1 of 1 steps, n = 3, not significant).", None),
    ],
)
def test_width_is_tested_where_there_are_seeds_enough(
    n: int, ends: tuple[float, float], text: str, holds: bool | None
) -> None:
    cells = []
    for (units, end), seed in product(zip((32, 64), ends, strict=True), range(n)):
        curve = {"accuracy": [0.9] * 9 + [end + seed / 500], "entropy": []}
        settings = {"data": "mnist", "model": f"mlp(hidden=[{units}])", "imp": True, "seed": seed}
        cells.append(Measured(settings, {"curves": {"sum": [curve]}}))
    _, claim, *test = judge("width", cells).claims
    assert len(test) == (n > 2)
    assert text in claim.text
    assert claim.holds is holds


def test_confusions_are_tested_over_seeds() -> None:
    """Five seeds tell two objectives apart, three places more than one of them does not."""
    cells = [
        _confusion(model, objective, right + seed % 2, seed)
        for model in ("shallow", "deep")
        for objective, right in (("qme", 3), ("me", 8))
        for seed in range(5 if model == "shallow" else 1)
    ]
    result = judge("confusion", cells)
    assert result.claims[0].evidence["sum"] == {"me": [2, 1, 2]}  # deep has one seed: no test
    assert result.line.endswith("(5 seeds for shallow, 1 seed for deep)")
    figure = find_study("confusion").figures(cells)["confusion-mnist-shallow-me-imp"]
    words = {text.get_text() for ax in figure.axes for text in ax.texts}
    assert {"8", "2"} <= words  # means over seeds: 8.4 of 10, rounded
    assert "42" not in words


def test_the_best_sparsity_of_pairs_is_said_by_mean_and_by_the_test() -> None:
    values = {0.3: [0.90, 0.94, 0.98], 0.6: [0.92, 0.96, 1.0], 0.9: [0.5, 0.51, 0.52]}
    settings = {"data": "mnist", "model": "cnn", "size": 2, "seed": 0, "operators": ["sum"]}
    cells = [
        Measured({**settings, "sparsity": s}, {"accuracy": {"sum": own}, "entropy": {"sum": []}})
        for s, own in values.items()
    ]
    (claim,) = judge("sparsity", cells).claims
    assert claim.evidence == {"by mean": 1, "by the test": 0, "of": 1}
    assert claim.holds is False
    assert "the highest mean here in 1 of 1 sizes, significantly in 0 of 1" in claim.text
    assert "some of which share a module, are treated as independent" in claim.text
    cells[0].result["accuracy"]["sum"] = [0.5, 0.51, 0.52]
    (claim,) = judge("sparsity", cells).claims
    assert claim.evidence == {"by mean": 1, "by the test": 1, "of": 1}
    assert claim.holds


@pytest.mark.parametrize(("models", "survive"), [(1, 1), (6, 0)])
def test_gains_are_corrected_for_all_that_are_asked(models: int, survive: int) -> None:
    """A gain of p = 0.015 over four seeds is sure alone, and no more among six of its kind."""
    cells = []
    for model, seed in product(range(models), range(4)):
        gain = (0.1, 0.05, 0.12, 0.06)[seed]
        states = {
            state: {
                how: {"accuracy": [0.5 + more], "entropy": [None]}
                for how, more in (("sum", shift), ("logits", shift + gain))
            }
            for state, shift in (("unpruned", 0.0), ("pruned", gain))
        }
        settings = {"data": "mnist", "model": f"m{model}", "preset": "paper", "size": 1}
        cells.append(Measured({**settings, "objective": "me", "seed": seed}, states))
    own = judge("impact", cells).claims[0].evidence
    assert own["tests"]["over seeds"] == {"rises": models, "falls": 0}
    assert own["tests"]["over seeds, Holm"] == {"rises": survive, "falls": 0}
    logits = judge("pairs", cells).claims[2].evidence["with IMP"]
    assert (logits["count"], logits["over seeds, Holm"]) == (models, survive)


@pytest.mark.parametrize(("places", "sure"), [(1, True), (20, False)])
def test_width_is_corrected_for_all_places(places: int, sure: bool) -> None:
    cells = []
    for place, units, seed in product(range(places), (32, 64), range(4)):
        curve = {"accuracy": [0.9, 0.5 + seed / 10 + 0.23 * (units == 64)], "entropy": []}
        settings = {"data": f"d{place}", "model": f"mlp(hidden=[{units}])", "imp": True}
        cells.append(Measured({**settings, "seed": seed}, {"curves": {"sum": [curve]}}))
    text = judge("width", cells).text
    assert ("n = 4, significant" in text) is sure
    assert ("n = 4, not significant" in text) is not sure


def test_pruning_is_judged_first_in_the_paper_s_own_setting() -> None:
    """ME on two data sets is Figure 3; other objectives, data sets and dead modules come after."""
    cells = []
    for data, objective, change in (
        ("mnist", "me", 0.1),
        ("fashion_mnist", "me", -0.1),
        ("har", "me", 0.1),
        ("mnist", "xe", -0.2),
        ("yeast", "me", 0.0),
        ("yeast", "xe", 0.0),
    ):
        cells += [_impact(data, objective, change, seed) for seed in range(4)]
    result = judge("impact", cells)
    own, whole, *_ = result.claims
    assert result.line.startswith("1 of 2 settings of Figure 3 (ME on MNIST and Fashion-MNIST)")
    assert (own.evidence["count"], own.evidence["of"], own.holds) == (1, 2, False)
    assert own.evidence["tests"]["over seeds"] == {"rises": 1, "falls": 1}
    assert whole.evidence["accuracy"] == "2 of 6"  # Yeast's are dead: risen in none
    assert whole.evidence["entropy"] == "2 of 6"
    assert list(result.failed) == ["Yeast with IMP"]
    assert "(2 dead)" in result.line


def test_paths_are_counted_by_every_reading_and_first_on_the_paper_s_data() -> None:
    """Two seeds of one pair: one path is over 2%, their mean is not."""
    cells = [
        _walked(data, seed, excess)
        for data, own in {"mnist": [5.0, 5.0], "fashion_mnist": [3.0, 0.0]}.items()
        for seed, excess in enumerate(own)
    ]
    result = judge("path", cells)
    _, theirs, others = result.claims
    assert theirs.evidence["with IMP"] == {
        "path by path": [1, 2],
        "in the mean": [1, 1],
        "at the sum": [2, 2],
    }
    assert theirs.holds
    assert others.evidence["with IMP"]["in the mean"] == [0, 1]
    assert others.holds is None
    assert result.line.startswith("on Fashion-MNIST, connected paths with IMP: 1 of 2 path by path")
    assert result.line.endswith("HAR, which the paper shows too, not run")
    with_har = judge("path", [*cells, _walked("har", 0, 0.0)])
    assert with_har.line.startswith("on Fashion-MNIST and HAR, connected paths with IMP: 2 of 3")
    assert "not run" not in with_har.line


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


def _spread_out(model: str, data: str, seed: int, dead: bool) -> Measured:
    """Modules around the paper's numbers, near or farther off."""
    chance = random.Random(f"{model}{data}{seed}")
    result: dict[str, Any] = {"classes": ["0", "1"]}
    for state, imp in (("unpruned", False), ("pruned", True)):
        cell = single_cell(model, data, imp)
        assert cell is not None
        assert cell.entropy is not None
        off = 0.008 if imp else 0.002
        result[state] = {
            "accuracy": [chance.gauss(cell.accuracy.mean - off, 0.04) for _ in range(10)],
            "entropy": [chance.gauss(cell.entropy.mean - 2 * off, 0.09) for _ in range(10)],
            "live": [0 if dead and imp else 9] * 10,
            "density": [0.5] * 10,
            "units": [512] * 10,
        }
    settings = {"data": data, "model": model, "preset": "paper", "objective": "me", "seed": seed}
    return Measured(settings, result)


def _tost(ours: Spread, theirs: Any, n: int, margin: float) -> float:
    """The larger p of two one-sided tests of Welch's, by scipy."""
    sides = {"greater": -margin, "less": margin}
    return max(
        stats.ttest_ind_from_stats(
            *(ours.mean, ours.sd, ours.n, theirs.mean + shift, theirs.sd, n),
            equal_var=False,
            alternative=side,
        ).pvalue
        for side, shift in sides.items()
    )


def _holm(values: list[float]) -> list[float]:
    """By its definition: the k-th smallest of m by m - k, no less than a smaller one."""
    order = sorted(values)
    steps = [min(1.0, (len(order) - k) * p) for k, p in enumerate(order)]
    return [max(steps[: order.index(p) + 1]) for p in values]


def _impact(data: str, objective: str, change: float, seed: int) -> Measured:
    """Two pairs before pruning and after it; Yeast's modules are dead then."""
    before = [0.5 + seed / 100, 0.6]
    after = [0.5, 0.5] if data == "yeast" else [value + change + seed / 500 for value in before]
    states = {
        state: {how: {"accuracy": values, "entropy": values} for how in ("sum", "logits")}
        for state, values in (("unpruned", before), ("pruned", after))
    }
    states["unpruned"]["sum"] = {
        what: [v + (objective == "xe") / 10 for v in before] for what in ("accuracy", "entropy")
    }
    if data != "yeast" and objective == "xe":
        states["pruned"]["sum"] = {
            what: [v + 0.1 for v in after] for what in ("accuracy", "entropy")
        }
    settings = {"data": data, "model": "deep", "preset": "paper", "size": 1}
    return Measured({**settings, "objective": objective, "seed": seed}, states)


def _walked(data: str, seed: int, excess: float) -> Measured:
    """One path that rises before the sum and falls there."""
    curve = {"excess": [0.0, excess, -9.0, 0.0, 0.0], "loss": [1.0] * 5, "ends": [1.0, 1.0]}
    curve |= {"largest": excess, "connected": excess <= 2, "samples": [5, 5]}
    walks = [{"pair": ["0", "1"], "train": curve, "test": curve}]
    settings = {"data": data, "model": "deep", "seed": seed}
    result = {"t": [0.0, 0.25, 0.5, 0.75, 1.0], "pruned": walks, "unpruned": walks}
    return Measured(settings, result)


def _confusion(model: str, objective: str, right: int, seed: int = 0) -> Measured:
    """Two classes of ten samples; the sum of both modules answers so many of the first right."""
    counts = [[right, 10 - right], [0, 10]]
    modules = [{"parts": [name], "counts": counts} for name in ("0", "1")]
    merge = {"parts": ["0", "1"], "operator": "sum", "counts": counts}
    settings = {"data": "mnist", "model": model, "imp": True, "objective": objective, "seed": seed}
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
    """By group that has all three objectives, whether they are in order; dead ones are not."""
    held = {}
    for state in ("unpruned", "pruned"):
        means = _means(cells, state, "accuracy")
        for group in {place[:3] for place in means}:
            if (*group, "me") in means:
                order = means[*group, "me"] > means[*group, "qme"] > means[*group, "xe"]
                held[*group, state] = order and not _dead((*group, "me", state))
    return held


def _dead(place: tuple[Any, ...]) -> bool:
    """Data, model, size, objective, state: where the test makes modules that are cut through."""
    return place[0] == "yeast" and place[1] == "shallow" and place[4] == "pruned"
