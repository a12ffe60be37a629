"""compose, operators, compact, export: from modules to one network and its files."""

from pathlib import Path
from typing import Annotated

import typer

from intarsia.cli import completion
from intarsia.cli.common_options import Factory, Json, Samples, Seed, Strict, Target, tell_health
from intarsia.cli.console import show_json
from intarsia.cli.display import show_calibration, show_facts, show_operators

Out = Annotated[Path, typer.Option("--out", "-o", help="The file to write.")]


def compose(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RECIPE.yaml|PATHS...",
            help="A merge recipe; or module files, bank folders and compositions.",
        ),
    ],
    out: Out,
    operator: Annotated[
        str | None,
        typer.Option(
            help="Such as sum or 'ties(density=0.2)'; see operators. By default inlay where that "
            "is small, else logits; with --align sum.",
            autocompletion=completion.one_of(completion.OPERATORS),
        ),
    ] = None,
    align: Annotated[
        str | None,
        typer.Option(
            help="Match hidden units first: weights or activations.",
            autocompletion=completion.one_of(completion.ALIGNMENTS),
        ),
    ] = None,
    samples: Samples = None,
    target: Target = None,
    recalibrate: Annotated[
        bool | None,
        typer.Option(
            "--recalibrate/--no-recalibrate",
            help="Recompute BatchNorm statistics from the samples; by default on.",
        ),
    ] = None,
    calibrate: Annotated[
        bool | None,
        typer.Option("--calibrate", help="Fit a scale and an offset per module on the samples."),
    ] = None,
    seed: Seed = None,
    without: Annotated[
        list[str] | None, typer.Option(help="A module to leave out, by name or class.")
    ] = None,
    model: Factory = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Join modules into one classifier, without training, and write it to a file.

    Flags override the recipe.
    """
    from intarsia.cli.arguments import factory_of, merge_recipe, samples_of
    from intarsia.cli.describe import describe

    given = {
        "operator": operator, "align": align, "samples": samples_of(samples, target),
        "recalibrate": recalibrate, "calibrate": calibrate, "seed": seed, "without": without,
    }  # fmt: skip
    merged = merge_recipe(paths, given).compose(factory_of(model))
    merged.save(out)
    result = describe(merged, out)
    if json:
        show_json(result)
    else:
        show_facts(result)
        show_calibration(result)
    tell_health(merged.health, strict)


def operators(json: Json = False) -> None:
    """List the ways of joining modules: what each works on, its settings and its paper."""
    from intarsia.cli.describe import known_operators

    result = known_operators()
    if json:
        return show_json({"operators": result})
    show_operators(result)


def compact(
    path: Annotated[Path, typer.Argument(help="A module, or a composition of one network.")],
    out: Out,
    model: Factory = None,
    json: Json = False,
) -> None:
    """Drop the hidden units that nothing depends on: a smaller network with the same answers."""
    from intarsia.cli.arguments import compacted, factory_of
    from intarsia.cli.describe import describe

    before, after = compacted(path, factory_of(model))
    after.save(out)
    result = describe(after, out)
    result["before"] = {
        "architecture": str(before.architecture),
        "parameters": before.parameters,
        "bytes": path.stat().st_size,
    }
    if json:
        show_json(result)
    else:
        show_facts(result)
    tell_health(after.health)


def export(
    path: Annotated[Path, typer.Argument(help="A module or a composition.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file to write: .onnx or .safetensors.")
    ],
    format_: Annotated[
        str | None, typer.Option("--format", help="onnx or safetensors, whatever the name.")
    ] = None,
    inputs: Annotated[
        str, typer.Option(help="The type of an ONNX network's raw inputs: float32 or uint8.")
    ] = "float32",
    model: Factory = None,
    json: Json = False,
) -> None:
    """Write a network for those who have no intarsia: ONNX, or its tensors alone."""
    from intarsia.cli.arguments import factory_of, one_thing
    from intarsia.cli.describe import describe_export
    from intarsia.exports import export as write

    artifact = one_thing(path, factory_of(model))
    kind = write(artifact, out, format_, inputs)
    result = describe_export(artifact, out, kind, inputs)
    if json:
        show_json(result)
    else:
        show_facts(result)
    tell_health(artifact.health)
