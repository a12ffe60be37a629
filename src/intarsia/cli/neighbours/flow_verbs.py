"""flow cumulants, propagate, iterate, fit: cumulants of samples, through layers and in the flow."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from intarsia.cli import completion
from intarsia.cli.common_options import (
    PATH_HELP,
    DataChoice,
    Figure,
    Json,
    OwnNetwork,
    SplitName,
    name_argument,
    name_option,
    note_other_data,
    save_figure,
)
from intarsia.cli.console import note, show, show_json, table
from intarsia.cli.verbs import flow_verb as verb
from intarsia.errors import RecipeError

if TYPE_CHECKING:
    from intarsia.flow import PairBank

Form = Annotated[str, name_option(completion.FORMS, "symmetric or free.")]
Width = Annotated[int, typer.Option(min=1, help="Hidden pairs; a free network has two units each.")]
FitSteps = Annotated[int, typer.Option(min=1, help="Of training.")]
UNIT_HELP = "linear, quadratic, tanh, relu, ...; with settings, as in 'quadratic(0.3)'."
LAW_HELP = "exponential, uniform, laplace, bernoulli, gaussian"
NETWORK: dict[str, Any] = {  # options of iterate that are nothing without --unit
    "--form": "symmetric", "--width": 1, "--train-law": "exponential", "--fit-steps": 1500
}  # fmt: skip


@verb(
    "flow cumulants exponential",
    "flow cumulants samples.csv --unbiased",
    "flow cumulants digits --order 2 --json",
)
def cumulants(
    source: Annotated[
        str,
        name_argument(
            "LAW|FILE|DATA",
            completion.LAWS,
            f"{LAW_HELP}; a .csv or .npz of numbers; or a data set.",
        ),
    ],
    order: Annotated[int, typer.Option(min=1, max=4, help="The highest order.")] = 4,
    diagonal: Annotated[
        bool | None,
        typer.Option(
            "--diagonal/--whole", help="Of each dimension by itself; whole tensors up to 8."
        ),
    ] = None,
    unbiased: Annotated[bool, typer.Option("--unbiased", help="k-statistics.")] = False,
    samples: Annotated[int, typer.Option(min=1, help="Drawn of a law.")] = 2**16,
    seed: Annotated[int, typer.Option(help="Of a law's draws.")] = 0,
    json: Json = False,
) -> None:
    """Estimate the cumulants of samples with their standard errors."""
    from intarsia.flow import cumulants as of_samples
    from intarsia.flow.sample_sources import read_source

    rows = read_source(source, samples=samples, seed=seed)
    found = of_samples(rows, order, diagonal=diagonal, unbiased=unbiased)
    if json:
        return show_json({"source": source, **found.to_json()})
    count = f"{found.dimensions} dimension{'s' if found.dimensions > 1 else ''}"
    show(f"{source}: {found.count:,} samples of {count}", found)


@verb(
    "flow propagate demo/modules/3.safetensors --data digits",
    "flow propagate whole.safetensors --split validation --figure closure.svg",
)
def propagate(
    path: Annotated[Path, typer.Argument(help=f"{PATH_HELP}; not a bank of several.")],
    source: DataChoice,
    own: OwnNetwork,
    split: SplitName = "test",
    closure: Annotated[
        str, name_option(completion.CLOSURES, "gaussian: predicted beside sampled; or sample.")
    ] = "gaussian",
    figure_: Figure = None,
    json: Json = False,
) -> None:
    """Carry mean and covariance of data through a network, layer by layer."""
    from intarsia.artifacts import open_network, split_for
    from intarsia.flow import propagate as carry

    network = open_network(path, own.factory(path))
    loaded, same = source.load(network)
    found = carry(network, split_for(network, loaded, split), closure=closure)  # type: ignore[arg-type]
    save_figure(found, figure_)
    note_other_data(path, same)
    if json:
        return show_json({"path": str(path), "data": loaded.name, **found.to_json()})
    show(f"{path} on {loaded.name}, {split} split, {found.samples:,} samples", found)


@verb(
    "flow iterate exponential --steps 6 --samples 1048576",
    "flow iterate exponential --unit quadratic --resample --figure leaves.svg",
    "flow iterate laplace --form free --unit tanh --width 16 --train-law exponential",
)
def iterate(
    start: Annotated[
        str,
        name_argument(
            "[LAW|FILE]",
            completion.LAWS,
            f"What the flow begins with: {LAW_HELP}; or a .csv or .npz of one number each.",
        ),
    ] = "exponential",
    unit: Annotated[
        str | None,
        name_option(completion.UNITS, f"Of a network that is trained first: {UNIT_HELP}"),
    ] = None,
    form: Form = NETWORK["--form"],
    width: Width = NETWORK["--width"],
    train_law: Annotated[
        str, name_option(completion.LAWS, f"Of that training: {LAW_HELP}.")
    ] = NETWORK["--train-law"],
    fit_steps: FitSteps = NETWORK["--fit-steps"],
    steps: Annotated[int, typer.Option(min=1, help="Of the flow.")] = 6,
    samples: Annotated[int, typer.Option(min=1, help="Drawn of the law.")] = 2**18,
    resample: Annotated[
        bool, typer.Option("--resample", help="Keep their number: pairs with replacement.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the network and of draws.")] = 0,
    figure_: Figure = None,
    json: Json = False,
) -> None:
    """Let the flow run, by the exact step or by a network, beside what its law says."""
    from intarsia.flow import LAWS, fit
    from intarsia.flow import iterate as run
    from intarsia.flow.renormalisation import EXACT
    from intarsia.flow.sample_sources import read_source
    from intarsia.specs import name_of

    own = {"--form": form, "--width": width, "--train-law": train_law, "--fit-steps": fit_steps}
    odd = [key for key, value in own.items() if value != NETWORK[key]]
    if odd and unit is None:
        raise RecipeError(f"{odd[0]} is of a network that is trained first: give --unit as well")
    begin: Any = start if name_of(start) in LAWS else read_source(start)
    network: Any = EXACT
    if unit is not None:
        network = fit(form, unit, width, law=train_law, seeds=[seed], steps=fit_steps)[0]
    found = run(network, begin, steps, samples=samples, resample=resample, seed=seed)
    save_figure(found, figure_)
    if len(found.steps) <= steps:
        note(f"the samples left the range of numbers after step {len(found.steps) - 1}")
    if json:
        arm = None if unit is None else {"form": form, "unit": unit, "width": width}
        return show_json({"start": start, "network": arm, **found.to_json()})
    show(f"{start}, by {'the exact step' if unit is None else f'{form} {unit}, {width}'}", found)


@verb(
    "flow fit --unit linear --seeds 3",
    "flow fit --form free --unit tanh --width 16 --law uniform",
    "flow fit --unit quadratic --loss cumulants --json",
)
def fit(
    form: Form = "symmetric",
    unit: Annotated[str, name_option(completion.UNITS, UNIT_HELP)] = "linear",
    width: Width = 1,
    law: Annotated[str, name_option(completion.LAWS, f"To train on: {LAW_HELP}.")] = "exponential",
    loss: Annotated[
        str, name_option(completion.PAIR_LOSSES, "mse, or cumulants: of a batch alone.")
    ] = "mse",
    seeds: Annotated[str, typer.Option(help="How many, or which: 3, or 0,1,2.")] = "1",
    steps: FitSteps = 1500,
    batch: Annotated[int, typer.Option(min=2, help="Pairs for each step.")] = 512,
    learning_rate: Annotated[float, typer.Option(help="Falls by a cosine to 0.")] = 0.02,
    pairs: Annotated[int, typer.Option(min=1, help="To test on, of each law.")] = 2**14,
    json: Json = False,
) -> None:
    """Train pair networks to be a step of the flow, and test them on every law."""
    from intarsia.cli.arguments import read_seeds
    from intarsia.flow import fit as fit_bank

    bank = fit_bank(
        form, unit, width, law=law, loss=loss, seeds=read_seeds(seeds), steps=steps,
        batch=batch, learning_rate=learning_rate,
    )  # fmt: skip
    rows = _tested(bank, pairs)
    if json:
        about = {"form": form, "unit": str(bank.unit), **bank.report}
        return show_json({**about, "networks": rows})
    laws = list(rows[0]["mse"])
    shown = [
        (str(row["seed"]), *(_number(row["mse"][name]) for name in laws), _number(row["distance"]))
        for row in rows
    ]
    title = f"{form} {bank.unit}, {width}, trained on {law}: mean squared error"
    show(table(("seed", *laws, "off the manifold"), shown, title))


def _tested(bank: "PairBank", pairs: int) -> list[dict[str, Any]]:
    """By seed, the error on every law, and the distance to the solution where it is known."""
    from intarsia.files import plain
    from intarsia.flow import LAWS, draw, on_manifold
    from intarsia.flow.pair_networks import HALF

    errors = {}
    for law in LAWS:
        x = draw(law, pairs, 2, seed=1)
        errors[law] = (bank(x) - HALF * x.sum(1)).square().mean(1).tolist()
    rows = []
    for place, seed in enumerate(bank.seeds):
        solvable = bank.unit.polynomial is not None
        distance = on_manifold(bank[place]).distance if solvable else None
        mse = {law: values[place] for law, values in errors.items()}
        rows.append(plain({"seed": seed, "mse": mse, "distance": distance}, "network"))
    return rows


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"
