"""Do joined modules know what they do not know, and does one network trained on all classes?

    python benchmarks/experiments/abstention.py  # the settings of banks.py
    python benchmarks/experiments/abstention.py --epochs 6 --pruning-epochs 2  # shorter, for a CPU

Two cases. Five classes of MNIST, drawn anew for every seed, are known: nothing but their samples is
trained on, and the test samples of the other five are unknown. Or all ten are known, by the banks
that the other benchmarks share, and the test images of Fashion-MNIST are unknown.

Each whole is asked for the entropy and for the largest probability of its answers; how often an
unknown sample is the more uncertain one of two is the AUROC. The threshold of abstention is chosen
on validation samples of known classes, so that a fraction of 0.95 of them is answered. Results go
to docs/results/abstention.json.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import intarsia as ia
from benchmarks.experiments.banks import FOLDER, bank_of, settings_of
from benchmarks.record import RESULTS, made_by, save, spread_of_all
from intarsia.measure import Abstention, abstention, threshold

KINDS = {"sparse": "inlay", "territory": "sum", "joint": ""}
DATA, FOREIGN = "mnist", "fashion_mnist"
KNOWN = 5  # classes of the first case
ANSWERED = 0.95
SHORTER = ("epochs", "pruning_epochs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--epochs", type=int, help="of the last round, in the first case")
    parser.add_argument("--pruning-epochs", type=int, help="of the rounds before it")
    parser.add_argument("--banks", type=Path, default=FOLDER)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    shorter = {k: getattr(options, k) for k in SHORTER if getattr(options, k) is not None}
    drawn = {seed: known_classes(seed) for seed in options.seeds}
    rows = [
        *(unknown_classes(kind, drawn, shorter, options.banks) for kind in KINDS),
        *(foreign_images(kind, options.seeds, options.banks) for kind in KINDS),
    ]
    words = [f"--{key.replace('_', '-')} {value}" for key, value in shorter.items()]
    result = {
        **made_by(__file__, "--seeds", *options.seeds, *words),
        "known": {str(seed): " ".join(classes) for seed, classes in drawn.items()},
        "answered": ANSWERED,
        "rows": rows,
    }
    save(options.out, "abstention", result)


def known_classes(seed: int) -> list[str]:
    """Five of the ten, by the seed."""
    names = ia.load_data(DATA).catalogue
    chosen = np.random.default_rng(seed).choice(len(names), KNOWN, replace=False)
    return [names[place] for place in sorted(chosen)]


def unknown_classes(
    kind: str, drawn: dict[int, list[str]], shorter: dict[str, int], banks: Path
) -> dict[str, Any]:
    """Five known classes against the other five, with modules trained on the five alone."""
    result, settings, began = [], trained(kind, shorter), time.perf_counter()
    for seed, classes in drawn.items():
        known = ia.load_data(DATA, classes=classes)
        if kind == "joint":
            settings["partition"] = [classes]
        place = banks / f"{DATA}-five-{kind}-{seed}"
        bank = ia.train(known, out=place, seeds=[seed], progress=False, **settings)
        result.append(measured(bank, kind, known, others(classes)))
    row = {"case": "unknown classes", **summary(kind, result)}
    row["settings"] = {key: value for key, value in settings.items() if key != "partition"}
    row["epochs_of_shared_banks"] = settings_of(DATA, "shallow", kind)["epochs"]
    print(json.dumps(row), f"{time.perf_counter() - began:.0f} s", flush=True)
    return row


def trained(kind: str, shorter: dict[str, int]) -> dict[str, Any]:
    """The settings of the shared banks, with the epochs that are given here."""
    settings = settings_of(DATA, "shallow", kind)
    if not settings.get("sparsity"):  # one round alone: there are no others to shorten
        shorter = {key: value for key, value in shorter.items() if key == "epochs"}
    return settings | shorter


def others(classes: Sequence[str]) -> torch.Tensor:
    """The test samples of all other classes."""
    merged = ia.load_data(DATA)
    known = torch.tensor([merged.catalogue.index(name) for name in classes])
    return merged.test.x[~torch.isin(merged.test.y, known)]


def foreign_images(kind: str, seeds: list[int], banks: Path) -> dict[str, Any]:
    """Ten known classes against images of another kind."""
    bank = bank_of(DATA, "shallow", kind, seeds, banks)
    known, unknown = ia.load_data(DATA), ia.load_data(FOREIGN).test.x
    result = [measured(bank.seed(seed), kind, known, unknown) for seed in seeds]
    row = {"case": "foreign images", **summary(kind, result)}
    print(json.dumps(row), flush=True)
    return row


def measured(bank: ia.Bank, kind: str, known: ia.Data, unknown: torch.Tensor) -> Abstention:
    merged = ia.compose(bank, KINDS[kind]) if KINDS[kind] else bank[0].to_module()
    chosen = threshold(merged, known.validation, ANSWERED)
    return abstention(merged, known.test, unknown, chosen)


def summary(kind: str, result: list[Abstention]) -> dict[str, Any]:
    measures = ("auroc_entropy", "auroc_softmax", "threshold", "answered", "refused", "accuracy")
    return {
        "kind": kind,
        "operator": KINDS[kind],
        "n": len(result),
        "known": [each.known for each in result],
        "unknown": [each.unknown for each in result],
        **{name: spread_of_all([getattr(each, name) for each in result]) for name in measures},
    }


if __name__ == "__main__":
    main()
