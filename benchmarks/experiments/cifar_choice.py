"""Choose how convolutional networks are trained on CIFAR-10: by validation samples, never by tests.

    python benchmarks/experiments/cifar_choice.py --models fastnet 'resnet18(16)' --recipes adam sgd

Every recipe trains the joint network and the ten modules of one class each, whose logits are added;
the last twentieth of the training samples of every class validates, as they are and as means over
mirror images. Results go to docs/results/cifar_choice.json, after every training.
"""

import argparse
import time
from pathlib import Path
from shlex import quote
from typing import Any

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save
from intarsia.studies.maxent.shared.baselines import UNPRUNED, right
from intarsia.studies.scale.bank_logits import SplitLogits
from intarsia.studies.scale.recipes import RECIPE, SHARED
from intarsia.training.job import device_of

# What each has otherwise than the study's own recipe.
RECIPES: dict[str, dict[str, Any]] = {
    "adam": {"learning_rate": 1e-3, "schedule": "cosine", "optimiser": "adam"},
    "adam 3e-3": {"learning_rate": 3e-3, "optimiser": "adam"},
    "adamw": {"learning_rate": 2e-3, "optimiser": "adamw(decay=0.05)"},
    "sgd 0.05": {"learning_rate": 0.05},
    "sgd 0.1": {"learning_rate": 0.1},
    "sgd 0.2": {"learning_rate": 0.2},
    "sgd 0.4": {"learning_rate": 0.4},
    "sgd 0.8": {"learning_rate": 0.8},
    "sgd 1.6": {"learning_rate": 1.6},
    "sgd 3.2": {"learning_rate": 3.2},
    "sgd 0.8 more": {"learning_rate": 0.8, "optimiser": "sgd(decay=0.01)"},
    "sgd 0.8 less": {"learning_rate": 0.8, "optimiser": "sgd(decay=0.0025)"},
}
KINDS = ("joint", "modules")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--models", nargs="+", default=["fastnet"])
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES), choices=list(RECIPES))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--balance", type=float, default=RECIPE["balance"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--name", default="cifar_choice", help="of the JSON file")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    data = ia.load_data(options.data, validation=0.05)
    words = [
        *("--data", options.data, "--models", *map(quote, options.models)),
        *("--recipes", *map(quote, options.recipes), "--kinds", *options.kinds),
        *("--epochs", options.epochs, "--seed", options.seed, "--name", options.name),
    ]
    result = {
        **made_by(__file__, *words),
        "data": options.data,
        "recipe": {**RECIPE, "epochs": options.epochs, "balance": options.balance},
        "recipes": {name: RECIPES[name] for name in options.recipes},
        "seed": options.seed,
        "rows": [],
    }
    for model in options.models:
        for name in options.recipes:
            for kind in options.kinds:
                row = trained(options, data, model, name, kind)
                print(row, flush=True)
                result["rows"].append(row)
                save(options.out, options.name, result)


def trained(
    options: argparse.Namespace, data: ia.Data, model: str, name: str, kind: str
) -> dict[str, Any]:
    """One joint network or ten modules: validation accuracy and seconds, with all that is once."""
    own: dict[str, Any] = {}
    if kind == "joint":
        own = {"objective": SHARED["joint_objective"], "partition": [data.catalogue]}
    recipe = {**RECIPE, "epochs": options.epochs, "balance": options.balance, **RECIPES[name]}
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
