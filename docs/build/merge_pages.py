"""The pages on joining: ten modules, one after another, which pairs fit, alignment, barriers."""

import re
import statistics
import textwrap
from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure

from intarsia.plots import curve_panels
from pages import (
    DATA_TITLES,
    Load,
    Result,
    command,
    data_title,
    mean_sd,
    mean_sd_of,
    met,
    page,
    table,
)

Row = dict[str, Any]
MODELS = {
    "shallow": "shallow MLP (512)",
    "deep": "deep MLP (512, 256)",
    "lenet": "LeNet",
}
WAYS = {
    ("joint", ""): "one network, trained on all classes",
    ("territory", "sum"): "territories, weights added",
    ("sparse", "inlay"): "95% modules, inlay",
    ("sparse", "sum"): "95% modules, weights added",
    ("paper", "inlay"): "99% modules, preset `paper`, inlay",
    ("paper", "sum"): "99% modules, preset `paper`, weights added",
    ("released", "inlay"): "99% modules, preset `released`, inlay",
    ("released", "sum"): "99% modules, preset `released`, weights added",
}
TERRITORY, INLAY, PAPER = ("territory", "sum"), ("sparse", "inlay"), ("paper", "sum")
RELEASED = ("released", "sum")
MERGE_INTRO = """How close do ten modules come to one network trained on all classes? Each of ten \
modules is trained separately, for one class, and all are joined without further \
training; for comparison, one network of the same shape is trained on all ten classes, with its \
dropout chosen in the same way. Numbers are accuracy on the test samples, mean ± standard \
deviation over n seeds, and the difference of the mean from that joint network. *Nonzero* counts \
the parameters that remain in the composition, biases included, averaged over seeds. The settings \
of every kind are in benchmarks/experiments/banks.py: territories, 95% modules and the joint \
network use a cosine schedule and keep the epoch with the best validation loss; the 99% modules \
follow the preset named."""
CHOICE = """For each kind the best of four dropouts was chosen on validation samples, for modules \
joined by logits (which for territories equals adding weights), with seeds that are not used \
above. LeNet keeps the model's own dropout."""


def merge(load: Load) -> str:
    mlps, lenet, choice = load("merge"), load("merge_lenet"), load("merge_choice")
    released = load("merge_released")
    rows = [*mlps["rows"], *released["rows"], *lenet["rows"]]
    verdicts = list(_merge_verdicts(rows, load("targets")["merge"]))
    return page(
        "Joining ten modules",
        [mlps, released, lenet],
        MERGE_INTRO,
        "## Targets",
        f"{sum(row[-1] == met(True) for row in verdicts)} of {len(verdicts)} targets are met.",
        table("data|model|way|target|measured|lowest over seeds|verdict", verdicts),
        *_merge_tables(rows),
        "## What the tables show",
        _sharing_in_words(rows),
        "## Calibration",
        calibrated(load("calibration")),
        "## How the dropout was chosen",
        f"{CHOICE} The command:\n\n    {command(choice)}",
        _choices(choice["rows"]),
    )


def merge_in_short(load: Load) -> str:
    """A row for each network, for the page of main results."""
    rows = load("merge")["rows"]
    lines = []
    for data, model in _pairs(rows):
        cells = [
            mean_sd(_find(rows, data, model, way)["test"])
            for way in (("joint", ""), TERRITORY, INLAY, PAPER)
        ]
        lines.append([DATA_TITLES[data], MODELS[model], *cells])
    n = rows[0]["n"]
    text = (
        "Ten modules, one per class, trained apart and joined without further training: test "
        f"accuracy, mean ± standard deviation over {n} seeds. [Joining ten modules](merge.md) has "
        "all numbers, nonzero counts and commands."
    )
    other = _find(load("merge_released")["rows"], "mnist", "shallow", RELEASED)
    note = (
        "The last column, adding weights, is the paper's method. With the settings of its authors' "
        f"code in place of the printed ones it reaches {mean_sd(other['test'])} "
        f"(n = {other['n']}) for the shallow MLP on MNIST."
    )
    head = (
        "data|network|one network, trained jointly|territories, weights added|95% modules, inlay"
        "|99% modules (preset `paper`), weights added"
    )
    before, after = (
        textwrap.fill(words, 119, break_on_hyphens=False, break_long_words=False)
        for words in (text, note)
    )
    return f"{before}\n\n{table(head, lines)}\n\n{after}"


