"""Laws: distributions of one number with mean 0 and variance 1, and their exact cumulants."""

import math
from typing import Any

import torch
from torch import Tensor

from intarsia.errors import DataError, RecipeError, shortened
from intarsia.files import stream
from intarsia.flow.cumulants import Cumulants
from intarsia.specs import Registry, is_number

LAWS = Registry("law", given=("shape", "generator"), cumulants=(0.0, 1.0, 0.0, 0.0))
"""Laws by name: functions of a shape and a generator; the trait `cumulants` has orders 1 to 4,
as numbers or as a function of the settings."""

MOST = 2**28  # numbers of a draw


def draw(law: str, *shape: int, seed: int = 0) -> Tensor:
    """Independent numbers of a law, float64; the same for the same law, shape and seed."""
    if not shape or any(type(size) is not int or size < 1 for size in shape):
        raise DataError(f"the shape is {shortened(shape)}: expected whole numbers from 1")
    if math.prod(shape) > MOST:
        raise DataError(f"{math.prod(shape):,} numbers are asked for: expected at most {MOST:,}")
    spec = LAWS.spec(law)
    generator = torch.Generator().manual_seed(stream("flow law", str(spec), seed))
    numbers: Tensor = LAWS.call(spec, shape=shape, generator=generator)
    return numbers


def law_cumulants(law: str) -> Cumulants:
    """The exact cumulants of a law, orders 1 to 4."""
    spec = LAWS.spec(law)
    trait: Any = LAWS[spec.name].cumulants
    values = trait(**LAWS.settings(spec)) if callable(trait) else trait
    numbers = tuple(torch.tensor([float(value)], dtype=torch.float64) for value in values)
    return Cumulants(numbers, diagonal=True)


@LAWS.register("exponential", cumulants=(0.0, 1.0, 2.0, 6.0))
def exponential(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """An exponential waiting time less its mean."""
    drawn = torch.empty(shape, dtype=torch.float64)
    return drawn.exponential_(1.0, generator=generator) - 1


@LAWS.register("uniform", cumulants=(0.0, 1.0, 0.0, -1.2))
def uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Evenly between minus and plus the root of 3."""
    drawn = torch.rand(shape, dtype=torch.float64, generator=generator)
    return (2 * drawn - 1) * math.sqrt(3)


@LAWS.register("laplace", cumulants=(0.0, 1.0, 0.0, 3.0))
def laplace(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """The difference of two exponential times, over the root of 2."""
    one, other = exponential(shape, generator), exponential(shape, generator)
    return (one - other) / math.sqrt(2)


def _bernoulli_cumulants(p: float) -> tuple[float, float, float, float]:
    variance = _probability(p) * (1 - p)
    return 0.0, 1.0, (1 - 2 * p) / math.sqrt(variance), (1 - 6 * variance) / variance


@LAWS.register("bernoulli", cumulants=_bernoulli_cumulants)
def bernoulli(shape: tuple[int, ...], generator: torch.Generator, p: float = 0.2) -> Tensor:
    """A coin that shows 1 with probability `p`, less its mean, over its standard deviation."""
    drawn = torch.rand(shape, dtype=torch.float64, generator=generator) < _probability(p)
    return (drawn.double() - p) / math.sqrt(p * (1 - p))


@LAWS.register("gaussian")
def gaussian(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """The normal distribution, the fixed point of the flow."""
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def _probability(p: float) -> float:
    if not is_number(p) or not 0 < p < 1:
        raise RecipeError(
            f"law 'bernoulli' has p {shortened(p)}: expected a number between 0 and 1"
        )
    return p
