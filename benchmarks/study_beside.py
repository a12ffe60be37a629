"""Our numbers beside those that the paper printed: what is met, what is missed, and where."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from intarsia.studies import Paper, Table
from intarsia.studies.tables import Difference
from study_counting import PRUNED, Row, capital, count, listed, rows_of, several, titled
from study_dead import dead_groups, where
from study_packs import Variant

COMPARED = (
    ("accuracy", "paper's accuracy", "difference"),
    ("entropy", "paper's entropy", "entropy's difference"),
)
NEAR = 0.01  # misses below this are counted apart: some printed deviations are tiny
# Where the authors' code departs from their text, and which numbers that can touch.
DEPARTURES: dict[str, Callable[[Row], bool]] = {
    "pruning (the code prunes layer by layer and keeps the last epoch, the text globally and the "
    "best)": lambda row: row["IMP"] == "yes",
    "dropout without IMP (0.3 in the code, 0.5 in the text)": lambda row: (
        row["IMP"] == "no" and row["model"] != "cnn"
    ),
    "the sum of unpruned MLPs (the code counts the second output layer twice)": lambda row: (
        "|R|" in row and row["IMP"] == "no" and row["model"] != "cnn"
    ),
    "the CNN's temperature (5 in the code, 1 in the text)": lambda row: row["model"] == "cnn",
    "Yeast's networks (smaller in the code, with a higher learning rate)": lambda row: (
        row["data"] == "yeast"
    ),
    "HAR's features (computed anew from the raw signals)": lambda row: row["data"] == "har",
    "the pairs for |R| = 5 (one in the code, ten in the text)": lambda row: row.get("|R|") == 5,
}


@dataclass(frozen=True)
class Compared:
    """One number of ours that the paper printed too."""

    place: tuple[Any, ...]  # the row's labels and the measure
    labels: Row
    what: str
    difference: Difference
    suspect: bool

    @property
    def met(self) -> bool:
        return not self.difference.beyond


class Beside:
    """A table of a study's variants beside the paper's; the first variant is the one that counts.

    Numbers that are suspect, and those of dead modules, are neither met nor missed.
    """

    def __init__(self, variants: Sequence[Variant], title: str) -> None:
        self.label = variants[0].label
        self.dead = dead_groups(variants[0])
        result = [c for c in compared(variants[0].table(title)) if not _in(c, self.dead)]
        self.suspect = [c for c in result if c.suspect]
        self.kept = [c for c in result if not c.suspect]
        self.missed = [c for c in self.kept if not c.met]
        self.others = {
            v.label: {c.place: c for c in compared(v.table(title)) if not _in(c, dead_groups(v))}
            for v in variants[1:]
        }

    def in_short(self) -> str:
        return f"{self.met()} printed numbers within two standard deviations"

    def met(self) -> str:
        return _met(self.kept)

    def apart(self) -> str:
        """What is not counted, for the end of a line."""
        if not self.dead:
            return ""
        groups = several(len(self.dead), "group")
        return f"; {groups} ({where(self.dead)}), cut through by pruning, not counted"

    def opening(self) -> str:
        """What is met, in a sentence."""
        if not self.kept:
            return "The paper printed no number for these data sets and models."
        return (
            f"Under {self.label}, {self.met()} printed numbers are met within two of the "
            "paper's standard deviations."
        )

    def not_counted(self) -> str:
        """Which groups are dead."""
        if not self.dead:
            return ""
        return (
            f"In {several(len(self.dead), 'group')} ({where(self.dead)}) pruning cut every module "
            "through, so that they answer the same to every sample; they are not counted."
        )

    def why(self) -> str:
        """What the missed ones have to do with the authors' code, in a sentence."""
        again = [own[c.place] for own in self._released() for c in self.missed if c.place in own]
        if again:
            verb = "explains" if 2 * sum(c.met for c in again) > len(again) else "does not explain"
            return f"Preset `released`, the authors' code, {verb} most of what is missed."
        touched = {what: len(self._touched(what)) for what in DEPARTURES}
        most = max(touched, key=lambda what: touched[what])
        if not touched[most]:
            return ""
        return (
            f"Of the missed, {touched[most]} of {len(self.missed)} can have to do with {most}; "
            "preset `released`, the authors' code, was not run here."
        )

    def points(self) -> dict[str, str]:
        """Counts for a list, by name."""
        if not self.kept:
            return {}
        parts = [
            f"{what} {_met([c for c in self.kept if c.what == what])}"
            for what in dict.fromkeys(c.what for c in self.kept)
        ]
        return {
            "Met": f"{self.met()}, {listed(parts)}.{self._suspect()}",
            "Missed": self._where(),
            "Farthest off": _farthest(self.missed),
            "Known differences": self._differences(),
            **{capital(label): self._other(own) for label, own in self.others.items()},
        }

    def _suspect(self) -> str:
        if not self.suspect:
            return ""
        near = sum(c.met for c in self.suspect)
        return (
            f" {len(self.suspect)} more are suspect, the same to the digit for two data sets, and "
            f"left out; {near} of these {len(self.suspect)} are within two standard deviations."
        )

    def _where(self) -> str:
        """Of what the missed ones are, and to which side."""
        if not self.missed:
            return ""
        parts = [
            listed(
                [
                    f"{PRUNED.get(name, titled(name))} "
                    + count([c for c in self.kept if c.labels[label] == name], lambda c: not c.met)
                    for name in dict.fromkeys(c.labels[label] for c in self.missed)
                ]
            )
            for label in ("data", "model", "IMP")
        ]
        higher = sum(c.difference.value > 0 for c in self.missed)
        near = sum(abs(c.difference.value) < NEAR for c in self.missed)
        close = f", {near} of them by less than {NEAR}" if near else ""
        return (
            f"{'; '.join(parts)}. Ours is higher in {higher}, lower in "
            f"{len(self.missed) - higher}{close}."
        )

    def _differences(self) -> str:
        """Where departures of the code from the text touch what was missed."""
        parts = []
        for what in DEPARTURES:
            some = self._touched(what)
            again = [own[c.place] for own in self._released() for c in some if c.place in own]
            met = f", {_met(again)} met by `released`" if again else ""
            if some:
                parts.append((len(some), f"{what}: {len(some)} missed{met}"))
        shown = "; ".join(text for _, text in sorted(parts, key=lambda part: -part[0]))
        more = " A number can fall under several." if len(parts) > 1 else ""
        return f"{shown}.{more}" if shown else ""

    def _touched(self, what: str) -> list[Compared]:
        return [c for c in self.missed if DEPARTURES[what](c.labels)]

    def _released(self) -> list[dict[tuple[Any, ...], Compared]]:
        """The numbers of the preset that is the authors' code, where it was run."""
        return [own for label, own in self.others.items() if label == "preset `released`"]

    def _other(self, own: dict[tuple[Any, ...], Compared]) -> str:
        """Of the numbers that both variants have, how many another one meets."""
        both = [own[c.place] for c in self.kept if c.place in own]
        again = [own[c.place] for c in self.missed if c.place in own]
        of_missed = f", {_met(again)} of those missed before" if again else ""
        return f"meets {_met(both)} of the same numbers{of_missed}." if both else ""


