"""The page on modules that never met: what they reach, by which negatives, and in what time.

And the README's lines on them.
"""

import textwrap
from collections.abc import Sequence
from typing import Any

import studies
from intarsia.studies import Findings
from intarsia.studies.apart.visibility_study import CHAIN, JOINT, REPLAY, WIDE
from intarsia.studies.tables import Spread, grouped
from intarsia.studies.wording import titled
from pages import RESULTS, Load, Result, mean_sd, origin, page, table

# What the README shows: the way of the study, and its words.
SHOWN = {
    JOINT: "one network of that kind, all classes at once",
    WIDE: "a wide one, as an expert would",
    REPLAY: "one network, class by class",
    "all": "modules that saw all classes",
    f"past, {CHAIN}": "modules that saw earlier classes alone",
    "own": "modules that saw their own class alone",
}
KINDS = {"images": "images", "tables": "tables", "features": "features and public rows"}


def apart(load: Load) -> str:
    variants = studies.read_studies(RESULTS).get("apart", [])
    mixtures, late, time = load("mixtures"), load("late_class"), load("apart_time")
    return page(
        "Modules that never met",
        [],
        "Each module sees all classes, those that come before its own, or its own alone; what it "
        "lacks is made up or public ([the guide](../guide/apart.md) says how, and what leaks). "
        "Logits are added, or another operator is named, and nothing is trained after that. [The "
        "study's page]"
        "(study_apart.md) has the commands, the machine and every table.",
        *_verdicts(variants),
        "Joint is a network of the modules' own kind; the wide joint network is what an expert "
        "would train where all rows may be seen. The amounts of the default negatives for images "
        "under `past` were settled on digits when test accuracies had been seen beside the "
        "validation ones, which alone would not have decided: what digits say of `past` is no "
        "clean test of that default. That modules joined by `stick_breaking` see all earlier "
        "samples, and count them alike, was chosen by validation accuracy, with seed 0 of digits, "
        "HAR and the features.",
        *_tables(variants),
        "## Time",
        origin(time),
        _time(time),
        *_gpu_time(load),
        "## Which negatives",
        origin(mixtures),
        "Modules under visibility `own` by mixture, logits added. *Validation* is the accuracy of "
        "the whole, by which mixtures were compared and which no party alone could measure. "
        "*Proxy* is what a party can measure alone: the area under the ROC curve by which a module "
        "tells held-out samples of its own class from a source of negatives that no mixture was "
        "trained on, in the mean over modules.",
        *(_mixtures(one) for one in mixtures["sets"]),
        "## A class that comes late",
        origin(late),
        "A classifier that kept no row of its classes gets another one, with so many rows of "
        "others for each of the new class: accuracy over all classes on validation rows, by "
        "`ModularClassifier.add_class` with and without the mixture. The mixture is used where "
        f"there are fewer than {late['enough']:g} rows of others for each of its own.",
        _late(late),
    )


def apart_in_short(load: Load) -> str:
    """A row for each data set, from the archives of study `apart`."""
    done = [cell for one in studies.read_studies(RESULTS)["apart"] for cell in one.measured]
    rows, seeds = [], set()
    for (data,), group in grouped(done, "data").items():
        ways = {way: own for (way,), own in grouped(group, "way").items()}
        scores = [Spread.of([cell.result["accuracy"] for cell in ways.get(w, [])]) for w in SHOWN]
        seeds |= {score.n for score in scores if score.n}
        name = titled(data) if data != "cifar100_lite0" else "CIFAR-100, pretrained features"
        rows.append([name, *(f"{s.mean:.3f} ± {s.sd:.3f}" if s.n else "-" for s in scores)])
    words = (
        "Modules need not meet. One module for each class, trained apart and joined without "
        "training: test accuracy over all classes, mean ± standard deviation over "
        f"{' or '.join(map(str, sorted(seeds)))} seeds. What a module did not see is made up or "
        "public; those that saw earlier classes, and all samples of them, are joined by "
        "`stick_breaking`, the others by adding logits. The network that meets class by class "
        "keeps 20 samples of each. [How](docs/guide/apart.md), and [all that was "
        "measured](docs/results/apart.md)."
    )
    first = textwrap.fill(words, 119, break_on_hyphens=False, break_long_words=False)
    return f"{first}\n\n{table('|'.join(['data', *SHOWN.values()]), rows)}"


def _verdicts(variants: Sequence[Any]) -> list[str]:
    lines = []
    for variant in variants:
        verdict = variant.study.judge(Findings(variant.measured, variant.label))
        lines += [f"- {claim.text}" for claim in verdict.claims if claim.holds is not None]
    return ["## What was aimed at", "\n".join(lines)] if lines else []


def _tables(variants: Sequence[Any]) -> list[str]:
    parts = ["## Accuracy"]
    for variant in variants:
        parts.append(f"With {variant.label}:")
        parts += studies.tables_markdown(variant.study.tables(variant.measured))
    return parts


def _time(result: Result) -> str:
    rows = [
        [row["way"], row["modules"], row["epochs"], f"{row['cpu']:.1f}", f"{row['ratio']:.1f}"]
        for row in result["rows"]
    ]
    head = "trained|modules|epochs|CPU seconds|times joint"
    note = (
        f"Processor seconds of all processes together, on {result['cores']} cores that others used "
        "too; so they are not the time on the clock."
    )
    return f"{table(head, rows)}\n\n{note}"


def _gpu_time(load: Load) -> list[str]:
    """The same by the clock on a GPU, where it was timed."""
    if not (RESULTS / "apart_time_cuda.json").exists():
        return ["No GPU was measured."]
    result = load("apart_time_cuda")
    joint = result["rows"][0]["clock"]
    rows = [
        [*(row[key] for key in ("way", "modules", "epochs")), *_clock(row["clock"], joint)]
        for row in result["rows"]
    ]
    note = "By the clock, one run of each, after a first one that is not counted."
    head = "trained|modules|epochs|s|times joint"
    return [origin(result), f"{table(head, rows)}\n\n{note}"]


def _clock(seconds: float, joint: float) -> tuple[str, str]:
    return f"{seconds:.2f}", f"{seconds / joint:.1f}"


def _mixtures(one: dict[str, Any]) -> str:
    rows = [
        [f"`{row['negatives']}`", *(mean_sd(row[key]) for key in ("validation", "test", "proxy"))]
        for row in one["rows"]
    ]
    words = (
        f"The proxy's held-out source is {one['held_out']}. Spearman's rank correlation of proxy "
        f"and validation is {one['spearman']:.2f}; the mixture that the proxy would choose, "
        f"`{one['chosen']}`, is {one['lost']:.4f} below the best on validation."
    )
    head = "negatives|validation|test|proxy"
    return f"### {one['data']} ({KINDS[one['kind']]})\n\n{table(head, rows)}\n\n{words}"


def _late(result: Result) -> str:
    groups: dict[tuple[str, float], dict[bool, dict[str, Any]]] = {}
    for row in result["rows"]:
        groups.setdefault((row["data"], row["amount"]), {})[row["mixture"]] = row
    rows = [
        [
            data,
            f"{amount:g}",
            next(iter(both.values()))["n"],
            *(mean_sd(both[way]) if way in both else "-" for way in (False, True)),
        ]
        for (data, amount), both in groups.items()
    ]
    return table("data|rows of others|n|rows of others alone|and the mixture", rows)
