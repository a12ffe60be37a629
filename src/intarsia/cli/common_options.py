"""Options that several verbs have."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from intarsia.cli import completion
from intarsia.cli.console import note, say, show_json

if TYPE_CHECKING:
    from intarsia.artifacts import Artifact
    from intarsia.data import Data, Split
    from intarsia.models import Model
    from intarsia.modules import Health
    from intarsia.studio.patterns import PatternSession
    from intarsia.studio.session import Session
    from intarsia.studio.web.studio_limits import StudioLimits

PATH_HELP = "A module, a composition, a bank folder, or what demo or save_pretrained wrote"
DATA_HELP = "A named set, .csv, .parquet, .npz or a folder of images"
NOT_HEALTHY = 3  # the exit code under --strict


def name_option(names: Sequence[str], help: str, *flags: str) -> Any:
    """An option for which a shell offers these names."""
    return typer.Option(*flags, help=help, autocompletion=completion.one_of(names))


def text_option(metavar: str, help: str, *flags: str) -> Any:
    """An option whose value is called by this name in the help."""
    return typer.Option(*flags, metavar=metavar, help=help)


def figure_option(help: str, *flags: str) -> Any:
    """An option for the file of a figure, which is checked before anything is computed."""

    def check(path: Path | None) -> Path | None:
        if path is not None:
            from intarsia.errors import FileError
            from intarsia.files import is_no_file
            from intarsia.plots import check_format

            check_format(path)
            if is_no_file(path):
                raise FileError(f"{path} is there, and is not a file: name a file for the figure")
        return path

    return typer.Option(*flags, help=help, callback=check)


def name_argument(metavar: str | None, names: Sequence[str], help: str) -> Any:
    """An argument for which a shell offers these names."""
    return typer.Argument(metavar=metavar, help=help, autocompletion=completion.one_of(names))


def read_target(word: str) -> str | int:
    """A column by its name, or by its number: a name that is a number stands in quotes."""
    if re.fullmatch(r"-?\d{1,18}", word):  # no table has more columns, and int() has limits
        return int(word)
    quoted = re.fullmatch(r"""(["'])(.*)\1""", word)
    return quoted[2] if quoted else word


ArtifactPath = Annotated[Path, typer.Argument(help=f"{PATH_HELP}.")]
SplitName = Annotated[str, name_option(completion.SPLITS, "train, validation, test or all.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object and nothing else, errors too.")
]
MeasuredData = Annotated[
    str | None,
    name_option(completion.DATASETS, f"{DATA_HELP}; by default what the modules were trained on."),
]
Samples = Annotated[
    str | None,
    name_option(completion.DATASETS, f"Data whose validation split may be looked at. {DATA_HELP}."),
]
DataOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="An option of the data, such as seed=1.",
        autocompletion=completion.one_of([f"{name}=" for name in completion.DATA_OPTIONS]),
    ),
]
Target = Annotated[
    Any,  # str | int | None
    typer.Option(
        parser=read_target,
        metavar="NAME|INDEX",
        help="The label column of a table, or the array of labels of an .npz; counted from 0.",
    ),
]
Features = Annotated[
    str | None,
    name_option(
        completion.ENCODERS,
        "An encoder that raw inputs go through first, such as efficientnet_lite0(160).",
    ),
]
Align = Annotated[
    str | None,
    name_option(completion.ALIGNMENTS, "Match hidden units first: weights or activations."),
]
Figure = Annotated[Path | None, figure_option("Draw it: .svg, .pdf or .png.", "--figure")]
Seed = Annotated[int | None, typer.Option(help="The seed to take of a bank folder.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Workers = Annotated[int | None, typer.Option(min=1, help="Of processes or ray.")]
Address = Annotated[
    str | None, typer.Option(help="Of a Ray cluster, or auto; without it one is started.")
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Exit with 3 if something is dead, undertrained or inconsistent."
    ),
]


@dataclass(frozen=True)
class OwnNetwork:
    """The network of modules that have one of the user's own."""

    model: Annotated[
        str | None,
        text_option(
            "FACTORY",
            "Makes the modules' network, if it is your own: module:factory, imported from "
            "here, too; or hf/NAME, hf/./FOLDER, timm/NAME.",
        ),
    ] = None

    def factory(self, *paths: Path) -> "Model | None":
        """The function that makes it, imported; or that of the graph whose nodes modules know."""
        from intarsia.artifacts import graph_network
        from intarsia.cli.arguments import import_factory

        return graph_network(paths) if self.model is None else import_factory(self.model)


@dataclass(frozen=True)
class ServerChoice:
    """Where a studio listens, and how much it takes from the network."""

    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="By default 7878, or a free one where that is taken."),
    ] = None
    host: Annotated[
        str,
        typer.Option(
            help="The address to listen at; by default this machine alone. Beyond it the printed "
            "address holds a token, or the one of INTARSIA_STUDIO_TOKEN."
        ),
    ] = "127.0.0.1"
    limit: Annotated[
        list[str] | None, text_option("NAME=NUMBER", "A limit, such as connections=200.")
    ] = None
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = True

    def limits(self) -> "StudioLimits":
        """The limits; the extra that a studio needs is asked for, too, before anything is read."""
        from intarsia.studio.web.server import check_extra
        from intarsia.studio.web.studio_limits import StudioLimits

        check_extra()
        return StudioLimits.read(self.limit or [])

    def serve(self, session: "Session | PatternSession", title: str, json: bool) -> None:
        """Serve until stopped."""
        from intarsia.studio.web.server import serve

        def ready(address: str) -> None:
            if json:
                show_json({"address": address})

        serve(
            session, title, self.host, self.port, limits=self.limits(), open_browser=self.open_,
            say=say, ready=ready,
        )  # fmt: skip


