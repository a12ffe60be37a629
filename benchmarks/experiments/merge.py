"""How good are ten modules joined, against one network trained on all ten classes?

    python benchmarks/experiments/merge.py --choose  # dropout of each kind, on validation samples
    python benchmarks/experiments/merge.py  # the merges, on test samples
    python benchmarks/experiments/merge.py --models lenet --kinds joint territory ...

One module per class and seed, joined completely: territories by a sum of weights in a network of
the original shape, sparse modules as an inlay, the paper's modules both ways; a joint network of
the same shape for comparison.
"""

import argparse
import json
import statistics
import time
from functools import cache
from pathlib import Path
from typing import Any

import torch

import intarsia as ia
from benchmarks.experiments.banks import DATA, FOLDER, HIDDEN, bank_of, settings_of
from benchmarks.record import RESULTS, made_by, save, spread_of_all
from intarsia.modules import logits_of

MERGES = {
    "territory": ("sum",),
    "sparse": ("inlay", "sum"),
    "paper": ("inlay", "sum"),
    "released": ("inlay", "sum"),
}
SHARED = ("joint", "territory", "sparse", "paper")
CHOICES = (0.5, 0.2, 0.1, 0.0)
CHOOSE_BY = (11, 12)  # seeds that no reported number uses
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--models", nargs="+", default=list(HIDDEN))
    parser.add_argument("--kinds", nargs="+", default=list(SHARED))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--banks", type=Path, default=FOLDER)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="merge")
    options = parser.parse_args()
    rows = chosen(options) if options.choose else merges(options)
    name = "merge_choice" if options.choose else options.name
    save(options.out, name, {**made_by(__file__, *words(options)), "rows": rows})


def words(options: argparse.Namespace) -> list[object]:
    """What the command was given."""
    networks = ["--data", *options.data, "--models", *options.models]
    if options.choose:
        return ["--choose", *networks]
    return [*networks, "--kinds", *options.kinds, "--seeds", *options.seeds, "--name", options.name]


def chosen(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Accuracy on validation samples for every dropout: what the settings are chosen by."""
    rows = []
    for data in options.data:
        for model in options.models:
            for kind in ("territory", "sparse", "joint"):
                for dropout in CHOICES:
                    settings = settings_of(data, model, kind, dropout)
                    bank = ia.train(data, seeds=list(CHOOSE_BY), progress=False, **settings)
                    result = [
                        accuracy(ia.compose(bank.seed(s), "logits"), validation(data))
                        for s in CHOOSE_BY
                    ]
                    rows.append(
                        {"data": data, "model": model, "kind": kind, "dropout": dropout}
                        | {"n": len(result), "validation": spread_of_all(result)}
                    )
                    print(json.dumps(rows[-1]), flush=True)
    return rows


def merges(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for data in options.data:
        for model in options.models:
            banks = {
                kind: bank_of(data, model, kind, options.seeds, options.banks)
                for kind in options.kinds
            }
            base = {"data": data, "model": model}
            if "joint" in banks:
                rows.append(base | {"kind": "joint", "operator": ""})
                rows[-1] |= accuracies([(m.to_module(), m.nonzero) for m in banks["joint"]], data)
            for kind, operators in MERGES.items():
                for how in operators if kind in banks else ():
                    rows.append(base | {"kind": kind, "operator": how})
                    rows[-1] |= merged(banks[kind], how, data, options.seeds)
                    print(json.dumps(rows[-1]), flush=True)
    return rows


def merged(bank: ia.Bank, how: str, data: str, seeds: list[int]) -> dict[str, Any]:
    began = time.perf_counter()
    wholes = [ia.compose(bank.seed(s), how) for s in seeds]
    seconds = (time.perf_counter() - began) / len(seeds)
    result = accuracies([(whole, whole.nonzero) for whole in wholes], data)
    joined = wholes[0].joined
    shape = {} if joined is None else {"architecture": str(joined.architecture)}
    return result | shape | {"seconds_to_join": round(seconds, 3)}


def accuracies(models: list[tuple[torch.nn.Module, int]], data: str) -> dict[str, Any]:
    splits = {"validation": validation(data), "test": loaded(data).test}
    result: dict[str, Any] = {"n": len(models)}
    result["nonzero"] = round(statistics.mean(nonzero for _, nonzero in models))
    for name, split in splits.items():
        result[name] = spread_of_all([accuracy(model, split) for model, _ in models])
    return result


@cache
def loaded(data: str) -> ia.Data:
    return ia.load_data(data)


def validation(data: str) -> ia.Split:
    return loaded(data).validation


def accuracy(model: torch.nn.Module, split: ia.Split) -> float:
    answers = logits_of(model.to(DEVICE), split.x).argmax(1)
    return float((answers == split.y).double().mean())


if __name__ == "__main__":
    main()
