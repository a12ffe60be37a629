"""What the paper claims of a second graph, and whether the cells bear it out.

Accuracies are compared paired by seed with Student's test at 95%, corrected by Holm's method for
all comparisons of one kind. A claim that one network is above another holds where the test says so,
does not where its mean is not the higher one, and is inconclusive between.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from intarsia.measure.significance import LEVEL, clustered, holm
from intarsia.studies.cells import Measured
from intarsia.studies.graphs.graph_cells import (
    AUTHORS,
    CONTROL,
    MB,
    MR,
    NAME,
    SCALE,
    TABLE,
    TUNING,
)
from intarsia.studies.tables import grouped
from intarsia.studies.verdict import Claim, Findings, Verdict
from intarsia.studies.wording import listed, several

TITLES = {"cora": "Cora", "citeseer": "CiteSeer", "photo": "Photo", "computers": "Computers"}
TITLES["europe"] = "Europe"
WORDS = {True: "reproduces", False: "does not reproduce", None: "inconclusive"}
BYSEED = Mapping[int, float]


@dataclass(frozen=True)
class Gap:
    """One arm less another, in points of accuracy, by seed; p after Holm's correction."""

    gaps: tuple[float, ...]
    p: float = 1.0

    @classmethod
    def of(cls, one: BYSEED, other: BYSEED) -> "Gap":
        gaps = tuple(100 * (one[seed] - other[seed]) for seed in one if seed in other)
        test = clustered(
            {n: [gap] for n, gap in enumerate(gaps)}, {n: [0.0] for n in range(len(gaps))}
        )
        return cls(gaps, 1.0 if test is None else test.p)

    @property
    def mean(self) -> float:
        return fmean(self.gaps)

    @property
    def holds(self) -> bool | None:
        """Whether the first is above the other; None where only the test does not say so."""
        if self.mean <= 0:
            return False
        return True if self.p < LEVEL else None

    def __str__(self) -> str:
        return f"{self.mean:+.1f} (p {self.p:.2g})"


def accuracies(cell: Measured, epochs: int | None = None) -> dict[int, float]:
    """Test accuracy by seed, after all epochs or of the best among the first so many."""
    result = cell.result
    values = result["test"]
    if epochs is not None and epochs != cell.settings["epochs"]:
        values = result.get("budgets", {}).get(str(epochs), [])
    return dict(zip(cell.settings["seeds"], values, strict=False))


def measured_arms(
    done: Sequence[Measured], part: str
) -> dict[tuple[str, str], dict[str, Measured]]:
    """By data set and encoder, the cells of a part that have accuracies, by arm."""
    own = [c for c in done if c.settings["part"] == part and "test" in c.result]
    return {
        (key[0], key[1]): {cell.settings["arm"]: cell for cell in group}
        for key, group in grouped(own, "data", "encoder").items()
    }


def corrected(family: Mapping[Any, Gap]) -> dict[Any, Gap]:
    """The same gaps, with p corrected for as many tests as there are."""
    values = holm([gap.p for gap in family.values()])
    pairs = zip(family.items(), values, strict=True)
    return {key: replace(gap, p=p) for (key, gap), p in pairs}


def second_helps(done: Sequence[Measured], part: str) -> dict[tuple[str, str], Gap]:
    """MR less MB."""
    family = {
        key: Gap.of(accuracies(arms[MR]), accuracies(arms[MB]))
        for key, arms in measured_arms(done, part).items()
        if MR in arms and MB in arms
    }
    return corrected({key: gap for key, gap in family.items() if gap.gaps})


def against_controls(done: Sequence[Measured], part: str) -> dict[tuple[str, str, str], Gap]:
    """MR less every other second graph, after as many epochs."""
    table = measured_arms(done, TABLE if part == CONTROL else part)
    family = {}
    for (data, encoder), arms in measured_arms(done, part).items():
        ours = table.get((data, encoder), {}).get(MR)
        for arm, cell in arms.items():
            if ours is None or arm in ("SB", "MB", "SR", "MR"):
                continue
            gap = Gap.of(accuracies(ours, cell.settings["epochs"]), accuracies(cell))
            if gap.gaps:
                family[data, encoder, arm] = gap
    return corrected(family)


def against_scales(done: Sequence[Measured]) -> dict[tuple[str, str], dict[str, Gap]]:
    """tau* less every random scale, by data set and encoder."""
    table = measured_arms(done, TABLE)
    result = {}
    for key, arms in measured_arms(done, SCALE).items():
        ours = table.get(key, {}).get(MR)
        if ours is None:
            continue
        gaps = {
            arm: Gap.of(accuracies(ours, cell.settings["epochs"]), accuracies(cell))
            for arm, cell in arms.items()
        }
        known = {arm: gap for arm, gap in gaps.items() if gap.gaps}
        if known:
            result[key] = corrected(known)
    return result


