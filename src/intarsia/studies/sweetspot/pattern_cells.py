"""Cells of study `sweetspot`: which networks are fitted and pruned, and what is measured of them.

The networks of a cell differ in their seeds alone and are fitted in one stack. What several cells
start from, such as the dense networks that every arm prunes, is kept in the store and fitted once.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import torch

from intarsia.errors import FileError, RecipeError, StudyError, nearest
from intarsia.files import digest_of
from intarsia.studies.cells import Cell
from intarsia.studies.context import StudyContext
from intarsia.studies.options import check_count, check_counts, check_numbers
from intarsia.studies.study import seeds_of
from intarsia.sweetspot import (
    ARMS,
    PATTERN_OPTIMISERS,
    PatternBank,
    PatternLayout,
    PatternNetwork,
    available,
    distinct_maps,
    fit,
    inflation,
    initial_bank,
    load,
    load_network,
    orthogonality,
    png_ratio,
    predicted_depth,
    prune,
)
from intarsia.sweetspot.depth_scan import FLAT, SHARE
from intarsia.sweetspot.networks import DEFAULT_BLOCKS
from intarsia.sweetspot.pattern_fits import BANK
from intarsia.sweetspot.targets import PUBLISHED, TWIN

NAME = "sweetspot"
REFERENCE, ARM, DEPTH, WIRING, OPTIMISER, VOLUME = (
    "reference", "arms", "depth", "wiring", "optimisers", "volume",
)  # fmt: skip
PARTS = (REFERENCE, ARM, DEPTH, WIRING, OPTIMISER, VOLUME)
DENSE = "dense"
UNITS, CONNECTIONS = "similarity", "connections"  # the paper's way, as we read it
RANDOM, RANDOM_UNITS, CONTRIBUTION = "random", "random_units", "contribution"
COPIES = ("trained", "held")
PRINTED = {"skull": [1404, 473], "butterfly": [3405, 468]}  # weights after the paper's rounds
QUARTER = 4  # of other networks one weight in so many stays, in one round
RATE, RATES = 3e-3, {"apple": 3e-4}  # as the published twins were trained
PNG_SIZES = (256, 128, 64, 32)
SIGNS = 5  # sign seeds of reference networks
FLAT_SIZE = 32

SCALES: dict[str, dict[str, Any]] = {
    "paper": {
        "data": list(PUBLISHED),
        "seeds": 8,
        "parts": list(PARTS),
        "recipe": {"size": 64, "steps": 6000},  # of dense networks; settings of sweetspot.fit
        "retraining": 2500,  # steps after a pruning
        "wiring_steps": 5000,
        "arms": [
            DENSE, UNITS, "similarity(within='linear')", CONNECTIONS, "magnitude", "ticket",
            "wanda", CONTRIBUTION, RANDOM, RANDOM_UNITS,
        ],
        "budgets": PRINTED,
        "offsets": list(range(-4, 5)),
        "depth_arms": [DENSE, UNITS],
        "grid_data": ["skull"],  # of optimisers and of the map over width and depth
        "optimisers": ["adam", "muon", "muon(steps=20)"],
        "learning_rates": [5e-3, 3e-3, 1e-3, 5e-4, 1e-4],
        "widths": [3, 6, 12, 24, 48, 96, 192],
        "depths": list(range(1, 10)),
        "volume_steps": 3000,
        "scored": 48,  # weights of each network that are changed for its score
    }
}  # fmt: skip
SCALES["small"] = {
    **SCALES["paper"],
    "data": ["totem"],
    "seeds": 3,
    "recipe": {"size": 16, "steps": 40},
    "retraining": 30,
    "wiring_steps": 30,
    "arms": [DENSE, UNITS, "magnitude", "ticket", CONTRIBUTION, RANDOM, RANDOM_UNITS],
    "budgets": {"totem": [142, 90]},
    "offsets": [-1, 0, 1],
    "grid_data": ["totem"],
    "optimisers": ["adam", "muon(steps=20)"],
    "learning_rates": [3e-3],
    "widths": [4, 8],
    "depths": [1, 2, 3],
    "volume_steps": 30,
    "scored": 6,
}


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """Those of every part and target; published targets that are not on this machine fall out."""
    parts = [_known("parts", part, PARTS) for part in options["parts"]]
    _check(options)
    here = [name for name in options["data"] if name not in PUBLISHED or name in available()]
    for name in here or options["data"]:  # where none is here, loading says where they belong
        for part in parts:
            for own in _settings(part, name, options):
                yield Cell(NAME, {"data": name, "part": part, **own}, {})


def _settings(part: str, name: str, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The settings of the cells of one part and target, but for these two."""
    target = load(name)
    evolved = isinstance(target, PatternNetwork)
    shared = {"target": [_digest(target)], "scored": options["scored"]}
    how = {**shared, "seeds": seeds_of(options["seeds"]), "recipe": _recipe(name, options)}
    if part == REFERENCE and evolved:
        yield shared
    elif part == ARM:
        for arm in options["arms"]:
            for number, weights in enumerate([None] if arm == DENSE else _budgets(name, options)):
                rounds = _budgets(name, options)[: number + 1]
                pruned = {"round": number + 1, "weights": weights, "budgets": rounds}
                more = {"retraining": options["retraining"]} | pruned
                yield {**how, "arm": arm, **({"round": 0} if arm == DENSE else more)}
    elif part == DEPTH:
        for offset, arm in product(options["offsets"], options["depth_arms"]):
            if center_of(target) + offset >= 1:
                more = {} if arm == DENSE else {"retraining": options["retraining"]}
                yield {**how, "offset": offset, "arm": arm, **more}
    elif part == WIRING and evolved:
        for copies in COPIES:
            recipe = {**how["recipe"], "steps": options["wiring_steps"]}
            yield {**how, "recipe": recipe, "copies": copies}
    elif part == OPTIMISER and name in options["grid_data"]:
        for optimiser, rate in product(options["optimisers"], options["learning_rates"]):
            yield {**how, "optimiser": optimiser, "learning_rate": rate}
    elif part == VOLUME and name in options["grid_data"]:
        for width, depth in product(options["widths"], options["depths"]):
            recipe = {**how["recipe"], "steps": options["volume_steps"]}
            yield {**how, "recipe": recipe, "width": width, "depth": depth}


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """Losses and scores of every network, as far as they could be made; of a reference its own."""
    own, part = cell.settings, cell.settings["part"]
    if part == REFERENCE:
        return _reference(own["data"], own["scored"], context)
    if part == WIRING:
        return scores_of(_rewired(own, context), own, context)
    target = load(own["data"])
    plan = FitPlan(own["data"], own["target"][0], tuple(own["seeds"]), own["recipe"])
    if part == ARM and own["arm"] != DENSE:
        chain = tuple((own["arm"], weights) for weights in own["budgets"])
        plan = replace(plan, chain=chain, retraining=own["retraining"])
    elif part == DEPTH:
        plan = replace(plan, depth=center_of(target) + own["offset"])
        if own["arm"] != DENSE:
            chain = ((own["arm"], round(SHARE * plan.layout.parameters)),)
            plan = replace(plan, chain=chain, retraining=own["retraining"])
    elif part == OPTIMISER:
        how = {key: own[key] for key in ("optimiser", "learning_rate")}
        plan = replace(plan, recipe={**own["recipe"], **how})
    elif part == VOLUME:
        plan = replace(plan, depth=own["depth"], width=own["width"])
    return scores_of(plan.fitted(context), own, context)


