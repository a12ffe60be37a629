"""What removal is measured against: gradient ascent on a joint network, and training it again.

    python benchmarks/experiments/unlearning.py

The joint networks are those of banks.py, of the same shape as the modules that removal.py joins.
The step size of the ascent is chosen on validation samples. Training again takes long: one class
for every seed, in turn. Seconds as in removal.py.
"""

import argparse
import json
from itertools import cycle
from pathlib import Path
from typing import Any

import torch

import intarsia as ia
from benchmarks.experiments.banks import FOLDER, bank_of, settings_of
from benchmarks.experiments.removal import MACHINE, Cell, fraction, left_of_class, summary, timed
from benchmarks.record import RESULTS, made_by, save, spread
from intarsia.modules import logits_of
from intarsia.studies.maxent.shared.baselines import Ascent, ascend

FORGOTTEN = 0.02  # accuracy on the class's training samples at which ascent stops
FIRST = 256  # samples that are looked at before all of them are
ASCENTS = [Ascent("SGD", rate) for rate in (0.03, 0.1)]
ASCENTS += [Ascent("Adam", rate) for rate in (1e-4, 3e-4, 1e-3)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--model", default="shallow")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--classes", nargs="+", default=["0", "3", "8"])
    parser.add_argument("--banks", type=Path, default=FOLDER)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = ia.load_data(options.data)
    joint = bank_of(options.data, options.model, "joint", options.seeds, options.banks)
    chosen, choice = choose(joint, data, options)
    pairs = [(s, c) for s in options.seeds for c in options.classes]
    ascents = [ascent(joint.seed(s)[0], data, c, chosen, s) for s, c in pairs]
    rows = [{"method": "gradient ascent"} | summary(ascents)]
    print(json.dumps(rows[-1]), flush=True)
    some = list(zip(options.seeds, cycle(options.classes), strict=False))
    again = [trained_again(joint.seed(s)[0], data, options.model, c, s) for s, c in some]
    rows.append({"method": "training again"} | summary(again))
    print(json.dumps(rows[-1]), flush=True)
    result = {
        **made_by(
            __file__,
            *("--data", options.data, "--model", options.model),
            *("--seeds", *options.seeds, "--classes", *options.classes),
            machine=MACHINE,
        ),
        "forgotten": FORGOTTEN,
        "classes": options.classes,
        "choice": choice,
        "rows": rows,
    }
    save(options.out, "unlearning", result)


def choose(joint: ia.Bank, data: ia.Data, options: argparse.Namespace) -> tuple[Ascent, list[Cell]]:
    """The ascent that leaves most of the other classes, on validation samples of two seeds."""
    tried = []
    for how in ASCENTS:
        result = []
        for seed in options.seeds[:2]:
            for index in map(data.catalogue.index, options.classes):
                forget = data.train.select([index])
                model, steps = forgetting(joint.seed(seed)[0], forget, how, seed)
                logits = logits_of(model, data.validation.x)
                mine = data.validation.y == index
                right = logits.argmax(1) == data.validation.y
                result.append((fraction(right[mine]), fraction(right[~mine]), steps))
        gone, others, steps = (spread(list(values), 4) for values in zip(*result, strict=True))
        tried.append({"ascent": str(how), "n": len(result), "removed": gone, "others": others})
        tried[-1]["steps"] = steps
        print(json.dumps(tried[-1]), flush=True)
    # One that did not forget has done no damage either.
    reached = [k for k in range(len(tried)) if tried[k]["removed"]["mean"] <= 2 * FORGOTTEN]
    best = max(reached, key=lambda k: tried[k]["others"]["mean"])
    tried[best]["chosen"] = True
    return ASCENTS[best], tried


def ascent(joint: ia.Module, data: ia.Data, name: str, how: Ascent, seed: int) -> Cell:
    index = data.catalogue.index(name)
    forget = data.train.select([index])
    (model, steps), (wall, seconds) = timed(lambda: forgetting(joint, forget, how, seed))
    cell = {"class": name, "seconds": seconds, "wall": wall, "steps": steps}
    return cell | against(joint, model, index, data)


def trained_again(joint: ia.Module, data: ia.Data, model: str, name: str, seed: int) -> Cell:
    index = data.catalogue.index(name)
    module, (wall, seconds) = timed(lambda: retrain(data, model, seed, index))
    cell = {"class": name, "seconds": seconds, "wall": wall}
    return cell | against(joint, module.to_module(), index, data)


def against(joint: ia.Module, model: torch.nn.Module, index: int, data: ia.Data) -> Cell:
    before, after = (logits_of(m, data.test.x) for m in (joint.to_module(), model))
    return left_of_class(model, before, after, index, data)


def forgetting(joint: ia.Module, forget: ia.Split, how: Ascent, seed: int) -> tuple[Any, int]:
    """The joint network after ascent on these samples, and the steps it took.

    It stops once at most 2% of the samples are still answered with their class, or at the limit.
    """
    model = joint.to_module()
    return model, ascend(model, forget, how, lambda network: _forgotten(network, forget), seed)


def retrain(data: ia.Data, model: str, seed: int, index: int) -> ia.Module:
    """The joint network trained without a class; its output stays, and nothing rewards it."""
    settings = settings_of(data.name, model, "joint")
    rest = [c for c in data.catalogue if c != data.catalogue[index]]
    indices = [i for i in range(data.classes) if i != index]
    parts = data.train.select(indices), data.validation.select(indices), data.test
    less = ia.Data.build(data.name, data.catalogue, *parts, data.scaling.kind)
    settings |= {"partition": [rest], "seeds": [seed]}
    return ia.train(less, device="cpu", progress=False, **settings)[0]


def _forgotten(model: torch.nn.Module, forget: ia.Split) -> bool:
    return all(
        float((logits_of(model, x).argmax(1) == y).double().mean()) <= FORGOTTEN
        for x, y in ((forget.x[:FIRST], forget.y[:FIRST]), (forget.x, forget.y))
    )


if __name__ == "__main__":
    main()
