"""Are inputs that are no sample of anything refused, and what does that cost?

    python benchmarks/experiments/nonsense.py  # digits, MNIST, Fashion-MNIST, 5 seeds
    python benchmarks/experiments/nonsense.py --data digits --seeds 0

Modules with the default settings, which learn to be uncertain about made-up samples of no class
(`negatives`), beside modules without them, and beside one network that is trained on all classes at
once, without and with the same negatives. Each is asked about test samples and about inputs that
are none: noise of three kinds, of which salt and pepper is not among the negatives, shuffled,
inverted and mirrored images, images of two halves, images ten times as bright, and images of
another data set. A second case holds five classes out of training, drawn by the seed, and asks
about their test samples.

The scores: the novelty that is chosen on validation samples against outliers made of these
(`intarsia.novelty`), entropy alone, and for comparison energy and the largest probability. The
threshold answers 95% of the validation samples. Results go to docs/results/nonsense.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save
from intarsia.measure import auroc
from intarsia.measure.novelty import novelty
from intarsia.modules import logits_of

DATA = ("digits", "mnist", "fashion_mnist")
FOREIGN = {"mnist": "fashion_mnist", "fashion_mnist": "mnist"}
KNOWN = 5  # classes of the second case
ANSWERED = 0.95
NETWORKS: dict[str, dict[str, Any]] = {
    "modules, negatives": {},
    "modules, no negatives": {"negatives": "none"},
    "one network, no negatives": {"negatives": "none", "sparsity": 0.0},
    "one network, negatives": {"sparsity": 0.0},
}
SCORES = ("chosen", "entropy", "energy", "softmax")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    for name in options.data:
        data = ia.load_data(name)
        strange = [outliers(data, seed) for seed in options.seeds]
        for merged, settings in NETWORKS.items():
            bank = trained(data, merged, settings, options.seeds)
            for seed, inputs in zip(options.seeds, strange, strict=True):
                rows.append(measured(bank, merged, data, seed, inputs) | {"case": "nonsense"})
        for seed in options.seeds:
            known, unknown = held_out(name, seed)
            for merged, settings in NETWORKS.items():
                bank = trained(known, merged, settings, [seed])
                row = measured(bank, merged, known, seed, {"held-out classes": unknown})
                rows.append(row | {"case": "held-out classes"})
        print(json.dumps(rows[-1]), flush=True)
        result = made_by(__file__, "--data", *options.data, "--seeds", *options.seeds)
        save(options.out, "nonsense", {**result, "answered": ANSWERED, "rows": rows})


def trained(data: ia.Data, merged: str, settings: dict[str, Any], seeds: list[int]) -> ia.Bank:
    """One bank for all seeds; one network is a module of all classes."""
    if merged.startswith("one network"):
        settings = {**settings, "partition": [list(data.catalogue)]}
    return ia.train(data, seeds=seeds, progress=False, **settings)


def held_out(name: str, seed: int) -> tuple[ia.Data, Tensor]:
    """The data of five classes, and the test inputs of all others."""
    everything = ia.load_data(name)
    drawn = np.random.default_rng(seed).choice(len(everything.catalogue), KNOWN, replace=False)
    classes = [everything.catalogue[place] for place in sorted(drawn)]
    others = ~torch.isin(everything.test.y, torch.tensor(sorted(drawn)))
    return ia.load_data(name, classes=classes), everything.test.x[others]


def outliers(data: ia.Data, seed: int) -> dict[str, Tensor]:
    """Inputs of the shape of the test samples that are none."""
    generator = np.random.default_rng(seed)
    x = data.test.x.reshape(len(data.test), -1).float().numpy()
    top, side = float(x.max()), round(x.shape[1] ** 0.5)
    images = x.reshape(-1, side, side)
    other = images[generator.permutation(len(images))]
    made = {
        "uniform noise": generator.uniform(0, top, x.shape),
        "Gaussian noise": generator.normal(x.mean(), x.std(), x.shape).clip(0, top),
        "salt and pepper": generator.choice([0.0, top], x.shape),
        "shuffled pixels": generator.permuted(x, axis=1),
        "inverted": top - x,
        "mirrored": images[:, :, ::-1],
        "halves of two": np.concatenate([images[:, : side // 2], other[:, side // 2 :]], axis=1),
        "ten times as bright": 10 * x,
    }
    shape = data.test.x.shape
    result = {
        k: torch.tensor(np.ascontiguousarray(v)).float().reshape(shape) for k, v in made.items()
    }
    if data.name in FOREIGN:
        result["another data set"] = ia.load_data(FOREIGN[data.name]).test.x.float()
    return result


def measured(
    bank: ia.Bank, merged: str, data: ia.Data, seed: int, inputs: dict[str, Tensor]
) -> dict[str, Any]:
    parts = bank.seed(seed) if len({m.provenance["seed"] for m in bank}) > 1 else bank
    model = ia.compose(parts) if len(parts) > 1 else parts[0].to_module()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.to(device)
    chosen = novelty(model, data.validation, answered=ANSWERED)
    fits = {"chosen": chosen, **{n: novelty(model, data.validation, n) for n in SCORES[1:3]}}
    own = scores(fits, model, data.test.x.float())
    held = scores(fits, model, data.validation.x.float())
    limits = {name: float(values.quantile(ANSWERED)) for name, values in held.items()}
    limits |= {name: fit.threshold for name, fit in fits.items()}
    result: dict[str, Any] = {
        "data": data.name,
        "whole": merged,
        "seed": seed,
        "accuracy": float((logits_of(model, data.test.x).argmax(1) == data.test.y).double().mean()),
        "score": chosen.score,
        "answered": {n: float((v <= limits[n]).double().mean()) for n, v in own.items()},
        "outliers": {},
    }
    for name, x in inputs.items():
        strange = scores(fits, model, x)
        result["outliers"][name] = {
            score: {
                "auroc": auroc(own[score], values),
                "refused": float((values > limits[score]).double().mean()),
            }
            for score, values in strange.items()
        }
    return result


def scores(fits: dict[str, Any], model: Any, x: Tensor) -> dict[str, Tensor]:
    """Every score of every input; larger is stranger."""
    logits = logits_of(model, x)
    distances = fits["chosen"].distances(model, x)
    result = {name: fit.scores_of(logits, distances) for name, fit in fits.items()}
    result["softmax"] = 1 - torch.softmax(logits.double() / model.temperature, 1).amax(1)
    return result


if __name__ == "__main__":
    main()