def named(data: str, encoder: str) -> str:
    """`Cora, GCN`."""
    return f"{TITLES.get(data, data)}, {encoder.upper()}"


def verdict(findings: Findings) -> Verdict:
    """What of the paper is left: MR above MB, tau* above controls and above random scales."""
    done = findings.cells
    said = [claim for claim in [_run(done)] if claim]
    claims = [
        *_help(done, TABLE, "authors' protocol"),
        *_help(done, TUNING, "honest protocol"),
        *_controls(done, CONTROL, "authors' protocol"),
        *_controls(done, TUNING, "honest protocol"),
        *_scales(done),
    ]
    parts = []
    for kind in dict.fromkeys(claim.evidence["claim"] for claim in claims):
        own = [claim for claim in claims if claim.evidence["claim"] == kind]
        counts = [f"{word} in {n}" for word, n in _counted(own).items() if n]
        parts.append(f"{kind}: {', '.join(counts)}")
    how = f"{_how(done)}: " if parts else ""
    return Verdict(how + "; ".join(parts) or "nothing is measured yet", [*said, *claims])


def _counted(claims: Sequence[Claim]) -> dict[str, int]:
    return {word: sum(c.holds is known for c in claims) for known, word in WORDS.items()}


def _how(done: Sequence[Measured]) -> str:
    """`width 64, 4 seeds`: what says how large the run was."""
    own = [c for c in done if c.settings["protocol"] == AUTHORS] or list(done)
    widths = {c.settings["width"] for c in own}
    seeds = max(len(c.settings["seeds"]) for c in done)
    width = "the authors' widths" if widths == {0} else f"width {listed(_texts(widths))}"
    return f"{width}, {several(seeds, 'seed')}"


def _texts(values: set[int]) -> list[str]:
    return [str(value) if value else "as the authors'" for value in sorted(values)]


def _run(done: Sequence[Measured]) -> Claim | None:
    """How large the networks were: small ones are not the paper's."""
    widths = {c.settings["width"] for c in done if c.settings["protocol"] == AUTHORS}
    if not widths:
        return None
    small = "" if widths <= {0} else " These are not the paper's networks, which are wider."
    return Claim(f"Measured under the authors' protocol with {_how(done)}.{small}")


def _claim(kind: str, where: str, holds: bool | None, numbers: str, n: int) -> Claim:
    text = f"{kind}, {where}: {WORDS[holds]} (n {n})."
    detail = f"{kind}, {where}: {numbers}"
    evidence = {"claim": kind, "where": where, "numbers": numbers}
    return Claim(text, holds, evidence, n, details=[detail])


def _help(done: Sequence[Measured], part: str, protocol: str) -> list[Claim]:
    return [
        _claim(
            f"MR above MB, {protocol}",
            named(*key),
            gap.holds,
            f"MR minus MB, in percentage points: {gap}",
            len(gap.gaps),
        )
        for key, gap in second_helps(done, part).items()
    ]


def _controls(done: Sequence[Measured], part: str, protocol: str) -> list[Claim]:
    claims = []
    by_place: dict[tuple[str, str], dict[str, Gap]] = {}
    for (data, encoder, arm), gap in against_controls(done, part).items():
        by_place.setdefault((data, encoder), {})[arm] = gap
    for key, gaps in by_place.items():
        answers = {gap.holds for gap in gaps.values()}
        holds = False if False in answers else None if None in answers else True
        others = ", ".join(f"{arm} {gap}" for arm, gap in gaps.items())
        numbers = f"MR minus the other, in percentage points: {others}"
        n = min(len(gap.gaps) for gap in gaps.values())
        kind = f"MR above every other second graph, {protocol}"
        claims.append(_claim(kind, named(*key), holds, numbers, n))
    return claims


def _scales(done: Sequence[Measured]) -> list[Claim]:
    claims = []
    for key, gaps in against_scales(done).items():
        higher = sum(gap.mean < 0 for gap in gaps.values())
        surely = sum(gap.holds is True for gap in gaps.values())
        n = min(len(gap.gaps) for gap in gaps.values())
        numbers = (
            f"of {several(len(gaps), 'random scale')}, {higher} have a higher mean than tau* and "
            f"{surely} are significantly below it"
        )
        holds = False if any(g.mean <= 0 for g in gaps.values()) else surely == len(gaps) or None
        claims.append(_claim("tau* above every random scale", named(*key), holds, numbers, n))
    return claims


__all__ = ["NAME", "TITLES", "Gap", "accuracies", "measured_arms", "named", "verdict"]
