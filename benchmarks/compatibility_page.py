"""The page on what will fit: can the accuracy that a pair loses be foretold?"""

import statistics
from collections.abc import Callable
from typing import Any

from pages import Result, page, table

TITLES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
BEST = "interference"  # the measure that was designed, and so the one that is judged


def compatibility(load: Callable[[str], Result]) -> str:
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
        _ranks(held, target),
        _verdict(held, target),
        "## Then: more samples, other pairs",
        "So few samples tell little of a loss of 1%. Averaged over the banks of the design "
        f"`{BEST}` reaches {_mean(design)} with {result['samples']} samples and "
        f"{_mean(again['design'])} with {again['samples']}, which `compatibility` looks at "
        "since. The pairs above had been seen by then. These were trained to judge the change, "
        "with seeds that were not used before, and named before they were measured. All of them "
        "are deep: of shallow modules, whose pairs lose little, the first table is what is known.",
        _ranks(fresh, target),
        _verdict(fresh, target),
        _training(fresh["banks"]),
        "## Pairs of the design",
        "`interference`, and the steepness in it, were chosen on these.",
        _ranks(design, None),
        _training(design["banks"]),
    )


def _mean(result: Result) -> str:
    return f"{result['pooled']['mean_over_banks'][BEST]:.2f}"


def _ranks(result: Result, target: float | None) -> str:
    names = list(result["pooled"]["spearman_with_lost"])
    head = "bank|n|mean loss|largest|ceiling|" + "|".join(f"`{name}`" for name in names)
    rows = [
        [
            f"`{bank['bank']}`",
            *_losses(bank),
            *(_coefficient(bank["spearman_with_lost"][name]) for name in names),
            *_met(bank, target),
        ]
        for bank in result["banks"]
    ]
    pooled = result["pooled"]
    rows.append(
        [
            "all pairs",
            *_losses(pooled),
            *(_coefficient(pooled["spearman_with_lost"][name]) for name in names),
            *_met(pooled, target),
        ]
    )
    blank = [""] * 4
    means = [_coefficient(pooled["mean_over_banks"][name]) for name in names]
    rows.append(["mean of the banks", *blank, *means, *([] if target is None else [""])])
    return table(head if target is None else f"{head}|{target} by `interference`", rows)


def _losses(result: Result) -> list[object]:
    lost = result["lost"]
    return [result["n"], f"{lost['mean']:.4f}", f"{lost['most']:.4f}", f"{result['ceiling']:.2f}"]


def _met(result: Result, target: float | None) -> list[str]:
    if target is None:
        return []
    return ["yes" if result["spearman_with_lost"][BEST] >= target else "no"]


def _coefficient(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _verdict(held: Result, target: float) -> str:
    banks, pooled = held["banks"], held["pooled"]
    good = [bank for bank in banks if bank["spearman_with_lost"][BEST] >= target]
    bad = [bank for bank in banks if bank not in good]
    nothing = [bank for bank in bad if bank["ceiling"] < target]
    short = [bank for bank in bad if bank not in nothing]
    means, over_all = pooled["mean_over_banks"], pooled["spearman_with_lost"][BEST]
    met = "met" if over_all >= target else "missed"
    parts = [
        f"Over all {pooled['n']} pairs `{BEST}` reaches {over_all:.2f}: the target of {target} is "
        f"{met}. Within a bank it reaches {means[BEST]:.2f} on average, and the target in "
        f"{len(good)} of {len(banks)}: {_named(good)}.",
        f"The loss itself is too uncertain to be ranked so well in {_named(nothing)}.",
        f"In {_named(short)} it is not, and the measure falls short.",
        _by_depth(banks),
        f"The best measure on average is `{max(means, key=lambda name: means[name])}`.",
    ]
    if left := pooled["without_interference"]:
        parts.append(
            f"{left} of the pairs has no `{BEST}` and is left out of its column: pruning left two "
            "modules that answer every sample alike."
        )
    return " ".join(parts)


def _named(banks: list[Result]) -> str:
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
        f"`{bank['bank']}`: {TITLES[bank['data']]}, `{bank['model']}`, "
        f"{_settings(bank['trained'])}, {'seed' if len(bank['seeds']) == 1 else 'seeds'} "
        f"{', '.join(map(str, bank['seeds']))}"
        for bank in banks
    ]
    return (
        "They were trained for this, with few epochs and otherwise as the preset `paper` says: "
        f"{'; '.join(words)}."
    )


def _settings(trained: dict[str, Any]) -> str:
    pruned = f"{trained['sparsity']:.0%} pruned" if trained["sparsity"] else "not pruned"
    rounds, epochs = trained["rounds"] + 1, trained["epochs"]
    return f"{pruned}, {_count(rounds, 'round')} of {_count(epochs, 'epoch')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
