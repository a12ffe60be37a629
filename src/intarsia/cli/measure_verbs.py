"""evaluate, path, compatibility, probe, inspect: what modules know, and how they fit."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from intarsia.cli import completion
from intarsia.cli.common_options import (
    Align,
    ArtifactPath,
    DataChoice,
    Device,
    Figure,
    Json,
    OwnNetwork,
    SamplesChoice,
    Seed,
    SplitName,
    Strict,
    UnknownChoice,
    figure_option,
    name_option,
    note_other_data,
    report_health,
    save_figure,
    text_option,
)
from intarsia.cli.console import note, show, show_json, show_result
from intarsia.cli.display import show_abstention, show_description, show_scores
from intarsia.cli.verbs import verb
from intarsia.errors import RecipeError, nearest

if TYPE_CHECKING:
    from intarsia.artifacts import Artifact
    from intarsia.composition import Composition
    from intarsia.data import Data, Split
    from intarsia.measure import Evaluation
    from intarsia.measure.abstention import Abstention
    from intarsia.modules import Module


@verb(
    "evaluate demo/whole.safetensors --data digits --confusion",
    "evaluate demo/modules --data digits --split validation",
    "evaluate whole.safetensors --data mnist --rewarded 0,1 --abstain 0.9 --json",
    "evaluate whole.safetensors --data mnist --unknown fashion_mnist",
)
def evaluate(
    path: ArtifactPath,
    source: DataChoice,
    own: OwnNetwork,
    others: UnknownChoice,
    split: SplitName = "test",
    rewarded: Annotated[
        str | None,
        typer.Option(
            help="Classes to count as rewarded, such as 0,1; names with a comma or + in quotes."
        ),
    ] = None,
    confusion: Annotated[bool, typer.Option("--confusion", help="Show the matrix.")] = False,
    abstain: Annotated[
        float | None,
        typer.Option(help="Also withhold answers above this fraction of the largest entropy."),
    ] = None,
    flip: Annotated[
        bool, typer.Option("--flip", help="Ask about each picture and its mirror image.")
    ] = False,
    figure_: Annotated[
        Path | None, figure_option("Draw the confusion matrix: .svg, .pdf or .png.", "--figure")
    ] = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Measure rewarded accuracy, non-rewarded entropy and confusion."""
    from intarsia.artifacts import classifiers_of, open_artifact, split_for
    from intarsia.data.partitions import read_names
    from intarsia.measure import evaluate as measure
    from intarsia.measure.evaluation import one_answer
    from intarsia.modules import Health

    wanted = read_names(rewarded, "--rewarded") if rewarded else None
    artifact = open_artifact(path, own.factory(path))
    models = classifiers_of(artifact)
    loaded, same = source.load(artifact)
    samples = split_for(artifact, loaded, split)
    unknown = others.load(artifact, split)
    scores = {
        name: measure(one, samples, wanted, flips=flip, unknown=unknown)
        for name, one in models.items()
    }
    withheld = (
        {} if abstain is None else _abstentions(models, scores, samples, unknown, abstain, flip)
    )
    health = Health.of([artifact.health], *one_answer(scores))
    if figure_ is not None:
        from intarsia.plots import confusion_panels, save

        panels = {name: score.confusion for name, score in scores.items()}
        catalogue = next(iter(scores.values())).catalogue
        save(confusion_panels(panels, catalogue), figure_)
    note_other_data(path, same)
    if json:
        show_json(
            {
                "path": str(path),
                "health": health.to_json(),
                "data": loaded.name,
                "split": split,
                "flips": flip,
                "trained_on_this_data": same,
                "models": {name: score.to_json() for name, score in scores.items()},
            }
            | ({} if unknown is None else {"unknown": others.unknown})
            | ({"abstention": {k: v.to_json() for k, v in withheld.items()}} if withheld else {})
        )
    else:
        mirrored = ", pictures and their mirror images" if flip else ""
        beside = "" if unknown is None else f"; unknown: {others.unknown}"
        show(f"{path} on {loaded.name}, {split} split{mirrored}{beside}")
        show_scores(scores, confusion)
        if withheld:
            show_abstention(withheld)
    report_health(health, strict)


