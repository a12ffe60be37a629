"""Can the accuracy that a pair loses by adding its weights be foretold? By which measure?

    python benchmarks/experiments/compatibility.py --design BANK... --held BANK...

takes folders of banks, makes every pair of every seed, computes the measures of `compatibility` and
three rivals from unlabelled validation samples, and the accuracy lost on the test samples of the
pair's classes: the logit sum's less the weight sum's, and the single modules' mean less the weight
sum's. A measure is as good as its rank correlation with the loss (Spearman), over the pairs of a
bank and over all. The measure was chosen on the design banks; only the held ones judge it.

A loss over some 2000 samples is itself uncertain. Where pairs lose next to nothing, their order is
chance, and no measure can foretell it: `ceiling` is the correlation that the true loss would reach,
the root of the loss's reliability, from its correlation between the even and the odd test samples
(h) by the formula of Spearman and Brown, sqrt(2h / (1 + h)). Results go to
docs/results/compatibility.json.
"""

import argparse
import json
import math
import statistics
from itertools import combinations
from pathlib import Path
from typing import Any

import scipy
import torch
from scipy.stats import spearmanr
from torch import Tensor

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save, spread
from intarsia.data import evenly_spaced
from intarsia.measure import compatibility_matrix
from intarsia.measure.pair import blend
from intarsia.modules import logits_of

KNOWN = ("by_logits", "by_weights", "single", "lost", "lost_to_single")
HALVES = ("lost_on_even", "lost_on_odd")
TRAINED = ("preset", "objective", "pruning", "sparsity", "rounds", "epochs", "schedule", "select")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--design", type=Path, nargs="*", default=[])
    parser.add_argument("--held", type=Path, nargs="+", required=True)
    parser.add_argument("--samples", type=int, default=4096, help="unlabelled, 4096 at most")
    parser.add_argument("--name", default="compatibility")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    result: dict[str, Any] = {
        **made_by(__file__, *words(options), scipy=scipy.__version__),
        "samples": options.samples,
    }
    for part in ("design", "held"):
        ranked = [bank_of(folder, options.samples) for folder in getattr(options, part)]
        result[part] = {"pooled": pooled(ranked), "banks": [bank for bank, _ in ranked]}
        print(part, json.dumps(result[part]["pooled"], indent=1), flush=True)
    save(options.out, options.name, result)


def words(options: argparse.Namespace) -> list[object]:
    """What the command was given."""
    banks = [
        f"--{part} {' '.join(folder.name for folder in getattr(options, part))}"
        for part in ("design", "held")
        if getattr(options, part)
    ]
    return [*banks, "--samples", options.samples, "--name", options.name]


Pair = dict[str, Any]


def bank_of(folder: Path, samples: int) -> tuple[dict[str, Any], list[Pair]]:
    """How well each measure ranks the losses of a bank's pairs, and the pairs of all its seeds."""
    bank = ia.Bank.load(folder)
    recipe = bank[0].provenance["recipe"]
    data = ia.load_data(recipe["data"])
    pairs = [pair for seed in bank.seeds for pair in pairs_of(bank.seed(seed), data, samples)]
    result = {
        "bank": folder.name,
        "data": data.name,
        "model": recipe["model"],
        "trained": {key: recipe[key] for key in TRAINED},
        "density": round(statistics.mean(module.density for module in bank), 5),
        "seeds": list(bank.seeds),
        **ranks(pairs),
    }
    print(json.dumps(result, indent=1), flush=True)
    rows = ["\t".join(v if isinstance(v, str) else f"{v:.5f}" for v in p.values()) for p in pairs]
    return {**result, "columns": list(pairs[0]), "pairs": rows}, pairs


def pooled(ranked: list[tuple[dict[str, Any], list[Pair]]]) -> dict[str, Any]:
    """All pairs together, and the mean over the banks of what each measure reaches in one."""
    if not ranked:
        return {}
    reached = [bank["spearman_with_lost"] for bank, _ in ranked]
    return {
        **ranks([pair for _, pairs in ranked for pair in pairs]),
        "mean_over_banks": {
            name: round(statistics.mean(each[name] or 0.0 for each in reached), 4)
            for name in reached[0]
        },
    }


