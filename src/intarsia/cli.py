"""The command line: parse, call, print. Torch is imported by the commands, not by their help."""

import time
from pathlib import Path
from typing import Annotated

import typer

from intarsia import __version__
from intarsia.console import (
    Verbs,
    facts,
    note,
    plain_text,
    show,
    show_bank,
    show_demo,
    show_facts,
    show_json,
    show_plan,
    show_scores,
    table,
)
from intarsia.errors import FileError

app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with [bold]intarsia demo[/bold]: ten modules, joined, in under a minute.",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting, its value as in YAML."),
]
SetData = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the data, such as seed=1."),
]


def main() -> None:
    """The entry point."""
    app(prog_name="intarsia")


def _examples(*lines: str) -> str:
    return "\n\n".join(["Examples:", *(f"[bold]intarsia {line}[/bold]" for line in lines)])


def _version(wanted: bool) -> None:
    if wanted:
        print(f"intarsia {__version__}")
        raise typer.Exit


@app.callback()
def intarsia(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Sparse class modules: train them, join them without retraining, take them apart."""


@app.command(epilog=_examples("demo", "demo --out digits-demo"))
def demo(
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("demo"),
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of a round.")] = None,
    json: Json = False,
) -> None:
    """Train ten digit modules, join them, take one out, and write a report."""
    from intarsia.demo import continuing
    from intarsia.demo import demo as run

    began = time.perf_counter()
    found = run(out, epochs=epochs, say=note)
    if json:
        return show_json(found.to_json() | {"report": str(out / "report.md")})
    show_demo(found)
    show(f"{time.perf_counter() - began:.0f} s; report: {out / 'report.md'}", "\ngo on with")
    show(*(f"  {command}" for command in continuing(out)))


@app.command(epilog=_examples("data", "data mnist", "data flowers.csv --set target=species"))
def data(
    source: Annotated[
        str | None, typer.Argument(metavar="[NAME|PATH]", help="A named set, .npz or .csv.")
    ] = None,
    set_: SetData = None,
    download: Annotated[bool, typer.Option(help="Fetch what is not on this machine.")] = True,
    json: Json = False,
) -> None:
    """List the known data sets and where they come from, or show what one holds."""
    from intarsia.arguments import assignments, load
    from intarsia.describe import describe_data, known_sets

    if source is None:
        sets = known_sets()
        if json:
            return show_json({"sets": sets})
        columns = ("name", "title", "inputs", "classes", "rows", "where")
        return show(table(columns, [[entry[c] for c in columns] for entry in sets]))
    found = describe_data(load(source, {**assignments(set_), "download": download}))
    if json:
        return show_json(found)
    counts = found["counts"]
    show(
        facts((k, found[k]) for k in ("name", "inputs", "type", "scaling", "digest")),
        table(
            ["class", *counts],
            [[name, *(part[name] for part in counts.values())] for name in found["catalogue"]]
            + [["all", *(sum(part.values()) for part in counts.values())]],
        ),
    )


@app.command(
    epilog=_examples(
        "train recipes/digits.yaml modules/",
        "train modules/ --data mnist --sparsity 0.95 --seeds 0,1,2",
        "train pairs/ --partition 0+1,2+3 --set patience=3",
        "train recipes/mnist_deep.yaml --dry-run",
    )
)
def train(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RECIPE.yaml] OUT", help="A recipe, if there is one, and the modules' folder."
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(help="A named set, .npz or .csv.")] = None,
    model: Annotated[str | None, typer.Option(help="Such as mlp(512, 256) or lenet.")] = None,
    objective: Annotated[str | None, typer.Option(help="me, qme, xe, smoothing(0.1), ...")] = None,
    partition: Annotated[
        str | None, typer.Option(help="each, blocks(5), or sets of classes: 0+1,2+3.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Such as 0,1,2: all modules for each.")] = None,
    pruning: Annotated[str | None, typer.Option(help="magnitude, random or territory.")] = None,
    sparsity: Annotated[float | None, typer.Option(help="Share of weights to prune.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Pruning rounds.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of a round.")] = None,
    batch: Annotated[int | None, typer.Option(help="Samples in a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Adam's step size.")] = None,
    schedule: Annotated[str | None, typer.Option(help="constant or cosine.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Divides the logits.")] = None,
    select: Annotated[
        str | None, typer.Option(help="Checkpoint of a round: accuracy, loss or last.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="paper or released.")] = None,
    set_: Set = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    engine: Annotated[str, typer.Option(help="auto, plain, single, stack or mlp.")] = "auto",
    keep_rounds: Annotated[
        bool, typer.Option("--keep-rounds", help="Also keep the modules of the pruning rounds.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved recipe and train nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Train one module per set of classes and seed; stopped, the same command resumes.

    Flags override the recipe; what neither gives comes from the preset.
    """
    given = {
        "data": data, "model": model, "objective": objective, "partition": partition,
        "seeds": seeds, "pruning": pruning, "sparsity": sparsity, "rounds": rounds,
        "epochs": epochs, "batch": batch, "learning_rate": learning_rate, "schedule": schedule,
        "temperature": temperature, "select": select, "preset": preset,
    }  # fmt: skip
    from intarsia.arguments import assignments, count_modules, read_recipe, recipe_and_out
    from intarsia.describe import describe_bank
    from intarsia.training import train as run

    file, out = recipe_and_out(paths or [], dry_run)
    recipe = read_recipe(file, given, assignments(set_))
    if dry_run:
        modules = count_modules(recipe)
        if json:
            return show_json({"recipe": recipe.as_dict(), "modules": modules})
        return show_plan(recipe, modules)
    began = time.perf_counter()
    bank = run(None, recipe, out=out, device=device, engine=engine, keep_rounds=keep_rounds)
    found = describe_bank(bank, out) | {"seconds": round(time.perf_counter() - began, 3)}
    if json:
        return show_json(found)
    show_bank(found)
    show(f"{found['seconds']:.1f} s, in {out}")


@app.command(
    epilog=_examples(
        "compose demo/modules -o whole.safetensors",
        "compose 0.safetensors 1.safetensors -o pair.safetensors --operator logits",
        "compose modules/ --seed 0 --without 3 -o nine.safetensors",
    )
)
def compose(
    paths: Annotated[
        list[Path], typer.Argument(help="Module files, bank folders, or compositions.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")],
    operator: Annotated[str, typer.Option(help="sum (of weights) or logits.")] = "sum",
    seed: Annotated[int | None, typer.Option(help="The seed to take of a bank folder.")] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="A module to leave out, by name or class.")
    ] = None,
    json: Json = False,
) -> None:
    """Join modules into one classifier, without training, and write it to a file."""
    from intarsia.arguments import parts_of
    from intarsia.composition import compose as join
    from intarsia.describe import describe

    whole = join(parts_of(paths, operator, seed), operator)
    if without:
        whole.remove(*without)
    whole.save(out)
    found = describe(whole, out)
    if json:
        return show_json(found)
    show_facts(found)


