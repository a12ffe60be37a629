"""The baseline an expert writes: one module at a time, with nothing between it and the hardware.

The same recipe as ours, step by step: the same batches, masks, validation after every epoch, best
epoch, pruning and rewinding. All samples lie on the device as scaled tensors, without a loader;
Adam is fused; the loss is torch's own. On a CPU as many processes as cores train a module each, on
one thread. On a GPU modules are trained one after another, step by step or with a step captured
once per round as a CUDA graph. `tests/test_benchmarks.py` compares the weights with our own.
"""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import intarsia as ia
from intarsia.data import Data
from intarsia.files import stream
from intarsia.pruning import round_fraction
from intarsia.training.settings.recipe import Recipe
from intarsia.training.tasks import order_of

Step = Callable[[Tensor], object]


def expert_on_cpu(data_name: str, model: Any, epochs: int, processes: int) -> dict[str, Any]:
    """A whole pruning run of a module in each of the processes, which begin together.

    Counted is what the slowest takes, without the start of the processes and their data.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    with ProcessPoolExecutor(processes, context, _meet_at, (barrier,)) as pool:
        runs = [
            pool.submit(_one_thread, data_name, model, epochs, number)
            for number in range(processes)
        ]
        seconds = max(run.result() for run in runs)
    return _row(seconds, processes, epochs) | {"processes": processes}


def expert_on_device(
    data_name: str, model: Any, epochs: int, device: str, graph: bool = False
) -> dict[str, Any]:
    """The second of two whole pruning runs of one module; the first one starts the device."""
    data = ia.load_data(data_name)
    recipe = _recipe(data_name, model, epochs)
    train_expert(data, recipe, [0], device, graph)
    _wait(device)
    began = time.perf_counter()
    train_expert(data, recipe, [0], device, graph)
    _wait(device)
    return _row(time.perf_counter() - began, 1, epochs)


def train_expert(
    data: Data,
    recipe: Recipe,
    rewarded: Sequence[int],
    device: str = "cpu",
    graph: bool = False,
    seed: int = 0,
) -> dict[str, Tensor]:
    """The weights of one module at the end of its last round."""
    network = ia.initialise(recipe.model, data.shape, data.classes, seed).to(device)
    samples = [data.scaling(part.x).to(device) for part in (data.train, data.validation)]
    labels = [part.y.to(device) for part in (data.train, data.validation)]
    table = ia.objective(recipe.objective, data.classes, rewarded).table.to(device)
    run = _Run(network, samples, labels, table, rewarded, recipe, seed, graph)
    return run.rounds()


class _Run:
    """One module on its way through the rounds."""

    def __init__(
        self,
        network: nn.Module,
        samples: list[Tensor],
        labels: list[Tensor],
        table: Tensor,
        rewarded: Sequence[int],
        recipe: Recipe,
        seed: int,
        graph: bool,
    ) -> None:
        self.network, self.recipe, self.seed, self.graph = network, recipe, seed, graph
        self.table, (self.x, self.x_validation) = table, samples
        self.y, self.y_validation = labels
        self.rewarded = rewarded
        own = torch.isin(self.y_validation, torch.tensor(rewarded, device=table.device))
        self.own = own.nonzero().squeeze(1)
        self.parameters = list(network.parameters())
        self.origin = [p.detach().clone() for p in self.parameters]
        self.weights = [i for i, p in enumerate(self.parameters) if p.ndim > 1]
        self.masks: list[Tensor] = []  # of the weights, as factors; none before anything is pruned

    def rounds(self) -> dict[str, Tensor]:
        recipe = self.recipe
        for round_ in range(recipe.rounds + 1):
            if round_:
                self.prune(round_fraction(recipe.sparsity, recipe.rounds))
            last = round_ == recipe.rounds
            self.train(round_, recipe.epochs if last else recipe.pruning_epochs)
        return {n: p.detach().cpu().clone() for n, p in self.network.named_parameters()}

    def train(self, round_: int, epochs: int) -> None:
        """A round from the origin; leaves the weights of its best epoch."""
        batch = min(self.recipe.batch, len(self.x))
        step = self.new_step(batch)
        best, kept = (-1.0, 0.0), [p.detach().clone() for p in self.parameters]
        for epoch in range(epochs):
            torch.manual_seed(stream("dropout", self.seed, *self.rewarded, round_, epoch))
            order = order_of(self.seed, round_, epoch, len(self.x)).to(self.x.device)
            for indices in order.split(batch)[: len(self.x) // batch]:
                step(indices)
            scores = self.validate()
            if scores >= best:
                best = scores
                torch._foreach_copy_(kept, [p.detach() for p in self.parameters])
        self.load(kept)

    def new_step(self, batch: int) -> Step:
        """Weights at their origin, a new Adam, and the step of a round."""
        optimiser = torch.optim.Adam(
            self.parameters, lr=self.recipe.learning_rate, fused=True, capturable=self.graph
        )
        pruned = [self.parameters[i] for i in self.weights] if self.masks else []

        def step(indices: Tensor) -> None:
            optimiser.zero_grad()
            logits = self.network(self.x.index_select(0, indices))
            target = self.table.index_select(0, self.y.index_select(0, indices))
            cross_entropy(logits / self.recipe.temperature, target).backward()
            optimiser.step()
            if pruned:
                with torch.no_grad():
                    torch._foreach_mul_(pruned, self.masks)

        replayed = captured(step, batch, self.x.device) if self.graph else step
        self.load(self.origin)
        with torch.no_grad():
            for i, mask in zip(self.weights, self.masks, strict=False):
                self.parameters[i].mul_(mask)
            for state in optimiser.state.values():  # what the graph was warmed up with
                for moment in state.values():
                    moment.zero_()
        return replayed

    def validate(self) -> tuple[float, float]:
        """Accuracy on the module's own classes, and minus the loss on all samples."""
        self.network.eval()
        with torch.no_grad():
            logits = self.network(self.x_validation)
            right = logits[self.own].argmax(1) == self.y_validation[self.own]
            target = self.table[self.y_validation]
            loss = cross_entropy(logits / self.recipe.temperature, target)
        self.network.train()
        return float(right.float().mean()), -float(loss)

    def prune(self, fraction: float) -> None:
        """Drop the fraction of the surviving weights that are smallest, over the whole network."""
        weights = [self.parameters[i].detach() for i in self.weights]
        masks = self.masks or [torch.ones_like(w) for w in weights]
        alive = torch.cat([mask.flatten() for mask in masks]).bool()
        places = alive.nonzero().squeeze(1)
        sizes = torch.cat([weight.flatten() for weight in weights])[places].abs()
        alive[places[sizes.argsort(stable=True)[: round(fraction * len(places))]]] = False
        parts = alive.split([w.numel() for w in weights])
        self.masks = [p.view_as(w).to(w.dtype) for p, w in zip(parts, weights, strict=True)]

    def load(self, values: list[Tensor]) -> None:
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, values)


