"""Study `unlearning`: each class in turn taken out of a composition, or forgotten otherwise."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from intarsia.composition import Composition, compose
from intarsia.data import Data, Split
from intarsia.data.dataset import evenly_spaced
from intarsia.measure import nonrewarded_entropy, rewarded_accuracy
from intarsia.modules import Bank, Module, logits_of
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.shared import ways as compared
from intarsia.studies.maxent.shared.baselines import Ascent, best_ascent, check_rates
from intarsia.studies.maxent.shared.complete_merges import NAMES, figure_name
from intarsia.studies.options import check_count, check_operators, readable
from intarsia.studies.study import Study, register, scales, seeds_of
from intarsia.studies.tables import Entry, Spread, Table, finite, grouped
from intarsia.studies.verdict import Findings, Verdict
from intarsia.studies.wording import count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALES = scales(
    paper={
        "models": ["shallow"],
        "operators": ["logits", "sum"],
        "rates": [1e-4, 3e-4, 1e-3],  # of the ascent, by Adam
        "limit": 400,  # steps of the ascent
    },
    small={"recipe": compared.SMALL_RECIPE, "rates": [1e-3, 1e-2], "limit": 60},
)
RETRAINING, ASCENT = "retraining", "gradient ascent"
COLUMNS = {
    "remaining_before": "remaining before",
    "remaining": "remaining after",
    "change": "change",
    "kept": "answers kept",
    "removed_before": "removed before",
    "removed": "removed after",
    "entropy": "entropy",
}
Way = dict[str, list[Any]]  # numbers by name, one per class; None where its module diverged
COMPARED = 1000  # test samples on which networks of equal weights are asked
PANELS = {
    "removed": "accuracy on the removed class",
    "entropy": "entropy on the removed class",
    "change": "change of accuracy on the remaining classes",
}
UNITS = {"removed": "accuracy", "entropy": "nats", "change": "change"}
BOUNDS = {"removed": (0.0, 1.0), "entropy": (0.0, math.inf), "change": (-1.0, 1.0)}


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """One per data set, model and seed, with all classes."""
    preset = options["preset"]
    shared: dict[str, Any] = {"operators": check_operators(options, samples=False)}
    shared |= {"limit": check_count(options, "limit"), "rates": check_rates(options["rates"])}
    seeds = seeds_of(options["seeds"])
    for (data, model), seed in product(readable(options, context), seeds):
        names = context.data(data, preset).catalogue
        without = [[c for c in names if c != gone] for gone in names]
        recipe = options["recipe"]
        banks = {
            "modules": context.plan(data, model, None, seed, preset=preset, **recipe),
            "joint": compared.joint_plan(options, context, data, model, seed, [names]),
            "retrained": compared.joint_plan(options, context, data, model, seed, without),
        }
        settings = {"data": data, "model": model, "preset": preset, "seed": seed}
        yield Cell("unlearning", {**settings, **shared}, banks)


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """What every way leaves of a class and of the others, on test samples, class by class.

    A way is left out where training gave up what it needs.
    """
    settings, device = cell.settings, context.device
    data = context.data(settings["data"], settings["preset"])
    test = Split(data.test.x.to(device), data.test.y)
    parts = context.bank(cell.banks["modules"])
    joint = next(iter(context.bank(cell.banks["joint"], pruned=False)), None)
    retrained = context.bank(cell.banks["retrained"], pruned=False)
    ways = {}
    if len(parts) > 1:
        ways = {how: removal(parts, how, test, device) for how in settings["operators"]}
    if joint is not None and len(retrained):
        ways[RETRAINING] = retraining(joint, retrained, test, device)
    if joint is not None:
        chosen = {key: settings[key] for key in ("rates", "limit", "seed")}
        ways[ASCENT] = ascent(joint, data, test, device, **chosen)
    return {"classes": list(data.catalogue), "ways": ways}


def tables(done: Sequence[Measured]) -> list[Table]:
    """What is left of the removed class and of the others, over all classes and by class."""
    return compared.way_tables(done, _summary, _by_class)


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """The removed class and the others after each removal, by the class's place."""
    from intarsia.plots import COLOURS, curve_panels

    result = {}
    for (data, model), group in grouped(done, "data", "model").items():
        panels = compared.way_panels(group, PANELS, _places(group))
        if not panels:  # training gave up all that the ways need
            continue
        title = f"{data}, {model}: each class removed in turn"
        name = figure_name("unlearning", data, model)
        classes = group[0].result["classes"]
        result[name] = curve_panels(
            panels,
            title=title,
            x="class removed",
            x_names={float(place): str(name) for place, name in enumerate(classes)},
            y={PANELS[key]: unit for key, unit in UNITS.items()},
            bounds={PANELS[key]: bounds for key, bounds in BOUNDS.items()},
            colours={ASCENT: COLOURS[3], RETRAINING: COLOURS[4]},
        )
    return result


