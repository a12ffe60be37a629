"""Training: a bank of modules, round by round."""

from intarsia.training.optimisers import OPTIMISERS, Optimiser
from intarsia.training.presets import PRESETS
from intarsia.training.recipe import Recipe
from intarsia.training.schedules import SCHEDULES
from intarsia.training.tasks import Task
from intarsia.training.train import train

__all__ = ["OPTIMISERS", "PRESETS", "SCHEDULES", "Optimiser", "Recipe", "Task", "train"]
