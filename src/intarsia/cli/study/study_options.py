"""Options that the verbs of `study` have."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from intarsia.cli import completion
from intarsia.cli.common_options import name_argument, name_option, text_option
from intarsia.errors import StudyError

if TYPE_CHECKING:
    from intarsia.studies import Study

STDOUT = Path("-")  # as -o

ModuleOption = Annotated[
    str | None,
    text_option("FILE.py|PACKAGE", "Where a study of your own is registered.", "--module"),
]
StoreFolder = Annotated[Path, typer.Option(help="The folder of cells and modules.")]
DEFAULT_STORE = Path("studies")


@dataclass(frozen=True)
class StudyChoice:
    """Which study, with which options, in which store: what most verbs of `study` ask for."""

    name: Annotated[
        str, name_argument("NAME", completion.STUDIES, "A study, as `study list` has it.")
    ]
    data: Annotated[
        str | None,
        typer.Option(
            help="Data sets, such as mnist,har.",
            autocompletion=completion.some_of(completion.DATASETS),
        ),
    ] = None
    models: Annotated[
        str | None, typer.Option(help="shallow, deep, cnn, or models such as mlp(32).")
    ] = None
    seeds: Annotated[str | None, typer.Option(help="How many, or which: 5, or 0,1,2.")] = None
    preset: Annotated[str | None, name_option(completion.PRESETS, "paper or released.")] = None
    scale: Annotated[
        str | None,
        typer.Option(
            help="Where options that are not given come from, as `study list NAME` has them."
        ),
    ] = None
    set_: Annotated[
        list[str] | None, text_option("KEY=VALUE", "Any other option, such as sizes=1,2.", "--set")
    ] = None
    module: ModuleOption = None
    store: StoreFolder = DEFAULT_STORE

    def study(self) -> "Study":
        """The study of this name, its module imported where one is named."""
        from intarsia.studies import find_study

        import_studies(self.module)
        return find_study(self.name)

    def given(self) -> dict[str, Any]:
        """The options of the command alone, each of the type that the study has."""
        from intarsia.cli.arguments import assignments
        from intarsia.studies.selection import read_options

        study = self.study()
        flags = {key: getattr(self, key) for key in ("data", "models", "seeds", "preset")}
        words = [f"{key}={value}" for key, value in flags.items() if value is not None]
        return read_options(study, assignments([*words, *(self.set_ or [])]), self.scale)

    def options(self) -> dict[str, Any]:
        """The options of the scale, with those of the command in their place."""
        from intarsia.studies.selection import default_scale

        study = self.study()
        return study.options(self.scale or default_scale(study), **self.given())


def import_studies(module: str | None) -> None:
    """Make the studies of --module known, if it is given."""
    from intarsia.studies.selection import load_module

    if module is not None:
        load_module(module)


def check_folder(out: Path) -> None:
    """A folder that does not exist is more often a slip than a wish."""
    if not out.parent.is_dir():
        raise StudyError(f"cannot write {out}: there is no folder {out.parent}: make it first")
