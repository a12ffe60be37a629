"""evaluate, path, compatibility, inspect: what modules know, and how they fit."""

from pathlib import Path
from typing import Annotated, Any

import typer

from intarsia.cli import completion
from intarsia.cli.common_options import (
    DATA,
    Factory,
    Figure,
    Json,
    Samples,
    Seed,
    SetData,
    Strict,
    Target,
    check_figure,
    tell_health,
)
from intarsia.cli.console import note, plain_text, show, show_json, table
from intarsia.cli.display import (
    show_abstention,
    show_bank,
    show_calibration,
    show_facts,
    show_scores,
)


def evaluate(
    path: Annotated[Path, typer.Argument(help="A module, a composition, or a bank folder.")],
    data: Annotated[
        str | None,
        typer.Option(
            help=f"{DATA}; by default what it learned from.", autocompletion=completion.data
        ),
    ] = None,
    target: Target = None,
    split: Annotated[
        str,
        typer.Option(
            help="train, validation, test or all.",
            autocompletion=completion.one_of(completion.SPLITS),
        ),
    ] = "test",
    rewarded: Annotated[
        str | None,
        typer.Option(
            help="Classes to count as rewarded, such as 0,1; names with a comma or + in quotes."
        ),
    ] = None,
    confusion: Annotated[bool, typer.Option("--confusion", help="Show the matrix.")] = False,
    abstain: Annotated[
        float | None,
        typer.Option(help="Also withhold answers above this share of the largest entropy."),
    ] = None,
    figure_: Annotated[
        Path | None,
        typer.Option("--figure", help="Draw the confusion matrix: .svg, .pdf or .png."),
    ] = None,
    model: Factory = None,
    set_: SetData = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Measure rewarded accuracy, non-rewarded entropy and confusion."""
    from intarsia.cli.arguments import (
        abstentions,
        data_for,
        data_options,
        factory_of,
        models_of,
        split_for,
    )
    from intarsia.composition.opening import open_path
    from intarsia.data.partitions import read_names
    from intarsia.measure import evaluate as measure
    from intarsia.measure.evaluation import one_answer
    from intarsia.modules import Health

    check_figure(figure_)
    wanted = read_names(rewarded, "--rewarded") if rewarded else None
    artifact = open_path(path, factory_of(model))
    models = models_of(artifact)
    result, same = data_for(artifact, data, data_options(set_, target))
    samples = split_for(artifact, result, split)
    scores = {name: measure(model, samples, wanted) for name, model in models.items()}
    withheld = {} if abstain is None else abstentions(models, scores, samples, abstain)
    health = Health.of([artifact.health], *one_answer(scores))
    if figure_ is not None:
        from intarsia.plots import confusion_panels, save

        panels = {name: score.confusion for name, score in scores.items()}
        catalogue = next(iter(scores.values())).catalogue
        save(confusion_panels(panels, catalogue), figure_)
    if not same:
        note(f"note: this is not the data that {path} was trained on, or it is split otherwise")
    if json:
        show_json(
            {
                "path": str(path),
                "health": health.to_json(),
                "data": result.name,
                "split": split,
                "trained_on_this_data": same,
                "models": {name: score.to_json() for name, score in scores.items()},
                **(
                    {"abstention": {k: v.to_json() for k, v in withheld.items()}}
                    if withheld
                    else {}
                ),
            }
        )
    else:
        show(f"{path} on {result.name}, {split} split")
        show_scores(scores, confusion)
        if withheld:
            show_abstention(withheld)
    tell_health(health, strict)


def compatibility(
    paths: Annotated[list[Path], typer.Argument(help="Module files, bank folders, compositions.")],
    samples: Samples = None,
    target: Target = None,
    seed: Seed = None,
    figure_: Figure = None,
    model: Factory = None,
    json: Json = False,
) -> None:
    """Tell before a merge what will fit: what modules share, and what adding them will cost."""
    from intarsia.cli.arguments import factory_of, modules_of, samples_of
    from intarsia.composition.merge_recipe import load_samples, read_samples
    from intarsia.measure import compatibility as between
    from intarsia.measure import compatibility_matrix

    check_figure(figure_)
    named = read_samples(samples_of(samples, target))
    modules = modules_of(paths, seed, factory_of(model))
    inputs = load_samples(named, modules)
    if figure_ is not None:
        from intarsia.plots import save

        save(compatibility_matrix(modules, inputs).figure(), figure_)
    if len(modules) == 2:
        result: Any = between(modules[0], modules[1], inputs)
    else:
        result = compatibility_matrix(modules, inputs)
    if json:
        return show_json(result.to_json())
    show(result)
    if samples is None:
        note("note: the interference needs samples, give them with --samples")


def path(
    a: Annotated[Path, typer.Argument(help="The module to start from.")],
    b: Annotated[Path, typer.Argument(help="The module to reach.")],
    data: Annotated[
        str | None,
        typer.Option(
            help=f"{DATA}; by default what A learned from.", autocompletion=completion.data
        ),
    ] = None,
    target: Target = None,
    points: Annotated[int, typer.Option(help="Places to measure at, an odd number.")] = 21,
    rows: Annotated[
        int | None, typer.Option(help="Training samples to measure on; by default all.")
    ] = None,
    align: Annotated[
        str | None,
        typer.Option(
            help="Match B's hidden units to A's first: weights or activations.",
            autocompletion=completion.one_of(completion.ALIGNMENTS),
        ),
    ] = None,
    figure_: Figure = None,
    model: Factory = None,
    set_: SetData = None,
    json: Json = False,
) -> None:
    """Walk from one module to another through the sum of their weights: is there a barrier?"""
    from intarsia.cli.arguments import (
        aligned_pair,
        data_for,
        data_options,
        factory_of,
        labelled,
        one_module,
    )
    from intarsia.measure import path as walk

    check_figure(figure_)
    own = factory_of(model)
    one, other = one_module(a, own), one_module(b, own)
    result, same = data_for(one, data, data_options(set_, target))
    if align is not None:
        one, other = aligned_pair(one, other, align, result)
    way = walk(one, other, labelled(one, result), points, samples=rows, aligned=align is not None)
    if figure_ is not None:
        from intarsia.plots import save

        save(way.figure(), figure_)
    if not same:
        note(f"note: this is not the data that {a} was trained on, or it is split otherwise")
    if json:
        return show_json({"data": result.name, "trained_on_this_data": same, **way.to_json()})
    show(way)


def inspect(
    path: Annotated[Path, typer.Argument(help="A module, a composition, or a bank folder.")],
    model: Factory = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Show what a file or folder holds: classes, architecture, density, origin, provenance."""
    from intarsia.cli.arguments import factory_of
    from intarsia.cli.describe import describe
    from intarsia.composition.opening import open_path

    artifact = open_path(path, factory_of(model))
    result = describe(artifact, path)
    if json:
        show_json(result)
    elif result["kind"] == "bank":
        show_bank(result)
    else:
        show_facts(result)
        show_calibration(result)
        for part in ("parts", "tensors"):
            if rows := result.get(part):
                columns = [c for c in rows[0] if c != "digest"]
                show(table(columns, [[plain_text(row[c]) for c in columns] for row in rows]))
    tell_health(artifact.health, strict)
