"""Choose how convolutional networks are trained on CIFAR-10: by validation samples, never by tests.

    python benchmarks/experiments/cifar_choice.py --models fastnet 'resnet18(16)' \\
        --recipes '{learning_rate: 0.4}' '{learning_rate: 0.8}'
    python benchmarks/experiments/cifar_choice.py --models vgg11 --kinds modules \\
        --recipes '{learning_rate: 0.2}' '{learning_rate: 0.2, batches: balanced(4), epochs: 48}'

A recipe is what is set otherwise than in the studies' own. With each the joint network is trained,
and the modules of one class each, whose logits are added. The last twentieth of the training
samples of every class validates, as they are and as means over mirror images. Results go to
docs/results/NAME.json, after every training; with --workers, several at once have one GPU.
"""

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from shlex import quote
from typing import Any

import yaml

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save
from intarsia.studies.maxent.shared.baselines import UNPRUNED, right
from intarsia.studies.scale.bank_logits import SplitLogits
from intarsia.studies.scale.recipes import RECIPE, SHARED
from intarsia.training.job import device_of

KINDS = ("joint", "modules")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--models", nargs="+", default=["fastnet"])
    parser.add_argument("--recipes", nargs="+", default=["{}"], help="settings, as YAML")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--balance", type=float, default=RECIPE["balance"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int, default=1, help="trainings at once")
    parser.add_argument("--name", default="cifar_choice", help="of the JSON file")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    words = [
        *("--data", options.data, "--models", *map(quote, options.models)),
        *("--recipes", *map(quote, options.recipes), "--kinds", *options.kinds),
        *("--epochs", options.epochs, "--seed", options.seed, "--name", options.name),
        *(("--workers", options.workers) if options.workers > 1 else ()),
    ]
    result = {
        **made_by(__file__, *words),
        "data": options.data,
        "recipe": {**RECIPE, "epochs": options.epochs, "balance": options.balance},
        "recipes": {text: yaml.safe_load(text) for text in options.recipes},
        "seed": options.seed,
        "rows": [],
    }
    if options.workers > 1:
        result["workers"] = options.workers
    for row in rows(options):
        print(row, flush=True)
        result["rows"].append(row)
        save(options.out, options.name, result)


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each model, recipe and kind, in this order."""
    every = list(product(options.models, options.recipes, options.kinds))
    train_row = partial(trained, options)
    if options.workers == 1:
        yield from map(train_row, every)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, spawn) as pool:
        yield from pool.map(train_row, every)


def trained(options: argparse.Namespace, what: tuple[str, str, str]) -> dict[str, Any]:
    """One joint network or ten modules: validation accuracy and seconds, with all that is once."""
    model, name, kind = what
    data = ia.load_data(options.data, validation=0.05)
    own: dict[str, Any] = {}
    if kind == "joint":
        own = {"objective": SHARED["joint_objective"], "partition": [data.catalogue]}
    recipe = {
        **RECIPE,
        "epochs": options.epochs,
        "balance": options.balance,
        **yaml.safe_load(name),
    }
    began = time.perf_counter()
    bank = ia.train(
        data,
        model=model,
        preset="paper",
        seeds=[options.seed],
        device=options.device,
        progress=False,
        **{**UNPRUNED, **own, **recipe},
    )
    seconds = time.perf_counter() - began
    facts = {"model": model, "recipe": name, "kind": kind, "seconds": round(seconds, 1)}
    facts |= {"engine": str(bank.report.get("engine")), "diverged": list(bank.diverged)}
    device = device_of(options.device)
    if bank.diverged:
        return facts
    for word, flips in (("validation", False), ("with mirror images", True)):
        if kind == "joint":
            score = right(bank[0].to_module().to(device), data.validation, flips)
        else:
            score = SplitLogits.of(bank, data.validation, device, flips).added()
        facts[word] = round(score, 4)
    return facts


if __name__ == "__main__":
    main()
