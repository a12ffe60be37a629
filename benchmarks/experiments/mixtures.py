"""Which negatives serve modules that see their own class alone, and can one tell without others?

    python benchmarks/experiments/mixtures.py --data digits wine yeast

Trains a bank with each mixture under visibility "own" and adds the logits. Accuracy of the whole on
validation samples, which no party by itself could measure, is what a mixture is worth; on test
samples it is reported. Beside it stands a proxy that a party can measure alone: how well a module
tells held-out samples of its own class from a source of negatives that no mixture trains on, as the
area under the ROC curve of its own class's probability, in the mean over modules. Spearman's rank
correlation says how well the proxy ranks the mixtures.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from scipy.stats import spearmanr
from torch import Tensor

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save, spread
from intarsia.data import NEGATIVES, Data

IMAGES = [
    "noise(4.0)",
    "mixed(4.0)",
    "noise(2.0) + mixed(2.0)",
    "turned(4.0)",
    "bent(4.0)",
    "noise(1.0) + bent(3.0)",
    "noise(1.0) + bent(3.0, strength=0.5)",
    "noise(1.0) + mixed(1.0) + turned(2.0)",
    "noise(1.0) + mixed(1.0) + turned(1.0) + bent(1.0)",
]
TABLES = [
    "noise(3.0)",
    "mixed(3.0)",
    "noise(1.5) + mixed(1.5)",
    "gaussian(3.0)",
    "gaussian(3.0, spread=2.0)",
    "shuffled(3.0)",
    "gaussian(1.5) + shuffled(1.5)",
]
PUBLIC = [
    "gaussian(6.0)",
    "public(6.0)",
    "public(3.0) + gaussian(3.0)",
    "public(6.0) + gaussian(6.0)",
]
HELD_OUT = {"images": "warped(1.0)", "tables": "scaled(0.5, least=1.5)", "features": "public rows"}
SETTINGS: dict[str, Any] = {"sparsity": 0, "learning_rate": 2e-3, "progress": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["digits", "wine", "yeast"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    sets = [measure(name, options.seeds) for name in options.data]
    words = ["--data", *options.data, "--seeds", *map(str, options.seeds)]
    save(options.out, "mixtures", {**made_by(__file__, *words), "sets": sets})


def measure(name: str, seeds: list[int]) -> dict[str, Any]:
    """Every mixture of the kind of the data, and how well the proxy ranks them."""
    data, kind, held = load(name)
    mixtures = {"images": IMAGES, "tables": TABLES, "features": PUBLIC}[kind]
    rows = []
    for negatives in mixtures:
        scores = [score(data, negatives, seed, kind, held) for seed in seeds]
        columns = zip(*scores, strict=True)
        rows.append(
            {"negatives": negatives}
            | dict(zip(("validation", "test", "proxy"), map(spread, columns), strict=True))
        )
        print(name, rows[-1], flush=True)
    worth, proxy = ([row[key]["mean"] for row in rows] for key in ("validation", "proxy"))
    best = max(rows, key=lambda row: row["proxy"]["mean"])
    return {
        "data": name,
        "kind": kind,
        "held_out": HELD_OUT[kind],
        "rows": rows,
        "spearman": round(float(spearmanr(worth, proxy).statistic), 3),
        "chosen": best["negatives"],
        "lost": round(max(worth) - best["validation"]["mean"], 4),
    }


def load(name: str) -> tuple[Data, str, Tensor | None]:
    """The data, their kind, and public rows that are held out, if there are some."""
    if name == "wine":
        from sklearn.datasets import load_wine

        wine = load_wine()
        return (
            ia.load_data(wine.data, wine.target, scale="standard", scale_on="train"),
            "tables",
            None,
        )
    if name.endswith(".npz"):
        from dataclasses import replace

        data = ia.load_data(name, public="x_public", scale="standard", scale_on="public")
        assert data.public is not None
        every = torch.arange(len(data.public)) % 5 == 0
        return replace(data, public=data.public[~every]), "features", data.public[every]
    data = ia.load_data(name, scale_on="train")
    return data, "images" if len(data.shape) == 3 else "tables", None


def score(
    data: Data, negatives: str, seed: int, kind: str, held: Tensor | None
) -> tuple[float, float, float]:
    """Accuracy of the whole on validation and test samples, and the proxy."""
    bank = ia.train(data, visibility="own", negatives=negatives, seeds=[seed], **SETTINGS)
    whole = ia.compose(bank, "logits")
    areas = [_area(data, bank[name], label, kind, held) for label, name in enumerate(bank.names)]
    accuracy = [ia.evaluate(whole, split).accuracy for split in (data.validation, data.test)]
    return accuracy[0], accuracy[1], sum(areas) / len(areas)


def _area(data: Data, module: ia.Module, label: int, kind: str, held: Tensor | None) -> float:
    """How well a module alone tells its own held-out samples from the held-out source."""
    own = data.scaling(data.validation.x[data.validation.y == label])
    if held is None:
        source = NEGATIVES.spec(HELD_OUT[kind])
        given = {"own": own} if kind == "images" else {"samples": own}
        others = NEGATIVES.call(source, generator=torch.Generator().manual_seed(label), **given)
    else:
        others = data.scaling(held)
    network = module.architecture.network(module.state, module.factory)
    with torch.no_grad():
        p, q = (torch.softmax(network(x), 1)[:, label] for x in (own, others))
    return float((p[:, None] > q).double().mean() + 0.5 * (p[:, None] == q).double().mean())


if __name__ == "__main__":
    main()