def _merge_tables(rows: list[Row]) -> Iterator[str]:
    for data, model in _pairs(rows):
        own = [row for row in rows if (row["data"], row["model"]) == (data, model)]
        joint = _find(rows, data, model, ("joint", ""))["test"]["mean"]
        lines = []
        for row in own:
            lines.append(
                [
                    WAYS[row["kind"], row["operator"]],
                    _units(row, model),
                    row["n"],
                    f"{row['nonzero']:,}",
                    mean_sd(row["test"]),
                    _apart(row, joint),
                ]
            )
        yield f"## {DATA_TITLES[data]}, {MODELS[model]}"
        yield table("way|hidden units|n|nonzero|test accuracy|difference from joint", lines)


def _merge_verdicts(rows: list[Row], targets: Result) -> Iterator[list[str]]:
    """The targets, what was measured, and whether they are met."""
    for model in ("shallow", "deep"):
        row, aim = _find(rows, "mnist", model, TERRITORY), targets["one_network"]
        yield _merge_verdict(row, TERRITORY, f"at least {aim}", row["test"]["mean"], aim)
    below = [("mnist", m, INLAY, targets["inlay_below_joint"]) for m in ("shallow", "deep")]
    for model in ("shallow", "deep"):
        for way in (TERRITORY, INLAY):
            below.append(("fashion_mnist", model, way, targets["fashion_below_joint"]))
    below.append(("mnist", "lenet", TERRITORY, targets["lenet_below_joint"]))
    for data, model, way, room in below:
        row = _find(rows, data, model, way)
        joint = _find(rows, data, model, ("joint", ""))["test"]["mean"]
        yield _merge_verdict(
            row, way, f"at most {room} below {joint:.4f}", row["test"]["mean"], joint - room
        )


def _merge_verdict(
    row: Row, way: tuple[str, str], aim: str, value: float, least: float
) -> list[str]:
    return [
        DATA_TITLES[row["data"]],
        MODELS[row["model"]],
        WAYS[way],
        aim,
        f"{value:.4f}",
        min(row["test"]["values"].split()),
        # Rounded as the numbers are stored, so that a difference of floats decides nothing.
        met(round(value - least, 5) >= 0),
    ]


def _sharing_in_words(rows: list[Row]) -> str:
    ends = " and ".join(
        f"{_find(rows, data, 'shallow', PAPER)['test']['mean']:.3f} on {DATA_TITLES[data]}"
        for data in DATA_TITLES
    )
    return (
        "Adding the weights of modules that share hidden units is the paper's method. The paper "
        "says that in its complete merge the shallow MLP stays above 0.90 on both data sets and "
        f"the deep one falls well below. Our shallow MLP ends at {ends} with the settings that the "
        "paper prints (preset `paper`), and on MNIST at "
        f"{_find(rows, 'mnist', 'shallow', RELEASED)['test']['mean']:.3f} with those of the "
        "authors' code (preset `released`, which prunes layer by layer, among other differences). "
        "The inlay joins the same modules and gives exactly the sum of their logits, so the "
        "difference between the two rows is the cost of sharing units. An inlay has fewer nonzero "
        "weights than the joint network but more hidden units (counted for the first seed), so "
        "where it is more accurate than that network, it is also wider."
    )


