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
MERGE_INTRO = """Ten modules, one per class, each trained without the others and joined without \
training; beside them one network of the same shape, trained on all ten classes, with a dropout \
chosen for it in the same way. Numbers are accuracy on the test samples, mean ± standard deviation \
over n seeds, and how far the mean is above or below that network. Nonzero counts the parameters \
that survive in the whole that is joined, biases included, as a mean over seeds. The \
settings of every kind are in benchmarks/experiments/banks.py: \
territories, 95% modules and the joint network learn with a cosine schedule and keep the epoch \
with the best validation loss, the 99% modules keep to the preset named."""
CHOICE = """The dropout of each kind is the best of four on validation samples, for modules joined \
by logits (which for territories equals adding weights), with seeds that no number above uses. \
LeNet keeps the model's own."""


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
        f"{sum(row[-1] == met(True) for row in verdicts)} of {len(verdicts)} are met.",
        table("data|model|way|target|measured|least of the seeds|verdict", verdicts),
        *_merge_tables(rows),
        "## What the rows say",
        _sharing_in_words(rows),
        "## Calibrated",
        calibrated(load("calibration")),
        "## How the dropout was chosen",
        f"{CHOICE} The command:\n\n    {command(choice)}",
        _choices(choice["rows"]),
    )


def merge_in_short(load: Load) -> str:
    """The README's lines."""
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
        "Ten modules, one per class, trained apart and joined without training. Test accuracy, "
        f"mean ± standard deviation over {n} seeds; all numbers, nonzero counts and commands are "
        "in [joining ten modules](docs/results/merge.md)."
    )
    other = _find(load("merge_released")["rows"], "mnist", "shallow", RELEASED)
    note = (
        "Adding weights as in the last column is the paper's way. With the settings of its "
        f"authors' code in place of the printed ones it reaches {mean_sd(other['test'])} "
        f"(n = {other['n']}) for the shallow MLP on MNIST."
    )
    head = (
        "data|network|trained as one|territories, weights added|95% modules, inlay"
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
        yield table("way|hidden units|n|nonzero|test|to joint", lines)


def _merge_verdicts(rows: list[Row], targets: Result) -> Iterator[list[str]]:
    """What was aimed at, what came out, and whether that will do."""
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
        "Adding the weights of modules that share hidden units is the paper's way. It says of its "
        "complete merge that the shallow MLP stays above 0.90 on both data sets, and that the deep "
        f"one falls well below; our shallow one ends at {ends} with what the paper prints (preset "
        "`paper`), and on MNIST at "
        f"{_find(rows, 'mnist', 'shallow', RELEASED)['test']['mean']:.3f} with what the authors' "
        "code does (preset `released`: layer by layer pruning, among other things). The inlay "
        "takes the very same modules and gives exactly the sum of their logits, so the difference "
        "between the two rows is what the shared units cost. An inlay has fewer nonzero weights "
        "than the joint network but more hidden units (counted for the first seed), so where it "
        "comes out above that network, it does so as a wider one."
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
        f"One scale and one offset per module, fitted on {result['samples']} validation samples. "
        f"It raises the mean test accuracy in {sum(gain > 0 for gain in gains)} of {len(gains)} "
        f"cases, by up to {max(gains):.4f}, and lowers it by up to {max(0.0, -min(gains)):.4f} "
        "elsewhere. Modules that have learned well need none, so it is off unless asked for; a "
        "composition that was calibrated reports its accuracy with and without on samples that "
        "the fit did not see.\n\n"
        + table("data|model|way|n|without|with|gain", lines)
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
        DATA_TITLES[name]: {
            way: {float(k): _span(v) for k, v in measures["rewarded_accuracy"].items()}
            for way, measures in data["curves"].items()
        }
        for name, data in result["data"].items()
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
        f"ten classes at once, reaches {mean_sd(joint)} (n = {joint['n']}). {alignment}"
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
        f"TIES is `{ties['operator']}`, preset `paper`. Its density is a fraction of all entries, "
        f"the pruned ones included. It was chosen among {densities}, and the scale among "
        f"{scales}, on validation samples for the complete merge of {ties['n']} of the seeds: "
        f"{best['validation']:.4f} there, against {least['validation']:.4f} for the least "
        f"(`density={least['density']}, scale={least['scale']}`).{nothing}"
    )


