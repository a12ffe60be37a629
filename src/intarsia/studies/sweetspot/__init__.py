"""The sweet-spot paper: depth, connectivity and similarity pruning of pattern networks."""

from intarsia.studies.sweetspot import sweetspot_study

__all__ = ["sweetspot_study"]
