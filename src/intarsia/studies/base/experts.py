"""Experts: classes set apart for a base, the rest cut into tasks, one expert for each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intarsia.data import Data, Split
from intarsia.errors import StudyError, nearest
from intarsia.files import stream
from intarsia.measure.probe import HeadTraining, readout_inputs, train_head
from intarsia.measure.probe.head_training import CachedFeatures
from intarsia.modules import Module

# How experts are trained, and what they see besides their own classes.
WAYS: dict[str, dict[str, Any]] = {
    "cross-entropy": {"objective": "xe"},
    "label smoothing": {"objective": "smoothing(0.1)"},
    "ME, public images": {"objective": "me", "visibility": "own", "negatives": "public"},
    "ME, all tasks": {"objective": "me"},
}
JOINT = "joint"  # one network, fine-tuned on all tasks together
PARTITIONS = ("random", "ward")


def base_classes(catalogue: Sequence[str], fraction: float, seed: int) -> tuple[str, ...]:
    """The classes that the base is pretrained on, drawn by the seed, in the catalogue's order."""
    order = _shuffled(len(catalogue), "base classes", seed)
    chosen = set(order[: round(fraction * len(catalogue))])
    return tuple(name for place, name in enumerate(catalogue) if place in chosen)


def random_tasks(classes: Sequence[str], tasks: int, seed: int) -> list[list[str]]:
    """Classes in shuffled blocks, as equal in size as they can be, each in its given order."""
    order = _shuffled(len(classes), "tasks", seed)
    blocks = [sorted(order[start::tasks]) for start in range(tasks)]
    return [[classes[place] for place in block] for block in blocks]


def ward_tasks(classes: Sequence[str], means: Tensor, tasks: int) -> list[list[str]]:
    """Classes whose mean features are near each other together, by Ward's linkage."""
    from scipy.cluster.hierarchy import fcluster, linkage  # slow to import

    groups = fcluster(linkage(means.double().numpy(), "ward"), tasks, criterion="maxclust")
    found = [[classes[int(i)] for i in np.flatnonzero(groups == g)] for g in np.unique(groups)]
    if len(found) != tasks:
        raise StudyError(f"Ward's linkage makes {len(found)} groups of these classes, not {tasks}")
    return found


def class_means(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The mean features of every class, C x D on the CPU."""
    sums = torch.zeros(classes, features.shape[1], dtype=torch.float64)
    sums.index_add_(0, labels.cpu(), features.double().cpu())
    return sums / torch.bincount(labels.cpu(), minlength=classes).clamp_min(1)[:, None]


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
        if partition not in PARTITIONS:
            raise StudyError(
                f"option 'partitions' has {partition!r}: {nearest(str(partition), PARTITIONS)}"
            )
    return list(partitions)


def settings_of(way: str, amount: float) -> dict[str, Any]:
    """The recipe's settings of a way, with `amount` public images for each of one's own."""
    if way == JOINT:
        return {"objective": "xe"}
    settings = dict(WAYS[way])
    if "negatives" in settings:
        settings["negatives"] = f"{settings['negatives']}({amount:g})"
    return settings


def fresh_accuracy(
    network: nn.Module, data: Data, device: torch.device, seed: int, how: Mapping[str, Any]
) -> float:
    """Test accuracy of a fresh head on a network that takes scaled inputs; it starts at zeros.

    `intarsia.fresh_head` is this probe for anybody's networks, with its contract.
    """
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    features = {
        name: readout_inputs(network, data.scaling(split.x).to(device))
        for name, split in splits.items()
    }
    labels = {name: split.y.to(device) for name, split in splits.items()}
    width, training = features["train"].shape[1], HeadTraining(**how, initial="zeros")
    return train_head(CachedFeatures(features), width, data.classes, labels, training, seed).test


def network_of(module: Module, device: torch.device) -> nn.Module:
    """The bare network of a module, which takes scaled inputs."""
    return module.architecture.network(module.state, module.factory).to(device)


def _shuffled(count: int, what: str, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(stream(what, seed))
    order: list[int] = torch.randperm(count, generator=generator).tolist()
    return order
