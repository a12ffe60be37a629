"""Small jobs for the engines."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from benchmarks.small_data import striped_images
from intarsia.data import Data
from intarsia.models import build, initialise, wiring_of
from intarsia.objectives import objective
from intarsia.training import loop
from intarsia.training.engines.base import Start
from intarsia.training.job import Job
from intarsia.training.rounds import rewound
from intarsia.training.settings.optimisers import OptimiserState
from intarsia.training.tasks import Task

Origins = list[dict[str, torch.Tensor]]


@pytest.fixture(autouse=True)
def _alone(one_thread: None) -> None:
    """All tests of training run on one thread, but for those that ask for more."""


@pytest.fixture
def stop_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """`stop_at(n)` is Ctrl-C when the nth epoch begins; gives a list of those that have begun."""

    def set_to(last: int) -> list[int]:
        begun: list[int] = []
        original = loop.train_epoch

        def train_epoch(*arguments: Any) -> Any:
            begun.append(len(begun) + 1)
            if begun[-1] == last:
                raise KeyboardInterrupt
            return original(*arguments)

        monkeypatch.setattr(loop, "train_epoch", train_epoch)
        return begun

    return set_to


@pytest.fixture
def make_job(digits: Data) -> Callable[..., tuple[Job, Origins]]:
    """Three modules on digits with the paper's settings, ten batches an epoch; their origins."""

    def make(
        model: str,
        goal: str = "me",
        samples: int = 640,
        batch: int = 64,
        temperature: float = 5.0,
        dtype: torch.dtype = torch.float32,
        several: bool = True,
    ) -> tuple[Job, Origins]:
        """`several` gives the third module another seed and learning rate than the first two."""
        x, y = digits.scaling(digits.train.x[:samples]).to(dtype), digits.train.y[:samples]
        seen, known = digits.scaling(digits.validation.x).to(dtype), digits.validation.y
        third = (5, 3e-3) if several else (0, 1e-3)
        rewarded = [((0,), 0, 1e-3), ((1, 2), 0, 1e-3), ((3,), *third)]
        tasks = [
            Task(str(k), tuple(map(str, r)), r, seed, rate, objective(goal, 10, r))
            for k, (r, seed, rate) in enumerate(rewarded)
        ]
        outputs = tasks[0].objective.outputs
        network = build(model, digits.shape, outputs).to(dtype)
        wiring = wiring_of(network, digits.shape)
        job = Job(network, wiring, tasks, x, y, seen, known, batch, temperature)
        origins = [
            initialise(model, digits.shape, outputs, t.seed).to(dtype).state_dict() for t in tasks
        ]
        return job, origins

    return make


@pytest.fixture
def masked() -> Callable[..., list[Start]]:
    """Starts with random masks of a given density on all weights."""

    def make(origins: Origins, density: float) -> list[Start]:
        starts = []
        for k, origin in enumerate(origins):
            generator = torch.Generator().manual_seed(100 + k)
            mask = {
                n: torch.rand(t.shape, generator=generator) < density
                for n, t in origin.items()
                if t.ndim > 1 and density < 1
            }
            starts.append(Start(rewound(origin, mask), mask))
        return starts

    return make


@pytest.fixture
def with_moments() -> Callable[[Start, int], Start]:
    """A start that takes over moments, also where its mask is 0."""

    def add(start: Start, seed: int) -> Start:
        generator = torch.Generator().manual_seed(seed)

        def draw(size: float) -> dict[str, torch.Tensor]:
            return {
                n: size * torch.rand(t.shape, generator=generator, dtype=t.dtype)
                for n, t in start.state.items()
                if t.is_floating_point()
            }

        moments = {"first": draw(1e-3), "second": draw(1e-6), "momentum": draw(1e-3)}
        return replace(start, optimiser=OptimiserState(moments, [torch.tensor(7.0)]))

    return add


@pytest.fixture(scope="session")
def small_data() -> Data:
    return striped_images("small")
