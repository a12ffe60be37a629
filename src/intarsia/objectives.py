"""Objectives: what a module should answer for every label, as one table.

Row y of the table is the target distribution for label y; a weight per label says how much it
counts (0 hides it). A new objective is a function that returns an `Objective`:

    @OBJECTIVES.register("mine")
    def mine(classes, rewarded, softness=0.2):
        table = torch.full((classes, classes), 1 / classes)
        ...
        return Objective(table, torch.ones(classes))
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from intarsia.errors import RecipeError, shortened
from intarsia.specs import Registry, Spec

OBJECTIVES = Registry(
    "objective", given=("classes", "rewarded"), colour=None, uncertain_elsewhere=False
)
"""Objectives by name; `@OBJECTIVES.register("mine")` adds a function that returns an Objective.

Traits: its `colour` in figures, as #rrggbb (left out, one is chosen), and `uncertain_elsewhere`,
whether it asks to take no side on labels that are not rewarded.
"""


VISIBILITIES = Registry("visibility", given=("classes", "rewarded"))
"""By name, which labels a module may see: a function that returns 1 for these and 0 for others."""


@dataclass(frozen=True, eq=False)
class Objective:
    """Targets, label weights and an optional entropy bonus.

    The loss of a sample with label y and p = softmax(z / t) is
    -sum(table[y] * log p) - bonus[y] * H(p); a batch averages it by weight[y].
    A table with one column more than it has rows asks for an explicit "other" output.

    The last `classless` rows are those of samples that belong to no class (`with_classless`).
    """

    table: Tensor  # C, C or C, C + 1; and the classless rows
    weight: Tensor  # C, and one per classless row
    bonus: Tensor = field(default_factory=lambda: torch.zeros(()))  # as weight, or 0-d for none
    classless: int = 0

    def __post_init__(self) -> None:
        shape = tuple(self.table.shape)
        if len(shape) != 2 or shape[1] not in (n := shape[0] - self.classless, n + 1):
            raise RecipeError(
                "an objective's table is C x C, or C x (C + 1) with an 'other' output; "
                f"got the shape {shape}"
            )
        classes = shape[0]
        if self.weight.shape != (classes,):
            raise RecipeError(f"expected {classes} label weights, got {tuple(self.weight.shape)}")
        if self.bonus.shape not in ((), (classes,)):
            raise RecipeError(f"expected {classes} bonuses, got {tuple(self.bonus.shape)}")
        for part, tensor in self.tensors.items():
            if not bool(torch.isfinite(tensor.float()).all()):
                raise RecipeError(f"an objective's {part} must be finite numbers")
            object.__setattr__(self, part, tensor.float())
        sums = self.table.sum(1)
        if bool((self.table < 0).any()) or not torch.allclose(sums, torch.ones_like(sums)):
            raise RecipeError("every row of an objective's table must be a distribution")
        if bool((self.weight < 0).any()) or not bool((self.weight > 0).any()):
            raise RecipeError("label weights must be at least 0, and one of them above 0")
        object.__setattr__(self, "bonus", self.bonus.expand(classes).contiguous())

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Table, weight and bonus by name."""
        return {"table": self.table, "weight": self.weight, "bonus": self.bonus}

    @property
    def outputs(self) -> int:
        return self.table.shape[1]

    @property
    def classes(self) -> int:
        """Labels of the catalogue, without those of no class."""
        return self.table.shape[0] - self.classless

    def with_classless(self, labels: int = 1) -> "Objective":
        """The objective with that many further labels for samples that belong to no class.

        Such a sample is a negative like any other: its target is uniform over the catalogue, or
        the "other" output where there is one, and it weighs 1.
        """
        row = torch.full((self.outputs,), 1 / self.classes)
        if self.outputs > self.classes:
            row = torch.eye(self.outputs)[-1]
        return Objective(
            torch.cat([self.table, row.expand(labels, -1)]),
            torch.cat([self.weight, torch.ones(labels)]),
            torch.cat([self.bonus, torch.zeros(labels)]),
            self.classless + labels,
        )

    def to(self, device: torch.device) -> "Objective":
        tensors = {part: tensor.to(device) for part, tensor in self.tensors.items()}
        return Objective(**tensors, classless=self.classless)

    def weighted(self, factors: Tensor) -> "Objective":
        """The objective with its label weights multiplied by these factors."""
        return Objective(self.table, self.weight * factors, self.bonus, self.classless)


