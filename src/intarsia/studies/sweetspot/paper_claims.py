"""What the paper claims, row by row, and whether the cells bear it out.

Losses are compared by their logarithms, paired by seed. Inflation moves with the loss, so it is
compared between networks of like loss alone: each of one group with one of the other whose loss is
nearest, at most a factor LIKE apart. Networks whose picture is one flat colour have no score here;
their losses count. With fewer than FEWEST pairs nothing can be told.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from intarsia.measure.significance import LEVEL, TTest, above, clustered, holm
from intarsia.studies.cells import Measured
from intarsia.studies.sweetspot.pattern_cells import (
    ARM,
    CONNECTIONS,
    DENSE,
    DEPTH,
    OPTIMISER,
    RANDOM,
    REFERENCE,
    UNITS,
    VOLUME,
    WIRING,
)
from intarsia.studies.tables import finite, grouped
from intarsia.studies.verdict import Claim
from intarsia.studies.wording import listed

FEWEST = 5  # seeds or pairs
LIKE = 1.5  # losses that are taken for alike differ by at most this factor
FAILS = 2.0  # a depth whose loss is so many times that of another fails beside it
STUCK = 2e-2  # a loss at which nothing like the target is drawn
SAME_LOSS, SAME_MAPS = 1.25, 0.02  # a factor of losses, a change of orthogonality: as good as none
LOSS, SCORE = 1e-2, 1.05  # at most so much have networks that count in the map of width and depth
POINTS = 4  # targets of which an order can be told by a rank test at all
SIMILAR = (UNITS, CONNECTIONS)
WORDS = {True: "reproduces", False: "does not reproduce", None: "inconclusive"}
PAPER = {
    "1": "which connections are kept matters, not sparsity alone",
    "2": "the score peaks at one depth, and neighbouring depths fail",
    "3": "similarity pruning finds the connectivity",
    "4": "the PNG ratio of the target tracks its best depth",
    "5": "the evolved wiring, retrained, gives partly compositional maps",
    "6": "similarity pruning changes the orthogonality of features",
    "7": "there is a sweet spot of width and depth",
    "optimisers": "Muon with 20 Newton-Schulz steps reaches the lowest loss",
}


@dataclass(frozen=True)
class ClaimRow:
    """A claim of the paper on one target: whether it holds, n, and what was measured."""

    claim: str
    where: str
    holds: bool | None
    n: int
    numbers: str
    evidence: Mapping[str, Any]

    @property
    def word(self) -> str:
        return WORDS[self.holds]

    def to_claim(self) -> Claim:
        kind = f"Claim {self.claim}" if self.claim.isdecimal() else self.claim.capitalize()
        text = f"{kind} ({PAPER[self.claim]}), {self.where}: {self.word} (n {self.n})."
        detail = f"{kind}, {self.where}: {self.numbers}"
        return Claim(text, self.holds, self.evidence, self.n, details=[detail])


def claim_rows(done: Sequence[Measured]) -> list[ClaimRow]:
    """All claims that the cells say anything about, in the paper's order."""
    parts = {key[0]: own for key, own in grouped(done, "part").items()}
    by_target = {
        part: {key[0]: group for key, group in grouped(own, "data").items()}
        for part, own in parts.items()
    }
    rows: list[ClaimRow] = []
    for data, group in by_target.get(ARM, {}).items():
        rows += [*which_connections(data, group), *finds_wiring(data, group)]
        rows += orthogonality_changes(data, group)
    for data, group in by_target.get(DEPTH, {}).items():
        rows += peak_of_depth(data, group)
    rows += png_and_depth(by_target.get(REFERENCE, {}), by_target.get(DEPTH, {}))
    for data, group in by_target.get(WIRING, {}).items():
        rows += wiring_again(data, group, by_target.get(ARM, {}).get(data, ()))
    for data, group in by_target.get(VOLUME, {}).items():
        rows += sweet_spot(data, group, score_limit(by_target.get(REFERENCE, {}).get(data, ())))
    for data, group in by_target.get(OPTIMISER, {}).items():
        rows += lowest_loss(data, group)
    order = list(PAPER)
    return sorted(rows, key=lambda row: order.index(row.claim))


# Numbers of cells, by seed


Networks = Mapping[int, tuple[float, float | None]]
"""By seed the loss, and the inflation, which is None for a flat picture or where none exists."""


