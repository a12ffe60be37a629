"""Training: a bank of modules, round by round."""

from intarsia.training.presets import PRESETS
from intarsia.training.recipe import Recipe
from intarsia.training.tasks import Task
from intarsia.training.train import train

__all__ = ["PRESETS", "Recipe", "Task", "train"]