BEST = "interference"  # the measure that was designed, and so the one that is judged


def compatibility(load: Load) -> str:
    result, target = load("compatibility"), load("targets")["compatibility"]
    again = load("compatibility_again")
    held, design, fresh = result["held"], result["design"], again["held"]
    return page(
        "What will fit",
        [result, again],
        "Before two modules are joined by a sum of weights, can it be told how much accuracy that "
        "will cost? Every pair of every seed of a bank is joined. The loss is the accuracy of the "
        "logit sum less that of the weight sum, on the test samples of both classes. A measure is "
        "as good as its rank correlation with the loss (Spearman). `interference` is what "
        "`compatibility` foretells, from "
        f"{result['samples']} or {again['samples']} validation samples without their labels; the "
        "next four are its other "
        "measures, and the last three are simpler ways to compare logit sum and weight sum on the "
        "same samples. `ceiling` is what the true loss would reach, given that a loss over some "
        "2000 samples is itself uncertain.",
        "## First: pairs that judge",
        "None of these modules was used to design the measure, and the banks were named before "
        "they were measured. Data sets and classes are the same as there. The measure was read "
        f"from {result['samples']} samples, of which about a fifth are of a pair's classes.",
        _rank_table(held, target),
        _compatibility_verdict(held, target),
        "## Then: more samples, other pairs",
        "So few samples tell little of a loss of 1%. Averaged over the banks of the design "
        f"`{BEST}` reaches {_bank_mean(design)} with {result['samples']} samples and "
        f"{_bank_mean(again['design'])} with {again['samples']}, which `compatibility` looks at "
        "since. The pairs above had been seen by then. These were trained to judge the change, "
        "with seeds that were not used before, and named before they were measured. All of them "
        "are deep: of shallow modules, whose pairs lose little, the first table is what is known.",
        _rank_table(fresh, target),
        _compatibility_verdict(fresh, target),
        _training(fresh["banks"]),
        "## Pairs of the design",
        "`interference`, and the steepness in it, were chosen on these.",
        _rank_table(design, None),
        _training(design["banks"]),
    )


def _bank_mean(result: Result) -> str:
    return f"{result['pooled']['mean_over_banks'][BEST]:.2f}"


def _rank_table(result: Result, target: float | None) -> str:
    names = list(result["pooled"]["spearman_with_lost"])
    head = "bank|n|mean loss|largest|ceiling|" + "|".join(f"`{name}`" for name in names)
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
    rows.append(["mean of the banks", *blank, *means, *([] if target is None else [""])])
    return table(head if target is None else f"{head}|{target} by `interference`", rows)


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
        f"The loss itself is too uncertain to be ranked so well in {_bank_names(nothing)}.",
        f"In {_bank_names(short)} it is not, and the measure falls short.",
        _by_depth(banks),
        f"The best measure on average is `{max(means, key=lambda name: means[name])}`.",
    ]
    if left := pooled["without_interference"]:
        parts.append(
            f"{left} of the pairs has no `{BEST}` and is left out of its column: pruning left two "
            "modules that answer every sample alike."
        )
    return " ".join(parts)


def _bank_names(banks: list[Result]) -> str:
    words = [f"`{bank['bank']}` ({bank['spearman_with_lost'][BEST]:.2f})" for bank in banks]
    return ", ".join(words) or "none of them"


def _by_depth(banks: list[Result]) -> str:
    """What pairs of deep and of shallow modules lose, and what the measure reaches there."""
    deep = [bank for bank in banks if "-deep-" in bank["bank"]]
    words = [
        f"{name} modules lose {statistics.mean(b['lost']['mean'] for b in part):.4f} on average, "
        f"and it reaches {statistics.mean(b['spearman_with_lost'][BEST] for b in part):.2f}"
        for name, part in (("deep", deep), ("shallow", [b for b in banks if b not in deep]))
        if part
    ]
    return f"Pairs of {'; of '.join(words)}."