@verb(
    "compatibility demo/modules --samples digits",
    "compatibility 3.safetensors 8.safetensors --samples mnist",
    "compatibility modules/ --seed 0 --samples mnist --figure compatibility.svg",
)
def compatibility(
    paths: Annotated[list[Path], typer.Argument(help="Module files, bank folders, compositions.")],
    source: SamplesChoice,
    own: OwnNetwork,
    seed: Seed = None,
    figure_: Figure = None,
    json: Json = False,
) -> None:
    """Predict before a merge what will fit: what modules share, and what adding them will cost."""
    from intarsia.artifacts import open_modules
    from intarsia.composition.merge_recipe import load_samples, read_samples
    from intarsia.measure import compatibility as between
    from intarsia.measure import compatibility_matrix

    named = read_samples(source.setting())
    modules = open_modules(paths, seed, own.factory(*paths))
    inputs = load_samples(named, modules)
    is_pair = len(modules) == 2
    if figure_ is not None or not is_pair:
        result: Any = compatibility_matrix(modules, inputs)
        save_figure(result, figure_)
    if is_pair:
        result = between(modules[0], modules[1], inputs)
    if json:
        return show_json(result.to_json())
    show(result)
    if source.samples is None:
        note("the interference needs samples, give them with --samples")


@verb(
    "path demo/modules/3.safetensors demo/modules/8.safetensors --data digits",
    "path 3.safetensors 8.safetensors --points 41 --figure path.svg",
)
def path(
    a: Annotated[Path, typer.Argument(help="The module to start from, whose data is the default.")],
    b: Annotated[Path, typer.Argument(help="The module to reach.")],
    source: DataChoice,
    own: OwnNetwork,
    points: Annotated[int, typer.Option(help="Places to measure at, an odd number.")] = 21,
    rows: Annotated[
        int | None, typer.Option(help="Training samples to measure on; by default all.")
    ] = None,
    align: Align = None,
    figure_: Figure = None,
    json: Json = False,
) -> None:
    """Walk from one module to another through the sum of their weights: is there a barrier?"""
    from intarsia.artifacts import labelled, open_module
    from intarsia.measure import path as walk

    factory = own.factory(a, b)
    one, other = open_module(a, factory), open_module(b, factory)
    loaded, same = source.load(one)
    if align is not None:
        one, other = _aligned(one, other, align, loaded)
    way = walk(one, other, labelled(one, loaded), points, samples=rows, aligned=align is not None)
    save_figure(way, figure_)
    note_other_data(a, same)
    if json:
        return show_json({"data": loaded.name, "trained_on_this_data": same, **way.to_json()})
    show(way)


