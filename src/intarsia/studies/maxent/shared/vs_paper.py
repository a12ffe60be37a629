"""Our numbers beside those that the paper printed: which are met, which are missed, and where."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from intarsia.measure.significance import LEVEL, Moments, equivalence, holm, welch_of_moments
from intarsia.studies.cells import Measured
from intarsia.studies.maxent.shared.paper import PaperCell, printed_n
from intarsia.studies.tables import Difference, Entry, Paper, Spread, Table
from intarsia.studies.verdict import Claim, Findings
from intarsia.studies.wording import IMP, capital, count, listed, named, sentences, titled

VS_PAPER = (
    *("accuracy", "paper's accuracy", "difference"),
    *("entropy", "paper's entropy", "entropy difference"),
)
MEANING = "accuracy: on samples of rewarded classes; entropy: in nats, on all other samples"
NEAR = 0.01  # misses below this are counted apart: some printed deviations are tiny
RELEASED = "preset `released`"  # the authors' code
MARGINS = {"accuracy": 0.02, "entropy": 0.05}  # of equivalence; entropy in nats
TOST = (
    f"two one-sided tests (TOST at 95%, margin {MARGINS['accuracy']:g} in accuracy and "
    f"{MARGINS['entropy']:g} nats in entropy, Holm's correction)"
)
ASSUMED = (
    "Both tests treat all values behind a number as independent, which makes them overconfident. "
    "They take the paper's n to be 5 seeds times its classes or pairs, as its text says; its "
    "tables print no n."
)

Row = Mapping[str, Any]
Place = tuple[Any, ...]  # a row's labels and the measure
# Where the authors' code departs from their text, and which numbers that can touch.
DEPARTURES: dict[str, Callable[[Row], bool]] = {
    "pruning (the code prunes layer by layer and keeps the last epoch; the text prunes globally "
    "and keeps the best)": lambda row: row["IMP"] == "yes",
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
    "HAR's features (recomputed from the raw signals)": lambda row: row["data"] == "har",
    "the pairs for |R| = 5 (one in the code, ten in the text)": lambda row: row.get("|R|") == 5,
}


def vs_paper(
    accuracy: Spread | Sequence[float | None],
    entropy: Spread | Sequence[float | None],
    paper: PaperCell | None,
) -> list[Entry]:
    """Our two numbers, each with the paper's and the difference, as VS_PAPER names them."""
    entries: list[Entry] = []
    printed = (paper.accuracy, paper.entropy) if paper else (None, None)
    for values, theirs in zip((accuracy, entropy), printed, strict=True):
        ours = values if isinstance(values, Spread) else Spread.of(values)
        entries += [ours, theirs, Difference.of(ours, theirs)]
    return entries


@dataclass(frozen=True)
class Compared:
    """One number of ours that the paper printed too."""

    place: Place
    labels: Row
    measure: str
    ours: Spread
    printed: Paper
    difference: Difference
    dead: bool = False  # pruning cut every module of its group through

    @property
    def met(self) -> bool:
        """Within two of the paper's standard deviations; never by dead modules."""
        return not (self.dead or self.difference.beyond)

    @property
    def p_of_equivalence(self) -> float:
        """p of TOST with the measure's margin; 1 of dead modules and where a spread is unknown."""
        moments = None if self.dead else self._moments()
        return equivalence(*moments, MARGINS[self.measure]) if moments else 1.0

    @property
    def p_of_difference(self) -> float:
        """p of Welch's test that the means differ; 0 of dead modules, 1 without a spread."""
        moments = self._moments()
        if self.dead or moments is None:
            return 0.0 if self.dead else 1.0
        return welch_of_moments(*moments).p

    def _moments(self) -> tuple[Moments, Moments] | None:
        if self.printed.sd is None or self.ours.n < 2:
            return None
        n = printed_n(self.labels["data"], self.labels.get("|R|"))
        ours = Moments(self.ours.mean, self.ours.sd, self.ours.n)
        return ours, Moments(self.printed.mean, self.printed.sd, n)


