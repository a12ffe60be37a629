"""The report of whatever there is: modules, a study, or pattern networks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from intarsia.artifacts import is_study
from intarsia.composition import Composition
from intarsia.composition.module_paths import header_of
from intarsia.data import Data
from intarsia.errors import StudyError
from intarsia.models import Model
from intarsia.modules import Module
from intarsia.reports.html.page import Report, Section
from intarsia.reports.modules.modules_report import modules_report
from intarsia.reports.modules.report_input import Source
from intarsia.reports.patterns.pattern_report import pattern_report
from intarsia.reports.study.study_report import study_report
from intarsia.sweetspot.networks import FORMAT, PatternBank, PatternNetwork

PATTERNS = "a page of pattern networks"


def report(
    artifact: Source | PatternNetwork | PatternBank,
    data: str | Data | None = None,
    *,
    title: str | None = None,
    compare: Mapping[str, Module | Composition] | None = None,
    sections: Sequence[Section] = (),
    rows: int | None = None,
    study: str | None = None,
    data_options: Mapping[str, Any] | None = None,
    model: Model | None = None,
    probe: bool = False,
) -> Report:
    """What was trained or measured, on one page that needs nothing else; `.save(path)` writes it.

    `artifact` is a bank, a composition, a module or several, or paths of them; also the folder that
    `intarsia demo` writes, or the store or archive of a study, of which `study` names one. Pattern
    networks, or a file of them, give the page of `pattern_report`.

    `data` is by default what the modules were trained on; where it is not available the page says
    so and leaves out what would be measured on it. `compare` holds other classifiers of the same
    classes by name, for the table of ways to join. `sections` come before the commands at the end:
    that is where results of yours go. At most `rows` test samples are measured on. `data_options`
    are those of `load_data`, and `model` is the factory of modules that are read, as in
    Module.load. With `probe` a fresh head is trained on the joined network. Studies and pattern
    networks take none of these, nor a title.
    """
    options: dict[str, object] = {"data": data, "title": title, "rows": rows, "model": model}
    options |= {"probe": probe or None}
    options |= {"compare": compare or None, "sections": sections or None}
    options |= {"data_options": data_options or None}
    path = _only_path(artifact)
    if path is not None and is_study(path):
        _refuse(options, "a study is shown as it was measured and")
        return study_report(path, study)
    if path is not None and header_of(path).get("format") == FORMAT:
        _refuse(options | {"study": study}, PATTERNS)
        return pattern_report(path)
    if isinstance(artifact, PatternNetwork | PatternBank):
        _refuse(options | {"study": study}, PATTERNS)
        return pattern_report(artifact)
    if study is not None:
        raise StudyError(
            f"there is no study {study!r} to show: give the folder of a store or the file of an "
            "archive"
        )
    return modules_report(
        artifact,
        data,
        title=title,
        compare=compare,
        sections=sections,
        rows=rows,
        data_options=data_options,
        model=model,
        probe=probe,
    )


def _refuse(options: Mapping[str, object], page: str) -> None:
    """An error for what is given and has no meaning for such a page."""
    for name, value in options.items():
        if value is not None:
            raise StudyError(f"{page} takes no {name}: leave {name} out")


def _only_path(artifact: object) -> Path | None:
    """The path, if it is one, or a list of one."""
    if isinstance(artifact, list | tuple) and len(artifact) == 1:
        artifact = artifact[0]
    return Path(artifact) if isinstance(artifact, str | Path) else None
