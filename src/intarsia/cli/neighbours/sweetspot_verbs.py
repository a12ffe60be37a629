"""sweetspot show, fit: pattern networks as they are, and banks that are trained to draw."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from intarsia.cli import completion
from intarsia.cli.common_options import Device, Json, name_argument, name_option, text_option
from intarsia.cli.console import facts, plain_text, show, show_result, table
from intarsia.cli.verbs import sweetspot_verb as verb

if TYPE_CHECKING:
    from intarsia.sweetspot import PatternBank

Number = TypeVar("Number", int, float)
Source = Annotated[
    str,
    name_argument(
        "[NAME|FILE]",
        completion.PATTERNS,
        "totem, skull, butterfly, apple, skull-sgd, ...; a saved network or bank, a genome in "
        "JSON, or an image.",
    ),
]


@verb(
    "sweetspot show",
    "sweetspot show skull --picture skull.png",
    "sweetspot show patterns/bank.safetensors",
)
def show_(
    source: Source = "totem",
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Write what it draws to this .png.")
    ] = None,
    size: Annotated[int, typer.Option(help="Pixels along an edge.")] = 256,
    json: Json = False,
) -> None:
    """Show a pattern network, a bank of them or a picture: layout, weights, losses, PNG size."""
    from intarsia.errors import RecipeError
    from intarsia.files import write_whole
    from intarsia.sweetspot.networks import PatternBank, PatternNetwork
    from intarsia.sweetspot.pictures import png, side_by_side
    from intarsia.sweetspot.targets import load

    if picture is not None and picture.suffix.lower() != ".png":
        raise RecipeError(f"the picture {picture} must end in .png")
    artifact = PatternBank.load(source) if source.endswith(".safetensors") else load(source)
    if isinstance(artifact, PatternBank) and len(artifact) == 1:
        result = _network(artifact[0], size) | {"losses": artifact.losses}
        drawn = artifact[0].image(size)
    elif isinstance(artifact, PatternBank):
        result, drawn = _bank(artifact), side_by_side(artifact.images(size))
    elif isinstance(artifact, PatternNetwork):
        result, drawn = _network(artifact, size), artifact.image(size)
    else:
        drawn = artifact.image(size)
        result = {"name": artifact.name, "kind": "picture", "png_ratio": _ratio(drawn)}
    if picture is not None:
        write_whole(picture, png(drawn))
        result["picture"] = str(picture)
    show_result(result, json, _show)


@verb(
    "sweetspot fit --depth 6 --steps 300 --size 32",
    "sweetspot fit skull --seeds 8 --steps 6000 --schedule cosine -o fits/skull",
    "sweetspot fit picture.png --depth 8,12,16 --learning-rate 0.003,0.001 -o fits/picture",
    resumes=True,
)
def fit(
    source: Source = "totem",
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder to write to, and to go on from.")
    ] = Path("patterns"),
    depth: Annotated[
        str | None, text_option("LAYERS,...", "Hidden layers; by default those of a network.")
    ] = None,
    width: Annotated[
        str | None, text_option("UNITS,...", "Of a layer, in the proportions of the network's.")
    ] = None,
    blocks: Annotated[
        str | None,
        typer.Option(help="Units of a layer by activation, as in 'cache 15, gaussian 4, sin 1'."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Networks of each kind.", show_default="8")
    ] = None,
    learning_rate: Annotated[
        str, text_option("RATE,...", "One or more, each with all seeds.")
    ] = "0.003",
    steps: Annotated[int, typer.Option(min=1, help="Of the optimiser.")] = 3000,
    size: Annotated[int, typer.Option(help="Pixels along an edge.")] = 64,
    optimiser: Annotated[
        str, name_option(completion.PATTERN_OPTIMISERS, "adam, muon or 'muon(steps=20)'.")
    ] = "adam",
    schedule: Annotated[
        str, name_option(completion.SCHEDULES, "Of the learning rate: constant, cosine, onecycle.")
    ] = "constant",
    pixels: Annotated[
        int | None, typer.Option(min=1, help="Drawn for each step; by default all of them.")
    ] = None,
    normalise: Annotated[
        bool,
        typer.Option(
            "--normalise/--no-normalise", help="Divide each network's gradient by its norm."
        ),
    ] = True,
    start: Annotated[
        Path | None, typer.Option(help="A bank to train on, with its masks; .safetensors.")
    ] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Train pattern networks to draw a picture, all of one layout at once.

    Several depths and widths are fitted one after another, each to a folder of its own inside.
    Stopped, the same command resumes.
    """
    from intarsia.errors import RecipeError
    from intarsia.sweetspot.networks import PatternBank, PatternNetwork
    from intarsia.sweetspot.pattern_fits import fit as fit_one
    from intarsia.sweetspot.pattern_fits import fit_grid

    depths, widths = _numbers("depth", depth, int), _numbers("width", width, int)
    settings: dict[str, Any] = {
        "seeds": seeds, "learning_rate": _numbers("learning-rate", learning_rate, float),
        "steps": steps, "size": size, "optimiser": optimiser, "schedule": schedule,
        "pixels": pixels, "normalise": normalise, "device": device, "blocks": blocks,
        "start": None if start is None else PatternBank.load(start),
        "progress": False if json else None,
    }  # fmt: skip
    if len(depths or ()) > 1 or len(widths or ()) > 1:
        from intarsia.sweetspot.targets import load

        target = load(source)
        if depths is None:
            if not isinstance(target, PatternNetwork):
                raise RecipeError(
                    f"{source} is a picture, which has no layers of its own: give --depth, too"
                )
            depths = [target.layout.depth]
        banks = fit_grid(source, depths=depths, widths=widths, out=out, **settings)
    else:
        layers, units = (None if own is None else own[0] for own in (depths, widths))
        banks = [fit_one(source, out=out, depth=layers, width=units, **settings)]
    result = {"out": str(out), "banks": [_bank(bank) for bank in banks]}
    show_result(result, json, _show_banks)