@dataclass(frozen=True)
class FitPlan:
    """Networks of some seeds, fitted dense, then pruned and trained on, round by round.

    chain         (arm, weights) of each round; none leaves them dense
    retraining    steps after each round
    """

    data: str
    target: str  # its digest
    seeds: tuple[int, ...]
    recipe: Mapping[str, Any]
    depth: int | None = None
    width: int | None = None
    chain: tuple[tuple[str, int], ...] = ()
    retraining: int = 0

    @cached_property
    def layout(self) -> PatternLayout:
        """That of the target, unless depth or width say otherwise."""
        target = load(self.data)
        blocks = target.layout.blocks if isinstance(target, PatternNetwork) else DEFAULT_BLOCKS
        depth = self.depth or center_of(target)
        if self.width is None:
            return PatternLayout(blocks, depth)
        return PatternLayout.of_width(self.width, depth, blocks)

    @property
    def key(self) -> str:
        layout = [list(map(list, self.layout.blocks)), self.layout.depth]
        what = [self.target, list(self.seeds), dict(self.recipe), layout]
        rounds = [[arm, weights, self.retraining] for arm, weights in self.chain]
        return digest_of(["pattern fit", *what, rounds])

    def fitted(self, context: StudyContext) -> PatternBank | None:
        """The networks, without those that could not be pruned; None where none could."""
        with context.shared_folder(self.key) as folder:
            kept = _read(folder / BANK)
            if kept is not None:
                return kept
            how: dict[str, Any] = {**self.recipe, "device": str(context.device)}
            how |= {"out": folder, "progress": False}
            if not self.chain:
                layout, seeds = self.layout, list(self.seeds)
                return fit(self.data, depth=layout.depth, blocks=layout.blocks, seeds=seeds, **how)
            start = self._pruned(context)
            if start is None:
                return None
            return fit(self.data, start=start, **{**how, "steps": self.retraining})

    def _pruned(self, context: StudyContext) -> PatternBank | None:
        """The networks of the round before, pruned one by one: one may fail where others do not."""
        arm, weights = self.chain[-1]
        done = []
        for network in replace(self, chain=self.chain[:-1]).fitted(context) or ():
            seed = seed_of(network.name)
            start = initial_bank(self.layout, [seed])
            with suppress(RecipeError):
                made = prune(network, arm, weights=weights, seed=seed, origin=start)[0]
                done.append(replace(made, name=network.name))
        if not done:
            return None
        names = tuple(network.name for network in done)
        return replace(PatternBank.of(done), names=names)


