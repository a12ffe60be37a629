"""The page on joining ten modules, and the README's lines on it."""

import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from pages import Result, page, table

Row = dict[str, Any]
NAMES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
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
INTRO = """Ten modules, one per class, each trained without the others and joined without \
training; beside them one network of the same shape, trained on all ten classes, with a dropout \
chosen for it in the same way. Figures are accuracy on the test samples, mean ± standard deviation \
over n seeds, and how far the mean is above or below that network. Nonzero counts the parameters \
that survive in the whole that is joined, biases included, as a mean over seeds. The \
settings of every kind are in benchmarks/banks.py: \
territories, 95% modules and the joint network learn with a cosine schedule and keep the epoch \
with the best validation loss, the 99% modules keep to the preset named."""
CHOICE = """The dropout of each kind is the best of four on validation samples, for modules joined \
by logits (which for territories equals adding weights), with seeds that no figure above uses. \
LeNet keeps the model's own."""


def merge(load: Callable[[str], Result]) -> str:
    mlps, lenet, choice = load("merge"), load("merge_lenet"), load("merge_choice")
    released = load("merge_released")
    rows = [*mlps["rows"], *released["rows"], *lenet["rows"]]
    verdicts = list(_verdicts(rows, load("targets")["merge"]))
    met = sum(verdict[-1] == "met" for verdict in verdicts)
    return page(
        "Joining ten modules",
        [mlps, released, lenet],
        INTRO,
        "## Targets",
        f"{met} of {len(verdicts)} are met.",
        table("data|model|way|target|measured|least of the seeds|verdict", verdicts),
        *_tables(rows),
        "## What the rows say",
        _sharing_in_words(rows),
        "## Calibrated",
        calibrated(load("calibration")),
        "## How the dropout was chosen",
        f"{CHOICE} The command:\n\n    {choice['command']}",
        _choices(choice["rows"]),
    )


def merge_in_short(load: Callable[[str], Result]) -> str:
    """The README's lines."""
    rows = load("merge")["rows"]
    lines = []
    for data, model in _pairs(rows):
        cells = [
            _figure(_find(rows, data, model, way)["test"])
            for way in (("joint", ""), TERRITORY, INLAY, PAPER)
        ]
        lines.append([NAMES[data], MODELS[model], *cells])
    n = rows[0]["n"]
    text = (
        "Ten modules, one per class, trained apart and joined without training. Test accuracy, "
        f"mean ± standard deviation over {n} seeds; all figures, nonzero counts and commands are "
        "in [joining ten modules](docs/results/merge.md)."
    )
    other = _find(load("merge_released")["rows"], "mnist", "shallow", RELEASED)
    note = (
        "Adding weights as in the last column is the paper's way. With the settings of its "
        f"authors' code in place of the printed ones it reaches {_figure(other['test'])} "
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


def _tables(rows: list[Row]) -> Iterator[str]:
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
                    _figure(row["test"]),
                    _apart(row, joint),
                ]
            )
        yield f"## {NAMES[data]}, {MODELS[model]}"
        yield table("way|hidden units|n|nonzero|test|to joint", lines)


def _verdicts(rows: list[Row], targets: Result) -> Iterator[list[str]]:
    """What was aimed at, what came out, and whether that will do."""
    for model in ("shallow", "deep"):
        row, aim = _find(rows, "mnist", model, TERRITORY), targets["one_network"]
        yield _verdict(row, TERRITORY, f"at least {aim}", row["test"]["mean"], aim)
    below = [("mnist", m, INLAY, targets["inlay_below_joint"]) for m in ("shallow", "deep")]
    for model in ("shallow", "deep"):
        for way in (TERRITORY, INLAY):
            below.append(("fashion_mnist", model, way, targets["fashion_below_joint"]))
    below.append(("mnist", "lenet", TERRITORY, targets["lenet_below_joint"]))
    for data, model, way, room in below:
        row = _find(rows, data, model, way)
        joint = _find(rows, data, model, ("joint", ""))["test"]["mean"]
        yield _verdict(
            row, way, f"at most {room} below {joint:.4f}", row["test"]["mean"], joint - room
        )


def _verdict(row: Row, way: tuple[str, str], aim: str, value: float, least: float) -> list[str]:
    return [
        NAMES[row["data"]],
        MODELS[row["model"]],
        WAYS[way],
        aim,
        f"{value:.4f}",
        min(row["test"]["values"].split()),
        # Rounded as the figures are stored, so that a difference of floats decides nothing.
        "met" if round(value - least, 5) >= 0 else "missed",
    ]


def _sharing_in_words(rows: list[Row]) -> str:
    ends = " and ".join(
        f"{_find(rows, data, 'shallow', PAPER)['test']['mean']:.3f} on {NAMES[data]}"
        for data in NAMES
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
            NAMES[row["data"]],
            MODELS[row["model"]],
            WAYS[row["kind"], row["operator"]],
            row["n"],
            _figure(row["without"]),
            _figure(row["with"]),
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
        + f"\n\n{result['date']}, {result['machine']}:\n\n    {result['command']}"
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
            f"**{_figure(own[d]['validation'])}**" if d == best else _figure(own[d]["validation"])
            for d in tried
        ]
        lines.append([NAMES[data], model, kind, own[best]["n"], *cells])
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


def _figure(value: dict[str, Any]) -> str:
    alone = len(value["values"].split()) == 1
    return f"{value['mean']:.4f}" + ("" if alone else f" ± {value['sd']:.4f}")


def _apart(row: Row, joint: float) -> str:
    return "" if row["kind"] == "joint" else f"{row['test']['mean'] - joint:+.4f}"
