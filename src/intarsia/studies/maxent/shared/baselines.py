"""Baselines: what modules are measured against, as plain loops over one network.

Both change the network they are given, where it lies. Random choices come from the seed alone:
batches by a generator of their own, dropout by the device's, which is left as it was.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from intarsia.data import Data, Split
from intarsia.errors import StudyError, shortened
from intarsia.models import initialise
from intarsia.modules import Classifier, Module, logits_of
from intarsia.training import Recipe
from intarsia.training.chunk_training import same_bytes

# What a joint network's recipe says: its first round is all that is asked of it.
UNPRUNED = {"sparsity": 0, "rounds": 0}
ASCENT_BATCH = 256
LOOKS = 2  # steps between two looks at what is forgotten
LIMIT = 400  # steps


@dataclass(frozen=True)
class Ascent:
    """How the cross-entropy of a class is driven up: one of torch's optimisers, its step size."""

    optimiser: str
    learning_rate: float


@dataclass(frozen=True)
class Forgot:
    """A network after ascent: by which, in how many steps, and what validation samples say."""

    network: Classifier
    ascent: Ascent
    steps: int
    removed: float  # accuracy on the class that was to go
    remaining: float  # on all others


def fine_tune(
    network: Classifier, split: Split, *, passes: int, learning_rate: float, batch: int, seed: int
) -> None:
    """Train on these samples alone, by Adam on the cross-entropy, in batches of shuffled passes."""
    optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate)
    draw = torch.Generator().manual_seed(seed)
    network.train()
    with _drawing(seed, network.scale.device):
        for _ in range(passes):
            for rows in torch.randperm(len(split), generator=draw).split(batch):
                _step(network, split, rows, optimiser)
    network.eval()


def ascend(
    network: Classifier,
    forget: Split,
    how: Ascent,
    forgotten: Callable[[Classifier], bool],
    seed: int,
    limit: int = LIMIT,
) -> int:
    """Drive up the cross-entropy of these samples until the network has `forgotten`, or `limit`.

    Gives the steps it took; no other samples are seen. Dropout is off.
    """
    optimiser = getattr(torch.optim, how.optimiser)(network.parameters(), lr=how.learning_rate)
    draw = torch.Generator().manual_seed(seed)
    network.eval()
    with _drawing(seed, network.scale.device):
        for steps in range(limit):
            if steps % LOOKS == 0 and forgotten(network):
                return steps
            rows = torch.randperm(len(forget), generator=draw)[:ASCENT_BATCH]
            _step(network, forget, rows, optimiser, sign=-1)
    return limit


def best_ascent(
    joint: Module,
    data: Data,
    index: int,
    ascents: Sequence[Ascent],
    seed: int,
    device: torch.device,
    limit: int = LIMIT,
) -> Forgot:
    """The ascent that leaves most of the other classes, among those that forget this one.

    Each goes on until validation samples of the class are answered with it no more often than by
    chance, 1/C. Where none comes so far within `limit` steps, the one that forgot most is taken.
    """
    forget = on(data.train.select([index]), device)
    mine = on(data.validation.select([index]), device)
    others = on(data.validation.select([i for i in range(data.classes) if i != index]), device)
    chance = 1 / data.classes
    tried = []
    for how in ascents:
        network = joint.to_module().to(device)
        steps = ascend(
            network, forget, how, lambda model: right(model, mine) <= chance, seed, limit
        )
        tried.append(Forgot(network, how, steps, right(network, mine), right(network, others)))
    return max(tried, key=lambda t: (-max(t.removed, chance), t.remaining))


def untrained(recipe: Recipe, data: Data) -> Classifier:
    """The network at the origin of the recipe's only seed, with nothing learned."""
    assert recipe.temperature is not None
    (seed,) = recipe.seeds
    return Classifier(
        initialise(recipe.model, data.shape, data.classes, seed),
        catalogue=data.catalogue,
        shape=data.shape,
        scaling=data.scaling,
        temperature=recipe.temperature,
    ).eval()


def check_rates(rates: Sequence[Any]) -> list[float]:
    """The step sizes to choose from, or our error before anything is trained."""
    if not rates or not all(isinstance(r, int | float) and r > 0 for r in rates):
        raise StudyError(
            f"rates is {shortened(rates)}: expected step sizes above 0 to choose from, as in "
            "[0.001, 0.0001]"
        )
    return list(rates)


def right(network: nn.Module, split: Split, flips: bool = False) -> float:
    """The fraction of these samples that is answered right, among the whole catalogue."""
    answers = logits_of(network, split.x, flips=flips).argmax(1)
    return float((answers == split.y.cpu()).double().mean())


def on(split: Split, device: torch.device) -> Split:
    """The samples where the network lies, so that they travel once."""
    return Split(split.x.to(device), split.y.to(device))


def _step(
    network: Classifier,
    split: Split,
    rows: Tensor,
    optimiser: torch.optim.Optimizer,
    sign: int = 1,
) -> None:
    """One step down the cross-entropy of these rows, or up with sign -1."""
    rows = rows.to(split.y.device)
    loss = sign * cross_entropy(network(split.x[rows]) / network.temperature, split.y[rows])
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


@contextmanager
def _drawing(seed: int, device: torch.device) -> Iterator[None]:
    """Dropout from the seed, convolutions by one algorithm; generators are put back at the end."""
    cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []), same_bytes():
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