def ranks(pairs: list[Pair]) -> dict[str, Any]:
    """Spread of the losses, and Spearman's coefficient of each measure with either loss."""
    names = [name for name in pairs[0] if name not in ("pair", *KNOWN, *HALVES)]
    losses = ("lost", "lost_to_single")
    half = max(0.0, coefficient(pairs, *HALVES) or 0.0)
    return {
        "n": len(pairs),
        "without_interference": sum(math.isnan(pair["interference"]) for pair in pairs),
        **{loss: loss_spread([pair[loss] for pair in pairs]) for loss in losses},
        "ceiling": round((2 * half / (1 + half)) ** 0.5, 4),
        **{
            f"spearman_with_{loss}": {name: coefficient(pairs, name, loss) for name in names}
            for loss in losses
        },
    }


def coefficient(pairs: list[Pair], name: str, loss: str) -> float | None:
    """Over the pairs that have the measure; None where it is the same for all of them.

    Masks of unpruned modules are all the same, and two modules that answer every sample alike, as
    pruning can leave them, have no interference.
    """
    known = [pair for pair in pairs if not math.isnan(pair[name])]
    values = [pair[name] for pair in known]
    if len(set(values)) < 2:
        return None
    return round(float(spearmanr(values, [pair[loss] for pair in known]).statistic), 4)


def pairs_of(bank: ia.Bank, data: ia.Data, samples: int) -> list[Pair]:
    """The measures and the losses of all pairs of one seed."""
    modules = tuple(bank)
    rows = data.validation.x[evenly_spaced(len(data.validation), samples)]
    matrix = compatibility_matrix(modules, rows)
    on_test = [logits_of(module.to_module(), data.test.x) for module in modules]
    on_rows = [logits_of(module.to_module(), rows) for module in modules]
    pairs = []
    for i, j in combinations(range(len(modules)), 2):
        a, b = modules[i], modules[j]
        merged = blend(a, b, 1.0, 1.0)
        classes = [a.catalogue.index(name) for name in merged.rewarded]
        joined, apart = logits_of(merged, data.test.x), on_test[i] + on_test[j]
        single = statistics.mean(
            ia.rewarded_accuracy(on_test[k], data.test.y, classes_of(modules[k])) for k in (i, j)
        )
        by_logits, by_weights = (
            ia.rewarded_accuracy(logits, data.test.y, classes) for logits in (apart, joined)
        )
        halves = [
            ia.rewarded_accuracy(apart[k::2], data.test.y[k::2], classes)
            - ia.rewarded_accuracy(joined[k::2], data.test.y[k::2], classes)
            for k in (0, 1)
        ]
        pairs.append(
            {
                "pair": f"{a.name}, {b.name}",
                "by_logits": by_logits,
                "by_weights": by_weights,
                "single": single,
                "lost": by_logits - by_weights,
                "lost_to_single": single - by_weights,
                **dict(zip(HALVES, halves, strict=True)),
                **{name: float(values[i, j]) for name, values in matrix.measures.items()},
                **rivals(on_rows[i] + on_rows[j], logits_of(merged, rows), a.temperature),
            }
        )
    return pairs


def classes_of(module: ia.Module) -> list[int]:
    return [module.catalogue.index(name) for name in module.rewarded]


def rivals(apart: Tensor, joined: Tensor, temperature: float) -> dict[str, float]:
    """Simpler ways to tell the logit sum from the weight sum without labels."""
    p, q = (torch.log_softmax(logits.double() / temperature, 1) for logits in (apart, joined))
    centred = [logits - logits.mean(1, keepdim=True) for logits in (apart, joined)]
    return {
        "mean_kl": float((p.exp() * (p - q)).sum(1).mean()),
        "disagreement": float((apart.argmax(1) != joined.argmax(1)).double().mean()),
        "relative_distance": float((centred[1] - centred[0]).norm() / centred[0].norm()),
    }


def loss_spread(values: list[float]) -> dict[str, float]:
    return {**spread(values), "most": round(max(values), 5)}


if __name__ == "__main__":
    main()
