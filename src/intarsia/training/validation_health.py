"""What a module's validation samples say against it: that it learned nothing, or is too sure.

A module is undertrained where it is hardly above chance. The yardstick is the best constant answer.
Of all answers that do not look at the sample, the weighted mean m of the objective's rows over the
validation labels has the lowest loss, L(m); the answer that is the row of each label has L(rows),
and L(m) - L(rows) is what there is to learn.

A module can know much and have a large loss, if it is too sure of what it knows. So its answers p
are toned down towards the constant one, to p^a m^(1-a), with the a from 0 to 1 that serves it best.
It is undertrained where even then its loss is hardly below L(m): by less than a tenth of what there
is to learn, with a one-sided 95% bound, since a few samples prove little.

The rewarded accuracy would not do. A module for one class that answers it whatever it sees has an
accuracy of 1. Where all samples ask for the same answer, as in cross-entropy on one class, there is
nothing to learn and nothing to say.

A module is inconsistent where it is far surer of samples it is not rewarded for than its objective
asks.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from intarsia.modules import Finding
from intarsia.modules.health import AGAIN, answers_alike
from intarsia.objectives import Objective, sample_losses
from intarsia.training.tasks import Task

LITTLE = 0.1  # of what there is to learn
SURE = 1.645  # standard errors of a one-sided 95% bound
STRENGTHS = (0.0, 0.1, 0.2, 0.4, 0.7, 1.0)  # to tone answers down to; the loss is convex in them
UNSURE = 0.5  # of the entropy that an objective asks for: below, it does not do what is asked


def learning_findings(
    task: Task,
    scores: Mapping[str, float],
    labels: Tensor,
    answers: Callable[[], tuple[Tensor, Tensor]],
    temperature: float,
) -> tuple[Finding, ...]:
    """What a module's validation says against it.

    `labels` are those of all validation samples. `answers` gives the network's outputs for some of
    them, and their labels; it is called only where the loss is suspicious.
    """
    goal = task.objective
    counts = labels.bincount(minlength=len(goal.weight)).cpu()
    constant, perfect = constant_loss(goal, counts)
    to_learn = constant - perfect
    if to_learn > 1e-6 and constant - scores["loss"] < LITTLE * to_learn:
        logits, seen = answers()
        if answers_alike(logits):
            message = f"it answers the same to all of {len(seen)} validation samples"
            return (Finding("dead", task.name, message, AGAIN),)
        if gain(logits / temperature, seen, goal) < LITTLE * to_learn:
            message = (
                f"it is hardly above chance: its validation loss is {scores['loss']:.3f}, that of "
                f"a constant answer is {constant:.3f}, and {perfect:.3f} is perfect"
            )
            return (Finding("undertrained", task.name, message, AGAIN),)
    return _too_sure(task, scores["entropy"], counts)


def constant_loss(goal: Objective, counts: Tensor) -> tuple[float, float]:
    """The loss of the best constant answer for so many samples of each label, and of perfect ones.

    With a bonus on entropy the constant answer is a good one, not quite the best.
    """
    table, weight = goal.table.double(), counts.double() * goal.weight.double()
    mean = _mean_row(goal, counts).expand_as(table)
    return _loss(goal, weight, mean), _loss(goal, weight, table)


def gain(logits: Tensor, labels: Tensor, goal: Objective) -> float:
    """By how much answers, toned down as serves them best, beat a constant one; an upper bound."""
    weight = goal.weight[labels].double()
    total = weight.sum().clamp_min(torch.finfo(torch.float64).tiny)
    answers = torch.log_softmax(logits.double(), 1)
    constant = _mean_row(goal, labels.bincount(minlength=len(goal.weight)))
    constant = constant.clamp_min(1e-12).log().expand_as(answers)
    base = sample_losses(constant, labels, goal, 1.0)
    bounds = []
    for strength in STRENGTHS:
        toned = torch.lerp(constant, answers, strength)
        gains = base - sample_losses(toned, labels, goal, 1.0)
        mean = (weight * gains).sum() / total
        error = (weight * (gains - mean)).square().sum().sqrt() / total
        bounds.append((float(mean), float(mean + SURE * error)))
    return max(bounds)[1]


def _mean_row(goal: Objective, counts: Tensor) -> Tensor:
    weight = counts.double() * goal.weight.double()
    return weight @ goal.table.double() / weight.sum().clamp_min(torch.finfo(torch.float64).tiny)


def _loss(goal: Objective, weight: Tensor, answers: Tensor) -> float:
    """The weighted loss of one distribution for each label."""
    shown = weight > 0
    table, answers = goal.table.double()[shown], answers[shown]
    losses = -torch.special.xlogy(table, answers).sum(1)
    losses = losses + goal.bonus.double()[shown] * torch.special.xlogy(answers, answers).sum(1)
    return float(weight[shown] @ losses / weight.sum()) if bool(shown.any()) else 0.0


def _too_sure(task: Task, entropy: float, counts: Tensor) -> tuple[Finding, ...]:
    """Whether it is far surer of the samples it is not rewarded for than its objective asks."""
    goal, classes = task.objective, len(counts)
    table = goal.table.double()
    if goal.outputs > classes:  # the mass of "other" spreads evenly over the catalogue
        table = table[:, :classes] + table[:, classes:] / classes
    others = counts.double().index_fill(0, torch.tensor(task.indices), 0)
    if math.isnan(entropy) or not others.sum() or bool((goal.weight[others > 0] == 0).any()):
        return ()
    asked = float(others @ -torch.special.xlogy(table, table).sum(1) / others.sum())
    if entropy >= UNSURE * asked:
        return ()
    message = (
        f"its entropy on validation samples that it is not rewarded for is {entropy:.3f}, where "
        f"its objective asks for {asked:.3f}"
    )
    advice = "show it more samples of other classes, or train it shorter or at a lower rate"
    return (Finding("inconsistent", task.name, message, advice),)
