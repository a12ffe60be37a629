"""The study `flow`: which networks learn the central limit theorem as a flow, which leave it."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from intarsia.studies.cells import Measured
from intarsia.studies.flow.flow_cells import (
    AFFINE,
    ARM,
    CLOSURE,
    FLOOR,
    FLOW,
    NAME,
    SCALES,
    cells,
    measure,
)
from intarsia.studies.flow.flow_tables import (
    arms,
    figures,
    floor_rows,
    of_part,
    percent,
    range_text,
    tables,
    worst_ratio,
)
from intarsia.studies.study import Study, register
from intarsia.studies.tables import finite
from intarsia.studies.verdict import Claim, Findings, Verdict
from intarsia.studies.wording import listed, several

MSE = "mse"
EXACT_LAW, TINY, LOST = 1e-10, 1e-20, 1e-4  # what was aimed at
WITHIN, ROUNDING, AWAY = 0.02, 1e-12, 4.0


def verdict(findings: Findings) -> Verdict:
    """What was aimed at, and what came out beside it."""
    done = findings.cells
    checks = [*_instruments(done), *_solvable(done), *_lost(done), *_wide(done), *_floors(done)]
    said = [*_quadratic_by_form(done), *_flows(done), *_generalisation(done), *_graphs(done)]
    said += [*_losses(done), *_closures(done)]
    failed = {
        f"{c.settings['form']} {c.settings['unit']}, {c.settings['width']} pairs, seed "
        f"{c.settings['seed']}": "which diverged"
        for c in done
        if c.result.get("diverged")
    }
    known = [check for check in checks if check.holds is not None]
    met = sum(bool(check.holds) for check in known)
    line = f"{met} of {len(known)} aims are met" if known else "nothing is measured yet"
    short = [claim.short for claim in said if claim.short]
    return Verdict("; ".join([line, *short]), [*checks, *said], failed)


def _aim(aim: str, measured: str, holds: bool, n: int) -> Claim:
    text = f"{aim}: {measured}, {'met' if holds else 'missed'}."
    return Claim(text, holds, {"aim": aim, "measured": measured}, n)


def _instruments(done: Sequence[Measured]) -> list[Claim]:
    """The affine law, the exact flow and the sampled one."""
    result = []
    if own := of_part(done, AFFINE):
        worst = max(value for cell in own for value in cell.result["relative"])
        aim = f"Affine law: relative error below {EXACT_LAW:g} for orders 1 to 4"
        result.append(_aim(aim, f"at most {worst:.1e}", worst < EXACT_LAW, len(own)))
    if own := of_part(done, FLOW):
        exact = max(max(cell.result["exact"], cell.result["all_pairs"]) for cell in own)
        aim = f"Exact flow: k_r scales by 2^(1-r/2) at each step, to within {ROUNDING:g}"
        said = f"off by at most {exact:.1e}, also over all pairs of a sample"
        result.append(_aim(aim, said, exact <= ROUNDING, len(own)))
        away = max(
            finite(a for cell in own for row in cell.result["standard_errors_away"] for a in row)
        )
        aim = f"Sampled flow: cumulants within {AWAY:g} standard errors of the law"
        result.append(_aim(aim, f"at most {away:.2f}", away <= AWAY, len(own)))
    return result


def _solvable(done: Sequence[Measured]) -> list[Claim]:
    """Linear networks of either form, one pair, on the first law of training."""
    result = []
    for form in ("symmetric", "free"):
        own = _arm(done, form, "linear", 1)
        if not own:
            continue
        distance = max(cell.result["distance"] for cell in own)
        error = max(error for cell in own for error in cell.result["mse"].values())
        right = sum(
            cell.result["distance"] < EXACT_LAW and max(cell.result["mse"].values()) < TINY
            for cell in own
        )
        said = (
            f"{right} of {len(own)} seeds, distance at most {distance:.1e}, MSE at most {error:.1e}"
        )
        aim = (
            f"{form.capitalize()} linear networks, one pair: distance from the solution manifold "
            f"below {EXACT_LAW:g} and test MSE below {TINY:g} on every law, for every seed"
        )
        if form == "symmetric":
            result.append(_aim(aim, said, right == len(own), len(own)))
        else:
            result.append(Claim(f"{aim.partition(':')[0]}, same criteria: {said}.", n=len(own)))
    return result


def _lost(done: Sequence[Measured]) -> list[Claim]:
    own = _arm(done, "symmetric", "quadratic", 1)
    if not own:
        return []
    errors = [cell.result["mse"][cell.settings["train_law"]] for cell in own]
    aim = f"Symmetric quadratic networks, one pair: MSE above {LOST:g} after the same training"
    return [_aim(aim, f"at least {min(errors):.1e}", min(errors) > LOST, len(own))]


def _wide(done: Sequence[Measured]) -> list[Claim]:
    own = _arm(done, "symmetric", "quadratic", 16)
    if not own:
        return []
    error = max(error for cell in own for error in cell.result["mse"].values())
    aim = f"Symmetric quadratic networks, 16 pairs: MSE below {TINY:g}"
    return [_aim(aim, f"at most {error:.1e} on any law", error < TINY, len(own))]


def _floors(done: Sequence[Measured]) -> list[Claim]:
    own = of_part(done, FLOOR)
    if not own:
        return []
    gaps = [abs(error / formula - 1) for _, formula, error, _ in floor_rows(own)]
    aim = f"Balanced quadratic pair: error within {WITHIN:.0%} of the formula for every w2"
    first, last = floor_rows(own)[0], floor_rows(own)[-1]
    fall = (
        f"As w2 grows from {first[0]:g} to {last[0]:g}, the error falls from {first[2]:.2g} to "
        f"{last[2]:.2g}: there is no finite solution, and no floor either unless weights are "
        "bounded."
    )
    check = _aim(aim, f"off by at most {max(gaps):.2%}", max(gaps) <= WITHIN, len(own))
    return [check, Claim(fall, n=len(own))]


def _quadratic_by_form(done: Sequence[Measured]) -> list[Claim]:
    """Two free units may cancel the squares, which one symmetric pair cannot."""
    free, bound = (_arm(done, form, "quadratic", 1) for form in ("free", "symmetric"))
    if not free or not bound:
        return []
    counts = [
        sum(cell.result["mse"][cell.settings["train_law"]] < TINY for cell in own)
        for own in (free, bound)
    ]
    text = (
        f"With two quadratic units, {counts[0]} of {len(free)} free networks and {counts[1]} of "
        f"{len(bound)} symmetric ones reach rounding error: two w2 of opposite signs cancel the "
        "squares, but a symmetric pair has only one w2."
    )
    short = (
        f"networks of two quadratic units are exact in {counts[0]} of {len(free)} seeds if free "
        f"and in {counts[1]} of {len(bound)} if symmetric"
    )
    return [Claim(text, n=len(free), short=short, evidence={"count": counts[0], "of": len(free)})]


def _flows(done: Sequence[Measured]) -> list[Claim]:
    """Where the narrowest symmetric networks are at the end of the flow."""
    own = {key: c for key, c in _first(done, MSE).items() if key[0] == "symmetric"}
    if not own:
        return []
    width = min(key[2] for key in own)
    whole = max(len(cell.result["law"]) for cells_ in own.values() for cell in cells_)
    parts = []
    for (_, unit, pairs), cells_ in own.items():
        ends = [c.result for c in cells_ if len(c.result["steps"]) == whole]
        if pairs == width and ends:
            fourth = range_text(end["steps"][-1][3] for end in ends)
            parts.append(f"{unit} {fourth}")
            law = ends[0]["law"][-1][3]
    if not parts:
        return []
    text = (
        f"After {whole - 1} steps of symmetric networks of {several(width, 'pair')}, k4 is "
        f"{'; '.join(parts)}; the law gives {law:.2g}. The linear networks, which equal the step "
        "up to rounding, show the effect of sampling."
    )
    return [Claim(text, n=len(own))]


def _generalisation(done: Sequence[Measured]) -> list[Claim]:
    """Whether wider networks are worse on other laws than narrow ones: as it comes out."""
    result = []
    for law in dict.fromkeys(c.settings["train_law"] for c in of_part(done, ARM)):
        own = arms(done, train_law=law, loss=MSE)
        widths = sorted({key[2] for key in own})
        if len(widths) < 2:
            continue
        narrow, wide = widths[0], widths[-1]
        parts = []
        for form, unit in dict.fromkeys((key[0], key[1]) for key in own):
            pair = [own.get((form, unit, width)) for width in (narrow, wide)]
            texts = [_other_laws(cells_, law) for cells_ in pair if cells_]
            if len(texts) == 2 and all(texts):
                parts.append(f"{form} {unit} {texts[0]} and {texts[1]}")
        if parts:
            text = (
                f"Trained on {law}: largest error on another law, and how many times the error on "
                f"{law} it is, with {narrow} and with {wide} pairs: {'; '.join(parts)}."
            )
            result.append(Claim(text, details=_as_claimed(own, law, narrow, wide)))
    return result


def _other_laws(own: Sequence[Measured], law: str) -> str:
    errors = [
        max(error for name, error in cell.result["mse"].items() if name != law)
        for cell in own
        if len(cell.result["mse"]) > 1
    ]
    ratios = finite(worst_ratio(cell, law) for cell in own)
    if not errors:
        return ""
    times = f" ({median(ratios):.0f} times)" if ratios else " (rounding)"
    return f"{median(errors):.1e}{times}"


def _as_claimed(own: Any, law: str, narrow: int, wide: int) -> list[str]:
    """Of units that no form solves exactly, whether width makes other laws worse or better."""
    better: list[str] = []
    worse: list[str] = []
    for form, unit in dict.fromkeys((key[0], key[1]) for key in own):
        cells_ = [own.get((form, unit, width)) for width in (narrow, wide)]
        if unit == "linear" or not all(cells_):
            continue
        values = [
            [max((e for n, e in c.result["mse"].items() if n != law), default=0.0) for c in group]
            for group in cells_
        ]
        side = better if median(values[1]) < median(values[0]) else worse
        side.append(f"{form} {unit}")
    parts = [
        f"{word} on other laws: {listed(names)}"
        for word, names in (("better", better), ("worse", worse))
        if names
    ]
    return [f"Trained on {law}, {wide} pairs compared with {narrow} are {'; '.join(parts)}."]


def _graphs(done: Sequence[Measured]) -> list[Claim]:
    own = [cell for cell in of_part(done, ARM) if "graph_four" in cell.result]
    if not own:
        return []
    off = max(cell.result["graph_difference"] for cell in own)
    linear = _arm(done, "symmetric", "linear", 1)
    tail = ""
    if linear:
        four = range_text(cell.result["graph_four"] for cell in linear)
        tree = range_text(cell.result["tree_four"] for cell in linear)
        tail = (
            f" The error of a linear network trained on pairs is {four} on four nodes at once and "
            f"{tree} in two steps: pairs determine w0 + w1, but four nodes need w0 + 3 w1."
        )
    text = (
        "Symmetric networks give the same outputs as message passing on a graph of two nodes, to "
        f"within {off:.1e}.{tail}"
    )
    return [Claim(text, n=len(own))]


def _losses(done: Sequence[Measured]) -> list[Claim]:
    """What the loss of cumulants reaches, beside the mean squared error, on the first law."""
    both = {loss: _first(done, loss) for loss in ("mse", "cumulants")}
    if not all(both.values()):
        return []
    errors = {key: _own_error(own) for key, own in both["cumulants"].items()}
    others = {key: _own_error(own) for key, own in both["mse"].items()}
    shared = [key for key in errors if key in others]
    above = sum(errors[key] > 10 * others[key] for key in shared)
    solved = [" ".join(map(str, key)) for key in shared if errors[key] < TINY]
    names = f"{listed(solved)} (form, unit, pairs)"
    also = f" Rounding error is reached by {names}." if solved else ""
    text = (
        "If networks are trained only to match k1 to k4 of a batch, their median error against the "
        f"sum is more than 10 times that of training on the sum in {above} of {len(shared)} arms, "
        f"and above 0.01 in {sum(errors[key] > 0.01 for key in shared)}.{also}"
    )
    return [Claim(text, n=len(shared))]


def _own_error(own: Sequence[Measured]) -> float:
    return median(cell.result["mse"][cell.settings["train_law"]] for cell in own)


def _closures(done: Sequence[Measured]) -> list[Claim]:
    own = of_part(done, CLOSURE)
    if not own:
        return []
    first, last, near = [], [], []
    for law in dict.fromkeys(cell.settings["closure_law"] for cell in own):
        cells_ = [cell for cell in own if cell.settings["closure_law"] == law]
        first.append(f"{_covariance(cells_, 0)} for {law} inputs")
        last.append(f"{_covariance(cells_, -1)} for {law} inputs")
        if law == "gaussian":
            near = [
                c.result["layers"][0]["covariance_error"]
                / c.result["layers"][0]["covariance_noise"]
                for c in cells_
            ]
    noise = f" (at most {max(near):.1f} times the sampling error for Gaussian inputs)"
    text = (
        f"The covariance of the Gaussian closure is off by {listed(first)} after the first layer"
        f"{noise if near else ''}, and by {listed(last)} after the last."
    )
    return [Claim(text, n=len(own))]


def _covariance(own: Iterable[Measured], place: int) -> str:
    errors = [cell.result["layers"][place]["covariance_error"] for cell in own]
    return f"{percent(min(errors))} to {percent(max(errors))}"


def _first(done: Sequence[Measured], loss: str) -> dict[Any, list[Measured]]:
    """Arms of a loss, on the first law of training."""
    fitted = [cell for cell in of_part(done, ARM) if cell.settings["loss"] == loss]
    return arms(fitted, train_law=fitted[0].settings["train_law"]) if fitted else {}


def _arm(done: Sequence[Measured], form: str, unit: str, width: int) -> list[Measured]:
    """One arm, trained by the mean squared error on the first law."""
    for key, own in _first(done, MSE).items():
        if (key[0], key[1].partition("(")[0], key[2]) == (form, unit, width):
            return own
    return []


register(
    Study(
        NAME,
        "Neural renormalisation: networks that learn the flow of the central limit theorem",
        "Networks with two inputs are trained to compute one step of the flow, (x1 + x2) / sqrt 2, "
        "on pairs from one law, and tested on others: symmetric networks, whose hidden units come "
        "in pairs that swap the inputs, and free ones with as many units. Which reach the "
        "solution, which leave the flow when iterated, and does width or symmetry help on other "
        "laws? Further cells check cumulants through affine layers, the exact and the sampled "
        "flow, the error of the quadratic pair as a function of its second weight, and the "
        "Gaussian closure through random networks. Everything runs in float64 on the CPU; the "
        "networks of a stack of seeds are trained together by the first of its cells. The paper "
        "prints equations and figures, but no numbers.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="equations and figures without numbers: a linear symmetric network solves the step, "
        "a quadratic one is inconsistent; over-constrained and over-complex ones generalise poorly",
    )
)