def _training(banks: list[Result]) -> str:
    words = [
        f"`{bank['bank']}`: {DATA_TITLES[bank['data']]}, `{bank['model']}`, "
        f"{_trained_settings(bank['trained'])}, {'seed' if len(bank['seeds']) == 1 else 'seeds'} "
        f"{', '.join(map(str, bank['seeds']))}"
        for bank in banks
    ]
    return (
        "They were trained for this, with few epochs and otherwise as the preset `paper` says: "
        f"{'; '.join(words)}."
    )


def _trained_settings(trained: dict[str, Any]) -> str:
    pruned = f"{trained['sparsity']:.0%} pruned" if trained["sparsity"] else "not pruned"
    rounds, epochs = trained["rounds"] + 1, trained["epochs"]
    return f"{pruned}, {_count(rounds, 'round')} of {_count(epochs, 'epoch')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


ALIGNMENT_INTRO = """All hidden units of a network with random weights and random BatchNorm \
statistics are permuted, noise is added (as a fraction of each tensor's spread), and the result is \
aligned to the original. A permutation counts as recovered only if every unit of every hidden axis \
is. Axes are counted one by one in the column after it."""


def vit_barrier(load: Load) -> str:
    result = load("vit_barrier")
    ways = list(dict.fromkeys(row["aligned"] for row in result["rows"]))
    pairs = len({tuple(row["seeds"]) for row in result["rows"]})
    lines, refused, measured = [], [], []
    for way in ways:
        rows = [row for row in result["rows"] if row["aligned"] == way]
        if why := next((row["refused"] for row in rows if "refused" in row), None):
            refused.append(f"By {way} it is refused: {why}.")
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
        f"Two `{result['model']}` that differ in their seed alone are trained on all classes of "
        f"{data_title(result['data'])} for {result['epochs']} epochs, the "
        "second is aligned to the first, and cross-entropy and accuracy of the test samples are "
        "measured on the straight line between them. The barrier is the highest loss on it above "
        f"the line between the losses of its ends. Activations are those of {result['samples']} "
        f"validation samples. Mean and standard deviation over {pairs} pairs of seeds.",
        table("aligned by|barrier|accuracy halfway|highest loss|accuracy of the ends|moved", lines),
        "Moved is the fraction of hidden units that have another place after alignment. The moved "
        f"network is the same function: its logits are off by at most {off:.1e}.",
        " ".join([*lower, *refused]),
        "Moved are the entries of the residual stream, the heads of attention as wholes, and the "
        "hidden units of MLPs; entries inside of a head keep their places. Planted permutations "
        "of such a network are found again, by weights and by activations. Whether some other "
        "permutation would take away a barrier that stays here, these numbers do not say.",
    )


def _lower_barrier(rows: list[Row], way: str) -> str:
    """By how much a way of aligning lowers the barrier, pair by pair."""
    by = {(tuple(row["seeds"]), row["aligned"]): row["barrier"] for row in rows if "barrier" in row}
    pairs = {seeds for seeds, _ in by}
    changes = [by[seeds, way] - by[seeds, "none"] for seeds in sorted(pairs)]
    fewer = sum(change < 0 for change in changes)
    return (
        f"By {way} the barrier changes by {mean_sd_of(changes, 3)}; it is lower in {fewer} of "
        f"{len(changes)} pairs."
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
        table("model|inputs|by|noise|recovered|axes|s each", lines),
        f"Without noise the target of {target['recovered']} of {target['planted']} for every "
        f"model, by weights and by activations of {result['samples']} samples, is "
        f"{met(good)}. "
        + (f"With noise some are not recovered: {where}." if worse else "Noise loses none."),
        "Planted permutations say that the matching works, not that networks trained apart have "
        "the same units: whether alignment helps a merge is a question for [the merge itself]"
        "(../guide/composing.md#alignment).",
    )
