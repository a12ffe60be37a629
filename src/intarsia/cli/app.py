"""The command line: its verbs and their examples. Torch is imported by the verbs, not by help."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from intarsia import __version__
from intarsia.cli import compose_verbs as composing
from intarsia.cli import measure_verbs as measuring
from intarsia.cli import page_verbs as reporting
from intarsia.cli import page_verbs as studio
from intarsia.cli import train_verbs as training
from intarsia.cli.console import Verbs
from intarsia.cli.study import archive_verbs as study_archiving
from intarsia.cli.study import run_verbs as studying
from intarsia.cli.study import show_verbs as study_showing

app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with [bold]intarsia demo[/bold]: ten modules, joined, in under a minute.",
)

VERBS: dict[Callable[..., Any], tuple[str, ...]] = {
    training.demo: ("demo", "demo --out digits-demo"),
    training.data: ("data", "data mnist", "data flowers.csv --target species"),
    training.train: (
        "train recipes/digits.yaml modules/",
        "train modules/ --data mnist --sparsity 0.95 --seeds 0,1,2",
        "train pairs/ --partition 0+1,2+3 --set patience=3",
        "train flowers/ --data flowers.csv --target species",
        "train mine/ --data digits --model package.module:factory",
        "train recipes/mnist_deep.yaml --dry-run",
    ),
    composing.compose: (
        "compose demo/modules -o whole.safetensors",
        "compose modules/ -o merged.safetensors --operator 'ties(density=0.2)'",
        "compose modules/ --seed 0 --without 3 -o nine.safetensors --operator inlay",
        "compose recipes/merge_ties.yaml -o merged.safetensors",
    ),
    composing.operators: ("operators", "operators --json"),
    measuring.evaluate: (
        "evaluate demo/whole.safetensors --data digits --confusion",
        "evaluate demo/modules --data digits --split validation",
        "evaluate whole.safetensors --data mnist --rewarded 0,1 --abstain 0.9 --json",
    ),
    measuring.compatibility: (
        "compatibility demo/modules --samples digits",
        "compatibility 3.safetensors 8.safetensors --samples mnist",
        "compatibility modules/ --seed 0 --samples mnist --figure compatibility.svg",
    ),
    measuring.path: (
        "path demo/modules/3.safetensors demo/modules/8.safetensors --data digits",
        "path 3.safetensors 8.safetensors --points 41 --figure path.svg",
    ),
    composing.compact: (
        "compact demo/modules/3.safetensors -o small.safetensors",
        "compact inlay.safetensors -o small.safetensors",
    ),
    composing.export: (
        "export whole.safetensors -o whole.onnx",
        "export whole.safetensors -o whole.onnx --inputs uint8",
        "export demo/modules/3.safetensors -o tensors.safetensors",
    ),
    measuring.inspect: ("inspect demo/modules/3.safetensors", "inspect demo/modules --json"),
    reporting.report: (
        "report demo",
        "report modules/ -o modules.html --figures figures/ --formats svg,pdf",
        "report whole.safetensors --data mnist --rows 2000",
        "report docs/results/study_pairs.json -o pairs.html",
    ),
    studio.studio: (
        "studio demo",
        "studio modules/ --seed 0 --no-open",
        "studio 3.safetensors 8.safetensors --data mnist",
    ),
}

study = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Make a paper's tables and figures: run a study, see how far it is, show what it found.",
    epilog="Begin with [bold]intarsia study run single --scale small[/bold]: it takes seconds.",
)

STUDY_VERBS: dict[Callable[..., Any], tuple[str, ...]] = {
    studying.list_: ("study list", "study list pairs"),
    studying.run: (
        "study run single --scale small",
        "study run pairs --data mnist --models shallow,deep --seeds 5",
        "study run pairs --data mnist --dry-run",
        "study run complete --set operators=sum,logits --store shared/ --engine processes",
    ),
    studying.status: ("study status pairs --data mnist",),
    study_showing.table: (
        "study table pairs --data mnist",
        "study table pairs --data mnist -o pairs.tex",
        "study table pairs --from pairs.json --models shallow --format csv",
    ),
    study_showing.figure: (
        "study figure complete --data mnist -o complete.svg",
        "study figure complete --from complete.json -o figures/ --format pdf",
    ),
    study_archiving.archive: ("study archive pairs --data mnist -o pairs.json",),
    study_archiving.restore: ("study restore pairs.json theirs.json --store shared/",),
}


def main() -> None:
    """The entry point."""
    app(prog_name="intarsia")


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


for group, verbs in ((app, VERBS), (study, STUDY_VERBS)):
    for verb, lines in verbs.items():
        shown = "\n\n".join(["Examples:", *(f"[bold]intarsia {line}[/bold]" for line in lines)])
        group.command(verb.__name__.strip("_"), epilog=shown)(verb)
app.add_typer(study, name="study")
