"""Class modules of graph networks: joined without training, against joint training.

    INTARSIA_DATA=... python benchmarks/experiments/graph_modules.py

Cora's and CiteSeer's largest components, a random split for each seed with 20 training nodes per
class. One maximum-entropy module per class, and one network of all classes, by the same training:
transductive, the same network, the same grid of settings, of which each takes by seed what
validates best. Joined by logits and by inlay; then a class is removed, which must leave the other
modules and their logits bit for bit, and put back. Results go to docs/results/graph_modules.json.
"""

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save
from intarsia.errors import HealthWarning
from intarsia.graphs import NodeData, load_nodes
from intarsia.graphs.class_modules import (
    NodeModel,
    joint_partition,
    node_splits,
    train_class_modules,
)

PER_CLASS = 20
GRID: tuple[dict[str, Any], ...] = (
    {"optimiser": "adamw(decay=0.05)"},
    {"optimiser": "adamw(decay=0.5)"},
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", default=["cora", "citeseer"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    words = ["--sets", *options.sets, "--seeds", options.seeds, "--epochs", options.epochs]
    result = made_by(__file__, *words, machine="CPU, 1 thread") | {
        "per_class": PER_CLASS, "epochs": options.epochs, "grid": list(GRID), "rows": rows,
    }  # fmt: skip
    torch.set_num_threads(1)
    for name in options.sets:
        nodes = load_nodes(name).largest_component()
        for seed in range(options.seeds):
            rows.append(measure(nodes.resplit(seed, PER_CLASS), seed, options.epochs))
            print(rows[-1], flush=True)
            save(options.out, "graph_modules", result)


def measure(nodes: NodeData, seed: int, epochs: int) -> dict[str, Any]:
    """Test accuracies of one seed, and what a removal leaves."""
    began, data, model = time.process_time(), node_splits(nodes), NodeModel(nodes)
    settings: dict[str, Any] = {"model": model, "seed": seed, "epochs": epochs}
    joint = chosen(nodes, data, settings | {"partition": joint_partition(nodes)})
    bank = chosen(nodes, data, settings)
    whole = ia.compose(bank, "logits")
    inlay = ia.compose(bank, "inlay")
    row = {
        "set": nodes.name,
        "seed": seed,
        "classes": nodes.classes,
        "joint": accuracy(ia.compose(joint, "logits"), data.test),
        "logits": accuracy(whole, data.test),
        "inlay": accuracy(inlay, data.test),
        "inlay_off": float((logits(whole, data) - logits(inlay, data)).abs().max()),
        "decay": {"joint": decay_of(joint), "modules": decay_of(bank)},
        "removed": removal(bank, data),
    }
    return row | {"seconds": round(time.process_time() - began, 1)}


def chosen(nodes: NodeData, data: ia.Data, settings: dict[str, Any]) -> ia.Bank:
    """Of the grid, the bank whose sum of logits validates best."""
    best: tuple[float, ia.Bank] | None = None
    for more in GRID:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HealthWarning)  # of one class against six: expected
            bank = train_class_modules(nodes, **settings, **more)
        score = accuracy(ia.compose(bank, "logits"), data.validation)
        if best is None or score > best[0]:
            best = (score, bank)
    assert best is not None
    return best[1]


def removal(bank: ia.Bank, data: ia.Data) -> dict[str, Any]:
    """Each class removed in turn: accuracy on the others before and after, and what is the same."""
    before, after, equal, back = [], [], [], []
    for module in bank:
        (own,) = module.rewarded
        others = [c for c in data.catalogue if c != own]
        rows = data.test.select([data.catalogue.index(c) for c in others])
        kept = [m for m in bank if m.name != module.name]
        whole, plain = ia.compose(bank, "logits"), ia.compose(kept, "logits")
        before.append(ia.evaluate(whole, rows, rewarded=others).accuracy)
        without = whole.remove(own)
        after.append(ia.evaluate(without, rows, rewarded=others).accuracy)
        equal.append(torch.equal(logits(without, data), logits(plain, data)))
        anew = ia.compose([*kept, module], "logits")
        back.append(torch.equal(logits(without.add(module), data), logits(anew, data)))
    return {
        "others_before": float(np.mean(before)), "others_after": float(np.mean(after)),
        "bit_identical": all(equal), "added_bit_identical": all(back),
    }  # fmt: skip


def accuracy(model: Any, split: ia.Split) -> float:
    return float(ia.evaluate(model, split).accuracy)


def logits(model: Any, data: ia.Data) -> torch.Tensor:
    with torch.no_grad():
        answers: torch.Tensor = model(data.test.x)
    return answers


def decay_of(bank: ia.Bank) -> str:
    return str(bank[0].provenance["recipe"]["optimiser"])


if __name__ == "__main__":
    main()
