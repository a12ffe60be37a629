"""Training a new linear layer on frozen features, read from memory or through the network."""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from intarsia.errors import RecipeError, nearest, shortened
from intarsia.files import stream
from intarsia.measure.probe.readout import PIECE, Readout

INITIAL = ("linear", "zeros")
SIZE = 50.0  # of scaled features: the mean sum of their magnitudes
LESS = 1e-3  # of the validation loss, by which it must fall for training to go on
PATIENCE = (3, 100)  # epochs, and steps, for which it may fall by less
LONGEST = (20, 20_000)  # epochs, and steps, after which training ends all the same

Head = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class HeadTraining:
    """How a new head is trained: AdamW, cross-entropy, the best epoch on validation samples.

    With a number of epochs, it reads the features as they are. With None it is trained until the
    loss of validation samples stops falling, then at a tenth of the learning rate until it stops
    again; features are centred and brought to one size before, so that one learning rate fits those
    of any network. It begins as a linear layer of torch does, or at zeros.
    """

    epochs: int | None = 10
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    batch: int = 64
    initial: Literal["linear", "zeros"] = "linear"

    def __post_init__(self) -> None:
        for key in ("epochs", "batch"):
            value = getattr(self, key)
            if key == "epochs" and value is None:
                continue
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
    finished: bool  # False if the last epoch was the best, or the loss was still falling


@dataclass(frozen=True, eq=False)
class FeatureScale:
    """The mean of features, and a number that brings them to one size.

    AdamW moves every weight by about the learning rate, and so a logit by that times the sum of
    the features' magnitudes: this sum is what is made alike.
    """

    mean: Tensor
    scale: Tensor

    @classmethod
    def of(cls, features: Tensor) -> "FeatureScale":
        """That of training samples, N x D; features that are all alike stay as they are."""
        mean = features.mean(0)
        size = (features - mean).abs().sum(1).mean() / SIZE
        return cls(mean, torch.where(size > 0, size, torch.ones_like(size)))

    def before(self, head: Head) -> Head:
        """The head on scaled features."""
        return lambda features: head((features - self.mean) / self.scale)

    def into(self, head: nn.Linear) -> nn.Linear:
        """The head of features as they are that gives the same logits."""
        weight = head.weight.detach() / self.scale
        return _head_of(weight, head.bias.detach() - weight @ self.mean)


class Answers(Protocol):
    """Logits of a head for rows of a split, "train", "validation" or "test"; of all by default.

    Rows are numbers on the device of the labels.
    """

    def __call__(self, head: Head, split: str, rows: Tensor | None = None) -> Tensor: ...

    @property
    def scale(self) -> FeatureScale:
        """That of the training features."""


class CachedFeatures:
    """Features of each split, computed once: a head reads them from memory."""

    def __init__(self, features: Mapping[str, Tensor]) -> None:
        self.features = {split: values.float() for split, values in features.items()}

    def __call__(self, head: Head, split: str, rows: Tensor | None = None) -> Tensor:
        features = self.features[split]
        return head(features if rows is None else features[rows])

    @cached_property
    def scale(self) -> FeatureScale:
        return FeatureScale.of(self.features["train"])


class WholeNetwork:
    """The network itself with the head in its place: all inputs go through it, every time.

    It is used inside `frozen`, which leaves the network as it was.
    """

    def __init__(self, readout: Readout, inputs: Mapping[str, Tensor]) -> None:
        self.readout, self.inputs = readout, inputs
        self._head: Head | None = None

    def frozen(self) -> AbstractContextManager[None]:
        """Everything below the head frozen and in evaluation mode."""
        return self.readout.replaced(lambda features: self._given(features))

    def __call__(self, head: Head, split: str, rows: Tensor | None = None) -> Tensor:
        self._head, x = head, self.inputs[split]
        if rows is not None:
            return self.readout.answer(x[rows.to(x.device)])
        return torch.cat([self.readout.answer(piece) for piece in x.split(PIECE)])

    @cached_property
    def scale(self) -> FeatureScale:
        width = self.readout.layer.out_features
        self._head = lambda features: features.new_zeros(*features.shape[:-1], width)
        return FeatureScale.of(self.readout.features(self.inputs["train"])[0].float())

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
    head = _new_head(width, classes, how.initial, seed).to(labels["train"].device)
    scale = answers.scale if how.epochs is None else None
    run = _HeadRun(answers, head, scale.before(head) if scale else head, labels, how, seed)
    finished = run.until_loss_stops() if how.epochs is None else run.through(how.epochs)
    head.load_state_dict(run.state)
    head = scale.into(head) if scale else head
    with torch.no_grad():
        test = _accuracy(answers(head, "test"), labels["test"])
    return TrainedHead(head, run.kept, run.best, test, finished)


