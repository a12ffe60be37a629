"""The commands that make a report again, from training to the page."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from intarsia.composition import Composition
from intarsia.data import DATASETS, is_path
from intarsia.modules import file_name
from intarsia.reports.html.elements import commands, paragraph
from intarsia.reports.html.page import Section
from intarsia.reports.modules.measurements import Measured
from intarsia.reports.modules.report_input import ReportInput
from intarsia.training.run_folder import RECIPE

UNNAMED = "DATA.npz"  # stands for data that has neither a name nor a file
Line = list[str]


def again(subject: ReportInput, measured: Measured | None) -> Section:
    """The commands that lead here, each as a shell takes it."""
    lines = [
        *_training(subject),
        *_joining(subject, measured),
        *_comparing(subject, measured),
        _reporting(subject),
    ]
    own = _model(subject)
    text = commands(shlex.join(["intarsia", *line, *own]) for line in lines)
    return Section("again", "Make it again", f"{paragraph(_opening(subject, measured))}\n{text}")


def _opening(subject: ReportInput, measured: Measured | None) -> str:
    many = len(subject.together) > 1
    first = "Train the modules again, join them" if many else "Train it again"
    words = [f"{first}, and measure what this page shows."]
    if subject.recipe and not _has_recipe(subject):
        words.append("The whole recipe above, saved as recipe.yaml, is what the first line reads.")
    if subject.source is None:
        words.append(f"The data has no name: {UNNAMED} stands for a file of it.")
    merged = subject.merged
    if merged is not None and merged.samples is not None:
        words.append("Samples are taken from the validation part of the data.")
    if measured is not None and measured.path is not None and subject.paths and not _ends(measured):
        words.append("For the path between two, `intarsia path` wants the files of both modules.")
    if subject.paths:
        words.append("The same files give the same page, byte for byte, on the same machine.")
    return " ".join(words)


def _training(subject: ReportInput) -> list[Line]:
    if not subject.recipe:
        return []
    recipe = str((subject.folder or Path()) / RECIPE) if _has_recipe(subject) else RECIPE
    source = str(subject.recipe.get("data"))
    named = source in DATASETS or is_path(source)
    out = "again/" if subject.paths else "modules/"
    return [["train", recipe, out, *([] if named else ["--data", UNNAMED])]]


def _joining(subject: ReportInput, measured: Measured | None) -> list[Line]:
    """The modules alone, then each way to join them that the page shows."""
    lines = []
    if subject.merged is None:
        paths = [str(subject.folder)] if subject.folder else [str(p) for p in subject.paths]
        lines = [_evaluating(path, subject) for path in paths or ["modules/"]]
    ways: dict[str, Line] = {}
    if subject.merged is not None:
        ways["whole"] = _options(subject.merged, subject)
    elif len(subject.together) > 1:
        known = ["logits"] if measured is None else list(measured.joined)
        ways = {operator: ["--operator", operator] for operator in known}
    for name, options in ways.items():
        out = f"{name}.safetensors"
        lines.append(["compose", *_modules(subject), *options, "-o", out])
        lines.append([*_evaluating(out, subject), "--confusion"])
    return lines


def _comparing(subject: ReportInput, measured: Measured | None) -> list[Line]:
    lines: list[Line] = []
    if measured is None or subject.data is None:
        return lines
    if measured.matrix is not None and len(subject.data.validation):
        lines.append(["compatibility", *_modules(subject), *_samples(subject)])
    if measured.path is not None and (ends := _ends(measured)):
        rows = str(measured.path.curves["train"].n)
        lines.append(["path", *ends, *_data(subject), "--rows", rows])
    return lines


def _reporting(subject: ReportInput) -> Line:
    made = "modules/" if subject.merged is None else "whole.safetensors"
    line = ["report", *(map(str, subject.paths) if subject.paths else [made])]
    line += ["-o", "report.html", "--figures", "figures/"]
    if subject.named is not None or not subject.known or subject.options:
        line += _data(subject)
    return [*line, "--rows", str(subject.rows)] if subject.rows else line


def _modules(subject: ReportInput) -> Line:
    """What names the modules that are joined."""
    if subject.folder is None and subject.paths:
        return [str(path) for path in subject.paths]
    if len(subject.seeds) > 1 and not subject.others and subject.folder is not None:
        return [str(path) for path in subject.files.values()]
    seed = ["--seed", str(subject.seeds[0])] if subject.others else []
    return ["modules/" if subject.folder is None else str(subject.folder), *seed]


def _evaluating(path: str, subject: ReportInput) -> Line:
    return ["evaluate", path, *_data(subject)]


def _options(merged: Composition, subject: ReportInput) -> Line:
    """What `compose` is told of a composition."""
    options = merged.options
    line = ["--operator", str(merged.operator)]
    line += ["--align", options.align] if options.align else []
    line += [] if options.recalibrate else ["--no-recalibrate"]
    line += ["--calibrate"] if options.calibrate else []
    return line + (_samples(subject) if merged.samples is not None else [])


def _ends(measured: Measured) -> Sequence[str]:
    """The files of the two modules that the path is between; none where they have no files."""
    subject = measured.subject
    assert measured.pair is not None
    names = [module.name for module in measured.pair]
    if not subject.paths and subject.merged is None:
        return [f"modules/{file_name(name)}" for name in names]
    result = [str(subject.files[name]) for name in names if name in subject.files]
    return result if len(result) == len(names) else []


def _has_recipe(subject: ReportInput) -> bool:
    return subject.folder is not None and (subject.folder / RECIPE).is_file()


def _data(subject: ReportInput) -> Line:
    """What names the data that is measured on, and how it is loaded."""
    others = {key: value for key, value in subject.options.items() if key != "target"}
    words = [f"{key}={json.dumps(value)}" for key, value in others.items()]
    return [
        "--data",
        _source(subject),
        *_target(subject),
        *(w for o in words for w in ("--set", o)),
    ]


def _samples(subject: ReportInput) -> Line:
    return ["--samples", _source(subject), *_target(subject)]


def _target(subject: ReportInput) -> Line:
    """A column by its number, or by its name, in quotes if that is a number."""
    target = subject.options.get("target")
    if target is None:
        return []
    quoted = isinstance(target, str) and target.lstrip("-").isdigit()
    return ["--target", f"'{target}'" if quoted else str(target)]


def _model(subject: ReportInput) -> Line:
    """The factory of modules that have one, if a command can import it."""
    factory = subject.modules[0].factory
    name = getattr(factory, "__qualname__", "<locals>")
    module = getattr(factory, "__module__", "__main__")
    if factory is None or "<" in name or module == "__main__":
        return []
    return ["--model", f"{module}:{name}"]


def _source(subject: ReportInput) -> str:
    return subject.source or UNNAMED
