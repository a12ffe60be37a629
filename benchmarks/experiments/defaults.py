"""What does someone get who sets nothing? Twelve data sets, against three usual classifiers.

    python benchmarks/experiments/defaults.py  # all, 3 seeds, 1 for the large ones
    python benchmarks/experiments/defaults.py --sets wine digits  # some; the others stay as is

Each data set is cut into training and test rows by the seed, or has a cut of its own. Three ways
with no settings at all: `ModularClassifier()`; `intarsia train`, `compose` and `evaluate` on a file
of the same rows, as commands; and, as an expert would write them, MLPClassifier and
LogisticRegression behind a StandardScaler (images divided by their largest value) and
HistGradientBoostingClassifier (of images with 784 pixels on the first 5,000 rows). Seconds are
those of fitting, with two threads, in the same process; those of `train` are its own count, without
the start of Python. The settings of the preset `auto` were chosen on rows held out of the training
rows (docs/guide/training.md); test rows are looked at here alone. Results go to
docs/results/defaults.json.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save

Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # train x, test x, train y, test y

BUNDLED = ("wine", "breast_cancer", "digits", "iris")
LARGE = ("mnist", "fashion_mnist", "har")  # they have a cut of their own
IMAGES = {"mnist": 255.0, "fashion_mnist": 255.0, "digits": 16.0}  # largest value
SETS = (*BUNDLED, "covtype_like", *LARGE, "yeast", "hundred_classes", "imbalanced", "fifty_rows")
EXTRA = ("tiny_classes",)  # 200 classes of 5 rows: printed, on no page
MEASURE = {"imbalanced": "balanced accuracy"}  # of all others the accuracy
THREADS = 2
SUBSAMPLE = {"HistGradientBoosting": 5000}  # rows of image sets it is fitted on, for want of time


def rows_of(name: str, seed: int) -> Rows:
    """The rows of a data set, cut by the seed."""
    if name in LARGE:
        data = ia.load_data(name, validation=0.0)
        parts = (data.train, data.test)
        x = [part.x.reshape(len(part), -1).float().numpy() for part in parts]
        return x[0], x[1], parts[0].y.numpy(), parts[1].y.numpy()
    if name == "yeast":
        data = ia.load_data(name, validation=0.0)
        x = torch.cat([data.train.x, data.test.x]).numpy()
        y = torch.cat([data.train.y, data.test.y]).numpy()
    elif name in BUNDLED:
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    elif name == "fifty_rows":
        x, y = datasets.load_breast_cancer(return_X_y=True)
        return tuple(train_test_split(x, y, train_size=50, stratify=y, random_state=seed))
    else:
        x, y = made(name, seed)
    return tuple(train_test_split(x, y, test_size=0.25, stratify=y, random_state=seed))


def made(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The synthetic sets."""
    settings: dict[str, dict[str, Any]] = {
        # as many features and classes as covtype, about its proportions
        "covtype_like": {
            "n_samples": 12000, "n_features": 54, "n_informative": 15, "n_redundant": 10,
            "n_classes": 7, "n_clusters_per_class": 3, "class_sep": 1.2, "flip_y": 0.02,
            "weights": [0.36, 0.49, 0.06, 0.01, 0.02, 0.03, 0.03],
        },
        "hundred_classes": {
            "n_samples": 10000, "n_features": 40, "n_informative": 30, "n_redundant": 5,
            "n_classes": 100, "n_clusters_per_class": 1, "class_sep": 2.0, "flip_y": 0.01,
        },
        "tiny_classes": {
            "n_samples": 1250, "n_features": 40, "n_informative": 30, "n_redundant": 5,
            "n_classes": 200, "n_clusters_per_class": 1, "class_sep": 3.0, "flip_y": 0.0,
        },
        "imbalanced": {
            "n_samples": 10000, "n_features": 20, "n_informative": 8, "n_classes": 2,
            "weights": [0.99], "flip_y": 0.0,
        },
    }  # fmt: skip
    return datasets.make_classification(**settings[name], random_state=seed)


def scaler(name: str) -> Any:
    if name not in IMAGES:
        return StandardScaler()
    return FunctionTransformer(lambda x: x / IMAGES[name])


