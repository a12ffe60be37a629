"""lens profile, classify: entropy behind each layer of a language model, and what it tells."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from intarsia.cli import completion
from intarsia.cli.common_options import Device, Figure, Json, name_option, save_figure
from intarsia.cli.console import show, show_json
from intarsia.cli.verbs import lens_verb as verb
from intarsia.errors import DataError, RecipeError

if TYPE_CHECKING:
    from intarsia.lens import LanguageModel

Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="smollm2 if it is installed, a llama2.c file or its folder, a folder of Hugging "
        "Face's, or a .gguf file.",
    ),
]
Alpha = Annotated[str, typer.Option(help="Renyi's order: 1 is Shannon's entropy; inf.")]
Windows = Annotated[int, typer.Option(min=1, help="Of positions, each with a mean of its own.")]
Length = Annotated[
    int | None, typer.Option(min=1, help="Tokens of a text that are read; all if not given.")
]


@verb(
    "lens profile model.bin 'Once upon a time there was a girl'",
    "lens profile model.bin --generate 32 'Once upon a time' --figure profile.svg",
    "lens profile smollm2 --file lines.txt --alpha 2 --stride 8 --json",
)
def profile(
    model: Model,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to read.")] = None,
    file: Annotated[Path | None, typer.Option(help="A text on each line.")] = None,
    alpha: Alpha = "1",
    windows: Windows = 1,
    positions: Annotated[
        str, name_option(completion.LENS_POSITIONS, "all, last or first: those that count.")
    ] = "all",
    stride: Annotated[
        int, typer.Option(min=1, help="Every n-th position alone, counted back from the last.")
    ] = 1,
    generate: Annotated[
        int, typer.Option(min=0, help="Tokens to sample behind each text, which are read instead.")
    ] = 0,
    temperature: Annotated[float, typer.Option(min=0, help="Of these samples.")] = 0.7,
    seed: Annotated[int, typer.Option(min=0, help="Of these samples.")] = 0,
    device: Device = "auto",
    figure_: Figure = None,
    json: Json = False,
) -> None:
    """Show the entropy behind every layer, as the model's own head reads it."""
    from intarsia import lens

    if generate and (positions != "all" or stride != 1):
        key = "--positions" if positions != "all" else "--stride"
        raise RecipeError(f"{key} is of texts that are read: leave it out with --generate")
    given, order = [*(texts or []), *(_lines(file) if file else [])], read_alpha(alpha)
    if not given:
        raise DataError("there is no text: give some, or --file with one on each line")
    opened = _opened(model, device)
    written: list[str] = []
    if generate:
        found, rows = lens.profile_generated(
            opened, given, generate, order, windows, temperature=temperature, seed=seed
        )
        written = [opened.decode(row) for row in rows]
    else:
        chosen: Any = positions
        found = lens.profile(opened, given, order, windows, positions=chosen, stride=stride)
    if figure_ is not None:
        from intarsia.plots import save

        save(found.plot(), figure_)
    if json:
        return show_json({**found.to_json(), **({"written": written} if written else {})})
    show(*written, f"{found.model}: entropy in nats, alpha {order:g}", found)


@verb(
    "lens classify model.bin texts.csv",
    "lens classify SmolLM2.gguf texts.csv --folds 5 --neighbours 9 --figure layers.svg",
)
def classify(
    model: Model,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="TEXTS", help="A .csv with the columns text, label and, if any, group."
        ),
    ],
    alpha: Alpha = "1",
    windows: Windows = 1,
    tokens: Length = None,
    neighbours: Annotated[int, typer.Option(min=1, help="That vote.")] = 29,
    folds: Annotated[int, typer.Option(min=2, help="Of which each is tested once.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Of the folds.")] = 42,
    device: Device = "auto",
    figure_: Figure = None,
    json: Json = False,
) -> None:
    """Tell labels of texts from their profiles, beside plain baselines."""
    from intarsia import lens

    texts, labels, groups = _labelled(source)
    opened = _opened(model, device)
    rows = [opened.encode(text)[:tokens] for text in texts]
    found = lens.profile(opened, rows, read_alpha(alpha), windows)
    scores = lens.classify(found, labels, groups, neighbours=neighbours, folds=folds, seed=seed)
    save_figure(scores, figure_)
    if json:
        return show_json({"model": found.model, **scores.to_json()})
    show(f"{found.model}: area under the curve, one class against the others, %", scores)


def _opened(model: Path, device: str) -> "LanguageModel":
    """A model on the device that is asked for."""
    from intarsia.lens import open_model
    from intarsia.training.job import device_of

    opened = open_model(model)
    opened.network.to(device_of(device))
    return opened


def read_alpha(word: str) -> float:
    """Renyi's order as the command line gives it."""
    try:
        return float(word)
    except ValueError:
        raise RecipeError(f"--alpha is {word!r}: expected a number above 0, or inf") from None


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text: {error}") from None


def _lines(path: Path) -> list[str]:
    """The texts of a file; a form feed, say, is part of one."""
    return [line for line in _text_of(path).split("\n") if line.strip()]


def _labelled(path: Path) -> tuple[list[str], list[str], list[str] | None]:
    """Texts, labels and groups of a table."""
    reader = csv.DictReader(io.StringIO(_text_of(path), newline=""))
    rows: list[dict[str, Any]] = list(reader)
    columns = reader.fieldnames or []
    for name in ("text", "label"):
        if name not in columns:
            raise DataError(f"{path} has no column {name!r}: its columns are {', '.join(columns)}")
    if not rows or any(not row["text"] or not row["label"] for row in rows):
        raise DataError(f"{path} has no rows, or rows without a text or a label")
    groups = [str(row["group"]) for row in rows] if "group" in columns else None
    return [row["text"] for row in rows], [row["label"] for row in rows], groups
