"""The commands that reproduce a report, from training to the page."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from intarsia.composition import Composition
from intarsia.data import DATASETS, is_path
from intarsia.modules import file_name
from intarsia.reports.html.elements import commands, paragraph
from intarsia.reports.modules.measurements import Measurements
from intarsia.reports.modules.report_input import ReportInput
from intarsia.reports.modules.sections import ReportContext, section
from intarsia.training.run_folder import RECIPE

UNNAMED = "DATA.npz"  # stands for data that has neither a name nor a file
Line = list[str]


@section("reproduce", "Reproduce this page", order=110)
def reproduce(context: ReportContext) -> str:
    """The commands that lead here, each as a shell takes it."""
    inputs = context.inputs
    measured = context.measured if context.has_data else None
    lines = [
        *_training(inputs),
        *_joining(inputs, measured),
        *_comparing(inputs, measured),
        _reporting(inputs),
    ]
    own = _model(inputs)
    text = commands(shlex.join(["intarsia", *line, *own]) for line in lines)
    return f"{paragraph(_opening(inputs, measured))}\n{text}"


def _opening(inputs: ReportInput, measured: Measurements | None) -> str:
    many = len(inputs.together) > 1
    first = "Train the modules again, join them" if many else "Train it again"
    sentences = [f"{first}, and measure what this page shows."]
    if inputs.recipe and not _has_recipe(inputs):
        sentences.append("The first line reads the recipe above, saved as recipe.yaml.")
    if inputs.source is None:
        sentences.append(f"The data has no name: {UNNAMED} stands for a file of it.")
    merged = inputs.merged
    if merged is not None and merged.samples is not None:
        sentences.append("Samples are taken from the validation split of the data.")
    if measured is not None and measured.path is not None and inputs.paths and not _ends(measured):
        sentences.append(
            "For the path between two, `intarsia path` needs the files of both modules."
        )
    if inputs.paths:
        sentences.append("The same files give the same page, byte for byte, on the same machine.")
    return " ".join(sentences)


def _training(inputs: ReportInput) -> list[Line]:
    if not inputs.recipe:
        return []
    recipe = str((inputs.folder or Path()) / RECIPE) if _has_recipe(inputs) else RECIPE
    source = str(inputs.recipe.get("data"))
    named = source in DATASETS or is_path(source)
    out = "reproduced/" if inputs.paths else "modules/"
    return [["train", recipe, out, *([] if named else ["--data", UNNAMED])]]


def _joining(inputs: ReportInput, measured: Measurements | None) -> list[Line]:
    """The modules alone, then each way of joining them that the page shows."""
    lines = []
    if inputs.merged is None:
        paths = [str(inputs.folder)] if inputs.folder else [str(p) for p in inputs.paths]
        lines = [_evaluating(path, inputs) for path in paths or ["modules/"]]
    ways: dict[str, Line] = {}
    if inputs.merged is not None:
        ways["whole"] = _options(inputs.merged, inputs)
    elif len(inputs.together) > 1:
        known = ["logits"] if measured is None else list(measured.joined)
        ways = {operator: ["--operator", operator] for operator in known}
    for name, options in ways.items():
        out = f"{name}.safetensors"
        lines.append(["compose", *_modules(inputs), *options, "-o", out])
        lines.append([*_evaluating(out, inputs), "--confusion"])
    return lines


def _comparing(inputs: ReportInput, measured: Measurements | None) -> list[Line]:
    lines: list[Line] = []
    if measured is None or inputs.data is None:
        return lines
    if measured.matrix is not None and len(inputs.data.validation):
        lines.append(["compatibility", *_modules(inputs), *_samples(inputs)])
    if measured.path is not None and (ends := _ends(measured)):
        rows = str(measured.path.curves["train"].n)
        lines.append(["path", *ends, *_data(inputs), "--rows", rows])
    return lines


def _reporting(inputs: ReportInput) -> Line:
    made = "modules/" if inputs.merged is None else "whole.safetensors"
    line = ["report", *(map(str, inputs.paths) if inputs.paths else [made])]
    line += ["-o", "report.html", "--figures", "figures/"]
    if inputs.named is not None or not inputs.known or inputs.options:
        line += _data(inputs)
    line += ["--probe"] if inputs.probe else []
    return [*line, "--rows", str(inputs.rows)] if inputs.rows else line


def _modules(inputs: ReportInput) -> Line:
    """The arguments that name the modules that are joined."""
    if inputs.folder is None and inputs.paths:
        return [str(path) for path in inputs.paths]
    if len(inputs.seeds) > 1 and not inputs.others and inputs.folder is not None:
        return [str(path) for path in inputs.files.values()]
    seed = ["--seed", str(inputs.seeds[0])] if inputs.others else []
    return ["modules/" if inputs.folder is None else str(inputs.folder), *seed]


def _evaluating(path: str, inputs: ReportInput) -> Line:
    return ["evaluate", path, *_data(inputs)]


def _options(merged: Composition, inputs: ReportInput) -> Line:
    """The options of `compose` that make a composition."""
    options = merged.options
    line = ["--operator", str(merged.operator)]
    line += ["--align", options.align] if options.align else []
    line += [] if options.recalibrate else ["--no-recalibrate"]
    line += ["--calibrate"] if options.calibrate else []
    return line + (_samples(inputs) if merged.samples is not None else [])


def _ends(measured: Measurements) -> Sequence[str]:
    """The files of the two modules that the path is between; none where they have no files."""
    inputs = measured.inputs
    assert measured.pair is not None
    names = [module.name for module in measured.pair]
    if not inputs.paths and inputs.merged is None:
        return [f"modules/{file_name(name)}" for name in names]
    files = [str(inputs.files[name]) for name in names if name in inputs.files]
    return files if len(files) == len(names) else []


def _has_recipe(inputs: ReportInput) -> bool:
    return inputs.folder is not None and (inputs.folder / RECIPE).is_file()


def _data(inputs: ReportInput) -> Line:
    """The options that name the data to measure on, and say how it is loaded."""
    line = ["--data", _source(inputs), *_target(inputs)]
    for key, value in inputs.options.items():
        line += [] if key == "target" else ["--set", f"{key}={json.dumps(value)}"]
    return line


def _samples(inputs: ReportInput) -> Line:
    return ["--samples", _source(inputs), *_target(inputs)]


def _target(inputs: ReportInput) -> Line:
    """A column by its number, or by its name, in quotes if that is a number."""
    target = inputs.options.get("target")
    if target is None:
        return []
    quoted = isinstance(target, str) and target.lstrip("-").isdigit()
    return ["--target", f"'{target}'" if quoted else str(target)]


def _model(inputs: ReportInput) -> Line:
    """The factory of modules that have one, if a command can import it."""
    factory = inputs.modules[0].factory
    name = getattr(factory, "__qualname__", "<locals>")
    module = getattr(factory, "__module__", "__main__")
    if factory is None or "<" in name or module == "__main__":
        return []
    return ["--model", f"{module}:{name}"]


def _source(inputs: ReportInput) -> str:
    return inputs.source or UNNAMED
