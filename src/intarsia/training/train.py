"""Train: from data and a recipe to a bank of modules, in memory or in a folder."""

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from intarsia.data import Data, subsample
from intarsia.errors import RecipeError
from intarsia.files import digest_of
from intarsia.models import Model
from intarsia.models.custom.trial import input_dtype
from intarsia.modules import Bank, Finding, Module
from intarsia.modules.bases.base_weights import BaseSource
from intarsia.modules.health import warn, with_findings
from intarsia.pruning import PRUNINGS
from intarsia.training.chunk_training import Chunk, ChunkTrainer, Executor, Survey, memory_told
from intarsia.training.distributed.executors import ExecutorChoice, start_workers
from intarsia.training.engines.select import chunks
from intarsia.training.job import device_of
from intarsia.training.plan import TrainingPlan
from intarsia.training.progress import Progress
from intarsia.training.rounds import Outcome
from intarsia.training.run_folder import Checkpoint, RunFolder, other_threads, piece_label
from intarsia.training.settings.recipe import Recipe
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
    workers: int | None = None,
    address: str | None = None,
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
    may change: all, head, norms, layers by name, or products of low rank, as in "lora(8), head".

    `engine` names how the modules of a bank are trained. `processes` and `ray` spread the bank over
    workers, each with an engine of its own, as in `ray(stack)`: processes of this machine, by
    default one for each GPU or core, or actors of the Ray cluster at `address` ("auto" is the one
    that this machine belongs to; without an address one is started here). `workers` says how many.

    What neither recipe nor settings give is chosen for the data, by the preset `auto`.

    `stop` is asked after every epoch; where it says True, what is done is written to `out`, and a
    StoppedError ends the call, which can be taken up like any other.

    Modules that are dead, hardly above chance, or surer than they should be are a HealthWarning,
    one for all of them; `bank.health` says more.
    """
    where = ExecutorChoice.of(engine, workers, address)
    if stop is not None and where.kind is not None:
        raise RecipeError(
            f"stop is asked in this process, and engine {engine!r} trains in others: leave one out"
        )
    plan = TrainingPlan.of(data, recipe, model, settings, tasks, sample_weight, base)
    here = ChunkTrainer(plan, device_of(device), engine) if where.kind is None else None
    with RunFolder(out, plan, keep_rounds) as folder:
        bank = folder.finished()
        if bank is None:
            bar = Progress(progress, plan.recipe, len(plan.tasks))
            executors = start_workers(where, plan, device) if here is None else nullcontext(here)
            with memory_told(), executors as executor:
                bank = _train_bank(plan, executor, folder, bar, checkpoint_every, stop)
    warn(bank.health, "what was trained" if out is None else str(out))
    return bank


def _train_bank(
    plan: TrainingPlan,
    executor: Executor,
    folder: RunFolder,
    progress: Progress,
    checkpoint_every: float,
    stop: Callable[[], bool] | None,
) -> Bank:
    """Have the executor train what the folder does not have yet, and join it all."""
    survey = executor.survey
    threads = folder.threads(survey.threads)
    notes = other_threads(threads)
    for note in notes:
        warnings.warn(note, stacklevel=3)
    with progress.bar:
        if plan.choices is not None:
            progress.say(plan.choices)
        many = f", {executor.size} workers" if executor.size > 1 else ""
        progress.say(f"engine: {survey.choice}, on {survey.device}{many}")
        done = folder.finished_chunks(progress.say)
        labels, missing = list(done), []
        for tasks in done.values():
            progress.skip(len(tasks))
        for label, tasks in _cut(plan, folder, executor, done).items():
            folder.chunk_done(label, progress.say)  # which drops rounds of it that are damaged
            key = digest_of([plan.key, survey.report["device"], survey.choice.engine, label])
            place = folder.checkpoint_file(label)
            checkpoint = Checkpoint(place, checkpoint_every, key, progress.say, stop)
            keep = _keeper(plan, survey, folder, progress, label, tasks)
            watch = progress.watch(len(tasks))
            missing.append(Chunk(label, tasks, folder.wanted, checkpoint, watch, keep))
            labels.append(label)
        executor.train(missing)
    return folder.finish(labels, {**survey.report, "threads": threads}, notes)


def _cut(
    plan: TrainingPlan, folder: RunFolder, executor: Executor, done: Mapping[str, Sequence[Task]]
) -> dict[str, list[Task]]:
    """The bank in pieces without what is done, by labels that follow from their modules.

    All of it is cut, so that a run with as many workers finds the checkpoints of an earlier one.
    """
    whole_seeds = PRUNINGS.entry(plan.recipe.pruning or "magnitude").whole_group
    names = {task.name for tasks in done.values() for task in tasks}
    pieces = folder.pieces(
        lambda tasks: chunks(tasks, executor.survey.limit, whole_seeds, executor.size)
    )
    left = [[task for task in piece if task.name not in names] for piece in pieces]
    return {piece_label(piece): piece for piece in left if piece}


def _keeper(
    plan: TrainingPlan,
    survey: Survey,
    folder: RunFolder,
    progress: Progress,
    label: str,
    tasks: Sequence[Task],
) -> Callable[[int, list[Outcome]], None]:
    """Leaves the modules of a chunk in the folder, under its label, as they are after a round."""

    def keep(round_: int, outcomes: list[Outcome]) -> None:
        modules = {
            task.name: _module(plan, survey.report, task, outcome)
            for task, outcome in zip(tasks, outcomes, strict=True)
        }
        diverged = [name for name, module in modules.items() if module is None]
        folder.add(label, round_, [m for m in modules.values() if m is not None], diverged)
        for name in diverged if round_ == folder.last else ():
            progress.say(f"module {name!r} diverged and is kept out: lower its learning rate")

    return keep


def _module(
    plan: TrainingPlan, report: dict[str, Any], task: Task, outcome: Outcome
) -> Module | None:
    """What came of a task, with what is wrong with it; None if it diverged."""
    if outcome.state is None:
        return None
    assert plan.recipe.temperature is not None
    state, mask, low_rank = plan.parts(outcome.state, outcome.mask)
    module = Module(
        name=task.name,
        state=state,
        mask=mask,
        rewarded=task.rewarded,
        catalogue=plan.data.catalogue,
        architecture=plan.architecture,
        scaling=plan.data.scaling,
        temperature=float(plan.recipe.temperature),
        origin=plan.origins[task.seed][0],
        provenance={
            **plan.provenance(task),
            "scores": {"validation": outcome.scores},
            **report,
        },
        factory=plan.factory,
        encoder=plan.data.encoder,
        base=plan.base,
        low_rank=low_rank,
    )
    findings = module.health.findings or _learning(plan.data, task, outcome, module)
    provenance = with_findings(module.provenance, findings)
    return dataclasses.replace(module, provenance=provenance) if findings else module


def _learning(data: Data, task: Task, outcome: Outcome, module: Module) -> tuple[Finding, ...]:
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
            x = data.scaling(some.x.cpu()).to(input_dtype(network, data.shape))
            return network(x), some.y.cpu()

    return learning_findings(task, outcome.scores, validation.y, answers, module.temperature)
