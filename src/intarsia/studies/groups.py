"""Groups: finished cells by what a table keeps apart, and the spread over those of one group."""

from collections.abc import Iterable, Sequence
from typing import Any

from intarsia.studies.cells import Measured
from intarsia.studies.tables import Spread


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
