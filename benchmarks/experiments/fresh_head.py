"""Do the cached and the literal fresh-head probe agree, and how much faster is the cached one?

    python benchmarks/experiments/fresh_head.py

Two networks fine-tuned from one initial state, each on half of the classes, are averaged; the
average is probed both ways, with the same seeds. Times are CPU seconds of one process on one
thread, and those of the first call of either kind are left out.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save
from benchmarks.small_data import few_rows
from intarsia.measure import FreshHead

TRAINING: dict[str, Any] = {"preset": "paper", "objective": "xe", "sparsity": 0.0, "rounds": 0}
TRAINING |= {"temperature": 1.0, "learning_rate": 3e-3, "batch": 32}
PROTOCOLS = ("cached", "literal")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="fashion_mnist")
    parser.add_argument("--model", default="resnet18(16)")
    parser.add_argument("--rows", type=int, default=1000, help="training samples")
    parser.add_argument("--epochs", type=int, default=4, help="of the networks, not of heads")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    words = ["--data", options.data, "--model", f"'{options.model}'", "--rows", options.rows]
    words += ["--epochs", options.epochs, "--seeds", *options.seeds]
    save(options.out, "fresh_head", {**made_by(__file__, *words), **measured(options)})


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Both protocols on one merge: their numbers, how far apart they are, and their times."""
    data = few_rows(ia.load_data(options.data), options.rows, options.rows // 5)
    half = len(data.catalogue) // 2
    tasks = [list(data.catalogue[:half]), list(data.catalogue[half:])]
    joint = trained(data, options, [list(data.catalogue)])[0]
    merged = ia.compose(trained(data, options, tasks), "mean", samples=data)
    for protocol in PROTOCOLS:
        ia.fresh_head(merged, data, protocol=protocol, epochs=1, device="cpu")
    several = {p: timed(merged, data, p, options.seeds, joint) for p in PROTOCOLS}
    one = {p: timed(merged, data, p, options.seeds[:1], joint)[1] for p in PROTOCOLS}
    results = {p: result for p, (result, _) in several.items()}
    seconds = {p: spent for p, (_, spent) in several.items()}
    apart = zip(results["cached"].fresh.values, results["literal"].fresh.values, strict=True)
    return {
        "data": options.data,
        "model": options.model,
        "seeds": len(options.seeds),
        "probes": {protocol: result.to_json() for protocol, result in results.items()},
        "points_apart": round(100 * max(abs(a - b) for a, b in apart), 4),
        "seconds": {p: round(spent, 3) for p, spent in seconds.items()},
        "ratio": round(seconds["literal"] / seconds["cached"], 1),
        "seconds_of_one": {p: round(spent, 3) for p, spent in one.items()},
        "ratio_of_one": round(one["literal"] / one["cached"], 1),
    }


def trained(data: ia.Data, options: argparse.Namespace, sets: list[list[str]]) -> ia.Bank:
    how = {**TRAINING, "model": options.model, "epochs": options.epochs, "device": "cpu"}
    return ia.train(data, partition=sets, progress=False, **how)


def timed(
    merged: ia.Composition, data: ia.Data, protocol: Any, seeds: list[int], joint: ia.Module
) -> tuple[FreshHead, float]:
    """A probe, and its CPU seconds; the joint network is evaluated outside of these."""
    reference = ia.evaluate(joint, data.test).accuracy
    began = time.process_time()
    result = ia.fresh_head(
        merged, data, joint=reference, protocol=protocol, epochs=10, seeds=seeds, device="cpu"
    )
    return result, time.process_time() - began


if __name__ == "__main__":
    main()
