"""The main results on one page, and the table of them that the README shows."""

import statistics
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import studies
from apart_pages import apart_in_short
from cifar_pages import cifar_in_short
from expert_pages import experts_in_short, shown_experts
from intarsia.studies.apart.visibility_study import WIDE
from intarsia.studies.base.experts import JOINT as JOINT_EXPERT
from intarsia.studies.base.fine_tuned import LOGITS, value_of
from intarsia.studies.scale import cifar10_study as ten
from intarsia.studies.scale import cifar100_study as hundred
from intarsia.studies.tables import grouped
from merge_pages import INLAY, merge_in_short, tests_of
from pages import RESULTS, Load, page, table
from speed_pages import speed

HEAD = (
    "joined without further training|one network, trained on everything|logits added"
    "|in one network of no more parameters|n"
)
BALANCED = "modules of one class (balanced)"


class Row(NamedTuple):
    """What was joined, and accuracies over seeds: of the joint network and of two ways to join."""

    what: str
    page: str
    joint: Sequence[float]
    logits: Sequence[float] = ()
    one: Sequence[float] = ()


def overview(load: Load) -> str:
    """The short tables of several pages, one after another."""
    return page(
        "The main results",
        [],
        "What becomes of modules that are trained apart and joined without further training? Each "
        "table links to its page, which has the commands and the machine; [the list of "
        "results](index.md) has all pages and the verdicts on the papers.",
        "## Modules that never met",
        apart_in_short(load),
        "## Experts of one base",
        experts_in_short(load),
        "## Ten modules in one network",
        merge_in_short(load),
        "![Accuracy as modules are joined one after another, by six operators](curve.svg)",
        "## Convolutional networks",
        cifar_in_short(load),
        "## Speed",
        speed(load),
    )


def measured(load: Load) -> str:
    """The README's lines: one row for each kind of module."""
    rows = [*_fully_connected(load), *_convolutional(), *_apart(), *_experts()]
    cells = [
        [
            f"[{row.what}](docs/results/{row.page}.md)",
            *(_spread(values) for values in (row.joint, row.logits, row.one)),
            len(row.joint),
        ]
        for row in rows
    ]
    text = (
        "Test accuracy over all classes, mean ± standard deviation over n seeds. The network that "
        "is trained on everything is of the modules' kind; for pretrained features it is a wide "
        "one. Rows link to their numbers and commands, "
        "[the main results](docs/results/overview.md) has more such tables, and "
        "[results](docs/results/index.md) has everything."
    )
    words = textwrap.fill(text, 119, break_on_hyphens=False, break_long_words=False)
    return f"{words}\n\n{table(HEAD, cells)}"


def _fully_connected(load: Load) -> Iterator[Row]:
    rows = load("merge")["rows"]
    joint, inlay = (tests_of(rows, "mnist", "shallow", way) for way in (("joint", ""), INLAY))
    yield Row("MNIST: ten modules of an MLP, 95% pruned", "merge", joint, inlay, inlay)


def _convolutional() -> Iterator[Row]:
    known = studies.read_studies(RESULTS)
    for variant in known.get("cifar10", [])[:1]:
        own = [cell for cell in variant.measured if cell.settings["model"] == "fastnet"]
        ways = ten.ways_of(own)
        kinds = [_tests(ways.get(ten.LABELS[w], {})) for w in (ten.JOINT, ten.LOGITS, ten.INLAY)]
        yield Row("CIFAR-10: ten modules of a convolutional network", "cifar", *kinds)
    for variant in known.get("cifar100", [])[:1]:
        for _, group in grouped(variant.measured, "model").items():
            joint = hundred.joint_of(group)
            whole = _tests(joint[max(joint)]) if joint else []
            added = _tests(hundred.arms_of(group).get(BALANCED, {}))
            yield Row("CIFAR-100: a hundred, on balanced batches", "cifar", whole, added)


def _apart() -> Iterator[Row]:
    done = [cell for one in studies.read_studies(RESULTS)["apart"] for cell in one.measured]
    own = [cell for cell in done if cell.settings["data"] == "cifar100_lite0"]
    ways = {way: [c.result["accuracy"] for c in g] for (way,), g in grouped(own, "way").items()}
    what = "CIFAR-100: a hundred heads on pretrained features, no module saw another's classes"
    yield Row(what, "apart", ways[WIDE], ways["own"])


def _experts() -> Iterator[Row]:
    for way, words in {
        "cross-entropy": "trained as usual",
        "ME, public images": "maximum entropy on public images",
    }.items():
        own, joint = shown_experts("efficientnet", way)
        logits, best = ([value_of(cell, kind) for cell in own] for kind in (LOGITS, "best"))
        what = f"CIFAR-100: five experts of EfficientNet-Lite0, {words}"
        yield Row(what, "study_base", [c.result[JOINT_EXPERT] for c in joint], logits, best)


def _tests(values: dict[int, dict[str, float]]) -> list[float]:
    return [value["test"] for value in values.values()]


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean = f"{statistics.mean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.3f}"
