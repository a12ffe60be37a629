"""Cells of the study `flow`: an arm of pair networks by seed, or a check of what carries cumulants.

The networks of an arm are trained as one stack of `stack` seeds, and a cell measures one of them:
the first cell of a stack trains it for the others that follow.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from intarsia.errors import IntarsiaError, StudyError, nearest, shortened
from intarsia.files import stream
from intarsia.flow import (
    GraphNetwork,
    PairBank,
    PairNetwork,
    UnitLayer,
    balanced_quadratic,
    cumulants,
    draw,
    fit,
    floor_error,
    iterate,
    law_cumulants,
    on_manifold,
    propagate,
)
from intarsia.flow.pair_fits import CUMULANTS, LOSSES, MSE
from intarsia.flow.pair_networks import FORMS, HALF, SYMMETRIC
from intarsia.flow.unit_moments import Unit
from intarsia.studies.cells import Cell
from intarsia.studies.context import StudyContext
from intarsia.studies.options import check_count, check_counts, check_numbers
from intarsia.studies.study import seeds_of

NAME = "flow"
UNIT_OPTIONS = ("units", "closure_units")
LAW_OPTIONS = ("train_laws", "test_laws", "closure_laws")
ARM, AFFINE, FLOW, FLOOR, CLOSURE = "arm", "affine", "flow", "floor", "closure"
DEPTH, INPUTS, MIXED = 3, 4, 3  # of random networks: layers, inputs; dimensions of affine checks
ALL_PAIRS = 400  # samples of which all pairs are summed
SQUARE = 0.2  # of x squared, in the balanced quadratic pair
NODES = 4  # of the larger graph
MOST_STEPS = 24  # of a sampled flow: 16 samples are left of the most that a law gives
SCALES: dict[str, dict[str, Any]] = {
    "paper": {
        "forms": list(FORMS),
        "units": ["linear", "quadratic", "tanh", "relu"],
        "widths": [1, 4, 16],
        "train_laws": ["exponential", "uniform"],
        "loss": list(LOSSES),
        "test_laws": ["exponential", "uniform", "laplace", "bernoulli", "gaussian"],
        "seeds": 5,
        "stack": 5,
        "steps": 1500,
        "batch": 512,
        "learning_rate": 0.02,
        "test_pairs": 2**16,
        "flow_steps": 6,
        "flow_samples": 2**22,
        "affine_samples": 5000,
        "second_weights": [0.5, 1.0, 2.0, 4.0, 8.0, 100.0],
        "floor_pairs": 2**21,
        "closure_units": ["tanh", "quadratic", "relu"],
        "closure_widths": [8, 64],
        "closure_laws": ["gaussian", "exponential"],
        "closure_samples": 200_000,
    },
}
SCALES["small"] = {
    **SCALES["paper"],
    "units": ["linear", "quadratic"],
    "widths": [1, 4],
    "train_laws": ["exponential"],
    "loss": [MSE],
    "test_laws": ["exponential", "laplace"],
    "seeds": 2,
    "stack": 2,
    "steps": 200,
    "batch": 64,
    "test_pairs": 2**10,
    "flow_steps": 3,
    "flow_samples": 2**14,
    "floor_pairs": 2**14,
    "closure_units": ["tanh"],
    "closure_widths": [8],
    "closure_samples": 2000,
}


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """One per arm and seed, then one per check and seed.

    Networks are trained on cumulants for the first of the training laws alone.
    """
    _check(options)
    fitting = {key: options[key] for key in ("stack", "steps", "batch", "learning_rate")}
    testing = {key: options[key] for key in ("test_pairs", "flow_steps")}
    testing["laws"] = options["test_laws"]
    arms = ("loss", "train_laws", "forms", "units", "widths", "seeds")
    for loss, law, form, unit, width, seed in product(*(_values(options, key) for key in arms)):
        if loss == CUMULANTS and law != options["train_laws"][0]:
            continue
        arm = {"form": form, "unit": unit, "width": width, "train_law": law, "loss": loss}
        yield _cell(ARM, seed, **arm, **fitting, **testing)
    for seed in seeds_of(options["seeds"]):
        yield _cell(AFFINE, seed, affine_samples=options["affine_samples"])
        flow = {key: options[key] for key in ("flow_steps", "flow_samples")}
        yield _cell(FLOW, seed, law=options["train_laws"][0], **flow)
        floor = {key: options[key] for key in ("second_weights", "floor_pairs")}
        yield _cell(FLOOR, seed, law=options["train_laws"][0], **floor)
    closures = ("closure_units", "closure_widths", "closure_laws", "seeds")
    for unit, width, law, seed in product(*(_values(options, key) for key in closures)):
        own = {"closure_unit": unit, "closure_width": width, "closure_law": law}
        yield _cell(CLOSURE, seed, **own, closure_samples=options["closure_samples"])


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """What the part of the study that a cell belongs to measures."""
    parts: dict[str, Callable[[Mapping[str, Any], StudyContext], dict[str, Any]]] = {
        ARM: _arm,
        AFFINE: lambda settings, _: _affine(settings),
        FLOW: lambda settings, _: _flow(settings),
        FLOOR: lambda settings, _: _floor(settings),
        CLOSURE: lambda settings, _: _closure(settings),
    }
    return parts[cell.settings["part"]](cell.settings, context)


def _arm(settings: Mapping[str, Any], context: StudyContext) -> dict[str, Any]:
    """Test errors by law, cumulants step by step, and the form as a graph, of one network."""
    bank, place = _stacked(settings, context)
    network, pairs = bank[place], settings["test_pairs"]
    if not all(torch.isfinite(parameter).all() for parameter in network.parameters()):
        return {"diverged": True}
    errors = {law: _error(network, draw(law, pairs, 2, seed=1)) for law in settings["laws"]}
    trace = iterate(
        network, settings["train_law"], settings["flow_steps"], samples=2 * pairs, resample=True
    )
    rows = trace.to_json()["steps"]
    result: dict[str, Any] = {
        "mse": errors,
        "steps": [row["cumulants"] for row in rows],
        "law": [row["law"] for row in rows],
    }
    if network.unit.polynomial is not None:
        result["distance"] = on_manifold(network).distance
    if network.form == SYMMETRIC:
        result |= _graph(network, settings["train_law"], pairs)
    return result


def _stacked(settings: Mapping[str, Any], context: StudyContext) -> tuple[PairBank, int]:
    """The bank of a cell's seed, trained once for all seeds of its stack, and its place there."""
    arm = {key: settings[key] for key in ("form", "unit", "width", "loss")}
    how = {key: settings[key] for key in ("steps", "batch", "learning_rate")}
    block, place = divmod(settings["seed"], settings["stack"])
    seeds = range(block * settings["stack"], (block + 1) * settings["stack"])
    law = settings["train_law"]
    bank = context.remembered(
        f"pair networks {arm} {how} {law} {seeds}",
        lambda: fit(**arm, **how, law=law, seeds=list(seeds)),
    )
    return bank, place


