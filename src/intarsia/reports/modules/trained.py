"""What was trained, with which settings: health first, then facts, and the paper's cells."""

import inspect
from collections.abc import Mapping
from typing import Any

import yaml

from intarsia.data import set_name
from intarsia.encoders import Encoder
from intarsia.errors import IntarsiaError
from intarsia.modules import Architecture
from intarsia.objectives import OBJECTIVES
from intarsia.pruning import PRUNINGS
from intarsia.reports.html.elements import (
    TableValue,
    commands,
    facts,
    folded,
    listing,
    notice,
    paragraph,
    table,
)
from intarsia.reports.html.words import capital, counted, duration, listed
from intarsia.reports.modules.measurements import LOGIT_SUM, WEIGHT_SUM, Measurements
from intarsia.reports.modules.report_input import ReportInput
from intarsia.reports.modules.sections import ReportContext, section
from intarsia.specs import name_of
from intarsia.studies.maxent.shared.paper import TWINS, pair_cell, single_cell
from intarsia.studies.maxent.shared.vs_paper import MEANING, VS_PAPER, vs_paper
from intarsia.studies.plans import plan_of
from intarsia.studies.tables import Spread, Table
from intarsia.training.run_folder import spent
from intarsia.training.settings.batches import BATCHES
from intarsia.training.settings.recipe import NEUTRAL

FOLDED_FROM = 12  # findings: more of them are shown on a click
MODELS = ("shallow", "deep", "cnn")
FREE = ("seeds", "partition", "partition_seed", "model", "data_options", "batches")


@section("health", "Health", order=0)
def health(context: ReportContext) -> str | None:
    """What is dead, undertrained or inconsistent, before all else; nothing if all is well."""
    verdict = context.inputs.health
    if verdict.ok:
        return None
    kinds = [finding.kind for finding in verdict.findings]
    count = listed([f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)])
    rows = [(f.kind, f.module, f.message, f.advice) for f in verdict.findings]
    shown = table(["health", "module", "what is wrong", "what to do"], rows, "Every finding")
    body = shown if len(rows) <= FOLDED_FROM else folded(f"All {len(rows)} findings", shown)
    warning = f"Not healthy: {count}. Read the numbers below with that in mind."
    return f"{notice(warning, verdict.summary)}\n{body}"


@section("trained", "What was trained", order=20)
def trained(context: ReportContext) -> str:
    """Recipe, data, seeds, engine, time and versions."""
    inputs = context.inputs
    body = [paragraph(_opening(inputs)), facts(_facts(inputs))]
    notes = [] if inputs.bank is None else list(inputs.bank.report.get("notes") or [])
    diverged = () if inputs.bank is None else inputs.bank.diverged
    if diverged:
        notes.append(f"diverged and left out: {listed(diverged)}; lower the learning rate")
    if not inputs.known:
        notes.append(
            "the modules were not trained on this data, or it is split otherwise: samples that "
            "they have seen may be among those measured here"
        )
    if notes:
        body.append(listing(notes))
    if inputs.recipe:
        text = yaml.safe_dump(dict(inputs.recipe), sort_keys=False).rstrip()
        body.append(folded("The whole recipe", commands(text.splitlines())))
    return "\n".join(body)


def _opening(inputs: ReportInput) -> str:
    recipe, modules = inputs.recipe, inputs.modules
    words = f"{capital(counted(len(modules), 'module'))}, {_classes(inputs)} of {inputs.data_name}"
    if len(inputs.seeds) > 1:
        words += f", trained with {counted(len(inputs.seeds), 'seed')}"
    words += "."
    words += _course(recipe)
    origins = len({module.origin for module in inputs.together})
    if len(inputs.together) > 1:
        words += (
            " All that are joined here share one origin, so that their weights can be added."
            if origins == 1
            else f" They have {counted(origins, 'origin')}: their weights cannot simply be added."
        )
    return words


