"""Training: a bank of modules, round by round."""

from intarsia.training.settings.optimisers import OPTIMISERS, Optimiser
from intarsia.training.settings.presets import PRESETS
from intarsia.training.settings.recipe import Recipe
from intarsia.training.settings.schedules import SCHEDULES
from intarsia.training.tasks import Task
from intarsia.training.train import train

__all__ = ["OPTIMISERS", "PRESETS", "SCHEDULES", "Optimiser", "Recipe", "Task", "train"]
