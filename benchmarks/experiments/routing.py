"""Is it better to choose among modules for each input than to add up what all of them say?

    python benchmarks/experiments/routing.py

Modules of maximum entropy and of cross-entropy, for classes in random blocks and for classes whose
means are near each other (Ward), joined by `logits` and by routers on the same test samples.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save, spread_of_all
from benchmarks.small_data import few_rows
from intarsia.studies.base.experts import (
    PARTITIONS,
    WAYS,
    class_means,
    random_tasks,
    ward_tasks,
)

TRAINING: dict[str, Any] = {"preset": "paper", "sparsity": 0.0, "rounds": 0, "batch": 64}
TRAINING |= {"temperature": 1.0, "learning_rate": 1e-3, "device": "cpu", "progress": False}
OBJECTIVES = {"maximum entropy": "ME, all tasks", "cross-entropy": "cross-entropy"}
BASELINE = "logits"
OPERATORS = (
    BASELINE,
    "centroid",
    "centroid(features='inputs')",
    "centroid(top=1, features='inputs')",
    "entropy_router",
    "entropy_router(top=3)",
    "centroid_entropy",
    "centroid_entropy(features='inputs')",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="fashion_mnist")
    parser.add_argument("--model", default="mlp(64)")
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--rows", type=int, default=6000, help="training samples")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    words = ["--data", options.data, "--model", f"'{options.model}'", "--tasks", options.tasks]
    words += ["--rows", options.rows, "--epochs", options.epochs, "--seeds", *options.seeds]
    save(options.out, "routing", {**made_by(__file__, *words), **measured(options)})


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Test accuracy of every operator, and seed by seed how far it is above the sum of logits."""
    began = time.process_time()
    data = few_rows(ia.load_data(options.data), options.rows, options.rows // 3)
    cells = []
    for partition in PARTITIONS:
        for objective, way in OBJECTIVES.items():
            each = [accuracies(data, options, partition, way, seed) for seed in options.seeds]
            cells.append(
                {"partition": partition, "objective": objective, "operators": summary(each)}
            )
    return {
        "data": options.data,
        "model": options.model,
        "tasks": options.tasks,
        "seeds": len(options.seeds),
        "samples": {"train": len(data.train), "test": len(data.test)},
        "ward": tasks_of(data, options, "ward", 0),
        "cells": cells,
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def tasks_of(
    data: ia.Data, options: argparse.Namespace, partition: str, seed: int
) -> list[list[str]]:
    """Classes by the seed, or by the means of their scaled inputs, the same for all seeds."""
    if partition == "random":
        return random_tasks(data.catalogue, options.tasks, seed)
    inputs = data.scaling(data.train.x).flatten(1)
    means = class_means(inputs, data.train.y, data.classes)
    return ward_tasks(data.catalogue, means, options.tasks)


def accuracies(
    data: ia.Data, options: argparse.Namespace, partition: str, way: str, seed: int
) -> dict[str, float]:
    """Of one bank, by every operator; centroids are those of training samples."""
    bank = ia.train(
        data,
        model=options.model,
        epochs=options.epochs,
        partition=tasks_of(data, options, partition, seed),
        seeds=[seed],
        **TRAINING,
        **WAYS[way],
    )
    return {
        operator: ia.evaluate(ia.compose(bank, operator, samples=data.train), data.test).accuracy
        for operator in OPERATORS
    }


def summary(each: list[dict[str, float]]) -> dict[str, Any]:
    """Accuracies over the seeds, and their differences to the baseline of the same bank."""
    return {
        operator: {
            "accuracy": spread_of_all([found[operator] for found in each]),
            "above": spread_of_all([found[operator] - found[BASELINE] for found in each]),
        }
        for operator in OPERATORS
    }


if __name__ == "__main__":
    main()
