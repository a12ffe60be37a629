"""Complete merges, module by module: cells, tables, figures and claims of the studies of them."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from intarsia.composition import OPERATORS, MergeContext, compose
from intarsia.composition.checks import check_fit
from intarsia.composition.merge_context import kept_samples
from intarsia.composition.operators.registry import Operator, joins_logits
from intarsia.data import Data
from intarsia.data.splits import random_keys
from intarsia.errors import CompositionError, ModelError, StudyError
from intarsia.measure import nonrewarded_entropy, rewarded_accuracy
from intarsia.modules import Bank, Module, logits_of
from intarsia.specs import Spec
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.options import check_count, check_operators
from intarsia.studies.tables import Entry, Spread, Table, finite, grouped, known, point, yes_no
from intarsia.studies.verdict import Claim, Verdict, by_mean, surely_best
from intarsia.studies.wording import by_the_test, capital, listed, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WAY = ["accuracy, 2 modules", "accuracy, 5 modules", "entropy, all but one"]
ONCE = "n counts seeds: once all modules are joined, their order does not matter"
NAMES = {"logits": "logits = inlay"}  # the same sum, as tests of the inlay show
# Accuracy and entropy; no entropy where every class is rewarded, no accuracy without samples.
Point = tuple[float | None, float | None]
Curve = dict[str, list[Any]]  # "accuracy" and "entropy", one number for each addition

# Options that studies of what a merge depends on share, in the paper's size and on the digits.
PAPER_MERGES: dict[str, Any] = {"orders": 10, "operators": ["sum", "logits"]}
SMALL_MERGES: dict[str, Any] = {"recipe": {"epochs": 2, "sparsity": 0.8}, "orders": 2}


def step_cell(
    study: str,
    data: str,
    model: str,
    seed: int,
    orders: Mapping[str, int],
    options: Mapping[str, Any],
    context: StudyContext,
    *,
    imp: bool = True,
    **varied: Any,
) -> Cell:
    """The merges of one bank, a module per class: for each operator so many class orders.

    `varied` are settings of the recipe that make the study.
    """
    preset, recipe = options["preset"], {**options["recipe"], **varied}
    plan = context.plan(data, model, None, seed, preset=preset, pruned=imp, **recipe)
    settings = {"data": data, "model": model, "preset": preset, "imp": imp, "seed": seed}
    return Cell(study, {**settings, **varied, "orders": dict(orders)}, {"modules": plan})


def orders_by_operator(options: Mapping[str, Any]) -> dict[str, int]:
    """The same number of class orders for every operator."""
    return dict.fromkeys(check_operators(options), check_count(options, "orders"))


def measure_steps(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """By operator one curve for each order; what refused, and modules that training gave up."""
    settings = cell.settings
    data = context.data(settings["data"], settings["preset"])
    bank = context.bank(cell.banks["modules"], settings["imp"])
    diverged = [name for name in data.catalogue if name not in bank.names]
    if diverged:
        return {"curves": {}, "refused": {}, "diverged": diverged}
    merges = Merges(bank, data, context.device)
    curves: dict[str, list[Any]] = {}
    for operator, count in settings["orders"].items():
        result = [merges.curve(operator, order) for order in orders_of(data.catalogue, count)]
        if operator not in merges.refused:
            curves[operator] = result
    return {"curves": curves, "refused": merges.refused, "diverged": []}


def step_tables(
    title: str,
    columns: Sequence[str],
    groups: Mapping[tuple[Any, ...], Sequence[Measured]],
    notes: Sequence[str],
    way_notes: Sequence[str] = (),
) -> list[Table]:
    """What comes out in the end, and what lies on the way; `columns` name what groups are by."""
    last, way = [], []
    for values, group in groups.items():
        labels = list(map(_label, values))
        for operator in operators_in(group):
            last.append([*labels, operator, Spread.of(full(group, operator))])
            numbers = [
                at(group, operator, what, n)
                for what, n in (("accuracy", 2), ("accuracy", 5), ("entropy", -1))
            ]
            way.append([*labels, operator, *map(Spread.of_any, numbers)])
    left = [*columns, "operator"]
    notes = [*notes, *_step_notes([cell for group in groups.values() for cell in group])]
    own = [
        "accuracy is measured on test samples of the classes joined so far, entropy (nats) before "
        "the last module is added, on test samples of its class; n counts class orders x seeds"
    ]
    return [
        Table(f"{title}: all modules", [*left, "accuracy"], last, [ONCE, *notes]),
        Table(f"{title}: partial merges", [*left, *WAY], way, [*own, *way_notes, *notes]),
    ]


def _label(value: Any) -> Entry:
    """A setting as tables have it."""
    if isinstance(value, bool):
        return yes_no(value)
    return f"{value:g}" if isinstance(value, float) else value


def _step_notes(done: Sequence[Measured]) -> list[str]:
    """What the cells say of operators that refused and of modules that diverged."""
    notes: dict[str, None] = {}
    for cell in done:
        where = f"{cell.settings['data']}, {cell.settings['model']}"
        for operator, why in cell.result["refused"].items():
            notes[f"{operator} does not apply to {where}: {why}"] = None
        if cell.result["diverged"]:
            lost = ", ".join(cell.result["diverged"])
            seed = cell.settings["seed"]
            notes[f"{where}, seed {seed}: left out because module {lost} diverged"] = None
    return list(notes)


def varied_figures(done: Sequence[Measured], key: str, word: str) -> "dict[str, Figure]":
    """One figure per data set and model: a curve for each value of a setting, by operator."""
    figures = {}
    for (data, model), group in grouped(done, "data", "model").items():
        panels = {
            f"{what}, {NAMES.get(operator, operator)}": {
                f"{word} {value:g}": mean_curve(some, operator, what)
                for (value,), some in grouped(group, key).items()
            }
            for operator in operators_in(group)
            for what in ("accuracy", "entropy")
        }
        title = f"Modules added one by one, {data}, {model}"
        if figure := measure_figure(title, "modules", panels):
            figures[figure_name(key, data, model)] = figure
    return figures


def varied_verdict(done: Sequence[Measured], key: str, word: str) -> Verdict:
    """At which value of a setting a complete merge is best, operator by operator."""
    claims, lines = [], []
    groups = grouped(done, "data", "model")
    family = {
        (data, model, operator): values
        for (data, model), group in groups.items()
        for operator in operators_in(group)
        if by_mean(
            values := {v: full(some, operator) for (v,), some in grouped(group, key).items()}
        )
    }
    sure = surely_best(family)
    for place, values in family.items():
        data, model, operator = place
        ranked = by_mean(values)
        where = f" ({titled(data)}, {model})" if len(groups) > 1 else ""
        what = f"{'the sum' if operator == 'sum' else operator}{where}"
        line = f"no {key} is significantly best for {what}"
        if sure[place]:
            line = f"{word} {next(iter(ranked)):g} is significantly best for {what}"
        lines.append(line)
        means = {f"{value:g}": spread.mean for value, spread in ranked.items()}
        claims.append(
            Claim(
                f"{capital(line)}.",
                evidence={"means": means, "by the test": sure[place]},
                n=min(spread.n for spread in ranked.values()),
                details=[
                    f"Accuracy of all modules joined by {operator} ({titled(data)}, {model}): "
                    f"{by_value(ranked)}."
                ],
            )
        )
    if not claims:
        return Verdict("")
    start = Claim("The paper shows a figure without numbers; ours are below.")
    test = Claim(f"{capital(by_the_test(len(family)))}.")
    return Verdict("; ".join(lines), [start, *claims, test])


def by_value(spreads: Mapping[float, Spread]) -> str:
    """`0.7 at 1 and 0.8 at 5`: spreads by the value of a setting."""
    return listed([f"{spread} at {value:g}" for value, spread in sorted(spreads.items())])


def operators_in(group: Sequence[Measured]) -> list[str]:
    """Every operator that any of the cells has a curve of, in the order of the registry."""
    known = list(OPERATORS)
    names = {name for cell in group for name in cell.result["curves"]}
    return sorted(names, key=lambda name: (known.index(OPERATORS.spec(name).name), name))


def full(group: Sequence[Measured], operator: str) -> list[float]:
    """The accuracy of all modules, one number for each cell."""
    curves = [cell.result["curves"].get(operator) for cell in group]
    return [own[0]["accuracy"][-1] for own in curves if own]


def modules_in(group: Sequence[Measured]) -> int:
    """How many modules the longest curve joins."""
    curves = [curve for cell in group for own in cell.result["curves"].values() for curve in own]
    return max(len(curve["accuracy"]) for curve in curves)


def at(group: Sequence[Measured], operator: str, what: str, modules: int) -> list[float]:
    """A number for each cell and order after so many additions; -1 is the last but one."""
    values: list[float | None] = []
    for cell in group:
        for curve in cell.result["curves"].get(operator, ()):
            place = modules - 1 if modules > 0 else len(curve[what]) - 1 + modules
            values += curve[what][place : place + 1] if place >= 0 else []
    return finite(values)


def mean_curve(group: Sequence[Measured], operator: str, what: str) -> dict[float, Any]:
    """Mean and standard deviation over cells and orders, by the number of modules."""
    longest = max(
        (len(curve[what]) for cell in group for curve in cell.result["curves"].get(operator, ())),
        default=0,
    )
    values = {n: at(group, operator, what, n) for n in range(1, longest + 1)}
    return {n: point(some) for n, some in values.items() if some}


def measure_figure(title: str, x: str, panels: Mapping[str, Mapping[str, Any]]) -> "Figure | None":
    """Curves in panels named "accuracy, ..." and "entropy, ..."; None where there is no curve."""
    from intarsia.plots import curve_panels

    drawn = {panel: {n: c for n, c in curves.items() if c} for panel, curves in panels.items()}
    drawn = {panel: curves for panel, curves in drawn.items() if curves}
    measures = {panel: panel.partition(",")[0] for panel in drawn}
    bounds = {"accuracy": (0.0, 1.0), "entropy": (0.0, math.inf)}
    if not drawn:
        return None
    return curve_panels(
        drawn,
        title=title,
        x=x,
        y=measures,
        share_y=measures.get,
        bounds={panel: bounds[measure] for panel, measure in measures.items()},
    )


def figure_name(*parts: str) -> str:
    """A name that is a file's on any system: a model is `mlp-32`, not `mlp(32)`."""
    return "-".join(re.sub(r"[^A-Za-z0-9_.]+", "-", part).strip("-") for part in parts)


