"""compose, operators, compact, export: from modules to one network and its files."""

from pathlib import Path
from typing import Annotated

import typer

from intarsia.cli import completion
from intarsia.cli.common_options import (
    Align,
    Json,
    OwnNetwork,
    SamplesChoice,
    Seed,
    Strict,
    check_keeps,
    check_weights_file,
    name_option,
    report_health,
    text_option,
)
from intarsia.cli.console import show_json, show_result
from intarsia.cli.display import show_composition, show_facts, show_operators
from intarsia.cli.verbs import verb

Out = Annotated[Path, typer.Option("--out", "-o", help="The file to write.")]


@verb(
    "compose demo/modules -o whole.safetensors",
    "compose modules/ -o merged.safetensors --operator 'ties(density=0.2)'",
    "compose modules/ --seed 0 --without 3 -o nine.safetensors --operator inlay",
    "compose modules/ elsewhere/okapi.safetensors -o more.safetensors --grow",
    "compose recipes/merge_ties.yaml -o merged.safetensors",
    "compose mergekit.yml -o merged/ --shard-size 2GiB",
)
def compose(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RECIPE.yaml|PATHS...",
            help="A merge recipe, ours or mergekit's; or module files, bank folders and "
            "compositions.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The file to write; for mergekit's recipe, the folder."),
    ],
    source: SamplesChoice,
    own: OwnNetwork,
    operator: Annotated[
        str | None,
        name_option(
            completion.OPERATORS,
            "Such as sum or 'ties(density=0.2)'; see operators. By default inlay where that "
            "is small, else logits; with --align sum.",
        ),
    ] = None,
    align: Align = None,
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
        list[str] | None,
        typer.Option(help="A module to leave out, by name or class; once for each."),
    ] = None,
    grow: Annotated[
        bool | None,
        typer.Option(
            "--grow",
            help="Give every module outputs, without evidence, for the classes that only others "
            "know.",
        ),
    ] = None,
    shard_size: Annotated[
        str | None,
        text_option("SIZE", "For mergekit's recipe: the most that a file holds, as in 2GiB."),
    ] = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Join modules into one classifier, without training, and write it to a file.

    Options override the recipe. Models that mergekit's YAML names are joined tensor by tensor.
    """
    from intarsia.cli.arguments import merge_recipe, mergekit_recipe
    from intarsia.cli.describe import describe
    from intarsia.composition.streaming.file_merge import SHARD_SIZE

    given = {
        "operator": operator, "align": align, "samples": source.setting(),
        "recalibrate": recalibrate, "calibrate": calibrate, "seed": seed, "without": without,
        "grow": grow,
    }  # fmt: skip
    if (files := mergekit_recipe(paths, given, shard_size)) is not None:
        made = files.merge(out, shard_size=shard_size or SHARD_SIZE)
        return show_result(made.as_dict(), json, show_facts)
    check_weights_file(out)
    recipe = merge_recipe(paths, given)
    merged = recipe.compose(own.factory(*recipe.paths))
    merged.save(out)
    show_result(describe(merged, out), json, show_composition)
    report_health(merged.health, strict)


@verb("operators", "operators --json")
def operators(json: Json = False) -> None:
    """List the ways of joining modules: what each works on, its settings and its paper."""
    from intarsia.cli.describe import describe_operators

    result = describe_operators()
    return show_json({"operators": result}) if json else show_operators(result)


@verb(
    "compact demo/modules/3.safetensors -o small.safetensors",
    "compact inlay.safetensors -o small.safetensors",
)
def compact(
    path: Annotated[Path, typer.Argument(help="A module, or a composition of one network.")],
    out: Out,
    own: OwnNetwork,
    json: Json = False,
) -> None:
    """Drop the hidden units that nothing depends on: a smaller network with the same answers."""
    from intarsia.artifacts import open_network, weights_path
    from intarsia.cli.describe import describe
    from intarsia.modules import Module
    from intarsia.modules import compact as compacted

    artifact = open_network(path, own.factory(path))
    if isinstance(artifact, Module):
        before, after = artifact, compacted(artifact)
    else:
        after = artifact.compact()
        assert artifact.joined is not None  # or there would be nothing to compact
        before = artifact.joined
    check_weights_file(out, weights_path(path))
    after.save(out)
    result = describe(after, out)
    result["before"] = {
        "architecture": str(before.architecture),
        "parameters": before.parameters,
        "bytes": weights_path(path).stat().st_size,
    }
    show_result(result, json, show_facts)
    report_health(after.health)


@verb(
    "export whole.safetensors -o whole.onnx",
    "export whole.safetensors -o whole.onnx --inputs uint8",
    "export demo/modules/3.safetensors -o tensors.safetensors",
)
def export(
    path: Annotated[Path, typer.Argument(help="A module or a composition.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file to write: .onnx or .safetensors.")
    ],
    own: OwnNetwork,
    format_: Annotated[
        str | None, typer.Option("--format", help="onnx or safetensors, whatever the name.")
    ] = None,
    inputs: Annotated[
        str, typer.Option(help="The type of an ONNX network's raw inputs: float32 or uint8.")
    ] = "float32",
    shape: Annotated[
        str | None,
        text_option("C,H,W", "Of raw pictures, for an encoder that takes any; as in 3,64,64."),
    ] = None,
    json: Json = False,
) -> None:
    """Write a network for those who have no intarsia: ONNX, or its tensors alone."""
    from intarsia.artifacts import open_network, weights_path
    from intarsia.cli.arguments import read_shape
    from intarsia.cli.describe import describe_export
    from intarsia.exports import export as write

    artifact = open_network(path, own.factory(path))
    raw = read_shape(shape)
    check_keeps(out, weights_path(path))
    kind = write(artifact, out, format_, inputs, raw)
    show_result(describe_export(artifact, out, kind, inputs, raw), json, show_facts)
    report_health(artifact.health)
