"""Reports: what was trained, what it knows and how it fits, on one page that needs nothing else."""

from intarsia.reports.opening import report
from intarsia.reports.page import Report, Section, page

__all__ = ["Report", "Section", "page", "report"]
