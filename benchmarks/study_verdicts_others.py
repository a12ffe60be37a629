"""What the studies of paths and confusions say, counted from their cells."""

from collections.abc import Mapping, Sequence

from intarsia.measure.path import TOLERANCE
from intarsia.studies import Measured
from intarsia.studies.maxent.single import HALVES
from intarsia.studies.tables import grouped
from study_counting import (
    PRUNED,
    Row,
    Verdict,
    capital,
    count,
    listed,
    rows_of,
    sentences,
    several,
    titled,
)
from study_packs import Studies, Variant

Place = tuple[str, str, str]  # data, model, IMP
ALONE, WHOLE = ("single modules", "others on rewarded"), ("complete, sum", "rewarded accuracy")


def path(variants: Sequence[Variant], studies: Studies) -> Verdict:
    points, totals = [], []
    for way, pruned in HALVES.items():
        imp = PRUNED["yes" if pruned else "no"]
        shares = [
            f"{_connected(cells, way, 'test')} ({model}, {titled(data)})"
            for (data, model), cells in grouped(variants[0].measured, "data", "model").items()
        ]
        totals.append(f"{_connected(variants[0].measured, way, 'test')} {imp}")
        training = _connected(variants[0].measured, way, "train")
        points.append(f"{capital(imp)}: {listed(shares)}; on training samples {training}.")
    words = sentences(
        f"Of the paths from one module through the sum to another, {listed(totals)} are connected "
        "on test samples.",
        f"A path that is not connected has somewhere a loss more than {TOLERANCE:g}% above the "
        "straight line between its ends; the paper shows this as figures, without counts.",
    )
    return Verdict(f"connected: {listed(totals)}", words, tuple(points))


def confusion(variants: Sequence[Variant], studies: Studies) -> Verdict:
    """Model by model, since a mean over models hides that they differ."""
    rows = rows_of(variants[0].tables[0])
    every = list(dict.fromkeys(row["objective"] for row in rows))
    alone, merged = (_places(rows, every, *what) for what in (ALONE, WHOLE))
    fewest = _winners([min(own, key=lambda name: own[name]) for own in alone.values()], every)
    best = _winners([max(own, key=lambda name: own[name]) for own in merged.values()], every)
    seeds = several(len({cell.settings["seed"] for cell in variants[0].measured}), "seed")
    says = []
    if fewest:
        says.append(f"modules answer others with their own class least under {fewest}")
    if best:
        says.append(f"the sum of all is the most accurate under {best}")
    table = "[Table 1](study_single.md)" if "single" in studies else "Table 1"
    words = sentences(
        f"{capital('; '.join(says))} (models with and without IMP; {seeds})." if says else "",
        "The class that is answered says little where an answer is nearly uniform: how unsure "
        f"modules are shows in their entropy, in {table}.",
        "The paper shows matrices of single seeds; these are their summary.",
    )
    points = []
    for place in dict.fromkeys([*alone, *merged]):
        data, model, imp = place
        parts = []
        if place in alone:
            own = listed([f"{share:.1%} under {name}" for name, share in alone[place].items()])
            parts.append(f"modules answer their own class for {own} of the samples of others")
        if place in merged:
            own = listed([f"{share:.3f} under {name}" for name, share in merged[place].items()])
            parts.append(f"the sum of all is right for {own}")
        points.append(f"{titled(data)}, {model}, {PRUNED[imp]}: {'; '.join(parts)}.")
    return Verdict(f"{'; '.join(says)} ({seeds})", words, tuple(points))


def _connected(cells: Sequence[Measured], way: str, split: str) -> str:
    walks = [walk for cell in cells for walk in cell.result[way]]
    return count(walks, lambda walk: walk[split]["connected"])


def _places(
    rows: Sequence[Row], every: Sequence[str], matrix: str, column: str
) -> dict[Place, dict[str, float]]:
    """A column by place and objective, of the places that have every objective."""
    result: dict[Place, dict[str, float]] = {}
    for row in rows:
        if row["matrix"] == matrix and row[column] is not None:
            place = (row["data"], row["model"], row["IMP"])
            result.setdefault(place, {})[row["objective"]] = row[column].mean
    return {place: own for place, own in result.items() if len(own) == len(every) > 1}


def _winners(names: Sequence[str], every: Sequence[str]) -> str:
    """`ME in 1 of 4 and QME in 3 of 4`; none where nothing was compared."""
    counts: Mapping[str, int] = {name: list(names).count(name) for name in every}
    parts = [f"{name.upper()} in {n} of {len(names)}" for name, n in counts.items() if n]
    return listed(parts) if parts else ""
