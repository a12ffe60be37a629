"""sweetspot studio, report: pattern networks on a page."""

from pathlib import Path
from typing import Annotated

import typer

from intarsia.cli import completion
from intarsia.cli.common_options import Json, ServerChoice, name_argument
from intarsia.cli.console import busy, note, say, show, show_json
from intarsia.cli.verbs import sweetspot_verb as verb

HELP = "totem, skull, skull-sgd, ...; a saved network or bank, or a genome in JSON"


@verb(
    "sweetspot studio",
    "sweetspot studio skull skull-sgd",
    "sweetspot studio fits/skull/bank.safetensors --no-open",
)
def studio(
    server: ServerChoice,
    sources: Annotated[
        list[str] | None,
        name_argument(
            "[NAME|FILE]...",
            completion.PATTERNS,
            f"{HELP}. All that are on this machine can be chosen on the page.",
        ),
    ] = None,
    size: Annotated[int, typer.Option(help="Pixels along an edge of the picture.")] = 128,
    json: Json = False,
) -> None:
    """Open a page on which a slider moves one weight, and the picture follows."""
    say("reading pattern networks ...")  # at once: the imports below take a while
    server.limits()

    from intarsia.studio.patterns import open_patterns

    session, notes = open_patterns(sources or (), size)
    for remark in notes:
        note(remark)
    server.serve(session, "pattern networks", json)


@verb(
    "sweetspot report",
    "sweetspot report skull -o skull.html --weights 200",
    "sweetspot report fits/skull/bank.safetensors --sweeps 8 --figures figures/",
)
def report(
    source: Annotated[str, name_argument("[NAME|FILE]", completion.PATTERNS, f"{HELP}.")] = "totem",
    out: Annotated[Path, typer.Option("-o", "--out", help="The page.")] = Path("patterns.html"),
    weights: Annotated[
        int, typer.Option(min=1, help="Of each network that are tried for its inflation.")
    ] = 48,
    sweeps: Annotated[int, typer.Option(min=0, help="Weights that are moved, at most.")] = 6,
    figures: Annotated[
        Path | None, typer.Option(help="A folder for the figures, each as a file of its own.")
    ] = None,
    json: Json = False,
) -> None:
    """Make one page of a network or a bank: pictures, scores, all maps, and sweeps of weights."""
    from intarsia.errors import FileError
    from intarsia.reports import pattern_report

    if out.is_dir():
        raise FileError(f"{out} is a folder: name the page, such as -o {out / 'patterns.html'}")
    with busy("scoring what the page shows"):
        made = pattern_report(source, weights=weights, sweeps=sweeps)
    written = made.save(out, figures)
    size = out.stat().st_size
    if json:
        paths = [str(path) for path in written[1:]]
        return show_json({"path": str(out), "bytes": size, "figures": paths})
    show(f"{out}: {size // 1000:,} kB, opens in any browser and needs no network")
