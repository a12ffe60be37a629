"""demo, data, train: from data to modules."""

import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from intarsia.cli import completion
from intarsia.cli.common_options import (
    DATA_HELP,
    Address,
    DataOptions,
    Device,
    Features,
    Json,
    Strict,
    Target,
    Workers,
    name_argument,
    name_option,
    report_health,
    text_option,
)
from intarsia.cli.console import say, show, show_json, show_result
from intarsia.cli.display import (
    show_bank,
    show_data,
    show_datasets,
    show_demo,
    show_features_demo,
    show_plan,
)
from intarsia.cli.verbs import verb


@verb("demo", "demo --out digits-demo", "demo --features", resumes=True)
def demo(
    out: Annotated[
        Path | None,
        typer.Option(help="The folder to write to; demo, or demo-features.", show_default=False),
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs per round.")] = None,
    features: Annotated[
        bool,
        typer.Option(
            "--features",
            help="A hundred modules on a pretrained network's features; needs the extra backbones.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Train ten digit modules, join them, take one out, and write a report."""
    if features:
        return _features_demo(out or Path("demo-features"), epochs, json)
    from intarsia.demos.demo import demo as run
    from intarsia.demos.demo import next_commands

    out, began = out or Path("demo"), time.perf_counter()
    findings = run(out, epochs=epochs, say=say)
    if json:
        return show_json(findings.to_json() | {"report": str(out / "report.html")})
    show_demo(findings)
    _show_next(out, began, next_commands(out))
    show(f"\nor play with them in the browser: make studio, or intarsia studio {quote(str(out))}")


def _features_demo(out: Path, epochs: int | None, json: bool) -> None:
    from intarsia.demos.features_demo import features_commands, features_demo

    began = time.perf_counter()
    findings = features_demo(out, epochs=epochs, say=say)
    if json:
        return show_json(findings.to_json() | {"report": str(out / "report.html")})
    show_features_demo(findings)
    _show_next(out, began, features_commands(out))


def _show_next(out: Path, began: float, commands: Sequence[str]) -> None:
    page = out / "report.html"
    show(f"{time.perf_counter() - began:.0f} s; report: {page}, opens in any browser")
    show("\ngo on with")
    show(*(f"  {command}" for command in [*_activation(), *commands]))


@verb("data", "data mnist", "data flowers.csv --target species")
def data(
    source: Annotated[
        str | None, name_argument("[NAME|PATH]", completion.DATASETS, f"{DATA_HELP}.")
    ] = None,
    target: Target = None,
    features: Features = None,
    set_: DataOptions = None,
    download: Annotated[bool, typer.Option(help="Fetch what is not on this machine.")] = True,
    json: Json = False,
) -> None:
    """List the known data sets and where they come from, or show what one holds."""
    from intarsia.cli.arguments import data_options
    from intarsia.cli.describe import describe_data, describe_datasets
    from intarsia.data import check_options, load_data

    if source is None:
        datasets = describe_datasets()
        return show_json({"sets": datasets}) if json else show_datasets(datasets)
    options = {**data_options(set_, target, features), "download": download}
    check_options(options)
    show_result(describe_data(load_data(source, **options)), json, show_data)


@dataclass(frozen=True)
class RecipeOptions:
    """The settings of a recipe that have an option of their own."""

    data: Annotated[str | None, name_option(completion.DATASETS, f"{DATA_HELP}.")] = None
    target: Target = None
    features: Features = None
    model: Annotated[
        str | None,
        name_option(
            completion.MODELS,
            "Such as mlp(512, 256) or lenet; or package.module:factory, your own.",
        ),
    ] = None
    objective: Annotated[
        str | None, name_option(completion.OBJECTIVES, "me, qme, xe, smoothing(0.1), ...")
    ] = None
    partition: Annotated[
        str | None,
        typer.Option(
            help="each, blocks(5), random(3), or sets of classes: 0+1,2+3; names with a comma or + "
            "in quotes."
        ),
    ] = None
    seeds: Annotated[str | None, typer.Option(help="Such as 0,1,2: all modules for each.")] = None
    base: Annotated[
        str | None,
        typer.Option(help="Weights that modules are changes of: a file, a bank's folder, a name."),
    ] = None
    trainable: Annotated[
        str | None,
        typer.Option(
            help="What may change of a base: all, head, norms, lora(8) or layers, with commas."
        ),
    ] = None
    pruning: Annotated[
        str | None,
        name_option(completion.PRUNINGS, "magnitude, units, similarity, random or territory."),
    ] = None
    sparsity: Annotated[float | None, typer.Option(help="Fraction of weights to prune.")] = None
    rounds: Annotated[int | None, typer.Option(help="Pruning rounds.")] = None
    epochs: Annotated[int | None, typer.Option(help="Epochs per round.")] = None
    batch: Annotated[int | None, typer.Option(help="Samples per step.")] = None
    batches: Annotated[
        str | None,
        name_option(
            completion.BATCHES,
            "Of which samples: shown, all, or balanced(9), so many others for each of one's own.",
        ),
    ] = None
    optimiser: Annotated[
        str | None,
        name_option(completion.OPTIMISERS, "adam, adamw(decay=0.01) or sgd(momentum=0.9)."),
    ] = None
    learning_rate: Annotated[float | None, typer.Option(help="The optimiser's step size.")] = None
    schedule: Annotated[
        str | None, name_option(completion.SCHEDULES, "constant, cosine or onecycle(warmup=0.3).")
    ] = None
    temperature: Annotated[float | None, typer.Option(help="Divides the logits.")] = None
    precision: Annotated[
        str | None, typer.Option(help="Of products: float32, or bf16 over float32 weights.")
    ] = None
    negatives: Annotated[
        str | None,
        name_option(
            completion.NEGATIVES,
            "Made-up samples of no class: none, or such as 'noise(0.25) + mixed(0.25)'.",
        ),
    ] = None
    augment: Annotated[
        str | None,
        name_option(
            completion.AUGMENTATIONS,
            "Pictures changed anew in every epoch: none, or such as 'crop(4) + flip'.",
        ),
    ] = None
    visibility: Annotated[
        str | None,
        name_option(
            completion.VISIBILITIES, "The classes whose samples a module may see: all, past or own."
        ),
    ] = None
    balance: Annotated[
        float | None,
        typer.Option(help="From 0, every sample counts alike, to 1, rewarded ones as all others."),
    ] = None
    select: Annotated[
        str | None, typer.Option(help="Checkpoint of a round: accuracy, loss or last.")
    ] = None
    preset: Annotated[
        str | None,
        name_option(
            completion.PRESETS, "By default auto, by the size of the data; else paper or released."
        ),
    ] = None


@verb(
    "train recipes/digits.yaml modules/",
    "train modules/ --data mnist --sparsity 0.95 --seeds 0,1,2",
    "train pairs/ --partition 0+1,2+3 --set patience=3",
    "train flowers/ --data flowers.csv --target species",
    "train birds/ --data pictures --features efficientnet_lite0",
    "train mine/ --data digits --model package.module:factory",
    "train heads/ --data digits --base modules/3.safetensors --trainable head",
    "train modules/ --data mnist --engine ray --address auto",
    "train recipes/mnist_deep.yaml --dry-run",
    resumes=True,
)
def train(
    options: RecipeOptions,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RECIPE.yaml] OUT", help="A recipe, if there is one, and the modules' folder."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        text_option(
            "KEY=VALUE",
            "Any other setting, or option of the data such as missing=mean; in YAML.",
            "--set",
        ),
    ] = None,
    device: Device = "auto",
    engine: Annotated[
        str,
        name_option(
            completion.ENGINES,
            "auto, or one by name: mlp, lenet, grouped, streams, compiled, stack, single, plain; "
            "processes or ray, with workers that have one each.",
        ),
    ] = "auto",
    workers: Workers = None,
    address: Address = None,
    keep_rounds: Annotated[
        bool, typer.Option("--keep-rounds", help="Also keep the modules of the pruning rounds.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the settings chosen for the data and train nothing."),
    ] = False,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Train one module per set of classes and seed; stopped, the same command resumes.

    Options override the recipe; what neither gives comes from the preset.
    """
    from intarsia.cli.arguments import (
        assignments,
        import_factory,
        is_factory,
        read_recipe,
        recipe_and_out,
    )
    from intarsia.cli.describe import describe_bank, describe_plan
    from intarsia.training import train as run

    file, out = recipe_and_out(paths or [], dry_run, options.data)
    recipe = read_recipe(file, vars(options), assignments(set_))
    model = import_factory(options.model) if is_factory(options.model) else None
    if dry_run:
        return show_result(describe_plan(recipe), json, show_plan)
    began = time.perf_counter()
    bank = run(
        None,
        recipe,
        model=model,
        out=out,
        device=device,
        engine=engine,
        workers=workers,
        address=address,
        keep_rounds=keep_rounds,
    )
    result = describe_bank(bank, out) | {"seconds": round(time.perf_counter() - began, 3)}
    if json:
        show_json(result)
    else:
        show_bank(result)
        show(f"{result['seconds']:.1f} s, in {out}")
    report_health(bank.health, strict)


def _activation() -> list[str]:
    """What puts `intarsia` on the path of a shell that runs it from a virtual environment."""
    activate = Path(sys.prefix) / "bin" / "activate"
    if shutil.which("intarsia") or not activate.exists():
        return []
    here = activate.relative_to(Path.cwd()) if activate.is_relative_to(Path.cwd()) else activate
    return [f". {quote(str(here))}"]
