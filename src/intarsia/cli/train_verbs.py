"""demo, data, train: from data to modules."""

import shutil
import sys
import time
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from intarsia.cli import completion
from intarsia.cli.common_options import DATA, Json, SetData, Strict, Target, tell_health
from intarsia.cli.console import facts, note, show, show_json, table
from intarsia.cli.display import show_bank, show_demo, show_plan

Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting, its value as in YAML."),
]


def demo(
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("demo"),
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of a round.")] = None,
    json: Json = False,
) -> None:
    """Train ten digit modules, join them, take one out, and write a report."""
    from intarsia.demo import continuing
    from intarsia.demo import demo as run

    began = time.perf_counter()
    result = run(out, epochs=epochs, say=note)
    if json:
        return show_json(result.to_json() | {"report": str(out / "report.html")})
    show_demo(result)
    page = out / "report.html"
    show(f"{time.perf_counter() - began:.0f} s; report: {page}, opens in any browser")
    show("\ngo on with")
    show(*(f"  {command}" for command in [*_at_hand(), *continuing(out)]))
    show(f"\nor play with them in the browser: make studio, or intarsia studio {quote(str(out))}")


def data(
    source: Annotated[
        str | None,
        typer.Argument(metavar="[NAME|PATH]", help=f"{DATA}.", autocompletion=completion.data),
    ] = None,
    target: Target = None,
    set_: SetData = None,
    download: Annotated[bool, typer.Option(help="Fetch what is not on this machine.")] = True,
    json: Json = False,
) -> None:
    """List the known data sets and where they come from, or show what one holds."""
    from intarsia.cli.arguments import data_options, load
    from intarsia.cli.describe import describe_data, known_sets

    if source is None:
        sets = known_sets()
        if json:
            return show_json({"sets": sets})
        columns = ("name", "title", "inputs", "classes", "rows", "where")
        return show(table(columns, [[entry[c] for c in columns] for entry in sets]))
    result = describe_data(load(source, {**data_options(set_, target), "download": download}))
    if json:
        return show_json(result)
    counts = result["counts"]
    show(
        facts((k, result[k]) for k in ("name", "inputs", "type", "scaling", "digest")),
        table(
            ["class", *counts],
            [[name, *(part[name] for part in counts.values())] for name in result["catalogue"]]
            + [["all", *(sum(part.values()) for part in counts.values())]],
        ),
    )


def train(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RECIPE.yaml] OUT", help="A recipe, if there is one, and the modules' folder."
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help=f"{DATA}.", autocompletion=completion.data)
    ] = None,
    target: Target = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Such as mlp(512, 256) or lenet; or package.module:factory, your own.",
            autocompletion=completion.one_of(completion.MODELS),
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="me, qme, xe, smoothing(0.1), ...",
            autocompletion=completion.one_of(completion.OBJECTIVES),
        ),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            help="each, blocks(5), or sets of classes: 0+1,2+3; names with a comma or + in quotes."
        ),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Such as 0,1,2: all modules for each.")] = None,
    pruning: Annotated[
        str | None,
        typer.Option(
            help="magnitude, random or territory.",
            autocompletion=completion.one_of(completion.PRUNINGS),
        ),
    ] = None,
    sparsity: Annotated[float | None, typer.Option(help="Share of weights to prune.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Pruning rounds.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of a round.")] = None,
    batch: Annotated[int | None, typer.Option(help="Samples in a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Adam's step size.")] = None,
    schedule: Annotated[str | None, typer.Option(help="constant or cosine.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Divides the logits.")] = None,
    negatives: Annotated[
        str | None,
        typer.Option(
            help="Made-up samples of no class: none, or such as 'noise(0.25) + mixed(0.25)'.",
            autocompletion=completion.one_of(completion.NEGATIVES),
        ),
    ] = None,
    balance: Annotated[
        float | None,
        typer.Option(help="0: every sample counts alike, to 1: rewarded ones as all others."),
    ] = None,
    select: Annotated[
        str | None, typer.Option(help="Checkpoint of a round: accuracy, loss or last.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="By default auto, by the size of the data; else paper or released.",
            autocompletion=completion.one_of(completion.PRESETS),
        ),
    ] = None,
    set_: Set = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    engine: Annotated[
        str,
        typer.Option(
            help="auto, plain, single, stack or mlp.",
            autocompletion=completion.one_of(completion.ENGINES),
        ),
    ] = "auto",
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

    Flags override the recipe; what neither gives comes from the preset.
    """
    given = {
        "data": data, "target": target, "model": model, "objective": objective,
        "partition": partition, "seeds": seeds, "pruning": pruning, "sparsity": sparsity,
        "rounds": rounds, "epochs": epochs, "batch": batch, "learning_rate": learning_rate,
        "schedule": schedule, "temperature": temperature, "negatives": negatives,
        "balance": balance, "select": select, "preset": preset,
    }  # fmt: skip
    from intarsia.cli.arguments import (
        assignments,
        factory_of,
        is_factory,
        plan,
        read_recipe,
        recipe_and_out,
    )
    from intarsia.cli.describe import describe_bank
    from intarsia.training import train as run

    file, out = recipe_and_out(paths or [], dry_run)
    recipe = read_recipe(file, given, assignments(set_))
    own = factory_of(model) if is_factory(model) else None
    if dry_run:
        planned = plan(recipe)
        return show_json(planned.to_json()) if json else show_plan(planned)
    began = time.perf_counter()
    bank = run(
        None, recipe, model=own, out=out, device=device, engine=engine, keep_rounds=keep_rounds
    )
    result = describe_bank(bank, out) | {"seconds": round(time.perf_counter() - began, 3)}
    if json:
        show_json(result)
    else:
        show_bank(result)
        show(f"{result['seconds']:.1f} s, in {out}")
    tell_health(bank.health, strict)


def _at_hand() -> list[str]:
    """What puts `intarsia` on the path of a shell that runs it from a virtual environment."""
    activate = Path(sys.prefix) / "bin" / "activate"
    if shutil.which("intarsia") or not activate.exists():
        return []
    here = activate.relative_to(Path.cwd()) if activate.is_relative_to(Path.cwd()) else activate
    return [f". {quote(str(here))}"]
