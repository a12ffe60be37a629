"""The fresh-head paper: what a new readout recovers of a merge, and when routing serves better."""

from intarsia.studies.fresh_head import readout_of_experts, readout_of_modules, routing_geometry

__all__ = ["readout_of_experts", "readout_of_modules", "routing_geometry"]