def networks_of(cell: Measured) -> dict[int, tuple[float, float | None]]:
    result = cell.result
    each = zip(result["losses"], result["scores"], result["flat"], strict=True)
    values = [(loss, None if flat else score) for loss, score, flat in each]
    return dict(zip(result["seeds"], values, strict=True))


def matched_scores(one: Networks, other: Networks) -> list[tuple[float, float]]:
    """Scores of pairs of like loss, the nearest first, each network in one pair at most."""
    pairs = sorted(
        (abs(math.log(max(a[0], 1e-12) / max(b[0], 1e-12))), i, j)
        for i, a in one.items()
        for j, b in other.items()
        if a[1] is not None and b[1] is not None
    )
    found: dict[int, int] = {}
    for distance, i, j in pairs:
        if distance <= math.log(LIKE) and i not in found and j not in found.values():
            found[i] = j
    return [(float(one[i][1] or 0), float(other[j][1] or 0)) for i, j in found.items()]


@dataclass(frozen=True)
class PairedDifference:
    """One group less another, pair by pair, and p of their mean after Holm's correction."""

    gaps: tuple[float, ...]
    p: float = 1.0

    @classmethod
    def of(cls, gaps: Iterable[float]) -> "PairedDifference":
        own = tuple(gaps)
        test = _student(own)
        return cls(own, 1.0 if test is None else test.p)

    @property
    def n(self) -> int:
        return len(self.gaps)

    @property
    def difference(self) -> float:
        return fmean(self.gaps) if self.gaps else math.nan

    @property
    def enough(self) -> bool:
        return self.n >= FEWEST

    def sign(self) -> int | None:
        """1 or -1 where the test says so, 0 where it does not, None where there are too few."""
        if not self.enough:
            return None
        return 0 if self.p >= LEVEL else 1 if self.difference > 0 else -1

    def below(self, margin: float) -> bool:
        """Whether the mean is below a margin, by a test of its own."""
        test = _student([gap - margin for gap in self.gaps])
        return self.enough and test is not None and test.t < 0 and test.p < 2 * LEVEL

    def within(self, margin: float) -> bool:
        """Whether the mean is nearer to 0 than a margin: two one-sided tests."""
        other = PairedDifference(tuple(-gap for gap in self.gaps))
        return self.below(margin) and other.below(margin)


def _student(gaps: Sequence[float]) -> TTest | None:
    """The test that their mean is 0; None of fewer than two."""
    return clustered({n: [gap] for n, gap in enumerate(gaps)}, {n: [0.0] for n in range(len(gaps))})


def compare_losses(one: Networks, other: Networks) -> PairedDifference:
    """log10 of the loss, paired by seed."""
    a, b = ({s: math.log10(max(own[0], 1e-12)) for s, own in who.items()} for who in (one, other))
    return PairedDifference.of(a[seed] - b[seed] for seed in a if seed in b)


def compare_scores(one: Networks, other: Networks) -> PairedDifference:
    """Inflation at like loss."""
    return PairedDifference.of(a - b for a, b in matched_scores(one, other))


def corrected(family: Mapping[Any, PairedDifference]) -> dict[Any, PairedDifference]:
    """The same, with p corrected for as many tests as there are."""
    tested = [key for key, own in family.items() if own.enough]
    values = dict(zip(tested, holm([family[key].p for key in tested]), strict=True))
    return {key: replace(own, p=values.get(key, 1.0)) for key, own in family.items()}


# The claims


def rounds_of(group: Sequence[Measured]) -> dict[tuple[int, int], dict[str, Networks]]:
    """By round and weights, the networks of every arm."""
    pruned = [cell for cell in group if cell.settings["arm"] != DENSE]
    return {
        (key[0], key[1]): {cell.settings["arm"]: networks_of(cell) for cell in own}
        for key, own in grouped(pruned, "round", "weights").items()
    }


def which_connections(data: str, group: Sequence[Measured]) -> list[ClaimRow]:
    """At equal weights the loss differs from that of weights kept at random, for some arm.

    It does not where that of every arm is shown to be as good as the same.
    """
    rows = []
    for (_, weights), arms in rounds_of(group).items():
        if RANDOM not in arms or len(arms) < 2:
            continue
        others = {arm: own for arm, own in arms.items() if arm != RANDOM}
        losses = corrected({a: compare_losses(own, arms[RANDOM]) for a, own in others.items()})
        scores = corrected({a: compare_scores(own, arms[RANDOM]) for a, own in others.items()})
        holds = True if any(own.sign() for own in losses.values()) else None
        if all(own.within(math.log10(SAME_LOSS)) for own in losses.values()):
            holds = False
        numbers = (
            f"loss relative to random weights: {_factors(losses)}; difference in inflation at "
            f"similar loss: {_gaps(scores)}"
        )
        n = max((own.n for own in losses.values()), default=0)
        evidence = {a: own.difference for a, own in losses.items() if own.n}
        rows.append(ClaimRow("1", f"{data}, {weights} weights", holds, n, numbers, evidence))
    return rows


