"""The pages on classes: one taken out, one added, and what belongs to none."""

import statistics
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

from pages import Load, Result, mean_sd, mean_sd_of, met, page, table

JOINED = {
    "territory, sum": "territories, sum of weights",
    "sparse, inlay": "sparse modules, inlay",
}
EARLIER = """The first command was given to an earlier form of the benchmark, in which `--few` \
named the classes of what `unlearning.py` now measures; it was stopped after the removals."""
UNTOLD = """Removal takes out a module, not every trace of its samples: the other modules have \
been trained on them, to be uncertain. Only training again gives a network that has never met \
them, so the entropies and refusals of the two are not of like networks."""


def removal(load: Load) -> str:
    result, compared, targets = load("removal"), load("unlearning"), load("targets")["removal"]
    rows = {row["method"]: row for row in [*result["rows"], *compared["rows"]]}
    parts = [rows[method] for method in JOINED]
    return page(
        "Removing a class",
        [result, compared],
        *([EARLIER] if "--few" in result["command"] else []),
        f"Ten single-class modules of `{result['data']}` ({result['model']}), each class in turn "
        "taken out of the whole of every seed; answers stay among all ten classes. Numbers are on "
        "test samples, mean ± standard deviation over the n removals (seeds times classes).",
        "## The others",
        table(
            "whole|n|others equal|like composed without it|restored when added again"
            "|largest difference|largest logit",
            [_exact(row) for row in parts],
        ),
        "*Others equal*: in how many removals the weights of all nine others, cut out of the whole "
        "network, and the logits they give by themselves were bit for bit those before. *Like "
        "composed without it* and *restored* are bit for bit too. The logits of the whole are a "
        "sum, so they change by those of the removed module; *difference* is how far before minus "
        "after is from these, which is rounding.",
        "## The removed class",
        table(
            "whole|accuracy before|accuracy after|most|entropy|refused"
            "|answered with it|others uniform|entropy where they are",
            [_left(row) for row in parts],
        ),
        f"An entropy can reach {result['entropy_ceiling']}. *Refused* is the fraction of its "
        "samples that are not answered at the threshold that answers 95% of the validation samples "
        "of the other nine classes; *answered with it* the fraction that is neither refused nor "
        "taken for another class. *Others uniform* is the fraction of its samples on which each "
        f"of the nine others by itself is within {result['near']} of that entropy.",
        *(_removal_verdict(row, targets, result) for row in parts),
        table(
            "removed|" + "|".join(f"{what}: accuracy|entropy|refused" for what in JOINED.values()),
            [_by_class(name, parts) for name in parts[0]["classes"]],
        ),
        "## Against other ways to forget",
        table(
            "way|n|seconds|least to most|others before|others after|change|removed class"
            "|entropy|refused",
            [_way(row) for row in rows.values()],
        ),
        _ways_in_words(rows, compared),
        UNTOLD,
        "## How the ascent was chosen",
        f"Validation samples, two seeds, classes {', '.join(compared['classes'])}; the one that "
        "leaves most of the others among those that forget before they reach their limit of steps.",
        table(
            "ascent|n|steps|removed class|others|chosen",
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
        f"{JOINED[row['method']].capitalize()}: accuracy on the removed class is {accuracy:.4f} in "
        f"the mean, the target of at most {targets['accuracy']} is "
        f"{met(accuracy <= targets['accuracy'])}; classes whose own mean is above it: "
        f"{', '.join(above) or 'none'}. With refusals {row['answered_as_removed']['mean']:.4f} of "
        f"its samples are answered with it. Entropy within {targets['entropy']} of the ceiling "
        "where "
        f"all others are uniform is {met(asked)}; over all samples of the class it is "
        f"{result['entropy_ceiling'] - entropy:.4f} below the ceiling, "
        f"{'within' if entropy >= least else 'not within'} the same bound; classes whose own mean "
        f"is not: {', '.join(low) or 'none'}."
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
        "Seconds are medians of the time that processors worked, on one thread, on a machine that "
        f"had other work too: {'; '.join(times)}. The training of the modules and of the joint "
        "network before is not counted. The other ways are measured against a joint network of "
        "the same shape. Ascent drives up the cross-entropy of the class's training samples until "
        f"at most {compared['forgotten']:.0%} of them are answered with it "
        f"({ascent['steps']['mean']:.0f} steps in the mean), and sees no others. Training "
        "again leaves the class out, one class for every seed, in turn. "
        f"Both with classes {', '.join(compared['classes'])} alone; over "
        f"removals of these, the others change by {_change(rows, compared['classes'])}."
    )


def _change(rows: Result, classes: list[str]) -> str:
    """The mean change of the others' accuracy where these classes were removed."""
    return ", ".join(
        f"{mean(rows[method]['by_class'][c]['change']['mean'] for c in classes):+.4f} ({what})"
        for method, what in JOINED.items()
    )


GROWTH_RESULTS = ("growth", "growth_mnist")
GROWTH_INTRO = """All classes but one are fitted, that one is added with \
`ModularClassifier.add_class`, and the same modules are joined with each rule for the old ones' \
output of the new class. Mean and standard deviation over seeds and added classes. Validation \
chooses, test reports. Entropy is that of the old modules on the new class's samples, as a \
fraction of the largest there is: they were never trained on it."""
GROWTH_CHOICE = """The mean of all outputs is what `intarsia` does. It is the best on MNIST and \
second on digits, where a quarter of the way to the rewarded output does better, but that is a \
number to be set, and evidence for a class that was never seen. What is left against \
fitting all classes at once is what the old modules take for their own in the new class."""


def growth(load: Load) -> str:
    results = [load(name) for name in GROWTH_RESULTS]
    parts = [part for result in results for part in _growth_tables(result)]
    return page("Adding a class", results, GROWTH_INTRO, *parts, GROWTH_CHOICE)


def _growth_tables(result: Result) -> list[str]:
    parts = []
    for objective in dict.fromkeys(row["objective"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["objective"] == objective]
        first = rows[0]
        parts.append(f"## {first['data']}, objective `{objective}`, n = {first['n']}")
        parts.append(
            table(
                "new output|validation, all|test, all|test, old|test, new|entropy",
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
    head = "whole|AUROC by entropy|AUROC by largest probability|known answered|of these right"
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
            "All ten classes of MNIST are known, by the banks that "
            "`benchmarks/experiments/banks.py` trains; "
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
        f"{drawn}. Settings other than those of the preset `paper`: {settings}.{short}"
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


NONSENSE_INTRO = """A module learns to be uncertain about the samples of all other classes. About \
what is no sample of anything it was never asked, unless it is: the preset `auto` makes up \
samples of no class for training, a quarter of the rows noise and a quarter rows whose features \
come from several samples, and every module learns to answer them uniformly. Here such modules \
are asked about inputs that are no samples, beside modules without made-up samples, and beside \
one network that is trained on all classes at once, without and with the same made-up samples. \
Salt and pepper, shuffled, inverted and mirrored images, halves and foreign images are in none \
of them. The AUROC is how often, of one test sample and one such input, the input has the larger \
score; *refused* is the fraction of inputs above a threshold that {answered:.0%} of the \
validation samples stay below. The score is the one that `intarsia.novelty` chooses on \
validation samples against outliers made of these. Mean ± standard deviation, n = {n} seeds."""
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
    note = f"By score; *chosen* is {' or '.join(chosen)}."
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
            f"- {data}: noise, shuffled and inverted inputs have an AUROC of at least "
            f"{value:.3f} ({least}; aim {targets['auroc']}); of each kind of noise at least "
            f"{refused:.1%} is refused (aim {targets['refused']:.0%}); accuracy is {loss:.4f} "
            f"lower than without made-up samples (aim at most {targets['loss']}); held-out classes "
            f"{held:.3f}, without made-up samples {before:.3f}."
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
