"""Study `width`: complete merges of networks with few and with many hidden units."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import log2
from statistics import fmean
from typing import TYPE_CHECKING, Any

from intarsia.measure.significance import LEVEL, TTest, holm, welch
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.shared.complete_merges import (
    NAMES,
    PAPER_MERGES,
    SMALL_MERGES,
    figure_name,
    full,
    measure_steps,
    modules_in,
    operators_in,
    orders_by_operator,
    step_cell,
    step_tables,
)
from intarsia.studies.options import check_counts, check_flags, readable
from intarsia.studies.study import Study, register, scales, seeds_of
from intarsia.studies.tables import Spread, Table, grouped, point
from intarsia.studies.verdict import Claim, Findings, Verdict
from intarsia.studies.wording import by_the_test, capital, imp_label, listed, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALES = scales(
    paper=PAPER_MERGES
    | {
        "widths": [32, 128, 512, 2048, 4096],
        "seeds": 3,
        "imp": [True, False],
        "operators": ["sum", "mean", "logits"],
    },
    small=SMALL_MERGES | {"widths": [16, 64]},
)
CHANCE = 0.05  # so near to it an accuracy is no better
ENOUGH = 3  # seeds: with fewer a test is no evidence


def cells(options: Mapping[str, Any], context: StudyContext) -> list[Cell]:
    """One per data set, width and seed, with or without pruning."""
    orders = orders_by_operator(options)
    models = [model_of(width) for width in check_counts(options, "widths")]
    return [
        step_cell("width", data, model, seed, orders, options, context, imp=imp)
        for data, model in readable({**options, "models": models}, context)
        for seed in seeds_of(options["seeds"])
        for imp in check_flags(options, "imp")
    ]


def tables(done: Sequence[Measured]) -> list[Table]:
    groups = {
        (data, width_of(model), imp): group
        for (data, model, imp), group in grouped(done, "data", "model", "imp").items()
    }
    notes = [
        "one hidden layer, dropout 0.5; an inlay gives the result of logits in one network",
        "the mean of K such networks is their sum divided by K squared: the same answers, less "
        "certain",
        "the paper says that width helps but prints no numbers",
    ]
    columns = ["data", "hidden units", "IMP"]
    return step_tables("Merge of all modules, by width", columns, groups, notes)


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """The accuracy of all modules against the width."""
    from intarsia.plots import curve_panels

    result = {}
    for (data,), cells in grouped(done, "data").items():
        panels: dict[str, dict[str, Any]] = {}
        for (imp,), group in grouped(cells, "imp").items():
            curves: dict[str, dict[float, Any]] = {}
            for (model,), some in grouped(group, "model").items():
                for operator in operators_in(some):
                    curve = curves.setdefault(NAMES.get(operator, operator), {})
                    curve[log2(width_of(model))] = point(full(some, operator))
            if curves:
                panels[imp_label(imp)] = curves
        if panels:
            title = f"Accuracy of all modules joined, by width, {data}"
            places = {p for own in panels.values() for curve in own.values() for p in curve}
            result[figure_name("width", data)] = curve_panels(
                panels,
                title=title,
                x="hidden units",
                x_names={place: f"{2**place:g}" for place in places},
                y="accuracy",
                share_y=True,
                bounds=(0.0, 1.0),
            )
    return result


def verdict(findings: Findings) -> Verdict:
    """Whether the sum of all modules gains by width, with and without pruning."""
    claims, lines = [], []
    places = {
        place: own
        for place, cells in grouped(findings.cells, "data", "imp").items()
        if len(own := _by_units(cells)) > 1
    }
    sure = _surely_wider(places)
    for (data, imp), own in places.items():
        cells = grouped(findings.cells, "data", "imp")[data, imp]
        where = f"on {titled(data)} {imp_label(imp)}"
        ends = listed([f"{Spread.of(v)} with {units}" for units, v in own.items()])
        chance = 1 / modules_in(cells)  # were the classes equally frequent
        surely = sure.get((data, imp))
        short, more = _by_width(own, chance, surely)
        lines.append(f"{where}, the accuracy of the sum {short}")
        means = {str(units): fmean(values) for units, values in own.items()}
        claims.append(
            Claim(
                f"{capital(where)}, the accuracy of the sum of all modules {short} ({more}).",
                holds=_helps(own, chance, surely),
                evidence=means,
                n=min(map(len, own.values())),
                details=[f"{capital(where)}, accuracy of the sum: {ends} hidden units."],
            )
        )
    test = [Claim(f"{capital(by_the_test(len(sure)))}.")] if sure else []
    return Verdict(
        "; ".join(lines), [Claim("The paper says that width helps the sum."), *claims, *test]
    )


def _by_units(cells: Sequence[Measured]) -> dict[int, list[float]]:
    """The accuracies of sums of all modules, by width."""
    own = {width_of(m): full(some, "sum") for (m,), some in grouped(cells, "model").items()}
    return {units: values for units, values in sorted(own.items()) if values}


def _surely_wider(places: Mapping[Any, Mapping[int, Sequence[float]]]) -> dict[Any, bool]:
    """Where the test puts the widest above the narrowest; of places with seeds enough for one.

    p is corrected by Holm's method for the number of these places.
    """
    tests: dict[Any, TTest] = {}
    for place, own in places.items():
        if min(map(len, own.values())) >= ENOUGH:
            narrow, *_, wide = own.values()
            tests[place] = welch(wide, narrow)
    corrected = holm([test.p for test in tests.values()])
    return {
        place: test.t > 0 and p < LEVEL
        for (place, test), p in zip(tests.items(), corrected, strict=True)
    }


def _helps(own: Mapping[int, Sequence[float]], chance: float, sure: bool | None) -> bool | None:
    """Whether the widest is above the narrowest; None where only the test does not say so.

    Near chance no width helps. `sure` is None where too few seeds are there to test.
    """
    narrow, *_, wide = map(fmean, own.values())
    if wide <= narrow or _near_chance(own, chance):
        return False
    return None if sure is False else True


def _near_chance(own: Mapping[int, Sequence[float]], chance: float) -> bool:
    """Whether the mean of every width is."""
    return all(abs(fmean(values) - chance) < CHANCE for values in own.values())


def _by_width(
    own: Mapping[int, Sequence[float]], chance: float, sure: bool | None
) -> tuple[str, str]:
    """Whether wider is better, and more on it; `sure` is None where too few are there to test."""
    means = {units: fmean(values) for units, values in own.items()}
    low, high = min(means.values()), max(means.values())
    if _near_chance(own, chance):
        return "stays near chance at every width", f"{low:.3f} to {high:.3f}, chance {chance:.3f}"
    rises = [b > a for a, b in pairwise(means.values())]
    narrow, *_, wide = means
    n = min(map(len, own.values()))
    test = f", n = {n}"
    if sure is not None:
        test += ", significant" if sure else ", not significant"
    ends = [f"{means[units]:.3f} with {units}" for units in (narrow, wide)]
    steps = f"rising in {sum(rises)} of {len(rises)} steps{test}"
    return f"is {ends[0]} hidden units and {ends[1]}", steps


def model_of(width: int) -> str:
    """The paper's shallow network with another width; at 512 units it is that network."""
    return "shallow" if width == 512 else f"mlp(hidden=[{width}], dropout=0.5)"


def width_of(model: str) -> int:
    return 512 if model == "shallow" else int(model.partition("[")[2].partition("]")[0])


register(
    Study(
        "width",
        "Width: complete merges of narrow and wide networks",
        "Do more hidden units leave modules more room? Each cell is one data set, width and seed, "
        "with or without pruning: the modules of all classes, joined one by one.",
        SCALES,
        *(cells, measure_steps, tables, figures, verdict),
        paper="wider networks leave modules more room (stated without numbers)",
    )
)
