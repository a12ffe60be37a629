"""studio: play with modules in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from intarsia.commands import completion
from intarsia.commands.options import DATA, Factory, Json, Seed, SetData, Target
from intarsia.console import note, show_json


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

    from intarsia.arguments import data_options, factory_of
    from intarsia.studio.opening import open_paths
    from intarsia.studio.serve import check_extra, serve

    check_extra()
    found = open_paths(paths, data, data_options(set_, target), seed, factory_of(model))
    for remark in found.notes:
        note(f"note: {remark}")
    count = min(rows or len(found.data.test), len(found.data.test))
    about = f"{len(found.modules)} modules about {count:,} test samples of {found.data.name}"
    note(f"asking {about} ...")
    session = found.session(rows)

    def ready(address: str) -> None:
        if json:
            show_json({"address": address})

    serve(session, title, host, port, open_browser=open_, say=note, ready=ready)
