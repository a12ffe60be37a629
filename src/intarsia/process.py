"""Process: variables of its environment for a while, and a bar on its terminal."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

BYTES = "bytes"


class Advance(Protocol):
    """Says that so much more is done, and what is written before the bar from now on."""

    def __call__(self, count: int, label: str | None = None) -> None: ...


@contextmanager
def progress_bar(
    label: str, total: int | None, shown: bool | None, *, unit: str = "", done: int = 0
) -> Iterator[Advance]:
    """A bar on stderr while the block runs, or nothing; `shown` None shows it on a terminal only.

    Of `unit` BYTES numbers are written as sizes; `done` is what was done before.
    """
    if not (sys.stderr.isatty() if shown is None else shown):
        yield lambda count, label=None: None
        return
    from rich import progress
    from rich.console import Console

    columns = [progress.TextColumn("{task.description}"), progress.BarColumn()]
    if unit == BYTES:
        columns.append(progress.DownloadColumn())
    else:
        columns += [progress.MofNCompleteColumn(), *([progress.TextColumn(unit)] if unit else [])]
    columns.append(progress.TimeRemainingColumn())
    with progress.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total, completed=done)
        yield lambda count, label=None: bar.update(task, advance=count, description=label)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables for the block and for processes that are started in it, then as they were."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
