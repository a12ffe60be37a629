"""Numbers and lists in words, for sentences."""

import math
import statistics
from collections.abc import Iterable, Sequence

from intarsia.studies.tables import Spread

SMALL = (
    *("no", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)


def number(count: int) -> str:
    """`five`, `50`."""
    return SMALL[count] if count < len(SMALL) else f"{count:,}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """`one module`, `ten modules`, `50 modules`."""
    return f"{number(count)} {noun if count == 1 else plural or noun + 's'}"


def capital(sentence: str) -> str:
    """The first letter in upper case, all others as they are."""
    return sentence[:1].upper() + sentence[1:]


def percent(fraction: float) -> str:
    """One decimal, two close to 0 and to 1; `-` for nan."""
    if math.isnan(fraction) or fraction == 1:
        return "-" if math.isnan(fraction) else "100%"
    if fraction == 0 or 0.0005 <= fraction < 0.9995:
        return f"{100 * fraction:.1f}%"
    return f"{min(max(100 * fraction, 0.01), 99.99):.2f}%"


def spread(fractions: Sequence[float]) -> str:
    """`78.5% ± 2.9`, mean and standard deviation; of one fraction the fraction."""
    result = Spread.of(fractions)
    return percent(result.mean) + (f" ± {100 * result.sd:.1f}" if result.n > 1 else "")


def nats(value: float) -> str:
    """An entropy; `-` for nan."""
    return "-" if math.isnan(value) else f"{value:.3f}"


def mean(values: Iterable[float]) -> float:
    """The mean of the finite values; nan where there are none."""
    known = [value for value in values if math.isfinite(value)]
    return statistics.fmean(known) if known else math.nan


def duration(seconds: float) -> str:
    """`21 min 4 s`."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min {whole % 60} s"
    return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{whole} s"


def listed(items: Sequence[str], most: int = 12) -> str:
    """`a, b and c`; of many the first, and how many more there are."""
    items = list(items)
    if len(items) > most:
        items = [*items[: most - 1], f"{len(items) - most + 1} more"]
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))
