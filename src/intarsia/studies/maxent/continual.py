"""Study `continual`: classes arrive one by one, as modules or as samples for one network.

Modules are trained in up to three arms, by which samples of other classes they see as negatives:
those of the whole catalogue, so also of classes that are yet to come; those of classes that came
before alone; and these with made-up ones, which make up for what the first modules lack.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from intarsia.composition import compose
from intarsia.data import Data, Split
from intarsia.errors import StudyError, nearest
from intarsia.measure import accuracy_per_class, rewarded_accuracy
from intarsia.modules import Bank, logits_of
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.shared.baselines import check_rates, fine_tune, on, untrained
from intarsia.studies.maxent.shared.complete_merges import NAMES, figure_name, orders_of
from intarsia.studies.maxent.shared.ways import (
    SMALL_RECIPE,
    Row,
    by_way,
    joint_plan,
    values_of,
    way_panels,
    way_tables,
    ways_in,
    ways_verdict,
)
from intarsia.studies.options import check_count, check_operators, readable
from intarsia.studies.study import Study, register, scales, seeds_of
from intarsia.studies.tables import Entry, Spread, Table, grouped, known
from intarsia.studies.verdict import Findings, Verdict
from intarsia.studies.wording import count, listed
from intarsia.training import Recipe
from intarsia.training.settings.presets import NEGATIVES as MADE
from intarsia.training.tasks import stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALES = scales(
    paper={
        "models": ["shallow"],
        "operators": ["logits", "sum"],
        "orders": 3,
        "joint_orders": 1,  # orders in which a network is also trained on all classes so far
        "rates": [1e-3, 1e-4],  # of fine-tuning, by Adam
        "passes": 1,  # over the samples of each new class
        "batch": 64,
        "negatives": ["all", "earlier", "earlier + made"],  # what modules see besides their class
    },
    small={"recipe": SMALL_RECIPE, "orders": 2, "rates": [1e-2, 1e-3]},
)
TUNING, JOINT = "fine-tuning", "joint training"
ALL = "all"
# Of every other arm, what its ways are called by, and what its recipe has besides.
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "earlier": ("no later classes", {}),
    "earlier + made": ("no later classes, made-up negatives", {"negatives": MADE}),
}
COLUMNS = {
    "seen": "seen so far",
    "among": "among seen",
    "earlier": "earlier",
    "new": "new",
    "forgetting": "forgetting",
}
Way = dict[str, Any]  # numbers by name, one number for each arrival
PANELS = {
    "seen": "all classes seen so far",
    "earlier": "earlier classes",
    "new": "the new class",
}


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """One per data set, model, arm, seed and order of the classes."""
    preset, joint = options["preset"], check_count(options, "joint_orders", least=0)
    shared: dict[str, Any] = {"operators": check_operators(options, samples=False)}
    shared |= {key: check_count(options, key) for key in ("passes", "batch")}
    shared["rates"] = check_rates(options["rates"])
    arms, seeds = _check_arms(options["negatives"]), seeds_of(options["seeds"])
    for (data, model), arm in product(readable(options, context), arms):
        names = context.data(data, preset).catalogue
        orders = enumerate(orders_of(names, check_count(options, "orders")))
        for (place, order), seed in product(orders, seeds):
            how = {"preset": preset, **options["recipe"]}
            if arm != ALL:
                goal = {"name": "me", "order": _places(names, order)}
                how |= {"objective": goal, **ARMS[arm][1]}
            banks = {"modules": context.plan(data, model, None, seed, **how)}
            if arm == ALL and place < joint:
                sets = list(prefixes(order, names))
                banks["joint"] = joint_plan(options, context, data, model, seed, sets)
            settings = {"data": data, "model": model, "preset": preset, "seed": seed}
            settings |= {"order": list(order), **shared, "negatives": arm}
            yield Cell("continual", settings, banks)


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """Accuracies on test samples after each arrival, by every way to take a class in."""
    settings, device = cell.settings, context.device
    data = context.data(settings["data"], settings["preset"])
    test, order = Split(data.test.x.to(device), data.test.y), settings["order"]
    bank = context.bank(cell.banks["modules"])
    arm = settings.get("negatives", ALL)
    ways: dict[str, Way | None] = {
        _way(how, arm): added(bank, how, order, test, device) for how in settings["operators"]
    }
    if arm != ALL:
        return {"ways": _known(ways)}
    chosen = {key: settings[key] for key in ("rates", "passes", "batch")}
    recipe = cell.banks["modules"].recipe  # the same network, from the same origin on
    ways[TUNING] = fine_tuned(recipe, data, order, test, device, **chosen)
    if "joint" in cell.banks:
        joint = context.bank(cell.banks["joint"], pruned=False)
        ways[JOINT] = trained_jointly(joint, order, test, device)
    return {"ways": _known(ways)}


def tables(done: Sequence[Measured]) -> list[Table]:
    """All arrivals in one row each, and accuracy over the classes so far after each of them."""
    return way_tables(done, _summary, _by_arrival)


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """Accuracy after each arrival: over all classes so far, those before, and the new one."""
    from intarsia.plots import COLOURS, curve_panels

    result = {}
    for (data, model), group in grouped(done, "data", "model").items():
        title = f"{data}, {model}: accuracy as classes arrive one by one"
        name = figure_name("continual", data, model)
        result[name] = curve_panels(
            way_panels(group, PANELS, range(1, _classes(group) + 1)),
            title=title,
            x="classes",
            y="accuracy",
            share_y=True,
            bounds=(0.0, 1.0),
            colours={TUNING: COLOURS[3], JOINT: COLOURS[4]},
        )
    return result


def verdict(findings: Findings) -> Verdict:
    """What is known at the end, and what is lost on the way."""

    def describe(rows: Sequence[Row]) -> tuple[str, str]:
        exact = by_way(rows, lambda row: row["exact"] and f"{row['exact']} runs")
        ends = by_way(rows, lambda row: f"{row['at the end'].mean:.3f}")
        lost = by_way(rows, lambda row: f"{100 * row['forgetting'].mean:.1f}")
        return f"accuracy at the end: {ends}", (
            f"Accuracy on all classes at the end is {ends}. Between the arrival of a class and the "
            f"end, accuracy on it falls, in percentage points, by {lost}. Modules added one by one "
            f"give the same logits, bit for bit, as modules joined at once in {exact}. "
            f"{_seen_by_modules(rows)}"
        ).strip()

    return ways_verdict(findings.cells, _summary, describe)


def _summary(name: str, group: Sequence[Measured]) -> Table:
    rows: list[list[Entry]] = []
    for way in ways_in(group):
        own = [cell.result["ways"][way] for cell in group if way in cell.result["ways"]]
        last = Spread.of([numbers["seen"][-1] for numbers in own])
        means = [Spread.of(Spread.of(numbers[key]).mean for numbers in own) for key in COLUMNS]
        exact = [numbers["exact"] for numbers in own if "exact" in numbers]
        checked = count(exact, bool) if exact else None
        rows.append([NAMES.get(way, way), last, *means, checked])
    notes = [
        "at the end: accuracy on all classes; the next columns are accuracies averaged over the "
        "arrivals: seen so far, on the classes seen so far with predictions among the whole "
        "catalogue; among seen, the same with predictions among the classes seen so far; earlier, "
        "on the classes before the new one; new, on the new class; n: orders x seeds",
        "forgetting: accuracy on a class when it arrived minus accuracy on it at the end, averaged "
        "over all classes but the last",
        "adding a module never changes another, but a sum of many can still predict differently; "
        "exact: runs in which the final composition gives the same logits, bit for bit, as one "
        "composed at once",
        *_arm_notes(group),
        "fine-tuning sees samples of the new class alone, with the step size that is best on "
        "validation samples; joint training starts afresh at every arrival with all samples so far",
    ]
    columns = ["way", "at the end", *COLUMNS.values(), "exact"]
    return Table(f"{name}: classes arrive one by one", columns, rows, notes)


def _arm_notes(group: Sequence[Measured]) -> list[str]:
    """Which samples the modules of every arm see."""
    seen = {cell.settings.get("negatives", ALL) for cell in group}
    notes = {
        ALL: "unless stated otherwise, modules see samples of all classes as negatives, including "
        "classes that have not arrived yet",
        "earlier": "no later classes: a module sees samples of its own class and of the classes "
        "before it, so the first module has no negatives at all",
        "earlier + made": f"made-up negatives: in addition, {MADE} for each sample that it sees",
    }
    return [note for arm, note in notes.items() if arm in seen]


def _seen_by_modules(rows: Sequence[Row]) -> str:
    """What the modules of the usual arm saw, which those who ask this question would not have."""
    ends = tuple(f" ({label})" for label, _ in ARMS.values())
    ways = [row["way"] for row in rows if row["exact"]]
    usual = [way for way in ways if not way.endswith(ends)]
    if not usual:
        return ""
    names = listed([way.partition(" = ")[0] for way in usual])
    more = "" if len(usual) < len(ways) else "; modules that have not are not measured here"
    return f"The modules joined by {names} have seen samples of later classes as negatives{more}."


def _way(how: str, arm: str) -> str:
    return how if arm == ALL else f"{how} ({ARMS[arm][0]})"


def _known(ways: Mapping[str, Way | None]) -> dict[str, Way]:
    return {name: way for name, way in ways.items() if way is not None}


def _check_arms(arms: Sequence[Any]) -> list[str]:
    known = [ALL, *ARMS]
    for arm in arms:
        if arm not in known:
            raise StudyError(f"option 'negatives' has {arm!r}: {nearest(str(arm), known)}")
    return list(arms)


def _by_arrival(name: str, group: Sequence[Measured]) -> Table:
    ways = ways_in(group)
    rows: list[list[Entry]] = [
        [n + 1, *(Spread.of(values_of(group, way, "seen", n)) for way in ways)]
        for n in range(_classes(group))
    ]
    columns = ["classes", *(NAMES.get(way, way) for way in ways)]
    return Table(f"{name}: accuracy on the classes seen so far", columns, rows)


def _classes(group: Sequence[Measured]) -> int:
    return len(group[0].settings["order"])


def added(
    bank: Bank, how: str, order: Sequence[str], test: Split, device: torch.device
) -> Way | None:
    """One module after another joins; None where one of them diverged in training.

    `exact`: the last composition answers, bit for bit, as one that was composed at once.
    """
    if not set(order) <= set(bank.names):
        return None
    merged = compose([bank[order[0]]], how).to(device)
    result = [logits_of(merged, test.x)]
    for name in order[1:]:
        result.append(logits_of(merged.add(bank[name]), test.x))
    at_once = logits_of(compose([bank[name] for name in order], how).to(device), test.x)
    exact = torch.equal(result[-1], at_once)
    return {**arrivals(result, test.y, _places(merged.catalogue, order)), "exact": exact}


def fine_tuned(
    recipe: Recipe,
    data: Data,
    order: Sequence[str],
    test: Split,
    device: torch.device,
    *,
    rates: Sequence[float],
    passes: int,
    batch: int,
) -> Way:
    """One network, from the origin on, trained on the samples of each new class alone.

    Of the step sizes the one is taken that gives the best accuracy over the classes seen so far on
    validation samples, in the mean over the arrivals; `rate` is this one.
    """
    places = _places(data.catalogue, order)
    validation = on(data.validation, device)
    tried = []
    for learning_rate in rates:
        result, scores = [], []
        network = untrained(recipe, data).to(device)
        for n, place in enumerate(places, start=1):
            fresh = on(data.train.select([place]), device)
            seed = stream("fine-tuning", *recipe.seeds, *order[:n])
            fine_tune(
                network, fresh, passes=passes, learning_rate=learning_rate, batch=batch, seed=seed
            )
            logits = logits_of(network, validation.x)
            scores.append(rewarded_accuracy(logits, validation.y, places[:n]))
            result.append(logits_of(network, test.x))
        tried.append((sum(scores) / len(scores), learning_rate, result))
    _, learning_rate, result = max(tried, key=lambda one: one[0])
    return {**arrivals(result, test.y, places), "rate": learning_rate}


def trained_jointly(
    bank: Bank, order: Sequence[str], test: Split, device: torch.device
) -> Way | None:
    """A network for every arrival, trained on all that came so far; None where one diverged."""
    modules = {frozenset(module.rewarded): module for module in bank}
    wanted = [frozenset(order[:n]) for n in range(1, len(order) + 1)]
    if not set(wanted) <= set(modules):
        return None
    networks = (modules[seen].to_module().to(device) for seen in wanted)
    result = [logits_of(network, test.x) for network in networks]
    return arrivals(result, test.y, _places(bank[0].catalogue, order))


def arrivals(logits: Sequence[Tensor], labels: Tensor, places: Sequence[int]) -> Way:
    """Accuracies after each arrival, from the logits then; `places` are classes as they arrive.

    `seen`: over the classes so far, answers among the whole catalogue; `among` them: answers among
    the classes so far; `earlier` and `new`: over all but the last of them, over the last alone.
    `forgetting`: by how much each class but the last is recognised less often at the end than when
    it arrived.
    """
    steps = [(z, list(places[:n])) for n, z in enumerate(logits, start=1)]
    new = [rewarded_accuracy(z, labels, seen[-1:]) for z, seen in steps]
    end = accuracy_per_class(logits[-1], labels)[list(places)]
    return {
        "seen": [rewarded_accuracy(z, labels, seen) for z, seen in steps],
        "among": [_among(z, labels, seen) for z, seen in steps],
        "earlier": [known(rewarded_accuracy(z, labels, seen[:-1])) for z, seen in steps],
        "new": new,
        "forgetting": [then - float(now) for then, now in zip(new, end, strict=True)][:-1],
    }


def prefixes(order: Sequence[str], catalogue: Sequence[str]) -> Iterator[list[str]]:
    """The classes so far at each arrival, in the catalogue's order."""
    for n in range(1, len(order) + 1):
        yield [name for name in catalogue if name in order[:n]]


def _among(logits: Tensor, labels: Tensor, seen: Sequence[int]) -> float:
    """Accuracy where only the classes seen so far can be answered."""
    kept = sorted(seen)
    rows = torch.isin(labels, torch.tensor(kept))
    renumbered = torch.searchsorted(torch.tensor(kept), labels[rows])
    return rewarded_accuracy(logits[rows][:, kept], renumbered, range(len(kept)))


def _places(catalogue: Sequence[str], order: Sequence[str]) -> list[int]:
    return [list(catalogue).index(name) for name in order]


register(
    Study(
        "continual",
        "Beyond the paper: classes that arrive one by one",
        "How accurate are old and new classes as classes arrive one by one? Each cell is one order "
        "of the classes and one seed: modules are added, one network is fine-tuned on each new "
        "class alone, and for some orders one is trained on all classes so far. In other cells, "
        "modules never see a class that arrives after their own.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="nothing; adding classes one by one, compared with fine-tuning and joint training",
        neutral={"negatives": ALL},
    )
)