def finds_wiring(data: str, group: Sequence[Measured]) -> list[ClaimRow]:
    """Similarity has less inflation at like loss than every other arm.

    It does not where another arm has less, or draws the picture better and has no more.
    """
    rows = []
    for (_, weights), arms in rounds_of(group).items():
        others = {arm: own for arm, own in arms.items() if not arm.startswith(SIMILAR)}
        for name in [arm for arm in SIMILAR if arm in arms and others]:
            losses = corrected({a: compare_losses(arms[name], own) for a, own in others.items()})
            scores = corrected({a: compare_scores(arms[name], own) for a, own in others.items()})
            holds = _finds(losses, scores)
            numbers = (
                f"loss relative to other arms: {_factors(losses)}; difference in inflation at "
                f"similar loss: {_gaps(scores)}"
            )
            n = max((own.n for own in losses.values()), default=0)
            evidence = {a: own.difference for a, own in scores.items() if own.n}
            where = f"{data}, {weights} weights, {name}"
            rows.append(ClaimRow("3", where, holds, n, numbers, evidence))
    return rows


def _finds(
    losses: Mapping[str, PairedDifference], scores: Mapping[str, PairedDifference]
) -> bool | None:
    less = {arm: own.sign() for arm, own in scores.items()}
    if less and all(sign == -1 for sign in less.values()):
        return True
    beaten = any(less[a] == 1 or (own.sign() == 1 and less[a] != -1) for a, own in losses.items())
    return False if beaten else None


def orthogonality_changes(data: str, group: Sequence[Measured]) -> list[ClaimRow]:
    """After similarity pruning and training on, orthogonality is another than of dense networks.

    It is not where the change is shown to be as good as none.
    """
    dense = next((cell for cell in group if cell.settings["arm"] == DENSE), None)
    if dense is None:
        return []
    rows = []
    pruned = [cell for cell in group if cell.settings["arm"] != DENSE]
    for (_, weights), own in grouped(pruned, "round", "weights").items():
        changes = {c.settings["arm"]: _change(c, dense) for c in own}
        if UNITS not in changes:
            continue
        found = changes[UNITS]
        holds = True if found.sign() else False if found.within(SAME_MAPS) else None
        others = {arm: change for arm, change in changes.items() if arm != UNITS}
        more = f"; other arms: {_gaps(others)}" if others else ""
        numbers = f"change of orthogonality: {_gaps({UNITS: found})}{more}"
        evidence = {arm: change.difference for arm, change in changes.items() if change.n}
        where = f"{data}, {weights} weights"
        rows.append(ClaimRow("6", where, holds, found.n, numbers, evidence))
    return rows


def _change(after: Measured, before: Measured) -> PairedDifference:
    a, b = (
        dict(zip(cell.result["seeds"], cell.result.get("orthogonality", ()), strict=False))
        for cell in (after, before)
    )
    both = [seed for seed in a if a[seed] is not None and b.get(seed) is not None]
    return PairedDifference.of(a[seed] - b[seed] for seed in both)


def peak_of_depth(data: str, group: Sequence[Measured]) -> list[ClaimRow]:
    """One layer less and one more fail: the loss doubles, or inflation rises at like loss."""
    rows = []
    for (arm,), own in grouped(group, "arm").items():
        scan = {cell.settings["offset"]: networks_of(cell) for cell in own}
        if not {-1, 0, 1} <= set(scan):
            continue
        losses = corrected({place: compare_losses(scan[place], scan[0]) for place in (-1, 1)})
        scores = corrected({place: compare_scores(scan[place], scan[0]) for place in (-1, 1)})
        fails = [_fails(losses[place], scores[place]) for place in (-1, 1)]
        holds = all(fails) if None not in fails else None if False not in fails else False
        medians = {o: median(loss for loss, _ in n.values()) for o, n in sorted(scan.items()) if n}
        best = min(medians, key=medians.__getitem__)
        curve = ", ".join(f"{offset:+d} {loss:.1e}" for offset, loss in medians.items())
        numbers = (
            f"median loss by offset in layers: {curve}; loss relative to offset 0: "
            f"{_factors({f'{p:+d}': own for p, own in losses.items()})}; difference in inflation "
            f"at similar loss: {_gaps({f'{p:+d}': own for p, own in scores.items()})}"
        )
        n = min(own.n for own in losses.values())
        evidence = {"best_offset": best, **{str(o): loss for o, loss in medians.items()}}
        rows.append(ClaimRow("2", f"{data}, {arm}", holds, n, numbers, evidence))
    return rows


