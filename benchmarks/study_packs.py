"""The packs of docs/results, study by study: what was measured with which settings."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from intarsia.reports.study.option_inference import nearest_form, option_text
from intarsia.studies import NAMES, Measured, Study, Table, find_study
from intarsia.studies.archive import FORMAT, Pack, load_pack

# Packs that agree in these are one set of cells; all other options say how many of them there are.
VARIED = ("preset", "recipe", "objective", "sparsity")


@dataclass(frozen=True)
class Variant:
    """All packs of a study that were made with one preset and recipe, as one."""

    study: Study
    label: str
    packs: Mapping[str, Pack]  # by the name of the file

    @property
    def options(self) -> Mapping[str, Any]:
        return next(iter(self.packs.values())).options

    @cached_property
    def measured(self) -> list[Measured]:
        """The cells of all packs, each once."""
        cells = [cell for pack in self.packs.values() for cell in pack.measured]
        return list({json.dumps(cell.settings, sort_keys=True): cell for cell in cells}.values())

    @cached_property
    def tables(self) -> list[Table]:
        return self.study.tables(self.measured)

    def table(self, title: str) -> Table:
        """The first table whose title has these words."""
        return next(table for table in self.tables if title in table.title)


Studies = Mapping[str, Sequence[Variant]]


def read_studies(folder: Path) -> dict[str, list[Variant]]:
    """Every study that has a pack in the folder, with its variants: the paper's preset first."""
    packs = {p.name: load_pack(p) for p in sorted(folder.glob("study_*.json")) if _is_pack(p)}
    result = {}
    for name in NAMES:
        own = {file: pack for file, pack in packs.items() if pack.study == name and pack.measured}
        if own:
            result[name] = _variants(find_study(name), own)
    return result


def label_of(study: Study, options: Mapping[str, Any]) -> str:
    """What sets these options apart: the preset, and what of the recipe is not the form's."""
    form, _ = nearest_form(study, options)
    parts = [f"{key}={option_text(value)}" for key, value in _recipe(study, options).items()]
    for key in VARIED[2:]:
        if key in options and options[key] != study.forms[form].get(key):
            parts.append(f"{key}={option_text(options[key])}")
    preset = f"preset `{options['preset']}`"
    return f"{preset} with `{', '.join(parts)}`" if parts else preset


def _variants(study: Study, packs: Mapping[str, Pack]) -> list[Variant]:
    groups: dict[str, dict[str, Pack]] = {}
    for file, pack in packs.items():
        groups.setdefault(label_of(study, pack.options), {})[file] = pack
    result = [Variant(study, label, own) for label, own in groups.items()]
    return sorted(result, key=lambda v: (v.options["preset"] != "paper", v.label))


def _recipe(study: Study, options: Mapping[str, Any]) -> dict[str, Any]:
    known = study.forms[nearest_form(study, options)[0]]["recipe"]
    return {key: v for key, v in options["recipe"].items() if known.get(key) != v}


def _is_pack(path: Path) -> bool:
    return bool(json.loads(path.read_bytes()).get("format") == FORMAT["format"])


def modules_and_seconds(variants: Iterable[Variant]) -> tuple[int, float]:
    """What training took, of all packs."""
    runs = [pack.runs for variant in variants for pack in variant.packs.values()]
    return sum(r["modules"] for r in runs), sum(r["training_seconds"] for r in runs)


def of_runs(variants: Iterable[Variant], key: str) -> list[Any]:
    """What the runs of all packs have under a key, each once."""
    result = []
    for variant in variants:
        for pack in variant.packs.values():
            result += [value for value in pack.runs[key] if value not in result]
    return result
