"""Reports: what was trained, what it knows and how it fits, on one page that needs nothing else."""

from intarsia.reports.create import report
from intarsia.reports.html.page import Report, Section, page
from intarsia.reports.modules.sections import SECTIONS, ReportContext, section
from intarsia.reports.patterns.pattern_report import pattern_report

__all__ = [
    "SECTIONS",
    "Report",
    "ReportContext",
    "Section",
    "page",
    "pattern_report",
    "report",
    "section",
]
