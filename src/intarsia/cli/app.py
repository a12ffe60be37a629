"""The command line: all verbs, those of other packages too, and the entry point.

Torch is imported by the verbs when they run, not by help. A package adds a verb by a module that
registers it with `intarsia.cli.verbs.verb`, named by an entry point of the group `intarsia.verbs`.
"""

import signal
from importlib import import_module
from importlib.metadata import entry_points
from threading import current_thread, main_thread
from typing import Annotated

import typer

from intarsia import __version__
from intarsia.cli.console import say
from intarsia.cli.verbs import app

# In the order of the help.
VERB_FILES = (
    "train_verbs",
    "compose_verbs",
    "measure_verbs",
    "page_verbs",
    "study.run_verbs",
    "study.show_verbs",
    "study.archive_verbs",
    "neighbours.sweetspot_verbs",
    "neighbours.pattern_verbs",
    "neighbours.pattern_page_verbs",
    "neighbours.flow_verbs",
    "neighbours.graph_verbs",
    "neighbours.lens_verbs",
    "neighbours.lens_module_verbs",
)
PLUGINS = "intarsia.verbs"

__all__ = ["app", "main"]


def main() -> None:
    """The entry point."""
    for entry in entry_points(group=PLUGINS):
        try:
            entry.load()
        except Exception as error:  # their code; all other verbs work without it
            say(f"warning: the verb {entry.name!r} of {entry.value} cannot be loaded: {error}")
    try:
        app(prog_name="intarsia")
    finally:  # Ctrl-C once more, while threads and files are closed, ends it without a traceback
        if current_thread() is main_thread():
            signal.signal(signal.SIGINT, signal.SIG_DFL)


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


for file in VERB_FILES:
    import_module(f"intarsia.cli.{file}")
