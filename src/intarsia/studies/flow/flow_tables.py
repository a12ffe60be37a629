"""Tables and figures of the study `flow`; errors over seeds are a median and its range.

Means over seeds would hide a seed that failed, and errors lie decades apart.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from intarsia.studies.cells import Measured
from intarsia.studies.flow.flow_cells import ARM, CLOSURE, FLOOR, FLOW, NODES
from intarsia.studies.tables import Entry, Table, finite, grouped
from intarsia.studies.wording import several

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROUP = ("form", "unit", "width")
RANGE = "median over seeds (smallest to largest)"


def of_part(done: Sequence[Measured], part: str) -> list[Measured]:
    """The cells of a part of the study that gave a result."""
    own = [cell for cell in done if cell.settings["part"] == part]
    return [cell for cell in own if not cell.result.get("diverged")]


def arms(done: Sequence[Measured], **settings: Any) -> dict[tuple[str, str, int], list[Measured]]:
    """Cells by form, unit and width that have these settings."""
    own = [c for c in of_part(done, ARM) if all(c.settings[k] == v for k, v in settings.items())]
    return grouped(own, *GROUP)


def range_text(values: Iterable[float | None]) -> str | None:
    """`7.1e-03 (6.9e-03 to 1.4e-02)`; the number alone where there is one."""
    known = finite(values)
    if not known:
        return None
    middle = f"{median(known):.1e}"
    return middle if len(known) == 1 else f"{middle} ({min(known):.1e} to {max(known):.1e})"


def tables(done: Sequence[Measured]) -> list[Table]:
    """Errors by law, by seed, flows, the form as a graph, the error by w2, closures."""
    result = []
    for (law, loss), own in grouped(of_part(done, ARM), "train_law", "loss").items():
        result += [_errors(own, law, loss), _seeds(own, law, loss), _flows(own, law, loss)]
        result += [_graphs(own, law, loss)] if any("graph_four" in c.result for c in own) else []
    result += [_sampled(own) for own in [of_part(done, FLOW)] if own]
    result += [_floor(own) for own in [of_part(done, FLOOR)] if own]
    result += [_closures(own) for own in [of_part(done, CLOSURE)] if own]
    return result


def _title(what: str, law: str, loss: str) -> str:
    how = "" if loss == "mse" else ", with the cumulant loss"
    return f"{what}, trained on {law}{how}"


def _label(key: tuple[Any, ...]) -> list[Entry]:
    form, unit, width = key
    return [form, unit, width]


def _errors(done: Sequence[Measured], law: str, loss: str) -> Table:
    laws = list(dict.fromkeys(name for cell in done for name in cell.settings["laws"]))
    rows: list[list[Entry]] = []
    for key, own in grouped(done, *GROUP).items():
        errors = [range_text(c.result["mse"].get(name) for c in own) for name in laws]
        rows.append([*_label(key), *errors, _worst(own, law)])
    notes = [
        f"mean squared error against (x1 + x2) / sqrt 2, {RANGE}, {_seeds_in(done)}",
        "pairs: of hidden units; a free network has two units per pair",
        "worst / own: the largest error on another law divided by the error on the training law, "
        "median over seeds; not given for errors below 1e-20, which are rounding",
    ]
    columns = ["form", "unit", "pairs", *laws, "worst / own"]
    return Table(_title("Test error by law", law, loss), columns, rows, notes)


def worst_ratio(cell: Measured, law: str) -> float | None:
    """The largest error on another law over that on the law of training; none for rounding."""
    own = cell.result["mse"].get(law)
    others = [error for name, error in cell.result["mse"].items() if name != law]
    return max(others) / own if own and own > 1e-20 and others else None


def _worst(own: Sequence[Measured], law: str) -> str | None:
    ratios = finite(worst_ratio(cell, law) for cell in own)
    return f"{median(ratios):.1f}" if ratios else None


def _seeds(done: Sequence[Measured], law: str, loss: str) -> Table:
    seeds = sorted({cell.settings["seed"] for cell in done})
    rows: list[list[Entry]] = []
    for key, own in grouped(done, *GROUP).items():
        errors = {cell.settings["seed"]: cell.result["mse"].get(law) for cell in own}
        texts = [None if errors.get(seed) is None else f"{errors[seed]:.1e}" for seed in seeds]
        rows.append([*_label(key), *texts])
    columns = ["form", "unit", "pairs", *(f"seed {seed}" for seed in seeds)]
    return Table(_title(f"Test error on {law} by seed", law, loss), columns, rows)


def _flows(done: Sequence[Measured], law: str, loss: str) -> Table:
    last = max(len(cell.result["law"]) - 1 for cell in done)
    expected = next(c.result["law"][-1] for c in done if len(c.result["law"]) - 1 == last)
    rows: list[list[Entry]] = [["law", None, None, *(f"{k:.3g}" for k in expected), None]]
    for key, own in grouped(done, *GROUP).items():
        whole = [c.result["steps"][last] for c in own if len(c.result["steps"]) > last]
        values = [range_text(k[order] for k in whole) for order in range(4)]
        early = len(own) - len(whole)
        rows.append([*_label(key), *values, f"{early} of {len(own)}" if early else None])
    pairs = done[0].settings["test_pairs"]
    notes = [
        f"cumulants k1 to k4 after {last} steps from {2 * pairs:,} samples, which are paired anew "
        f"with replacement at every step; {RANGE}",
        "overflowed: networks whose samples left the range of floating-point numbers before that",
    ]
    columns = ["form", "unit", "pairs", "k1", "k2", "k3", "k4", "overflowed"]
    return Table(_title(f"Cumulants after {last} steps", law, loss), columns, rows, notes)


def _graphs(done: Sequence[Measured], law: str, loss: str) -> Table:
    rows: list[list[Entry]] = []
    for key, own in grouped([c for c in done if "graph_four" in c.result], *GROUP).items():
        names = ("graph_difference", "graph_four", "tree_four")
        rows.append([*_label(key)[1:], *(range_text(c.result[n] for c in own) for n in names)])
    notes = [
        "the same weights, used for message passing on the complete graph of the inputs: on two "
        f"nodes this is the network itself; on {NODES} nodes the error is against the sum divided "
        "by 2",
        f"two steps: the network applied to its own outputs for the two pairs; {RANGE}",
    ]
    columns = ["unit", "pairs", "difference on 2 nodes", f"error on {NODES} nodes"]
    columns += ["error in two steps"]
    return Table(_title("Symmetric networks as graphs", law, loss), columns, rows, notes)


def _sampled(done: Sequence[Measured]) -> Table:
    first = done[0]
    rows: list[list[Entry]] = []
    for row in first.result["sampled"]:
        step = row["step"]
        away = finite(a for c in done for a in c.result["standard_errors_away"][step])
        pairs = zip(row["cumulants"][2:], row["standard_errors"][2:], row["law"][2:], strict=True)
        texts = [text for k, e, law in pairs for text in (f"{k:.4f} ± {e:.4f}", f"{law:.4f}")]
        rows.append([step, row["samples"], *texts, f"{max(away):.2f}" if away else None])
    notes = [
        f"k3 and k4 of seed {first.settings['seed']} with their standard errors; largest "
        f"deviation: from the law, over {several(len(done), 'seed')} and orders 1 to 4, in "
        "standard errors",
        "every step halves the number of samples",
    ]
    columns = ["step", "samples", "k3", "k3 of the law", "k4", "k4 of the law", "largest deviation"]
    return Table(f"Sampled flow of the {first.settings['law']} law", columns, rows, notes)


def floor_rows(done: Sequence[Measured]) -> list[tuple[float, float, float, float]]:
    """w2, formula, error on the samples of all seeds, formula with the samples' own variance."""
    rows = zip(*(cell.result["rows"] for cell in done), strict=True)
    means = [tuple(fmean(column) for column in zip(*own, strict=True)) for own in rows]
    return means  # type: ignore[return-value]


