"""Tables of a study: numbers with their spread and the paper's beside them, in five formats."""

import csv
import io
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from intarsia.errors import StudyError
from intarsia.files import plain
from intarsia.studies.cells import Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group


SUSPECT, BEYOND, NOTHING = "†", "‡", "-"
PRINTED = 3  # decimals in the paper's tables
SEVERAL = 2  # of the paper's standard deviations: what lies further off is marked
LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"},
    **{SUSPECT: r"\dag{}", BEYOND: r"\ddag{}"},
}


@dataclass(frozen=True)
class Spread:
    """Mean, standard deviation (n - 1 in its denominator) and n; nan where there are too few."""

    mean: float
    sd: float
    n: int
    best: bool = False

    @classmethod
    def of(cls, values: Iterable[float | None], best: bool = False) -> "Spread":
        """Of the values that are there; None and nan are left out and not counted."""
        kept = finite(values)
        mean = statistics.fmean(kept) if kept else math.nan
        return cls(mean, statistics.stdev(kept) if len(kept) > 1 else math.nan, len(kept), best)

    @classmethod
    def of_any(cls, values: Iterable[float | None]) -> "Spread | None":
        """None where no value is there."""
        spread = cls.of(values)
        return spread if spread.n else None

    def __str__(self) -> str:
        return _with_sd(self.mean, self.sd, decimals(self.mean)) if self.n else NOTHING


@dataclass(frozen=True)
class Paper:
    """A number that a paper printed with so many places, and whether it is one to doubt."""

    mean: float
    sd: float | None = None
    suspect: bool = False
    places: int = PRINTED

    def __str__(self) -> str:
        sd = math.nan if self.sd is None else self.sd
        return _with_sd(self.mean, sd, self.places) + (SUSPECT if self.suspect else "")


@dataclass(frozen=True)
class Difference:
    """Ours minus the paper's; `beyond` where that is more than two of the paper's deviations.

    It has as many `places` as fit its size, but no more than a paper that prints fewer than usual.
    """

    value: float
    beyond: bool = False
    places: int | None = None

    @classmethod
    def of(cls, ours: Spread, paper: Paper | None) -> "Difference | None":
        """None where either is missing. Whether it is beyond is asked of the printed decimals."""
        if paper is None or not ours.n:
            return None
        off = abs(round(ours.mean, paper.places) - paper.mean)
        beyond = paper.sd is not None and off > SEVERAL * paper.sd + 1e-9
        places = paper.places if paper.places < PRINTED else None
        return cls(ours.mean - paper.mean, beyond, places)

    def __str__(self) -> str:
        places = decimals(self.value) if self.places is None else self.places
        return f"{round(self.value, places) + 0.0:+.{places}f}" + (BEYOND if self.beyond else "")


Entry = str | int | float | Spread | Paper | Difference | None


