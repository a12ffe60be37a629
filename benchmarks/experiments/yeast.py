"""Why does the paper's pruning cut Yeast modules through, and how many rows come twice?

    python benchmarks/experiments/yeast.py  # 5 seeds, on the CPU
    python benchmarks/experiments/yeast.py --seeds 0 --models shallow

One module for each of the four classes under preset `paper`, and with one setting changed at a
time: the learning rate, how weights are ranked, how many are pruned, and the scale that weights
begin with. After every round: which fraction of each layer's weights is left, how far weights have
moved from where they began, how many modules have no way left from the inputs to the outputs, and
how often test samples of the module's class, and those of other classes, are answered with it.
Beside them, what the same pruning leaves of networks that were never trained, for the inputs of
other data sets. Then rows with the same features, within and across the splits, as `load_data`
cuts them with each value of `duplicates`. Results go to docs/results/yeast.json.
"""

import argparse
import warnings
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save, spread
from intarsia.data.load import DUPLICATES
from intarsia.errors import HealthWarning
from intarsia.models import MODELS, initialise
from intarsia.models.mlp import mlp
from intarsia.modules import Module, logits_of
from intarsia.pruning import Group, magnitude
from intarsia.studies.maxent.shared.merging import live_count
from intarsia.studies.plans import DROPOUT, HIDDEN
from intarsia.training.settings.presets import PAPER

ARMS: dict[str, dict[str, Any]] = {
    "paper": {},
    "learning rate 1e-3": {"learning_rate": 1e-3},
    "learning rate 1e-2": {"learning_rate": 1e-2},
    "pruned layer by layer": {"pruning": "magnitude(scope='layer')"},
    "sparsity 0.9": {"sparsity": 0.9},
    "layers begin alike": {"model": "even_mlp"},
}
INPUTS = {"yeast": 8, "har": 561, "mnist": 784}  # features of data sets, for untrained networks
OUTPUTS = {"yeast": 4, "har": 6, "mnist": 10}
SPLITS = ("train", "validation", "test")


@MODELS.register("even_mlp")
def even_mlp(
    shape: tuple[int, ...], outputs: int, hidden: Sequence[int] = (512,), dropout: float = DROPOUT
) -> nn.Module:
    """The paper's MLP, with the weights of all layers drawn from the range of the narrowest."""
    network = mlp(shape, outputs, hidden, dropout)
    widest = max(layer.in_features for layer in network.layers)
    with torch.no_grad():
        for layer in network.layers:
            for parameter in layer.parameters():
                parameter.mul_((layer.in_features / widest) ** 0.5)
    return network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(HIDDEN), default=list(HIDDEN))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    data = ia.load_data("yeast")
    rows = []
    for model in options.models:
        for arm, changed in ARMS.items():
            rows += rounds_of(data, model, arm, changed, options.seeds)
            print(rows[-1], flush=True)
    result = made_by(
        __file__, "--models", *options.models, "--seeds", *options.seeds, machine="CPU"
    )
    settings = {key: PAPER[key] for key in ("sparsity", "rounds")}
    untrained = [
        {"data": name, "model": model, "kept": untrained_layers(name, model, options.seeds)}
        for name in INPUTS
        for model in options.models
    ]
    content = {"paper": settings, "rows": rows, "untrained": untrained, **duplicates()}
    save(options.out, "yeast", {**result, "seeds": len(options.seeds), **content})


