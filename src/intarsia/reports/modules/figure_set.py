"""The figures of a report: each goes into the page and is kept for a file of its own."""

from matplotlib.figure import Figure

from intarsia.plots import svg
from intarsia.reports.html.elements import figure


class FigureSet:
    """Figures by name, in the order in which they were drawn."""

    def __init__(self) -> None:
        self.figures: dict[str, Figure] = {}

    def figure(self, name: str, drawn: Figure, caption: str, label: str) -> str:
        """Keep a figure and give its HTML, as `elements.figure` makes it."""
        self.figures[name] = drawn
        return figure(svg(drawn), caption, label, name=name)
