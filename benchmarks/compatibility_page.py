"""The page on what will fit: can the accuracy that a pair loses be foretold?"""

import statistics
from collections.abc import Callable
from typing import Any

from pages import Result, page, table

TITLES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
BEST = "interference"  # the measure that was designed, and so the one that is judged


def compatibility(load: Callable[[str], Result]) -> str:
    result, target = load("compatibility"), load("targets")["compatibility"]
    held, design = result["held"], result["design"]
    return page(
        "What will fit",
        [result],
        "Before two modules are joined by a sum of weights, can it be told how much accuracy that "
        "will cost? Every pair of every seed of a bank is joined. The loss is the accuracy of the "
        "logit sum less that of the weight sum, on the test samples of both classes. A measure is "
        "as good as its rank correlation with the loss (Spearman). `interference` is what "
        "`compatibility` foretells, from "
        f"{result['samples']} validation samples without their labels; the next four are its other "
        "measures, and the last three are simpler ways to compare logit sum and weight sum on the "
        "same samples. `ceiling` is what the true loss would reach, given that a loss over some "
        "2000 samples is itself uncertain.",
        "## Pairs that judge",
        "None of these modules was looked at while the measure was designed, and the banks were "
        "named before they were measured. Data sets and classes are the same.",
        _ranks(held, target),
        _verdict(held, target),
        "## Pairs of the design",
        "`interference`, and the steepness in it, were chosen on these.",
        _ranks(design, None),
        _training(design["banks"]),
    )


def _ranks(found: Result, target: float | None) -> str:
    names = list(found["pooled"]["spearman_with_lost"])
    head = "bank|n|mean loss|largest|ceiling|" + "|".join(f"`{name}`" for name in names)
    rows = [
        [
            f"`{bank['bank']}`",
            *_losses(bank),
            *(_coefficient(bank["spearman_with_lost"][name]) for name in names),
            *_met(bank, target),
        ]
        for bank in found["banks"]
    ]
    pooled = found["pooled"]
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


def _losses(found: Result) -> list[object]:
    lost = found["lost"]
    return [found["n"], f"{lost['mean']:.4f}", f"{lost['most']:.4f}", f"{found['ceiling']:.2f}"]


def _met(found: Result, target: float | None) -> list[str]:
    if target is None:
        return []
    return ["yes" if found["spearman_with_lost"][BEST] >= target else "no"]


def _coefficient(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _verdict(held: Result, target: float) -> str:
    banks, pooled = held["banks"], held["pooled"]
    reached = {bank["bank"]: bank["spearman_with_lost"][BEST] for bank in banks}
    good = [name for name, value in reached.items() if value >= target]
    short = [f"`{name}` ({value:.2f})" for name, value in reached.items() if value < target]
    rivals = pooled["mean_over_banks"]
    first = max(rivals, key=lambda name: rivals[name])
    over_all = pooled["spearman_with_lost"][BEST]
    deep = [bank for bank in banks if "-deep-" in bank["bank"]]
    shallow = [bank for bank in banks if bank not in deep]
    kinds = " and ".join(
        f"{statistics.mean(b['lost']['mean'] for b in part):.4f} for the {name} ones"
        for name, part in (("deep", deep), ("shallow", shallow))
        if part
    )
    return (
        f"The target of {target} on pairs it was not designed on is reached for {len(good)} of "
        f"{len(banks)} banks: {', '.join(f'`{name}`' for name in good) or 'none'}. It is missed "
        f"for {', '.join(short) or 'none'}. Over all pairs together it is {over_all:.2f}, "
        f"{'above' if over_all >= target else 'below'} the target, but that also tells banks apart "
        f"whose pairs lose much from those whose pairs lose little; within a bank it is "
        f"{rivals[BEST]:.2f} on average. The best of the measures on average is `{first}`. Pairs "
        f"lose {kinds}, on average: where next to nothing is lost, there is little to rank."
    )


def _training(banks: list[Result]) -> str:
    words = [
        f"`{bank['bank']}`: {TITLES[bank['data']]}, `{bank['model']}`, "
        f"{_settings(bank['trained'])}, seeds {', '.join(map(str, bank['seeds']))}"
        for bank in banks
    ]
    return "They were trained for this, shortly, and are not kept: " + "; ".join(words) + "."


def _settings(trained: dict[str, Any]) -> str:
    pruned = f"{trained['sparsity']:.0%} pruned" if trained["sparsity"] else "not pruned"
    epochs = f"{trained['epochs']} epoch" + ("" if trained["epochs"] == 1 else "s")
    return f"{pruned}, {trained['rounds'] + 1} rounds of {epochs}"
