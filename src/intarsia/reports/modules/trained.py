"""What was trained, and by what settings."""

import inspect
from collections.abc import Mapping
from typing import Any

import yaml

from intarsia.data import set_name
from intarsia.errors import IntarsiaError
from intarsia.modules import Architecture
from intarsia.objectives import OBJECTIVES
from intarsia.pruning import PRUNINGS
from intarsia.reports.html.elements import (
    Entry,
    commands,
    facts,
    folded,
    listing,
    notice,
    paragraph,
    table,
)
from intarsia.reports.html.page import Section
from intarsia.reports.html.words import capital, counted, duration, listed
from intarsia.reports.modules.measurements import Measured
from intarsia.reports.modules.report_input import ReportInput
from intarsia.studies.maxent.paper import TWINS, pair_cell, single_cell
from intarsia.studies.maxent.vs_paper import MEANING, VS_PAPER, vs_paper
from intarsia.studies.plans import plan_of
from intarsia.studies.tables import Spread, Table
from intarsia.training.run_folder import spent

FOLDED_FROM = 12  # findings: more of them are shown on a click


def health(subject: ReportInput) -> list[Section]:
    """What is dead, undertrained or inconsistent, before all else; no section if nothing is."""
    result = subject.health
    if result.ok:
        return []
    kinds = [finding.kind for finding in result.findings]
    count = listed([f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)])
    rows = [(f.kind, f.module, f.message, f.advice) for f in result.findings]
    shown = table(["health", "module", "what is wrong", "what to do"], rows, "Every finding")
    body = shown if len(rows) <= FOLDED_FROM else folded(f"All {len(rows)} findings", shown)
    warning = f"Not healthy: {count}. The numbers below are to be read with that in mind."
    return [Section("health", "Health", f"{notice(warning, result.summary)}\n{body}")]


def trained(subject: ReportInput) -> Section:
    """Recipe, data, seeds, engine, time and versions."""
    body = [paragraph(_opening(subject)), facts(_facts(subject))]
    notes = [] if subject.bank is None else list(subject.bank.report.get("notes") or [])
    diverged = () if subject.bank is None else subject.bank.diverged
    if diverged:
        notes.append(f"diverged and kept out: {listed(diverged)}; lower the learning rate")
    if not subject.known:
        notes.append(
            "the modules were not trained on this data, or it is split otherwise: samples that "
            "they have seen may be among those measured here"
        )
    if notes:
        body.append(listing(notes))
    if subject.recipe:
        text = yaml.safe_dump(dict(subject.recipe), sort_keys=False).rstrip()
        body.append(folded("The whole recipe", commands(text.splitlines())))
    return Section("trained", "What was trained", "\n".join(body))


def _opening(subject: ReportInput) -> str:
    recipe, modules = subject.recipe, subject.modules
    words = (
        f"{capital(counted(len(modules), 'module'))}, {_classes(subject)} of {subject.data_name}"
    )
    if len(subject.seeds) > 1:
        words += f", trained with {counted(len(subject.seeds), 'seed')}"
    words += "."
    words += _course(recipe)
    origins = len({module.origin for module in subject.together})
    if len(subject.together) > 1:
        words += (
            " All that are joined here share one origin, so that their weights can be added."
            if origins == 1
            else f" They have {counted(origins, 'origin')}: their weights cannot simply be added."
        )
    return words


def _course(recipe: Mapping[str, Any]) -> str:
    """How long training took, round by round; empty where the recipe does not say."""
    if not recipe.get("epochs"):
        return ""
    rounds, last = int(recipe.get("rounds") or 0), counted(int(recipe["epochs"]), "epoch")
    owned = _text(recipe.get("pruning")).partition("(")[0] == "territory"
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


