"""What was run for a study: options beside the form's, cells, times, devices, the recipe."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from intarsia.reports.html.elements import facts, folded, listing, paragraph
from intarsia.reports.html.words import duration
from intarsia.reports.study.html_tables import HALVES
from intarsia.reports.study.option_inference import nearest_form, option_text, run_command
from intarsia.reports.study.parts import Part
from intarsia.specs import Spec
from intarsia.studies import Cell

NAMED = 12  # sets of missing cells that are named
SEED = "seed"
ALWAYS = ("data", "model")  # named in a group although all cells may have the same
# Settings of a recipe that options and tables do not name already.
TOLD = (
    *("model", "epochs", "pruning_epochs", "batch", "batches", "learning_rate", "schedule"),
    *("temperature", "pruning", "sparsity", "rounds", "keep_moments", "select", "patience"),
)


def run_html(part: Part) -> str:
    """The facts of the run, then what is missing, then the settings of training."""
    pieces = [facts(run_facts(part)), *map(paragraph, part.notes)]
    if lines := missing_lines(part):
        pieces.append(paragraph("Missing cells:") + listing(lines))
    if settings := _settings(part.planned):
        pieces.append(folded("How the modules were trained", facts(settings)))
    return "\n".join(pieces)


def run_facts(part: Part) -> dict[str, str]:
    """Name and value of all that is known of a run."""
    study, runs = part.study, part.pack.runs
    form, other = nearest_form(study, part.pack.options)
    usual = study.options(form)
    result = {"study": study.name, "form": form}
    for key, value in part.pack.options.items():
        text = value_text(value)
        if key in other and key in usual:
            text += f" (form {form}: {value_text(usual[key])})"
        result[key] = text
    result["cells"] = cells_text(part)
    if runs["modules"]:
        result["modules trained"] = f"{runs['modules']:,}"
    if not part.pack.events:
        return result | {"when": "not noted, nor by what"}
    result["training took"] = duration(runs["training_seconds"])
    result["measuring took"] = duration(runs["measuring_seconds"])
    result["device"] = ", ".join(runs["devices"])
    result["when"] = ", ".join(runs["dates"])
    versions = [f"{name} {number}" for own in runs["versions"] for name, number in own.items()]
    result["versions"] = ", ".join(dict.fromkeys(versions))
    return result


def again_lines(part: Part) -> list[str]:
    """The commands that measure the same, and that make this page."""
    run, source = run_command(part.study, part.pack.options), shlex.quote(part.source)
    if not part.packed:
        run += "" if source == "studies" else f" --store {source}"
        return [run, f"intarsia report {source} --study {part.study.name} -o report.html"]
    lines = [f"intarsia report {source} -o report.html"]
    if part.pack.missing:
        lines.append(f"intarsia study unpack {source}  # the run then does what is missing")
    return [*lines, run]


def cells_text(part: Part) -> str:
    """`248 of 300`."""
    done, missing = len(part.pack.measured), part.pack.missing
    return f"{done:,} of {done + missing:,}" if missing else f"{done:,}"


def several(number: int, word: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{number:,} {word}{'s' * (number != 1)}"


def missing_lines(part: Part) -> list[str]:
    """`fashion_mnist, deep: 45 cells`: the widest sets of which all cells are missing."""
    lacking = {cell.key for cell in part.lacking}
    lines = _all_missing(part.planned, lacking, _varying(part.planned), ()) if lacking else []
    rest = len(lines) - NAMED
    return lines if rest <= 0 else [*lines[:NAMED], f"and {rest} more such sets"]


def _all_missing(
    cells: Sequence[Cell], lacking: set[str], names: Sequence[str], head: Sequence[str]
) -> list[str]:
    """One line for these cells if all are missing, else for their parts by the next setting."""
    missing = [cell for cell in cells if cell.key in lacking]
    if not missing:
        return []
    if not names or (head and len(missing) == len(cells)):
        return [f"{', '.join(head)}: {several(len(missing), 'cell')}"]
    if names == [SEED]:
        seeds = ", ".join(str(cell.settings[SEED]) for cell in missing)
        return [", ".join([*head, f"seed{'s' * (len(missing) > 1)} {seeds}"])]
    parts: dict[str, list[Cell]] = {}
    for cell in cells:
        parts.setdefault(_word(cell, names[0]), []).append(cell)
    return [
        line
        for word, own in parts.items()
        for line in _all_missing(own, lacking, names[1:], [*head, word] if word else head)
    ]


def _varying(cells: Sequence[Cell]) -> list[str]:
    """Settings of which not all cells have the same, as far as they are text or numbers."""
    values: dict[str, set[Any]] = {}
    for cell in cells:
        for name, value in cell.settings.items():
            if isinstance(value, str | int | float):
                values.setdefault(name, set()).add(value)
    result = [name for name in values if name in ALWAYS or len(values[name]) > 1]
    return sorted(result, key=lambda name: name == SEED)


def _word(cell: Cell, name: str) -> str:
    """A setting in words; none where the cell has no such setting."""
    value = cell.settings.get(name)
    if isinstance(value, str) or value is None:
        return value or ""
    if name == "imp":
        return HALVES["yes" if value else "no"]
    return f"{name} {value_text(value)}"


def _settings(cells: Sequence[Cell]) -> dict[str, str]:
    """The recipes of all banks, setting by setting; where they differ, for what."""
    recipes = [plan.recipe.as_dict() for cell in cells for plan in cell.banks.values()]
    labels = [
        {"data": plan.recipe.data, "model": cell.settings.get("model", _text(plan.recipe.model))}
        for cell in cells
        for plan in cell.banks.values()
    ]
    result = {}
    for name in TOLD:
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
