"""Train: from data and a recipe to a bank of modules, in memory or in a folder."""

import dataclasses
import platform
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intarsia.data import Data, subsample
from intarsia.errors import TrainingError
from intarsia.files import digest_of
from intarsia.limits import out_of_memory
from intarsia.models import Model
from intarsia.modules import Bank, Finding, Module
from intarsia.modules.base_weights import BaseSource
from intarsia.modules.health import warn, with_findings
from intarsia.pruning import PRUNINGS
from intarsia.training.engines.base import Engine
from intarsia.training.engines.select import ENGINES, EngineChoice, choose, chunks, threads_of
from intarsia.training.job import Job, device_of
from intarsia.training.plan import TrainingPlan
from intarsia.training.progress import Progress
from intarsia.training.recipe import Recipe
from intarsia.training.rounds import Outcome, train_rounds
from intarsia.training.run_folder import Checkpoint, RunFolder, other_threads, piece_label
from intarsia.training.tasks import Task
from intarsia.training.validation_health import learning_findings

ASKED = 1024  # validation samples that a module which seems to have learned nothing is asked about


def train(
    data: Any = None,
    recipe: Recipe | None = None,
    *,
    model: Model | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    engine: str = "auto",
    tasks: Callable[[Data], Sequence[Task]] | None = None,
    keep_rounds: bool = False,
    progress: bool | None = None,
    checkpoint_every: float = 10.0,
    sample_weight: Any = None,
    base: BaseSource | None = None,
    stop: Callable[[], bool] | None = None,
    **settings: Any,
) -> Bank:
    """Train one module per set of classes and seed.

    `data` is a Data, or anything `load_data` takes; left out, the recipe names it. `settings`
    override the recipe's fields, as in `train("mnist", sparsity=0.95)`. `model` may also be a
    factory f(shape, outputs) of a network of your own.

    With `out` the modules are written to a folder, and the same call takes up a run that was
    stopped: with the same number of threads, to the same bytes; with another, it warns.
    `keep_rounds` also returns the modules of the pruning rounds (`bank.rounds`; those of the first
    are unpruned). `tasks` replaces the recipe's partition by tasks of your own, each with its
    classes, seed, learning rate and objective. `sample_weight` has one number for each training
    sample, which its loss is multiplied by.

    With a `base`, pretrained weights, modules are changes of it: every seed starts there, pruning
    takes the smallest changes and leaves the base's values, and files hold what changed. It is a
    network, a state dict, a module, the path of its file or of a bank, or a name in BASES; a
    network needs no `model` besides, and may be the `model` of a state dict. Where it has other
    outputs than the data has classes, the layer that makes them starts at 0. `trainable` says what
    may change: all, head, norms, or layers by name.

    What neither recipe nor settings give is chosen for the data, by the preset `auto`.

    `stop` is asked after every epoch; where it says True, what is done is written to `out`, and a
    StoppedError ends the call, which can be taken up like any other.

    Modules that are dead, hardly above chance, or surer than they should be are a HealthWarning,
    one for all of them; `bank.health` says more.
    """
    plan = TrainingPlan.of(data, recipe, model, settings, tasks, sample_weight, base)
    job = Job.of(plan, device_of(device))
    choice = choose(job, engine, plan.recipe.patience is not None)
    with RunFolder(out, plan, keep_rounds) as folder:
        bank = folder.finished()
        if bank is None:
            bar = Progress(progress, plan.recipe, len(plan.tasks))
            with _memory_told():
                bank = _train_bank(plan, job, choice, folder, bar, checkpoint_every, stop)
    warn(bank.health, "what was trained" if out is None else str(out))
    return bank