@dataclass(frozen=True)
class Table:
    """Rows of entries under named columns; what the marks in it mean is added to the notes.

    n stands in the notes where it is the same everywhere, else in the last column where each row
    has one n, else after each column of spreads.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    notes: Sequence[str] = ()
    included_in: str = ""  # the title of another table that has all of these rows
    statements: Mapping[str, str] = field(default_factory=dict)  # in CSV columns of their own

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise StudyError(
                    f"table {self.title!r}: row {number} has {len(row)} entries for "
                    f"{len(self.columns)} columns"
                )

    def records(self) -> list[dict[str, Any]]:
        """Rows as mappings from column to entry."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    @property
    def labels(self) -> int:
        """How many columns come before the first that holds a measured number; at least one."""
        return labels_of(self.rows)

    def markdown(self) -> str:
        columns, rows = self.with_n()
        texts = [[_markdown(c) for c in columns]]
        texts += [[_markdown(str_of(e), _is_best(e)) for e in row] for row in rows]
        widths = [max(3, *(len(row[i]) for row in texts)) for i in range(len(columns))]
        right = right_aligned(columns, rows)
        rule = ["-" * (w - 1) + (":" if r else "-") for w, r in zip(widths, right, strict=True)]
        lines = []
        for row in [texts[0], rule, *texts[1:]]:
            placed = zip(row, widths, right, strict=True)
            lines.append("| " + " | ".join(f"{t:>{w}}" if r else f"{t:<{w}}" for t, w, r in placed))
        lines = [f"{line} |" for line in lines]
        notes = [f"- {_markdown(note)}" for note in self.all_notes()]
        head = [f"**{_markdown(self.title)}**", ""]
        return "\n".join([*head, *lines, *(["", *notes] if notes else [])]) + "\n"

    def csv(self) -> str:
        """Means, deviations and n in columns of their own, without notes; empty where missing.

        Statements that belong to the numbers are in every row.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        parts = [_parts([row[i] for row in self.rows]) for i in range(len(self.columns))]
        names = zip(self.columns, parts, strict=True)
        heads = [f"{name} {part}".strip() for name, own in names for part in own]
        writer.writerow([*heads, *self.statements])
        for row in self.rows:
            pairs = zip(row, parts, strict=True)
            values = [_part(entry, part) for entry, own in pairs for part in own]
            writer.writerow([*values, *self.statements.values()])
        return text.getvalue()

    def latex(self) -> str:
        """A table environment with booktabs' rules."""
        columns, rows = self.with_n()
        places = "".join("r" if right else "l" for right in right_aligned(columns, rows))
        body = [[_latex_entry(e) for e in row] for row in rows]
        head, *below = (" & ".join(row) + r" \\" for row in [map(_latex, columns), *body])
        notes = [rf"\par\smallskip\footnotesize {_latex(note)}" for note in self.all_notes()]
        lines = [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            rf"\caption{{{_latex(self.title)}}}",
            rf"\begin{{tabular}}{{{places}}}",
            *[r"\toprule", head, r"\midrule", *below, r"\bottomrule"],
            r"\end{tabular}",
            *notes,
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        rows = [[_numbers(e) if _is_record(e) else e for e in row] for row in self.rows]
        content = {"title": self.title, "columns": self.columns, "rows": rows}
        return plain({**content, "notes": self.all_notes()}, "table")

    def all_notes(self) -> list[str]:
        """The notes given, and those that follow from the entries."""
        entries = [entry for row in self.rows for entry in row]
        counts = {entry.n for entry in entries if isinstance(entry, Spread) and entry.n}
        notes = list(self.notes)
        if len(counts) == 1:
            notes.append(f"mean (standard deviation), n = {counts.pop()}")
        elif counts:
            notes.append("mean (standard deviation)")
        if any(map(_is_best, entries)):
            notes.append(
                "bold: significantly above every other value of its group (Welch's t-test, 95%, "
                "not corrected for the number of groups)"
            )
        if any(isinstance(entry, Difference) and entry.beyond for entry in entries):
            notes.append(
                f"{BEYOND} more than {SEVERAL} of the paper's standard deviations from its number"
            )
        if any(isinstance(entry, Paper) and entry.suspect for entry in entries):
            notes.append(
                f"{SUSPECT} suspect: the paper prints the same digits for another data set"
            )
        return notes

    def __rich__(self) -> "Group":
        from rich import box
        from rich.console import Group
        from rich.table import Table as RichTable
        from rich.text import Text

        columns, rows = self.with_n()
        drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for name, right in zip(columns, right_aligned(columns, rows), strict=True):
            drawn.add_column(Text(name), justify="right" if right else "left")
        for row in rows:
            drawn.add_row(*(Text(str_of(e), style="bold" if _is_best(e) else "") for e in row))
        return Group(Text(self.title, style="bold"), drawn, *map(Text, self.all_notes()))

    def __str__(self) -> str:
        return plain_text(self, 1000)

    def with_n(self) -> tuple[list[str], list[list[Entry]]]:
        """Columns and rows as they are shown, with n where it is not the same everywhere."""
        counts = [
            [e.n or None if isinstance(e, Spread) else None for e in row] for row in self.rows
        ]
        of_row = [{n for n in row if n is not None} for row in counts]
        columns, rows = list(self.columns), [list(row) for row in self.rows]
        if len(set().union(*of_row)) <= 1:
            return columns, rows
        spreads = [i for i in range(len(columns)) if any(row[i] is not None for row in counts)]
        if all(len(result) <= 1 for result in of_row):
            rows = [[*row, next(iter(n), None)] for row, n in zip(rows, of_row, strict=True)]
            return [*columns, "n"], rows
        # From the right, so that places further left stay what they were.
        for place in reversed(spreads):
            columns.insert(place + 1, f"{columns[place]} n")
            for row, own in zip(rows, counts, strict=True):
                row.insert(place + 1, own[place])
        return columns, rows


def plain_text(value: Any, width: int) -> str:
    """What rich shows of a value, without colours, lines cut at their last letter."""
    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=width, color_system=None).print(value)
    return "\n".join(line.rstrip() for line in text.getvalue().rstrip().splitlines())


