"""The pages on wholes of ever more modules, and on what they do not know."""

import statistics
from collections.abc import Callable

from matplotlib.figure import Figure

from intarsia.plots import curve_panels
from pages import Result, page, table

TITLES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
STEPS = {"rewarded_accuracy": (1, 2, 4, 6, 8, 10), "nonrewarded_entropy": (1, 2, 4, 6, 8, 9)}
MODULES = {
    "sum": "`paper`",
    "aligned sum": "`paper`",
    "TIES": "`paper`",
    "logits": "`paper`",
    "territory sum": "`territory`",
    "inlay": "`sparse`",
}
Load = Callable[[str], Result]


def curve(load: Load) -> str:
    result = load("curve")
    seeds, orders = len(result["seeds"]), result["orders"]
    parts = [part for name, found in result["data"].items() for part in _curves(name, found)]
    return page(
        "From one module to ten",
        [result],
        "Shallow modules of one class each, `mlp` with 512 hidden units, are joined one after "
        "another; nothing is trained in between. Rewarded accuracy is over the test samples of the "
        "classes joined so far, and any of the ten may be answered; non-rewarded entropy is over "
        "all others, who should get an answer as uncertain as can be. Three banks take part: "
        "`paper` (99% pruned, the paper's settings), `sparse` (95%) and `territory` (each module "
        "has a tenth of the hidden units to itself). Sum, aligned sum, TIES and logits join the "
        "same modules of `paper`; the other two have modules trained for them. Sum, aligned sum, "
        "TIES and territory sum make a network of the original shape, the inlay a wider and sparse "
        "one; logits keep all networks.",
        f"Mean ± standard deviation over {seeds} seeds times {orders} random orders of the "
        f"classes, the same for all ways. Where orders come to the same classes the whole counts "
        f"once: n is {seeds} at ten modules, and at most {seeds * orders} before. Shades are one "
        "standard deviation, cut off at 1.",
        "![Rewarded accuracy against the number of modules joined](curve.svg)",
        *parts,
    )


def curve_figure(result: Result) -> Figure:
    """The rewarded accuracy of all ways, one panel for each data set."""
    panels = {
        TITLES[name]: {
            way: {float(k): _span(v) for k, v in measures["rewarded_accuracy"].items()}
            for way, measures in found["curves"].items()
        }
        for name, found in result["data"].items()
    }
    return curve_panels(
        panels,
        title="Rewarded accuracy while modules are joined",
        x="modules joined",
        y="rewarded accuracy",
        share_y=True,
    )


def _span(value: Result) -> tuple[float, float, float]:
    """A standard deviation to either side, though no accuracy is above 1."""
    mean, sd = value["mean"], value["sd"]
    return mean, mean - sd, min(1.0, mean + sd)


def _curves(name: str, result: Result) -> list[str]:
    parts = [f"## {TITLES[name]}"]
    for measure, steps in STEPS.items():
        rows = [
            [way, MODULES[way], *(_figure(measures[measure][str(k)]) for k in steps)]
            for way, measures in result["curves"].items()
        ]
        head = f"{measure.replace('nonr', 'non-r').replace('_', ' ')}|bank"
        parts.append(table(f"{head}|{'|'.join(map(str, steps))}", rows))
    return [*parts, _curves_in_words(result), _ties_in_words(result["ties"])]


def _curves_in_words(result: Result) -> str:
    at_ten = {
        way: measures["rewarded_accuracy"]["10"]["mean"]
        for way, measures in result["curves"].items()
    }
    order = sorted(at_ten, key=lambda way: -at_ten[way])
    joint = result["joint"]
    ranked = ", ".join(f"{way} ({at_ten[way]:.4f})" for way in order)
    change = at_ten["aligned sum"] - at_ten["sum"]
    alignment = (
        "Alignment helps the sum here."
        if change > 0
        else f"Alignment harms the sum ({change:+.4f}). It lays units that resemble each other on "
        "one place, as is right for a mean of networks that do the same; these are added, and "
        "share an origin, where units lie in the same places already."
    )
    return (
        f"Ten modules, from the best: {ranked}. A joint network of the same shape, trained on all "
        f"ten classes at once, reaches {_figure(joint)} (n = {joint['n']}). {alignment}"
    )


