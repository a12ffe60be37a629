"""Figures of a study that are drawn when somebody asks for them."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class LaterFigures(Mapping[str, "Figure"]):
    """Figures by name, each drawn once and when it is asked for: of many, a page shows a few."""

    def __init__(self, ways: "Mapping[str, Callable[[], Figure]]") -> None:
        self._ways = dict(ways)
        self._drawn: dict[str, Figure] = {}

    def __getitem__(self, name: str) -> "Figure":
        if name not in self._drawn:
            self._drawn[name] = self._ways[name]()
        return self._drawn[name]

    def __contains__(self, name: object) -> bool:
        return name in self._ways

    def __iter__(self) -> Iterator[str]:
        return iter(self._ways)

    def __len__(self) -> int:
        return len(self._ways)