class PaperComparison:
    """A study's table against the paper's, and that of its variants.

    Numbers of dead groups are missed. Those that are suspect are counted apart.
    """

    def __init__(
        self,
        findings: Findings,
        table: Callable[[Sequence[Measured]], Table],
        dead: Callable[[Sequence[Measured]], Sequence[Place]],
    ) -> None:
        def numbers_of(cells: Sequence[Measured]) -> list[Compared]:
            groups = [_labels(group) for group in dead(cells)]
            return [replace(c, dead=_labels_of(c) in groups) for c in compared(table(cells))]

        numbers = numbers_of(findings.cells)
        self.label = findings.label
        self.suspect = [c for c in numbers if c.printed.suspect]
        self.kept = [c for c in numbers if not c.printed.suspect]
        self.missed = [c for c in self.kept if not c.met]
        self.dead = [c for c in self.missed if c.dead]
        self.variants = {
            label: {c.place: c for c in numbers_of(cells)}
            for label, cells in findings.variants.items()
        }

    def claim(self) -> Claim:
        """How many of the printed numbers are met."""
        if not self.kept:
            return self._nothing()
        met, of = len(self.kept) - len(self.missed), len(self.kept)
        dead = f"; {self._dead()}" if self.dead else ""
        text = (
            f"Under {self.label}, {met} of {of} printed numbers are reproduced within two of the "
            f"paper's standard deviations{dead}."
        )
        by_measure = {m: [c for c in self.kept if c.measure == m] for m in MARGINS}
        tests = self._tests()
        evidence = {
            "count": met,
            "of": of,
            "dead": len(self.dead),
            **{m: [sum(c.met for c in own), len(own)] for m, own in by_measure.items()},
            "tests": tests,
            "suspect": len(self.suspect),
            "released": self._released_counts(),
            "variants": {
                label: [sum(own[c.place].met for c in both), len(both)]
                for label, own in self.variants.items()
                if (both := [c for c in self.kept if c.place in own])
            },
        }
        parts = [f"{m} {_met(own)}" for m, own in by_measure.items() if own]
        details = {
            "Reproduced": f"{met} of {of} ({listed(parts)}).{self._suspect()}",
            "Missed": self._where(),
            "Largest difference": _farthest(self.missed),
            "Tests": self._by_tests(tests),
            "Where the authors' code differs from their text": self._departures(),
            **{capital(label): self._variant(own) for label, own in self.variants.items()},
        }
        return Claim(
            sentences(
                text, f"{tests['equivalent']} of {of} are equivalent by {TOST}.", self._why()
            ),
            holds=met == of,
            evidence=evidence,
            n=of,
            short=(
                f"printed numbers within two standard deviations{f' ({dead[2:]})' if dead else ''},"
                f" {tests['equivalent']} equivalent by TOST"
            ),
            details=named(details),
        )

    def _dead(self) -> str:
        """How many of the missed are of dead modules, and of which."""
        labels = [f"{titled(c.labels['data'])} {IMP[c.labels['IMP']]}" for c in self.dead]
        groups = listed(list(dict.fromkeys(labels)))
        return f"{len(self.dead)} of the {len(self.missed)} missed are from dead modules, {groups}"

    def _tests(self) -> dict[str, int]:
        """How many numbers agree by TOST, how many Welch's test tells from the paper's.

        Both after Holm's correction, and alone without it; `undecided` are neither.
        """
        agree, differ = (
            [c.p_of_equivalence for c in self.kept],
            [c.p_of_difference for c in self.kept],
        )
        corrected = list(zip(holm(agree), holm(differ), strict=True))
        return {
            "equivalent": sum(p < LEVEL for p, _ in corrected),
            "equivalent alone": sum(p < LEVEL for p in agree),
            "different": sum(p < LEVEL for _, p in corrected),
            "different alone": sum(p < LEVEL for p in differ),
            "undecided": sum(min(both) >= LEVEL for both in corrected),
        }

    def _by_tests(self, tests: Mapping[str, int]) -> str:
        of = len(self.kept)
        return (
            f"{tests['equivalent']} of {of} are equivalent by {TOST}, {tests['equivalent alone']} "
            f"before the correction. Welch's t-test finds {tests['different']} of {of} different "
            f"from the paper's, {tests['different alone']} before the correction, including those "
            f"of dead modules. {tests['undecided']} are neither. {ASSUMED}"
        )

    def _nothing(self) -> Claim:
        """What to say where no printed number counts."""
        if not self.suspect:
            return Claim("The paper prints no number for these data sets and models.")
        near, of = sum(c.met for c in self.suspect), len(self.suspect)
        return Claim(
            f"All {of} numbers that the paper prints for these cells are suspect: it prints the "
            f"same digits for two data sets. {near} of them are within two standard deviations.",
            evidence={"suspect": of, "within two standard deviations": near},
            n=of,
        )

    def _released_counts(self) -> dict[str, int]:
        """Of the missed numbers, how many the authors' code was run for and how many it meets."""
        same = self._released(self.missed)
        return {"missed": len(self.missed), "run": len(same), "met": sum(c.met for c in same)}

    def _why(self) -> str:
        """What the missed ones have to do with the authors' code."""
        counts = self._released_counts()
        missed, run, met = counts.values()
        if run:
            rest = f"; it was not run for the other {missed - run}" if run < missed else ""
            return (
                f"Preset `released`, the authors' code, was run for {run} of the {missed} missed "
                f"numbers and reproduces {met} of these {run}{rest}."
            )
        touched = {what: len(self._touched(what)) for what in DEPARTURES}
        most = max(touched, key=lambda what: touched[what])
        if not touched[most]:
            return ""
        return (
            f"Of the missed numbers, {touched[most]} of {len(self.missed)} may be due to {most}; "
            "preset `released`, the authors' code, was not run here."
        )

    def _suspect(self) -> str:
        if not self.suspect:
            return ""
        near, of = sum(c.met for c in self.suspect), len(self.suspect)
        met = len(self.kept) - len(self.missed)
        return (
            f" {of} more are suspect, because the paper prints the same digits for two data sets, "
            "and are counted separately; "
            f"{near} of these {of} are within two standard deviations, which would make "
            f"{met + near} of {len(self.kept) + of}."
        )

    def _where(self) -> str:
        """Of what the missed ones are, and to which side."""
        if not self.missed:
            return ""
        parts = [
            listed(
                [
                    f"{IMP.get(name, titled(name))} "
                    + count([c for c in self.kept if c.labels[label] == name], lambda c: not c.met)
                    for name in dict.fromkeys(c.labels[label] for c in self.missed)
                ]
            )
            for label in ("data", "model", "IMP")
        ]
        higher = sum(c.difference.value > 0 for c in self.missed)
        near = sum(abs(c.difference.value) < NEAR for c in self.missed)
        close = f"; {near} of them differ by less than {NEAR}" if near else ""
        return (
            f"{'; '.join(parts)}. Ours is higher in {higher} and lower in "
            f"{len(self.missed) - higher}{close}."
        )

    def _departures(self) -> str:
        """Where departures of the code from the text touch what was missed."""
        parts = []
        for what in DEPARTURES:
            touched = self._touched(what)
            same = self._released(touched)
            reproduced = f"{sum(c.met for c in same)} of the {len(same)} it was run for"
            met = f" (`released` reproduces {reproduced})" if same else ""
            if touched:
                parts.append((len(touched), f"{what}: {len(touched)} missed{met}"))
        shown = "; ".join(text for _, text in sorted(parts, key=lambda part: -part[0]))
        more = " A number can count under several of these." if len(parts) > 1 else ""
        return f"{shown}.{more}" if shown else ""

    def _touched(self, what: str) -> list[Compared]:
        return [c for c in self.missed if DEPARTURES[what](c.labels)]

    def _released(self, some: Sequence[Compared]) -> list[Compared]:
        """The same numbers of the preset that is the authors' code, where it was run."""
        own = self.variants.get(RELEASED, {})
        return [own[c.place] for c in some if c.place in own]

    def _variant(self, own: Mapping[Place, Compared]) -> str:
        """Of the numbers that both variants have, how many another one meets."""
        both = [own[c.place] for c in self.kept if c.place in own]
        missed = [own[c.place] for c in self.missed if c.place in own]
        of_missed = f" and {_met(missed)} of those missed above" if missed else ""
        return f"reproduces {_met(both)} of the same numbers{of_missed}." if both else ""


