"""Measures between every two modules of a bank, as a value that prints and draws itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import DataError, comma_separated, nearest
from intarsia.files import plain
from intarsia.measure.evaluation import Renderable, format_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group
    from rich.table import Table

MATRIX_UP_TO = 12  # modules; beyond, a table is wider than a window
WINDOW = 96  # letters across, which long names may need, too


@dataclass(frozen=True, eq=False)
class Matrix(Renderable):
    """Every measure between every two of M modules, as M x M arrays with nan on the diagonal."""

    names: tuple[str, ...]
    measures: Mapping[str, np.ndarray]
    samples: int

    def __getitem__(self, measure: str) -> np.ndarray:
        if measure not in self.measures:
            raise DataError(f"there is no measure {measure!r}: {nearest(measure, self.measures)}")
        return self.measures[measure]

    def figure(self) -> "Figure":
        """All measures as heat maps."""
        from intarsia.plots import matrix_panels

        known = {n.replace("_", " "): v for n, v in self.measures.items() if np.isfinite(v).any()}
        return matrix_panels(known, self.names)

    def to_json(self) -> dict[str, Any]:
        return plain(vars(self), "compatibility")

    def __rich__(self) -> "Group":
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(caption=f"{len(self.names)} modules, {self.samples} samples")
        for heading in ("measure", "least", "mean", "most", "most between"):
            table.add_column(heading, justify="right" if heading[-1] in "tn" else "left")
        for name, values in self.measures.items():
            if not np.isfinite(values).any():
                continue
            low, mean, high = np.nanmin(values), np.nanmean(values), np.nanmax(values)
            row, column = np.unravel_index(np.nanargmax(values), values.shape)
            where = Text(comma_separated((self.names[row], self.names[column])))
            table.add_row(name.replace("_", " "), *map(format_number, (low, mean, high)), where)
        return Group(table, *self._square())

    def _square(self) -> list["Table"]:
        """The measure that says most, in full, where it fits a window."""
        from rich.table import Table
        from rich.text import Text

        name = next((n for n, v in self.measures.items() if np.isfinite(v).any()), "")
        if not name or len(self.names) > MATRIX_UP_TO:
            return []
        table = Table(title=Text(name.replace("_", " ")), title_justify="left")
        for heading in ("", *self.names):
            table.add_column(Text(heading), justify="right" if heading else "left")
        for module, values in zip(self.names, self.measures[name], strict=True):
            cells = ("-" if np.isnan(v) else f"{round(v, 3) + 0.0:.3f}" for v in values)
            table.add_row(Text(module), *cells)
        longest = max(map(len, self.names))
        wide = longest + sum(max(6, len(name)) + 3 for name in self.names)
        return [table] if wide <= WINDOW else []
