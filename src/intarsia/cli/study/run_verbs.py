"""study list, run, status: the cells of a study, from a question to its answer."""

import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from intarsia.cli.common_options import Address, Device, Json, Workers
from intarsia.cli.console import facts, note, plain_text, say, show, show_json, show_wide, table
from intarsia.cli.study.study_options import (
    ModuleOption,
    StudyChoice,
    check_folder,
    import_studies,
)
from intarsia.cli.verbs import study_verb as verb


@verb("study list", "study list pairs")
def list_(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One study alone.")] = None,
    module: ModuleOption = None,
    json: Json = False,
) -> None:
    """List the studies, or show one with its scales and their options."""
    from intarsia.studies import STUDIES, find_study

    import_studies(module)
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


@verb(
    "study run single --scale small",
    "study run pairs --data mnist --models shallow,deep --seeds 5",
    "study run pairs --data mnist --dry-run",
    "study run complete --set operators=sum,logits --store shared/ --engine processes",
    "study run cifar100 --minutes 9 --archive cifar100.json",
    resumes=True,
)
def run(
    choice: StudyChoice,
    engine: Annotated[str, typer.Option(help="local, processes or ray.")] = "local",
    workers: Workers = None,
    address: Address = None,
    device: Device = "auto",
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Stop after so many, with exit code 75; what is done is kept."),
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(help="Keep the finished cells in this file, too, written anew on the way."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what there is to do, and do nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure what is missing of a study and show its tables; stopped, the same command resumes.

    What no option gives comes from the scale: the paper's size, unless --scale says otherwise.
    """
    from intarsia.studies import Findings, Store
    from intarsia.studies.archive import kept_archive
    from intarsia.studies.options import variant_label
    from intarsia.studies.runners.dispatch import run_with
    from intarsia.studies.runners.local import RunRequest
    from intarsia.studies.selection import preview
    from intarsia.studies.wording import several

    study, options = choice.study(), choice.options()
    if archive is not None:
        check_folder(archive)
    remarks, cost = preview(study, options, choice.store, device, cost=dry_run)
    for remark in remarks:
        note(remark)
    if cost is not None:
        if json:
            return show_json({"study": study.name, "options": options, **vars(cost)})
        by = f", by {cost.basis}; measuring on top" if cost.modules else ""
        return show(
            f"cells: {cost.cells}, missing: {cost.missing}",
            f"modules to train: {cost.modules}",
            f"training: {_duration(cost.minutes)}{by}",
        )
    began = time.perf_counter()
    store = Store(choice.store)
    with kept_archive(archive, study, options, store) if archive else nullcontext():
        asked = RunRequest(study, options, store, device, workers, say, minutes)
        measured = run_with(engine, asked, address)
    tables = study.tables(measured)
    verdict = study.judge(Findings(measured, variant_label(study, options)))
    for failed, why in verdict.failed.items():
        note(f"{failed}, {why}: prune less")
    seconds = round(time.perf_counter() - began, 1)
    if json:
        about = {"study": study.name, "options": options, "cells": len(measured)}
        about |= {"store": str(choice.store), "seconds": seconds}
        shown = {"tables": [table.to_json() for table in tables], "verdict": verdict.to_json()}
        return show_json({**about, **shown})
    show_wide(tables)
    show("", verdict)
    show(f"\n{several(len(measured), 'cell')}, {seconds} s, in {choice.store}")


@verb("study status pairs --data mnist")
def status(choice: StudyChoice, json: Json = False) -> None:
    """Say how far a study is: cells finished, missing and damaged, and banks that are trained."""
    from intarsia.studies.selection import count_others, stored_progress, unmatched_values
    from intarsia.studies.verdict import missing_cells
    from intarsia.studies.wording import several

    study, options = choice.study(), choice.options()
    store, progress = stored_progress(study, options, choice.store)
    others = count_others(store, progress)
    plans = {plan.key: plan for cell in progress.cells for plan in cell.banks.values()}
    trained = sum(map(store.has_bank, plans.values()))
    missing = [cell for cell in progress.missing if cell.key not in progress.damaged]
    if json:
        return show_json(
            {
                "study": study.name,
                "options": options,
                "cells": len(progress.cells),
                "finished": len(progress.finished),
                "missing": [{"key": cell.key, "settings": cell.settings} for cell in missing],
                "damaged": progress.damaged,
                "others": others,
                "banks": {"needed": len(plans), "trained": trained},
            }
        )
    counts = {
        "cells": len(progress.cells),
        "finished": len(progress.finished),
        "missing": len(missing),
        "damaged": len(progress.damaged),
        "banks": f"{trained} of {len(plans)} are trained",
    }
    show(facts(counts.items()))
    lines = missing_cells(progress.cells, {cell.key for cell in missing})
    show(*(f"missing: {line}" for line in lines), *progress.damaged.values())
    if others:
        show(f"also in this store: {several(others, 'cell')} of other settings or definitions")
    for remark in unmatched_values(options, progress.cells):
        note(remark)


def _keys(scales: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The options of all scales."""
    return list(dict.fromkeys(key for options in scales.values() for key in options))


def _duration(minutes: float) -> str:
    if minutes < 1:
        return "under a minute" if minutes > 0 else "none"
    return f"about {minutes:.0f} minutes" if minutes < 120 else f"about {minutes / 60:.1f} hours"