@dataclass(frozen=True)
class DataChoice:
    """The data to measure modules on."""

    data: MeasuredData = None
    target: Target = None
    set_: DataOptions = None

    def options(self) -> dict[str, Any]:
        """Those that the data is to be loaded with."""
        from intarsia.cli.arguments import data_options

        return data_options(self.set_, self.target)

    def load(self, artifact: "Artifact") -> "tuple[Data, bool | None]":
        """The data for an artifact, and whether it is what that was trained on, if it says so."""
        from intarsia.artifacts import data_for

        return data_for(artifact, self.data, self.options())


@dataclass(frozen=True)
class UnknownChoice:
    """Data of classes that the modules do not know."""

    unknown: Annotated[
        str | None,
        name_option(
            completion.DATASETS,
            f"Also measure on data of classes that the catalogue has not. {DATA_HELP}; labels are "
            "not looked at.",
        ),
    ] = None
    unknown_set: Annotated[
        list[str] | None,
        text_option("KEY=VALUE", "An option of that data, such as classes=[5,6].", "--unknown-set"),
    ] = None

    def load(self, artifact: "Artifact", split: str) -> "Split | None":
        """The samples of a split, where such data is named."""
        from intarsia.artifacts import modules_of, unknown_for
        from intarsia.cli.arguments import assignments

        if self.unknown is None:
            if self.unknown_set:
                raise typer.BadParameter(
                    "--unknown-set is an option of the unknown data: name that with --unknown"
                )
            return None
        options = assignments(self.unknown_set, "--unknown-set")
        samples = unknown_for(artifact, self.unknown, options, split)
        known = modules_of(artifact)[0].catalogue
        if shared := [name for name in samples.catalogue or () if name in known]:
            note(
                f"{self.unknown} has classes named as in the catalogue, such as {shared[0]}: they "
                "count as unknown, too"
            )
        return samples


@dataclass(frozen=True)
class SamplesChoice:
    """The samples that may be looked at before modules are joined."""

    samples: Samples = None
    target: Target = None

    def setting(self) -> dict[str, Any] | None:
        """They as a merge recipe has them."""
        if self.target is None:
            return None if self.samples is None else {"data": self.samples}
        if self.samples is None:
            raise typer.BadParameter(
                "--target is a column of the samples: name them with --samples"
            )
        return {"data": self.samples, "options": {"target": self.target}}


def report_health(health: "Health", strict: bool = False) -> None:
    """After everything else is printed: what is wrong, in a line on stderr, and the exit code."""
    if health.ok:
        return
    say(f"warning: {health.summary}")
    if strict:
        raise typer.Exit(NOT_HEALTHY)


def note_other_data(path: Path, same: bool | None) -> None:
    """Say so where the data is not that of an artifact's training, or nobody knows."""
    if same is None:
        note(f"{path} does not say what data it was trained on: this may be other data")
    elif not same:
        note(f"this is not the data that {path} was trained on, or it is split otherwise")


def save_figure(result: Any, path: Path | None) -> None:
    """Save the figure of a result, if one is asked for."""
    if path is not None:
        from intarsia.plots import save

        save(result.figure(), path)


def check_weights_file(path: Path, source: Path | None = None) -> None:
    """Before anything is computed: a file of ours is no file of another kind, nor its source."""
    from intarsia.errors import FileError
    from intarsia.files import OTHER_WEIGHTS

    if path.suffix.lower() in OTHER_WEIGHTS:
        ours = path.with_suffix(".safetensors")
        raise FileError(
            f"{path} would be a safetensors file under another name: give -o {ours}; `intarsia "
            "export` makes an .onnx file of it"
        )
    check_keeps(path, *([] if source is None else [source]))


def check_keeps(path: Path, *sources: Path) -> None:
    """Refuse to write over what is read, of which a result holds less, and over a bank's files."""
    from intarsia.errors import FileError
    from intarsia.modules import LISTING

    if path.resolve() in [source.resolve() for source in sources]:
        raise FileError(f"{path} is what is read: give another file with -o")
    listing = path.parent / LISTING
    if listing.is_file() and path.name in [LISTING, *_listed(listing)]:
        what = "the listing" if path.name == LISTING else "a module"
        raise FileError(
            f"{path} is {what} of the bank in {path.parent}, which would lose it: give another "
            "file with -o"
        )


def _listed(listing: Path) -> list[str]:
    """The modules of a bank; none where the listing is damaged, or a stranger's file."""
    from intarsia.errors import FileError
    from intarsia.files import read_sealed

    try:
        return [own["file"] for own in read_sealed(listing)["files"]]
    except (FileError, LookupError, TypeError):
        return []