def _fails(losses: PairedDifference, scores: PairedDifference) -> bool | None:
    """Whether a neighbouring depth fails; None where that is not sure either way."""
    doubled = losses.sign() == 1 and losses.difference >= math.log10(FAILS)
    if doubled or scores.sign() == 1:
        return True
    return False if losses.below(math.log10(FAILS)) else None


def png_and_depth(
    references: Mapping[str, Sequence[Measured]], scans: Mapping[str, Sequence[Measured]]
) -> list[ClaimRow]:
    """The order of PNG ratios and that of best depths; too few targets to tell more."""
    ratios: dict[str, dict[str, float]] = {}
    best: dict[str, int] = {}
    for data in references:
        dense = [c for c in scans.get(data, ()) if c.settings["arm"] == DENSE and c.result["seeds"]]
        if dense:
            own = min(dense, key=lambda cell: median(cell.result["losses"]))
            best[data] = own.result["depth"]
            ratios[data] = references[data][0].result["png"]
    if len(best) < 2:
        return []
    by_depth = sorted(best, key=lambda data: best[data])
    orders = {size: sorted(best, key=lambda data: ratios[data][size]) for size in ("256", "64")}
    words = ", ".join(
        f"at {size} pixels {'the same order' if order == by_depth else 'a different order'}"
        for size, order in orders.items()
    )
    each = "; ".join(
        f"{data} is best at {best[data]} layers and has PNG ratio {ratios[data]['256']:.3f} at 256 "
        f"and {ratios[data]['64']:.3f} at 64 pixels"
        for data in by_depth
    )
    numbers = f"{each}; {words}. Depths were scanned only around those of the evolved networks"
    holds = None
    if len(best) >= POINTS:
        holds = orders["256"] == by_depth
    where = listed(list(best))
    return [ClaimRow("4", where, holds, len(best), numbers, {"best": best})]


def wiring_again(data: str, group: Sequence[Measured], arms: Sequence[Measured]) -> list[ClaimRow]:
    """It is no answer where every network stays far from the target."""
    dense = next((networks_of(c) for c in arms if c.settings["arm"] == DENSE), None)
    rows = []
    for cell in group:
        own = networks_of(cell)
        losses = [loss for loss, _ in own.values()]
        scores = compare_scores(own, dense or {})
        holds: bool | None = None
        if len(losses) >= FEWEST:
            holds = False if min(losses) > STUCK else True if scores.sign() == -1 else None
        stuck = sum(loss > STUCK for loss in losses)
        numbers = (
            f"loss {min(losses):.1e} to {max(losses):.1e}, above "
            f"{STUCK:g} in {stuck} of {len(losses)}; inflation at similar loss minus that of dense "
            f"networks: {_gaps({'evolved wiring': scores})}"
        )
        where = f"{data}, copies {cell.settings['copies']}"
        rows.append(ClaimRow("5", where, holds, len(losses), numbers, {"losses": losses}))
    return rows


def score_limit(references: Sequence[Measured]) -> float:
    """Half way between the inflation of the evolved network and its twin, where both are there."""
    for cell in references:
        if "twin" in cell.result:
            both = [cell.result[who]["scores"] for who in ("evolved", "twin")]
            return fmean(fmean(finite(own)) for own in both)
    return SCORE


def shares_of(
    group: Sequence[Measured], limit: float = SCORE
) -> dict[tuple[int, int], tuple[int, int]]:
    """By width and depth, networks past both thresholds, and all."""
    found = {}
    for cell in group:
        values = networks_of(cell).values()
        passed = [loss <= LOSS and score is not None and score <= limit for loss, score in values]
        found[cell.settings["width"], cell.settings["depth"]] = (sum(passed), len(passed))
    return found