@verb(
    "probe demo/modules --data digits --seeds 3",
    "probe whole.safetensors --data mnist --joint 0.983 --json",
    "probe modules/ --operator 'ties(density=0.5)' --joint joint/0.safetensors",
    "probe whole.safetensors --data mnist --joint train",
)
def probe(
    path: ArtifactPath,
    source: DataChoice,
    own: OwnNetwork,
    operator: Annotated[
        str | None,
        name_option(
            completion.OPERATORS,
            "How the modules of a bank are joined first, by default their sum; the parts of a "
            "composition are joined again by it.",
        ),
    ] = None,
    seed: Seed = None,
    head: Annotated[
        str | None, typer.Option(help="The last linear layer, such as fc; by default it is found.")
    ] = None,
    joint: Annotated[
        str | None,
        text_option(
            "NUMBERS|PATH|train",
            "What training on all classes together reaches: accuracies, or its network; train: "
            "one is trained by the recipe of the modules.",
        ),
    ] = None,
    protocol: Annotated[
        str,
        name_option(
            completion.PROTOCOLS, "cached: features once; literal: the network every time."
        ),
    ] = "cached",
    seeds: Annotated[str, typer.Option(help="Of new heads, how many or which: 3, or 0,1,2.")] = "1",
    epochs: Annotated[
        int | None,
        typer.Option(help="Of each new head, 10 in the paper; by default until its loss settles."),
    ] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Train a new last layer on the frozen network: what part of a shortfall is the readout's?"""
    from intarsia.artifacts import open_artifact
    from intarsia.cli.arguments import read_seeds
    from intarsia.measure import fresh_head

    artifact = open_artifact(path, own.factory(path))
    loaded, same = source.load(artifact)
    result = fresh_head(
        _one_network(artifact, path, operator, seed, own, loaded),
        loaded,
        head=head,
        joint=None if joint is None else _joint(joint, own),  # type: ignore[arg-type]
        protocol=protocol,  # type: ignore[arg-type]
        epochs=epochs,
        seeds=read_seeds(seeds),
        device=device,
    )
    note_other_data(path, same)
    if json:
        return show_json({"path": str(path), "trained_on_this_data": same, **result.to_json()})
    show(result)


@verb("inspect demo/modules/3.safetensors", "inspect demo/modules --json")
def inspect(
    path: ArtifactPath,
    own: OwnNetwork,
    base: Annotated[
        str | None,
        typer.Option(help="What changes are of, if it is not beside them: its file, or a name."),
    ] = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Show what a file or folder holds: classes, architecture, density, origin, provenance."""
    from intarsia.artifacts import open_artifact
    from intarsia.cli.describe import describe

    artifact = open_artifact(path, own.factory(path), base)
    show_result(describe(artifact, path), json, show_description)
    report_health(artifact.health, strict)


def _aligned(a: "Module", b: "Module", how: str, data: "Data") -> tuple["Module", "Module"]:
    """Both modules, with the hidden units of the second matched to those of the first."""
    import torch

    from intarsia.composition.alignment.align import How, align

    if how not in get_args(How):
        raise RecipeError(f"unknown alignment {how!r}: {nearest(how, get_args(How))}")
    inputs = a.scaling(data.validation.x[:1000]) if how == "activations" else None
    if inputs is not None and a.architecture.model is not None:
        inputs = inputs.to(torch.float32)  # networks that have a name read no others
    one, other = align([a, b], how, inputs)  # type: ignore[arg-type]
    return one, other


def _one_network(
    artifact: "Artifact",
    path: Path,
    operator: str | None,
    seed: int | None,
    own: OwnNetwork,
    data: "Data",
) -> "Module | Composition":
    """A module, or a composition without an operator, as it is; else its modules joined.

    Joining may look at validation samples, as for the statistics of BatchNorm.
    """
    from intarsia.artifacts import open_modules
    from intarsia.composition import compose
    from intarsia.modules import Bank, Module

    if not isinstance(artifact, Bank):
        kind = type(artifact).__name__.lower()
        if seed is not None:
            raise RecipeError(
                f"{path} holds a {kind}, and --seed {seed} chooses among the modules of a bank: "
                "leave it out"
            )
        if operator is None:
            return artifact
        if isinstance(artifact, Module):
            raise RecipeError(
                f"{path} holds one module, which there is nothing to join with by --operator "
                f"{operator}: leave it out, or give the folder of a bank"
            )
    samples = data if len(data.validation) else None
    modules = open_modules([path], seed, own.factory(path))
    return compose(modules, operator or "sum", samples=samples)


def _joint(words: str, own: OwnNetwork) -> "Module | Composition | list[float] | str":
    """What --joint means: numbers, the path of a network, or that one is to be trained."""
    from intarsia.artifacts import open_network

    if words == "train":
        return words
    try:
        return [float(word) for word in words.split(",")]
    except ValueError:
        return open_network(Path(words), own.factory(Path(words)))


def _abstentions(
    models: "Mapping[str, Module | Composition]",
    scores: "Mapping[str, Evaluation]",
    samples: "Split",
    unknown: "Split | None",
    fraction: float,
    flips: bool,
) -> "dict[str, Abstention]":
    """How each model withholds answers: samples of rewarded classes are the known ones.

    Where none are given, the unknown ones are all other samples of the data.
    """
    from intarsia.measure import abstention

    result = {}
    for name, model in models.items():
        catalogue, rewarded = scores[name].catalogue, scores[name].rewarded
        known = [index for index, label in enumerate(catalogue) if label in rewarded]
        others = [index for index, label in enumerate(catalogue) if label not in rewarded]
        inside = samples.select(known)
        outside = samples.select(others) if unknown is None else unknown
        result[name] = abstention(model, inside, outside, fraction, flips=flips)
    return result
