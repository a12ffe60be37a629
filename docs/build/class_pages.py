"""The pages on classes: one taken out, one added, and what belongs to none."""

import statistics
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

from intarsia.studies.wording import capital
from pages import Load, Result, mean_sd, mean_sd_of, met, page, table

JOINED = {
    "territory, sum": "territories, sum of weights",
    "sparse, inlay": "sparse modules, inlay",
}
EARLIER = """The first command was run with an earlier version of the benchmark, in which `--few` \
named the classes that `unlearning.py` now measures; it was stopped after the removals."""
UNTOLD = """Removal takes out a module, not every trace of its samples: the other modules were \
trained on them, to be uncertain. Only retraining gives a network that has never seen them, so \
the entropies and refusals of the two are not directly comparable."""


def removal(load: Load) -> str:
    result, compared, targets = load("removal"), load("unlearning"), load("targets")["removal"]
    rows = {row["method"]: row for row in [*result["rows"], *compared["rows"]]}
    parts = [rows[method] for method in JOINED]
    return page(
        "Removing a class",
        [result, compared],
        *([EARLIER] if "--few" in result["command"] else []),
        "How exact is the removal of a class, and what does it cost compared with other ways to "
        f"forget? Ten single-class modules of `{result['data']}` ({result['model']}) are composed "
        "for each seed, and each class is removed in turn; answers may still be any of the ten "
        f"classes. {_removal_in_short(parts)} Numbers are for test samples, mean ± standard "
        "deviation over the n removals (seeds times classes).",
        "## The other classes",
        table(
            "composition|n|others unchanged|same as composed without it|restored when added again"
            "|largest difference|largest logit",
            [_exact(row) for row in parts],
        ),
        "*Others unchanged* counts the removals after which the weights of the nine other "
        "modules, cut out of the composed network, and the logits they give on their own were bit "
        "for bit the same as before. *Same as composed without it* and *restored* are also bit "
        "for bit. The logits of the composition are a sum, so they change by those of the removed "
        "module; *largest difference* is how far the observed change is from these, which is "
        "rounding.",
        "## The removed class",
        table(
            "composition|accuracy before|accuracy after|highest accuracy after|entropy|refused"
            "|answered with it|others uniform|entropy where others are uniform",
            [_left(row) for row in parts],
        ),
        f"The largest possible entropy is {result['entropy_ceiling']}. *Refused* is the fraction "
        "of the removed class's samples that are not answered at the threshold that answers 95% "
        "of the validation samples of the other nine classes; *answered with it* is the fraction "
        "neither refused nor assigned to another class. *Others uniform* is the fraction of its "
        f"samples on which each of the nine other modules, on its own, is within {result['near']} "
        "of the largest entropy.",
        *(_removal_verdict(row, targets, result) for row in parts),
        table(
            "removed class|"
            + "|".join(f"{what}: accuracy|entropy|refused" for what in JOINED.values()),
            [_by_class(name, parts) for name in parts[0]["classes"]],
        ),
        "## Compared with other ways to forget",
        table(
            "way|n|CPU seconds, median|range|accuracy on others, before|after|change"
            "|accuracy on the removed class|its entropy|refused",
            [_way(row) for row in rows.values()],
        ),
        _ways_in_words(rows, compared),
        UNTOLD,
        "## How the ascent was chosen",
        f"On validation samples, two seeds, classes {', '.join(compared['classes'])}: of the "
        "settings that forget the class within their limit of steps, the one with the highest "
        "accuracy on the others is chosen.",
        table(
            "ascent|n|steps|accuracy on the removed class|accuracy on the others|chosen",
            [
                [
                    *(c["ascent"], c["n"], f"{c['steps']['mean']:.0f}"),
                    *(mean_sd(c["removed"]), mean_sd(c["others"])),
                    "yes" if "chosen" in c else "",
                ]
                for c in compared["choice"]
            ],
        ),
    )


def _removal_in_short(parts: list[Result]) -> str:
    """Whether removals are exact, and how often the removed class is still answered."""
    exact = sum(row["own_equal"] for row in parts), sum(row["n"] for row in parts)
    left = " and ".join(f"{row['removed']['mean']:.4f} ({JOINED[row['method']]})" for row in parts)
    return (
        f"The other modules are unchanged, bit for bit, in {exact[0]} of {exact[1]} removals; the "
        f"mean accuracy on the removed class falls to {left}."
    )


def _exact(row: Result) -> list[object]:
    counts = [f"{row[key]} of {row['n']}" for key in ("own_equal", "like_composed", "restored")]
    return [JOINED[row["method"]], row["n"], *counts, f"{row['off']:.1e}", f"{row['logits']:.1f}"]


