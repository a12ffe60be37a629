"""Verdicts: what reproduces, what does not, what was left out and why, and what is missing.

A study decides this once, from its cells. The command, the report and the pages print it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from intarsia.errors import StudyError, shortened
from intarsia.files import plain
from intarsia.measure.significance import LEVEL, best_p, holm
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.tables import (
    Difference,
    Entry,
    Paper,
    Spread,
    Table,
    finite,
    grouped,
    plain_text,
    str_of,
)
from intarsia.studies.wording import IMP, imp_label, sentences, several, titled

if TYPE_CHECKING:
    from rich.console import Group

NAMED = 12  # sets of missing cells that are named
SEEDS = 5  # of a set that are named; more are counted
WIDTH = 110  # of the plain text
ALWAYS = ("data", "model")  # named of missing cells although all may have the same
MARKS = {True: "✓ ", False: "✗ ", None: ""}  # of claims: they hold, they do not, or nobody can tell
NAMELESS = ("data", "model", "objective", "operator", "way", "matrix")  # columns whose values speak


@dataclass(frozen=True)
class Claim:
    """A sentence, whether it holds, and the numbers behind it.

    `holds` is None where nobody claimed it, or where too little is measured to tell. Where the
    evidence has `count` and `of`, `short` says in a few words what is counted. `details` are points
    for a list.
    """

    text: str
    holds: bool | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    n: int = 0
    short: str = ""
    details: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.short and not {"count", "of"} <= self.evidence.keys():
            raise StudyError(
                f"the claim {shortened(self.text)} has short={shortened(self.short)} and evidence "
                f"{sorted(self.evidence)}: expected 'count' and 'of' in it, which short is about"
            )

    @property
    def marked(self) -> str:
        """The sentence behind a mark for whether it holds; none where that is not known."""
        return f"{MARKS[self.holds]}{self.text}"

    @property
    def counted(self) -> str:
        """`114 of 172`, where the claim is a count."""
        return f"{self.evidence['count']} of {self.evidence['of']}" if self.short else ""


@dataclass(frozen=True)
class Verdict:
    """What a study says: in one line for lists, and claim by claim.

    `failed` holds groups of modules that training or pruning spoiled, with the reason: they count
    against every claim that speaks of them. `missing` names the cells that are not measured yet.
    """

    line: str
    claims: Sequence[Claim] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[str] = ()

    @property
    def statements(self) -> list[Claim]:
        """All claims, and one for each group that failed."""
        failed = [f"Counted as missed: {group}, {why}." for group, why in self.failed.items()]
        return [*self.claims, *(Claim(text, holds=False) for text in failed)]

    @property
    def text(self) -> str:
        """Claims, behind their marks, and what failed, as one paragraph."""
        return sentences(*(claim.marked for claim in self.statements))

    @property
    def details(self) -> list[str]:
        """The points of all claims."""
        return [point for claim in self.claims for point in claim.details]

    def lines(self, indent: int = 2, details: bool = True) -> list[str]:
        """A list of the claims, each with its points below it, and of what is missing."""
        result = []
        for claim in self.statements:
            result.append(f"- {claim.marked}")
            result += [f"{' ' * indent}- {point}" for point in claim.details if details]
        return [*result, *(f"- Missing: {cells}" for cells in self.missing)]

    def markdown(self, details: bool = True) -> str:
        """The list, as Markdown nests it."""
        return "\n".join(self.lines(indent=4, details=details))

    def to_json(self) -> dict[str, Any]:
        claims = [vars(claim) for claim in self.claims]
        result: dict[str, Any] = plain({**vars(self), "claims": claims}, "verdict")
        return result

    def __rich__(self) -> "Group":
        from rich.console import Group
        from rich.text import Text

        return Group(Text("Verdict", style="bold"), *map(Text, self.lines()))

    def __str__(self) -> str:
        return plain_text(self, WIDTH)


@dataclass(frozen=True)
class Findings:
    """What a verdict is made from: the cells that count, and others to hold them against."""

    cells: Sequence[Measured]
    label: str = "these options"  # what the cells were made with, such as: preset `paper`
    variants: Mapping[str, Sequence[Measured]] = field(default_factory=dict)  # of the same study
    related: Mapping[str, Mapping[str, Sequence[Measured]]] = field(default_factory=dict)
    """Cells of other studies, by name and label."""

    @property
    def by_label(self) -> dict[str, Sequence[Measured]]:
        """The cells that count and those of all variants."""
        return {self.label: self.cells, **self.variants}

    def by_network(self) -> Iterator[tuple[str, list[Measured]]]:
        """All of them by data and model, under `CIFAR-100, mlp(32)`.

        A variant is named, too, where its network is that of others.
        """
        groups = {label: grouped(own, "data", "model") for label, own in self.by_label.items()}
        places = Counter(place for own in groups.values() for place in own)
        for label, own in groups.items():
            for (data, model), group in own.items():
                shared = label != self.label and places[data, model] > 1
                yield f"{titled(data)}, {model}" + f", {label}" * shared, group


def table_verdict(tables: Sequence[Table]) -> Verdict:
    """Of a study without a verdict of its own: the printed numbers that are met, else extremes."""
    compared = max((_compared(table) for table in tables), key=len, default=[])
    if not compared:
        return _extremes(tables)
    met, of = sum(not difference.beyond for difference in compared), len(compared)
    short = "printed numbers within two standard deviations"
    text = f"{met} of {of} printed numbers are met within two of the paper's standard deviations."
    evidence = {"count": met, "of": of}
    claim = Claim(text, holds=met == of, evidence=evidence, n=of, short=short)
    return Verdict(f"{claim.counted} {short}", [claim])


def _compared(table: Table) -> list[Difference]:
    """Differences from printed numbers that are not suspect; a row has each after the number."""
    differences = []
    for row in table.rows:
        printed = None
        for entry in row:
            if isinstance(entry, Paper):
                printed = entry
            elif isinstance(entry, Difference) and printed and not printed.suspect:
                differences.append(entry)
    return differences


def _extremes(tables: Sequence[Table]) -> Verdict:
    """Where the first measured number is highest and lowest; accuracy goes before others."""
    for table in tables:
        rows = table.records()
        columns = [name for name in table.columns if sum(_is_known(row[name]) for row in rows) > 1]
        if not columns:
            continue
        column = next((name for name in columns if "accuracy" in name), columns[0])
        rows = [row for row in rows if _is_known(row[column])]
        high = max(rows, key=lambda row: row[column].mean)
        low = min(rows, key=lambda row: row[column].mean)
        names = [n for n in table.columns[: table.labels] if len({str(r[n]) for r in rows}) > 1]
        line = (
            f"{column} is highest for {row_label(high, names)}, {high[column]}, and lowest for "
            f"{row_label(low, names)}, {low[column]}"
        )
        if high[column].mean == low[column].mean:
            line = f"{column} is {high[column]} in every row"
        return Verdict(line, [Claim(f"{table.title}: {line}.", n=len(rows))])
    return Verdict("no number is measured yet")


def row_label(row: Mapping[str, Entry], names: Sequence[str]) -> str:
    """`mnist, shallow, with IMP`: what a row is of."""
    parts = []
    for name in names:
        text = str_of(row[name])
        if name == "IMP":
            parts.append(IMP.get(text, text))
        elif name.startswith("|"):
            parts.append(f"{name} = {text}")
        else:
            parts.append(text if name in NAMELESS else f"{name} {text}")
    return ", ".join(parts)


def missing_cells(planned: Sequence[Cell], missing: Collection[str]) -> list[str]:
    """`fashion_mnist, deep: 45 cells`: the widest sets of which all cells are missing, by keys."""
    if not missing:
        return []
    lines = _all_missing(planned, missing, _varying(planned), ())
    rest = len(lines) - NAMED
    return lines if rest <= 0 else [*lines[:NAMED], f"and {several(rest, 'more such set')}"]


def _all_missing(
    cells: Sequence[Cell], keys: Collection[str], names: Sequence[str], head: Sequence[str]
) -> list[str]:
    """One line for these cells if all are missing, else for their parts by the next setting."""
    missing = [cell for cell in cells if cell.key in keys]
    if not missing:
        return []
    rest = names == ["seed"] and len(missing) > SEEDS
    if not names or rest or (head and len(missing) == len(cells)):
        return [f"{', '.join(head)}: {several(len(missing), 'cell')}"]
    if names == ["seed"]:
        seeds = ", ".join(str(cell.settings["seed"]) for cell in missing)
        return [", ".join([*head, f"seed{'s' * (len(missing) > 1)} {seeds}"])]
    parts: dict[str, list[Cell]] = {}
    for cell in cells:
        parts.setdefault(_setting_label(cell, names[0]), []).append(cell)
    return [
        line
        for label, own in parts.items()
        for line in _all_missing(own, keys, names[1:], [*head, label] if label else head)
    ]


def _varying(cells: Sequence[Cell]) -> list[str]:
    """Settings of which not all cells have the same, as far as they are text or numbers."""
    values: dict[str, set[Any]] = {}
    for cell in cells:
        for name, value in cell.settings.items():
            if isinstance(value, str | int | float):
                values.setdefault(name, set()).add(value)
    names = [name for name in values if name in ALWAYS or len(values[name]) > 1]
    return sorted(names, key=lambda name: name == "seed")


def _setting_label(cell: Cell, name: str) -> str:
    """A setting in words; none where the cell has no such setting."""
    value = cell.settings.get(name)
    if isinstance(value, str) or value is None:
        return value or ""
    return imp_label(bool(value)) if name == "imp" else f"{name} {value}"


def by_mean(groups: Mapping[Any, Iterable[float | None]]) -> dict[Any, Spread]:
    """Spreads of what has values, from the highest mean on."""
    spreads = {name: Spread.of(values) for name, values in groups.items()}
    known = {name: spread for name, spread in spreads.items() if spread.n}
    return dict(sorted(known.items(), key=lambda item: -item[1].mean))


def surely_best(
    family: Mapping[Any, Mapping[Any, Sequence[float | None]]],
) -> dict[Any, bool]:
    """Place by place, whether Welch's test puts the highest mean above every other.

    A verdict that counts such places asks for all of them at once: p is corrected by Holm's method
    for their number.
    """
    values = [
        best_p({str(name): finite(own) for name, own in groups.items()})[1]
        for groups in family.values()
    ]
    return {place: p < LEVEL for place, p in zip(family, holm(values), strict=True)}


def _is_known(entry: Entry) -> bool:
    return isinstance(entry, Spread) and entry.n > 0