@torch.no_grad()
def _error(network: nn.Module, x: Tensor) -> float:
    """The mean squared error against the sum over the root of the number of inputs."""
    return float((network(x) - x.sum(1) / math.sqrt(x.shape[1])).square().mean())


@torch.no_grad()
def _graph(network: PairNetwork, law: str, pairs: int) -> dict[str, Any]:
    """How far the form as a graph is from the network, and both on four numbers."""
    graph = GraphNetwork(network)
    two, four = draw(law, pairs, 2, seed=1), draw(law, pairs, NODES, seed=2)
    halves = torch.stack([network(four[:, :2]), network(four[:, 2:])], 1)
    tree = network(halves) - four.sum(1) / math.sqrt(NODES)
    return {
        "graph_difference": float((graph(two) - network(two)).abs().max()),
        "graph_four": _error(graph, four),
        "tree_four": float(tree.square().mean()),
    }


def _affine(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Relative differences, by order, between cumulants carried through W x + b and measured."""
    seed, count = settings["seed"], settings["affine_samples"]
    laws = ("exponential", "uniform", "laplace")
    x = torch.cat([draw(law, count, 1, seed=seed) for law in laws], 1)
    x[:, 1] += 0.5 * x[:, 0] ** 2  # so that dimensions depend on each other
    weight = draw("gaussian", MIXED + 1, MIXED, seed=seed)
    bias = draw("gaussian", MIXED + 1, seed=seed + 1)
    carried = cumulants(x, errors=False).affine(weight, bias)
    measured = cumulants(x @ weight.T + bias, errors=False)
    pairs = zip(carried.values, measured.values, strict=True)
    return {"relative": [float((a - b).abs().max() / b.abs().max()) for a, b in pairs]}


def _flow(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The exact flow against its law, all pairs of a sample, and the sampled flow."""
    law, steps, seed = settings["law"], settings["flow_steps"], settings["seed"]
    start = law_cumulants(law)
    exact = iterate("exact", start, steps)
    scaled = [
        [float(value) * 2 ** (step * (1 - r / 2)) for r, value in enumerate(start.values, 1)]
        for step in range(steps + 1)
    ]
    rows = zip(exact.steps, scaled, strict=True)
    gaps = [abs(float(a) - b) / (abs(b) or 1) for own, law_ in rows for a, b in _both(own, law_)]
    sampled = iterate("exact", law, steps, samples=settings["flow_samples"], seed=seed)
    return {
        "exact": max(gaps),
        "all_pairs": _all_pairs(draw(law, ALL_PAIRS, seed=seed)),
        "sampled": sampled.to_json()["steps"],
        "standard_errors_away": sampled.deviations(),
    }


def _both(own: Any, law: list[float]) -> Iterator[tuple[float, float]]:
    return zip(map(float, own.values), law, strict=True)


def _all_pairs(x: Tensor) -> float:
    """Of all ordered pairs of a sample, whose law is a step of the sample's own, to rounding.

    The mean of the sample is no small number beside its own rounding, and is taken away.
    """
    x = x - x.mean() + 1
    sums = HALF * (x[:, None] + x).flatten()
    start = cumulants(x, errors=False)
    after = cumulants(sums, errors=False)
    scaled = [float(value) * 2 ** (1 - r / 2) for r, value in enumerate(start.values, 1)]
    return max(abs(float(a) - b) / abs(b) for a, b in zip(after.values, scaled, strict=True))


@torch.no_grad()
def _floor(settings: Mapping[str, Any]) -> dict[str, Any]:
    """By w2, the error of the balanced quadratic pair: by the formula with the law's variance, on
    samples, and by the formula with the variance of these samples.
    """
    x = draw(settings["law"], settings["floor_pairs"], 2, seed=settings["seed"])
    own_variance = float(x.sum(1).square().var())
    rows = []
    for w2 in settings["second_weights"]:
        network = balanced_quadratic(w2, SQUARE)
        own = (SQUARE / (4 * w2)) ** 2 * own_variance
        rows.append([w2, floor_error(w2, settings["law"], SQUARE), _error(network, x), own])
    return {"rows": rows}


def _closure(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Errors of the Gaussian closure behind each layer of a random network."""
    seed, width = settings["seed"], settings["closure_width"]
    generator = torch.Generator().manual_seed(stream("flow closure", width, seed))
    layers: list[nn.Module] = []
    for reads in (INPUTS, *[width] * (DEPTH - 1)):
        layer = nn.Linear(reads, width, dtype=torch.float64)
        with torch.no_grad():
            layer.weight.normal_(0, 1 / math.sqrt(reads), generator=generator)
            layer.bias.normal_(0, 0.1, generator=generator)
        layers += [layer, UnitLayer(settings["closure_unit"])]
    x = draw(settings["closure_law"], settings["closure_samples"], INPUTS, seed=seed)
    found = propagate(nn.Sequential(*layers), x)
    keys = ("mean_error", "mean_noise", "covariance_error", "covariance_noise", "kurtosis")
    behind = [layer.to_json() for layer in list(found)[2::2]]  # the input, then affine, activation
    return {"layers": [{key: row[key] for key in keys} for row in behind]}


def _cell(part: str, seed: int, **settings: Any) -> Cell:
    return Cell(NAME, {"part": part, **settings, "seed": seed}, {})


def _values(options: Mapping[str, Any], key: str) -> list[Any]:
    return seeds_of(options[key]) if key == "seeds" else list(options[key])


def _check(options: Mapping[str, Any]) -> None:
    """What cannot be measured is refused before anything is trained."""
    for key, known in (("forms", FORMS), ("loss", LOSSES)):
        for value in options[key]:
            if value not in known:
                raise StudyError(f"option {key!r} has {shortened(value)}: {nearest(value, known)}")
    for make, keys in ((Unit, UNIT_OPTIONS), (law_cumulants, LAW_OPTIONS)):
        for key in keys:
            _check_specs(make, key, options[key])
    for key in ("train_laws", "test_laws"):
        if not options[key]:
            raise StudyError(f"option {key!r} is empty: expected at least one law")
    for key in ("widths", "closure_widths"):
        check_counts(options, key)
    check_numbers(options, "second_weights")
    check_numbers({"learning_rate": [options["learning_rate"]]}, "learning_rate")
    counts = ("stack", "steps", "batch", "flow_steps", "affine_samples")
    for key in counts:
        check_count(options, key)
    for key in ("test_pairs", "floor_pairs", "closure_samples"):
        check_count(options, key, 8)
    if options["flow_steps"] > MOST_STEPS:
        raise StudyError(
            f"option 'flow_steps' is {shortened(options['flow_steps'])}: expected at most "
            f"{MOST_STEPS}, since every step halves the samples"
        )
    check_count(options, "flow_samples", 16 << options["flow_steps"])


def _check_specs(make: Callable[[str], Any], key: str, values: Sequence[str]) -> None:
    for value in values:
        try:
            make(value)
        except IntarsiaError as error:
            raise StudyError(f"option {key!r} has {shortened(value)}: {error}") from None
