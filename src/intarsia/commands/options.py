"""Options that several verbs have."""

from pathlib import Path
from typing import Annotated

import typer

from intarsia.errors import FileError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
SetData = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the data, such as seed=1."),
]
Figure = Annotated[Path | None, typer.Option("--figure", help="Draw it, as .svg.")]
Seed = Annotated[int | None, typer.Option(help="The seed to take of a bank folder.")]
Samples = Annotated[
    str | None,
    typer.Option(help="Data whose validation part may be looked at: a named set, .npz or .csv."),
]


def check_figure(path: Path | None) -> None:
    """Before anything is computed: figures are SVG."""
    if path is not None and path.suffix.lower() != ".svg":
        raise FileError(f"--figure {path}: figures are SVG, give a name that ends in .svg")
