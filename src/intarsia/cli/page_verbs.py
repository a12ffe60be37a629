"""report, studio: what was trained or measured, on a page."""

from pathlib import Path
from typing import Annotated

import typer

from intarsia.cli import completion
from intarsia.cli.common_options import (
    DataChoice,
    Json,
    OwnNetwork,
    Seed,
    ServerChoice,
    check_keeps,
    name_option,
)
from intarsia.cli.console import busy, note, say, show, show_json
from intarsia.cli.study.study_options import ModuleOption, import_studies
from intarsia.cli.verbs import verb


@verb(
    "report demo",
    "report modules/ -o modules.html --figures figures/ --formats svg,pdf",
    "report whole.safetensors --data mnist --rows 2000 --probe",
    "report docs/results/study_pairs.json -o pairs.html",
)
def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="A bank folder, module files, a composition, a demo's folder, a study's store or "
            "archive, or pattern networks."
        ),
    ],
    source: DataChoice,
    own: OwnNetwork,
    out: Annotated[Path, typer.Option("-o", "--out", help="The page.")] = Path("report.html"),
    rows: Annotated[
        int | None, typer.Option(min=1, help="Test samples to measure on at most.")
    ] = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Also train a fresh head on the joined network.")
    ] = False,
    study: Annotated[
        str | None, name_option(completion.STUDIES, "The study to show of a store; by default all.")
    ] = None,
    module: ModuleOption = None,
    figures: Annotated[
        Path | None, typer.Option(help="A folder for the figures, each as a file of its own.")
    ] = None,
    formats: Annotated[str, typer.Option(help="Of these files: svg, pdf, png.")] = "svg",
    json: Json = False,
) -> None:
    """Make one page that shows what was trained, what it knows and how it fits."""
    from intarsia.errors import FileError
    from intarsia.plots import check_format
    from intarsia.reports import report as make

    kinds = list(dict.fromkeys(kind.strip() for kind in formats.split(",")))
    for kind in kinds:
        check_format(f"figure.{kind}")  # before anything is measured
    if out.is_dir():
        raise FileError(f"{out} is a folder: name the page, such as -o {out / 'report.html'}")
    if out.suffix.lower() in (".pdf", ".svg", ".png", ".md"):
        raise FileError(
            f"{out}: a report is a page of HTML: name it {out.with_suffix('.html')}; --figures "
            "names a folder for figures of --formats svg, pdf or png"
        )
    check_keeps(out, *paths)
    import_studies(module)
    with busy("measuring what the page shows"):
        made = make(
            paths,
            source.data,
            rows=rows,
            study=study,
            data_options=source.options(),
            model=own.factory(*paths),
            probe=probe,
        )
    written = made.save(out, figures, kinds)
    if json:
        return show_json(
            {
                "path": str(out),
                "bytes": out.stat().st_size,
                "figures": [str(path) for path in written[1:]],
            }
        )
    show(f"{out}: {out.stat().st_size // 1000:,} kB, opens in any browser and needs no network")
    if figures is not None:
        say(f"{len(written) - 1} figures in {figures}")


@verb(
    "studio demo",
    "studio modules/ --seed 0 --no-open",
    "studio 3.safetensors 8.safetensors --data mnist",
    "studio modules/ --host 0.0.0.0 --no-open --limit visitor_modules=8",
)
def studio(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATHS...",
            help="A bank folder, module files, a composition, or a demo's folder.",
        ),
    ],
    source: DataChoice,
    own: OwnNetwork,
    server: ServerChoice,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Test samples to measure on; by default all.")
    ] = None,
    seed: Seed = None,
    json: Json = False,
) -> None:
    """Open a page to switch modules on and off, draw samples, and see what they answer."""
    title = ", ".join(path.resolve().name for path in paths)
    say(f"reading {title} ...")  # at once: the imports below take a while

    from intarsia.studies.wording import several
    from intarsia.studio.opening import open_paths

    server.limits()  # which may be wrong, before anything is read
    opened = open_paths(paths, source.data, source.options(), seed, own.factory(*paths))
    for remark in opened.notes:
        note(remark)
    count = min(rows or len(opened.data.test), len(opened.data.test))
    samples = f"{count:,} test samples of {opened.data.name}"
    say(f"running {several(len(opened.modules), 'module')} on {samples} ...")
    session = opened.session(rows)

    server.serve(session, title, json)
