"""The step of a stack of pattern networks: gradients written out, Adam and Muon.

All weights of a network are one row of a table (K, n). No step looks at a value or copies one from
the host, so that the host never waits for the device, and a step can be recorded as a CUDA graph.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from intarsia.errors import RecipeError, shortened
from intarsia.specs import Registry, is_number
from intarsia.sweetspot.networks import LINEAR, OUTPUTS, PatternLayout

WARM_UP = 3  # steps before one is recorded
SEGMENT = 100  # steps between two looks at the loss, and for which pixels are drawn at once

PATTERN_OPTIMISERS = Registry("optimiser of pattern networks")
"""Optimisers by name: functions of settings that return a TableOptimiser."""


class TableOptimiser(ABC):
    """How far weights go in one step, before the learning rate."""

    moments: tuple[str, ...] = ()  # what it remembers of every weight

    @abstractmethod
    def change(
        self, layout: PatternLayout, gradient: Tensor, moments: dict[str, Tensor], count: Tensor
    ) -> Tensor:
        """What is taken from the weights, (K, n), times the learning rate; moments move in place.

        `count` is the number of this step, from 1 on, and lies on the device.
        """


class TableAdam(TableOptimiser):
    """Adam: m / (1 - beta1^t) over sqrt(v / (1 - beta2^t)) + epsilon."""

    moments = ("mean", "square")

    def __init__(self, beta1: float, beta2: float, epsilon: float) -> None:
        self.beta1, self.beta2 = (_number("beta", beta, 0, 1) for beta in (beta1, beta2))
        self.epsilon = _number("epsilon", epsilon, 0, 1)

    def change(
        self, layout: PatternLayout, gradient: Tensor, moments: dict[str, Tensor], count: Tensor
    ) -> Tensor:
        mean, square = moments["mean"], moments["square"]
        mean.lerp_(gradient, 1 - self.beta1)
        square.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        first, second = (1 - beta ** count.double() for beta in (self.beta1, self.beta2))
        root = (square / second.float()).sqrt_().add_(self.epsilon)
        return (mean / first.float()).div_(root)


class Muon(TableOptimiser):
    """Momentum whose matrices are made nearly orthogonal by Newton-Schulz steps.

    With the gradient g, b <- momentum * b + g, and u = g + momentum * b. A matrix of u over its
    Frobenius norm, X, goes through X <- a X + (b A + c A^2) X with A = X X^T, `steps` times, and is
    taken times sqrt(max(1, outputs / inputs)). Jordan et al. 2024, for all matrices alike.
    """

    moments = ("momentum",)
    coefficients = (3.4445, -4.7750, 2.0315)

    def __init__(self, steps: int, momentum: float) -> None:
        if type(steps) is not int or not 1 <= steps <= 100:
            raise RecipeError(
                f"muon: steps is {shortened(steps)}: expected a whole number of Newton-Schulz "
                "steps from 1 to 100"
            )
        self.steps, self.momentum = steps, _number("momentum", momentum, 0, 1)

    def change(
        self, layout: PatternLayout, gradient: Tensor, moments: dict[str, Tensor], count: Tensor
    ) -> Tensor:
        momentum = moments["momentum"].mul_(self.momentum).add_(gradient)
        update = torch.add(gradient, momentum, alpha=self.momentum)
        parts, start = [], 0
        for shape, matrices in _alike(layout):
            size = prod(shape) * matrices
            rows = update[:, start : start + size].reshape(-1, matrices, *shape)
            scale = max(1.0, shape[0] / shape[1]) ** 0.5
            parts.append(orthogonalised(rows, self.steps, self.coefficients).mul_(scale).flatten(1))
            start += size
        return torch.cat(parts, 1)


@PATTERN_OPTIMISERS.register("adam")
def adam(beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> TableOptimiser:
    """Adam."""
    return TableAdam(beta1, beta2, epsilon)


@PATTERN_OPTIMISERS.register("muon")
def muon(steps: int = 5, momentum: float = 0.95) -> TableOptimiser:
    """Muon, with so many Newton-Schulz steps."""
    return Muon(steps, momentum)


def orthogonalised(
    matrices: Tensor, steps: int, coefficients: tuple[float, float, float] = Muon.coefficients
) -> Tensor:
    """Matrices (..., rows, columns) with their singular values brought near 1; zeros stay 0."""
    a, b, c = coefficients
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * (square @ square)) @ x
    return x.mT.contiguous() if tall else x


class PatternStack:
    """Networks of one layout in training: a table of weights, and all that a step needs.

    weights         (K, n); moves in place
    free            (K, n) of 1 and 0, or None: what is 0 never moves
    learning_rates  (K,)
    factors         of the learning rate, one per step of the whole run
    inputs, target  (4, pixels) and (3, pixels)
    pixels          drawn for each step; None takes all of them
    """

    def __init__(
        self,
        layout: PatternLayout,
        weights: Tensor,
        free: Tensor | None,
        learning_rates: Tensor,
        factors: Tensor,
        inputs: Tensor,
        target: Tensor,
        optimiser: TableOptimiser,
        pixels: int | None = None,
        normalise: bool = True,
    ) -> None:
        self.layout, self.weights, self.free = layout, weights, free
        self.learning_rates = learning_rates[:, None]
        self.factors = torch.cat([factors, factors[-1:].expand(WARM_UP)])
        self.inputs, self.target = inputs, target
        self.optimiser, self.normalise = optimiser, normalise
        self.moments = {name: torch.zeros_like(weights) for name in optimiser.moments}
        self.finite = weights.clone()
        self.count = torch.zeros((), dtype=torch.int64, device=weights.device)
        self.loss = torch.zeros(len(weights), device=weights.device)
        self.chosen = (
            None
            if pixels is None
            else torch.zeros((SEGMENT, pixels), dtype=torch.int64, device=weights.device)
        )
        self.matrices = matrices_of(layout, weights)
        drawn = inputs.shape[1] if pixels is None else pixels
        self.buffers = StepBuffers(layout, len(weights), drawn, weights)
        self.graph: torch.cuda.CUDAGraph | None = None

    def tensors(self) -> dict[str, Tensor]:
        """What training changes, by name."""
        moments = {f"moments/{name}": values for name, values in self.moments.items()}
        own = {"weights": self.weights, "finite": self.finite, "count": self.count}
        return {**own, "loss": self.loss, **moments}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on from tensors of these names."""
        for name, own in self.tensors().items():
            own.copy_(tensors[name])

    def run(self, steps: int) -> None:
        """So many steps; `loss` is that of the last one, before its weights moved."""
        for _ in range(steps):
            if self.graph is None:
                self.step()
            else:
                self.graph.replay()

    def keep_finite(self) -> None:
        """Note the weights in `finite`, but for networks one of whose weights is no number."""
        sound = self.weights.isfinite().all(1, keepdim=True)
        torch.where(sound, self.weights, self.finite, out=self.finite)

    def capture(self) -> None:
        """Record a step as a CUDA graph, after a few on a side stream that are taken back."""
        before = {name: tensor.clone() for name, tensor in self.tensors().items()}
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    self.step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.step()
            self.graph = graph
        finally:
            self.load(before)

    @torch.no_grad()
    def step(self) -> None:
        """Gradient, its norm, the optimiser's change; all on the device."""
        inputs, target = self.inputs, self.target
        if self.chosen is not None:
            place = (self.count % SEGMENT).reshape(1)
            chosen = self.chosen.index_select(0, place)[0]
            inputs, target = inputs.index_select(1, chosen), target.index_select(1, chosen)
        loss, gradients = loss_and_gradients(
            self.layout, self.matrices, inputs, target, self.buffers
        )
        self.loss.copy_(loss)
        gradient = torch.cat([part.flatten(1) for part in gradients], 1)
        if self.free is not None:
            gradient.mul_(self.free)
        if self.normalise:
            norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            # 0 / 0 where nothing tells where to go, and what overflowed: such weights stay
            gradient = (gradient / norm).nan_to_num_(0.0, 0.0, 0.0)
        factor = self.factors.index_select(0, self.count.reshape(1))
        self.count.add_(1)
        change = self.optimiser.change(self.layout, gradient, self.moments, self.count)
        change.mul_(self.learning_rates * factor)
        if self.free is not None:
            change.mul_(self.free)
        self.weights.sub_(change)