def _classes(subject: ReportInput) -> str:
    """Which classes the modules are for."""
    sets = {module.rewarded for module in subject.modules}
    names = listed(sorted(set_name(classes, subject.catalogue) for classes in sets))
    if len(subject.modules) == 1:
        every = len(subject.modules[0].rewarded) == len(subject.catalogue)
        all_ = f"all {counted(len(subject.catalogue), 'class', 'classes')}"
        return f"for {all_ if every else names}"
    if any(len(classes) > 1 for classes in sets):
        return f"for {names}"
    return "one for each class" if len(sets) == len(subject.catalogue) else f"one for {names}"


def _facts(subject: ReportInput) -> dict[str, Entry]:
    recipe, first = subject.recipe, subject.modules[0]
    learned = first.provenance
    result: dict[str, Any] = {"data": _data(subject), "network": str(first.architecture)}
    for key, registry in (("objective", OBJECTIVES), ("pruning", PRUNINGS)):
        result[key] = _explained(_text(recipe.get(key)), registry)
    for key in ("sparsity", "batch", "temperature"):
        result[key] = _text(recipe.get(key))
    if recipe.get("learning_rate"):
        schedule = recipe.get("schedule") or "constant"
        result["learning rate"] = f"{recipe['learning_rate']:g}, {schedule}"
    result["preset"] = recipe.get("preset")
    result["seeds"] = listed([str(seed) for seed in subject.seeds if seed is not None])
    result["origin"] = ", ".join(dict.fromkeys(m.origin[:16] for m in subject.together))
    if learned.get("engine"):
        result["engine"] = f"{learned['engine']} on {learned.get('device')}"
    result["time"] = _time(subject)
    result["trained with"] = _versions(learned.get("versions") or {})
    return {key: value for key, value in result.items() if value}


def _data(subject: ReportInput) -> str:
    data = subject.data
    if data is None:
        return f"{subject.data_name}, not at hand: {subject.missing}"
    inputs = " x ".join(map(str, data.shape))
    return (
        f"{data.name}, inputs {inputs}; {len(data.train):,} samples to train, "
        f"{len(data.validation):,} to validate, {len(data.test):,} to test"
    )


def _time(subject: ReportInput) -> str:
    """What training took, where its folder says so."""
    took = None if subject.folder is None else spent(subject.folder)
    if took is None:
        return ""
    if took.calls == 1:
        return f"{duration(took.seconds)} of training"
    return f"at least {duration(took.seconds)} of training, in {took.calls} calls"


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def _explained(text: str, registry: Mapping[str, Any]) -> str:
    """A setting with the first line of what its name stands for."""
    about = (inspect.getdoc(registry.get(text.partition("(")[0])) or "").partition("\n")[0]
    return f"{text} ({about.rstrip('.')})" if text and about else text


def _text(value: Any) -> str:
    if isinstance(value, dict):
        name, rest = value.get("name"), {k: v for k, v in value.items() if k != "name"}
        return f"{name}({', '.join(f'{k}={v}' for k, v in rest.items())})"
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


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
        rows += [["one module", *vs_paper(*numbers, cell)]] if cell else []
    sizes = [len(module.rewarded) for module in subject.together]
    for operator in ("sum", "logits") if len(sizes) == 2 and sizes[0] == sizes[1] else ():
        cell = pair_cell(model, name, sizes[0], "me", imp, operator)
        if cell and operator in measured.seeded:
            scores = measured.seeded[operator]
            both = [s.accuracy for s in scores], [s.entropy for s in scores]
            rows.append([f"two, {operator}", *vs_paper(*both, cell)])
    if not rows:
        return None
    cells = Table("Beside the paper", ["modules", *VS_PAPER], rows)
    return Section("paper", cells.title, _body(cells, measured, model, imp))


def paper_model(subject: ReportInput) -> str | None:
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
    result = Spread.of(score.accuracy for score in measured.seeded["sum"])
    return f"{result.mean:.3f}" + (f" ± {result.sd:.3f} (n = {result.n})" if result.n > 1 else "")


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