def objective(
    what: str | Mapping[str, Any] | Spec | Objective, classes: int, rewarded: Sequence[int]
) -> Objective:
    """The objective of a module that is rewarded for these class indices."""
    if isinstance(what, Objective):
        return what
    if not rewarded or min(rewarded) < 0 or max(rewarded) >= classes:
        raise RecipeError(f"rewarded classes {list(rewarded)} are not in 0 to {classes - 1}")
    spec = OBJECTIVES.spec(what)
    made: Objective = OBJECTIVES.call(spec, classes=classes, rewarded=list(rewarded))
    return made


def visible_labels(
    what: str | Mapping[str, Any] | Spec, classes: int, rewarded: Sequence[int]
) -> Tensor:
    """1 for every label that a module with these rewarded classes may see, 0 for all others."""
    spec = VISIBILITIES.spec(what)
    made: Tensor = VISIBILITIES.call(spec, classes=classes, rewarded=list(rewarded))
    return made


def sample_losses(logits: Tensor, labels: Tensor, goal: Objective, temperature: float) -> Tensor:
    """Loss of each sample, before weighting; logits N x outputs."""
    log_p = torch.log_softmax(logits / temperature, -1)
    losses = -(goal.table[labels] * log_p).sum(-1)
    if bool(goal.bonus.any()):
        losses = losses + goal.bonus[labels] * (log_p.exp() * log_p).sum(-1)
    return losses