def matrices_of(layout: PatternLayout, table: Tensor) -> list[Tensor]:
    """Views of a table (K, n): one (K, outputs, inputs) for each matrix."""
    parts = table.split([prod(shape) for shape in layout.shapes], 1)
    return [part.view(-1, *shape) for part, shape in zip(parts, layout.shapes, strict=True)]


def table_of(matrices: Sequence[Tensor]) -> Tensor:
    """Matrices (K, outputs, inputs) as one row for each network."""
    return torch.cat([matrix.flatten(1) for matrix in matrices], 1)


class StepBuffers:
    """The maps, slopes and gradients of a step, for so many networks and pixels.

    They are allocated once and written over by every step: on a CPU the first touch of fresh memory
    costs about as much as what is then computed in it.

    maps        (K, width, pixels) for each hidden layer
    slopes      for each hidden layer, (K, units, pixels) for each block that is not linear
    upstream    two of (K, width, pixels), by turns
    gradients   (K, outputs, inputs) for each matrix
    """

    def __init__(self, layout: PatternLayout, networks: int, pixels: int, like: Tensor) -> None:
        def empty(*shape: int) -> Tensor:
            return like.new_empty((networks, *shape))

        self.blocks = [(name, rows) for name, rows in layout.slices if name not in LINEAR]
        units = [rows.stop - rows.start for _, rows in self.blocks]
        self.maps = [empty(layout.width, pixels) for _ in range(layout.depth)]
        self.slopes = [[empty(own, pixels) for own in units] for _ in range(layout.depth)]
        self.upstream = [empty(layout.width, pixels) for _ in range(2)]
        self.gradients = [empty(*shape) for shape in layout.shapes]


