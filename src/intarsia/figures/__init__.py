"""Pictures as SVG text, on paper of their own: heat maps of square tables, curves and bars."""

from intarsia.figures.bars import bar_figure
from intarsia.figures.curves import line_figure
from intarsia.figures.matrices import answers_figure, confusion_figure, matrix_figure

__all__ = ["answers_figure", "bar_figure", "confusion_figure", "line_figure", "matrix_figure"]
