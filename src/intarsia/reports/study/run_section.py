"""What was run for a study: options and the scale's, cells, times, devices, the recipe."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from intarsia.reports.html.elements import facts, folded, listing, paragraph
from intarsia.reports.html.words import duration
from intarsia.reports.study.parts import Part
from intarsia.specs import Spec
from intarsia.studies import Cell
from intarsia.studies.options import nearest_scale, option_text, run_command

# Settings of a recipe that options and tables do not name already.
SHOWN = (
    *("model", "epochs", "pruning_epochs", "batch", "batches", "optimiser", "learning_rate"),
    *(
        "schedule",
        "temperature",
        "pruning",
        "sparsity",
        "rounds",
        "keep_moments",
        "select",
        "patience",
    ),
)


def run_html(part: Part) -> str:
    """The facts of the run, then what is missing, then the settings of training."""
    pieces = [facts(run_facts(part)), *map(paragraph, part.notes)]
    if missing := part.missing:
        pieces.append(paragraph("Missing cells:") + listing(missing))
    if settings := _settings(part.planned):
        pieces.append(folded("How the modules were trained", facts(settings)))
    return "\n".join(pieces)


def run_facts(part: Part) -> dict[str, str]:
    """Name and value of all that is known of a run."""
    study, runs = part.study, part.archive.runs
    scale, other = nearest_scale(study, part.archive.options)
    usual = study.options(scale)
    result = {"study": f"{study.name}, {scale} scale"}
    for key, value in part.archive.options.items():
        text = value_text(value)
        if key in other and key in usual:
            text += f" ({scale} scale: {value_text(usual[key])})"
        result[key] = text
    result["cells"] = cells_text(part)
    if runs["modules"]:
        result["modules trained"] = f"{runs['modules']:,}"
    if not part.archive.events:
        return result | {"when": "not noted, nor by what"}
    result["training took"] = duration(runs["training_seconds"])
    result["cells took"] = duration(runs["measuring_seconds"])
    result["device"] = ", ".join(runs["devices"])
    result["when"] = ", ".join(runs["dates"])
    versions = [f"{name} {number}" for own in runs["versions"] for name, number in own.items()]
    result["versions"] = ", ".join(dict.fromkeys(versions))
    return result


def reproduce_lines(part: Part) -> list[str]:
    """The commands that measure the same, and that make this page."""
    run, source = run_command(part.study, part.archive.options), shlex.quote(part.source)
    if not part.archived:
        run += "" if source == "studies" else f" --store {source}"
        return [run, f"intarsia report {source} --study {part.study.name} -o report.html"]
    lines = [f"intarsia report {source} -o report.html"]
    if part.archive.missing:
        lines.append(f"intarsia study restore {source}  # the run then does what is missing")
    return [*lines, run]


def cells_text(part: Part) -> str:
    """`248 of 300`."""
    done, missing = len(part.archive.measured), part.archive.missing
    return f"{done:,} of {done + missing:,}" if missing else f"{done:,}"


def _settings(cells: Sequence[Cell]) -> dict[str, str]:
    """The recipes of all banks, setting by setting; where they differ, for what."""
    recipes = [plan.recipe.as_dict() for cell in cells for plan in cell.banks.values()]
    labels = [
        {"data": plan.recipe.data, "model": cell.settings.get("model", _text(plan.recipe.model))}
        for cell in cells
        for plan in cell.banks.values()
    ]
    result = {}
    for name in SHOWN:
        values = [_text(recipe.get(name)) for recipe in recipes]
        if set(values) - {"-"}:
            result[name.replace("_", " ")] = _apart(values, labels)
    return result


def _apart(values: Sequence[str], labels: Sequence[Mapping[str, Any]]) -> str:
    """One value, or each with the data or models that have it."""
    several = list(dict.fromkeys(values))
    if len(several) == 1:
        return several[0]
    for key in ("data", "model"):
        whose = {
            v: {own[key] for own, w in zip(labels, values, strict=True) if w == v} for v in several
        }
        if sum(map(len, whose.values())) == len(set().union(*whose.values())):
            return "; ".join(f"{v} ({', '.join(sorted(whose[v]))})" for v in several)
    return "; ".join(several)


def _text(value: Any) -> str:
    if isinstance(value, Mapping) and "name" in value:
        return str(Spec(value["name"], {k: v for k, v in value.items() if k != "name"}))
    return value_text(value)


def value_text(value: Any) -> str:
    """An option or a setting as people write it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(value_text, value)) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {value_text(v)}" for k, v in value.items()) or "as the preset has it"
    return option_text(value)
