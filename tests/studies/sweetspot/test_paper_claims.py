"""Claims on cells whose numbers are made up, so that the verdict is known."""

from collections.abc import Sequence
from typing import Any

import pytest

from intarsia.studies import Measured
from intarsia.studies.sweetspot.paper_claims import (
    SCORE,
    ClaimRow,
    claim_rows,
    compare_losses,
    matched_scores,
    score_limit,
    shares_of,
)

SEEDS = range(8)
SMALL = [1 + 0.01 * seed for seed in SEEDS]  # a little noise, the same everywhere
OTHER = [1 + 0.01 * (seed * 3 % 8) for seed in SEEDS]


def cell(
    part: str,
    loss: float = 1e-3,
    score: float = 1.0,
    seeds: Sequence[int] = SEEDS,
    result: dict[str, Any] | None = None,
    **settings: Any,
) -> Measured:
    noise = [SMALL[seed] for seed in seeds]
    values = {
        "seeds": list(seeds),
        "losses": [loss * own for own in noise],
        "scores": [score * (1 + 0.001 * (seed % 3)) for seed in seeds],
        "flat": [False for _ in seeds],
        "orthogonality": [0.4 + 0.001 * seed for seed in seeds],
        "nonzero": [100 for _ in seeds],
        "distinct": [5 for _ in seeds],
        "maps": [9 for _ in seeds],
        "depth": 12 + settings.get("offset", 0),
    }
    own = {"data": "skull", "part": part, "recipe": {"size": 8}, "seeds": list(seeds), **settings}
    return Measured(own, {**values, **(result or {})})


def arm(name: str, loss: float = 1e-3, score: float = 1.0, **more: Any) -> Measured:
    dense = name == "dense"
    own = {"round": 0} if dense else {"round": 1, "weights": 1404}
    return cell("arms", loss, score, arm=name, **own, **more)


def row_of(cells: Sequence[Measured], claim: str, where: str = "") -> ClaimRow:
    (found,) = [row for row in claim_rows(cells) if row.claim == claim and where in row.where]
    return found


def test_scores_are_compared_at_like_loss_alone() -> None:
    one = {0: (1.0, 1.1), 1: (2.0, 1.2), 2: (9.0, 1.3), 3: (1.0, None)}
    other = {0: (1.2, 2.1), 1: (1.05, 2.2), 2: (2.1, 2.3), 3: (5.0, 2.4)}
    assert sorted(matched_scores(one, other)) == [(1.1, 2.2), (1.2, 2.3)]


def test_losses_are_paired_by_seed() -> None:
    one = {seed: (10.0**-seed, None) for seed in SEEDS}
    twice = {seed: (2 * loss * SMALL[seed], None) for seed, (loss, _) in one.items()}
    assert compare_losses(twice, one).sign() == 1
    assert compare_losses(one, twice).sign() == -1
    few = {seed: own for seed, own in twice.items() if seed < 4}
    assert compare_losses(few, one).sign() is None


def test_which_connections_matter() -> None:
    random = arm("random", 2e-2, result={"losses": [2e-2 * own for own in OTHER]})
    assert row_of([arm("magnitude"), random], "1").holds is True
    same = arm("random", result={"losses": [1e-3 * own for own in OTHER]})
    assert row_of([arm("magnitude"), same], "1").holds is False
    assert row_of([arm("magnitude", seeds=range(3)), same], "1").holds is None
    unsure = arm("random", result={"losses": [1e-3, 1e-2] * 4})
    assert row_of([arm("magnitude", 3e-3), unsure], "1").holds is None


def test_similarity_must_have_less_inflation_than_all_at_like_loss() -> None:
    others = [arm("magnitude", score=1.2), arm("random_units", score=1.1)]
    assert row_of([arm("similarity"), *others], "3").holds is True
    better = arm("magnitude", score=0.9)
    assert row_of([arm("similarity"), better, others[1]], "3").holds is False


def test_less_inflation_at_a_larger_loss_is_no_evidence() -> None:
    """The trap that the score sets: a picture that is drawn worse inflates less."""
    worse = arm("similarity", 2e-2, score=0.9)
    row = row_of([worse, arm("magnitude", 1e-3, score=1.2)], "3")
    assert row.holds is False
    assert "no pairs" in row.numbers


