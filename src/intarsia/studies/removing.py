"""Removing: what three ways to forget a class leave of it and of the others, class by class."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from intarsia.composition import Composition, compose
from intarsia.data import Data, Split
from intarsia.data.dataset import spaced
from intarsia.measure import nonrewarded_entropy, rewarded_accuracy
from intarsia.modules import Bank, Module, logits_of
from intarsia.studies.baselines import Ascent, best_ascent

Way = dict[str, list[Any]]  # figures by name, one a class; None where its module diverged

FEW = 1000  # test samples on which networks of equal weights are asked


def removal(parts: Bank, how: str, test: Split, device: torch.device) -> Way:
    """Each module in turn taken out of the whole.

    `exact`: the whole without it answers, bit for bit, as one that was composed without it, and as
    before when it is added again. `untouched`: the logits of every other module are the same bits
    as before; None where the operator leaves no modules to ask.
    """
    whole = compose(parts, how).to(device)
    before = logits_of(whole, test.x)
    few = test.x[spaced(len(test), FEW).to(test.x.device)]
    own = _own_logits(whole, few)
    rows: list[Mapping[str, Any] | None] = []
    for index, name in enumerate(whole.catalogue):
        if name not in parts.names:
            rows.append(None)
            continue
        less = whole - name
        anew = compose([part for part in parts if part.name != name], how).to(device)
        exact = _same(less, anew, few) and _same(less + parts[name], whole, few)
        left = _own_logits(less, few)
        untouched = all(torch.equal(own[n], z) for n, z in left.items()) if left else None
        found = compare(before, logits_of(less, test.x), test.y, index, whole.temperature)
        rows.append({**found, "exact": exact, "untouched": untouched})
    return _listed(rows)


def retraining(joint: Module, again: Iterable[Module], test: Split, device: torch.device) -> Way:
    """The joint network against those that were trained without one class each."""
    before = logits_of(joint.to_module().to(device), test.x)
    rows: list[Mapping[str, Any] | None] = [None] * len(joint.catalogue)
    for module in again:
        (gone,) = set(joint.catalogue) - set(module.rewarded)
        index = joint.catalogue.index(gone)
        after = logits_of(module.to_module().to(device), test.x)
        rows[index] = compare(before, after, test.y, index, joint.temperature)
    return _listed(rows)


def ascent(
    joint: Module,
    data: Data,
    test: Split,
    device: torch.device,
    *,
    rates: Sequence[float],
    limit: int,
    seed: int,
) -> Way:
    """The joint network against itself after gradient ascent on one class each, see `best_ascent`.

    `reached` tells whether validation samples of the class are answered with it by chance at most.
    """
    before = logits_of(joint.to_module().to(device), test.x)
    ascents = [Ascent("Adam", rate) for rate in rates]
    rows = []
    for index in range(data.classes):
        forgot = best_ascent(joint, data, index, ascents, seed, device, limit)
        after = logits_of(forgot.network, test.x)
        found = compare(before, after, test.y, index, joint.temperature)
        chosen = {"rate": forgot.ascent.rate, "steps": forgot.steps}
        rows.append({**found, **chosen, "reached": forgot.removed <= 1 / data.classes})
    return _listed(rows)


def compare(
    before: Tensor, after: Tensor, labels: Tensor, index: int, temperature: float
) -> dict[str, float]:
    """One removal by the logits before and after it; answers are among the whole catalogue.

    `kept` is the share of the remaining classes' samples that are answered as before, right or not.
    """
    rest = [i for i in range(after.shape[1]) if i != index]
    removed, remaining = (
        [rewarded_accuracy(logits, labels, classes) for logits in (before, after)]
        for classes in ([index], rest)
    )
    unchanged = (before.argmax(1) == after.argmax(1))[labels != index]
    return {
        "removed_before": removed[0],
        "removed": removed[1],
        "entropy": nonrewarded_entropy(after, labels, rest, temperature),
        "remaining_before": remaining[0],
        "remaining": remaining[1],
        "change": remaining[1] - remaining[0],
        "kept": float(unchanged.double().mean()),
    }


def _own_logits(whole: Composition, x: Tensor) -> dict[str, Tensor]:
    """Logits of each part by itself, as it lies in the whole; none where weights are joined."""
    if whole.joined is not None:
        return {}
    laid = zip(whole.parts, whole.laid, strict=True)
    return {part.name: logits_of(network, x) for part, network in laid}


def _same(one: Composition, other: Composition, x: Tensor) -> bool:
    return torch.equal(logits_of(one, x), logits_of(other, x))


def _listed(rows: Sequence[Mapping[str, Any] | None]) -> Way:
    """One list a figure instead of one mapping a class."""
    keys = next((list(row) for row in rows if row is not None), [])
    return {key: [None if row is None else row[key] for row in rows] for key in keys}