def verdict(findings: Findings) -> Verdict:
    """Whether removal is exact, and what every way leaves of a class and of the others."""

    def describe(rows: Sequence[compared.Row]) -> tuple[str, str]:
        exact = compared.by_way(rows, lambda row: row["exact"] and f"{row['exact']} removals")
        left = compared.by_way(rows, lambda row: f"{row['removed after'].mean:.1%}")
        change = compared.by_way(rows, lambda row: f"{100 * row['change'].mean:+.1f}")
        start = compared.by_way(rows, lambda row: f"{row['remaining before'].mean:.3f}")
        stops = left.replace(ASCENT, f"{ASCENT} (which stops at chance)")
        return f"exact in {exact}; accuracy left on the removed class: {left}", (
            f"Removal is exact, bit for bit, in {exact}. Afterwards, accuracy on the removed class "
            f"is {stops}. Accuracy on the other classes before removal is {start}; it changes, in "
            f"percentage points, by {change}."
        )

    return compared.ways_verdict(findings.cells, _summary, describe)


def _summary(name: str, group: Sequence[Measured]) -> Table:
    rows: list[list[Entry]] = []
    for way in compared.ways_in(group):
        numbers = [Spread.of(compared.values_of(group, way, key)) for key in COLUMNS]
        checks = [_all(group, way, key) for key in ("exact", "untouched")]
        rows.append([NAMES.get(way, way), *numbers, *checks])
    classes = len(_places(group))
    notes = [
        f"spread over {len(group)} seeds and {classes} removed classes; predictions are among all "
        f"{classes}, and the highest possible entropy is {math.log(classes):.4f} nats",
        "remaining, removed: accuracy on the remaining classes and on the removed one; answers "
        "kept: fraction of the samples of remaining classes whose prediction does not change, "
        "correct or not; entropy: on the removed class, afterwards",
        "exact: removals after which the composition gives the same logits, bit for bit, as one "
        "composed without the module, and the original ones once it is added again; untouched: "
        "removals that leave the logits of every other module unchanged, bit for bit",
        *_ascents(group),
        "the other modules were trained on samples of the removed class, to be uncertain about "
        "them; only retraining gives a network that has never seen them",
        *_lacking(group),
    ]
    columns = ["way", *COLUMNS.values(), "exact", "untouched"]
    return Table(f"{name}: each class removed in turn", columns, rows, notes)


def _ascents(group: Sequence[Measured]) -> list[str]:
    """A note on what gradient ascent took, where there was a network to take it."""
    steps = Spread.of(compared.values_of(group, ASCENT, "steps"))
    if not steps.n:
        return []
    return [
        f"gradient ascent: step size chosen on validation samples for each network and class; "
        f"{steps.mean:.0f} steps on average; {_all(group, ASCENT, 'reached')} come down to chance "
        f"on validation samples within the limit of steps"
    ]


def _lacking(group: Sequence[Measured]) -> list[str]:
    """A note for each seed and way whose networks training gave up."""
    notes = []
    for cell in group:
        ways = [*cell.settings["operators"], RETRAINING, ASCENT]
        lost = [NAMES.get(way, way) for way in ways if way not in cell.result["ways"]]
        if lost:
            seed = cell.settings["seed"]
            notes.append(f"seed {seed}: no {', '.join(lost)}, because what they need diverged")
    return notes


def _by_class(name: str, group: Sequence[Measured]) -> Table:
    keys = {"removed": "accuracy", "entropy": "entropy"}
    asked = [(way, key) for way in compared.ways_in(group) for key in keys]
    rows: list[list[Entry]] = [
        [
            group[0].result["classes"][i],
            *(Spread.of(compared.values_of(group, *what, i)) for what in asked),
        ]
        for i in _places(group)
    ]
    columns = ["removed class", *(f"{NAMES.get(way, way)}: {keys[key]}" for way, key in asked)]
    return Table(f"{name}: accuracy and entropy on the removed class, by class", columns, rows)


def _all(group: Sequence[Measured], way: str, key: str) -> str | None:
    """In how many removals something holds; None where it is not asked."""
    values = finite(compared.values_of(group, way, key))
    return count(values, bool) if values else None


def _places(group: Sequence[Measured]) -> range:
    return range(len(group[0].result["classes"]))