def test_a_control_that_similarity_cannot_be_compared_with_leaves_it_open() -> None:
    far = arm("magnitude", 5e-2, score=1.2)
    assert row_of([arm("similarity"), arm("random", score=1.1), far], "3").holds is None


@pytest.mark.parametrize(
    ("before", "after", "holds"),
    [(4e-3, 4e-3, True), (1e-3, 4e-3, False), (1.05e-3, 1.05e-3, False)],
)
def test_a_peak_wants_both_neighbours_to_fail(before: float, after: float, holds: bool) -> None:
    losses = {-1: before, 0: 1e-3, 1: after}
    scan = [
        cell(
            "depth", arm="dense", offset=offset,
            result={"losses": [loss * own for own in (OTHER if offset else SMALL)]},
        )
        for offset, loss in losses.items()
    ]  # fmt: skip
    assert row_of(scan, "2").holds is holds


def test_orders_of_three_targets_tell_nothing() -> None:
    cells = []
    for depth, data in enumerate(("skull", "butterfly", "apple")):
        own = {"256": 0.1 * depth, "64": -0.1 * depth}
        cells += [cell("reference", result={"png": own}), cell("depth", arm="dense", offset=depth)]
        for each in cells[-2:]:
            each.settings["data"] = data  # type: ignore[index]
    row = row_of(cells, "4")
    assert (row.holds, row.n) == (None, 3)
    assert "at 256 pixels the same order, at 64 pixels a different order" in row.numbers


def test_an_evolved_wiring_that_is_stuck_does_not_reproduce() -> None:
    stuck = cell("wiring", 4e-2, copies="held")
    assert row_of([stuck], "5").holds is False
    dense = arm("dense", score=1.2)
    assert row_of([cell("wiring", copies="held"), dense], "5").holds is True
    assert row_of([cell("wiring", score=1.2, copies="held"), dense], "5").holds is None


def test_orthogonality_is_compared_with_the_same_seed() -> None:
    moved = {"orthogonality": [0.5 + 0.001 * (seed * 3 % 8) for seed in SEEDS]}
    assert row_of([arm("dense"), arm("similarity", result=moved)], "6").holds is True
    same = {"orthogonality": [0.4 + 0.001 * (seed * 3 % 8) for seed in SEEDS]}
    assert row_of([arm("dense"), arm("similarity", result=same)], "6").holds is False
    unsure = {"orthogonality": [0.3, 0.5] * 4}
    assert row_of([arm("dense"), arm("similarity", result=unsure)], "6").holds is None


@pytest.mark.parametrize(
    ("best", "holds"), [((6, 2), True), ((12, 2), False), (None, None)], ids=str
)
def test_a_sweet_spot_lies_inside(best: tuple[int, int] | None, holds: bool | None) -> None:
    grid = [
        cell("volume", 1e-4 if best in ((w, d), None) else 1e-1, width=w, depth=d)
        for w in (3, 6, 12)
        for d in (1, 2, 3)
    ]
    assert row_of(grid, "7").holds is holds
    if best:
        assert shares_of(grid)[best] == (8, 8)


def test_the_limit_of_the_score_lies_between_evolved_network_and_twin() -> None:
    both = {"evolved": {"scores": [1.0, None]}, "twin": {"scores": [1.1, 1.3]}}
    assert score_limit([cell("reference", result=both)]) == pytest.approx(1.1)
    assert score_limit([cell("reference")]) == SCORE


def test_flat_pictures_have_no_score() -> None:
    flat = cell("volume", 1e-4, width=3, depth=1, result={"flat": [True] * 8})
    assert shares_of([flat]) == {(3, 1): (0, 8)}


def test_optimisers_are_compared_at_their_best_rates() -> None:
    cells = [
        cell("optimisers", 1e-3, optimiser="adam", learning_rate=3e-3),
        cell("optimisers", 1e-1, optimiser="adam", learning_rate=5e-3),
        cell("optimisers", 1e-2, optimiser="muon(steps=20)", learning_rate=1e-4),
        cell(
            "optimisers", optimiser="muon(steps=20)", learning_rate=3e-3,
            result={"losses": [1e-4 * own for own in OTHER]},
        ),
    ]  # fmt: skip
    assert row_of(cells, "optimisers").holds is True
    assert row_of(cells[:3], "optimisers").holds is False