def labels_of(rows: Sequence[Sequence[Entry]]) -> int:
    """How many entries of rows come before the first measured number; at least one."""
    firsts = [next((i for i, e in enumerate(row) if _is_record(e)), len(row)) for row in rows]
    return max(1, min(firsts, default=1))


def grouped(done: Sequence[Measured], *settings: str) -> dict[tuple[Any, ...], list[Measured]]:
    """Cells by the values of these settings, in the order in which they come."""
    groups: dict[tuple[Any, ...], list[Measured]] = {}
    for cell in done:
        groups.setdefault(tuple(cell.settings[key] for key in settings), []).append(cell)
    return groups


def point(values: Iterable[float | None]) -> tuple[float, float]:
    """Mean and standard deviation, as a figure draws them."""
    spread = Spread.of(values)
    return spread.mean, spread.sd


def accuracy_bars(panels: Mapping[str, Mapping[str, Any]], title: str) -> "Figure":
    """Accuracies as bars, groups of `point`s by panel, all panels of one height."""
    from intarsia.plots import bar_panels

    return bar_panels(panels, title=title, y="accuracy", share_y=True, bounds=(0.0, 1.0))


def finite(values: Iterable[float | None]) -> list[float]:
    """The values that are numbers: a mean over no sample is None or nan."""
    return [float(v) for v in values if v is not None and math.isfinite(v)]


def known(value: float) -> float | None:
    """The value, or None where it is nan, as a mean over no sample is."""
    return None if math.isnan(value) else value


def yes_no(value: bool | None) -> str | None:
    """A truth as a table's entry; none where it is unknown."""
    return None if value is None else "yes" if value else "no"


def decimals(value: float) -> int:
    """How many decimals of a number are shown: fewer of a large one."""
    size = abs(value)
    return 1 if size >= 100 else 2 if size >= 10 else 4


def str_of(entry: Entry) -> str:
    """An entry in plain text, a number with its `decimals`; a dash where there is none."""
    if entry is None or (isinstance(entry, float) and math.isnan(entry)):
        return NOTHING
    return f"{entry:.{decimals(entry)}f}" if isinstance(entry, float) else str(entry)


def _with_sd(mean: float, sd: float, places: int) -> str:
    spread = "" if math.isnan(sd) else f" ({sd:.{places}f})"
    return f"{mean:.{places}f}{spread}"


def _numbers(entry: Entry) -> dict[str, Any]:
    """What an entry holds, without how it is shown."""
    return {key: value for key, value in vars(entry).items() if key != "places"}


def _is_best(entry: Entry) -> bool:
    return isinstance(entry, Spread) and entry.best


def _is_record(entry: Entry) -> bool:
    return isinstance(entry, Spread | Paper | Difference)


def right_aligned(columns: Sequence[str], rows: Sequence[Sequence[Entry]]) -> list[bool]:
    """Which columns hold numbers alone."""
    return [
        bool(rows) and not any(isinstance(row[i], str) for row in rows) for i in range(len(columns))
    ]


def _parts(entries: Sequence[Entry]) -> list[str]:
    """What a column of entries becomes in a CSV file."""
    parts = [""]
    if any(isinstance(e, Spread | Paper) for e in entries):
        parts.append("sd")
    if any(isinstance(e, Spread) for e in entries):
        parts.append("n")
    for kind, part in ((Spread, "best"), (Paper, "suspect"), (Difference, "beyond")):
        if any(isinstance(e, kind) and getattr(e, part) for e in entries):
            parts.append(part)
    return parts


def _part(entry: Entry, part: str) -> Entry:
    value: Any = entry
    if _is_record(entry):
        main = "value" if isinstance(entry, Difference) else "mean"
        value = getattr(entry, part or main, None)
    elif part:
        value = None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.6g}")
    return value


def _markdown(text: str, best: bool = False) -> str:
    for letter in "\\|*`<[":
        text = text.replace(letter, f"\\{letter}")
    text = " ".join(text.split())
    return f"**{text}**" if best else text


def _latex(text: str, best: bool = False) -> str:
    text = "".join(LATEX.get(letter, letter) for letter in " ".join(text.split()))
    return rf"\textbf{{{text}}}" if best else text


def _latex_entry(entry: Entry) -> str:
    text = _latex(str_of(entry), _is_best(entry))
    if isinstance(entry, str) or text == NOTHING:
        return text
    return text.replace("-", "$-$")  # a minus, not a hyphen