def _ties_in_words(ties: Result) -> str:
    rows = ties["choice"]
    best = max(rows, key=lambda row: row["validation"])
    least = min(rows, key=lambda row: row["validation"])
    densities = ", ".join(str(d) for d in dict.fromkeys(row["density"] for row in rows))
    scales = ", ".join(str(s) for s in dict.fromkeys(row["scale"] for row in rows))
    nothing = (
        " Nothing is trimmed at a density of 1: pruning has done that."
        if best["density"] == 1
        else ""
    )
    return (
        f"TIES is `{ties['operator']}`, preset `paper`. Its density is a share of all entries, the "
        f"pruned ones included. It was chosen among {densities}, and the scale among {scales}, on "
        f"validation samples for the complete merge of {ties['n']} of the seeds: "
        f"{best['validation']:.4f} there, against {least['validation']:.4f} for the least "
        f"(`density={least['density']}, scale={least['scale']}`).{nothing}"
    )


def abstention(load: Load) -> str:
    result = load("abstention")
    cases = {
        case: {row["kind"]: row for row in result["rows"] if row["case"] == case}
        for case in ("unknown classes", "foreign images")
    }
    drawn = "; ".join(result["known"].values())
    n = result["rows"][0]["n"]
    head = "whole|AUROC by entropy|AUROC by largest probability|known answered|of these right"
    parts = []
    for case, rows in cases.items():
        cells = [
            [
                _whole(row),
                *(
                    _figure(row[key])
                    for key in ("auroc_entropy", "auroc_softmax", "answered", "accuracy", "refused")
                ),
            ]
            for row in rows.values()
        ]
        parts += [
            f"## {case.capitalize()}",
            _about(case, rows, drawn),
            table(f"{head}|unknown refused", cells),
            _against_joint(rows),
        ]
    return page(
        "Abstention",
        [result],
        "A module is trained to be uncertain about all classes but its own. Does the whole of "
        "several know what it does not know? The AUROC is how often, of one known and one unknown "
        "test sample, the unknown one gets the more uncertain answer; 0.5 is chance. The last "
        "three columns are what `predict(x, abstain=...)` does with a threshold that lets "
        f"{result['answered']:.0%} of the validation samples of known classes be answered. All "
        "probabilities are at the temperature that the networks were trained at, the joint one's "
        f"too. Shallow networks of one shape; mean ± standard deviation, n = {n} seeds.",
        *parts,
    )


def _whole(row: Result) -> str:
    if row["kind"] == "joint":
        return "one network, trained jointly"
    return f"{row['operator']} of `{row['kind']}` modules"


def _about(case: str, rows: dict[str, Result], drawn: str) -> str:
    if case == "foreign images":
        return (
            "All ten classes of MNIST are known, by the banks that `benchmarks/banks.py` trains; "
            f"the {rows['joint']['unknown'][0]:,} test images of Fashion-MNIST are unknown."
        )
    settings = "; ".join(
        f"`{kind}`: {', '.join(f'{k} {v}' for k, v in row['settings'].items())}"
        for kind, row in rows.items()
    )
    fewer = [
        f"`{kind}` {row['settings']['epochs']} and not {row['epochs_of_shared_banks']}"
        for kind, row in rows.items()
        if row["settings"]["epochs"] < row["epochs_of_shared_banks"]
    ]
    short = (
        f" In the last round that is fewer epochs than the banks below have: {', '.join(fewer)}."
        if fewer
        else ""
    )
    return (
        "Five classes of MNIST are known, the test samples of the other five are unknown. Nothing "
        "was trained on any sample of these. For each seed five were drawn anew: "
        f"{drawn}. Settings beside the preset `paper`: {settings}.{short}"
    )


def _against_joint(rows: dict[str, Result]) -> str:
    """The difference in AUROC by entropy, seed by seed; and by the better of joint's two scores."""
    joint = rows["joint"]
    best = max(("auroc_entropy", "auroc_softmax"), key=lambda key: joint[key]["mean"])
    name = {"auroc_entropy": "entropy", "auroc_softmax": "largest probability"}[best]
    words = []
    for kind in ("sparse", "territory"):
        pairs = zip(_values(rows[kind]["auroc_entropy"]), _values(joint[best]), strict=True)
        gaps = [mine - other for mine, other in pairs]
        mean, sd = statistics.mean(gaps), statistics.stdev(gaps)
        wins = sum(gap > 0 for gap in gaps)
        words.append(
            f"the {_whole(rows[kind])} is {abs(mean):.4f} ± {sd:.4f} "
            f"{'above' if mean > 0 else 'below'}, and above it for {wins} of {len(gaps)} seeds"
        )
    return (
        f"By entropy, and against the joint network by its {name}, which is the better of its two: "
        f"{'; '.join(words)}. The differences are taken seed by seed."
    )


def _values(result: Result) -> list[float]:
    return [float(value) for value in result["values"].split()]


def _figure(value: Result) -> str:
    return f"{value['mean']:.4f} ± {value['sd']:.4f}"
