"""Train: from data and a recipe to a bank of modules, in memory or in a folder."""

import dataclasses
import platform
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intarsia.data import Data, subsample
from intarsia.data.negatives import make_pools, pools_of, read_negatives, weigh_pools
from intarsia.errors import WiringError
from intarsia.files import digest_of
from intarsia.models import Model, Wiring, initialise, silence, wiring_of
from intarsia.models.wiring import carries_wiring
from intarsia.modules import Architecture, Bank, Finding, Module
from intarsia.modules.health import warn, with_findings
from intarsia.pruning import PRUNINGS, needs_units, needs_whole_group
from intarsia.training.chance import learning_findings
from intarsia.training.engines.select import choose, chunks, make_engine, threads_of
from intarsia.training.job import Job
from intarsia.training.plan import Settled, check_samples, device_of, read_as, settle
from intarsia.training.progress import Progress
from intarsia.training.recipe import Recipe
from intarsia.training.rounds import Outcome, train_rounds
from intarsia.training.run_folder import Checkpoint, Folder, other_threads
from intarsia.training.tasks import Task

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
    classes, seed, step size and objective. `sample_weight` has one number for each training
    sample, which its loss is multiplied by.

    What neither recipe nor settings give is chosen for the data, by the preset `auto`.

    Modules that are dead, hardly above chance, or surer than they should be are a HealthWarning,
    one for all of them; `bank.health` says more.
    """
    settled = settle(data, recipe, model, settings, tasks, sample_weight)
    run = _Run(settled, device_of(device), engine, progress)
    with Folder(out, run.key, settled.recipe, keep_rounds) as folder:
        bank = folder.finished(settled.factory)
        if bank is None:
            bank = run.train(folder, checkpoint_every)
    warn(bank.health, "what was trained" if out is None else str(out))
    return bank


class _Run:
    """One call of train: what all its chunks share."""

    def __init__(
        self, settled: Settled, device: torch.device, engine: str, progress: bool | None
    ) -> None:
        self.settled = settled
        self.recipe, self.data, self.tasks = settled.recipe, settled.data, settled.tasks
        self.factory = settled.factory
        self.model: Model = self.factory or self.recipe.model
        self.outputs = self.tasks[0].objective.outputs
        self.architecture = Architecture.of(self.model, self.data.shape, self.outputs)
        self.wiring = self._wiring(initialise(self.model, self.data.shape, self.outputs, 0))
        self.origins = {s: self._origin(s) for s in dict.fromkeys(t.seed for t in self.tasks)}
        self.job = self._job(device)
        self.choice = choose(self.job, engine, self.recipe.patience is not None)
        self.progress = Progress(progress, self.recipe, len(self.tasks))
        self.key = self._key()

    def train(self, folder: Folder, checkpoint_every: float) -> Bank:
        merged = needs_whole_group(PRUNINGS.spec(self.recipe.pruning or "magnitude"))
        pieces = chunks(self.tasks, self.job, self.choice, merged)
        # By their modules: where a bank is cut depends on the device and on its free memory.
        labelled = {digest_of([t.name for t in piece])[:16]: piece for piece in pieces}
        threads = folder.threads(threads_of(self.choice, self.job))
        notes = other_threads(threads)
        for note in notes:
            warnings.warn(note, stacklevel=3)
        with self.progress, torch.random.fork_rng(), same_bytes():
            for line in self.settled.said:
                self.progress.say(line)
            self.progress.say(f"engine: {self.choice}, on {self.job.device}")
            for label, piece in labelled.items():
                if folder.chunk_done(label):
                    self.progress.skip(len(piece))
                    continue
                key = digest_of([self.key, self.job.device.type, self.choice.engine, label])
                place = folder.checkpoint_file(label)
                self._train_chunk(piece, label, folder, Checkpoint(place, checkpoint_every, key))
        order = [task.name for task in self.tasks]
        report = {**self._report(), "threads": threads}
        return folder.finish(list(labelled), order, report, self.factory, notes)

    def _train_chunk(
        self, tasks: list[Task], label: str, folder: Folder, checkpoint: Checkpoint
    ) -> None:
        def keep(round_: int, outcomes: list[Outcome]) -> None:
            if not folder.wants(round_):
                return
            result = [self._module(t, o) for t, o in zip(tasks, outcomes, strict=True)]
            diverged = [t.name for t, m in zip(tasks, result, strict=True) if m is None]
            folder.add(label, round_, [m for m in result if m is not None], diverged)
            if round_ == folder.last:
                self.progress.warn_diverged(diverged)

        engine = make_engine(self.choice, dataclasses.replace(self.job, tasks=tasks))
        try:
            origins = [self.origins[t.seed][1] for t in tasks]
            train_rounds(engine, origins, self.recipe, checkpoint, self.progress.watch(tasks), keep)
        finally:
            engine.close()
        checkpoint.clear()

    def _module(self, task: Task, outcome: Outcome) -> Module | None:
        if outcome.state is None:
            return None
        module = Module(
            name=task.name,
            state=outcome.state,
            mask=outcome.mask,
            rewarded=task.rewarded,
            catalogue=self.data.catalogue,
            architecture=self.architecture,
            scaling=self.data.scaling,
            temperature=float(self.job.temperature),
            origin=self.origins[task.seed][0],
            provenance={
                "recipe": self.settled.provenance(task),
                "seed": task.seed,
                "learning_rate": task.learning_rate,
                "objective": digest_of("objective", _tables(task)),
                "data": self._data(),
                "scores": {"validation": outcome.scores},
                **self._report(),
            },
            factory=self.factory,
        )
        findings = module.health.findings or self._learning(task, outcome, module)
        provenance = with_findings(module.provenance, findings)
        return dataclasses.replace(module, provenance=provenance) if findings else module

    def _learning(self, task: Task, outcome: Outcome, module: Module) -> tuple[Finding, ...]:
        """What its validation says against a module that is alive."""
        if outcome.scores is None:
            return ()

        def answers() -> tuple[Tensor, Tensor]:
            some = subsample(self.data.validation, ASKED)
            network = module.architecture.network(module.state, module.factory)
            with torch.no_grad():
                return network(self.data.scaling(some.x).to(self.job.x.dtype)), some.y

        labels, temperature = self.data.validation.y, float(self.job.temperature)
        return learning_findings(task, outcome.scores, labels, answers, temperature)

    def _key(self) -> str:
        """What tells this run from others, wherever it is trained."""
        tasks = [[t.name, t.rewarded, t.seed, t.learning_rate] for t in self.tasks]
        tables = {f"{t.name}/{n}": part for t in self.tasks for n, part in _tables(t).items()}
        origins = [digest for digest, _ in self.origins.values()]
        if self.settled.sample_weight is not None:
            tables["sample_weight"] = self.settled.sample_weight
        parts = [self.recipe.identity(), self.data.digest, tasks, origins]
        probe = self.architecture.probe
        if probe is not None:  # three digits, that no machine rounds otherwise
            parts.append([f"{value:.3g}" for value in probe])
        return digest_of(parts, tables)

    def _data(self) -> dict[str, Any]:
        """What tells the data apart, and what they had in place of missing values."""
        about = {"name": self.data.name, "digest": self.data.digest}
        return about if self.data.fill is None else {**about, "fill": list(self.data.fill)}

    def _report(self) -> dict[str, Any]:
        return {
            "engine": self.choice.engine,
            "device": self.job.device.type,
            "versions": {
                "python": platform.python_version(),
                "torch": str(torch.__version__),
                "numpy": str(np.__version__),
            },
        }

    def _origin(self, seed: int) -> tuple[str, dict[str, Tensor]]:
        network = initialise(self.model, self.data.shape, self.outputs, seed)
        if self.recipe.silent and self.wiring is not None:
            silence(network, self.wiring)
        state = {n: t.detach().clone() for n, t in network.state_dict().items()}
        return digest_of("origin", state), state

    def _job(self, device: torch.device) -> Job:
        network = initialise(self.model, self.data.shape, self.outputs, 0).to(device)
        train, validation = self.data.train, self.data.validation
        assert self.recipe.temperature is not None and self.recipe.batch is not None
        reads = read_as(network, self.data)
        x = self.data.scaling(train.x).to(device, reads)
        y = train.y.to(device)
        weight = None
        if self.settled.sample_weight is not None:
            weight = self.settled.sample_weight.to(device)
        sources = read_negatives(self.recipe.negatives)
        pools = pools_of(t.hidden for t in self.tasks) if sources else ()
        if sources:
            made, labels = make_pools(sources, x, y, pools, self.data.classes)
            if weight is not None:
                weight = torch.cat([weight, weigh_pools(weight, y, pools, len(made))])
            x, y = torch.cat([x, made]), torch.cat([y, labels])
        job = Job(
            network=network,
            wiring=self.wiring,
            tasks=self.tasks,
            x=x,
            y=y,
            x_validation=self.data.scaling(validation.x).to(device, reads),
            y_validation=validation.y.to(device),
            batch=min(self.recipe.batch, len(train)),
            temperature=self.recipe.temperature,
            batches=self.recipe.batches or "all",
            pools=pools,
            sample_weight=weight,
        )
        check_samples(self.data, job)
        return job

    def _wiring(self, network: torch.nn.Module) -> Wiring | None:
        """The network's wiring; None where it has none, which only pruning by units minds."""
        try:
            return wiring_of(network, self.data.shape)
        except WiringError as error:
            if carries_wiring(network):
                raise
            pruning = PRUNINGS.spec(self.recipe.pruning or "magnitude")
            if needs_units(pruning):
                raise WiringError(
                    f"pruning by {pruning.name} gives out units and needs the network's wiring: "
                    f"{error}"
                ) from error
            return None


def _tables(task: Task) -> dict[str, Tensor]:
    return {part: getattr(task.objective, part) for part in ("table", "weight", "bonus")}


def same_bytes() -> Any:
    """cuDNN may else choose among algorithms that add in different orders."""
    allow_tf32 = torch.backends.cudnn.allow_tf32
    return torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=allow_tf32
    )
