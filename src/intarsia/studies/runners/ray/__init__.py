"""Cluster: a study on the machines of a Ray cluster, which need no folder in common.

The run's own process owns the store. Banks and cells are tasks: a worker gets what it needs,
answers with the files of banks or with a cell's result, and keeps nothing. What a lost worker had
in hand is done again. Workers on other machines need intarsia and the module of a study of your
own; the data come from the run.
"""

from intarsia.studies.runners.ray.driver import run_cluster

__all__ = ["run_cluster"]