def compared(table: Table) -> list[Compared]:
    """Every number of a table that has the paper's beside it, accuracies and entropies."""
    result = []
    for row in rows_of(table):
        names = list(row)[: list(row).index("accuracy")]
        labels = {name: row[name] for name in names}
        for what, paper, difference in COMPARED:
            printed = row[paper]
            if isinstance(row[difference], Difference) and isinstance(printed, Paper):
                place = (*labels.values(), what)
                result.append(Compared(place, labels, what, row[difference], printed.suspect))
    return result


def _in(result: Compared, groups: Sequence[tuple[Any, ...]]) -> bool:
    return tuple(v for name, v in result.labels.items() if name != "objective") in groups


def _met(some: Sequence[Compared]) -> str:
    return count(some, lambda c: c.met)


def _farthest(missed: Sequence[Compared]) -> str:
    if not missed:
        return ""
    far = max(missed, key=lambda c: abs(c.difference.value))
    labels = far.labels
    pairs = f"{labels['objective'].upper()} pairs" if "|R|" in labels else "modules"
    size = f"|R| = {labels['|R|']}, " if "|R|" in labels else ""
    return (
        f"{far.what} of {pairs} on {titled(labels['data'])} ({labels['model']}, {size}"
        f"{PRUNED[labels['IMP']]}), {far.difference.value:+.3f}."
    )
