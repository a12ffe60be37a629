"""Numbers and lists as a sentence has them."""

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
    """The first letter large, all others as they are."""
    return sentence[:1].upper() + sentence[1:]


def percent(share: float) -> str:
    """One decimal, two close to nothing and to all; `-` for a share of nothing."""
    if math.isnan(share) or share == 1:
        return "-" if math.isnan(share) else "100%"
    if share == 0 or 0.0005 <= share < 0.9995:
        return f"{100 * share:.1f}%"
    return f"{min(max(100 * share, 0.01), 99.99):.2f}%"


def spread(shares: Sequence[float]) -> str:
    """`78.5% ± 2.9`, mean and standard deviation; of one share the share."""
    result = Spread.of(shares)
    return percent(result.mean) + (f" ± {100 * result.sd:.1f}" if result.n > 1 else "")


def nats(value: float) -> str:
    """An entropy as sentences have it; `-` for a mean over nothing."""
    return "-" if math.isnan(value) else f"{value:.3f}"


def mean(values: Iterable[float]) -> float:
    """Of the values that are numbers; nan where there are none."""
    known = [value for value in values if math.isfinite(value)]
    return statistics.fmean(known) if known else math.nan


def duration(seconds: float) -> str:
    """`21 min 4 s`."""
    merged = round(seconds)
    hours, minutes = merged // 3600, merged % 3600 // 60
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min {merged % 60} s"
    return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{merged} s"


def listed(items: Sequence[str], most: int = 12) -> str:
    """`a, b and c`; of many the first, and how many more there are."""
    items = list(items)
    if len(items) > most:
        items = [*items[: most - 1], f"{len(items) - most + 1} more"]
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))