def _course(recipe: Mapping[str, Any]) -> str:
    """The length of training, round by round; empty where the recipe does not say."""
    if not recipe.get("epochs"):
        return ""
    rounds, last = int(recipe.get("rounds") or 0), counted(int(recipe["epochs"]), "epoch")
    pruning = PRUNINGS.get(_text(recipe.get("pruning")).partition("(")[0])
    owned = pruning is not None and pruning.needs_units
    if rounds:
        each = counted(int(recipe.get("pruning_epochs") or recipe["epochs"]), "epoch")
        what = "each module kept its territory" if owned else "weights were pruned"
        words = (
            f" Training took {counted(rounds, 'round')} of {each}, after "
            f"{'each of ' if rounds > 1 else ''}which {what} and the weights left went back "
            "to their origin"
        )
        if recipe.get("sparsity"):
            words += f", for a sparsity of {100 * recipe['sparsity']:g}% in the end"
        words += f"; then came {last} with these weights."
    else:
        words = f" Training took {last}"
        words += ", in the territory of each module from the start." if owned else "."
    if recipe.get("patience"):
        stale = counted(int(recipe["patience"]), "epoch")
        words += f" A module stopped earlier once its validation loss had not improved for {stale}."
    return words


def _classes(inputs: ReportInput) -> str:
    """The classes that the modules are for."""
    sets = {module.rewarded for module in inputs.modules}
    names = listed(sorted(set_name(classes, inputs.catalogue) for classes in sets))
    if len(inputs.modules) == 1:
        every = len(inputs.modules[0].rewarded) == len(inputs.catalogue)
        all_ = f"all {counted(len(inputs.catalogue), 'class', 'classes')}"
        return f"for {all_ if every else names}"
    if any(len(classes) > 1 for classes in sets):
        return f"for {names}"
    return "one for each class" if len(sets) == len(inputs.catalogue) else f"one for {names}"


def _facts(inputs: ReportInput) -> dict[str, TableValue]:
    recipe, first = inputs.recipe, inputs.modules[0]
    provenance = first.provenance
    entries: dict[str, Any] = {"data": _data(inputs), "network": str(first.architecture)}
    if first.encoder is not None:
        entries["encoder"] = _encoder(first.encoder)
    for key, registry in (("objective", OBJECTIVES), ("pruning", PRUNINGS)):
        entries[key] = _explained(_text(recipe.get(key)), registry)
    for key in ("base", "trainable", "visibility", "negatives", "augment", "optimiser"):
        if recipe.get(key) not in (None, NEUTRAL[key]):
            entries[key] = _text(recipe[key])
    if getattr(BATCHES.get(name_of(recipe.get("batches"))), "draws", False):
        entries["batches"] = _text(recipe["batches"])
    for key in ("sparsity", "batch", "temperature"):
        entries[key] = _text(recipe.get(key))
    if recipe.get("learning_rate"):
        schedule = recipe.get("schedule") or "constant"
        entries["learning rate"] = f"{recipe['learning_rate']:g}, {schedule}"
    entries["preset"] = recipe.get("preset")
    entries["seeds"] = listed([str(seed) for seed in inputs.seeds if seed is not None])
    entries["origin"] = ", ".join(dict.fromkeys(m.origin[:16] for m in inputs.together))
    if provenance.get("engine"):
        entries["engine"] = f"{provenance['engine']} on {provenance.get('device')}"
    entries["time"] = _time(inputs)
    versions = provenance.get("versions") or {}
    entries["trained with"] = ", ".join(f"{name} {v}" for name, v in sorted(versions.items()))
    return {key: value for key, value in entries.items() if value}


def _encoder(encoder: Encoder) -> str:
    shape = " x ".join(map(str, encoder.shape))
    weights = f"weights {encoder.weights[:16]}" if encoder.weights else "a function"
    return (
        f"{encoder}, {weights}: {encoder.features} features of raw inputs of {shape}; no raw input "
        "is drawn here, since the data hold features"
    )


def _data(inputs: ReportInput) -> str:
    data = inputs.data
    if data is None:
        return f"{inputs.data_name}, not available: {inputs.missing}"
    shape = " x ".join(map(str, data.shape))
    return (
        f"{data.name}, inputs {shape}; {len(data.train):,} samples to train, "
        f"{len(data.validation):,} to validate, {len(data.test):,} to test"
    )


def _time(inputs: ReportInput) -> str:
    """The time that training took, where its folder says so."""
    took = None if inputs.folder is None else spent(inputs.folder)
    if took is None:
        return ""
    if took.calls == 1:
        return f"{duration(took.seconds)} of training"
    return f"at least {duration(took.seconds)} of training, in {took.calls} calls"


