"""study table, figure: what is finished of a study, of a store or of an archive."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from intarsia.cli.common_options import Json
from intarsia.cli.console import note, show, show_content, show_json, show_whole
from intarsia.cli.study.study_options import (
    STDOUT,
    STORE,
    Data,
    From,
    Models,
    Module,
    Name,
    Preset,
    Scale,
    Seeds,
    Set,
    StoreFolder,
)
from intarsia.errors import StudyError, nearest

if TYPE_CHECKING:
    from intarsia.cli.study.study_results import Shown
    from intarsia.studies import Table

FORMATS = {"text": "txt", "markdown": "md", "csv": "csv", "latex": "tex", "json": "json"}


def table(
    name: Name,
    data: Data = None,
    models: Models = None,
    seeds: Seeds = None,
    preset: Preset = None,
    scale: Scale = None,
    set_: Set = None,
    module: Module = None,
    store: StoreFolder = STORE,
    from_: From = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", help="text, markdown, csv, latex or json; else by the file."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; - is stdout.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the tables of what is finished, of a store or an archive; what is missing is said."""
    from intarsia.cli.study.study_options import check_folder
    from intarsia.files import write_whole

    out = None if out == STDOUT else out
    kind = _table_format("json" if json and out is None else format_, out)
    if out is not None:
        check_folder(out)
    flags = {"data": data, "models": models, "seeds": seeds, "preset": preset}
    result = _found(name, scale, flags, set_, module, store, from_)
    tables = result.study.tables(result.measured)
    if out is None and kind == "text":
        show_whole(tables)
        return show("", result.verdict())
    texts = _texts(kind, tables, result)
    if out is None:
        return show_content("\n".join(texts))
    written = {out: "\n".join(texts)}
    if kind == "csv" and len(texts) > 1:  # a reader of CSV wants one table a file
        written = {out.with_stem(f"{out.stem}-{n}"): text for n, text in enumerate(texts, 1)}
    for path, text in written.items():
        write_whole(path, text.encode())
    if json:
        show_json({"study": name, "files": [str(path) for path in written]})


def figure(
    name: Name,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="A file: .svg, .pdf, .png; a folder for all; - is stdout."
        ),
    ],
    data: Data = None,
    models: Models = None,
    seeds: Seeds = None,
    preset: Preset = None,
    scale: Scale = None,
    set_: Set = None,
    module: Module = None,
    store: StoreFolder = STORE,
    from_: From = None,
    format_: Annotated[
        str, typer.Option("--format", help="Of the files in a folder: svg, pdf or png.")
    ] = "svg",
    json: Json = False,
) -> None:
    """Draw the figures of what is finished, of a store or an archive; what is missing is said."""
    from intarsia.cli.study.study_options import check_folder
    from intarsia.figures.convert import figure_format, save_figure

    in_folder = out.is_dir() or not out.suffix
    figure_format(f"figures.{format_}" if in_folder else out)
    check_folder(out)
    flags = {"data": data, "models": models, "seeds": seeds, "preset": preset}
    result = _found(name, scale, flags, set_, module, store, from_)
    figures = result.study.figures(result.measured)
    if not figures:
        raise StudyError(f"study {name!r} has no figure: its answer is in `study table {name}`")
    if out == STDOUT:
        return show_content(_only(figures, format_))
    written = []
    for title, svg in figures.items():
        path = out.with_stem(f"{out.stem}-{title}") if len(figures) > 1 else out
        path = out / f"{title}.{format_}" if in_folder else path
        save_figure(path, svg)
        written.append(str(path))
    if json:
        return show_json({"study": name, "files": written})
    show(*written)


def _found(
    name: str,
    scale: str | None,
    flags: Mapping[str, str | None],
    set_: list[str] | None,
    module: str | None,
    store: Path,
    archive: Path | None,
) -> "Shown":
    """What there is to show; what is missing or damaged is said on stderr."""
    from intarsia.cli.study.study_options import study_and_given, study_and_options
    from intarsia.cli.study.study_results import shown, shown_archive

    if archive is not None and scale is not None:
        raise typer.BadParameter("an archive has a scale already: leave out --scale")
    if archive is None:
        result = shown(*study_and_options(name, scale, flags, set_, module), store)
    else:
        result = shown_archive(*study_and_given(name, scale, flags, set_, module), archive)
    for line in result.notes:
        note(line)
    return result


def _only(figures: Mapping[str, str], kind: str) -> str:
    """The figure that goes to stdout."""
    if kind != "svg" or len(figures) > 1:
        raise StudyError(
            f"-o - is for one figure as SVG, not for {len(figures)} as {kind} "
            f"({', '.join(figures)}): name a file or a folder"
        )
    return next(iter(figures.values()))


def _table_format(given: str | None, out: Path | None) -> str:
    endings = {ending: kind for kind, ending in FORMATS.items()}
    if given is None and out is not None:
        ending = out.suffix.removeprefix(".")
        if ending not in endings:
            raise StudyError(f"{out}: no format has this ending, say it with --format")
        return endings[ending]
    if given is not None and given not in FORMATS:
        raise StudyError(f"unknown format {given!r}: {nearest(given, FORMATS)}")
    return given or "text"


def _texts(kind: str, tables: "Sequence[Table]", result: "Shown") -> list[str]:
    """What a file or a pipe gets, table by table."""
    import json

    if kind == "json":
        about = {"study": result.study.name, "options": result.options}
        lack = {"missing": result.missing, "damaged": result.damaged}
        shown = {"tables": [table.to_json() for table in tables]}
        made: dict[str, Any] = {**about, **lack, **shown, "verdict": result.verdict().to_json()}
        return [json.dumps(made, indent=2, ensure_ascii=False) + "\n"]
    ways = {"markdown": "markdown", "csv": "csv", "latex": "latex", "text": "__str__"}
    texts = [getattr(table, ways[kind])().rstrip("\n") + "\n" for table in tables]
    if kind in ("markdown", "text"):
        verdict = result.verdict()
        texts.append(f"{verdict.markdown() if kind == 'markdown' else verdict}\n")
    return texts