@contextmanager
def _memory_told() -> Iterator[None]:
    """Memory that runs out is an error of ours, which says what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise TrainingError(
            "memory ran out: train fewer classes or seeds at a time, or a smaller batch; "
            "a run with a folder goes on where it was"
        ) from error


def _train_bank(
    plan: TrainingPlan,
    job: Job,
    choice: EngineChoice,
    folder: RunFolder,
    progress: Progress,
    checkpoint_every: float,
    stop: Callable[[], bool] | None,
) -> Bank:
    """Train chunk after chunk what the folder does not have yet, and join it all."""
    whole_seeds = PRUNINGS.entry(plan.recipe.pruning or "magnitude").whole_group
    pieces = folder.pieces(lambda tasks: chunks(tasks, job, choice, whole_seeds))
    labelled = {piece_label(piece): piece for piece in pieces}
    threads = folder.threads(threads_of(choice, job))
    notes = other_threads(threads)
    for note in notes:
        warnings.warn(note, stacklevel=3)
    report = _report(choice, job)
    with progress.bar, torch.random.fork_rng(), same_bytes(tuned=job.precision == "bf16"):
        if plan.choices is not None:
            progress.say(plan.choices)
        progress.say(f"engine: {choice}, on {job.device}")
        for label, piece in labelled.items():
            if folder.chunk_done(label, progress.say):
                progress.skip(len(piece))
                continue
            key = digest_of([plan.key, job.device.type, choice.engine, label])
            place = folder.checkpoint_file(label)
            checkpoint = Checkpoint(place, checkpoint_every, key, progress.say, stop)
            engine = ENGINES[choice.engine](dataclasses.replace(job, tasks=piece))
            _train_chunk(plan, engine, report, checkpoint, progress, folder, label)
    return folder.finish(list(labelled), {**report, "threads": threads}, notes)


def _train_chunk(
    plan: TrainingPlan,
    engine: Engine,
    report: dict[str, Any],
    checkpoint: Checkpoint,
    progress: Progress,
    folder: RunFolder,
    label: str,
) -> None:
    """Train the modules of an engine, and leave them in the folder under this label."""
    tasks = engine.job.tasks

    def keep(round_: int, outcomes: list[Outcome]) -> None:
        if not folder.wants(round_):
            return
        modules = {
            task.name: _module(plan, engine.job, report, task, outcome)
            for task, outcome in zip(tasks, outcomes, strict=True)
        }
        diverged = [name for name, module in modules.items() if module is None]
        folder.add(label, round_, [m for m in modules.values() if m is not None], diverged)
        for name in diverged if round_ == folder.last else ():
            progress.say(f"module {name!r} diverged and is kept out: lower its learning rate")

    try:
        origins = [plan.origins[t.seed][1] for t in tasks]
        train_rounds(engine, origins, plan.recipe, checkpoint, progress.watch(len(tasks)), keep)
    finally:
        engine.close()
    checkpoint.clear()


def _module(
    plan: TrainingPlan, job: Job, report: dict[str, Any], task: Task, outcome: Outcome
) -> Module | None:
    """What came of a task, with what is wrong with it; None if it diverged."""
    if outcome.state is None:
        return None
    module = Module(
        name=task.name,
        state=outcome.state,
        mask=outcome.mask,
        rewarded=task.rewarded,
        catalogue=plan.data.catalogue,
        architecture=plan.architecture,
        scaling=plan.data.scaling,
        temperature=float(job.temperature),
        origin=plan.origins[task.seed][0],
        provenance={
            **plan.provenance(task),
            "scores": {"validation": outcome.scores},
            **report,
        },
        factory=plan.factory,
        encoder=plan.data.encoder,
        base=plan.base,
    )
    findings = module.health.findings or _learning(plan.data, job, task, outcome, module)
    provenance = with_findings(module.provenance, findings)
    return dataclasses.replace(module, provenance=provenance) if findings else module


def _learning(
    data: Data, job: Job, task: Task, outcome: Outcome, module: Module
) -> tuple[Finding, ...]:
    """What its validation says against a module that is alive."""
    if outcome.scores is None:
        return ()
    validation = data.validation
    if task.unseen:
        validation = validation.select([c for c in range(data.classes) if c not in task.unseen])

    def answers() -> tuple[Tensor, Tensor]:
        some = subsample(validation, ASKED)
        network = module.architecture.network(module.state, module.factory)
        with torch.no_grad():
            return network(data.scaling(some.x).to(job.x_validation.dtype)), some.y

    labels, temperature = validation.y, float(job.temperature)
    return learning_findings(task, outcome.scores, labels, answers, temperature)


def _report(choice: EngineChoice, job: Job) -> dict[str, Any]:
    """What the modules were trained by."""
    return {
        "engine": choice.engine,
        "device": job.device.type,
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": str(np.__version__),
        },
    }


def same_bytes(tuned: bool = False) -> Any:
    """cuDNN may else choose among algorithms that add in different orders.

    `tuned` lets it try which of those that repeat themselves is fastest: a process repeats itself,
    another one may find another one fastest.
    """
    allow_tf32 = torch.backends.cudnn.allow_tf32
    return torch.backends.cudnn.flags(
        enabled=True, benchmark=tuned, deterministic=True, allow_tf32=allow_tf32
    )