def sweet_spot(data: str, group: Sequence[Measured], limit: float = SCORE) -> list[ClaimRow]:
    """The largest share lies inside, above both ends of width and of depth by the test.

    There is none where it lies at an end, above the other one.
    """
    shares = shares_of(group, limit)
    axes = {name: _along(shares, place) for place, name in enumerate(("width", "depth"))}
    if any(len(axis) < 3 for axis in axes.values()):
        return []
    inside = [_inside(axis) for axis in axes.values()]
    n = min(of for _, of in shares.values())
    holds = None if n < FEWEST else False if False in inside else None if None in inside else True
    parts = [
        f"by {name}: " + ", ".join(f"{value} {p / of:.2f}" for value, (p, of) in axis.items())
        for name, axis in axes.items()
    ]
    numbers = (
        f"fraction of networks with a loss of at most {LOSS:g} and an inflation of at most "
        f"{limit:.3f}, {'; '.join(parts)}. It is a fraction of seeds, not the paper's ratio, whose "
        "total is unknown"
    )
    evidence = {
        name: {str(v): p / of for v, (p, of) in axis.items()} for name, axis in axes.items()
    }
    return [ClaimRow("7", data, holds, n, numbers, evidence)]


def _along(
    shares: Mapping[tuple[int, int], tuple[int, int]], place: int
) -> dict[int, tuple[int, int]]:
    """By width (place 0) or depth (1), networks that pass, and all, over the other."""
    sums: dict[int, tuple[int, int]] = {}
    for key, (passed, of) in sorted(shares.items()):
        before = sums.get(key[place], (0, 0))
        sums[key[place]] = (before[0] + passed, before[1] + of)
    return {value: counts for value, counts in sorted(sums.items()) if counts[1]}


def _inside(axis: Mapping[int, tuple[int, int]]) -> bool | None:
    """Whether the largest share is above those of both ends, or at an end above the other."""
    best = max(axis, key=lambda value: axis[value][0] / axis[value][1])
    first, last = min(axis), max(axis)
    others = [end for end in (first, last) if end != best]
    sure = all(above(_ones(axis[best]), _ones(axis[end])) for end in others)
    return len(others) == 2 if sure else None


def _ones(counts: tuple[int, int]) -> list[float]:
    passed, of = counts
    return [1.0] * passed + [0.0] * (of - passed)


def lowest_loss(data: str, group: Sequence[Measured]) -> list[ClaimRow]:
    """Each optimiser at the learning rate of its lowest median loss; Muon with 20 steps first."""
    best: dict[str, tuple[float, Networks]] = {}
    for (optimiser,), own in grouped(group, "optimiser").items():
        rated = [c for c in own if c.result["losses"]]
        if rated:
            cell = min(rated, key=lambda c: median(c.result["losses"]))
            best[optimiser] = (cell.settings["learning_rate"], networks_of(cell))
    long = next((name for name in best if "20" in name), None)
    if long is None or len(best) < 2:
        return []
    others = {name: own for name, (_, own) in best.items() if name != long}
    found = corrected({n: compare_losses(best[long][1], own) for n, own in others.items()})
    signs = [own.sign() for own in found.values()]
    holds = None
    if None not in signs:
        holds = True if all(sign == -1 for sign in signs) else False if 1 in signs else None
    rates = listed([f"{name} {rate:g}" for name, (rate, _) in best.items()])
    numbers = f"at the best learning rates ({rates}), loss of {long} relative to {_factors(found)}"
    n = min(own.n for own in found.values())
    evidence = {name: own.difference for name, own in found.items()}
    return [ClaimRow("optimisers", data, holds, n, numbers, evidence)]


# Words


def _factors(family: Mapping[str, PairedDifference]) -> str:
    """`magnitude x 0.51 (p = 0.01, n 8)`: how many times as large a loss is."""
    return _each(family, lambda own: f"x {10**own.difference:.2f}")


def _gaps(family: Mapping[str, PairedDifference]) -> str:
    return _each(family, lambda own: f"{own.difference:+.3f}")


def _each(family: Mapping[str, PairedDifference], word: Any) -> str:
    parts = []
    for name, own in family.items():
        if not own.n:
            parts.append(f"{name} no pairs")
        elif own.sign() is None:
            parts.append(f"{name} {word(own)} (n {own.n}, too few)")
        else:
            parts.append(f"{name} {word(own)} (p = {own.p:.2g}, n {own.n})")
    return ", ".join(parts)


def count_rows(rows: Iterable[ClaimRow]) -> dict[str, dict[str, int]]:
    """By claim, how many of its rows say what."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        own = counts.setdefault(row.claim, dict.fromkeys(WORDS.values(), 0))
        own[row.word] += 1
    return counts
