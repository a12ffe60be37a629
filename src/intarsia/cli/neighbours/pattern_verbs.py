"""sweetspot prune, score, sweep, depth: what single weights and whole layers do to a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from intarsia.cli import completion
from intarsia.cli.common_options import (
    Device,
    Figure,
    Json,
    figure_option,
    name_argument,
    text_option,
)
from intarsia.cli.console import note, show, show_result, table
from intarsia.cli.verbs import sweetspot_verb as verb
from intarsia.errors import RecipeError, nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from intarsia.sweetspot import PatternBank, PatternNetwork
    from intarsia.sweetspot.depth_scan import DepthRow

NETWORKS_HELP = "A known name, such as totem or skull-sgd, or a saved network or bank"
Networks = Annotated[str, name_argument("[NAME|FILE]", completion.PATTERNS, f"{NETWORKS_HELP}.")]
Size = Annotated[int, typer.Option(help="Pixels along an edge.")]
Steps = Annotated[int, typer.Option(min=1, help="Of the optimiser.")]
Rate = Annotated[float, typer.Option("--learning-rate", help="Of the optimiser.")]
TRAINING_ON = {"steps": 2500, "size": 64, "learning_rate": 3e-3}  # of pruned networks


@verb(
    "sweetspot prune totem magnitude --weights 40",
    "sweetspot prune fits/skull/bank.safetensors similarity --weights 1404 --image skull",
    "sweetspot prune fits/skull/bank.safetensors ticket --weights 473 --origin start.safetensors",
)
def prune(
    source: Annotated[str, typer.Argument(metavar="NAME|FILE", help=f"{NETWORKS_HELP}.")],
    arm: Annotated[
        str,
        name_argument(
            None,
            completion.ARMS,
            "similarity, connections, magnitude, ticket, wanda, contribution, random, "
            "random_units or evolved; with settings, as in \"similarity(within='linear')\".",
        ),
    ],
    weights: Annotated[int | None, typer.Option(help="Nonzero weights that stay.")] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The .safetensors file to write.")
    ] = Path("pruned.safetensors"),
    image: Annotated[
        str | None, typer.Option(help="Train them further, to draw this: a name or an image.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Of that training.", show_default=str(TRAINING_ON["steps"])),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            help="Pixels along an edge, for that training.", show_default=str(TRAINING_ON["size"])
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Of that training.", show_default=str(TRAINING_ON["learning_rate"])),
    ] = None,
    origin: Annotated[
        Path | None, typer.Option(help="The networks before training, to rewind survivors to.")
    ] = None,
    rewind: Annotated[
        bool, typer.Option("--rewind", help="Rewind survivors to the origin, as a ticket's are.")
    ] = False,
    wiring: Annotated[
        str | None, typer.Option(help="The network whose connections the arm evolved takes.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of random choices.")] = 0,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Prune pattern networks to a number of weights that are not 0, and train them on."""
    from intarsia.sweetspot import ARMS, load_network
    from intarsia.sweetspot import prune as prune_networks
    from intarsia.sweetspot.networks import PatternBank

    if out.suffix != ".safetensors":
        raise RecipeError(f"the file {out} must end in .safetensors")
    if out.resolve() == Path(source).resolve():
        raise RecipeError(f"{out} holds the networks that are pruned: write to another file")
    given = {"steps": steps, "size": size, "learning_rate": learning_rate}
    given = {key: value for key, value in given.items() if value is not None}
    if given and image is None:
        flag = next(iter(given)).replace("_", "-")
        raise RecipeError(f"--{flag} is of training on: say what to draw with --image, too")
    way = ARMS.entry(arm)
    if origin is not None and not (rewind or way.rewinds):
        raise RecipeError("--origin is where survivors are rewound to: give --rewind, too")
    if wiring is not None and not way.needs_wiring:
        raise RecipeError(
            f"--wiring is of the arm evolved, and {way.name} takes none: leave it out"
        )
    bank = _bank(source)
    training: dict[str, Any] = {}
    if image is not None:
        training = {**TRAINING_ON, **given, "device": device, "progress": False if json else None}
    pruned = prune_networks(
        bank,
        arm,
        weights=weights,
        seed=seed,
        origin=None if origin is None else PatternBank.load(origin),
        rewind=rewind,
        wiring=None if wiring is None else load_network(wiring),
        image=image,
        **training,
    )
    pruned.save(out)
    losses = pruned.losses or (None,) * len(pruned)
    columns = zip(pruned.names, bank.nonzero, pruned.nonzero, losses, strict=True)
    keys = ("name", "before", "nonzero", "loss")
    networks = [dict(zip(keys, row, strict=True)) for row in columns]
    result = {"out": str(out), "arm": pruned.report["arm"], "networks": networks}
    show_result(result, json, _show_pruned)


