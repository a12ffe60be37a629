"""The central limit theorem as a flow: x' = (x1 + x2) / sqrt 2, exactly or by a network.

Densities go to p'(x) = sqrt 2 times the integral of p(sqrt 2 x - y) p(y) over y, cumulants to
k_r' = 2^(1 - r/2) k_r; the fixed points are the centred Gaussians.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from intarsia.errors import DataError, ModelError, shortened
from intarsia.files import plain, stream
from intarsia.flow.cumulants import Cumulants, cumulants, samples_of
from intarsia.flow.laws import draw, law_cumulants
from intarsia.flow.pair_networks import HALF
from intarsia.measure.evaluation import Renderable

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

EXACT = "exact"  # in place of a network: the step itself
LEAST = 8  # samples that a step must leave
BATCH = 2**18  # pairs at a time through a network

Step = Callable[[Tensor], Any]


def clt_step(start: Cumulants) -> Cumulants:
    """The cumulants after a step of the flow: order r is scaled by 2^(1 - r/2).

    Of several dimensions each sum is taken by dimension, and whole tensors scale alike.
    """
    if not isinstance(start, Cumulants):
        raise DataError(f"{shortened(start)} are not cumulants: make them by cumulants(x)")
    values = tuple(value * 2 ** (1 - r / 2) for r, value in enumerate(start.values, start=1))
    return Cumulants(values, start.diagonal, start.count, start.unbiased)


@dataclass(frozen=True, eq=False)
class FlowTrace(Renderable):
    """Cumulants of one number, step by step, and what the law of the flow says."""

    steps: Sequence[Cumulants]
    law: Sequence[Cumulants]
    resampled: bool = False

    def deviations(self) -> list[list[float | None]]:
        """By step and order, how many standard errors the flow is away from the law."""
        result: list[list[float | None]] = []
        for ours, law in zip(self.steps, self.law, strict=True):
            if ours.errors is None:
                result.append([None] * ours.order)
                continue
            gaps = [float((a - b).abs()) for a, b in zip(ours.values, law.values, strict=True)]
            sizes = [float(error) for error in ours.errors]
            result.append([g / e if e > 0 else None for g, e in zip(gaps, sizes, strict=True)])
        return result

    def to_json(self) -> dict[str, Any]:
        """Plain values, step by step."""
        rows = [
            {
                "step": step,
                "samples": ours.count,
                "cumulants": [float(value) for value in ours.values],
                "standard_errors": ours.errors and [float(error) for error in ours.errors],
                "law": [float(value) for value in law.values],
            }
            for step, (ours, law) in enumerate(zip(self.steps, self.law, strict=True))
        ]
        result: dict[str, Any] = plain({"resampled": self.resampled, "steps": rows}, "flow")
        return result

    def figure(self, title: str = "cumulants of the flow") -> "Figure":
        """k1 to k4 against the step, with the law as a line; orders by their size, logarithmic."""
        from intarsia.plots import cumulants_by_step

        rows = self.to_json()["steps"]
        return cumulants_by_step(
            {"network": {row["step"]: row["cumulants"] for row in rows}},
            {row["step"]: row["law"] for row in rows},
            title=title,
        )

    def __rich__(self) -> "Table":
        from rich import box
        from rich.table import Table

        drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for name in ("step", "samples", "k1", "k2", "k3", "k4"):
            drawn.add_column(name, justify="right", overflow="fold")
        for row in self.to_json()["steps"]:
            errors = row["standard_errors"] or [None] * 4
            pairs = zip(row["cumulants"], errors, strict=True)
            texts = ["-" if v is None else _with_error(v, e) for v, e in pairs]
            count = "-" if row["samples"] is None else f"{row['samples']:,}"
            below = [f"{own}\n{law:.4g}" for own, law in zip(texts, row["law"], strict=True)]
            drawn.add_row(str(row["step"]), f"{count}\nlaw", *below)
        return drawn


def iterate(
    network: "nn.Module | Step | str",
    start: Any,
    steps: int = 6,
    *,
    samples: int = 2**18,
    resample: bool = False,
    seed: int = 0,
) -> FlowTrace:
    """Let the flow run: pairs of samples through the network, its outputs paired anew, and so on.

    `network` takes N x 2 numbers to N; "exact" is the step itself. `start` is the name of a law, of
    which so many `samples` are drawn, samples of one number, or `Cumulants`, which go through the
    exact step alone, and exactly. A step halves the samples, so that they stay independent and
    standard errors hold; with `resample` each step draws as many pairs as there were samples, with
    replacement: they then depend on each other, and errors are too small. Cumulants from order 4 on
    need millions of samples. Samples that leave the range of numbers end the flow early.
    """
    if type(steps) is not int or steps < 1:
        raise DataError(f"steps is {shortened(steps)}: expected a whole number from 1")
    if isinstance(start, Cumulants):
        return _exact(network, start, steps)
    if isinstance(start, str):
        if type(samples) is not int or samples < LEAST:
            raise DataError(
                f"samples is {shortened(samples)}: expected a whole number from {LEAST}"
            )
        law, numbers = law_cumulants(start), draw(start, samples, seed=seed)
    else:
        numbers = _numbers(start)
        law = cumulants(numbers, diagonal=True, errors=False)
    if not resample and len(numbers) >> steps < LEAST:
        raise DataError(
            f"{len(numbers)} samples are too few: each of {steps} steps halves them, and "
            f"{LEAST} must be left; give {LEAST << steps}, or resample"
        )
    generator = torch.Generator().manual_seed(stream("flow iterate", seed))
    found, expected = [cumulants(numbers, diagonal=True)], [law]
    for _ in range(steps):
        numbers = _stepped(network, _pairs(numbers, resample, generator))
        try:
            found.append(cumulants(numbers, diagonal=True))
        except DataError:  # they left the range of numbers
            break
        expected.append(clt_step(expected[-1]))
    return FlowTrace(found, expected, resample)


def _exact(network: Any, start: Cumulants, steps: int) -> FlowTrace:
    if network != EXACT:
        raise DataError(
            "cumulants alone go through the exact step: give samples or the name of a law for a "
            'network, or network="exact"'
        )
    if start.dimensions != 1:
        raise DataError(f"the cumulants have {start.dimensions} dimensions: expected 1")
    weight = torch.full((1, 2), HALF, dtype=torch.float64)
    found, expected = [start.diagonals()], [start.diagonals()]
    for _ in range(steps):
        found.append(found[-1].independent(2).affine(weight).diagonals())
        expected.append(clt_step(expected[-1]))
    return FlowTrace(found, expected)


def _numbers(start: Any) -> Tensor:
    rows = samples_of(start)
    if rows.shape[1] != 1:
        raise DataError(
            f"the samples have {rows.shape[1]} dimensions: the flow is of one number, give N such"
        )
    return rows[:, 0]


def _pairs(numbers: Tensor, resample: bool, generator: torch.Generator) -> Tensor:
    if resample:
        places = torch.randint(len(numbers), (len(numbers), 2), generator=generator)
        return numbers[places]
    half = len(numbers) // 2
    return numbers[: 2 * half].reshape(half, 2)


def _stepped(network: Any, pairs: Tensor) -> Tensor:
    """One number for every pair."""
    if isinstance(network, str):
        if network != EXACT:
            raise ModelError(f'the network is {shortened(network)}: expected one, or "exact"')
        return HALF * pairs.sum(1)
    if not callable(network):
        raise ModelError(f"{shortened(network)} cannot be called: expected a network")
    tensor = next(iter(network.parameters()), None) if isinstance(network, nn.Module) else None
    like = pairs if tensor is None else tensor
    with torch.no_grad():
        parts = [torch.as_tensor(network(part.to(like))) for part in pairs.split(BATCH)]
    numbers = torch.cat([part.detach().cpu().double() for part in parts])
    if numbers.numel() != len(pairs):
        raise ModelError(
            f"the network gives {tuple(numbers.shape)} for {len(pairs)} pairs: expected a number "
            "for each"
        )
    return numbers.reshape(-1)


def _with_error(value: float, error: float | None) -> str:
    """A value to the first digit of its error, where that is a decimal."""
    if error is None:
        return f"{value:.4g}"
    decimals = -math.floor(math.log10(error)) if 0 < error < 1 else 0
    return (f"{value:.{decimals}f}" if decimals else f"{value:.4g}") + f" ± {error:.1g}"
