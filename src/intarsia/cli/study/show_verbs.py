"""study table, figure: what is finished of a study, in a store or in an archive."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from intarsia.cli.common_options import Json, check_keeps, text_option
from intarsia.cli.console import note, show, show_content, show_json, show_wide
from intarsia.cli.study.study_options import STDOUT, StudyChoice, check_folder
from intarsia.cli.verbs import study_verb as verb
from intarsia.errors import StudyError, nearest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from intarsia.studies import Table
    from intarsia.studies.selection import StudySelection

FORMATS = {"text": "txt", "markdown": "md", "csv": "csv", "latex": "tex", "json": "json"}

From = Annotated[
    Path | None,
    text_option("ARCHIVE.json", "An archive, not a store; options pick its cells.", "--from"),
]


@verb(
    "study table pairs --data mnist",
    "study table pairs --data mnist -o pairs.tex",
    "study table pairs --from pairs.json --models shallow --format csv",
)
def table(
    choice: StudyChoice,
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
    """Show the tables of what is finished, of a store or an archive, and name what is missing."""
    from intarsia.files import write_whole

    out = None if out == STDOUT else out
    kind = _table_format("json" if json and out is None else format_, out)
    if out is not None:
        check_folder(out)
        check_keeps(out, *([] if from_ is None else [from_]))
    selection = _select(choice, from_)
    tables = selection.study.tables(selection.measured)
    if out is None and kind == "text":
        show_wide(tables)
        return show("", selection.verdict())
    texts = _texts(kind, tables, selection)
    if out is None:
        return show_content("\n".join(texts))
    written = {out: "\n".join(texts)}
    if kind == "csv" and len(texts) > 1:  # a reader of CSV wants one table per file
        written = {out.with_stem(f"{out.stem}-{n}"): text for n, text in enumerate(texts, 1)}
    for path, text in written.items():
        write_whole(path, text.encode())
    if json:
        show_json({"study": selection.study.name, "files": [str(path) for path in written]})


@verb(
    "study figure complete --data mnist -o complete.svg",
    "study figure complete --from complete.json -o figures/ --format pdf",
)
def figure(
    choice: StudyChoice,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="A file: .svg, .pdf, .png; a folder for all; - is stdout."
        ),
    ],
    from_: From = None,
    format_: Annotated[
        str, typer.Option("--format", help="Of the files in a folder: svg, pdf or png.")
    ] = "svg",
    json: Json = False,
) -> None:
    """Draw the figures of what is finished, of a store or an archive, and name what is missing."""
    from intarsia.plots import check_format, save, svg

    in_folder = out.is_dir() or not out.suffix
    check_format(f"figures.{format_}" if in_folder else out)
    check_folder(out)
    selection = _select(choice, from_)
    name, figures = selection.study.name, selection.study.figures(selection.measured)
    if not figures:
        raise StudyError(f"study {name!r} has no figure: its answer is in `study table {name}`")
    if out == STDOUT:
        return show_content(svg(_only(figures, format_)))
    written = []
    for title, drawn in figures.items():
        path = out.with_stem(f"{out.stem}-{title}") if len(figures) > 1 else out
        path = out / f"{title}.{format_}" if in_folder else path
        save(drawn, path)
        written.append(str(path))
    if json:
        return show_json({"study": name, "files": written})
    show(*written)


def _select(choice: StudyChoice, archive: Path | None) -> "StudySelection":
    """The cells to show; remarks on what is missing or damaged go to stderr."""
    from intarsia.studies.selection import select_archived, select_stored

    if archive is not None and choice.scale is not None:
        raise typer.BadParameter("an archive has a scale already: leave out --scale")
    if archive is None:
        selection = select_stored(choice.study(), choice.options(), choice.store)
    else:
        selection = select_archived(choice.study(), choice.given(), archive)
    for remark in selection.remarks:
        note(remark)
    return selection


def _only(figures: "Mapping[str, Figure]", kind: str) -> "Figure":
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


def _texts(kind: str, tables: "Sequence[Table]", selection: "StudySelection") -> list[str]:
    """The text of every table in a format; all of them in one JSON object."""
    import json

    if kind == "json":
        content = {
            "study": selection.study.name,
            "options": selection.options,
            "missing": selection.missing,
            "damaged": selection.damaged,
            "tables": [table.to_json() for table in tables],
            "verdict": selection.verdict().to_json(),
        }
        return [json.dumps(content, indent=2, ensure_ascii=False) + "\n"]
    way = "__str__" if kind == "text" else kind
    texts = [getattr(table, way)().rstrip("\n") + "\n" for table in tables]
    if kind in ("markdown", "text"):
        texts.append(getattr(selection.verdict(), way)() + "\n")
    return texts