@app.command(
    epilog=_examples(
        "evaluate demo/whole.safetensors --data digits --confusion",
        "evaluate demo/modules --data digits --split validation",
        "evaluate whole.safetensors --data mnist --rewarded 0,1 --json",
    )
)
def evaluate(
    path: Annotated[Path, typer.Argument(help="A module, a composition, or a bank folder.")],
    data: Annotated[
        str | None, typer.Option(help="A named set, .npz or .csv; by default what it learned from.")
    ] = None,
    split: Annotated[str, typer.Option(help="train, validation, test or all.")] = "test",
    rewarded: Annotated[
        str | None, typer.Option(help="Classes to count as rewarded, such as 0,1.")
    ] = None,
    confusion: Annotated[bool, typer.Option("--confusion", help="Show the matrix.")] = False,
    figure_: Annotated[
        Path | None, typer.Option("--figure", help="Draw the confusion matrix as .svg.")
    ] = None,
    set_: SetData = None,
    json: Json = False,
) -> None:
    """Measure rewarded accuracy, non-rewarded entropy and confusion."""
    from intarsia.arguments import assignments, data_for, models_of, read, split_for
    from intarsia.figures import confusion_figure
    from intarsia.files import write_whole
    from intarsia.measure import evaluate as measure

    if figure_ is not None and figure_.suffix.lower() != ".svg":
        raise FileError(f"--figure {figure_}: figures are SVG, give a name that ends in .svg")
    thing = read(path)
    models = models_of(thing)
    found, same = data_for(thing, data, assignments(set_))
    samples = split_for(thing, found, split)
    wanted = rewarded.split(",") if rewarded else None
    scores = {name: measure(model, samples, wanted) for name, model in models.items()}
    if figure_ is not None:
        panels = {name: score.confusion for name, score in scores.items()}
        catalogue = next(iter(scores.values())).catalogue
        write_whole(figure_, confusion_figure(panels, catalogue).encode())
    if not same:
        note(f"note: this is not the data that {path} was trained on, or it is split otherwise")
    if json:
        return show_json(
            {
                "path": str(path),
                "data": found.name,
                "split": split,
                "trained_on_this_data": same,
                "models": {name: score.to_json() for name, score in scores.items()},
            }
        )
    show(f"{path} on {found.name}, {split} split")
    show_scores(scores, confusion)


@app.command(epilog=_examples("inspect demo/modules/3.safetensors", "inspect demo/modules --json"))
def inspect(
    path: Annotated[Path, typer.Argument(help="A module, a composition, or a bank folder.")],
    json: Json = False,
) -> None:
    """Show what a file or folder holds: classes, architecture, density, origin, provenance."""
    from intarsia.arguments import read
    from intarsia.describe import describe

    found = describe(read(path), path)
    if json:
        return show_json(found)
    if found["kind"] == "bank":
        return show_bank(found)
    show_facts(found)
    for part in ("parts", "tensors"):
        if rows := found.get(part):
            columns = [c for c in rows[0] if c != "digest"]
            show(table(columns, [[plain_text(row[c]) for c in columns] for row in rows]))