def _explained(text: str, registry: Mapping[str, Any]) -> str:
    """A setting with the first line of what its name stands for."""
    about = (inspect.getdoc(registry.get(text.partition("(")[0])) or "").partition("\n")[0]
    return f"{text} ({about.rstrip('.')})" if text and about else text


def _text(value: Any) -> str:
    if isinstance(value, dict):
        name, rest = value.get("name"), {k: v for k, v in value.items() if k != "name"}
        return f"{name}({', '.join(f'{k}={v}' for k, v in rest.items())})"
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


@section("paper", "Compared with the paper", order=90, needs_data=True)
def paper_cells(context: ReportContext) -> str | None:
    """Single modules, and two of them joined, next to the paper's cells, where it has any."""
    inputs, measured = context.inputs, context.measured
    model = paper_model(inputs)
    if model is None:
        return None
    assert inputs.data is not None
    name, imp = inputs.data.name, bool(inputs.recipe["sparsity"])
    rows = []
    if all(len(module.rewarded) == 1 for module in inputs.modules):
        scores = list(measured.single.values())
        cell = single_cell(model, name, imp)
        numbers = [s.accuracy for s in scores], [s.entropy for s in scores]
        rows += [["one module", *vs_paper(*numbers, cell)]] if cell else []
    sizes = [len(module.rewarded) for module in inputs.together]
    for operator in (WEIGHT_SUM, LOGIT_SUM) if len(sizes) == 2 and sizes[0] == sizes[1] else ():
        cell = pair_cell(model, name, sizes[0], "me", imp, operator)
        if cell and operator in measured.seeded:
            scores = measured.seeded[operator]
            numbers = [s.accuracy for s in scores], [s.entropy for s in scores]
            rows.append([f"two, {operator}", *vs_paper(*numbers, cell)])
    if not rows:
        return None
    cells = Table("Compared with the paper", ["modules", *VS_PAPER], rows)
    return _cells_body(cells, measured, model, imp)


def paper_model(inputs: ReportInput) -> str | None:
    """The paper's name for the network, if all settings of the training are the paper's."""
    recipe, data = inputs.recipe, inputs.data
    if data is None or not inputs.known or recipe.get("preset") != "paper":
        return None
    unpruned = {} if recipe.get("sparsity") else {"sparsity": 0.0}
    for model in MODELS:
        try:
            plan = plan_of(data, model, [data.catalogue], 0, recipe=unpruned)
            own = Architecture.of(plan.recipe.model, data.shape, len(data.catalogue))
        except IntarsiaError:
            continue
        if own == inputs.modules[0].architecture and _same(plan.recipe.as_dict(), recipe):
            return model
    return None


def _same(paper: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    return all(own.get(key) == value for key, value in paper.items() if key not in FREE)


def _ours(measured: Measurements) -> str:
    """The accuracy of the weight sum, with its deviation where there are several seeds."""
    ours = Spread.of(score.accuracy for score in measured.seeded[WEIGHT_SUM])
    return f"{ours.mean:.3f}" + (f" ± {ours.sd:.3f} (n = {ours.n})" if ours.n > 1 else "")


def _cells_body(cells: Table, measured: Measurements, model: str, imp: bool) -> str:
    inputs = measured.inputs
    how = "with pruning" if imp else "without pruning"
    words = (
        f"The modules were trained with the paper's settings for the {model} network, {how}, so "
        "its printed cells can be compared with ours; in brackets, standard deviations. A mark "
        "shows where they are more than two of the paper's deviations apart."
    )
    if model == "shallow" and imp and measured.split.y.numel() and WEIGHT_SUM in measured.joined:
        all_in = len(measured.joined[WEIGHT_SUM].rewarded) == len(inputs.catalogue)
        if all_in and inputs.data_name in TWINS:
            words += (
                " For all classes joined by adding weights the paper prints no number but says "
                f"above 0.90; ours is {_ours(measured)}."
            )
    rows = [[str(entry) if entry is not None else None for entry in row] for row in cells.rows]
    shown = table(cells.columns, rows, f"Ours and the paper's, {inputs.data_name}, {model} network")
    return "\n".join([paragraph(words), shown, listing([MEANING, *cells.all_notes()])])
