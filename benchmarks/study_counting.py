"""What the verdicts on studies count: numbers beside the paper's, means and their order."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from intarsia.measure.significance import best_of
from intarsia.studies import Paper, Spread, Table
from intarsia.studies.tables import Difference, finite
from study_packs import Variant

COMPARED = (
    ("accuracy", "paper's accuracy", "difference"),
    ("entropy", "paper's entropy", "entropy's difference"),
)
PRUNED = {"yes": "with IMP", "no": "without IMP"}
NEAR = 0.01  # misses below this are counted apart: some printed deviations are tiny
Row = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """What a study says: in one line, and in a paragraph."""

    line: str
    words: str


@dataclass(frozen=True)
class Compared:
    """One number of ours that the paper printed too."""

    place: tuple[Any, ...]  # the row's labels and the measure
    labels: Row
    what: str
    difference: Difference
    suspect: bool


def rows_of(table: Table) -> list[Row]:
    """Rows as mappings from column to entry."""
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def compared(table: Table) -> list[Compared]:
    """Every number of a table that has the paper's beside it, accuracies and entropies."""
    found = []
    for row in rows_of(table):
        names = list(row)[: list(row).index("accuracy")]
        labels = {name: row[name] for name in names}
        for what, paper, difference in COMPARED:
            printed = row[paper]
            if isinstance(row[difference], Difference) and isinstance(printed, Paper):
                place = (*labels.values(), what)
                found.append(Compared(place, labels, what, row[difference], printed.suspect))
    return found


def beside_the_paper(variants: Sequence[Variant], title: str) -> str:
    """How many of the printed numbers are met, where not, and whether another preset meets them."""
    found = compared(variants[0].table(title))
    kept = [c for c in found if not c.suspect]
    if not kept:
        return "The paper printed no number for these data sets and models."
    missed = [c for c in kept if c.difference.beyond]
    parts = ", ".join(
        f"{what} {_met([c for c in kept if c.what == what])}"
        for what in dict.fromkeys(c.what for c in kept)
    )
    words = [
        f"Under {variants[0].label}, {_met(kept)} printed numbers are met within two of the "
        f"paper's standard deviations ({parts})."
    ]
    if suspect := [c for c in found if c.suspect]:
        words.append(
            f"{len(suspect)} suspect ones, the same to the digit for two data sets, are left out; "
            f"{_met(suspect)} would be met."
        )
    if missed:
        words.append(_missed(missed, kept))
    words += [_other(v.label, compared(v.table(title)), kept, missed) for v in variants[1:]]
    return " ".join(filter(None, words))


def met_in_short(variants: Sequence[Variant], title: str) -> tuple[int, int]:
    """How many printed numbers are met with the first variant, and of how many."""
    kept = [c for c in compared(variants[0].table(title)) if not c.suspect]
    return sum(not c.difference.beyond for c in kept), len(kept)


def by_mean(groups: Mapping[Any, Iterable[float | None]]) -> dict[Any, Spread]:
    """Spreads of what has values, from the highest mean on."""
    spreads = {name: Spread.of(values) for name, values in groups.items()}
    known = {name: spread for name, spread in spreads.items() if spread.n}
    return dict(sorted(known.items(), key=lambda item: -item[1].mean))


def surely_best(groups: Mapping[Any, Sequence[float | None]]) -> bool:
    """Whether Welch's test puts the highest mean above every other."""
    return best_of({str(name): finite(values) for name, values in groups.items()}) is not None


def count(items: Iterable[Any], holds: Callable[[Any], bool | None]) -> str:
    """`3 of 4`: for how many of the items it holds, of those for which it is known."""
    known = [found for item in items if (found := holds(item)) is not None]
    return f"{sum(map(bool, known))} of {len(known)}"


def listed(parts: Sequence[str]) -> str:
    """Parts as a list of words: a, b and c."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _met(some: Sequence[Compared]) -> str:
    return count(some, lambda c: not c.difference.beyond)


def _missed(missed: Sequence[Compared], kept: Sequence[Compared]) -> str:
    """Where the missed ones are, to which side, and which is farthest off."""
    where = "; ".join(
        listed(
            [
                f"{PRUNED.get(name, name)} {sum(c.labels[label] == name for c in missed)} of "
                f"{sum(c.labels[label] == name for c in kept)}"
                for name in dict.fromkeys(c.labels[label] for c in missed)
            ]
        )
        for label in ("data", "model", "IMP")
    )
    near = sum(abs(c.difference.value) < NEAR for c in missed)
    higher = sum(c.difference.value > 0 for c in missed)
    far = max(missed, key=lambda c: abs(c.difference.value))
    labels = ", ".join(f"{name} {value}" for name, value in far.labels.items())
    return (
        f"Of the {len(missed)} missed, ours is higher in {higher} and lower in "
        f"{len(missed) - higher}, in {near} by less than {NEAR}. Missed are {where}. The farthest "
        f"off is the {far.what} of {labels}, by {far.difference.value:+.3f}."
    )


def _other(
    label: str, found: Sequence[Compared], kept: Sequence[Compared], missed: Sequence[Compared]
) -> str:
    """Of the numbers that both variants have, how many this one meets."""
    own = {c.place: c for c in found}
    both = [own[c.place] for c in kept if c.place in own]
    again = [own[c.place] for c in missed if c.place in own]
    if not both:
        return ""
    of_missed = f", {_met(again)} of those missed before" if again else ""
    name = label[0].upper() + label[1:]
    return f"{name} meets {_met(both)} of the same numbers{of_missed}."
