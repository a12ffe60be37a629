"""The page on what a stranger gets who sets nothing, and the one on what is refused."""

from collections.abc import Callable, Sequence
from statistics import mean, stdev
from typing import Any

from pages import Result, page, table

METHODS = (
    "ModularClassifier", "commands", "MLPClassifier", "LogisticRegression", "HistGradientBoosting",
)  # fmt: skip
OURS, BASELINE = METHODS[:2], "MLPClassifier"
INTRO = """Nothing is set but the seed. `ModularClassifier()` and `intarsia train`, `compose`, \
`evaluate` (column *commands*) on a file of the same rows choose their settings by the preset \
`auto`, as [the guide](../guide/training.md#what-is-chosen-for-you) explains; beside them \
scikit-learn's MLPClassifier and LogisticRegression behind a StandardScaler (images divided by \
their largest value) and HistGradientBoostingClassifier (of MNIST and Fashion-MNIST on 5,000 \
rows), with their defaults. The numbers of `auto` were chosen on rows held out of the training \
rows; test rows were looked at here alone. Accuracy on test rows, for `imbalanced` balanced \
accuracy; mean ± standard deviation over seeds."""


def defaults(load: Callable[[str], Result]) -> str:
    result, targets = load("defaults"), load("targets")["defaults"]
    entries = result["entries"]
    scores = table(
        f"data|rows|features|classes|n|{'|'.join(METHODS)}",
        [
            (
                entry["set"], entry["rows"], entry["features"], entry["classes"],
                len(entry["seeds"]), *(_spread(entry, method, "score") for method in METHODS),
            )
            for entry in entries
        ],
    )  # fmt: skip
    losses = [method for method in METHODS if method != "commands"]
    calibration = table(
        f"data|{'|'.join(losses)}",
        [(e["set"], *(_spread(e, method, "log_loss") for method in losses)) for e in entries],
    )
    seconds = table(
        f"data|{'|'.join(METHODS)}|ModularClassifier / MLPClassifier|commands / MLPClassifier",
        [
            (
                entry["set"],
                *(f"{_mean(entry, method, 'seconds'):.2f}" for method in METHODS),
                *(f"{_ratio(entry, method):.1f}" for method in OURS),
            )
            for entry in entries
        ],
    )
    return page(
        "Defaults",
        [result],
        INTRO,
        *_verdict(entries, targets),
        "## Test accuracy",
        scores,
        "## Log loss",
        "Of the probabilities on test rows; the temperature of ModularClassifier is fitted on the "
        "tenth of the training rows that it holds out.",
        calibration,
        "## Seconds",
        "Of fitting, two threads, one after another in the same process. Those of the commands are "
        "what `train --json` counts, in a fresh process.",
        seconds,
    )


def _verdict(entries: Sequence[Result], targets: dict[str, float]) -> list[str]:
    """What was aimed at, and where it is missed."""
    lines = []
    for method in OURS:
        below = {e["set"]: _mean(e, BASELINE, "score") - _mean(e, method, "score") for e in entries}
        slower = {e["set"]: _ratio(e, method) for e in entries}
        worst, slowest = max(below, key=below.__getitem__), max(slower, key=slower.__getitem__)
        far = [name for name, gap in below.items() if gap > targets["below"]]
        slow = [name for name, ratio in slower.items() if ratio > targets["times"]]
        lines.append(
            f"- `{method}`: at most {targets['below']} below MLPClassifier in "
            f"{len(entries) - len(far)} of {len(entries)} data sets (largest gap "
            f"{below[worst]:+.4f}, {worst}{_named(far)}), at most {targets['times']:g} times its "
            f"time in {len(entries) - len(slow)} (largest ratio {slower[slowest]:.1f}, "
            f"{slowest}{_named(slow)})."
        )
    return ["\n".join(lines)]


def _named(missed: Sequence[str]) -> str:
    return f"; missed by {', '.join(missed)}" if missed else ""


def _ratio(entry: Result, method: str) -> float:
    return _mean(entry, method, "seconds") / _mean(entry, BASELINE, "seconds")


def _mean(entry: Result, method: str, key: str) -> float:
    return mean(run[key] for run in entry["runs"][method])


def _spread(entry: Result, method: str, key: str) -> str:
    return spread([run[key] for run in entry["runs"][method]])


def spread(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.4f}"
    return f"{mean(values):.4f} ± {stdev(values):.4f}"


NONSENSE = """A module learns to be uncertain about the samples of all other classes. About \
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


def nonsense(load: Callable[[str], Result]) -> str:
    result, targets = load("nonsense"), load("targets")["nonsense"]
    rows = result["rows"]
    wholes = list(dict.fromkeys(row["whole"] for row in rows))
    n = len({row["seed"] for row in rows})
    parts = [_aims(rows, targets)]
    for data in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == data]
        parts += [f"## {data}", _by_outlier(own, wholes), _by_score(own, wholes)]
    intro = NONSENSE.format(answered=result["answered"], n=n)
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
            *(f"{mean(_values(rows, w, name, s, 'auroc')):.3f}" for w in some for s in scores),
        )
        for name in cases
    ]
    chosen = sorted({row["score"] for row in rows if row["whole"] in some})
    note = f"By score; *chosen* is {' or '.join(chosen)}."
    return f"{note}\n\n{table(f'AUROC|{head}', lines)}"


def _aims(rows: Sequence[Result], targets: dict[str, float]) -> str:
    """What was aimed at for modules with made-up samples, data set by data set."""
    lines = []
    for data in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == data]
        merged, without = "modules, negatives", "modules, no negatives"
        least = min(HARD, key=lambda name: mean(_values(own, merged, name, "chosen", "auroc")))
        value = mean(_values(own, merged, least, "chosen", "auroc"))
        loss = mean(_accuracies(own, without)) - mean(_accuracies(own, merged))
        noise = [n for n in HARD if "noise" in n or "salt" in n]
        refused = min(mean(_values(own, merged, n, "chosen", "refused")) for n in noise)
        held = mean(_values(own, merged, "held-out classes", "chosen", "auroc"))
        before = mean(_values(own, without, "held-out classes", "chosen", "auroc"))
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
    return spread(_accuracies(rows, merged))


def _values(rows: Sequence[Result], merged: str, name: str, score: str, key: str) -> list[Any]:
    return [
        row["outliers"][name][score][key]
        for row in rows
        if row["whole"] == merged and name in row["outliers"]
    ]


def _outlier(rows: Sequence[Result], merged: str, name: str, score: str) -> str:
    values = _values(rows, merged, name, score, "auroc")
    refused = mean(_values(rows, merged, name, score, "refused"))
    return f"{mean(values):.3f} ± {stdev(values):.3f} ({refused:.2f})"
