"""report: what was trained or measured, on one page."""

from pathlib import Path
from typing import Annotated

import typer

from intarsia.commands import completion
from intarsia.commands.options import DATA, Factory, Json, SetData, Target
from intarsia.console import busy, note, show, show_json


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="A bank folder, module files, a composition, a demo's folder, or a study's store "
            "or pack."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page.")] = Path("report.html"),
    data: Annotated[
        str | None,
        typer.Option(
            help=f"{DATA}; by default what the modules learned from.",
            autocompletion=completion.data,
        ),
    ] = None,
    target: Target = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Test samples to measure on at most.")
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            help="The study to show of a store; by default all.",
            autocompletion=completion.one_of(completion.STUDIES),
        ),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="A folder for the figures, each as a file of its own.")
    ] = None,
    formats: Annotated[
        str, typer.Option(help="Of these files: svg, pdf, png; the last two need an extra.")
    ] = "svg",
    model: Factory = None,
    set_: SetData = None,
    json: Json = False,
) -> None:
    """Make one page that shows what was trained, what it knows and how it fits."""
    from intarsia.arguments import data_options, factory_of
    from intarsia.errors import FileError
    from intarsia.figures.convert import figure_format
    from intarsia.reports import report as make

    kinds = list(dict.fromkeys(kind.strip() for kind in formats.split(",")))
    for kind in kinds:
        figure_format(f"figure.{kind}")  # before anything is measured
    if out.is_dir():
        raise FileError(f"{out} is a folder: name the page, such as -o {out / 'report.html'}")
    with busy("measuring what the page shows"):
        made = make(
            paths,
            data,
            rows=rows,
            study=study,
            data_options=data_options(set_, target),
            model=factory_of(model),
        )
    written = made.save(out, figures, kinds)
    if json:
        return show_json(
            {
                "path": str(out),
                "bytes": out.stat().st_size,
                "figures": [str(path) for path in written[1:]],
            }
        )
    show(f"{out}: {out.stat().st_size // 1000:,} kB, opens in any browser and needs no network")
    if figures is not None:
        note(f"{len(written) - 1} figures in {figures}")