def calibrated(result: Result) -> str:
    rows = result["rows"]
    gains = [row["with"]["mean"] - row["without"]["mean"] for row in rows]
    lines = [
        [
            DATA_TITLES[row["data"]],
            MODELS[row["model"]],
            WAYS[row["kind"], row["operator"]],
            row["n"],
            mean_sd(row["without"]),
            mean_sd(row["with"]),
            f"{gain:+.4f}",
        ]
        for row, gain in zip(rows, gains, strict=True)
    ]
    return (
        f"Calibration fits one scale and one offset per module on {result['samples']} validation "
        f"samples. It raises the mean test accuracy in {sum(gain > 0 for gain in gains)} of "
        f"{len(gains)} cases, by up to {max(gains):.4f}, and lowers it by up to "
        f"{max(0.0, -min(gains)):.4f} in the others. Well-trained modules do not need it, so it is "
        "off by default; a calibrated composition reports its accuracy with and without "
        "calibration on samples that were not used for the fit.\n\n"
        + table("data|model|way|n|accuracy without|accuracy with|gain", lines)
        + f"\n\n{result['date']}, {result['machine']}:\n\n    {command(result)}"
    )


def _choices(rows: list[Row]) -> str:
    tried = list(dict.fromkeys(row["dropout"] for row in rows))
    kinds = list(dict.fromkeys((row["data"], row["model"], row["kind"]) for row in rows))
    lines = []
    for data, model, kind in kinds:
        own = {
            r["dropout"]: r
            for r in rows
            if (r["data"], r["model"], r["kind"]) == (data, model, kind)
        }
        best = max(own, key=lambda dropout: own[dropout]["validation"]["mean"])
        cells = [
            f"**{mean_sd(own[d]['validation'])}**" if d == best else mean_sd(own[d]["validation"])
            for d in tried
        ]
        lines.append([DATA_TITLES[data], model, kind, own[best]["n"], *cells])
    return table("data|model|kind|n|" + "|".join(f"dropout {d}" for d in tried), lines)


def _pairs(rows: list[Row]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row["data"], row["model"]) for row in rows))


def _find(rows: list[Row], data: str, model: str, way: tuple[str, str]) -> Row:
    return next(
        row
        for row in rows
        if (row["data"], row["model"]) == (data, model) and (row["kind"], row["operator"]) == way
    )


def tests_of(rows: list[Row], data: str, model: str, way: tuple[str, str]) -> list[float]:
    """Test accuracies by seed."""
    return [float(v) for v in _find(rows, data, model, way)["test"]["values"].split()]


def _units(row: Row, model: str) -> str:
    """Of an inlay its live units, layer by layer, for the first seed."""
    result = re.findall(r"layers\.\d+=(\d+)", row.get("architecture", ""))
    return " + ".join(result) if result else "as in the original"


def _apart(row: Row, joint: float) -> str:
    return "" if row["kind"] == "joint" else f"{row['test']['mean'] - joint:+.4f}"


STEPS = {"rewarded_accuracy": (1, 2, 4, 6, 8, 10), "nonrewarded_entropy": (1, 2, 4, 6, 8, 9)}
OWN_MODULES = {"territory sum": "territory", "inlay": "sparse"}  # all others join `paper`'s


def curve(load: Load) -> str:
    result = load("curve")
    seeds, orders = len(result["seeds"]), result["orders"]
    parts = [part for name, curves in result["data"].items() for part in _curves(name, curves)]
    return page(
        "From one module to ten",
        [result],
        "How does accuracy change as modules are joined one after another? "
        f"{_curve_in_short(result)} Modules of one class each, `mlp` with 512 hidden units, are "
        "joined without any training in between. Rewarded accuracy is over the test samples of "
        "the classes joined so far, where any of the ten classes may be answered; non-rewarded "
        "entropy is over the samples of all other classes, whose answers should be as uncertain "
        "as possible. There are three banks: `paper` (99% pruned, the paper's settings), `sparse` "
        "(95% pruned) and `territory` (each module has its own tenth of the hidden units). Sum, "
        "aligned sum, TIES and logits join the same modules of `paper`; inlay and territory sum "
        "have modules trained for them. Sum, aligned sum, TIES and territory sum give a network "
        "of the original shape, the inlay a wider, sparse one; logits keep all networks.",
        f"Mean ± standard deviation over {seeds} seeds times {orders} random orders of the "
        "classes, which are the same for all ways. If several orders reach the same set of "
        f"classes, it is counted once: n is {seeds} at ten modules, and at most {seeds * orders} "
        "before. The shaded bands are one standard deviation, cut off at 1.",
        "![Rewarded accuracy by number of modules joined](curve.svg)",
        *parts,
    )