def orders_of(catalogue: Sequence[str], count: int = 10, seed: int = 0) -> list[tuple[str, ...]]:
    """`count` distinct shuffles of the classes, or all where there are fewer.

    The first of many are those of a smaller count.
    """
    if count < 1:
        raise StudyError(f"the number of class orders is {count}: expected at least 1")
    result: dict[tuple[str, ...], None] = {}
    stream, wanted = 0, min(count, math.factorial(len(catalogue)))
    while len(result) < wanted:
        order = np.argsort(random_keys(len(catalogue), seed, stream), kind="stable")
        result[tuple(catalogue[i] for i in order)] = None
        stream += 1
    return list(result)


def as_curve(points: Sequence[Point]) -> Curve:
    return {
        "accuracy": [accuracy for accuracy, _ in points],
        "entropy": [entropy for _, entropy in points],
    }


class Merges:
    """The merges of one bank's modules, each measured once however many orders come by it.

    A composition does not depend on the order of its parts, so orders share their full merge and
    many of the others. Operators on logits need each module's test logits once. Accuracy is over
    the test samples of the classes that are rewarded so far, entropy (nats) over all others.
    """

    def __init__(self, bank: Bank, data: Data, device: torch.device | str = "cpu") -> None:
        self.refused: dict[str, str] = {}  # operator -> why it does not take these modules
        self._bank, self._device = bank, torch.device(device)
        self._x, self._labels = data.test.x.to(self._device), data.test.y
        # Of a bank whose modules all diverged nothing can be asked.
        self._samples = kept_samples(data, bank[0]) if len(bank) else None
        self._logits: dict[str, Tensor] = {}
        self._known: dict[tuple[str, frozenset[str]], Point] = {}

    def curve(self, operator: str, order: Sequence[str]) -> Curve | None:
        """One point after each addition of a named module; None where the operator refuses."""
        try:
            points = [self.point(operator, order[: n + 1]) for n in range(len(order))]
        except (CompositionError, ModelError) as error:
            self.refused[operator] = str(error)
            return None
        return as_curve(points)

    def point(self, operator: str, keys: Sequence[str]) -> Point:
        """Accuracy and entropy of the modules that are named, joined."""
        modules = [self._bank[key] for key in keys]
        merge = operator, frozenset(module.name for module in modules)
        if merge not in self._known:
            self._known[merge] = self._measure(operator, modules)
        return self._known[merge]

    def _measure(self, operator: str, modules: Sequence[Module]) -> Point:
        spec = OPERATORS.spec(operator)
        how: Operator = OPERATORS[spec.name]
        first = modules[0]
        if joins_logits(how):
            parts = check_fit(modules, how.on, False)
            context = MergeContext(parts, self._samples)
            logits = how(list(map(self._own, parts)), context, **spec.arguments).cpu()
        else:
            logits = self._joined(spec, modules)
        classes = sorted({first.catalogue.index(c) for m in modules for c in m.rewarded})
        accuracy = rewarded_accuracy(logits, self._labels, classes)
        entropy = nonrewarded_entropy(logits, self._labels, classes, first.temperature)
        return known(accuracy), known(entropy)

    def _joined(self, operator: Spec, modules: Sequence[Module]) -> Tensor:
        """Test logits of modules that become one network."""
        merged = compose(modules, operator, samples=self._samples).to(self._device)
        return logits_of(merged, self._x)

    def _own(self, module: Module) -> Tensor:
        """A module's test logits, N x C, on the device where they are joined."""
        if module.name not in self._logits:
            logits = logits_of(module.to_module().to(self._device), self._x)
            self._logits[module.name] = logits.to(self._device)
        return self._logits[module.name]
