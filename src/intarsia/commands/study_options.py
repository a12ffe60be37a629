"""Options that the verbs of `study` have."""

from pathlib import Path
from typing import Annotated

import typer

from intarsia.commands import completion

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A study, as `study list` has it.",
        autocompletion=completion.one_of(completion.STUDIES),
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        help="Data sets, such as mnist,har.",
        autocompletion=completion.some_of(completion.DATASETS),
    ),
]
Models = Annotated[str | None, typer.Option(help="shallow, deep, cnn, or models such as mlp(32).")]
Seeds = Annotated[str | None, typer.Option(help="How many, or which: 5, or 0,1,2.")]
Preset = Annotated[
    str | None,
    typer.Option(help="paper or released.", autocompletion=completion.one_of(completion.PRESETS)),
]
Form = Annotated[
    str | None, typer.Option(help="Where options that are not given come from: paper or small.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other option, such as sizes=1,2."),
]
Module = Annotated[
    str | None,
    typer.Option(metavar="FILE.py|PACKAGE", help="Where a study of your own is registered."),
]
StoreFolder = Annotated[Path, typer.Option(help="The folder of cells and modules.")]
From = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="PACK.json", help="A pack, not a store; options pick its cells."
    ),
]
STORE = Path("studies")
STDOUT = Path("-")  # as -o