def removal(parts: Bank, how: str, test: Split, device: torch.device) -> Way:
    """Each module in turn taken out of the composition.

    `exact`: the composition without it answers, bit for bit, as one that was composed without it,
    and as before when it is added again. `untouched`: the logits of every other module are the
    same bits as before; None where the operator leaves no modules to ask.
    """
    merged = compose(parts, how).to(device)
    before = logits_of(merged, test.x)
    subsample = test.x[evenly_spaced(len(test), COMPARED).to(test.x.device)]
    own = _own_logits(merged, subsample)
    rows: list[Mapping[str, Any] | None] = []
    for index, name in enumerate(merged.catalogue):
        if name not in parts.names:
            rows.append(None)
            continue
        less = merged - name
        composed = compose([part for part in parts if part.name != name], how).to(device)
        exact = _same(less, composed, subsample) and _same(less + parts[name], merged, subsample)
        left = _own_logits(less, subsample)
        untouched = all(torch.equal(own[n], z) for n, z in left.items()) if left else None
        result = compare(before, logits_of(less, test.x), test.y, index, merged.temperature)
        rows.append({**result, "exact": exact, "untouched": untouched})
    return _listed(rows)


def retraining(
    joint: Module, retrained: Iterable[Module], test: Split, device: torch.device
) -> Way:
    """The joint network against those that were trained without one class each."""
    before = logits_of(joint.to_module().to(device), test.x)
    rows: list[Mapping[str, Any] | None] = [None] * len(joint.catalogue)
    for module in retrained:
        (gone,) = set(joint.catalogue) - set(module.rewarded)
        index = joint.catalogue.index(gone)
        after = logits_of(module.to_module().to(device), test.x)
        rows[index] = compare(before, after, test.y, index, joint.temperature)
    return _listed(rows)


def ascent(
    joint: Module,
    data: Data,
    test: Split,
    device: torch.device,
    *,
    rates: Sequence[float],
    limit: int,
    seed: int,
) -> Way:
    """The joint network against itself after gradient ascent on one class each, see `best_ascent`.

    `reached` says whether validation samples of the class are answered with it by chance at most.
    """
    before = logits_of(joint.to_module().to(device), test.x)
    ascents = [Ascent("Adam", learning_rate) for learning_rate in rates]
    rows = []
    for index in range(data.classes):
        forgot = best_ascent(joint, data, index, ascents, seed, device, limit)
        after = logits_of(forgot.network, test.x)
        result = compare(before, after, test.y, index, joint.temperature)
        chosen = {"rate": forgot.ascent.learning_rate, "steps": forgot.steps}
        rows.append({**result, **chosen, "reached": forgot.removed <= 1 / data.classes})
    return _listed(rows)


def compare(
    before: Tensor, after: Tensor, labels: Tensor, index: int, temperature: float
) -> dict[str, float]:
    """One removal by the logits before and after it; answers are among the whole catalogue.

    `kept` is the fraction of the remaining classes' samples that are answered as before, right or
    not.
    """
    rest = [i for i in range(after.shape[1]) if i != index]
    removed, remaining = (
        [rewarded_accuracy(logits, labels, classes) for logits in (before, after)]
        for classes in ([index], rest)
    )
    unchanged = (before.argmax(1) == after.argmax(1))[labels != index]
    return {
        "removed_before": removed[0],
        "removed": removed[1],
        "entropy": nonrewarded_entropy(after, labels, rest, temperature),
        "remaining_before": remaining[0],
        "remaining": remaining[1],
        "change": remaining[1] - remaining[0],
        "kept": float(unchanged.double().mean()),
    }


def _own_logits(merged: Composition, x: Tensor) -> dict[str, Tensor]:
    """Logits of each part by itself, as the composition has it; none where weights are joined."""
    if not merged.apart:
        return {}
    both = zip(merged.parts, merged.networks, strict=True)
    return {part.name: logits_of(network, x) for part, network in both}


def _same(one: Composition, other: Composition, x: Tensor) -> bool:
    return torch.equal(logits_of(one, x), logits_of(other, x))


def _listed(rows: Sequence[Mapping[str, Any] | None]) -> Way:
    """One list per number instead of one mapping per class."""
    keys = next((list(row) for row in rows if row is not None), [])
    return {key: [None if row is None else row[key] for row in rows] for key in keys}


register(
    Study(
        "unlearning",
        "Beyond the paper: removing a class",
        "What is left of a class that is to be forgotten, and what happens to the others? Each "
        "cell takes the classes of one seed in turn: it removes the class from a composition, "
        "retrains a joint network without it, and drives it out of a joint network by gradient "
        "ascent.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="nothing; removing a class, compared with retraining and gradient ascent",
    )
)