@dataclass
class _HeadRun:
    """A head in training, and its state after the epoch that was best on validation samples."""

    answers: Answers
    head: nn.Linear
    called: Head  # the head, or the head on scaled features
    labels: Mapping[str, Tensor]
    how: HeadTraining
    seed: int
    epochs: int = field(default=0, init=False)
    best: float = field(default=-1.0, init=False)
    kept: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.optimiser = torch.optim.AdamW(
            self.head.parameters(), lr=self.how.learning_rate, weight_decay=self.how.weight_decay
        )
        self.draw = torch.Generator().manual_seed(stream("fresh head", self.seed))
        self.state = copy.deepcopy(self.head.state_dict())

    def epoch(self) -> float:
        """One pass over the training samples; the loss of validation samples after it."""
        labels = self.labels["train"]
        order = torch.randperm(len(labels), generator=self.draw).to(labels.device)
        for rows in order.split(self.how.batch):
            logits = self.answers(self.called, "train", rows)
            loss = nn.functional.cross_entropy(logits, labels[rows])
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
        self.epochs += 1
        with torch.no_grad():
            logits = self.answers(self.called, "validation")
            after = nn.functional.cross_entropy(logits, self.labels["validation"])
        score = _accuracy(logits, self.labels["validation"])
        if score > self.best:
            self.best, self.kept = score, self.epochs
            self.state = copy.deepcopy(self.head.state_dict())
        return float(after)

    def through(self, epochs: int) -> bool:
        """So many epochs; whether one before the last was the best."""
        for _ in range(epochs):
            self.epoch()
        return self.kept < epochs

    def until_loss_stops(self) -> bool:
        """Epochs until the validation loss stops falling, twice; whether it did so in time.

        The second time begins where the loss was least: at the weights and AdamW's moments of then.
        """
        steps = -(-len(self.labels["train"]) // self.how.batch)
        patience, longest = (max(n, -(-most // steps)) for n, most in (PATIENCE, LONGEST))
        least, lowest = float("inf"), self._checkpoint()
        for rate in (self.how.learning_rate, self.how.learning_rate / 10):
            weights, moments = lowest
            self.head.load_state_dict(weights)
            self.optimiser.load_state_dict(moments)
            self.optimiser.param_groups[0]["lr"] = rate
            waited, since = 0, least  # a fall too slow to see in one epoch adds up while it waits
            while waited < patience:
                if self.epochs == longest:
                    return False
                loss = self.epoch()
                if loss < since * (1 - LESS):
                    waited, since = 0, loss
                else:
                    waited += 1
                if loss < least:
                    least, lowest = loss, self._checkpoint()
        return True

    def _checkpoint(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return copy.deepcopy((self.head.state_dict(), self.optimiser.state_dict()))


def train_heads(
    features: Sequence[Mapping[str, Tensor]],
    classes: int,
    labels: Mapping[str, Tensor],
    how: HeadTraining,
    seed: int,
) -> list[TrainedHead]:
    """A head on the features of each of several networks, by the same batches, in one loop.

    Each comes out as `train_head` would make it alone, to rounding; a GPU takes about as long for
    all of them as for one. Without a number of epochs they are trained one after another.
    `features` are those of each split, N x D, one mapping per network.
    """
    if len(features) == 1 or how.epochs is None:
        width = features[0]["train"].shape[1]
        every = map(CachedFeatures, features)
        return [train_head(alone, width, classes, labels, how, seed) for alone in every]
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
        TrainedHead(
            _head_of(kept[0][i], kept[1][i]), int(at[i]), float(best[i]), tests[i],
            finished=int(at[i]) < how.epochs,
        )
        for i in range(many)
    ]  # fmt: skip


def _head_of(weight: Tensor, bias: Tensor) -> nn.Linear:
    head = nn.Linear(weight.shape[1], weight.shape[0], device=weight.device)
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)
    return head


def _accuracy(logits: Tensor, labels: Tensor) -> float:
    return float((logits.argmax(1) == labels).double().mean())


def _new_head(width: int, classes: int, initial: str, seed: int) -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream("fresh head weights", seed))
        head = nn.Linear(width, classes)
    if initial == "zeros":
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
    return head
