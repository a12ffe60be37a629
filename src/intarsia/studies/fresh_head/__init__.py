"""Fresh heads: what part of a merge's shortfall a new readout recovers."""

from intarsia.studies.fresh_head import readout_of_modules

__all__ = ["readout_of_modules"]
