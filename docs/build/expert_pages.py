"""Experts of one base, in short: how they are trained, and what joining leaves."""

import textwrap

from intarsia.studies.archive import load_archive
from intarsia.studies.base.experts import JOINT
from intarsia.studies.base.fine_tuned import LOGITS, OWN, value_of
from intarsia.studies.cells import Measured
from intarsia.studies.tables import Spread
from pages import RESULTS, Load, table

WAYS = {
    "cross-entropy": "cross-entropy, as usual",
    "label smoothing": "label smoothing",
    "ME, public images": "maximum entropy, public images in place of other tasks",
    "ME, all tasks": "maximum entropy, samples of all tasks",
}
PARTITION = "random"


def experts_in_short(load: Load) -> str:
    """A table of the ways to train experts for each base, from archives of `base`, `geometry`."""
    resnet, joint = _experts("cifar")
    named, named_joint = _experts("efficientnet")
    paragraphs = [
        "Five experts fine-tuned from one pretrained ResNet-18, each on ten classes of CIFAR-100 "
        "drawn at random, joined without further training: accuracy on all fifty classes, mean ± "
        f"standard deviation over {len(joint)} seeds. One network fine-tuned on all fifty classes "
        f"for as many steps as one expert reaches {_spread(joint)}. The public images are those "
        "that the base was trained on.",
        "Five experts fine-tuned from EfficientNet-Lite0 with ImageNet weights, twenty classes "
        f"each, over {len(named_joint)} seeds; the public images are those of CIFAR-10. One "
        f"network fine-tuned on all hundred classes reaches {_spread(named_joint)}.",
        "See also [all ways to join, and tasks of similar classes](study_base.md), "
        "[what a fresh head recovers](study_fresh_head.md) and "
        "[routing](study_geometry.md).",
    ]
    first, second, more = (
        textwrap.fill(text, 119, break_on_hyphens=False, break_long_words=False)
        for text in paragraphs
    )
    return "\n\n".join([first, resnet, second, named, more])


def _experts(suffix: str) -> tuple[str, list[float | None]]:
    """The table of one base, and what joint networks reach."""
    base, asked = (
        load_archive(RESULTS / f"study_{name}_{suffix}.json").measured
        for name in ("base", "geometry")
    )
    rows = []
    for way, words in WAYS.items():
        own = _of(base, way)
        scores = [_spread([value_of(cell, kind) for cell in own]) for kind in (OWN, LOGITS, "best")]
        routed = [cell.result["centroid"] for cell in _of(asked, way)]
        rows.append([words, *scores, _spread(routed) if routed else "-"])
    head = "experts trained by|each on its own task|logits added|best single network"
    head += "|routed by centroids"
    return table(head, rows), [cell.result[JOINT] for cell in base if JOINT in cell.result]


def shown_experts(suffix: str, way: str) -> tuple[list[Measured], list[Measured]]:
    """The cells of one way to train, and those that have the joint network, by base."""
    cells = load_archive(RESULTS / f"study_base_{suffix}.json").measured
    return _of(cells, way), [cell for cell in cells if JOINT in cell.result]


def _of(cells: list[Measured] | tuple[Measured, ...], way: str) -> list[Measured]:
    return [
        cell
        for cell in cells
        if cell.settings["way"] == way and cell.settings["partition"] == PARTITION
    ]


def _spread(values: list[float | None]) -> str:
    spread = Spread.of(values)
    return f"{spread.mean:.3f} ± {spread.sd:.3f}"