@torch.no_grad()
def loss_and_gradients(
    layout: PatternLayout,
    matrices: Sequence[Tensor],
    inputs: Tensor,
    target: Tensor,
    buffers: StepBuffers | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """The mean squared error of RGB of each network, (K,), and its gradient for every matrix.

    With `buffers` the gradients are theirs, which the next call writes over.
    """
    count = len(matrices[0])
    if buffers is None:
        buffers = StepBuffers(layout, count, inputs.shape[1], matrices[0])
    read = [inputs.expand(count, -1, -1), *buffers.maps]  # by each matrix
    for place, layer in enumerate(buffers.maps):
        torch.bmm(matrices[place], read[place], out=layer)
        for (name, rows), slope in zip(buffers.blocks, buffers.slopes[place], strict=True):
            _IN_PLACE[name](layer[:, rows], slope)
    loss, upstream = _loss_of_outputs(torch.bmm(matrices[-1], read[-1]), target)
    torch.bmm(upstream, read[-1].mT, out=buffers.gradients[-1])
    for place in range(len(matrices) - 2, -1, -1):
        above, upstream = upstream, buffers.upstream[place % 2]
        torch.bmm(matrices[place + 1].mT, above, out=upstream)
        for (_, rows), slope in zip(buffers.blocks, buffers.slopes[place], strict=True):
            upstream[:, rows].mul_(slope)
        torch.bmm(upstream, read[place].mT, out=buffers.gradients[place])
    return loss, buffers.gradients


# Activations by name: z becomes its activation, in place, and the other tensor its slope.


def _gaussian(z: Tensor, slope: Tensor) -> None:
    slope.copy_(z)
    z.square_().neg_().exp_()
    slope.mul_(z).mul_(-4)
    z.mul_(2).sub_(1)


def _sigmoid(z: Tensor, slope: Tensor) -> None:
    z.sigmoid_().mul_(2).sub_(1)
    torch.square(z, out=slope).mul_(-0.5).add_(0.5)


def _sin(z: Tensor, slope: Tensor) -> None:
    torch.cos(z, out=slope)
    z.sin_()


def _relu(z: Tensor, slope: Tensor) -> None:
    z.relu_()
    torch.sign(z, out=slope)


def _tanh(z: Tensor, slope: Tensor) -> None:
    z.tanh_()
    torch.square(z, out=slope).neg_().add_(1)


_IN_PLACE: dict[str, Callable[[Tensor, Tensor], None]] = {
    "gaussian": _gaussian,
    "sigmoid": _sigmoid,
    "sin": _sin,
    "relu": _relu,
    "tanh": _tanh,
}


def _loss_of_outputs(outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The error of outputs (K, 3, pixels), and its slope; see `pictures.rgb` for the formula."""
    hue, saturation, value = outputs.unbind(1)
    size = value.abs()
    bright, pure = size.clamp(max=1), saturation.clamp(0, 1)
    turn = torch.arange(5, 0, -2, device=outputs.device)[:, None]
    k = ((hue + 1) % 1)[:, None].mul(6).add(turn).remainder_(6)
    lower = torch.minimum(k, 4 - k)
    share = lower.clamp(0, 1)
    error = (bright[:, None] - (bright * pure)[:, None] * share).sub_(target)
    loss = error.square().mean((1, 2))
    error.mul_(2 / (OUTPUTS * outputs.shape[2]))
    shared = (error * share).sum(1)
    rising = (2 - k).sign_() * ((lower >= 0) & (lower <= 1))
    slopes = torch.empty_like(outputs)
    slopes[:, 0] = (error * rising).sum(1) * (bright * pure) * -6
    slopes[:, 1] = -bright * shared * ((saturation >= 0) & (saturation <= 1))
    slopes[:, 2] = (error.sum(1) - pure * shared) * value.sign() * (size <= 1)
    return loss, slopes


def _alike(layout: PatternLayout) -> list[tuple[tuple[int, int], int]]:
    """Matrices of one shape that follow each other, as shape and count."""
    runs: list[tuple[tuple[int, int], int]] = []
    for shape in layout.shapes:
        if runs and runs[-1][0] == shape:
            runs[-1] = (shape, runs[-1][1] + 1)
        else:
            runs.append((shape, 1))
    return runs


def _number(name: str, value: Any, least: float, below: float) -> float:
    if not is_number(value) or not least <= value < below:
        raise RecipeError(
            f"optimiser: {name} is {shortened(value)}: expected a number from {least} to below "
            f"{below}"
        )
    return float(value)
