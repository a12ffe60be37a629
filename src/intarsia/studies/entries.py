"""Entries of a table: numbers with their spread, the paper's, and how far apart they are."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

SUSPECT, BEYOND, NOTHING = "†", "‡", "-"
PRINTED = 3  # decimals in the paper's tables
SEVERAL = 2  # of the paper's standard deviations: what lies further off is marked


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

    def __str__(self) -> str:
        return _with_sd(self.mean, self.sd, decimals(self.mean)) if self.n else NOTHING


@dataclass(frozen=True)
class Paper:
    """A number that a paper printed, and whether it is one to doubt."""

    mean: float
    sd: float | None = None
    suspect: bool = False

    def __str__(self) -> str:
        sd = math.nan if self.sd is None else self.sd
        return _with_sd(self.mean, sd, PRINTED) + (SUSPECT if self.suspect else "")


@dataclass(frozen=True)
class Difference:
    """Ours minus the paper's; `beyond` where that is more than two of the paper's deviations."""

    value: float
    beyond: bool = False

    @classmethod
    def of(cls, ours: Spread, paper: Paper | None) -> "Difference | None":
        """None where either is missing. Whether it is beyond is asked of the printed decimals."""
        if paper is None or not ours.n:
            return None
        off = abs(round(ours.mean, PRINTED) - paper.mean)
        beyond = paper.sd is not None and off > SEVERAL * paper.sd + 1e-9
        return cls(ours.mean - paper.mean, beyond)

    def __str__(self) -> str:
        places = decimals(self.value)
        return f"{round(self.value, places) + 0.0:+.{places}f}" + (BEYOND if self.beyond else "")


Entry = str | int | float | Spread | Paper | Difference | None


def finite(values: Iterable[float | None]) -> list[float]:
    """The values that are numbers: a mean over no sample is None or nan."""
    return [float(v) for v in values if v is not None and math.isfinite(v)]


def known(value: float) -> float | None:
    """The value, or None where it is nan, as a mean over no sample is."""
    return None if math.isnan(value) else value


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
