"""Choose how convolutional networks are trained on CIFAR-10: by validation samples, never by tests.

    python benchmarks/experiments/cifar_choice.py --models fastnet 'resnet18(16)' \\
        --recipes '{learning_rate: 0.4}' '{learning_rate: 0.8}'
    python benchmarks/experiments/cifar_choice.py --models vgg11 --kinds modules \\
        --recipes '{learning_rate: 0.2}' '{learning_rate: 0.2, batches: balanced(4), epochs: 48}'

A recipe is what is set otherwise than in the studies' own. With each the joint network is trained,
and the modules of one class each, whose logits are added. The last twentieth of the training
samples of every class validates, as they are and as means over mirror images. Results go to
docs/results/NAME.json, after every training.
"""

import argparse
import time
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
        "recipes": {text: yaml.safe_load(text) for text in options.recipes},
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
