"""Measure what is known of the published pattern networks, and of fits to them, against our aims.

    python benchmarks/experiments/sweetspot_facts.py
    python benchmarks/experiments/sweetspot_facts.py --parts dense,depth --device cuda

needs the networks of arXiv 2505.11581 in the folder `cppn` of INTARSIA_DATA. Parts:
  rendering   mean squared error of what layers and genome draw at 256 pixels to the published image
  inflation   how well inflation tells the evolved network from its twin: AUC, for each sign seed
  maps        distinct maps of both
  png         PNG bytes over raw ones of the evolved networks' pictures, by size
  dense       losses of networks of the skull's layout, with and without a cosine schedule
  depth       the same with fewer and more layers, on pixels drawn for each step
  wiring      losses of the evolved wiring, trained again from random weights
Every part is written to docs/results/sweetspot_facts.json once it is measured, and others that are
there already stay as they are.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import RESULTS, made_by, save
from intarsia.sweetspot import (
    distinct_maps,
    fit,
    inflation,
    initial_bank,
    load_genome,
    load_network,
    png_ratio,
    prune,
    published_picture,
)
from intarsia.sweetspot.pictures import png_encoder
from intarsia.sweetspot.targets import PUBLISHED, TWIN

NAME = "sweetspot_facts"
SIGNS, SCORED, WEIGHTS = 5, 48, 200  # sign seeds; pixels along an edge; weights of each network
SIZES = (256, 128, 64, 32)
SIZE, SEEDS = 32, 8  # of fits
DENSE_STEPS, WIRING_STEPS = 6000, 5000
SCHEDULES = ("constant", "cosine")
DEPTHS, DEPTH_STEPS, DEPTH_PIXELS = (8, 10, 11, 12, 13, 14, 16), 3000, 320


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="parted by commas")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(1)
    path = options.out / f"{NAME}.json"
    parts = json.loads(path.read_text())["parts"] if path.exists() else {}
    for name in options.parts.split(","):
        began = time.process_time()
        measured = PARTS[name](options.device)
        seconds = round(time.process_time() - began, 1)
        parts[name] = {**measured, "device": options.device, "processor_seconds": seconds}
        head = made_by(__file__, machine="CPU, one thread" if options.device == "cpu" else None)
        ordered = {part: parts[part] for part in PARTS if part in parts}
        save(options.out, NAME, head | {"encoder": png_encoder(), "parts": ordered})
        print(name, parts[name], flush=True)


def rendering(device: str) -> dict[str, Any]:
    """Errors of the evolved network as layers and as a genome, and of its twin."""
    rows = {}
    for name in PUBLISHED:
        image = published_picture(name)
        network, twin = load_network(name), load_network(name + TWIN)
        drawn = {"layers": network, "genome": load_genome(name), "twin": twin}
        rows[name] = {
            "depth": network.layout.depth,
            "parameters": network.layout.parameters,
            "nonzero": network.nonzero,
            "errors": {how: _error(what.image(256), image) for how, what in drawn.items()},
        }
    return {"size": 256, "targets": rows}


def separation(device: str) -> dict[str, Any]:
    """Medians of both networks and the AUC between them, sign seed by sign seed."""
    rows = {}
    for name in PUBLISHED:
        evolved, twin, auc = [], [], []
        for seed in range(SIGNS):
            how: dict[str, Any] = {"size": SCORED, "weights": WEIGHTS, "seed": seed}
            one = inflation(load_network(name), device=device, **how)
            other = inflation(load_network(name + TWIN), device=device, **how)
            evolved.append(round(one.median, 4))
            twin.append(round(other.median, 4))
            auc.append(round(one.auc(other), 4))
        rows[name] = {"evolved": evolved, "twin": twin, "auc": auc}
    return {"size": SCORED, "weights": WEIGHTS, "targets": rows}


def maps(device: str) -> dict[str, Any]:
    """Distinct maps, and all maps that change, of the evolved network and its twin."""
    rows = {}
    for name in PUBLISHED:
        both = {"evolved": distinct_maps(load_network(name), SCORED)}
        both["twin"] = distinct_maps(load_network(name + TWIN), SCORED)
        rows[name] = {who: {"distinct": m.count, "of": m.total} for who, m in both.items()}
    return {"size": SCORED, "targets": rows}


def png(device: str) -> dict[str, Any]:
    """Ratios of the evolved networks' pictures by size, and of the published image."""
    rows = {}
    for name in PUBLISHED:
        network = load_network(name)
        rows[name] = {
            "depth": network.layout.depth,
            "image": round(png_ratio(published_picture(name)), 4),
            "by_size": {str(size): round(png_ratio(network.image(size)), 4) for size in SIZES},
        }
    return {"targets": rows}


def dense(device: str) -> dict[str, Any]:
    """Losses of dense networks, by schedule of the learning rate."""
    losses = {
        schedule: _losses(fit("skull", steps=DENSE_STEPS, schedule=schedule, **_how(device)))
        for schedule in SCHEDULES
    }
    return {"size": SIZE, "steps": DENSE_STEPS, "losses": losses}


def depth(device: str) -> dict[str, Any]:
    """Losses by the number of hidden layers, by schedule."""
    how = {"steps": DEPTH_STEPS, "pixels": DEPTH_PIXELS, **_how(device)}
    losses = {
        schedule: {
            str(layers): _losses(fit("skull", depth=layers, schedule=schedule, **how))
            for layers in DEPTHS
        }
        for schedule in SCHEDULES
    }
    return {"size": SIZE, "steps": DEPTH_STEPS, "pixels": DEPTH_PIXELS, "losses": losses}


def wiring(device: str) -> dict[str, Any]:
    """Losses of the evolved wiring with random weights that are trained, copies too or held."""
    evolved = load_network("skull")
    how = _how(device)
    start = initial_bank(evolved.layout, how.pop("seeds"))
    losses = {}
    for copies in ("trained", "held"):
        arm = f"evolved(copies='{copies}')"
        bank = prune(start, arm, wiring=evolved, image="skull", steps=WIRING_STEPS, **how)
        losses[copies] = _losses(bank)
    return {"size": SIZE, "steps": WIRING_STEPS, "weights": evolved.nonzero, "losses": losses}


PARTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "rendering": rendering,
    "inflation": separation,
    "maps": maps,
    "png": png,
    "dense": dense,
    "depth": depth,
    "wiring": wiring,
}


def _how(device: str) -> dict[str, Any]:
    return {"seeds": SEEDS, "size": SIZE, "device": device, "progress": False}


def _error(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(f"{float((one - other).square().mean()):.4g}")


def _losses(bank: Any) -> list[float]:
    return [float(f"{loss:.4g}") for loss in bank.losses]


if __name__ == "__main__":
    main()
