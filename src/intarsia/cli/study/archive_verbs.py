"""study archive, restore: the finished cells of a study in one file, and back into a store."""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from intarsia.cli.common_options import Json
from intarsia.cli.console import note, show, show_content, show_json
from intarsia.cli.study.study_options import (
    DEFAULT_STORE,
    STDOUT,
    ModuleOption,
    StoreFolder,
    StudyChoice,
    check_folder,
    import_studies,
)
from intarsia.cli.verbs import study_verb as verb


@verb("study archive pairs --data mnist -o pairs.json")
def archive(
    choice: StudyChoice,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file to write, as .json; - is stdout.")
    ],
    json: Json = False,
) -> None:
    """Write the finished cells of a study into one file, to send or to keep with a paper."""
    from intarsia.studies.archive import make_archive, save_archive
    from intarsia.studies.selection import nothing_finished, progress_remarks, stored_progress
    from intarsia.studies.wording import several

    check_folder(out)
    study, options = choice.study(), choice.options()
    store, progress = stored_progress(study, options, choice.store)
    if not progress.finished:
        raise nothing_finished(study, choice.store, list(progress.damaged.values()))
    gathered = make_archive(study, options, progress.cells, store)
    for remark in progress_remarks(options, progress):
        note(remark)
    if out != STDOUT:
        save_archive(out, gathered)
        cells = len(gathered.measured)
        if json:
            return show_json({"study": study.name, "path": str(out), "cells": cells})
        return show(f"{several(cells, 'cell')}, in {out}")
    with tempfile.TemporaryDirectory() as folder:
        save_archive(Path(folder) / "archive.json", gathered)
        show_content((Path(folder) / "archive.json").read_text(encoding="utf-8"))


@verb("study restore pairs.json theirs.json --store shared/")
def restore(
    files: Annotated[list[Path], typer.Argument(help="Archives, as study archive wrote them.")],
    module: ModuleOption = None,
    store: StoreFolder = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Put the cells of archives into a store; a run then measures only what they leave out."""
    from intarsia.studies import Store, StudyContext
    from intarsia.studies.archive import load_archive
    from intarsia.studies.archive import restore as take
    from intarsia.studies.wording import several

    import_studies(module)
    archives = [load_archive(file) for file in files]
    target = Store(store)
    context = StudyContext(target, "cpu")
    counts: list[dict[str, Any]] = []
    for file, content in zip(files, archives, strict=True):
        taken, unknown = take(content, target, context)
        if unknown:
            note(
                f"of {file} {several(unknown, 'cell')} left out: not among {content.study}'s today"
            )
        counts.append({"path": str(file), "cells": taken, "left_out": unknown})
    if json:
        return show_json({"store": str(store), "archives": counts})
    for count in counts:
        show(f"{several(count['cells'], 'cell')} of {count['path']}, in {store}")