def center_of(target: Any) -> int:
    """The depth of the target's own layout, or that its PNG ratio suggests."""
    if isinstance(target, PatternNetwork):
        return target.layout.depth
    return predicted_depth(target)


def seed_of(name: str) -> int:
    """`seed-3` -> 3: as `fit` names networks."""
    return int(name.removeprefix("seed-").partition("-")[0])


def scores_of(
    bank: PatternBank | None, settings: Mapping[str, Any], context: StudyContext
) -> dict[str, Any]:
    """By network, in one list each: loss, inflation, orthogonality, distinct maps; which are flat.

    An inflation that does not exist, since no weight moves the picture, is None. Seeds that are
    missing are of networks that could not be pruned to the budget.
    """
    if bank is None:
        return {"seeds": [], "losses": [], "scores": [], "flat": []}
    assert bank.losses is not None
    how = {"weights": settings["scored"], "device": context.device}
    found = [inflation(network, **how) for network in bank]
    maps = [distinct_maps(network) for network in bank]
    spread = bank.images(FLAT_SIZE).flatten(1, 2).std(1).amax(1)
    return {
        "seeds": [seed_of(name) for name in bank.names],
        "losses": list(bank.losses),
        "scores": [_known_number(each.median) for each in found],
        "moved": [len(each.ratios) for each in found],
        "flat": [bool(value < FLAT) for value in spread],
        "nonzero": list(bank.nonzero),
        "orthogonality": [_known_number(orthogonality(network)) for network in bank],
        "distinct": [each.count for each in maps],
        "maps": [each.total for each in maps],
        "depth": bank.layout.depth,
        "width": bank.layout.width,
        "encoder": found[0].encoder,
    }


