"""Study `controls`: is it maximum entropy, is it pruning, or would any mild objective do?"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

from intarsia.data import Split
from intarsia.measure import evaluate
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.shared.complete_merges import figure_name
from intarsia.studies.maxent.shared.merging import live_count, overlaps, whole_of
from intarsia.studies.options import check_flags, check_operators, readable
from intarsia.studies.study import Study, register, scales, seeds_of
from intarsia.studies.tables import Spread, Table, grouped, yes_no
from intarsia.studies.verdict import Claim, Findings, Verdict, by_mean, surely_best
from intarsia.studies.wording import by_the_test, capital, imp_label, listed, sentences, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WITH_AMOUNT = ("smoothing", "confidence_penalty")
CHOOSER = "logits"  # the complete merge whose validation accuracy chooses an amount
Values = dict[str, list[float | None]]  # by objective: one number for each seed
Key = tuple[str, str, bool, str]  # data, model, with IMP or without, operator
GROUP = ("data", "model", "imp", "objective")

SCALES = scales(
    paper={
        "models": ["shallow", "deep"],
        "objectives": ["me", "xe", "smoothing", "confidence_penalty", "other"],
        "amounts": [0.1, 0.5],
        "imp": [False, True],
        "sparsity": 0.99,
        "operators": ["sum", "logits", "inlay"],
    },
    small={
        "recipe": {"epochs": 2, "batch": 128, "learning_rate": 0.02},
        "objectives": ["me", "smoothing", "other"],
        "sparsity": 0.8,
    },
)


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """One per data set, model, objective, amount and seed, with pruning and without."""
    check_operators(options)
    shared = {key: options[key] for key in ("preset", "recipe", "sparsity", "operators")}
    recipe = {**options["recipe"], "sparsity": options["sparsity"]}
    objectives = [
        (name, amount)
        for name in options["objectives"]
        for amount in (options["amounts"] if name in WITH_AMOUNT else [None])
    ]
    axes = check_flags(options, "imp"), objectives, seeds_of(options["seeds"])
    for (data, model), imp, (name, amount), seed in product(readable(options, context), *axes):
        objective = name if amount is None else f"{name}(amount={amount})"
        how = {"preset": options["preset"], "objective": objective, "pruned": imp}
        plan = context.plan(data, model, None, seed, **how, **recipe)
        settings = {"data": data, "model": model, "objective": name, "amount": amount}
        yield Cell("controls", {**settings, "imp": imp, "seed": seed, **shared}, {"bank": plan})


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """Modules by themselves, what they share, and all of them joined."""
    settings = cell.settings
    data = context.data(settings["data"], settings["preset"])
    bank = context.bank(cell.banks["bank"], pruned=settings["imp"])
    test, validation = (
        Split(split.x.to(context.device), split.y) for split in (data.test, data.validation)
    )
    alone = [evaluate(module.to_module().to(context.device), test) for module in bank]

    def complete(how: str, split: Split) -> float | None:
        merged = whole_of(bank, how, data)
        return None if merged is None else evaluate(merged.to(context.device), split).accuracy

    return {
        "accuracy": [one.accuracy for one in alone],
        "entropy": [one.entropy for one in alone],
        "live_units": [live_count(module)[0] for module in bank],
        "mask_jaccard": overlaps(bank),
        "validation": complete(CHOOSER, validation),
        "complete": {how: complete(how, test) for how in settings["operators"]},
    }


def tables(done: Sequence[Measured]) -> list[Table]:
    """Every objective with its best amount on validation samples, then all amounts."""
    operators = list(dict.fromkeys(how for cell in done for how in cell.result["complete"]))
    first, second = [], []
    for (data, model, imp, objective), amounts in _by_amount(done).items():
        best = _best(amounts)
        head = [data, model, yes_no(imp), objective]
        first.append([*head, _amount(best), *_numbers(amounts[best], operators)])
        for amount, group in amounts.items():
            chosen = [yes_no(amount == best), _validation(group)]
            if amount is not None:
                second.append([*head, _amount(amount), *chosen, *_numbers(group, operators)])
    head = ["data", "model", "IMP", "objective", "amount"]
    columns = ["rewarded accuracy", "non-rewarded entropy"]
    columns += [f"all modules by {how}" for how in operators]
    columns += ["mask Jaccard index", "live units"]
    result = [Table("Objectives at one sparsity", [*head, *columns], first, _notes(done))]
    if second:
        more = [*head, "chosen", "all modules by logits, validation", *columns]
        notes = ["chosen by the validation accuracy of all modules joined by logits"]
        result.append(Table("Objectives at every amount", more, second, notes))
    return result


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """Accuracy of all modules joined: as bars, and against the entropy of each module alone."""
    from intarsia.plots import bar_panels, curve_panels

    bars: dict[str, dict[str, dict[str, Any]]] = {}
    points: dict[str, dict[str, dict[str, Any]]] = {}
    for (data, model, imp, objective), amounts in _by_amount(done).items():
        group = amounts[_best(amounts)]
        entropy = _spread(group, "entropy").mean
        panel = f"{model}, {imp_label(imp)}"
        for how in group[0].result["complete"]:
            spread = _complete(group, how)
            if spread.n:
                ends = (spread.mean, spread.sd)
                groups = bars.setdefault(figure_name("controls", data), {}).setdefault(panel, {})
                groups.setdefault(how, {})[objective] = ends
                panels = points.setdefault(figure_name("controls", data, how, "entropy"), {})
                panels.setdefault(panel, {})[objective] = {entropy: ends}
    title, across = "Accuracy of all modules joined", "non-rewarded entropy of single modules"
    shared: dict[str, Any] = {"y": "accuracy", "share_y": True, "bounds": (0.0, 1.0)}
    drawn = {name: bar_panels(some, title=title, **shared) for name, some in bars.items()}
    for name, some in points.items():
        drawn[name] = curve_panels(some, title=f"{title}, by {across}", x=across, **shared)
    return drawn


def verdict(findings: Findings) -> Verdict:
    """Which objective is best, operator by operator, each with its best amount.

    Compared are only merges that all objectives have.
    """
    every = {cell.settings["objective"] for cell in findings.cells}
    ways, twins = _ways(findings.cells)
    ways = {key: values for key, values in ways.items() if len(by_mean(values)) == len(every) > 1}
    if not ways:
        line = "not all objectives are measured"
        return Verdict(line, [Claim(f"{capital(line)}.")])
    sure = surely_best(ways)
    lines, details, best = [], [], {}
    for how in dict.fromkeys(how for *_, how in ways):
        parts = []
        for imp in (True, False):
            own = {key: values for key, values in ways.items() if key[2:] == (imp, how)}
            if not own:
                continue
            best[f"{how} {imp_label(imp)}"] = [next(iter(by_mean(v))) for v in own.values()]
            parts.append(f"{_bests(own, sure)} {imp_label(imp)}")
            details += [
                f"Accuracy by {how} ({titled(key[0])}, {key[1]}, {imp_label(imp)}): "
                f"{_leads(values, sure[key])}."
                for key, values in own.items()
            ]
        lines.append(f"for {how}: {listed(parts)}")
    line = f"best objective {'; '.join(lines)}"
    same = [
        f"{capital(a)} gives the same numbers as {b} and is not counted again."
        for a, b in twins.items()
    ]
    text = sentences(f"{capital(line)}.", *same, f"{capital(by_the_test(len(ways)))}.")
    return Verdict(line, [Claim(text, evidence=best, n=len(ways), details=details)])


def _ways(cells: Sequence[Measured]) -> tuple[dict[Key, Values], dict[str, str]]:
    """Accuracies of all modules by place and objective, and operators that are another one.

    Those give the same numbers as it, to the digit, wherever both have some.
    """
    names = list(dict.fromkeys(how for cell in cells for how in cell.result["complete"]))
    # Those with most values first, so that the others are found to be one of them.
    names.sort(key=lambda how: sum(cell.result["complete"].get(how) is None for cell in cells))
    kept: list[str] = []
    twins: dict[str, str] = {}
    for how in names:
        other = next((other for other in kept if _equal(cells, how, other)), None)
        if other is None:
            kept.append(how)
        else:
            twins[how] = other
    ways: dict[Key, Values] = {}
    for (data, model, imp, objective), amounts in _by_amount(cells).items():
        for cell in amounts[_best(amounts)]:
            for how in kept:
                own = ways.setdefault((data, model, imp, how), {}).setdefault(objective, [])
                own.append(cell.result["complete"].get(how))
    return ways, twins


def _equal(cells: Sequence[Measured], one: str, other: str) -> bool:
    pairs = [(c.result["complete"].get(one), c.result["complete"].get(other)) for c in cells]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    return bool(known) and all(a == b for a, b in known)


def _leads(values: Values, surely: bool) -> str:
    """The best and its accuracy, against the next and, where it is neither, ME."""
    (best, top), (second, next_best), *rest = by_mean(values).items()
    me = f"; `me` {dict(rest)['me']}" if "me" in dict(rest) else ""
    sure = "significant" if surely else "not significant"
    return f"`{best}` {top}, next `{second}` {next_best}, {sure}{me}"


def _bests(groups: Mapping[Key, Values], surely: Mapping[Key, bool]) -> str:
    """Which objective is best in the mean, and whether surely; by count where there are several."""
    best = [next(iter(by_mean(values))) for values in groups.values()]
    sure = sum(surely[key] for key in groups)
    names = list(dict.fromkeys(best))
    test = f"significant in {sure} of {len(best)}"
    if len(best) == 1:
        test = "significant" if sure else "not significant"
    if len(names) == 1:
        return f"`{names[0]}` ({test})"
    return f"{' and '.join(f'`{name}` in {best.count(name)}' for name in names)} ({test})"


def _by_amount(done: Sequence[Measured]) -> dict[tuple[Any, ...], dict[Any, list[Measured]]]:
    return {
        key: {amount: some for (amount,), some in grouped(group, "amount").items()}
        for key, group in grouped(done, *GROUP).items()
    }


def _best(amounts: Mapping[Any, Sequence[Measured]]) -> Any:
    """The amount with the highest validation accuracy; of equal ones the first."""
    means = {amount: _validation(group) for amount, group in amounts.items()}
    return max(means, key=lambda amount: means[amount].mean if means[amount].n else -1.0)


def _validation(group: Sequence[Measured]) -> Spread:
    return Spread.of(cell.result["validation"] for cell in group)


def _complete(group: Sequence[Measured], how: str) -> Spread:
    return Spread.of(cell.result["complete"].get(how) for cell in group)


def _spread(group: Sequence[Measured], key: str) -> Spread:
    """Over seeds, of the mean over the modules or pairs of a seed."""
    return Spread.of(fmean(cell.result[key]) for cell in group if cell.result[key])


def _numbers(group: Sequence[Measured], operators: Sequence[str]) -> list[Spread | None]:
    result = [_spread(group, "accuracy"), _spread(group, "entropy")]
    result += [_complete(group, how) for how in operators]
    result += [_spread(group, "mask_jaccard"), _spread(group, "live_units")]
    return [spread if spread.n else None for spread in result]


def _amount(value: float | None) -> str | None:
    return None if value is None else f"{value:g}"


def _notes(done: Sequence[Measured]) -> list[str]:
    sparsities = sorted({cell.settings["sparsity"] for cell in done})
    return [
        f"sparsity with IMP: {', '.join(f'{s:g}' for s in sparsities)}",
        "amount: strength of the penalty or smoothing, chosen by the mean validation accuracy over "
        "seeds of all modules joined by logits; all other numbers are on test samples",
        "n: seeds; rewarded accuracy, entropy and live units are first averaged over the modules "
        "of a seed, the Jaccard index of masks over its pairs of modules",
        "xe, smoothing and confidence_penalty never see samples of other classes, not even to "
        "choose what is pruned",
        "other: an extra output for all other classes; single modules and logits divide its "
        "probability evenly among all classes; the sum of weights uses the outputs of the classes "
        "alone",
    ]


register(
    Study(
        "controls",
        "Controls: objective and pruning separated",
        "Is it maximum entropy or pruning that lets modules be joined, or would label smoothing, a "
        "confidence penalty or an output for all other classes do? Each cell joins all modules of "
        "one seed, objective and amount, pruned to one sparsity or not at all.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="nothing; its reviewers asked whether the objective or pruning is responsible",
    )
)
