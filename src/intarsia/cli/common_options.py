"""Options that several verbs have."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from intarsia.cli import completion
from intarsia.cli.console import say

if TYPE_CHECKING:
    from intarsia.modules import Health

PATH_HELP = "A module, a composition, a bank folder, or what demo or save_pretrained wrote"
DATA_HELP = "A named set, .csv, .parquet, .npz or a folder of images"
NOT_HEALTHY = 3  # the exit code under --strict

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object and nothing else, errors too.")
]
DataOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="An option of the data, such as seed=1.",
        autocompletion=completion.data_options,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|INDEX",
        help="The label column of a table, or the array of labels of an .npz; counted from 0.",
    ),
]
Factory = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PACKAGE.MODULE:FACTORY",
        help="Makes the modules' network, if it is your own; imported from here, too.",
    ),
]
Align = Annotated[
    str | None,
    typer.Option(
        help="Match hidden units first: weights or activations.",
        autocompletion=completion.one_of(completion.ALIGNMENTS),
    ),
]
Figure = Annotated[Path | None, typer.Option("--figure", help="Draw it: .svg, .pdf or .png.")]
Seed = Annotated[int | None, typer.Option(help="The seed to take of a bank folder.")]
Samples = Annotated[
    str | None,
    typer.Option(
        help=f"Data whose validation split may be looked at. {DATA_HELP}.",
        autocompletion=completion.data,
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Exit with 3 if something is dead, undertrained or inconsistent."
    ),
]


def report_health(health: "Health", strict: bool = False) -> None:
    """After everything else is printed: what is wrong, in a line on stderr, and the exit code."""
    if health.ok:
        return
    say(f"warning: {health.summary}")
    if strict:
        raise typer.Exit(NOT_HEALTHY)


def check_figure(path: Path | None) -> None:
    """Before anything is computed: whether the ending names a format."""
    if path is not None:
        from intarsia.plots import check_format

        check_format(path)