def captured(step: Step, batch: int, device: torch.device) -> Step:
    """The step as a CUDA graph: indices go to a fixed place, then the same kernels run again."""
    place = torch.zeros(batch, dtype=torch.int64, device=device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # as capturing asks for, before it begins
        for _ in range(3):
            step(place)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(place)

    def replay(indices: Tensor) -> None:
        place.copy_(indices)
        graph.replay()

    return replay


def warm_adam() -> None:
    """Torch imports much of itself when a process makes its first optimiser; that is not timed."""
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.ones(1)
    torch.optim.Adam([parameter]).step()


def _recipe(data_name: str, model: Any, epochs: int) -> Recipe:
    return Recipe(preset="paper", data=data_name, model=model, epochs=epochs).resolve()


def _row(seconds: float, modules: int, epochs: int) -> dict[str, Any]:
    return {
        "seconds_per_module_epoch": round(seconds / (3 * epochs * modules), 4),
        "modules": modules,
        "epochs": 3 * epochs,
        "seconds": round(seconds, 3),
    }


_BARRIER: list[Barrier] = []  # of a worker process


def _meet_at(barrier: Barrier) -> None:
    _BARRIER.append(barrier)


def _one_thread(data_name: str, model: Any, epochs: int, number: int) -> float:
    """Seconds of one module's run, from when all processes are ready."""
    torch.set_num_threads(1)
    data = ia.load_data(data_name)
    warm_adam()
    recipe = _recipe(data_name, model, epochs)
    _BARRIER[0].wait()
    began = time.perf_counter()
    train_expert(data, recipe, [number % data.classes])
    return time.perf_counter() - began


def _wait(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
