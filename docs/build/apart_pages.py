"""The page on modules trained apart: accuracy, choice of negatives, time; its table in short."""

import textwrap
from collections.abc import Sequence
from typing import Any

import studies
from intarsia.studies import Findings
from intarsia.studies.apart.visibility_study import CHAIN, JOINT, REPLAY, WIDE
from intarsia.studies.tables import Spread, grouped
from intarsia.studies.wording import several, titled
from pages import RESULTS, Load, Result, mean_sd, origin, page, table

# What the short table shows: the way of the study, and its words.
SHOWN = {
    JOINT: "one network of the same kind, all classes at once",
    WIDE: "one wide network, all classes at once",
    REPLAY: "one network, class by class, with replay",
    "all": "modules that saw all classes",
    f"past, {CHAIN}": "modules that saw their own and earlier classes",
    "own": "modules that saw only their own class",
}
KINDS = {"images": "images", "tables": "tables", "features": "features, public rows"}


def apart(load: Load) -> str:
    variants = studies.read_studies(RESULTS).get("apart", [])
    mixtures, late, time = load("mixtures"), load("late_class"), load("apart_time")
    return page(
        "Modules that never met",
        [],
        "How much accuracy is lost if a module never sees the samples of other classes? Each "
        "module sees all classes, its own and the earlier ones, or only its own; the samples that "
        "it lacks are replaced by made-up or public ones ([the guide](../guide/apart.md) explains "
        "how, and what leaks). The modules' logits are added, unless another operator is named, "
        "and nothing is trained after joining. [The study's page](study_apart.md) has the "
        "commands, the machine and every table.",
        *_in_words(variants),
        "The set `cifar100_lite0` is CIFAR-100 as 256 principal components of the features of "
        "EfficientNet-Lite0 with ImageNet weights, at 160 pixels; its public set is 5,000 images "
        "of CIFAR-10, as the same components.",
        *_verdicts(variants),
        "*Joint* is one network of the same kind as the modules, trained on all classes; *wide "
        "joint* is what an expert would train if all rows may be seen. The amounts of the default "
        "negatives for images under `past` were set on digits after test accuracies had been seen "
        "alongside the validation accuracies, which alone would not have decided the choice: the "
        "digits are therefore not a clean test of that default under `past`. That modules joined "
        "by `stick_breaking` see all earlier samples, weighted equally, was chosen by validation "
        "accuracy, with seed 0 of digits, HAR and the features.",
        *_tables(variants),
        "## Time",
        origin(time),
        _time(time),
        *_gpu_time(load),
        "## Choice of negatives",
        origin(mixtures),
        "Modules that see only their own class (visibility `own`), by mixture of negatives, "
        "logits added. *Validation* is the accuracy of the composition, by which mixtures were "
        "compared; no party could measure it alone. *Proxy* is what a party can measure alone: "
        "the area under the ROC curve with which a module separates held-out samples of its own "
        "class from a source of negatives that was in no training mixture, averaged over modules.",
        *(_mixtures(one) for one in mixtures["sets"]),
        "## A class that comes late",
        origin(late),
        "A class is added to a classifier that has kept no rows of its classes, with the given "
        "number of rows of other classes per row of the new class: accuracy over all classes on "
        "validation rows, by `ModularClassifier.add_class` with and without the mixture of "
        f"negatives. The mixture is used by default if there are fewer than {late['enough']:g} "
        "rows of others per row of the new class.",
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
        "Modules need not see each other's classes. One module per class, trained apart from the "
        "others and joined without further training: test accuracy over all classes, mean ± "
        f"standard deviation over {' or '.join(map(str, sorted(seeds)))} seeds. In place of "
        "classes that it did not see, a module is trained on made-up or public samples. Modules "
        "that saw all samples of earlier classes are joined by `stick_breaking`, the others by "
        "adding logits. The network trained class by class keeps 20 samples of each class. See "
        "[how it works](../guide/apart.md) and [all measurements](apart.md)."
    )
    first = textwrap.fill(words, 119, break_on_hyphens=False, break_long_words=False)
    return f"{first}\n\n{table('|'.join(['data', *SHOWN.values()]), rows)}"


def _in_words(variants: Sequence[Any]) -> list[str]:
    """The least visible modules against one network of their kind, data set by data set."""
    words = []
    for (data,), group in grouped([c for v in variants for c in v.measured], "data").items():
        ways = {way: own for (way,), own in grouped(group, "way").items()}
        if "own" in ways and JOINT in ways:
            own, joint = (
                Spread.of([cell.result["accuracy"] for cell in ways[way]]).mean
                for way in ("own", JOINT)
            )
            words.append(f"{own:.3f} against {joint:.3f} on {titled(data)}")
    if not words:
        return []
    return [
        "Mean test accuracy of modules that saw only their own class, against one network of the "
        f"same kind trained on all classes: {'; '.join(words)}."
    ]


def _verdicts(variants: Sequence[Any]) -> list[str]:
    lines = []
    for variant in variants:
        verdict = variant.study.judge(Findings(variant.measured, variant.label))
        lines += [f"- {claim.marked}" for claim in verdict.claims if claim.holds is not None]
    return ["## Targets", "\n".join(lines)] if lines else []


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
    head = "trained|modules|epochs|CPU seconds|ratio to the joint network"
    note = (
        f"CPU time of all processes together, on {several(result['cores'], 'core')} shared with "
        "other work; it is not elapsed time."
    )
    return f"{table(head, rows)}\n\n{note}"


def _gpu_time(load: Load) -> list[str]:
    """Elapsed time on a GPU, if it was measured."""
    if not (RESULTS / "apart_time_cuda.json").exists():
        return ["Not measured on a GPU."]
    result = load("apart_time_cuda")
    joint = result["rows"][0]["clock"]
    rows = [
        [*(row[key] for key in ("way", "modules", "epochs")), *_clock(row["clock"], joint)]
        for row in result["rows"]
    ]
    note = "Elapsed time of one run each, after a warm-up run that is not counted."
    head = "trained|modules|epochs|seconds|ratio to the joint network"
    return [origin(result), f"{table(head, rows)}\n\n{note}"]


def _clock(seconds: float, joint: float) -> tuple[str, str]:
    return f"{seconds:.2f}", f"{seconds / joint:.1f}"


def _mixtures(one: dict[str, Any]) -> str:
    rows = [
        [f"`{row['negatives']}`", *(mean_sd(row[key]) for key in ("validation", "test", "proxy"))]
        for row in one["rows"]
    ]
    words = (
        f"The proxy's held-out source is `{one['held_out']}`. Spearman's rank correlation between "
        f"proxy and validation accuracy is {one['spearman']:.2f}; the mixture that the proxy would "
        f"choose, `{one['chosen']}`, is {one['lost']:.4f} below the best on validation."
    )
    head = "negatives|validation accuracy|test accuracy|proxy (AUC)"
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
    return table(
        "data|rows of others per new row|n|accuracy without the mixture|with the mixture", rows
    )
