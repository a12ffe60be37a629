"""What the operators have in common: sums in a known order, weights and fractions."""

from collections.abc import Collection, Mapping, Sequence

from torch import Tensor

from intarsia.errors import RecipeError, shortened
from intarsia.modules.statistics import total
from intarsia.specs import is_number

Weights = float | Mapping[str, float]  # of the parts: one for all, or by name
Density = float | Mapping[str, float]  # likewise
ROUNDING = 1e-8  # of the sizes that were added: what is smaller is nothing
TOLERANCE = 1e-3  # of the logits' size: far above rounding, far below another function
LOUD = 2.0**20  # a power of 2, by which nothing is rounded


def mean(tensors: Sequence[Tensor]) -> Tensor:
    return total(tensors) / len(tensors)


def combination(weights: Sequence[float], tensors: Sequence[Tensor]) -> Tensor:
    """The sum of w_i t_i."""
    return total([tensor * weight for weight, tensor in zip(weights, tensors, strict=True)])


def combination_(weights: Sequence[float], tensors: Sequence[Tensor]) -> Tensor:
    """The same to the last bit, made in the tensors themselves."""
    joined, *others = (t if w == 1 else t.mul_(w) for w, t in zip(weights, tensors, strict=True))
    for other in others:
        joined.add_(other)
    return joined


def normalised(weights: Sequence[float], operator: str) -> list[float]:
    """The weights divided by their sum."""
    divisor = sum(weights)
    if abs(divisor) <= ROUNDING * sum(map(abs, weights)):
        raise RecipeError(
            f"{operator}: the weights {list(weights)} add up to 0 and cannot be normalised: give "
            "others, or leave normalise out"
        )
    return [weight / divisor for weight in weights]


def off_the_sum(joined: Tensor, logits: Sequence[Tensor]) -> float | None:
    """How far logits are at most off the sum of others; None where that is but rounding."""
    off = float((joined - total(logits)).abs().max())
    size = float(total([z.abs() for z in logits]).max())
    return None if off <= TOLERANCE * max(size, TOLERANCE) else off


def louder(
    states: Sequence[Mapping[str, Tensor]], names: Collection[str]
) -> list[dict[str, Tensor]]:
    """The states with the weights of the outputs made large, of one sign and the other in turn.

    Logits that are sums of weighted units follow, and still add up. Those that are clamped,
    squashed or rectified do so only while they are small or of one sign.
    """
    factors = [LOUD if place % 2 == 0 else -LOUD / 2 for place in range(len(states))]
    return [
        {name: tensor * factor if name in names else tensor for name, tensor in state.items()}
        for state, factor in zip(states, factors, strict=True)
    ]


def check_fraction(operator: str, setting: str, value: float, *, zero: bool = False) -> None:
    """A fraction of the entries or rows: at most 1, and above 0 unless `zero` may be."""
    if not 0 <= value <= 1 or (value == 0 and not zero):
        bounds = "from 0" if zero else "above 0"
        raise RecipeError(f"{operator}: {setting} is {value}: expected a fraction {bounds} to 1")


def check_density(operator: str, density: Density, *, zero: bool = False) -> None:
    """A fraction of the entries, the same for all parts or by name."""
    for value in density.values() if isinstance(density, Mapping) else (density,):
        if not is_number(value):
            raise RecipeError(f"{operator}: density is {shortened(value)}: expected a number")
        check_fraction(operator, "density", value, zero=zero)