def _floor(done: Sequence[Measured]) -> Table:
    rows: list[list[Entry]] = [
        [f"{w2:g}", f"{formula:.4g}", f"{error:.4g}", f"{error / formula - 1:+.2%}",
         f"{error / own - 1:+.1e}"]
        for w2, formula, error, own in floor_rows(done)
    ]  # fmt: skip
    pairs = done[0].settings["floor_pairs"] * len(done)
    notes = [
        "one symmetric quadratic pair with w0 = w1 = 1 / (2 sqrt 2 w2); formula: (a / (4 w2))^2 "
        f"Var((x1 + x2)^2) with a = 0.2; {pairs:,} pairs of the {done[0].settings['law']} law",
        "sample variance: difference from the formula with the variance of the samples themselves",
    ]
    columns = ["w2", "formula", "measured", "difference", "difference, sample variance"]
    return Table("Error of the quadratic pair by w2", columns, rows, notes)


def _closures(done: Sequence[Measured]) -> Table:
    rows: list[list[Entry]] = []
    keys = ("closure_law", "closure_unit", "closure_width")
    for (law, unit, width), own in grouped(done, *keys).items():
        for place in range(len(own[0].result["layers"])):
            layers = [cell.result["layers"][place] for cell in own]
            texts = [
                _percent([layer[name] for layer in layers])
                for name in ("mean_error", "mean_noise", "covariance_error", "covariance_noise")
            ]
            rows.append([law, unit, width, place + 1, *texts])
    count = done[0].settings["closure_samples"]
    notes = [
        "random networks of three layers and 4 inputs; relative error of mean and covariance after "
        f"each activation against {count:,} samples, Frobenius norm; {RANGE}, {_seeds_in(done)}",
        "noise: the error that an exact prediction would have from sampling alone",
    ]
    columns = ["inputs", "unit", "width", "layer", "mean error", "mean noise", "covariance error"]
    columns += ["covariance noise"]
    return Table("Error of the Gaussian closure by layer", columns, rows, notes)