def _left(row: Result) -> list[object]:
    where = row["uniform_entropy"]
    return [
        JOINED[row["method"]],
        mean_sd(row["removed_before"]),
        mean_sd(row["removed"]),
        f"{row['removed_most']:.4f}",
        mean_sd(row["entropy"]),
        mean_sd(row["refused"]),
        mean_sd(row["answered_as_removed"]),
        mean_sd(row["uniform_share"]),
        "none" if where is None else f"{where:.4f} ({row['uniform_samples']:,} samples)",
    ]


def _removal_verdict(row: Result, targets: Result, result: Result) -> str:
    least = result["entropy_ceiling"] - targets["entropy"]
    accuracy, entropy = row["removed"]["mean"], row["entropy"]["mean"]
    above = [
        name
        for name, scores in row["by_class"].items()
        if scores["removed"]["mean"] > targets["accuracy"]
    ]
    low = [name for name, scores in row["by_class"].items() if scores["entropy"]["mean"] < least]
    where = row["uniform_entropy"]
    asked = where is not None and where >= least
    return (
        f"{JOINED[row['method']].capitalize()}: mean accuracy on the removed class is "
        f"{accuracy:.4f}; the target of at most {targets['accuracy']} is "
        f"{met(accuracy <= targets['accuracy'])} (classes whose own mean is above it: "
        f"{', '.join(above) or 'none'}). With refusals, {row['answered_as_removed']['mean']:.4f} "
        "of its samples are answered with it. The target of an entropy within "
        f"{targets['entropy']} of the largest, where all others are uniform, is {met(asked)}; over "
        f"all samples of the class the entropy is {result['entropy_ceiling'] - entropy:.4f} below "
        f"the largest, {'within' if entropy >= least else 'not within'} that bound (classes whose "
        f"own mean is not: {', '.join(low) or 'none'})."
    )


def _by_class(name: str, parts: list[Result]) -> list[object]:
    cells: list[object] = [name]
    for row in parts:
        result = row["by_class"][name]
        cells += [mean_sd(result[key]) for key in ("removed", "entropy", "refused")]
    return cells


def _way(row: Result) -> list[object]:
    seconds = row["seconds"]
    return [
        JOINED.get(row["method"], row["method"]),
        row["n"],
        f"{seconds['median']:.3g}",
        f"{seconds['least']:.3g} to {seconds['most']:.3g}",
        *(mean_sd(row[key]) for key in ("others_before", "others")),
        f"{row['change']['mean']:+.4f} ± {row['change']['sd']:.4f}",
        *(mean_sd(row[key]) for key in ("removed", "entropy", "refused")),
    ]


def _ways_in_words(rows: Result, compared: Result) -> str:
    ascent, again = rows["gradient ascent"], rows["training again"]
    times = [
        f"{other['method']} takes {other['seconds']['median'] / row['seconds']['median']:.0f} "
        f"times as long as removal from {JOINED[row['method']]}"
        for other in (ascent, again)
        for row in (rows[method] for method in JOINED)
    ]
    return (
        "Times are medians of CPU seconds on one thread, on a machine that was also doing other "
        f"work: {'; '.join(times)}. Training the modules and the joint network beforehand is not "
        "counted. The other two ways start from a joint network of the same shape. Gradient ascent "
        "raises the cross-entropy on the class's training samples until at most "
        f"{compared['forgotten']:.0%} of them are answered with it ({ascent['steps']['mean']:.0f} "
        "steps on average), and sees no other samples. Training again leaves out one class per "
        f"seed, in turn. Both were measured for classes {', '.join(compared['classes'])} only; "
        "over removals of these classes, the accuracy on the others changes by "
        f"{_change(rows, compared['classes'])}."
    )


def _change(rows: Result, classes: list[str]) -> str:
    """The mean change of the others' accuracy where these classes were removed."""
    return ", ".join(
        f"{mean(rows[method]['by_class'][c]['change']['mean'] for c in classes):+.4f} ({what})"
        for method, what in JOINED.items()
    )


GROWTH_RESULTS = ("growth", "growth_mnist")
GROWTH_INTRO = """When a class is added later, what should the earlier modules output for it? All \
classes but one are fitted, that one is added with `ModularClassifier.add_class`, and the same \
modules are joined under each rule for the old modules' output for the new class. Accuracies are \
mean ± standard deviation over seeds and added classes. Rules are chosen by validation accuracy. \
Entropy is that of the old modules on samples of the new class, on which they were never trained, \
as a fraction of the largest possible."""
GROWTH_CHOICE = """`intarsia` uses the mean of all outputs. It is the best rule on MNIST and \
second on digits, where a quarter of the way to the rewarded output does better; but that fraction \
is one more number to set, and it is evidence for a class that was never seen. What remains of the \
gap to fitting all classes at once comes from samples of the new class that old modules take for \
their own."""


