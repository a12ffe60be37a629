"""The paper's cells beside ours, where a bank was trained by the paper's settings."""

from collections.abc import Mapping
from typing import Any

from intarsia.errors import IntarsiaError
from intarsia.modules import Architecture
from intarsia.reports.elements import listing, paragraph, table
from intarsia.reports.measured import Measured
from intarsia.reports.page import Section
from intarsia.reports.subject import Subject
from intarsia.studies.paper import TWINS, pair_cell, single_cell
from intarsia.studies.plans import plan_of
from intarsia.studies.single import BESIDE, MEANING, beside
from intarsia.studies.tables import Spread, Table

MODELS = ("shallow", "deep", "cnn")
FREE = ("seeds", "partition", "partition_seed", "model", "data_options", "batches")


def papers(measured: Measured) -> Section | None:
    """Single modules, and two of them joined, beside the paper; None where it has no such cell."""
    subject = measured.subject
    model = paper_model(subject)
    if model is None:
        return None
    assert subject.data is not None
    name, imp = subject.data.name, bool(subject.recipe["sparsity"])
    rows = []
    if all(len(module.rewarded) == 1 for module in subject.modules):
        scores = list(measured.single.values())
        cell = single_cell(model, name, imp)
        numbers = [s.accuracy for s in scores], [s.entropy for s in scores]
        rows += [["one module", *beside(*numbers, cell)]] if cell else []
    sizes = [len(module.rewarded) for module in subject.together]
    for operator in ("sum", "logits") if len(sizes) == 2 and sizes[0] == sizes[1] else ():
        cell = pair_cell(model, name, sizes[0], "me", imp, operator)
        if cell and operator in measured.seeded:
            scores = measured.seeded[operator]
            both = [s.accuracy for s in scores], [s.entropy for s in scores]
            rows.append([f"two, {operator}", *beside(*both, cell)])
    if not rows:
        return None
    cells = Table("Beside the paper", ["modules", *BESIDE], rows)
    return Section("paper", cells.title, _body(cells, measured, model, imp))


def paper_model(subject: Subject) -> str | None:
    """The paper's name for the network, if all settings of the training are the paper's."""
    recipe, data = subject.recipe, subject.data
    if data is None or not subject.known or recipe.get("preset") != "paper":
        return None
    unpruned = {} if recipe.get("sparsity") else {"sparsity": 0.0}
    for model in MODELS:
        try:
            plan = plan_of(data, model, [data.catalogue], 0, recipe=unpruned)
            own = Architecture.of(plan.recipe.model, data.shape, len(data.catalogue))
        except IntarsiaError:
            continue
        if own == subject.modules[0].architecture and _same(plan.recipe.as_dict(), recipe):
            return model
    return None


def _same(paper: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    return all(own.get(key) == value for key, value in paper.items() if key not in FREE)


def _ours(measured: Measured) -> str:
    """The accuracy of the weight sum, with its deviation where there are several seeds."""
    found = Spread.of(score.accuracy for score in measured.seeded["sum"])
    return f"{found.mean:.3f}" + (f" ± {found.sd:.3f} (n = {found.n})" if found.n > 1 else "")


def _body(cells: Table, measured: Measured, model: str, imp: bool) -> str:
    subject = measured.subject
    how = "with pruning" if imp else "without pruning"
    words = (
        f"The modules were trained by the paper's settings for the {model} network, {how}, so that "
        "its printed cells can stand beside ours; in brackets, standard deviations. A mark says "
        "where they lie more than two of the paper's deviations apart."
    )
    if model == "shallow" and imp and measured.split.y.numel() and "sum" in measured.joined:
        all_in = len(measured.joined["sum"].rewarded) == len(subject.catalogue)
        if all_in and subject.data_name in TWINS:
            words += (
                " For all classes joined by adding weights the paper prints no number but says "
                f"above 0.90; ours is {_ours(measured)}."
            )
    rows = [[str(entry) if entry is not None else None for entry in row] for row in cells.rows]
    shown = table(
        cells.columns, rows, f"Ours and the paper's, {subject.data_name}, {model} network"
    )
    return "\n".join([paragraph(words), shown, listing([MEANING, *cells.all_notes()])])
