"""report: what was trained or measured, on one page."""

from pathlib import Path
from typing import Annotated

import typer

from intarsia.cli import completion
from intarsia.cli.common_options import DATA, Factory, Json, Seed, SetData, Target
from intarsia.cli.console import busy, note, show, show_json


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="A bank folder, module files, a composition, a demo's folder, or a study's store "
            "or archive."
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
    from intarsia.cli.arguments import data_options, factory_of
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


def studio(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATHS...",
            help="A bank folder, module files, a composition, or what a demo left.",
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(help=f"{DATA}; by default what they learned.", autocompletion=completion.data),
    ] = None,
    target: Target = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="By default 7878, or a free one where that is taken."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen at; by default this machine alone.")
    ] = "127.0.0.1",
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = True,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Test samples to measure on; by default all.")
    ] = None,
    seed: Seed = None,
    model: Factory = None,
    set_: SetData = None,
    json: Json = False,
) -> None:
    """Open a page to switch modules on and off, draw samples, and see what they answer."""
    title = ", ".join(path.resolve().name for path in paths)
    note(f"reading {title} ...")  # at once: the imports below take a while

    from intarsia.cli.arguments import data_options, factory_of
    from intarsia.studio.opening import open_paths
    from intarsia.studio.server import check_extra, serve

    check_extra()
    result = open_paths(paths, data, data_options(set_, target), seed, factory_of(model))
    for remark in result.notes:
        note(f"note: {remark}")
    count = min(rows or len(result.data.test), len(result.data.test))
    about = f"{len(result.modules)} modules about {count:,} test samples of {result.data.name}"
    note(f"asking {about} ...")
    session = result.session(rows)

    def ready(address: str) -> None:
        if json:
            show_json({"address": address})

    serve(session, title, host, port, open_browser=open_, say=note, ready=ready)