def _rewired(settings: Mapping[str, Any], context: StudyContext) -> PatternBank:
    """Random weights in the evolved wiring, trained."""
    network = load_network(settings["data"])
    start = initial_bank(network.layout, list(settings["seeds"]))
    arm = f"evolved(copies={settings['copies']!r})"
    how = {**settings["recipe"], "device": str(context.device), "progress": False}
    return prune(start, arm, wiring=network, image=network, **how)


def _reference(name: str, scored: int, context: StudyContext) -> dict[str, Any]:
    """The evolved network and, where it has one, its twin; PNG ratios of its picture by size."""
    network = load_network(name)
    both = {"evolved": network}
    if name in PUBLISHED:
        both["twin"] = load_network(name + TWIN)
    found: dict[str, Any] = {}
    for who, one in both.items():
        each = [
            inflation(one, weights=scored, seed=seed, device=context.device).median
            for seed in range(SIGNS)
        ]
        maps = distinct_maps(one)
        found[who] = {
            "scores": [_known_number(score) for score in each],
            "nonzero": one.nonzero,
            "orthogonality": _known_number(orthogonality(one)),
            "distinct": maps.count,
            "maps": maps.total,
        }
    ratios = {str(size): png_ratio(network.image(size)) for size in PNG_SIZES}
    layout = network.layout
    return {**found, "png": ratios, "depth": layout.depth, "parameters": layout.parameters}


def _budgets(name: str, options: Mapping[str, Any]) -> list[int]:
    """Weights after each round: the printed ones, or a quarter."""
    if name in options["budgets"]:
        return check_counts(options["budgets"], name)
    plan = FitPlan(name, "", (), {})
    return [plan.layout.parameters // QUARTER]


def _recipe(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return {"learning_rate": RATES.get(name, RATE), **options["recipe"]}


def _check(options: Mapping[str, Any]) -> None:
    for key in ("retraining", "wiring_steps", "volume_steps", "scored"):
        check_count(options, key)
    for key in ("widths", "depths"):
        check_counts(options, key)
    check_numbers(options, "learning_rates")
    for key in ("arms", "depth_arms"):
        for arm in options[key]:
            if arm != DENSE:
                _check_arm(key, arm)
    for optimiser in options["optimisers"]:
        _spec(PATTERN_OPTIMISERS, "optimisers", optimiser)
    for offset in options["offsets"]:
        if type(offset) is not int:
            raise StudyError(f"option 'offsets' has {offset!r}: expected whole numbers")


def _check_arm(key: str, arm: Any) -> None:
    name = _spec(ARMS, key, arm).name
    if ARMS.entry(name).own_budget:
        raise StudyError(
            f"option {key!r} has {arm!r}, which keeps as many weights as it likes: expected arms "
            "that are pruned to a budget; the evolved wiring is the part 'wiring'"
        )


def _spec(registry: Any, key: str, given: Any) -> Any:
    try:
        return registry.spec(given)
    except RecipeError as error:
        raise StudyError(f"option {key!r} has {given!r}: {error}") from None


def _known(key: str, value: Any, known: Sequence[str]) -> str:
    if value not in known:
        raise StudyError(f"option {key!r} has {value!r}: {nearest(str(value), known)}")
    return str(value)


def _known_number(value: float) -> float | None:
    return value if value == value else None


def _digest(target: Any) -> str:
    """Of a network's weights, which are the same on all machines, or of a picture's pixels."""
    if isinstance(target, PatternNetwork):
        tensors = {f"{n:03}": matrix for n, matrix in enumerate(target.weights)}
    else:
        tensors = {"pixels": torch.as_tensor(target.image())}
    return digest_of(["target"], tensors)


def _read(path: Path) -> PatternBank | None:
    """Networks that are there; what cannot be read is fitted again."""
    if not path.exists():
        return None
    try:
        return PatternBank.load(path)
    except FileError:
        path.unlink()
        return None