def classifiers(name: str, seed: int) -> dict[str, Callable[[], Any]]:
    return {
        "ModularClassifier": lambda: ia.ModularClassifier(random_state=seed, device="cpu"),
        "MLPClassifier": lambda: make_pipeline(scaler(name), MLPClassifier(random_state=seed)),
        "LogisticRegression": lambda: make_pipeline(scaler(name), LogisticRegression()),
        "HistGradientBoosting": lambda: HistGradientBoostingClassifier(random_state=seed),
    }


def fitted(make: Callable[[], Any], name: str, rows: Rows) -> dict[str, float]:
    train, test, y_train, y_test = rows
    model = make()
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 200 epochs are its default
        model.fit(train, y_train)
    seconds = time.perf_counter() - began
    p = model.predict_proba(test)
    answers = model.classes_[p.argmax(1)]
    return {
        "score": score(name, y_test, answers),
        "log_loss": float(log_loss(y_test, p, labels=model.classes_)),
        "seconds": seconds,
    }


def score(name: str, labels: np.ndarray, answers: np.ndarray) -> float:
    measure = balanced_accuracy_score if name in MEASURE else accuracy_score
    return float(measure(labels, answers))


def commands(name: str, rows: Rows, seed: int) -> dict[str, float]:
    """The three verbs on a file of the rows, with no setting but the seed."""
    train, test, y_train, y_test = rows
    if name in IMAGES:  # a file of pictures holds bytes
        side = round(train.shape[1] ** 0.5)
        train, test = (x.reshape(-1, side, side).astype(np.uint8) for x in (train, test))
    with tempfile.TemporaryDirectory() as folder:
        file, modules, merged = (Path(folder) / n for n in ("rows.npz", "modules", "whole"))
        names = [str(label) for label in np.unique(y_train)]
        np.savez(file, x_train=train, y_train=y_train, x_test=test, y_test=y_test, classes=names)
        trained = run("train", modules, "--data", file, "--seeds", seed, "--device", "cpu")
        run("compose", modules, "-o", merged)
        (result,) = run("evaluate", merged, "--data", file)["models"].values()
        confusion = np.array(result["confusion"], dtype=float)
    per_class = confusion.diagonal() / confusion.sum(1)
    plain = confusion.trace() / confusion.sum()
    return {
        "score": float(per_class.mean() if name in MEASURE else plain),
        "seconds": trained["seconds"],
    }


def run(verb: str, *words: Any) -> Any:
    call = [sys.executable, "-m", "intarsia", verb, *map(str, words), "--json"]
    return json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", choices=(*SETS, *EXTRA), default=list(SETS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    fitted(classifiers("iris", 0)["ModularClassifier"], "iris", rows_of("iris", 0))  # imports
    entries = []
    for name in options.sets:
        seeds = options.seeds[:1] if name in LARGE else options.seeds
        runs: dict[str, list[dict[str, float]]] = {}
        for seed in seeds:
            rows = rows_of(name, seed)
            for method, make in classifiers(name, seed).items():
                most = SUBSAMPLE.get(method, len(rows[0])) if name in IMAGES else len(rows[0])
                some = (rows[0][:most], rows[1], rows[2][:most], rows[3])
                runs.setdefault(method, []).append(fitted(make, name, some))
            runs.setdefault("commands", []).append(commands(name, rows, seed))
            print(
                name, seed, {m: {k: round(v, 3) for k, v in r[-1].items()} for m, r in runs.items()}
            )
        train, _, y, _ = rows
        size = {"rows": len(train), "features": train.shape[1], "classes": len(np.unique(y))}
        measure = MEASURE.get(name, "accuracy")
        entries.append({"set": name, **size, "measure": measure, "seeds": seeds, "runs": runs})
        keep(entries, options)


def keep(entries: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Write the entries down, with those of sets that an earlier run measured."""
    file = options.out / "defaults.json"
    before = json.loads(file.read_text())["entries"] if file.exists() else []
    done = {entry["set"]: entry for entry in [*before, *entries]}
    machine = f"CPU, {THREADS} threads"
    result = made_by(
        __file__, "--seeds", *options.seeds, machine=machine, scikit_learn=sklearn.__version__
    )
    ordered = [done[name] for name in SETS if name in done]
    save(options.out, "defaults", {**result, "entries": ordered})


if __name__ == "__main__":
    main()
