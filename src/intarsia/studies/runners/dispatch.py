"""Engines: who does the work of a study. The results are the same bytes."""

from intarsia.errors import StudyError, nearest
from intarsia.studies.cells import Measured
from intarsia.studies.runners.local import RunRequest, run

ENGINES = {
    "local": "this process",
    "processes": "several processes of this machine",
    "ray": "the machines of a Ray cluster, which need no folder in common",
}


def run_with(engine: str, asked: RunRequest, address: str | None = None) -> list[Measured]:
    """Measure what is missing of a study, with so many workers (by default one per GPU or core).

    `address` is that of a Ray cluster, or "auto" for the one that this machine belongs to; without
    it Ray is started here. Runs with different engines may share a store at the same time.
    After the minutes that it has a run stops with a StoppedError; see `run`.
    """
    _check(engine, asked.workers, address)
    if asked.minutes is not None and engine == "ray":
        raise StudyError("a time limit is for the engines 'local' and 'processes', not for 'ray'")
    if engine == "processes":
        from intarsia.studies.runners.processes import run_processes

        return run_processes(asked)
    if engine == "ray":
        try:
            from intarsia.studies.runners.ray import run_cluster
        except ImportError as error:
            raise StudyError(
                f"engine 'ray' needs ray, which is not here ({error}): "
                "pip install 'intarsia[cluster]'"
            ) from error
        return run_cluster(asked, address)
    return run(
        asked.study,
        asked.options,
        asked.store,
        device=asked.device,
        say=asked.say,
        minutes=asked.minutes,
    )


def _check(engine: str, workers: int | None, address: str | None) -> None:
    if engine not in ENGINES:
        raise StudyError(f"there is no engine {engine!r}: {nearest(engine, ENGINES)}")
    if workers is not None and workers < 1:
        raise StudyError(f"{workers} workers are too few: give 1 or more")
    if workers is not None and engine == "local":
        raise StudyError("engine 'local' is one process: for workers choose 'processes' or 'ray'")
    if address is not None and engine != "ray":
        raise StudyError(f"an address is for engine 'ray', not for {engine!r}")