def compared(table: Table) -> list[Compared]:
    """Every number of a table that has the paper's beside it, accuracies and entropies."""
    numbers = []
    for row in table.records():
        labels = {name: row[name] for name in table.columns[: table.columns.index("accuracy")]}
        for measure, paper, difference in (VS_PAPER[:3], VS_PAPER[3:]):
            printed = row[paper]
            if isinstance(row[difference], Difference) and isinstance(printed, Paper):
                place = (*labels.values(), measure)
                own = row[measure], printed, row[difference]
                numbers.append(Compared(place, labels, measure, *own))
    return numbers


def _labels(group: Place) -> Place:
    """A group as a table's row has it."""
    return tuple({True: "yes", False: "no"}[v] if isinstance(v, bool) else v for v in group)


def _labels_of(number: Compared) -> Place:
    return tuple(v for name, v in number.labels.items() if name != "objective")


def _met(some: Sequence[Compared]) -> str:
    return count(some, lambda c: c.met)


def _farthest(missed: Sequence[Compared]) -> str:
    if not missed:
        return ""
    far = max(missed, key=lambda c: abs(c.difference.value))
    labels = far.labels
    pairs = f"{labels['objective'].upper()} pairs" if "|R|" in labels else "modules"
    size = f"|R| = {labels['|R|']}, " if "|R|" in labels else ""
    dead = ", dead" if far.dead else ""
    return (
        f"{far.measure} of {pairs} on {titled(labels['data'])} ({labels['model']}, {size}"
        f"{IMP[labels['IMP']]}{dead}), {far.difference.value:+.3f}."
    )