def rounds_of(
    data: ia.Data, model: str, arm: str, changed: Mapping[str, Any], seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """A row for each round: layer by layer what is left and how far it has moved."""
    name = changed.get("model", "mlp")
    network = {"name": name, "hidden": list(HIDDEN[model]), "dropout": DROPOUT}
    settings = {**changed, "model": network, "preset": "paper", "seeds": list(seeds)}
    with warnings.catch_warnings(action="ignore", category=HealthWarning):  # what is measured here
        bank = ia.train(data, keep_rounds=True, progress=False, device="cpu", **settings)
    origins = {s: origin_of(network, data.shape, data.classes, s) for s in seeds}
    rows = []
    for number, own in enumerate([*bank.rounds, bank]):
        modules = list(own)
        answers = [answered(module, data.test) for module in modules]
        rows.append(
            {
                "model": model,
                "arm": arm,
                "round": number,
                "modules": len(modules),
                "cut through": sum(live_count(module)[0] == 0 for module in modules),
                "own": spread([own for own, _ in answers]),
                "others": spread([others for _, others in answers]),
                "layers": [
                    {
                        "layer": layer,
                        "kept": spread([kept(module, layer) for module in modules]),
                        "none": sum(kept(module, layer) == 0 for module in modules),
                        "begin": spread([rms(origins[seed_of(m)][layer]) for m in modules]),
                        "moved": spread([moved(m, layer, origins) for m in modules]),
                    }
                    for layer in weights_of(modules[0].state)
                ],
            }
        )
    return rows


def answered(module: Module, test: ia.Split) -> tuple[float, float]:
    """How often test samples of its class, and of others, are answered with that class."""
    (index,) = (module.catalogue.index(name) for name in module.rewarded)
    taken = (logits_of(module.to_module(), test.x).argmax(1) == index).double()
    mine = test.y == index
    return float(taken[mine].mean()), float(taken[~mine].mean())


def origin_of(
    network: Mapping[str, Any], shape: tuple[int, ...], outputs: int, seed: int
) -> dict[str, Tensor]:
    return dict(initialise(network, shape, outputs, seed).state_dict())


def weights_of(state: Mapping[str, Tensor]) -> list[str]:
    """The names of the weights, without biases."""
    return [name for name in state if name.endswith("weight")]


def kept(module: Module, layer: str) -> float:
    """The fraction of a layer's weights that is left."""
    mask = module.mask.get(layer)
    return 1.0 if mask is None else float(mask.double().mean())


def moved(module: Module, layer: str, origins: Mapping[int, Mapping[str, Tensor]]) -> float:
    """How far the weights that are left have moved from where they began, by root mean square."""
    mask = module.mask.get(layer, torch.ones_like(module.state[layer], dtype=torch.bool))
    change = (module.state[layer] - origins[seed_of(module)][layer])[mask]
    return rms(change) if change.numel() else 0.0


def seed_of(module: Module) -> int:
    return int(module.provenance["seed"])


def rms(values: Tensor) -> float:
    return float(values.double().square().mean().sqrt())


def untrained_layers(data: str, model: str, seeds: Sequence[int]) -> list[dict[str, float]]:
    """Layer by layer, what the paper's pruning leaves of weights as they begin.

    The ranking never changes, so that all rounds are one.
    """
    network = {"name": "mlp", "hidden": list(HIDDEN[model])}
    fractions = []
    for seed in seeds:
        state = origin_of(network, (INPUTS[data],), OUTPUTS[data], seed)
        weights = {name: state[name] for name in weights_of(state)}
        (mask,) = magnitude(Group([weights], [{}], None, PAPER["sparsity"], [seed], [seed]))
        fractions.append([float(mask[name].double().mean()) for name in weights])
    return [spread(layer) for layer in zip(*fractions, strict=True)]


def duplicates() -> dict[str, Any]:
    """Rows with the same features, in all and across splits."""
    every = ia.load_data("yeast", classes="all", test=0, validation=0).train
    kept = ia.load_data("yeast", test=0, validation=0).train
    counts = [
        {"rows": name, **repeated(split)}
        for name, split in (("all ten classes", every), ("the four classes", kept))
    ]
    ways = {way: ia.load_data("yeast", duplicates=way) for way in DUPLICATES}
    return {
        "repeated": counts,
        "splits": [
            {
                "duplicates": way,
                **{name: len(getattr(data, name)) for name in SPLITS},
                "shared": {
                    f"{one} and {other}": len(rows_of(data, one) & rows_of(data, other))
                    for one, other in combinations(SPLITS, 2)
                },
            }
            for way, data in ways.items()
        ],
    }


def repeated(split: ia.Split) -> dict[str, int]:
    """How many rows there are, how many distinct, and how many of these have several labels."""
    labels: dict[tuple[float, ...], set[int]] = {}
    for x, y in zip(split.x.tolist(), split.y.tolist(), strict=True):
        labels.setdefault(tuple(x), set()).add(y)
    several = sum(len(own) > 1 for own in labels.values())
    return {"n": len(split), "distinct": len(labels), "with several labels": several}


def rows_of(data: ia.Data, split: str) -> set[tuple[float, ...]]:
    return {tuple(row) for row in getattr(data, split).x.tolist()}


if __name__ == "__main__":
    main()
