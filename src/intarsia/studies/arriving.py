"""Arriving: what a whole and a network know after each of the classes that come one by one."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from intarsia.composition import compose
from intarsia.data import Data, Split
from intarsia.measure import accuracy_per_class, rewarded_accuracy
from intarsia.modules import Bank, logits_of
from intarsia.studies.baselines import fine_tune, on, untrained
from intarsia.studies.entries import known
from intarsia.training import Recipe
from intarsia.training.tasks import stream

Way = dict[str, Any]  # figures by name, one number for each arrival


def added(
    bank: Bank, how: str, order: Sequence[str], test: Split, device: torch.device
) -> Way | None:
    """One module after another joins; None where one of them diverged in training.

    `exact`: the last whole answers, bit for bit, as one that was composed at once.
    """
    if not set(order) <= set(bank.names):
        return None
    whole = compose([bank[order[0]]], how).to(device)
    found = [logits_of(whole, test.x)]
    for name in order[1:]:
        found.append(logits_of(whole.add(bank[name]), test.x))
    at_once = logits_of(compose([bank[name] for name in order], how).to(device), test.x)
    exact = torch.equal(found[-1], at_once)
    return {**arrivals(found, test.y, _places(whole.catalogue, order)), "exact": exact}


def fine_tuned(
    recipe: Recipe,
    data: Data,
    order: Sequence[str],
    test: Split,
    device: torch.device,
    *,
    rates: Sequence[float],
    passes: int,
    batch: int,
) -> Way:
    """One network, from the origin on, trained on the samples of each new class alone.

    Of the step sizes the one is taken that gives the best accuracy over the classes seen so far on
    validation samples, in the mean over the arrivals; `rate` is this one.
    """
    places = _places(data.catalogue, order)
    validation = on(data.validation, device)
    tried = []
    for rate in rates:
        found, scores = [], []
        network = untrained(recipe, data).to(device)
        for n, place in enumerate(places, start=1):
            fresh = on(data.train.select([place]), device)
            seed = stream("fine-tuning", *recipe.seeds, *order[:n])
            fine_tune(network, fresh, passes=passes, rate=rate, batch=batch, seed=seed)
            logits = logits_of(network, validation.x)
            scores.append(rewarded_accuracy(logits, validation.y, places[:n]))
            found.append(logits_of(network, test.x))
        tried.append((sum(scores) / len(scores), rate, found))
    _, rate, found = max(tried, key=lambda one: one[0])
    return {**arrivals(found, test.y, places), "rate": rate}


def trained_jointly(
    bank: Bank, order: Sequence[str], test: Split, device: torch.device
) -> Way | None:
    """A network for every arrival, trained on all that came so far; None where one diverged."""
    modules = {frozenset(module.rewarded): module for module in bank}
    wanted = [frozenset(order[:n]) for n in range(1, len(order) + 1)]
    if not set(wanted) <= set(modules):
        return None
    networks = (modules[seen].to_module().to(device) for seen in wanted)
    found = [logits_of(network, test.x) for network in networks]
    return arrivals(found, test.y, _places(bank[0].catalogue, order))


def arrivals(logits: Sequence[Tensor], labels: Tensor, places: Sequence[int]) -> Way:
    """Accuracies after each arrival, from the logits then; `places` are classes as they arrive.

    `seen`: over the classes so far, answers among the whole catalogue; `among` them: answers among
    the classes so far; `earlier` and `new`: over all but the last of them, over the last alone.
    `forgetting`: by how much each class but the last is recognised less often at the end than when
    it arrived.
    """
    steps = [(z, list(places[:n])) for n, z in enumerate(logits, start=1)]
    new = [rewarded_accuracy(z, labels, seen[-1:]) for z, seen in steps]
    end = accuracy_per_class(logits[-1], labels)[list(places)]
    return {
        "seen": [rewarded_accuracy(z, labels, seen) for z, seen in steps],
        "among": [_among(z, labels, seen) for z, seen in steps],
        "earlier": [known(rewarded_accuracy(z, labels, seen[:-1])) for z, seen in steps],
        "new": new,
        "forgetting": [then - float(now) for then, now in zip(new, end, strict=True)][:-1],
    }


def prefixes(order: Sequence[str], catalogue: Sequence[str]) -> Iterator[list[str]]:
    """The classes so far at each arrival, in the catalogue's order."""
    for n in range(1, len(order) + 1):
        yield [name for name in catalogue if name in order[:n]]


def _among(logits: Tensor, labels: Tensor, seen: Sequence[int]) -> float:
    """Accuracy where only the classes seen so far can be answered."""
    kept = sorted(seen)
    rows = torch.isin(labels, torch.tensor(kept))
    renumbered = torch.searchsorted(torch.tensor(kept), labels[rows])
    return rewarded_accuracy(logits[rows][:, kept], renumbered, range(len(kept)))


def _places(catalogue: Sequence[str], order: Sequence[str]) -> list[int]:
    return [list(catalogue).index(name) for name in order]