def growth(load: Load) -> str:
    results = [load(name) for name in GROWTH_RESULTS]
    parts = [part for result in results for part in _growth_tables(result)]
    return page("Adding a class", results, GROWTH_INTRO, GROWTH_CHOICE, *parts)


def _growth_tables(result: Result) -> list[str]:
    parts = []
    for objective in dict.fromkeys(row["objective"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["objective"] == objective]
        first = rows[0]
        parts.append(f"## {first['data']}, objective `{objective}`, n = {first['n']}")
        parts.append(
            table(
                "output for the new class|validation accuracy, all classes|test accuracy, all "
                "classes|test, old classes|test, new class|entropy",
                [
                    (
                        row["rule"],
                        mean_sd(row["validation"]["all"], 3),
                        *(mean_sd(row["test"][key], 3) for key in ("all", "old", "new", "entropy")),
                    )
                    for row in rows
                ],
            )
        )
    return parts


def abstention(load: Load) -> str:
    result = load("abstention")
    cases = {
        case: {row["kind"]: row for row in result["rows"] if row["case"] == case}
        for case in ("unknown classes", "foreign images")
    }
    drawn = "; ".join(result["known"].values())
    n = result["rows"][0]["n"]
    head = "composition|AUROC by entropy|AUROC by largest probability|known answered"
    head += "|of these, right"
    parts = []
    for case, rows in cases.items():
        cells = [
            [
                _whole(row),
                *(
                    mean_sd(row[key])
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
        "A module is trained to be uncertain about all classes but its own. Does a composition of "
        "several know what it does not know? The AUROC is the probability that, of one known and "
        "one unknown test sample, the unknown one gets the more uncertain answer; 0.5 is chance. "
        "The last three columns show what `predict(x, abstain=...)` does at a threshold at which "
        f"{result['answered']:.0%} of the validation samples of known classes are answered. "
        "Probabilities, also those of the joint network, are taken at the training temperature. "
        f"All networks are shallow and of one shape; mean ± standard deviation, n = {n} seeds.",
        _abstention_in_short(cases),
        *parts,
    )


def _abstention_in_short(cases: dict[str, dict[str, Result]]) -> str:
    """Modules against the joint network, case by case."""
    words = [
        f"{case}: "
        + ", ".join(f"{row['auroc_entropy']['mean']:.3f} ({_whole(row)})" for row in rows.values())
        for case, rows in cases.items()
    ]
    return f"Mean AUROC by entropy. {capital('; '.join(words))}."


def _whole(row: Result) -> str:
    if row["kind"] == "joint":
        return "one network, trained jointly"
    return f"{row['operator']} of `{row['kind']}` modules"


def _about(case: str, rows: dict[str, Result], drawn: str) -> str:
    if case == "foreign images":
        return (
            "All ten classes of MNIST are known, to the banks that "
            f"`benchmarks/experiments/banks.py` trains; the {rows['joint']['unknown'][0]:,} test "
            "images of Fashion-MNIST are unknown."
        )
    settings = "; ".join(
        f"`{kind}`: {', '.join(f'{k} {v}' for k, v in row['settings'].items())}"
        for kind, row in rows.items()
    )
    fewer = [
        f"`{kind}` {row['settings']['epochs']} instead of {row['epochs_of_shared_banks']}"
        for kind, row in rows.items()
        if row["settings"]["epochs"] < row["epochs_of_shared_banks"]
    ]
    short = (
        f" These have fewer epochs in the last round than the banks below: {', '.join(fewer)}."
        if fewer
        else ""
    )
    return (
        "Five classes of MNIST are known, and the test samples of the other five are unknown. "
        "Nothing was trained on any sample of the unknown classes. The five known classes were "
        f"drawn anew for each seed: {drawn}. Settings that differ from preset `paper`: "
        f"{settings}.{short}"
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
        f"AUROC by entropy, compared with the joint network's by {name}, the better of its two: "
        f"{'; '.join(words)}. Differences are taken seed by seed."
    )


def _values(result: Result) -> list[float]:
    return [float(value) for value in result["values"].split()]


NONSENSE_INTRO = """Do modules refuse inputs that are not samples of anything? A module learns to \
be uncertain about samples of other classes, but says nothing in particular about other inputs \
unless it is trained to. The preset `auto` therefore trains on made-up samples of no class as \
well: noise, a quarter as many as there are training rows, and as many rows again whose features \
come from several samples; every module learns to answer them uniformly. Such modules are \
compared here with modules trained without made-up samples, and with one network trained on all \
classes at once, without and with the same made-up samples. Salt and pepper, shuffled, inverted \
and mirrored images, halves and foreign images are never trained on. The AUROC is the probability \
that, of one test sample and one such input, the input has the larger score; *refused* is the \
fraction of inputs above a threshold that {answered:.0%} of the validation samples stay below. The \
score is the one that `intarsia.novelty` chooses on validation samples against outliers made from \
them. Mean ± standard deviation, n = {n} seeds."""
HARD = ("uniform noise", "Gaussian noise", "salt and pepper", "shuffled pixels", "inverted")


def nonsense(load: Load) -> str:
    result, targets = load("nonsense"), load("targets")["nonsense"]
    rows = result["rows"]
    wholes = list(dict.fromkeys(row["whole"] for row in rows))
    n = len({row["seed"] for row in rows})
    parts = [_nonsense_aims(rows, targets)]
    for data in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == data]
        parts += [f"## {data}", _by_outlier(own, wholes), _by_score(own, wholes)]
    intro = NONSENSE_INTRO.format(answered=result["answered"], n=n)
    return page("Refusing nonsense", [result], intro, *parts)


def _by_outlier(rows: Sequence[Result], wholes: Sequence[str]) -> str:
    """Accuracy, and AUROC and refused by the chosen score."""
    cases = list(dict.fromkeys(name for row in rows for name in row["outliers"]))
    lines = [("accuracy on test samples", *(_accuracy(rows, merged) for merged in wholes))]
    for name in cases:
        lines.append((name, *(_outlier(rows, merged, name, "chosen") for merged in wholes)))
    return table(f"AUROC (refused)|{'|'.join(wholes)}", lines)


def _by_score(rows: Sequence[Result], wholes: Sequence[str]) -> str:
    """AUROC of every score, for the modules with negatives and the network without."""
    cases = list(dict.fromkeys(name for row in rows for name in row["outliers"]))
    scores = ("chosen", "entropy", "energy", "softmax")
    some = (wholes[0], wholes[2])
    head = "|".join(f"{merged}: {score}" for merged in some for score in scores)
    lines = [
        (
            name,
            *(f"{mean(_scores(rows, w, name, s, 'auroc')):.3f}" for w in some for s in scores),
        )
        for name in cases
    ]
    chosen = sorted({row["score"] for row in rows if row["whole"] in some})
    note = f"AUROC by score; *chosen* is {' or '.join(chosen)}."
    return f"{note}\n\n{table(f'AUROC|{head}', lines)}"


def _nonsense_aims(rows: Sequence[Result], targets: dict[str, float]) -> str:
    """What was aimed at for modules with made-up samples, data set by data set."""
    lines = []
    for data in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == data]
        merged, without = "modules, negatives", "modules, no negatives"
        least = min(HARD, key=lambda name: mean(_scores(own, merged, name, "chosen", "auroc")))
        value = mean(_scores(own, merged, least, "chosen", "auroc"))
        loss = mean(_accuracies(own, without)) - mean(_accuracies(own, merged))
        noise = [n for n in HARD if "noise" in n or "salt" in n]
        refused = min(mean(_scores(own, merged, n, "chosen", "refused")) for n in noise)
        held = mean(_scores(own, merged, "held-out classes", "chosen", "auroc"))
        before = mean(_scores(own, without, "held-out classes", "chosen", "auroc"))
        lines.append(
            f"- {data}: the AUROC for noise, shuffled and inverted inputs is at least {value:.3f} "
            f"({least}; target {targets['auroc']}); at least {refused:.1%} of each kind of noise "
            f"is refused (target {targets['refused']:.0%}); accuracy is {loss:.4f} lower than "
            f"without made-up samples (target at most {targets['loss']}); the AUROC for held-out "
            f"classes is {held:.3f}, against {before:.3f} without made-up samples."
        )
    return "\n".join(lines)


def _accuracies(rows: Sequence[Result], merged: str) -> list[float]:
    return [r["accuracy"] for r in rows if r["whole"] == merged and r["case"] == "nonsense"]


def _accuracy(rows: Sequence[Result], merged: str) -> str:
    return mean_sd_of(_accuracies(rows, merged))


def _scores(rows: Sequence[Result], merged: str, name: str, score: str, key: str) -> list[Any]:
    return [
        row["outliers"][name][score][key]
        for row in rows
        if row["whole"] == merged and name in row["outliers"]
    ]


def _outlier(rows: Sequence[Result], merged: str, name: str, score: str) -> str:
    values = _scores(rows, merged, name, score, "auroc")
    refused = mean(_scores(rows, merged, name, score, "refused"))
    return f"{mean(values):.3f} ± {stdev(values):.3f} ({refused:.2f})"
