"""Experts: classes set apart for a base, the rest cut into tasks, and ways to train for them."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from intarsia.data import Data, Split
from intarsia.errors import StudyError, nearest
from intarsia.files import stream
from intarsia.modules import BASES
from intarsia.specs import name_of
from intarsia.studies.cells import Cell
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.shared.baselines import UNPRUNED
from intarsia.studies.options import check_count, check_flag, check_within, readable
from intarsia.studies.plans import Plan
from intarsia.studies.study import seeds_of

# How experts are trained, and what they see besides their own classes.
WAYS: dict[str, dict[str, Any]] = {
    "cross-entropy": {"objective": "xe"},
    "label smoothing": {"objective": "smoothing(0.1)"},
    "ME, public images": {"objective": "me", "visibility": "own", "negatives": "public"},
    "ME, all tasks": {"objective": "me"},
}
JOINT = "joint"  # one network, fine-tuned on all tasks together
ALONE = ("cross-entropy", "label smoothing")  # ways by which an expert sees its own classes alone
# settings of cells that came later
NEUTRAL = {"named": False, "public": "", "selection": 0, "operators": [], "statistics": 0}
WARD = "ward"
PARTITIONS = ("random", WARD, "randperm(100)")  # the last of any seed, as the paper draws tasks


def base_classes(catalogue: Sequence[str], fraction: float, seed: int) -> tuple[str, ...]:
    """The classes that the base is pretrained on, drawn by the seed, in the catalogue's order."""
    generator = torch.Generator().manual_seed(stream("base classes", seed))
    order = torch.randperm(len(catalogue), generator=generator).tolist()
    chosen = set(order[: round(fraction * len(catalogue))])
    return tuple(name for place, name in enumerate(catalogue) if place in chosen)


def task_data(data: Data, learned: Sequence[str], public: Tensor | None) -> Data:
    """The part of the data that has these classes, as a catalogue of its own, and a public set."""
    places = [data.catalogue.index(name) for name in learned]
    renumbered = torch.full((data.classes,), -1)
    renumbered[places] = torch.arange(len(places))

    def part(split: Split) -> Split:
        own = split.select(places)
        return Split(own.x, renumbered[own.y])

    parts = (part(data.train), part(data.validation), part(data.test))
    made = Data.build(
        data.name, learned, *parts, data.scaling.kind, public=public, scale_on="train"
    )
    return replace(made, scaling=data.scaling)


def check_ways(ways: Sequence[Any]) -> list[str]:
    """The ways to train experts, all of them known."""
    for way in ways:
        if way not in WAYS:
            raise StudyError(f"option 'ways' has {way!r}: {nearest(str(way), WAYS)}")
    return list(ways)


def check_partitions(partitions: Sequence[Any]) -> list[str]:
    for partition in partitions:
        drawn = isinstance(partition, str) and re.fullmatch(r"randperm\(\d+\)", partition)
        if partition not in PARTITIONS and not drawn:
            raise StudyError(
                f"option 'partitions' has {partition!r}: {nearest(str(partition), PARTITIONS)}"
            )
    return list(partitions)


def check_named(options: Mapping[str, Any]) -> bool:
    """Whether bases come by name; then they are known, and public images come from elsewhere."""
    if not options["named"]:
        return False
    for model in options["models"]:
        if name_of(model) not in BASES:
            raise StudyError(
                f"option 'models' has {model!r}, and named is true: {nearest(model, BASES)}"
            )
    if not options["public"]:
        raise StudyError("option 'public' is empty: name the data whose images are public")
    return True


@dataclass(frozen=True)
class ExpertGroup:
    """What cells of one data set, model and seed share: settings of experts, and the base's plan.

    A base by name has no plan.
    """

    settings: Mapping[str, Any]
    banks: Mapping[str, Plan]

    def cell(
        self, study: str, way: str, partition: str = "-", sparsity: float = 0.0, **more: Any
    ) -> Cell:
        """The cell of a way to train experts, or of the joint network, which has no partition."""
        own = {"way": way, "partition": partition, "sparsity": float(sparsity)}
        return Cell(study, {**self.settings, **own, **more}, self.banks)


def expert_groups(options: Mapping[str, Any], context: StudyContext) -> Iterator[ExpertGroup]:
    """One per data set, model and seed; equal options of several studies mean the same experts."""
    check_flag(options, "keep_banks")
    check_within("base_fraction", [options["base_fraction"]], 0, 1)
    check_within("amount", [options["amount"]], 0, math.inf)
    shared: dict[str, Any] = {"tasks": check_count(options, "tasks", least=2)}
    shared |= {key: options[key] for key in ("preset", "base_fraction", "amount", "public")}
    shared |= {"recipe": dict(options["recipe"]), "named": check_named(options)}
    if shared["named"]:
        pairs = list(product(options["data"], options["models"]))
        for name in [*options["data"], options["public"]]:
            context.data(name, options["preset"])  # cells want it, wherever they are measured
    else:
        pairs = list(readable(options, context))
    for (data, model), seed in product(pairs, seeds_of(options["seeds"])):
        settings = {"data": data, "model": model, "seed": seed, **shared}
        plan = None if shared["named"] else base_plan(options, context, data, model, seed)
        yield ExpertGroup(settings, {} if plan is None else {"base": plan})


def base_plan(
    options: Mapping[str, Any], context: StudyContext, data: str, model: str, seed: int
) -> Plan:
    """The base: one network by cross-entropy on its own part of the classes."""
    preset = options["preset"]
    sets = [base_classes(context.data(data, preset).catalogue, options["base_fraction"], seed)]
    how = {**options["recipe"], **UNPRUNED, "epochs": check_count(options, "pretraining")}
    return context.plan(data, model, sets, seed, preset=preset, objective="xe", pruned=False, **how)


def settings_of(way: str, amount: float) -> dict[str, Any]:
    """The recipe's settings of a way, with `amount` public images for each of one's own."""
    if way == JOINT:
        return {"objective": "xe"}
    settings = dict(WAYS[way])
    if "negatives" in settings:
        settings["negatives"] = f"{settings['negatives']}({amount:g})"
    return settings
