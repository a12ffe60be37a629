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


def readout_inputs(network: nn.Module, scaled: Tensor, batch: int = 512) -> Tensor:
    """What the last linear layer reads, for inputs as the network takes them; on their device."""
    layer = last_linear(network)
    caught: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, given: caught.append(given[0].detach()))
    network.eval()
    try:
        with torch.no_grad():
            for rows in scaled.split(batch):
                network(rows)
    finally:
        hook.remove()
    return torch.cat(caught)


def last_linear(network: nn.Module) -> nn.Linear:
    """The layer that makes the logits."""
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    if not layers:
        raise StudyError(f"{type(network).__name__} has no linear layer to make its logits")
    return layers[-1]


def fresh_head(
    network: nn.Module, data: Data, device: torch.device, seed: int, how: Mapping[str, Any]
) -> float:
    """Test accuracy of a new linear layer on what the network's last one reads, all else frozen.

    It is trained on all tasks' samples by AdamW; the epoch with the best validation accuracy
    counts. It says what part of a shortfall the readout alone explains, and is no way to ship.
    """
    splits = (data.train, data.validation, data.test)
    features = [
        readout_inputs(network, data.scaling(split.x).to(device)).float() for split in splits
    ]
    labels = [split.y.to(device) for split in splits]
    head = nn.Linear(features[0].shape[1], data.classes).to(device)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    optimiser = torch.optim.AdamW(
        head.parameters(), lr=how["learning_rate"], weight_decay=how["weight_decay"]
    )
    draw = torch.Generator().manual_seed(stream("fresh head", seed))
    best = (-1.0, 0.0)
    for _ in range(how["epochs"]):
        order = torch.randperm(len(labels[0]), generator=draw).to(device)
        for rows in order.split(how["batch"]):
            loss = nn.functional.cross_entropy(head(features[0][rows]), labels[0][rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            scores = [
                float((head(x).argmax(1) == y).double().mean())
                for x, y in zip(features[1:], labels[1:], strict=True)
            ]
        best = max(best, (scores[0], scores[1]), key=lambda pair: pair[0])
    return best[1]


def network_of(module: Module, device: torch.device) -> nn.Module:
    """The bare network of a module, which takes scaled inputs."""
    return module.architecture.network(module.state, module.factory).to(device)


def _shuffled(count: int, what: str, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(stream(what, seed))
    order: list[int] = torch.randperm(count, generator=generator).tolist()
    return order
