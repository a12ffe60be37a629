"""study list, run, status, pack, unpack: the cells of a study, from a question to one file."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from intarsia.commands.options import Json
from intarsia.commands.study_options import (
    STORE,
    Data,
    Form,
    Models,
    Module,
    Name,
    Preset,
    Seeds,
    Set,
    StoreFolder,
)
from intarsia.console import facts, note, plain_text, show, show_json, show_whole, table

NAMED = 10  # missing cells that `status` names


def list_(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One study alone.")] = None,
    module: Module = None,
    json: Json = False,
) -> None:
    """List the studies, or show one with its forms and their options."""
    from intarsia.commands.study_arguments import load_module
    from intarsia.studies import NAMES, STUDIES, find_study

    if module is not None:
        load_module(module)
    names = [name] if name else list(dict.fromkeys([*NAMES, *STUDIES]))
    studies = [find_study(each) for each in names]
    forms = [{form: study.options(form) for form in study.forms} for study in studies]
    if json:
        return show_json(
            {
                "studies": [
                    {"name": s.name, "title": s.title, "about": s.about, "forms": own}
                    for s, own in zip(studies, forms, strict=True)
                ]
            }
        )
    if name is None:
        rows = [
            (s.name, s.title, ", ".join(own), ", ".join(_keys(own)))
            for s, own in zip(studies, forms, strict=True)
        ]
        show(table(["study", "title", "forms", "options"], rows))
        return show("study list NAME shows a study's options with their values")
    show(studies[0].title, studies[0].about)
    values = [
        (key, *(plain_text(own.get(key)) for own in forms[0].values())) for key in _keys(forms[0])
    ]
    show(table(["option", *forms[0]], values))


def run(
    name: Name,
    data: Data = None,
    models: Models = None,
    seeds: Seeds = None,
    preset: Preset = None,
    form: Form = None,
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

    What no option gives comes from the form: the paper's size, unless --form says otherwise.
    """
    from intarsia.commands.study_arguments import store_to_look_at, study_and_options
    from intarsia.studies import Bench, Store
    from intarsia.studies.engines import run_with
    from intarsia.studies.estimate import estimate

    flags = {"data": data, "models": models, "seeds": seeds, "preset": preset}
    study, options = study_and_options(name, form, flags, set_, module)
    if dry_run:
        with store_to_look_at(store) as looked:
            bench = Bench(looked, device)
            guess = vars(estimate(study.plan(options, bench), looked, bench))
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
    seconds = round(time.perf_counter() - began, 1)
    if json:
        about = {"study": name, "options": options, "cells": len(measured), "store": str(store)}
        return show_json({**about, "seconds": seconds, "tables": [t.to_json() for t in tables]})
    show_whole(tables)
    show(f"\n{len(measured)} cells, {seconds} s, in {store}")


def status(
    name: Name,
    data: Data = None,
    models: Models = None,
    seeds: Seeds = None,
    preset: Preset = None,
    form: Form = None,
    set_: Set = None,
    module: Module = None,
    store: StoreFolder = STORE,
    json: Json = False,
) -> None:
    """Say how far a study is: cells finished, missing and damaged, and banks that are trained."""
    from intarsia.commands.study_arguments import look, study_and_options

    flags = {"data": data, "models": models, "seeds": seeds, "preset": preset}
    study, options = study_and_options(name, form, flags, set_, module)
    folder, found = look(study, options, store)
    plans = {plan.key: plan for cell in found.cells for plan in cell.banks.values()}
    there = sum(map(folder.has_bank, plans.values()))
    missing = [cell for cell in found.missing if cell.key not in found.damaged]
    if json:
        return show_json(
            {
                "study": name,
                "options": options,
                "cells": len(found.cells),
                "finished": len(found.finished),
                "missing": [{"key": cell.key, "settings": cell.settings} for cell in missing],
                "damaged": found.damaged,
                "banks": {"needed": len(plans), "trained": there},
            }
        )
    counts = {
        "cells": len(found.cells),
        "finished": len(found.finished),
        "missing": len(missing),
        "damaged": len(found.damaged),
        "banks": f"{there} of {len(plans)} are trained",
    }
    show(facts(counts.items()))
    show(*(f"missing: {cell}" for cell in missing[:NAMED]), *found.damaged.values())
    if len(missing) > NAMED:
        show(f"and {len(missing) - NAMED} more; --json names them all")


def pack(
    name: Name,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, as .json.")],
    data: Data = None,
    models: Models = None,
    seeds: Seeds = None,
    preset: Preset = None,
    form: Form = None,
    set_: Set = None,
    module: Module = None,
    store: StoreFolder = STORE,
) -> None:
    """Write the finished cells of a study into one file, to send or to keep with a paper."""
    from intarsia.commands.study_arguments import look, study_and_options
    from intarsia.studies.packs import pack as gather
    from intarsia.studies.packs import save_pack

    flags = {"data": data, "models": models, "seeds": seeds, "preset": preset}
    study, options = study_and_options(name, form, flags, set_, module)
    folder, found = look(study, options, store)
    packed = gather(study, options, found.cells, folder)
    save_pack(out, packed)
    if packed.missing:
        note(f"note: {packed.missing} of {len(found.cells)} cells are missing")
    show(f"{len(packed.measured)} cells, in {out}")


def unpack(
    files: Annotated[list[Path], typer.Argument(help="Packs, as study pack wrote them.")],
    module: Module = None,
    store: StoreFolder = STORE,
) -> None:
    """Put the cells of packs into a store; a run then measures only what they leave out."""
    from intarsia.commands.study_arguments import load_module
    from intarsia.studies import Bench, Store
    from intarsia.studies.packs import load_pack
    from intarsia.studies.packs import unpack as take

    if module is not None:
        load_module(module)
    packs = [load_pack(file) for file in files]
    into = Store(store)
    bench = Bench(into, "cpu")
    for file, what in zip(files, packs, strict=True):
        taken, strange = take(what, into, bench)
        if strange:
            note(f"note: {strange} cells of {file} are none of {what.study}'s today: left out")
        show(f"{taken} cells of {file}, in {store}")


def _keys(forms: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The options of all forms."""
    return list(dict.fromkeys(key for options in forms.values() for key in options))


def _duration(minutes: float) -> str:
    if minutes < 1:
        return "under a minute" if minutes > 0 else "none"
    return f"about {minutes:.0f} minutes" if minutes < 120 else f"about {minutes / 60:.1f} hours"