def percent(value: float) -> str:
    """Two digits, and all of a large one."""
    return f"{100 * value:.2g}%" if value < 0.1 else f"{100 * value:.0f}%"


def _percent(values: Sequence[float | None]) -> str | None:
    known = finite(values)
    if not known:
        return None
    middle, low, high = map(percent, (median(known), min(known), max(known)))
    return middle if len(known) == 1 else f"{middle} ({low} to {high})"


def _seeds_in(done: Sequence[Measured]) -> str:
    return f"n = {len({cell.settings['seed'] for cell in done})}"


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """Flows, errors by law, the error by w2, closure errors by layer."""
    from intarsia.plots import error_by_weight

    result: dict[str, Figure] = {}
    fitted = of_part(done, ARM)
    if fitted:
        law, loss = fitted[0].settings["train_law"], fitted[0].settings["loss"]
        own = arms(done, train_law=law, loss=loss)
        result["flow-steps"] = _flow_figure(own, law)
        result["flow-errors"] = _error_figure(own, law)
    if floors := of_part(done, FLOOR):
        rows = floor_rows(floors)
        measured, formula = {r[0]: r[2] for r in rows}, {r[0]: r[1] for r in rows}
        title = "Error of one symmetric quadratic pair by w2"
        figure = error_by_weight(measured, formula, title=title).figure
        result["flow-floor"] = figure  # type: ignore[assignment]
    if closures := of_part(done, CLOSURE):
        result["flow-closure"] = _closure_figure(closures)
    return result


def _flow_figure(own: Mapping[Any, Sequence[Measured]], law: str) -> "Figure":
    """The narrowest symmetric networks of every unit, by the median over seeds."""
    from intarsia.plots import cumulants_by_step

    width = min(key[2] for key in own)
    flows = {}
    for (form, unit, pairs), cells in own.items():
        if pairs == width:
            steps = range(min(len(cell.result["steps"]) for cell in cells))
            flows[f"{form} {unit}"] = {
                step: [median(c.result["steps"][step][k] for c in cells) for k in range(4)]
                for step in steps
            }
    longest = max((c for cells in own.values() for c in cells), key=lambda c: len(c.result["law"]))
    expected = dict(enumerate(longest.result["law"]))
    title = f"Cumulants by step, {several(width, 'pair')}, trained on {law}"
    return cumulants_by_step(flows, expected, title=title)


def _error_figure(own: Mapping[Any, Sequence[Measured]], law: str) -> "Figure":
    from intarsia.plots import error_by_law

    panels: dict[str, dict[str, dict[str, float]]] = {}
    for (form, unit, width), cells in own.items():
        errors = {
            name: median(finite(cell.result["mse"].get(name) for cell in cells))
            for name in cells[0].settings["laws"]
        }
        panels.setdefault(f"{form}, {several(width, 'pair')}", {})[unit] = errors
    return error_by_law(panels, title=f"Test error by law, trained on {law}")


def _closure_figure(done: Sequence[Measured]) -> "Figure":
    from intarsia.plots import closure_error_by_layer

    errors: dict[str, dict[str, float]] = {}
    keys = ("closure_law", "closure_unit", "closure_width")
    for (law, unit, width), own in grouped(done, *keys).items():
        errors[f"{law}, {unit}, {width} units"] = {
            f"layer {place + 1}": median(c.result["layers"][place]["covariance_error"] for c in own)
            for place in range(len(own[0].result["layers"]))
        }
    return closure_error_by_layer(errors, title="Covariance error of the Gaussian closure")