def _numbers(name: str, text: str | None, kind: Callable[[str], Number]) -> list[Number] | None:
    """A list that is separated by commas."""
    if text is None:
        return None
    try:
        return [kind(word) for word in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"--{name} is {text!r}: expected numbers, separated by commas"
        ) from None


def _network(network: Any, size: int) -> dict[str, Any]:
    return {
        "name": network.name,
        "kind": "pattern network",
        "layout": str(network.layout),
        "parameters": network.layout.parameters,
        "nonzero": network.nonzero,
        "png_ratio": _ratio(network.image(size)),
    }


def _ratio(image: Any) -> float:
    """Bytes as PNG over raw ones."""
    from intarsia.sweetspot.pictures import png

    return round(len(png(image)) / image.numel(), 4)


def _bank(bank: "PatternBank") -> dict[str, Any]:
    report = {k: v for k, v in bank.report.items() if k not in ("curve", "key")}
    losses = bank.losses or [None] * len(bank)
    columns = zip(bank.names, losses, bank.nonzero, strict=True)
    return {
        "kind": "bank",
        "layout": str(bank.layout),
        "parameters": bank.layout.parameters,
        "networks": [{"name": n, "loss": loss, "nonzero": w} for n, loss, w in columns],
        "settings": report,
    }


def _show(result: dict[str, Any]) -> None:
    networks = result.get("networks", [])
    skipped = ("networks", "settings")
    rows = [(k.replace("_", " "), plain_text(v)) for k, v in result.items() if k not in skipped]
    show(facts(row for row in rows if row[1]))
    if networks:
        each = [(n["name"], _loss(n["loss"]), n["nonzero"]) for n in networks]
        show(table(("network", "loss", "nonzero weights"), each))


def _loss(loss: float | None) -> str:
    if loss is None:
        return ""
    return f"{loss:.2e}" if loss == loss else "diverged"


def _show_banks(result: dict[str, Any]) -> None:
    for bank in result["banks"]:
        _show(bank)
    show(f"written to {result['out']}")