@verb(
    "sweetspot score totem",
    "sweetspot score skull --against skull-sgd --seeds 5",
    "sweetspot score skull --atlas skull-maps.svg",
    "sweetspot score fits/skull/bank.safetensors --weights 48 --judge 'a skull'",
)
def score(
    source: Networks = "totem",
    against: Annotated[
        str | None,
        typer.Option(
            help="A network to compare with: how often it inflates more. Of a bank, that of the "
            "lowest loss."
        ),
    ] = None,
    weights: Annotated[int, typer.Option(min=1, help="Of each network that are tried.")] = 200,
    size: Size = 48,
    seeds: Annotated[int, typer.Option(min=1, help="Draws of signs and weights.")] = 1,
    judge: Annotated[
        str | None,
        text_option(
            "THING",
            "Also ask the model that INTARSIA_JUDGE_ADDRESS and INTARSIA_JUDGE_MODEL name "
            "whether changed pictures still show it.",
        ),
    ] = None,
    change: Annotated[float, typer.Option(help="Of a weight, for the judge.")] = 0.5,
    atlas: Annotated[
        Path | None, figure_option("Draw all maps of the first network: .svg, .pdf or .png.")
    ] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Score pattern networks: inflation, distinct maps, orthogonality, and what a judge says."""
    from intarsia.sweetspot.judges import VisionJudge
    from intarsia.sweetspot.pattern_scores import inflation, judged
    from intarsia.training.job import device_of

    place = device_of(device)
    asked = None if judge is None else VisionJudge.from_environment(judge)
    bank = _bank(source)
    how: dict[str, Any] = {"weights": weights, "size": size, "device": place}
    rival = None if against is None else _one_of(_bank(against), None)
    rivals = [] if rival is None else [inflation(rival, seed=s, **how) for s in range(seeds)]
    losses = bank.losses or (None,) * len(bank)
    networks = []
    for network, loss in zip(bank, losses, strict=True):
        runs = [inflation(network, seed=s, **how) for s in range(seeds)]
        row = {"name": network.name, "loss": loss, **_scores(network, runs, size)}
        if rivals:
            row["auc"] = _mean([one.auc(two) for one, two in zip(runs, rivals, strict=True)])
        if asked is not None:
            row["judged"] = judged(network, asked, change=change, weights=weights)
        networks.append(row)
    if atlas is not None:
        _draw_atlas(bank[0], atlas)
    result = {"size": size, "seeds": seeds, "encoder": _encoder(), "networks": networks}
    if against is not None:
        result["against"] = against
    show_result(result, json, _show_scores)


@verb(
    "sweetspot sweep totem --figure totem-sweeps.svg",
    "sweetspot sweep skull --weight 5,1,1 --weight 0,16,2 --figure skull.png",
    "sweetspot sweep skull --weight 60 --along row --steps=-2,-1,0,1,2",
    "sweetspot sweep fits/bank.safetensors --network seed-1",
)
def sweep(
    source: Networks = "totem",
    weight: Annotated[
        list[str] | None,
        text_option(
            "LAYER,ROW,COLUMN",
            "Or its number among those that are not 0; by default four, evenly spaced.",
        ),
    ] = None,
    steps: Annotated[str, text_option("STEP,...", "What is added to it.")] = "-1,-0.5,0,0.5,1",
    along: Annotated[
        str, typer.Option(help="weight, or row: a random direction of the unit's weights.")
    ] = "weight",
    network_: Annotated[
        str | None,
        typer.Option("--network", help="Of a bank, by name; by default that of the lowest loss."),
    ] = None,
    size: Size = 128,
    seed: Annotated[int, typer.Option(help="Of the direction along a row.")] = 0,
    figure_: Figure = None,
    json: Json = False,
) -> None:
    """Move one weight and see how far the picture goes."""
    from intarsia.cli.arguments import read_list
    from intarsia.sweetspot import sweep as sweep_weight
    from intarsia.sweetspot.pattern_scores import png_ratio

    network = _one_of(_bank(source), network_)
    if not weight and not network.nonzero:
        raise RecipeError(
            f"{network.name or source} has no weight that is not 0: say which is to be moved, as "
            "in --weight 0,0,0"
        )
    chosen = [_place(words) for words in weight or []] or _evenly_spaced(network.nonzero, 4)
    moves = read_list(steps, "--steps")
    sweeps = [
        sweep_weight(network, one, steps=moves, size=size, along=along, seed=seed) for one in chosen
    ]
    before = network.image(size)
    rows = [
        {
            "weight": list(each.place),
            "value": each.value,
            "steps": list(each.steps),
            "errors": [float((picture - before).square().mean()) for picture in each.pictures],
            "png_ratios": [png_ratio(picture) for picture in each.pictures],
        }
        for each in sweeps
    ]
    if figure_ is not None:
        from intarsia.plots import sweep_strips

        names = [f"{','.join(map(str, each.place))}" for each in sweeps]
        strips = {n: each.pictures.numpy() for n, each in zip(names, sweeps, strict=True)}
        labels = {n: each.labels for n, each in zip(names, sweeps, strict=True)}
        _save(sweep_strips(strips, labels=labels, title=network.name), figure_)
    show_result({"name": network.name, "along": along, "sweeps": rows}, json, _show_sweeps)


@verb(
    "sweetspot depth totem --offsets=-1,0,1 --seeds 2 --steps 100 --size 24",
    "sweetspot depth skull --seeds 8 --steps 6000 -o scans/skull --figure depth.svg",
    "sweetspot depth picture.png --center 12 --arms dense,magnitude",
    "sweetspot depth skull --widths 3,6,12,24 --offsets=-11,-9,-6 --figure volume.svg",
    resumes=True,
)
def depth(
    source: Annotated[
        str, typer.Argument(metavar="[NAME|FILE]", help="A network or an image to draw.")
    ] = "totem",
    center: Annotated[
        int | None,
        typer.Option(help="Hidden layers; by default those of the network, or as predicted."),
    ] = None,
    offsets: Annotated[
        str, text_option("LAYERS,...", "Added to the center.")
    ] = "-4,-3,-2,-1,0,1,2,3,4",
    arms: Annotated[
        str, text_option("ARM,...", "dense, and how dense networks are pruned.")
    ] = "dense,similarity",
    widths: Annotated[
        str | None,
        text_option(
            "UNITS,...",
            "Map the share of dense networks, at each width and depth, past both thresholds.",
        ),
    ] = None,
    loss: Annotated[float, typer.Option(help="The threshold of the loss, with --widths.")] = 1e-3,
    score: Annotated[float, typer.Option(help="That of the inflation, with --widths.")] = 1.05,
    weights: Annotated[int, typer.Option(min=1, help="Of each network, for its score.")] = 48,
    seeds: Annotated[int, typer.Option(min=1, help="Networks of each kind.")] = 8,
    steps: Steps = 3000,
    size: Size = 64,
    learning_rate: Rate = 3e-3,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A folder to go on from.")] = None,
    figure_: Figure = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Fit networks of several depths to a picture, dense and pruned, and score them."""
    from intarsia.cli.arguments import read_list
    from intarsia.sweetspot import depth as scan
    from intarsia.sweetspot import load, volume
    from intarsia.sweetspot.depth_scan import depths_around

    settings: dict[str, Any] = {
        "seeds": seeds, "steps": steps, "size": size, "learning_rate": learning_rate,
        "weights": weights, "device": device, "out": out, "progress": False if json else None,
    }  # fmt: skip
    around = read_list(offsets, "--offsets")
    if any(type(offset) is not int for offset in around):
        raise RecipeError(f"--offsets {offsets}: expected whole numbers such as -2,0,2")
    if widths is None:
        names = _arm_names(arms)
        found = scan(source, center=center, offsets=around, arms=names, **settings)
        if figure_ is not None:
            from intarsia.plots import loss_and_score_by_depth, save

            save(loss_and_score_by_depth(found.curves("loss"), found.curves("score")), figure_)
        return show_result(found.to_json(), json, lambda _: _show_rows(found.rows))
    target = load(source)
    depths = depths_around(target, center, around)
    mapped = volume(
        target, widths=read_list(widths, "--widths"), depths=depths, loss=loss, score=score,
        **settings,
    )  # fmt: skip
    if figure_ is not None:
        from intarsia.plots import volume_map

        title = "share of networks"
        _save(volume_map(mapped.shares, mapped.widths, mapped.depths, title=title), figure_)
    lines = zip(mapped.widths, mapped.shares, strict=True)
    rows = [(width, *(f"{share:.2f}" for share in shares)) for width, shares in lines]
    headings = ("width", *(f"{d} layers" for d in mapped.depths))
    show_result(mapped.to_json(), json, lambda _: show(table(headings, rows)))


def _bank(source: str) -> "PatternBank":
    """The networks of a file, or the one of a name."""
    from intarsia.sweetspot import PatternBank, load_network

    if source.endswith(".safetensors"):
        return PatternBank.load(source)
    return PatternBank.of([load_network(source)])


def _one_of(bank: "PatternBank", name: str | None) -> "PatternNetwork":
    """The network of a name, or that of the lowest loss."""
    if name is not None:
        if name not in bank.names:
            raise RecipeError(f"there is no network {name!r}: {nearest(name, bank.names)}")
        return bank[bank.names.index(name)]
    return bank.best


def _scores(network: "PatternNetwork", runs: Sequence[Any], size: int) -> dict[str, Any]:
    from intarsia.sweetspot.pattern_scores import distinct_maps, orthogonality

    maps, angle = distinct_maps(network, size), orthogonality(network, size)
    return {
        "nonzero": network.nonzero,
        "inflation": _mean([run.median for run in runs]),
        "weights": [len(run.ratios) for run in runs],
        "distinct_maps": maps.count,
        "maps": maps.total,
        "orthogonality": angle if angle == angle else None,
    }


def _mean(numbers: Sequence[float]) -> float | None:
    """None where one of them is not a number: JSON has none of these."""
    mean = sum(numbers) / len(numbers)
    return mean if mean == mean else None


def _encoder() -> str:
    from intarsia.sweetspot.pictures import png_encoder

    return png_encoder()


def _draw_atlas(network: "PatternNetwork", path: Path) -> None:
    import torch

    from intarsia.plots import map_atlas
    from intarsia.sweetspot.pattern_scores import distinct_maps

    maps, new = torch.stack(network.maps(32)), distinct_maps(network).new
    _save(map_atlas(maps.numpy(), new=new.numpy(), title=network.name), path)


def _save(ax: "Axes", path: Path) -> None:
    from intarsia.plots import save

    figure = ax.get_figure(root=True)
    assert figure is not None
    save(figure, path)


def _place(words: str) -> int | list[int]:
    from intarsia.cli.arguments import read_list

    values = read_list(words, "--weight")
    return values[0] if len(values) == 1 else values


def _evenly_spaced(count: int, most: int) -> list[int]:
    return [count * n // most for n in range(most)] if count > most else list(range(count))


def _arm_names(words: str) -> list[str]:
    """Names between commas that lie in no brackets."""
    names, open_ = [""], 0
    for letter in words:
        open_ += (letter == "(") - (letter == ")")
        if letter == "," and not open_:
            names.append("")
        else:
            names[-1] += letter
    return [name.strip() for name in names]


def _number(value: float | None, style: str) -> str:
    return "-" if value is None or value != value else format(value, style)


def _show_pruned(result: dict[str, Any]) -> None:
    rows = [
        (n["name"], n["before"], n["nonzero"], _number(n["loss"], ".2e"))
        for n in result["networks"]
    ]
    show(table(("network", "weights before", "after", "loss"), rows, result["arm"]), result["out"])


def _show_scores(result: dict[str, Any]) -> None:
    headings = ["network", "loss", "weights", "inflation r", "distinct maps", "orthogonality"]
    extra = {"auc": f"AUC against {result.get('against')}", "judged": "judged the same"}
    there = [key for key in extra if key in result["networks"][0]]
    rows = [
        (
            n["name"], _number(n["loss"], ".2e"), n["nonzero"], _number(n["inflation"], ".3f"),
            f"{n['distinct_maps']} of {n['maps']}", _number(n["orthogonality"], ".2f"),
            *(_number(n[key], ".3f") for key in there),
        )
        for n in result["networks"]
    ]  # fmt: skip
    show(table([*headings, *(extra[key] for key in there)], rows))
    note(f"inflation moves with the fit: compare networks of like loss ({result['encoder']})")


def _show_sweeps(result: dict[str, Any]) -> None:
    rows = [
        (
            ",".join(map(str, own["weight"])), f"{own['value']:.3f}",
            *(f"{error:.4f}" for error in own["errors"]),
        )
        for own in result["sweeps"]
    ]  # fmt: skip
    steps = [f"{step:+g}" for step in result["sweeps"][0]["steps"]]
    show(table(("weight", "value", *steps), rows, "mean squared error of the picture"))


def _median_and_ends(row: "DepthRow") -> list[str]:
    losses = row.finite_losses
    numbers = (row.loss, min(losses), max(losses)) if losses else (None,) * 3
    return [_number(number, ".2e") for number in numbers]


def _show_rows(rows: Sequence["DepthRow"]) -> None:
    any_diverged = any(row.diverged for row in rows)
    shown = [
        (
            str(row.depth), row.arm, row.weights[0], *_median_and_ends(row),
            _number(row.score, ".3f"), row.flat, *([row.diverged] if any_diverged else []),
        )
        for row in rows
    ]  # fmt: skip
    headings = ["layers", "arm", "weights", "median loss", "lowest", "highest", "inflation r",
                "flat", *(["diverged"] if any_diverged else [])]  # fmt: skip
    show(table(headings, shown, f"{rows[0].steps} steps for every network"))
