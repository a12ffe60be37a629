"""How high is the barrier between two separately trained small ViTs, before and after alignment?

    python benchmarks/experiments/vit_barrier.py --pairs 3 --device cuda

trains two vision transformers that differ in their seed on all classes, aligns the second to the
first by weights and by activations of validation samples, and measures cross-entropy and accuracy
of test samples on the straight line between them. The barrier is the highest loss on it above the
line between the two ends' losses. Where units are moved the end of the line is the same function;
how far its logits are off is recorded, and how many units are moved. An alignment that is refused
is recorded with its reason. Results go to docs/results/vit_barrier.json.
"""

import argparse
import platform
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save
from intarsia.composition.alignment.align import How, unit_orders
from intarsia.data import Data
from intarsia.errors import IntarsiaError
from intarsia.modules import Module

POINTS = 21
SAMPLES = 1024  # whose activations are matched
MODEL = "vit(patch={}, width={}, depth={}, heads=4)"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="fashion_mnist")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=3, help="of seeds, each trained")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    data = ia.load_data(options.data)
    patch = 7 if data.shape[-1] % 7 == 0 else 2
    model = MODEL.format(patch, options.width, options.depth)
    rows = [
        row
        for pair in range(options.pairs)
        for row in measured(data, model, options.epochs, (2 * pair, 2 * pair + 1), options.device)
    ]
    settings = [
        word for name in ("data", "epochs", "pairs", "width", "depth", "device")
        for word in (f"--{name}", getattr(options, name))
    ]  # fmt: skip
    machine = f"CPU, {platform.machine()}" if options.device == "cpu" else None
    result = {
        **made_by(__file__, *settings, machine=machine),
        "data": options.data,
        "model": model,
        "epochs": options.epochs,
        "samples": SAMPLES,
        "rows": rows,
    }
    save(options.out, "vit_barrier", result)


def measured(
    data: Data, model: str, epochs: int, seeds: tuple[int, int], device: str
) -> list[dict[str, Any]]:
    """The line between two networks as they are, and after each way of aligning them."""
    first, second = (trained(data, model, epochs, seed, device) for seed in seeds)
    samples = data.scaling(data.validation.x[:SAMPLES])
    rows = [{"seeds": list(seeds), "aligned": "none", **line(first, second, data, device)}]
    for how in get_args(How):
        row: dict[str, Any] = {"seeds": list(seeds), "aligned": how}
        try:
            _, moved = ia.align([first, second], how, samples if how == "activations" else None)
        except IntarsiaError as error:
            rows.append({**row, "refused": str(error)})
            continue
        orders = unit_orders([first, second], how, samples if how == "activations" else None)
        places = [order != torch.arange(len(order)) for order in orders[1].values()]
        x = samples[:256]
        off = answers(moved, dict(moved.state), x, "cpu") - answers(
            second, dict(second.state), x, "cpu"
        )
        row["moved"] = float(torch.cat(places).float().mean())
        row["function_off"] = float(off.abs().max())
        rows.append({**row, **line(first, moved, data, device)})
    return rows


def trained(data: Data, model: str, epochs: int, seed: int, device: str) -> Module:
    """A network of its own initial weights that answers all classes, by cross-entropy."""
    bank = ia.train(
        data,
        model=model,
        objective="xe",
        partition=[list(data.catalogue)],
        seeds=[seed],
        sparsity=0.0,
        rounds=0,
        epochs=epochs,
        batch=128,
        batches="all",
        negatives="none",
        balance=0.0,
        silent=False,
        learning_rate=1e-3,
        device=device,
        progress=False,
    )
    return bank[0]


def line(a: Module, b: Module, data: Data, device: str) -> dict[str, Any]:
    """Loss and accuracy on the test samples at evenly spaced points from a to b."""
    x, y = data.scaling(data.test.x), data.test.y
    places = torch.linspace(0, 1, POINTS).tolist()
    losses, accuracies = [], []
    for t in places:
        state = {name: torch.lerp(own, b.state[name], t) for name, own in a.state.items()}
        logits = answers(a, state, x, device)
        losses.append(float(torch.nn.functional.cross_entropy(logits, y)))
        accuracies.append(float((logits.argmax(1) == y).float().mean()))
    above = [
        loss - (1 - t) * losses[0] - t * losses[-1] for t, loss in zip(places, losses, strict=True)
    ]
    middle = accuracies[POINTS // 2]
    return {"barrier": max(above), "middle": middle, "loss": losses, "accuracy": accuracies}


@torch.no_grad()
def answers(module: Module, state: dict[str, Tensor], x: Tensor, device: str) -> Tensor:
    network = module.architecture.network(state, module.factory).to(device)
    return torch.cat([network(some.to(device)).cpu() for some in x.split(512)])


if __name__ == "__main__":
    main()
