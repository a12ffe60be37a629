"""lens modules: how sure class modules are, layer by layer."""

from pathlib import Path
from typing import Annotated

import typer

from intarsia.cli.common_options import (
    PATH_HELP,
    DataChoice,
    Device,
    Figure,
    Json,
    OwnNetwork,
    note_other_data,
    save_figure,
)
from intarsia.cli.console import show, show_json
from intarsia.cli.neighbours.lens_verbs import Alpha, read_alpha
from intarsia.cli.verbs import lens_verb as verb


@verb(
    "lens modules demo/modules",
    "lens modules demo/modules/3.safetensors --data digits --json",
    "lens modules whole.safetensors --rows 2000 --figure entropy.svg",
)
def modules(
    path: Annotated[Path, typer.Argument(metavar="RUN", help=f"{PATH_HELP}.")],
    source: DataChoice,
    own: OwnNetwork,
    rows: Annotated[
        int, typer.Option(min=2, help="Samples of each split to look at, at most.")
    ] = 10_000,
    ridge: Annotated[
        float | None,
        typer.Option(help="Of the fits, over the variance; by default validation chooses it."),
    ] = None,
    alpha: Alpha = "1",
    seed: Annotated[int, typer.Option(min=0, help="Of the strangers.")] = 0,
    device: Device = "auto",
    figure_: Figure = None,
    json: Json = False,
) -> None:
    """Fit a lens to every layer of modules and measure how sure each layer is."""
    from intarsia.artifacts import labelled, open_artifact
    from intarsia.lens import tuned
    from intarsia.training.job import device_of

    artifact = open_artifact(path, own.factory(path))
    loaded, same = source.load(artifact)
    data = labelled(artifact, loaded)
    found = tuned(
        artifact,
        data,
        read_alpha(alpha),
        ridge=ridge,
        rows=rows,
        device=device_of(device),
        seed=seed,
    )
    save_figure(found, figure_)
    note_other_data(path, same)
    if json:
        return show_json({"path": str(path), "data": loaded.name, **found.to_json()})
    show(f"{path} on {loaded.name}, test split", found)
