"""The study of graphs at several scales: the paper's networks, controls, an honest protocol."""

from intarsia.studies.graphs import graph_study  # noqa: F401  # registers it