def loss(
    logits: Tensor,
    labels: Tensor,
    goal: Objective,
    temperature: float = 1.0,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Weighted mean loss of a batch; 0 where every label of the batch is hidden."""
    weights = goal.weight[labels]
    if sample_weight is not None:
        weights = weights * sample_weight
    losses = sample_losses(logits, labels, goal, temperature)
    return (losses * weights).sum() / weights.sum().clamp_min(torch.finfo(weights.dtype).tiny)


@OBJECTIVES.register("me", colour="#0a3a8c", uncertain_elsewhere=True)
def maximum_entropy(
    classes: int,
    rewarded: Sequence[int],
    reward: float = 1.0,
    order: Sequence[int] | None = None,
) -> Objective:
    """MaxEnt: one-hot on rewarded labels, uniform over the catalogue on all others.

    `reward` is the weight of a rewarded label; all others weigh 1. `order` has the labels as they
    arrive, by number: those that come after the rewarded ones are hidden. Labels that it does not
    name come last.
    """
    _check_number("me", "reward", reward)
    table = torch.full((classes, classes), 1 / classes)
    weight = _weight(classes, rewarded, reward)
    if order is not None:
        weight = weight * _arrived("me", classes, rewarded, order)
    return Objective(_sure_of(rewarded, table), weight)


@OBJECTIVES.register("qme", colour="#e8b32a", uncertain_elsewhere=True)
def quasi_maximum_entropy(classes: int, rewarded: Sequence[int]) -> Objective:
    """Quasi-MaxEnt: as MaxEnt, but uniform over the classes that are not rewarded only."""
    others = [c for c in range(classes) if c not in set(rewarded)]
    table = torch.zeros(classes, classes)
    if others:
        table[:, others] = 1 / len(others)
    return Objective(_sure_of(rewarded, table), torch.ones(classes))


@OBJECTIVES.register("xe", colour="#d0570f")
def cross_entropy(classes: int, rewarded: Sequence[int]) -> Objective:
    """Cross-entropy on rewarded labels; all others are hidden."""
    return smoothing(classes, rewarded, amount=0.0)


@OBJECTIVES.register("smoothing", colour="#9d2a6b")
def smoothing(classes: int, rewarded: Sequence[int], amount: float = 0.1) -> Objective:
    """Label smoothing: one-hot mixed with `amount` of uniform; other labels are hidden."""
    _check_number("smoothing", "amount", amount, high=1)
    table = (1 - amount) * torch.eye(classes) + amount / classes
    return Objective(table, _shown(classes, rewarded))


@OBJECTIVES.register("confidence_penalty", colour="#2fa894")
def confidence_penalty(classes: int, rewarded: Sequence[int], amount: float = 0.1) -> Objective:
    """Cross-entropy minus `amount` times the answer's entropy; other labels are hidden."""
    _check_number("confidence_penalty", "amount", amount)
    shown = _shown(classes, rewarded)
    return Objective(torch.eye(classes), shown, amount * shown)


@OBJECTIVES.register("other", colour="#1d120a", uncertain_elsewhere=True)
def explicit_other(classes: int, rewarded: Sequence[int]) -> Objective:
    """One extra output that takes every label that is not rewarded: a control for MaxEnt."""
    table = torch.zeros(classes, classes + 1)
    table[:, classes] = 1
    return Objective(_sure_of(rewarded, table), torch.ones(classes))


@VISIBILITIES.register("all")
def everything(classes: int, rewarded: Sequence[int]) -> Tensor:
    """All labels: a module's negatives are the samples of all other classes."""
    return torch.ones(classes)


@VISIBILITIES.register("past")
def past(
    classes: int,
    rewarded: Sequence[int],
    order: Sequence[int] | None = None,
    amount: float | None = 2.0,
) -> Tensor:
    """Those that are there when the rewarded ones arrive, in the catalogue's order or in `order`.

    `order` has labels by number; those that it does not name come last. `amount` is how many
    samples of earlier classes an epoch draws for each of the rewarded ones, None for all: many
    make a late module far more modest than an early one, which then speaks for its classes.
    """
    if amount is not None:
        _check_number("past", "amount", amount)
    return _arrived("past", classes, rewarded, order)


@VISIBILITIES.register("own")
def own(classes: int, rewarded: Sequence[int]) -> Tensor:
    """The rewarded ones alone: negatives are public or made up."""
    return _shown(classes, rewarded)


def _check_number(name: str, key: str, value: Any, high: float = math.inf) -> None:
    if not isinstance(value, int | float) or not 0 <= value <= high or value == math.inf:
        upto = "" if high == math.inf else f" to {high:g}"
        raise RecipeError(f"{name}: {key} is {shortened(value)}: expected a number from 0{upto}")


def _sure_of(rewarded: Sequence[int], table: Tensor) -> Tensor:
    rows = torch.tensor(list(rewarded))
    table[rows] = 0
    table[rows, rows] = 1
    return table


def _shown(classes: int, rewarded: Sequence[int]) -> Tensor:
    return torch.zeros(classes).index_fill(0, torch.tensor(list(rewarded)), 1.0)


def _arrived(
    name: str, classes: int, rewarded: Sequence[int], order: Sequence[int] | None
) -> Tensor:
    """1 for labels that are there when the last of the rewarded ones arrives, 0 for later ones."""
    places = torch.tensor(arrivals(name, classes, order))
    return (places <= places[list(rewarded)].max()).float()


def arrivals(name: str, classes: int, order: Sequence[int] | None) -> list[int]:
    """By label, when it arrives: in the catalogue's order, or in `order`, whose rest comes last.

    `name` is what asks for it, in the error for an order that is none.
    """
    given = range(classes) if order is None else order
    whole = isinstance(given, Sequence) and all(
        type(label) is int and label >= 0 for label in given
    )
    if not whole or len(set(given)) != len(given) or min(given, default=0) < 0:
        raise RecipeError(f"{name}: order is {given!r}: expected numbers of labels, each once")
    places = {label: place for place, label in enumerate(given)}
    return [places.get(label, len(given)) for label in range(classes)]


def _weight(classes: int, rewarded: Sequence[int], reward: float) -> Tensor:
    return torch.ones(classes).index_fill(0, torch.tensor(list(rewarded)), float(reward))
