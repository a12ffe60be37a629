"""The figures of a report: each goes into the page and is kept for a file of its own."""

from intarsia.reports.html.elements import figure


class FigureSet:
    """SVG text by name, in the order in which the figures were drawn."""

    def __init__(self) -> None:
        self.svgs: dict[str, str] = {}

    def figure(self, name: str, svg: str, caption: str, label: str) -> str:
        """Keep a figure and give its HTML, as `elements.figure` makes it."""
        self.svgs[name] = svg
        return figure(svg, caption, label, name=name)