def _curve_in_short(result: Result) -> str:
    """The best and the worst way at ten modules, data set by data set."""
    words = []
    for name, own in result["data"].items():
        ends = {way: m["rewarded_accuracy"]["10"]["mean"] for way, m in own["curves"].items()}
        best, worst = max(ends, key=ends.__getitem__), min(ends, key=ends.__getitem__)
        words.append(
            f"{DATA_TITLES[name]} from {ends[best]:.3f} ({best}) to {ends[worst]:.3f} ({worst})"
        )
    return f"With ten modules, mean accuracy ranges on {' and on '.join(words)}."


def curve_figure(result: Result) -> Figure:
    """The rewarded accuracy of all ways, one panel for each data set."""
    panels = {
        DATA_TITLES[name]: {
            way: {float(k): _span(v) for k, v in measures["rewarded_accuracy"].items()}
            for way, measures in data["curves"].items()
        }
        for name, data in result["data"].items()
    }
    return curve_panels(
        panels,
        title="Rewarded accuracy as modules are joined",
        x="modules joined",
        y="rewarded accuracy",
        share_y=True,
    )


def _span(value: Result) -> tuple[float, float, float]:
    """A standard deviation to either side, though no accuracy is above 1."""
    mean, sd = value["mean"], value["sd"]
    return mean, mean - sd, min(1.0, mean + sd)


def _curves(name: str, result: Result) -> list[str]:
    parts = [f"## {DATA_TITLES[name]}"]
    for measure, steps in STEPS.items():
        rows = [
            [
                way,
                f"`{OWN_MODULES.get(way, 'paper')}`",
                *(mean_sd(measures[measure][str(k)]) for k in steps),
            ]
            for way, measures in result["curves"].items()
        ]
        head = f"{measure.replace('nonr', 'non-r').replace('_', ' ')}, by modules joined|bank"
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
        else f"Alignment lowers the sum's accuracy ({change:+.4f}): it matches units that resemble "
        "each other, which suits averaging networks that do the same task; these modules are "
        "added, and share an origin, so their units already correspond."
    )
    return (
        f"Ten modules joined, best first: {ranked}. A joint network of the same shape, trained on "
        f"all ten classes at once, reaches {mean_sd(joint)} (n = {joint['n']}). {alignment}"
    )


def _ties_in_words(ties: Result) -> str:
    rows = ties["choice"]
    best = max(rows, key=lambda row: row["validation"])
    least = min(rows, key=lambda row: row["validation"])
    densities = ", ".join(str(d) for d in dict.fromkeys(row["density"] for row in rows))
    scales = ", ".join(str(s) for s in dict.fromkeys(row["scale"] for row in rows))
    nothing = (
        " At a density of 1 nothing is trimmed: pruning has already done that."
        if best["density"] == 1
        else ""
    )
    return (
        f"TIES is `{ties['operator']}` on modules of preset `paper`. Its density is a fraction of "
        f"all entries, including the pruned ones. Density was chosen from {densities} and scale "
        f"from {scales}, on validation samples, for the complete merge of {ties['n']} of the "
        f"seeds: validation accuracy {best['validation']:.4f}, against {least['validation']:.4f} "
        f"for the worst (`density={least['density']}, scale={least['scale']}`).{nothing}"
    )


BEST = "interference"  # the measure that was designed, and so the one that is judged


