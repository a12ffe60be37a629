"""What the verdicts on studies are made of: counts, means in order, lists of words."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from intarsia.measure.significance import best_of
from intarsia.studies import Spread, Table
from intarsia.studies.tables import finite

PRUNED = {"yes": "with IMP", "no": "without IMP"}
TITLES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "har": "HAR", "yeast": "Yeast"}
Row = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """What a study says: in one line, in a paragraph, and in points for a list."""

    line: str
    words: str
    points: tuple[str, ...] = ()

    def markdown(self) -> str:
        """The paragraph, then the list."""
        listing = "\n".join(f"- {point}" for point in self.points)
        return "\n\n".join(filter(None, [self.words, listing]))


def sentences(*parts: str) -> str:
    """The parts that say something, as one paragraph."""
    return " ".join(filter(None, parts))


def points(result: Mapping[str, str]) -> tuple[str, ...]:
    """Points under their names; empty ones fall out."""
    return tuple(f"{name}: {text}" for name, text in result.items() if text)


def rows_of(table: Table) -> list[Row]:
    """Rows as mappings from column to entry."""
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


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
    known = [result for item in items if (result := holds(item)) is not None]
    return f"{sum(map(bool, known))} of {len(known)}"


def listed(parts: Sequence[str]) -> str:
    """Parts as a list of words: a, b and c."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def several(number: int, word: str) -> str:
    """`1 seed`, `2 seeds`."""
    return f"{number} {word if number == 1 else f'{word}s'}"


def titled(data: str) -> str:
    """A data set as a text names it."""
    return TITLES.get(data, data)


def capital(text: str) -> str:
    """With a capital first letter, and all others as they were."""
    return text[:1].upper() + text[1:]
