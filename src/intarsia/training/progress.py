"""Progress: a bar on a terminal, silence elsewhere."""

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from intarsia.training.engines.base import Scores
from intarsia.training.loop import RoundProgress, Watch
from intarsia.training.recipe import Recipe
from intarsia.training.tasks import Task


class Progress:
    """Shows rounds, epochs and the mean scores of the modules in training."""

    def __init__(self, wanted: bool | None, recipe: Recipe, modules: int) -> None:
        """`wanted` None shows the bar on a terminal only."""
        self.shown = sys.stderr.isatty() if wanted is None else wanted
        self.recipe = recipe
        console = Console(stderr=True, quiet=not self.shown)
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("module epochs"),
            TimeRemainingColumn(),
            console=console,
            disable=not self.shown,
        )
        assert recipe.rounds is not None and recipe.pruning_epochs and recipe.epochs
        self.each = recipe.rounds * recipe.pruning_epochs + recipe.epochs
        self.task = self.bar.add_task("training", total=self.each * modules)
        self.done = 0

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bar.stop()

    def say(self, line: str) -> None:
        """A line above the bar."""
        self.bar.console.print(line, highlight=False)

    def warn_diverged(self, names: Sequence[str]) -> None:
        for name in names:
            self.say(f"module {name!r} diverged and is kept out: lower its learning rate")

    def skip(self, modules: int) -> None:
        """These modules were done before."""
        self.done += modules * self.each
        self.bar.update(self.task, completed=self.done)

    def watch(self, tasks: Sequence[Task]) -> Watch:
        """A callback for the modules of one chunk."""
        before = self.done
        assert self.recipe.pruning_epochs is not None and self.recipe.rounds is not None
        pruning_epochs, rounds = self.recipe.pruning_epochs, self.recipe.rounds

        def show(progress: RoundProgress, scores: Scores, epochs: int) -> None:
            alive = [k for k, gone in enumerate(progress.diverged) if not gone]
            accuracy = float(scores.accuracy[alive].mean()) if alive else float("nan")
            entropy = float(scores.entropy[alive].nanmean()) if alive else float("nan")
            self.done = before + len(tasks) * (progress.round * pruning_epochs + progress.epoch)
            line = (
                f"round {progress.round + 1}/{rounds + 1}, epoch {progress.epoch}/{epochs}, "
                f"accuracy {accuracy:.4f}, entropy {entropy:.3f}"
            )
            self.bar.update(self.task, completed=self.done, description=line)

        return show
