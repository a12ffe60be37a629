"""Training a new linear layer on frozen features, read from memory or through the network."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from intarsia.errors import RecipeError, nearest, shortened
from intarsia.files import stream
from intarsia.measure.probe.readout import PIECE, Readout

INITIAL = ("linear", "zeros")


@dataclass(frozen=True)
class HeadTraining:
    """How a new head is trained: AdamW, cross-entropy, the best epoch on validation samples.

    It begins as a linear layer of torch does, or at zeros.
    """

    epochs: int = 10
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    batch: int = 64
    initial: Literal["linear", "zeros"] = "linear"

    def __post_init__(self) -> None:
        for key in ("epochs", "batch"):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise RecipeError(
                    f"{key} is {shortened(value)}: expected a whole number of at least 1"
                )
        for key, least in (("learning_rate", "above 0"), ("weight_decay", "of at least 0")):
            value = getattr(self, key)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 <= value < float("inf") or (key[0] == "l" and not value):
                raise RecipeError(f"{key} is {shortened(value)}: expected a number {least}")
        if self.initial not in INITIAL:
            known = nearest(self.initial, INITIAL)
            raise RecipeError(f"initial is {shortened(self.initial)}: {known}")


@dataclass(frozen=True, eq=False)
class TrainedHead:
    """A new head as it was after its best epoch, and its accuracies."""

    head: nn.Linear
    epoch: int  # counted from 1
    validation: float
    test: float


class Answers(Protocol):
    """Logits of a head for rows of a split, "train", "validation" or "test"; of all by default.

    Rows are numbers on the device of the labels.
    """

    def __call__(self, head: nn.Linear, split: str, rows: Tensor | None = None) -> Tensor: ...


class CachedFeatures:
    """Features of each split, computed once: a head reads them from memory."""

    def __init__(self, features: Mapping[str, Tensor]) -> None:
        self.features = {split: values.float() for split, values in features.items()}

    def __call__(self, head: nn.Linear, split: str, rows: Tensor | None = None) -> Tensor:
        features = self.features[split]
        return head(features if rows is None else features[rows])


class WholeNetwork:
    """The network itself with the head in its place: all inputs go through it, every time.

    It is used inside `frozen`, which leaves the network as it was.
    """

    def __init__(self, readout: Readout, inputs: Mapping[str, Tensor]) -> None:
        self.readout, self.inputs = readout, inputs
        self._head: nn.Linear | None = None

    def frozen(self) -> AbstractContextManager[None]:
        """Everything below the head frozen and in evaluation mode."""
        return self.readout.replaced(lambda features: self._given(features))

    def __call__(self, head: nn.Linear, split: str, rows: Tensor | None = None) -> Tensor:
        self._head, x = head, self.inputs[split]
        if rows is not None:
            return self.readout.answer(x[rows.to(x.device)])
        return torch.cat([self.readout.answer(piece) for piece in x.split(PIECE)])

    def _given(self, features: Tensor) -> Tensor:
        assert self._head is not None
        return self._head(features)


def train_head(
    answers: Answers,
    width: int,
    classes: int,
    labels: Mapping[str, Tensor],
    how: HeadTraining,
    seed: int,
) -> TrainedHead:
    """Train a head of `classes` outputs on `width` features; `labels` lie where it is to be.

    The seed draws its initial weights and its batches, the same ones however answers are made.
    """
    device = labels["train"].device
    head = _new_head(width, classes, how.initial, seed).to(device)
    optimiser = torch.optim.AdamW(
        head.parameters(), lr=how.learning_rate, weight_decay=how.weight_decay
    )
    draw = torch.Generator().manual_seed(stream("fresh head", seed))
    best, at, state = -1.0, 0, copy.deepcopy(head.state_dict())
    for epoch in range(1, how.epochs + 1):
        order = torch.randperm(len(labels["train"]), generator=draw).to(device)
        for rows in order.split(how.batch):
            logits = answers(head, "train", rows)
            loss = nn.functional.cross_entropy(logits, labels["train"][rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        score = _accuracy(answers, head, "validation", labels)
        if score > best:
            best, at, state = score, epoch, copy.deepcopy(head.state_dict())
    head.load_state_dict(state)
    return TrainedHead(head, at, best, _accuracy(answers, head, "test", labels))


def train_heads(
    features: Sequence[Mapping[str, Tensor]],
    classes: int,
    labels: Mapping[str, Tensor],
    how: HeadTraining,
    seed: int,
) -> list[TrainedHead]:
    """A head on the features of each of several networks, by the same batches, in one loop.

    Each comes out as `train_head` would make it alone, to rounding; a GPU takes about as long for
    all of them as for one. `features` are those of each split, N x D, one mapping per network.
    """
    if len(features) == 1:
        alone = CachedFeatures(features[0])
        return [train_head(alone, features[0]["train"].shape[1], classes, labels, how, seed)]
    stacked = {split: torch.stack([own[split].float() for own in features]) for split in labels}
    device, width = labels["train"].device, stacked["train"].shape[2]
    first = _new_head(width, classes, how.initial, seed).to(device)
    many = len(features)
    weight = first.weight.detach().repeat(many, 1, 1).requires_grad_()  # K, C, D
    bias = first.bias.detach().repeat(many, 1).requires_grad_()  # K, C
    optimiser = torch.optim.AdamW(
        [weight, bias], lr=how.learning_rate, weight_decay=how.weight_decay
    )

    def logits(x: Tensor) -> Tensor:  # K, N, D to K, N, C
        return torch.baddbmm(bias[:, None], x, weight.mT)

    def accuracies(split: str) -> Tensor:
        with torch.no_grad():
            hits = logits(stacked[split]).argmax(2) == labels[split]
        return hits.double().mean(1)

    draw = torch.Generator().manual_seed(stream("fresh head", seed))
    best = torch.full((many,), -1.0, dtype=torch.float64, device=device)
    at, kept = torch.zeros_like(best), [weight.detach().clone(), bias.detach().clone()]
    for epoch in range(1, how.epochs + 1):
        order = torch.randperm(len(labels["train"]), generator=draw).to(device)
        for rows in order.split(how.batch):
            targets = labels["train"][rows].repeat(many)
            answers = logits(stacked["train"].index_select(1, rows)).flatten(0, 1)
            loss = nn.functional.cross_entropy(answers, targets) * many  # a mean for each head
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        scores = accuracies("validation")
        better = scores > best
        best, at = torch.where(better, scores, best), torch.where(better, float(epoch), at)
        for place, now in enumerate((weight, bias)):
            chosen = better.reshape(-1, *[1] * (now.dim() - 1))
            kept[place] = torch.where(chosen, now.detach(), kept[place])
    with torch.no_grad():
        weight.copy_(kept[0])
        bias.copy_(kept[1])
    tests = accuracies("test").tolist()
    return [
        TrainedHead(_head_of(kept[0][i], kept[1][i]), int(at[i]), float(best[i]), tests[i])
        for i in range(many)
    ]


def _head_of(weight: Tensor, bias: Tensor) -> nn.Linear:
    head = nn.Linear(weight.shape[1], weight.shape[0], device=weight.device)
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)
    return head


def _accuracy(answers: Answers, head: nn.Linear, split: str, labels: Mapping[str, Tensor]) -> float:
    with torch.no_grad():
        hits = answers(head, split).argmax(1) == labels[split]
    return float(hits.double().mean())


def _new_head(width: int, classes: int, initial: str, seed: int) -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream("fresh head weights", seed))
        head = nn.Linear(width, classes)
    if initial == "zeros":
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
    return head
