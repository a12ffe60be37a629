"""study list, run, status: the cells of a study, from a question to its answer."""

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from intarsia.cli.common_options import Json
from intarsia.cli.console import facts, note, plain_text, show, show_json, show_whole, table
from intarsia.cli.study.study_options import (
    STORE,
    Data,
    Models,
    Module,
    Name,
    Preset,
    Scale,
    Seeds,
    Set,
    StoreFolder,
)


def list_(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One study alone.")] = None,
    module: Module = None,
    json: Json = False,
) -> None:
    """List the studies, or show one with its scales and their options."""
    from intarsia.cli.study.study_options import load_module
    from intarsia.studies import STUDIES, find_study

    if module is not None:
        load_module(module)
    studies = [find_study(name)] if name else list(STUDIES.values())
    scales = [{scale: study.options(scale) for scale in study.scales} for study in studies]
    if json:
        return show_json(
            {
                "studies": [
                    {"name": s.name, "title": s.title, "about": s.about, "scales": own}
                    for s, own in zip(studies, scales, strict=True)
                ]
            }
        )
    if name is None:
        rows = [
            (s.name, s.title, ", ".join(own), ", ".join(_keys(own)))
            for s, own in zip(studies, scales, strict=True)
        ]
        show(table(["study", "title", "scales", "options"], rows))
        return show("study list NAME shows a study's options with their values")
    show(studies[0].title, studies[0].about)
    values = [
        (key, *(plain_text(own.get(key)) for own in scales[0].values())) for key in _keys(scales[0])
    ]
    show(table(["option", *scales[0]], values))


def run(
    name: Name,
    data: Data = None,
    models: Models = None,
    seeds: Seeds = None,
    preset: Preset = None,
    scale: Scale = None,
    set_: Set = None,
    module: Module = None,
    store: StoreFolder = STORE,
    engine: Annotated[str, typer.Option(help="local, processes or ray.")] = "local",
    workers: Annotated[int | None, typer.Option(min=1, help="Of processes or ray.")] = None,
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster, or auto; without it one is started.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what there is to do, and do nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure what is missing of a study and show its tables; stopped, the same command resumes.

    What no option gives comes from the scale: the paper's size, unless --scale says otherwise.
    """
    from intarsia.cli.study.study_options import study_and_options
    from intarsia.cli.study.study_results import planned
    from intarsia.studies import Findings, Store
    from intarsia.studies.options import variant_label
    from intarsia.studies.runners.dispatch import run_with

    flags = {"data": data, "models": models, "seeds": seeds, "preset": preset}
    study, options = study_and_options(name, scale, flags, set_, module)
    lines, guess = planned(study, options, store, device, dry_run)
    for line in lines:
        note(line)
    if guess is not None:
        if json:
            return show_json({"study": name, "options": options, **guess})
        return show(
            f"cells: {guess['cells']}, missing: {guess['missing']}",
            f"modules to train: {guess['modules']}",
            f"training: {_duration(guess['minutes'])}, by {guess['basis']}; measuring on top",
        )
    began = time.perf_counter()
    measured = run_with(engine, study, options, Store(store), device, workers, note, address)
    tables = study.tables(measured)
    verdict = study.judge(Findings(measured, variant_label(study, options)))
    for group, why in verdict.left_out.items():
        note(f"note: {group}, {why}: prune less")
    seconds = round(time.perf_counter() - began, 1)
    if json:
        about = {"study": name, "options": options, "cells": len(measured), "store": str(store)}
        shown = {"tables": [t.to_json() for t in tables], "verdict": verdict.to_json()}
        return show_json({**about, "seconds": seconds, **shown})
    show_whole(tables)
    show("", verdict)
    show(f"\n{len(measured)} cells, {seconds} s, in {store}")


def status(
    name: Name,
    data: Data = None,
    models: Models = None,
    seeds: Seeds = None,
    preset: Preset = None,
    scale: Scale = None,
    set_: Set = None,
    module: Module = None,
    store: StoreFolder = STORE,
    json: Json = False,
) -> None:
    """Say how far a study is: cells finished, missing and damaged, and banks that are trained."""
    from intarsia.cli.study.study_options import study_and_options
    from intarsia.cli.study.study_results import look, others_in, unused_values
    from intarsia.studies.verdict import missing_cells

    flags = {"data": data, "models": models, "seeds": seeds, "preset": preset}
    study, options = study_and_options(name, scale, flags, set_, module)
    folder, result = look(study, options, store)
    others = others_in(folder, result)
    plans = {plan.key: plan for cell in result.cells for plan in cell.banks.values()}
    there = sum(map(folder.has_bank, plans.values()))
    missing = [cell for cell in result.missing if cell.key not in result.damaged]
    if json:
        return show_json(
            {
                "study": name,
                "options": options,
                "cells": len(result.cells),
                "finished": len(result.finished),
                "missing": [{"key": cell.key, "settings": cell.settings} for cell in missing],
                "damaged": result.damaged,
                "others": others,
                "banks": {"needed": len(plans), "trained": there},
            }
        )
    counts = {
        "cells": len(result.cells),
        "finished": len(result.finished),
        "missing": len(missing),
        "damaged": len(result.damaged),
        "banks": f"{there} of {len(plans)} are trained",
    }
    show(facts(counts.items()))
    lines = missing_cells(result.cells, {cell.key for cell in missing})
    show(*(f"missing: {line}" for line in lines), *result.damaged.values())
    if others:
        show(f"{others} cells of other settings or definitions lie in this store")
    for line in unused_values(options, result.cells):
        note(line)


def _keys(scales: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The options of all scales."""
    return list(dict.fromkeys(key for options in scales.values() for key in options))


def _duration(minutes: float) -> str:
    if minutes < 1:
        return "under a minute" if minutes > 0 else "none"
    return f"about {minutes:.0f} minutes" if minutes < 120 else f"about {minutes / 60:.1f} hours"
