"""Expert banks: what experts of one base are trained from, and the banks that a store keeps.

Several studies measure the same experts. A bank of them is known by a digest of all that determines
it, and is trained by whichever cell asks first.
"""

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from intarsia.data import Data, class_means, partition, subsample, ward_tasks
from intarsia.encoders import Encoder
from intarsia.errors import DamagedError
from intarsia.files import digest_of, plain
from intarsia.measure.probe import readout_of
from intarsia.modules import Architecture, Bank, Classifier, Module
from intarsia.modules.bases.base_weights import fit_base, read_base
from intarsia.studies.base.experts import ALONE, JOINT, WARD, settings_of, task_data
from intarsia.studies.cells import Cell
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.shared.baselines import UNPRUNED, on
from intarsia.studies.runners.bank_training import CHECKPOINT_EVERY
from intarsia.training import train

PUBLIC = 10_000  # public images at most
VERSION = 1  # of how experts are trained: another one makes other banks


@dataclass(frozen=True)
class ExpertPlan:
    """The bank of a base's experts, or of the joint network, that a store keeps under this key."""

    key: str
    keeps_unpruned: bool = False


@dataclass(frozen=True, eq=False)
class ExpertSource:
    """What experts are trained from and on: a base, and data of the classes that they learn.

    `measured` are the same data where networks are measured, so that samples travel once.
    """

    base: Module | str  # one that is trained here, or a name
    data: Data
    measured: Data
    key: str  # of all of it


def expert_source(cell: Cell, context: StudyContext) -> ExpertSource | None:
    """The base and the data of a cell's experts; None where the base diverged."""
    settings = cell.settings
    whole = context.data(settings["data"], settings["preset"])
    if settings["named"]:
        other = context.data(settings["public"], settings["preset"])
        key = digest_of([whole.digest, settings["model"], other.digest])
        return context.remembered(
            f"experts of {key}",
            lambda: _named_source(settings["model"], whole, other, key, context),
        )
    pretrained = context.bank(cell.banks["base"], pruned=False)
    if not len(pretrained):
        return None
    key = digest_of([whole.digest, cell.banks["base"].key])
    return context.remembered(
        f"experts of {key}", lambda: _trained_source(pretrained[0], whole, key, context)
    )


def _named_source(
    base: str, whole: Data, other: Data, key: str, context: StudyContext
) -> ExpertSource:
    """All classes are learned; the public images are of other data."""
    data = task_data(whole, list(whole.catalogue), subsample(other.train, PUBLIC).x)
    return ExpertSource(base, data, _on_device(data, context.device), key)


def _trained_source(base: Module, whole: Data, key: str, context: StudyContext) -> ExpertSource:
    """Classes that the base was not pretrained on are learned; images of the others are public."""
    places = [whole.catalogue.index(name) for name in base.rewarded]
    public = subsample(whole.train.select(places), PUBLIC).x
    learned = [name for name in whole.catalogue if name not in base.rewarded]
    data = task_data(whole, learned, public)
    return ExpertSource(base, data, _on_device(data, context.device), key)


def _on_device(data: Data, device: torch.device) -> Data:
    train, validation, test = (
        on(part, device) for part in (data.train, data.validation, data.test)
    )
    return dataclasses.replace(data, train=train, validation=validation, test=test)


def expert_bank(settings: Mapping[str, Any], context: StudyContext, source: ExpertSource) -> Bank:
    """The experts of a cell, one per task in order, or its joint network: trained at most once.

    `bank.diverged` names those that training gave up.
    """
    plan = expert_plan(settings, source)
    make = partial(_trained, settings, source, context, plan)
    return context.bank_or_made(plan, make)


def expert_plan(settings: Mapping[str, Any], source: ExpertSource) -> ExpertPlan:
    """By what the bank is known: the base, the data, the tasks, the seed and the recipe."""
    tasks: Any = JOINT
    if settings["way"] != JOINT:
        tasks = [settings["partition"], settings["tasks"]]
    how = plain(_recipe(settings), "recipe")
    known = [VERSION, source.key, settings["preset"], settings["seed"], tasks, how]
    return ExpertPlan(digest_of(["experts", *known]))


def base_network(source: ExpertSource, device: torch.device) -> Classifier:
    """The frozen base as a network for the experts' classes; its head may still be zero."""
    data = source.data
    base, model = read_base(source.base)
    assert model is not None  # a base of ours, or by its name, has one
    architecture = Architecture.of(model, data.shape, data.classes)
    state = fit_base(base, architecture).state
    return (
        Classifier(
            architecture.network(state),
            catalogue=data.catalogue,
            shape=data.shape,
            scaling=data.scaling,
        )
        .eval()
        .to(device)
    )


def expert_tasks(
    settings: Mapping[str, Any], source: ExpertSource, context: StudyContext
) -> list[list[str]]:
    """The classes of each task, by the partition of a cell."""
    learned, count, how = source.data.catalogue, settings["tasks"], settings["partition"]
    if how == WARD:
        means = context.remembered(f"means of {source.key}", lambda: _means(source, context))
        sets = ward_tasks(learned, means, count)
    elif how == "random":
        sets = partition(learned, f"random({count})", settings["seed"])
    else:  # randperm(100): the seed of the draw
        sets = partition(learned, how.replace("(", f"({count}, "))
    return [list(classes) for classes in sets]


def _means(source: ExpertSource, context: StudyContext) -> torch.Tensor:
    """The mean features of every class, as the base reads its training samples."""
    base, data = source.base, source.measured
    if isinstance(base, str):  # the encoder of that name has the same body
        features = Encoder.of(base, data.shape)(data.train.x, context.device)
    else:
        network = base.to_module().to(context.device)
        features = readout_of(network, data.train.x).features(data.train.x)[0]
    return class_means(features, data.train.y, data.classes)


def _trained(
    settings: Mapping[str, Any], source: ExpertSource, context: StudyContext, plan: ExpertPlan
) -> Bank:
    """Where the run has a deadline, training stops there, and the next run goes on with it."""
    learned: Sequence[Sequence[str]] = [list(source.data.catalogue)]
    if settings["way"] != JOINT:
        learned = expert_tasks(settings, source, context)
    work = context.work_folder(plan)
    run = partial(
        train,
        source.data,
        base=source.base,
        preset=settings["preset"],
        partition=[list(task) for task in learned],
        seeds=[settings["seed"]],
        device=str(context.device),
        progress=False,
        out=work,
        stop=context.stop,
        checkpoint_every=CHECKPOINT_EVERY.get(context.device.type, 10.0),
        **_recipe(settings),
    )
    try:
        return run()
    except DamagedError:
        if work is None:
            raise
        shutil.rmtree(work, ignore_errors=True)
        return run()


def _recipe(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe of a way; experts that see their own classes alone train for as many steps."""
    way, amount, sparsity = settings["way"], settings["amount"], settings["sparsity"]
    pruning = {"sparsity": sparsity, "rounds": 1} if sparsity else dict(UNPRUNED)
    own = settings_of(way, amount)
    if way in ALONE:
        own["epochs"] = round((1 + amount) * settings["recipe"]["epochs"])
    return {**settings["recipe"], **own, **pruning}
