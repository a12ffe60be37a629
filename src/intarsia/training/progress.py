"""Progress: a bar on a terminal, silence elsewhere."""

import sys

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from intarsia.training.engines.base import Scores
from intarsia.training.loop import RoundProgress, Watch
from intarsia.training.settings.recipe import Recipe

BESIDE = 72  # columns of a line that are not the bar's


class Progress:
    """Shows rounds, epochs and the mean scores of the modules in training."""

    def __init__(self, wanted: bool | None, recipe: Recipe, modules: int) -> None:
        """`wanted` None shows the bar on a terminal only."""
        shown = sys.stderr.isatty() if wanted is None else wanted
        console = Console(stderr=True, quiet=not shown)
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(max(6, min(40, console.width - BESIDE))),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not shown,
        )
        assert recipe.rounds is not None and recipe.pruning_epochs and recipe.epochs
        self.rounds, self.pruning_epochs = recipe.rounds, recipe.pruning_epochs
        self.each = recipe.rounds * recipe.pruning_epochs + recipe.epochs
        self.task = self.bar.add_task("training", total=self.each * modules)
        self.done: list[int] = []  # module epochs, by chunk

    def say(self, line: str) -> None:
        """A line above the bar."""
        self.bar.console.print(line, highlight=False)

    def skip(self, modules: int) -> None:
        """These modules were done before."""
        self.done.append(modules * self.each)
        self.bar.update(self.task, completed=sum(self.done))

    def watch(self, modules: int) -> Watch:
        """A callback for the modules of one chunk; chunks may be in training side by side."""
        place = len(self.done)
        self.done.append(0)

        def show(progress: RoundProgress, scores: Scores, epochs: int) -> None:
            alive = [k for k, gone in enumerate(progress.diverged) if not gone]
            accuracy = float(scores.accuracy[alive].mean()) if alive else float("nan")
            entropy = float(scores.entropy[alive].nanmean()) if alive else float("nan")
            epochs_done = progress.round * self.pruning_epochs + progress.epoch
            self.done[place] = modules * epochs_done
            line = (
                f"round {progress.round + 1}/{self.rounds + 1}, epoch {progress.epoch}/{epochs}, "
                f"accuracy {accuracy:.3f}, entropy {entropy:.3f}"
            )
            self.bar.update(self.task, completed=sum(self.done), description=line)

        return show
