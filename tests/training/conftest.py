"""Small jobs for the engines."""

from collections.abc import Callable, Iterator

import pytest
import torch

from intarsia.data import Data
from intarsia.data.dataset import Split
from intarsia.models import build, initialise, wiring_of
from intarsia.objectives import objective
from intarsia.training.engine import Job, Start
from intarsia.training.tasks import Task


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny networks are slower on many threads than on one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def make_job() -> Callable[..., tuple[Job, list[dict[str, torch.Tensor]]]]:
    """A job of three modules over two seeds, and the origins of its tasks."""

    def make(
        model: str,
        shape: tuple[int, ...] = (1, 12, 12),
        goal: str = "me",
        batch: int = 16,
        samples: int = 160,
        temperature: float = 2.0,
        dtype: torch.dtype = torch.float32,
    ) -> tuple[Job, list[dict[str, torch.Tensor]]]:
        generator = torch.Generator().manual_seed(0)
        x = torch.rand(samples, *shape, generator=generator).to(dtype)
        y = torch.randint(0, 4, (samples,), generator=generator)
        x += y.view(-1, *[1] * len(shape)) / 4
        rewarded = [((0,), 0, 1e-3), ((1, 2), 0, 1e-3), ((3,), 5, 3e-3)]
        tasks = [
            Task(str(k), tuple(map(str, r)), r, seed, rate, objective(goal, 4, r))
            for k, (r, seed, rate) in enumerate(rewarded)
        ]
        outputs = tasks[0].objective.outputs
        network = build(model, shape, outputs).to(dtype)
        job = Job(
            network, wiring_of(network, shape), tasks, x, y, x[:40], y[:40], batch, temperature
        )
        origins = [initialise(model, shape, outputs, t.seed).to(dtype).state_dict() for t in tasks]
        return job, origins

    return make


@pytest.fixture
def masked() -> Callable[..., list[Start]]:
    """Starts with random masks of a given density on all weights."""

    def make(origins: list[dict[str, torch.Tensor]], density: float) -> list[Start]:
        from intarsia.training.rounds import rewound

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


@pytest.fixture(scope="session")
def small_data() -> Data:
    """Four easy classes of 8 x 8 images."""
    generator = torch.Generator().manual_seed(1)

    def split(samples: int) -> Split:
        y = torch.arange(samples) % 4
        x = torch.rand(samples, 1, 8, 8, generator=generator) * 0.4
        for label in range(4):
            x[y == label, :, 2 * label : 2 * label + 2] += 0.6
        return Split(x, y)

    return Data.build("small", ("a", "b", "c", "d"), split(200), split(80), split(80), "none")