def compatibility(load: Load) -> str:
    result, target = load("compatibility"), load("targets")["compatibility"]
    again = load("compatibility_again")
    held, design, fresh = result["held"], result["design"], again["held"]
    return page(
        "What will fit",
        [result, again],
        "Before two modules are joined by adding their weights, can the loss of accuracy be "
        f"predicted? {_compatibility_in_short(held, fresh, target)} Every pair of modules of "
        "every seed of a bank is joined. The loss is the accuracy of the logit sum minus that of "
        "the weight sum, on the test samples of both classes. A measure is judged by its rank "
        "correlation with the loss (Spearman). `interference` is the prediction that "
        f"`compatibility` makes from {result['samples']} or {again['samples']} validation samples "
        "without their labels; the next four are its other measures, and the last three are "
        "simpler comparisons of logit sum and weight sum on the same samples. `ceiling` is what "
        "the true loss would reach, since a loss over some 2000 samples is itself uncertain.",
        "## First test: held-out pairs",
        "None of these modules was used to design the measure, and the banks were named before "
        "they were measured. Data sets and classes are those of the design. The measure was "
        f"computed from {result['samples']} samples, about a fifth of which belong to a pair's "
        "classes.",
        _rank_table(held, target),
        _compatibility_verdict(held, target),
        "## Second test: more samples, new pairs",
        f"So few samples say little about a loss of 1%. Averaged over the design banks, `{BEST}` "
        f"reaches {_bank_mean(design)} with {result['samples']} samples and "
        f"{_bank_mean(again['design'])} with {again['samples']}, which `compatibility` has used "
        "since. As the pairs above had been seen by then, new ones were trained to judge the "
        "change, with unused seeds, and named before they were measured. All of them are deep: "
        "for shallow modules, whose pairs lose little, only the first table is known.",
        _rank_table(fresh, target),
        _compatibility_verdict(fresh, target),
        _training(fresh["banks"]),
        "## Design pairs",
        "`interference` and its steepness were chosen on these pairs.",
        _rank_table(design, None),
        _training(design["banks"]),
    )


def _compatibility_in_short(held: Result, fresh: Result, target: float) -> str:
    """The rank correlation over all pairs of both tests, and the target."""
    first, second = (own["pooled"]["spearman_with_lost"][BEST] for own in (held, fresh))
    return (
        f"The rank correlation of `{BEST}` with the loss is {first:.2f} over all held-out pairs "
        f"and {second:.2f} over new pairs with more samples; the target is {target}."
    )


def _bank_mean(result: Result) -> str:
    return f"{result['pooled']['mean_over_banks'][BEST]:.2f}"


def _rank_table(result: Result, target: float | None) -> str:
    names = list(result["pooled"]["spearman_with_lost"])
    head = "bank|pairs|mean loss|largest loss|ceiling|" + "|".join(f"`{name}`" for name in names)
    rows = [
        [
            f"`{bank['bank']}`",
            *_losses(bank),
            *(_coefficient(bank["spearman_with_lost"][name]) for name in names),
            *_reaches(bank, target),
        ]
        for bank in result["banks"]
    ]
    pooled = result["pooled"]
    rows.append(
        [
            "all pairs",
            *_losses(pooled),
            *(_coefficient(pooled["spearman_with_lost"][name]) for name in names),
            *_reaches(pooled, target),
        ]
    )
    blank = [""] * 4
    means = [_coefficient(pooled["mean_over_banks"][name]) for name in names]
    rows.append(["mean over banks", *blank, *means, *([] if target is None else [""])])
    return table(head if target is None else f"{head}|`interference` reaches {target}", rows)


def _losses(result: Result) -> list[object]:
    lost = result["lost"]
    return [result["n"], f"{lost['mean']:.4f}", f"{lost['most']:.4f}", f"{result['ceiling']:.2f}"]


def _reaches(result: Result, target: float | None) -> list[str]:
    if target is None:
        return []
    return ["yes" if result["spearman_with_lost"][BEST] >= target else "no"]


