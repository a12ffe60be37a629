"""study archive, restore: the finished cells of a study in one file, and back into a store."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from intarsia.cli.common_options import Json
from intarsia.cli.console import note, show, show_content, show_json
from intarsia.cli.study.study_options import (
    STDOUT,
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


def archive(
    name: Name,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file to write, as .json; - is stdout.")
    ],
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
    """Write the finished cells of a study into one file, to send or to keep with a paper."""
    from intarsia.cli.study.study_options import check_folder, study_and_options
    from intarsia.cli.study.study_results import look, nothing, remarks
    from intarsia.studies.archive import make_archive, save_archive

    check_folder(out)
    flags = {"data": data, "models": models, "seeds": seeds, "preset": preset}
    study, options = study_and_options(name, scale, flags, set_, module)
    folder, result = look(study, options, store)
    if not result.finished:
        raise nothing(study, store, list(result.damaged.values()))
    archived = make_archive(study, options, result.cells, folder)
    for line in [*result.damaged.values(), *remarks(options, result)]:
        note(line)
    if out != STDOUT:
        save_archive(out, archived)
        if json:
            return show_json({"study": name, "path": str(out), "cells": len(archived.measured)})
        return show(f"{len(archived.measured)} cells, in {out}")
    with tempfile.TemporaryDirectory() as place:
        save_archive(Path(place) / "archive.json", archived)
        show_content((Path(place) / "archive.json").read_text(encoding="utf-8"))


def restore(
    files: Annotated[list[Path], typer.Argument(help="Archives, as study archive wrote them.")],
    module: Module = None,
    store: StoreFolder = STORE,
    json: Json = False,
) -> None:
    """Put the cells of archives into a store; a run then measures only what they leave out."""
    from intarsia.cli.study.study_options import load_module
    from intarsia.studies import Store, StudyContext
    from intarsia.studies.archive import load_archive
    from intarsia.studies.archive import restore as take

    if module is not None:
        load_module(module)
    archives = [load_archive(file) for file in files]
    into = Store(store)
    context = StudyContext(into, "cpu")
    counts = []
    for file, what in zip(files, archives, strict=True):
        taken, strange = take(what, into, context)
        if strange:
            note(f"note: {strange} cells of {file} are none of {what.study}'s today: left out")
        counts.append({"path": str(file), "cells": taken, "left_out": strange})
    if json:
        return show_json({"store": str(store), "archives": counts})
    for archive in counts:
        show(f"{archive['cells']} cells of {archive['path']}, in {store}")
