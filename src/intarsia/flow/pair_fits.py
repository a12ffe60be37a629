"""Fits of pair networks: a bank of one arm, all seeds in one stack, by Adam in float64."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from intarsia.errors import RecipeError, TrainingError, nearest, shortened
from intarsia.files import stream
from intarsia.flow.laws import LAWS
from intarsia.flow.pair_networks import HALF, SYMMETRIC, PairBank, bank_outputs, check_form
from intarsia.flow.unit_moments import Unit
from intarsia.specs import is_number, seed_numbers

MSE, CUMULANTS = "mse", "cumulants"
LOSSES = (MSE, CUMULANTS)
BLOCK = 64  # steps whose samples are drawn at once
WIDEST = 4096  # hidden pairs


def fit(
    form: str = SYMMETRIC,
    unit: str = "linear",
    width: int = 1,
    *,
    law: str = "exponential",
    loss: str = MSE,
    seeds: int | Sequence[int] = (0,),
    steps: int = 1500,
    batch: int = 512,
    learning_rate: float = 0.02,
) -> PairBank:
    """Train pair networks to be a step of the flow, (x1 + x2) / sqrt 2, on pairs of a law.

    `width` counts hidden pairs: a free network has two units for each. The learning rate falls by a
    cosine to 0. With `loss="cumulants"` no output is compared with its target: the loss is the sum
    over orders 1 to 4 of the squared differences between the cumulants of a batch of outputs and
    of its targets. Every seed has its own start and its own samples; a number of `seeds` stands for
    so many, from 0. A network that diverges keeps what it had then, and is not a number from there
    on.
    """
    form, own = check_form(form), Unit(unit)
    spec = LAWS.spec(law)
    _check(width=width, steps=steps, batch=batch)
    if width > WIDEST:
        raise RecipeError(f"width is {width}: expected at most {WIDEST} pairs")
    if loss not in LOSSES:
        raise RecipeError(f"unknown loss {shortened(loss)}: {nearest(loss, LOSSES)}")
    if not is_number(learning_rate) or not learning_rate > 0:
        raise RecipeError(f"learning_rate is {shortened(learning_rate)}: expected a number above 0")
    seeds = seed_numbers(seeds)
    names = (form, str(own), width, str(spec))
    generators = [torch.Generator().manual_seed(stream("flow fit", *names, s)) for s in seeds]
    tensors = _initial(form, width, generators)
    adam = _Adam(tensors)
    for step, x in enumerate(_batches(str(spec), steps, batch, generators)):
        y, target = bank_outputs(form, own, tensors, x), HALF * x.sum(2)
        losses = (y - target).square().mean(1) if loss == MSE else _cumulant_loss(y, target)
        gradients = torch.autograd.grad(losses.sum(), tensors)
        adam.step(gradients, 0.5 * learning_rate * (1 + math.cos(math.pi * step / steps)))
    if not any(torch.isfinite(tensor).all() for tensor in tensors[3]):
        raise TrainingError(
            f"no network of {form} {own} is finite after {steps} steps: lower the learning rate"
        )
    report = {
        "law": str(spec), "loss": loss, "width": width, "steps": steps, "batch": batch,
        "learning_rate": learning_rate,
    }  # fmt: skip
    weights, biases, outputs, offsets = (tensor.detach() for tensor in tensors)
    return PairBank(form, own, weights, biases, outputs, offsets, tuple(seeds), report)


class _Adam:
    """Adam on a few stacked tensors: what is one network's never meets another's."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors, self.count = tensors, 0
        self.first = [torch.zeros_like(t) for t in tensors]
        self.second = [torch.zeros_like(t) for t in tensors]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], rate: float) -> None:
        self.count += 1
        late, early = 1 - 0.9**self.count, 1 - 0.999**self.count
        for tensor, gradient, first, second in zip(
            self.tensors, gradients, self.first, self.second, strict=True
        ):
            first.mul_(0.9).add_(gradient, alpha=0.1)
            second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            tensor.sub_(rate / late * first / ((second / early).sqrt() + 1e-8))


def _initial(form: str, width: int, generators: Sequence[torch.Generator]) -> list[Tensor]:
    """Normal weights; those of the output are divided by the root of the number of units."""
    units = width if form == SYMMETRIC else 2 * width

    def stack(*shape: int) -> Tensor:
        each = [torch.randn(shape, dtype=torch.float64, generator=g) for g in generators]
        return torch.stack(each)

    weights, biases, outputs = stack(units, 2) * HALF, 0.1 * stack(units), stack(units)
    tensors = [weights, biases, outputs / math.sqrt(2 * width), 0 * stack(1)[:, 0]]
    return [tensor.requires_grad_() for tensor in tensors]


def _batches(
    law: str, steps: int, batch: int, generators: Sequence[torch.Generator]
) -> Iterator[Tensor]:
    """K x batch x 2 for every step."""
    spec = LAWS.spec(law)
    for start in range(0, steps, BLOCK):
        shape = (min(BLOCK, steps - start), batch, 2)
        drawn = [LAWS.call(spec, shape=shape, generator=g) for g in generators]
        yield from torch.stack(drawn, 1)


def _cumulant_loss(y: Tensor, target: Tensor) -> Tensor:
    """The sum of squared differences of k1 to k4, network by network."""
    ours, theirs = _row_cumulants(y), _row_cumulants(target)
    return (ours - theirs).square().sum(0)


def _row_cumulants(values: Tensor) -> Tensor:
    """k1 to k4 of every row: 4 x K."""
    mean = values.mean(1)
    c = values - mean[:, None]
    second = c.square().mean(1)
    third, fourth = (c**3).mean(1), (c**4).mean(1) - 3 * second**2
    return torch.stack([mean, second, third, fourth])


def _check(**counts: int) -> None:
    for name, value in counts.items():
        if type(value) is not int or value < 1:
            raise RecipeError(f"{name} is {shortened(value)}: expected a whole number from 1")
