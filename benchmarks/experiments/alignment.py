"""Does alignment find permutations that were planted on every hidden axis?

    python benchmarks/experiments/alignment.py

permutes all hidden units of a network with random weights and random BatchNorm statistics, adds
noise (a fraction of each tensor's spread), and aligns the result to the original. A permutation
counts as recovered only if every unit of every hidden axis is. Results go to
docs/results/alignment.json.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import scipy
import torch
from torch import Tensor

from benchmarks.record import RESULTS, made_by, save
from intarsia.composition.alignment.align import How, unit_orders
from intarsia.data import Scaling
from intarsia.models import initialise, wiring_of
from intarsia.models.wiring import axis_sizes, hidden_axes, take_units
from intarsia.modules import Architecture, Module

CATALOGUE = tuple("0123456789")
MODELS = {
    "mlp(512)": (1, 28, 28),
    "mlp(512, 256)": (1, 28, 28),
    "lenet": (1, 28, 28),
    "resnet18(8)": (3, 16, 16),
}
NOISES = (0.0, 0.01, 0.1)
HOWS: tuple[How, ...] = ("weights", "activations")
SAMPLES = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--planted", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = [
        measured(model, shape, how, noise, options.planted)
        for model, shape in MODELS.items()
        for how in HOWS
        for noise in NOISES
    ]
    result = {
        **made_by(__file__, "--planted", options.planted, scipy=scipy.__version__),
        "samples": SAMPLES,
        "rows": rows,
    }
    save(options.out, "alignment", result)


def measured(
    model: str, shape: tuple[int, ...], how: How, noise: float, planted: int
) -> dict[str, Any]:
    """How many of the planted permutations come out, and how long one takes."""
    result, seconds = [], 0.0
    for seed in range(planted):
        trial = plant(model, shape, noise, seed)
        begin = time.perf_counter()
        orders = recover(*trial[:2], how, seed)
        seconds += time.perf_counter() - begin
        result.append([torch.equal(orders[axis], trial[2][axis]) for axis in orders])
    row = {
        "model": model,
        "shape": list(shape),
        "how": how,
        "noise": noise,
        "axes": len(result[0]),
        "planted": planted,
        "recovered": sum(all(axes) for axes in result),
        "axes_recovered": sum(map(sum, result)),
        "seconds": round(seconds / planted, 4),
    }
    print(json.dumps(row), flush=True)
    return row


def plant(
    model: str, shape: tuple[int, ...], noise: float, seed: int
) -> tuple[Module, Module, dict[str, Tensor]]:
    """A module, a noisy copy with its units in random order, and the orders that undo that."""
    generator = torch.Generator().manual_seed(seed)
    network = initialise(model, shape, len(CATALOGUE), seed)
    wiring = wiring_of(network, shape)
    state = scattered(network.state_dict(), 0.1, generator)
    module = Module(
        name="original",
        state=state,
        mask={},
        rewarded=CATALOGUE[:1],
        catalogue=CATALOGUE,
        architecture=Architecture.of(model, shape, len(CATALOGUE)),
        scaling=Scaling("unit", torch.tensor(0.0), torch.tensor(1.0)),
        temperature=1.0,
        origin="0" * 64,
    )
    sizes = axis_sizes(wiring, state)
    orders = {a: torch.randperm(sizes[a], generator=generator) for a in hidden_axes(wiring)}
    copy = take_units(scattered(state, noise, generator), wiring, orders)
    undo = {axis: order.argsort() for axis, order in orders.items()}
    return module, replace(module, name="copy", state=copy), undo


def scattered(
    state: dict[str, Tensor], noise: float, generator: torch.Generator
) -> dict[str, Tensor]:
    """Every value moved by a fraction of its tensor's spread, or of 1 where all are equal."""
    result = {}
    for name, tensor in state.items():
        if not tensor.is_floating_point():
            result[name] = tensor.clone()
            continue
        spread = float(tensor.std(correction=0)) or 1.0
        moved = tensor + noise * spread * torch.randn(tensor.shape, generator=generator)
        result[name] = moved.abs() if name.endswith("running_var") else moved
    return result


def recover(original: Module, copy: Module, how: How, seed: int) -> dict[str, Tensor]:
    """The orders that align the copy to the original."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(SAMPLES, *original.architecture.shape, generator=generator)
    return unit_orders([original, copy], how, x)[1]


if __name__ == "__main__":
    main()
