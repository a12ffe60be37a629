"""The page on taking a class out again: exact for the others, and what is left of it."""

from collections.abc import Callable
from statistics import mean
from typing import Any

from pages import Result, page, table

JOINED = {
    "territory, sum": "territories, sum of weights",
    "sparse, inlay": "sparse modules, inlay",
}
EARLIER = """The first command was given to an earlier form of the benchmark, in which `--few` \
named the classes of what `unlearning.py` now measures; it was stopped after the removals."""
UNTOLD = """Removal takes out a module, not every trace of its samples: the other modules have \
been trained on them, to be uncertain. Only training again gives a network that has never met \
them, so the entropies and refusals of the two are not of like networks."""


def removal(load: Callable[[str], Result]) -> str:
    result, compared, targets = load("removal"), load("unlearning"), load("targets")["removal"]
    rows = {row["method"]: row for row in [*result["rows"], *compared["rows"]]}
    parts = [rows[method] for method in JOINED]
    return page(
        "Removing a class",
        [result, compared],
        *([EARLIER] if "--few" in result["command"] else []),
        f"Ten single-class modules of `{result['data']}` ({result['model']}), each class in turn "
        "taken out of the whole of every seed; answers stay among all ten classes. Figures are on "
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
        f"An entropy can reach {result['entropy_ceiling']}. *Refused* is the share of its samples "
        "that are not answered at the threshold that answers 95% of the validation samples of the "
        "other nine classes; *answered with it* the share that is neither refused nor taken for "
        "another class. *Others uniform* is the share of its samples on which each of the nine "
        f"others by itself is within {result['near']} of that entropy.",
        *(_verdict(row, targets, result) for row in parts),
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
                    *(_figure(c["removed"]), _figure(c["others"])),
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
        _figure(row["removed_before"]),
        _figure(row["removed"]),
        f"{row['removed_most']:.4f}",
        _figure(row["entropy"]),
        _figure(row["refused"]),
        _figure(row["answered_as_removed"]),
        _figure(row["uniform_share"]),
        "none" if where is None else f"{where:.4f} ({row['uniform_samples']:,} samples)",
    ]


def _verdict(row: Result, targets: Result, result: Result) -> str:
    least = result["entropy_ceiling"] - targets["entropy"]
    accuracy, entropy = row["removed"]["mean"], row["entropy"]["mean"]
    above = [
        name
        for name, found in row["by_class"].items()
        if found["removed"]["mean"] > targets["accuracy"]
    ]
    low = [name for name, found in row["by_class"].items() if found["entropy"]["mean"] < least]
    where = row["uniform_entropy"]
    asked = where is not None and where >= least
    return (
        f"{JOINED[row['method']].capitalize()}: accuracy on the removed class is {accuracy:.4f} in "
        f"the mean, the target of at most {targets['accuracy']} is "
        f"{_met(accuracy <= targets['accuracy'])}; classes whose own mean is above it: "
        f"{', '.join(above) or 'none'}. With refusals {row['answered_as_removed']['mean']:.4f} of "
        f"its samples are answered with it. Entropy within {targets['entropy']} of the ceiling "
        "where "
        f"all others are uniform is {_met(asked)}; over all samples of the class it is "
        f"{result['entropy_ceiling'] - entropy:.4f} below the ceiling, "
        f"{'within' if entropy >= least else 'not within'} the same bound; classes whose own mean "
        f"is not: {', '.join(low) or 'none'}."
    )


def _by_class(name: str, parts: list[Result]) -> list[object]:
    cells: list[object] = [name]
    for row in parts:
        result = row["by_class"][name]
        cells += [_figure(result[key]) for key in ("removed", "entropy", "refused")]
    return cells


def _way(row: Result) -> list[object]:
    seconds = row["seconds"]
    return [
        JOINED.get(row["method"], row["method"]),
        row["n"],
        f"{seconds['median']:.3g}",
        f"{seconds['least']:.3g} to {seconds['most']:.3g}",
        *(_figure(row[key]) for key in ("others_before", "others")),
        f"{row['change']['mean']:+.4f} ± {row['change']['sd']:.4f}",
        *(_figure(row[key]) for key in ("removed", "entropy", "refused")),
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


def _met(met: bool) -> str:
    return "met" if met else "missed"


def _figure(value: dict[str, Any]) -> str:
    return f"{value['mean']:.4f} ± {value['sd']:.4f}"
