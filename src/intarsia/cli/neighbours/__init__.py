"""The verbs of the neighbours: sweetspot, flow, graphs and lens."""