def _coefficient(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _compatibility_verdict(held: Result, target: float) -> str:
    banks, pooled = held["banks"], held["pooled"]
    good = [bank for bank in banks if bank["spearman_with_lost"][BEST] >= target]
    bad = [bank for bank in banks if bank not in good]
    nothing = [bank for bank in bad if bank["ceiling"] < target]
    short = [bank for bank in bad if bank not in nothing]
    means, over_all = pooled["mean_over_banks"], pooled["spearman_with_lost"][BEST]
    parts = [
        f"Over all {pooled['n']} pairs `{BEST}` reaches {over_all:.2f}: the target of {target} is "
        f"{met(over_all >= target)}. Within a bank it reaches {means[BEST]:.2f} on average, and "
        f"the target in {len(good)} of {len(banks)}: {_bank_names(good)}.",
        f"Banks whose loss is too uncertain to be ranked so well: {_bank_names(nothing)}. Banks "
        f"where the measure itself falls short: {_bank_names(short)}.",
        _by_depth(banks),
        f"The best measure on average is `{max(means, key=lambda name: means[name])}`.",
    ]
    if left := pooled["without_interference"]:
        parts.append(
            f"Pairs without `{BEST}`, left out of its column: {left}; pruning left two modules "
            "that answer every sample alike."
        )
    return " ".join(parts)


def _bank_names(banks: list[Result]) -> str:
    words = [f"`{bank['bank']}` ({bank['spearman_with_lost'][BEST]:.2f})" for bank in banks]
    return ", ".join(words) or "none"


def _by_depth(banks: list[Result]) -> str:
    """What pairs of deep and of shallow modules lose, and what the measure reaches there."""
    deep = [bank for bank in banks if "-deep-" in bank["bank"]]
    words = [
        f"{name} modules lose {statistics.mean(b['lost']['mean'] for b in part):.4f} on average, "
        f"where it reaches {statistics.mean(b['spearman_with_lost'][BEST] for b in part):.2f}"
        for name, part in (("deep", deep), ("shallow", [b for b in banks if b not in deep]))
        if part
    ]
    return f"Pairs of {'; pairs of '.join(words)}."


def _training(banks: list[Result]) -> str:
    words = [
        f"`{bank['bank']}`: {DATA_TITLES[bank['data']]}, `{bank['model']}`, "
        f"{_trained_settings(bank['trained'])}, {'seed' if len(bank['seeds']) == 1 else 'seeds'} "
        f"{', '.join(map(str, bank['seeds']))}"
        for bank in banks
    ]
    return (
        "These banks were trained for this purpose, with few epochs and otherwise by preset "
        f"`paper`: {'; '.join(words)}."
    )


def _trained_settings(trained: dict[str, Any]) -> str:
    pruned = f"{trained['sparsity']:.0%} pruned" if trained["sparsity"] else "not pruned"
    rounds, epochs = trained["rounds"] + 1, trained["epochs"]
    return f"{pruned}, {_count(rounds, 'round')} of {_count(epochs, 'epoch')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


ALIGNMENT_INTRO = """Does alignment find a known permutation of hidden units? All hidden units of \
a network with random weights and random BatchNorm statistics are permuted, noise is added (as a \
fraction of each tensor's spread), and the result is aligned to the original. A permutation \
counts as recovered only if every unit of every hidden axis is; the next column counts single \
axes."""


def vit_barrier(load: Load) -> str:
    result = load("vit_barrier")
    ways = list(dict.fromkeys(row["aligned"] for row in result["rows"]))
    pairs = len({tuple(row["seeds"]) for row in result["rows"]})
    lines, refused, measured = [], [], []
    for way in ways:
        rows = [row for row in result["rows"] if row["aligned"] == way]
        if why := next((row["refused"] for row in rows if "refused" in row), None):
            refused.append(f"Alignment by {way} is refused: {why}.")
            continue
        measured.append(way)
        ends = [(row["accuracy"][0] + row["accuracy"][-1]) / 2 for row in rows]
        moved = [row["moved"] for row in rows if "moved" in row]
        lines.append(
            [
                way,
                mean_sd_of([row["barrier"] for row in rows], 3),
                mean_sd_of([row["middle"] for row in rows], 3),
                mean_sd_of([max(row["loss"]) for row in rows], 3),
                mean_sd_of(ends, 3),
                f"{statistics.mean(moved):.2f}" if moved else "",
            ]
        )
    off = max((row.get("function_off", 0.0) for row in result["rows"]), default=0.0)
    lower = [_lower_barrier(result["rows"], way) for way in measured if way != "none"]
    return page(
        "Two vision transformers, aligned",
        [result],
        "Does alignment remove the loss barrier between two independently trained vision "
        f"transformers? Two networks `{result['model']}` that differ only in their seed are "
        f"trained on all classes of {data_title(result['data'])} for {result['epochs']} epochs. "
        "The second is aligned to the first, and cross-entropy and accuracy on the test samples "
        "are measured on the straight line between them. The barrier is the largest excess of the "
        "loss over the linear interpolation between its two ends. Activations are from "
        f"{result['samples']} validation samples. Mean ± standard deviation over {pairs} pairs of "
        "seeds.",
        " ".join([*lower, *refused]),
        table(
            "aligned by|barrier|accuracy halfway|highest loss|accuracy at the ends|units moved",
            lines,
        ),
        "*Units moved* is the fraction of hidden units that change place in alignment. The aligned "
        f"network computes the same function: its logits differ by at most {off:.1e}.",
        "Alignment permutes the entries of the residual stream, attention heads as a whole, and "
        "the hidden units of MLPs; entries within a head keep their places. Planted permutations "
        "of such a network are recovered, by weights and by activations. These numbers do not say "
        "whether another permutation would remove the barrier that remains here.",
    )


def _lower_barrier(rows: list[Row], way: str) -> str:
    """By how much a way of aligning lowers the barrier, pair by pair."""
    by = {(tuple(row["seeds"]), row["aligned"]): row["barrier"] for row in rows if "barrier" in row}
    pairs = {seeds for seeds, _ in by}
    changes = [by[seeds, way] - by[seeds, "none"] for seeds in sorted(pairs)]
    fewer = sum(change < 0 for change in changes)
    return (
        f"Alignment by {way} changes the barrier by {mean_sd_of(changes, 3)}; it is lower in "
        f"{fewer} of {len(changes)} pairs."
    )


def alignment(load: Load) -> str:
    result, target = load("alignment"), load("targets")["alignment"]
    rows = result["rows"]
    clean = [row for row in rows if row["noise"] == 0]
    good = all(row["recovered"] >= target["recovered"] for row in clean)
    worse = [row for row in rows if row["noise"] and row["recovered"] < row["planted"]]
    where = "; ".join(
        f"`{r['model']}` by {r['how']} at noise {r['noise']}: {r['recovered']} of {r['planted']} "
        f"({r['axes_recovered']} of {r['planted'] * r['axes']} axes)"
        for r in worse
    )
    lines = [
        [
            f"`{row['model']}`",
            "x".join(map(str, row["shape"])),
            row["how"],
            row["noise"],
            f"{row['recovered']} of {row['planted']}",
            f"{row['axes_recovered']} of {row['planted'] * row['axes']}",
            f"{row['seconds']:.3f}",
        ]
        for row in rows
    ]
    return page(
        "Alignment",
        [result],
        ALIGNMENT_INTRO,
        f"Without noise, the target of {target['recovered']} of {target['planted']} for every "
        f"model, by weights and by activations of {result['samples']} samples, is {met(good)}. "
        + (f"With noise, some are not: {where}." if worse else "With noise, all are recovered."),
        table(
            "model|inputs|aligned by|noise|permutations recovered|axes recovered|seconds each",
            lines,
        ),
        "Recovering planted permutations shows that the matching works, not that networks trained "
        "apart have the same units: whether alignment helps a merge has to be measured on [the "
        "merge itself](../guide/composing.md#alignment).",
    )
