"""Study `geometry`: does it pay to route inputs to experts, and by what?

The experts are those of studies `base` and `fresh_head`. A naive ensemble averages what all of them
say. The composer asks, for each input, the few experts whose training samples are nearest in the
features of the frozen base. Experts that are unsure of what is not theirs may be chosen by their
own entropy, which needs no centroids.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from intarsia.composition.operators.logits.routers import Similarities
from intarsia.data import class_means
from intarsia.measure.probe import readout_of
from intarsia.measure.significance import LEVEL, TTest, clustered, holm
from intarsia.studies.base.expert_banks import (
    ExpertSource,
    base_network,
    expert_bank,
    expert_source,
)
from intarsia.studies.base.expert_merges import MERGING, ExpertLogits
from intarsia.studies.base.experts import (
    NEUTRAL,
    WARD,
    check_partitions,
    check_ways,
    expert_groups,
)
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.fresh_head.printed_tables import printed_geometry
from intarsia.studies.fresh_head.readout_of_experts import SCALES as EXPERT_SCALES
from intarsia.studies.maxent.shared.complete_merges import figure_name
from intarsia.studies.options import check_count, check_numbers
from intarsia.studies.scale.claims import diverged_banks
from intarsia.studies.study import Study, register
from intarsia.studies.tables import Entry, Spread, Table, accuracy_bars, grouped, point
from intarsia.studies.verdict import Claim, Findings, Verdict
from intarsia.studies.wording import listed, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "geometry"
ENSEMBLE, PROBABILITIES, CENTROID = "ensemble", "probabilities", "centroid"
ENTROPY, FEW, BOTH = "entropy", "entropy, several", "centroid and entropy"
LABELS = {
    ENSEMBLE: "naive ensemble: mean logits",
    PROBABILITIES: "mean probabilities",
    CENTROID: "centroid router",
    ENTROPY: "entropy router: one expert",
    FEW: "entropy router: several experts",
    BOTH: "centroid and entropy router",
}
GROUP = ("data", "model", "partition")  # what a table is of
UNUSED = (*MERGING, "head")  # options of merges in weights
SCALES = {
    scale: {
        **{key: value for key, value in own.items() if key not in UNUSED},
        "top": 3 if scale == "paper" else 2,  # experts for each input
        "temperature": 1.0,  # of the softmax of similarities
    }
    for scale, own in EXPERT_SCALES.items()
}


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """One per data set, model, seed, partition and way to train experts."""
    partitions, ways = check_partitions(options["partitions"]), check_ways(options["ways"])
    top = check_count(options, "top")
    (temperature,) = check_numbers({"temperature": [options["temperature"]]}, "temperature")
    for group in expert_groups(options, context):
        for partition, way in product(partitions, ways):
            yield group.cell(NAME, way, partition, top=top, temperature=temperature)


def composers(settings: Mapping[str, Any]) -> dict[str, str]:
    """Operators on logits, by what they are called here."""
    how = f"top={settings['top']}, temperature={settings['temperature']!r}"
    return {
        ENSEMBLE: "logit_mean",
        PROBABILITIES: "probabilities",
        CENTROID: f"centroid({how})",
        ENTROPY: "entropy_router",
        FEW: f"entropy_router({how})",
        BOTH: f"centroid_entropy({how})",
    }


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """Accuracies on the test samples of all tasks, by every way to join what experts say."""
    source = expert_source(cell, context)
    if source is None:
        return {"diverged": list(context.bank(cell.banks["base"], pruned=False).diverged)}
    bank = expert_bank(cell.settings, context, source)
    if bank.diverged:
        return {"diverged": list(bank.diverged)}
    logits = ExpertLogits.of(bank, source.measured.test, context.device)
    read = context.remembered(
        f"base's features of {source.key}", lambda: BaseFeatures.of(source, context.device)
    )
    near = read.similarities(logits.context.rewarded)
    found = {
        name: logits.accuracy(operator, near) for name, operator in composers(cell.settings).items()
    }
    nearest = _owners(logits.context.rewarded, source.data.classes)[logits.labels]
    return {
        **found,
        "routed": float((near.argmax(1) == nearest).double().mean()),
        "sets": [list(module.rewarded) for module in bank],
    }


@dataclass(frozen=True, eq=False)
class BaseFeatures:
    """What the frozen base reads: class means of training samples, and of each test sample."""

    means: Tensor  # C, D
    counts: Tensor  # C
    test: Tensor  # N, D

    @classmethod
    def of(cls, source: ExpertSource, device: torch.device) -> "BaseFeatures":
        data = source.measured
        readout = readout_of(base_network(source, device), data.train.x)
        train, test = (readout.features(split.x)[0] for split in (data.train, data.test))
        counts = torch.bincount(data.train.y.cpu(), minlength=data.classes)
        return cls(class_means(train, data.train.y, data.classes), counts, test.cpu())

    def similarities(self, rewarded: Sequence[Sequence[int]]) -> Tensor:
        """Cosines of test samples to the centroid of each expert's training samples, N x K."""
        centroids = []
        for classes in rewarded:
            own = torch.tensor(list(classes))
            weights = self.counts[own].double()[:, None]
            centroids.append((self.means[own] * weights).sum(0) / weights.sum())
        router = Similarities(nn.Identity(), torch.stack(centroids).float())
        cosines: Tensor = router(self.test)
        return cosines


def _owners(rewarded: Sequence[Sequence[int]], classes: int) -> Tensor:
    """The expert of every class, by its place."""
    owners = torch.full((classes,), -1)
    for place, own in enumerate(rewarded):
        owners[list(own)] = place
    return owners


def by_seed(group: Sequence[Measured], name: str) -> dict[int, float]:
    return {cell.settings["seed"]: cell.result[name] for cell in group if name in cell.result}


def differences(group: Sequence[Measured], name: str, other: str) -> list[float]:
    """How far one composer is above another, seed by seed."""
    ours, theirs = by_seed(group, name), by_seed(group, other)
    return [value - theirs[seed] for seed, value in ours.items() if seed in theirs]


def tables(done: Sequence[Measured]) -> list[Table]:
    """All composers by way to train experts, one table per partition; then the paper's."""
    result = []
    for (data, model, partition), group in grouped(_measured(done), *GROUP).items():
        rows: list[list[Entry]] = []
        for (way,), own in grouped(group, "way").items():
            for name, label in LABELS.items():
                above = None if name == ENSEMBLE else Spread.of(differences(own, name, ENSEMBLE))
                rows.append([way, label, Spread.of(by_seed(own, name).values()), above])
        columns = ["expert training", "joined by", "accuracy", "minus ensemble"]
        title = f"{titled(data)}, {model}, {partition} tasks: routing to experts"
        result.append(Table(title, columns, rows, _notes(group)))
    return [*result, printed_geometry()] if result else []


def _measured(done: Sequence[Measured]) -> list[Measured]:
    return [cell for cell in done if ENSEMBLE in cell.result]


def _notes(group: Sequence[Measured]) -> list[str]:
    settings = group[0].settings
    routed = Spread.of(cell.result["routed"] for cell in group)
    return [
        "test accuracy over the classes of all tasks; the mean of logits predicts the same as "
        "their sum",
        f"centroid router: {settings['top']} of {settings['tasks']} experts for each input, by the "
        "cosine similarity of the frozen base's features to the mean over an expert's training "
        f"samples, softmax at temperature {settings['temperature']:g}; each expert scores its own "
        "classes, and classes of experts that are not chosen are excluded",
        f"the nearest centroid is that of the right expert for {routed.mean:.3f} of the inputs",
        "entropy router: the expert whose own prediction has the least entropy, or as many experts "
        "as the centroid router takes; centroid and entropy router: the product of both weights",
    ]


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """Accuracy by composer and way to train experts, a panel for each partition."""
    result = {}
    for (data, model), group in grouped(_measured(done), "data", "model").items():
        panels = {
            f"{partition} tasks": {
                LABELS[name]: {
                    way: point(by_seed(cells_, name).values())
                    for (way,), cells_ in grouped(own, "way").items()
                }
                for name in (ENSEMBLE, CENTROID, ENTROPY, BOTH)
            }
            for (partition,), own in grouped(group, "partition").items()
        }
        title = f"{titled(data)}, {model}: accuracy of routing to experts"
        result[figure_name(NAME, data, model)] = accuracy_bars(panels, title)
    return result


def verdict(findings: Findings) -> Verdict:
    """Whether the composer beats the ensemble under Ward and not under random, and entropy both."""
    claims: list[Claim] = []
    lines = []
    for where, cells_ in findings.by_network():
        if group := _measured(cells_):
            claims += [*_as_printed(where, group), *_by_geometry(where, group)]
            claims += _by_entropy(where, group)
            lines.append(f"{where}: {_in_short(group)}")
    failed = diverged_banks([cell for cells_ in findings.by_label.values() for cell in cells_])
    return Verdict("; ".join(lines) or "nothing is routed yet", claims, failed)


def _in_short(group: Sequence[Measured]) -> str:
    """What centroids add to the ensemble, by way and partition."""
    parts = []
    for (way,), own in grouped(group, "way").items():
        gaps = [
            f"{fmean(differences(cells_, CENTROID, ENSEMBLE)):+.3f} ({partition})"
            for (partition,), cells_ in grouped(own, "partition").items()
        ]
        parts.append(f"{way} {', '.join(gaps)}")
    return f"centroid router minus ensemble: {'; '.join(parts)}"


def _as_printed(where: str, group: Sequence[Measured]) -> list[Claim]:
    """For how many ways the paper's direction holds: above under Ward, and not above elsewhere.

    Nothing where a way was measured under one kind of partition alone, or with too few seeds.
    """
    tests = _tests(group, CENTROID, ENSEMBLE)
    ways: dict[str, dict[str, bool]] = {}
    for (partition, way), (test, p) in tests.items():
        ways.setdefault(way, {})[partition] = test.t > 0 and p < LEVEL
    both = {way: own for way, own in ways.items() if WARD in own and len(own) > 1}
    if not both:
        return []
    found = [
        way for way, own in both.items() if own[WARD] and not any(own[p] for p in own if p != WARD)
    ]
    text = (
        f"{where}: as in the paper, the centroid router is significantly above the ensemble on "
        f"ward tasks and not on others for {len(found)} of {len(both)} ways to train experts"
    )
    text += f" ({listed(found)})" if found else ""
    evidence = {"count": len(found), "of": len(both)}
    short = "ways to train experts for which centroids help on ward tasks alone"
    n = min(_seeds([c for c in group if c.settings["way"] == way]) for way in both)
    return [Claim(f"{text}.", len(found) == len(both), evidence, n, short)]


def _by_geometry(where: str, group: Sequence[Measured]) -> list[Claim]:
    """One claim per way: above the ensemble under Ward, and by more than under any other partition.

    That a gap under another partition was not shown to be above 0 does not count: it may be noisy.
    """
    tests = _tests(group, CENTROID, ENSEMBLE)
    claims = []
    for (way,), own in grouped(group, "way").items():
        parts, holds, evidence = [], [], {}
        by_partition = {name: cells_ for (name,), cells_ in grouped(own, "partition").items()}
        for partition, cells_ in by_partition.items():
            text, above = _compared(cells_, CENTROID, ENSEMBLE, tests.get((partition, way)))
            parts.append(f"{partition} tasks {text}")
            evidence[partition] = fmean(differences(cells_, CENTROID, ENSEMBLE))
            if partition == WARD:
                holds.append(above)
        for partition in [name for name in by_partition if name != WARD and WARD in by_partition]:
            text, more = _more_gained(by_partition[WARD], by_partition[partition])
            parts.append(f"{WARD} minus {partition} {text}")
            holds.append(more)
        text = (
            f"{where}, {way}: centroid router above the ensemble on ward tasks, and by more than "
        )
        text += f"on others. Its accuracy minus the ensemble's: {'; '.join(parts)}."
        whole = None if None in holds else all(holds)
        if WARD not in evidence or len(evidence) < 2:
            whole = None  # the claim is of both
        claims.append(Claim(text, whole, evidence, _seeds(own)))
    return claims


def _more_gained(ward: Sequence[Measured], other: Sequence[Measured]) -> tuple[str, bool | None]:
    """By how much more centroids gain under Ward than under another partition, paired by seed."""
    gaps = []
    for group in (ward, other):
        routed, asked = by_seed(group, CENTROID), by_seed(group, ENSEMBLE)
        gaps.append({seed: [routed[seed] - asked[seed]] for seed in routed if seed in asked})
    shared = [seed for seed in gaps[0] if seed in gaps[1]]
    difference = Spread.of(gaps[0][seed][0] - gaps[1][seed][0] for seed in shared)
    test = clustered(*gaps)
    if test is None:
        return f"{difference.mean:+.3f} (n {difference.n}, too few to test)", None
    return f"{difference.mean:+.3f} (p = {test.p:.2g})", test.above()


def _by_entropy(where: str, group: Sequence[Measured]) -> list[Claim]:
    """One claim per way: entropy above centroids under every partition."""
    tests = _tests(group, ENTROPY, CENTROID)
    claims = []
    for (way,), own in grouped(group, "way").items():
        parts, holds, evidence = [], [], {}
        for (partition,), cells_ in grouped(own, "partition").items():
            text, above = _compared(cells_, ENTROPY, CENTROID, tests.get((partition, way)))
            parts.append(f"{partition} tasks {text}")
            evidence[partition] = fmean(differences(cells_, ENTROPY, CENTROID))
            holds.append(above)
        text = (
            f"{where}, {way}: entropy router above the centroid router on all tasks. Its accuracy "
        )
        text += f"minus the other's: {'; '.join(parts)}."
        claims.append(Claim(text, None if None in holds else all(holds), evidence, _seeds(own)))
    return claims


def _tests(
    group: Sequence[Measured], name: str, other: str
) -> dict[tuple[str, str], tuple[TTest, float]]:
    """By partition and way, the paired test and its p after Holm's correction for all of them."""
    found = {}
    for key, own in grouped(group, "partition", "way").items():
        clusters = [
            {seed: [value] for seed, value in by_seed(own, one).items()} for one in (name, other)
        ]
        test = clustered(*clusters)
        if test is not None:
            found[key] = test
    values = holm([test.p for test in found.values()])
    return {key: (test, p) for (key, test), p in zip(found.items(), values, strict=True)}


def _compared(
    group: Sequence[Measured], name: str, other: str, tested: tuple[TTest, float] | None
) -> tuple[str, bool | None]:
    """`+0.090, higher (sd 0.006, n 5, p = 0.001)`, and whether it is, significantly."""
    gap = Spread.of(differences(group, name, other))
    sd = f"sd {gap.sd:.3f}, " if gap.n > 1 else ""
    if tested is None:
        return f"{gap.mean:+.3f} ({sd}n {gap.n}, too few to test)", None
    test, p = tested
    sure = p < LEVEL
    word = "higher" if sure and test.t > 0 else "lower" if sure else "not significant"
    return f"{gap.mean:+.3f}, {word} ({sd}n {gap.n}, p = {p:.2g})", sure and test.t > 0


def _seeds(group: Sequence[Measured]) -> int:
    return min(len(own) for own in grouped(group, "partition").values())


register(
    Study(
        NAME,
        "The fresh-head paper: routing to experts by geometry and by entropy",
        "Experts are fine-tuned from one pretrained base, each on its own task, and combined at "
        "inference instead of merged. Does it pay to choose a few experts for each input, by the "
        "nearest centroid in the frozen base's features or by the least entropy, instead of "
        "averaging all of them? Does the answer depend on how classes are partitioned into tasks? "
        "Tests are paired by seed and corrected for their number (Holm). Each cell is one seed, "
        "one partition and one way to train experts. The experts are those of study `base`, "
        "trained by the first cell of a store that needs them, and their training time counts for "
        "that cell.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="the centroid composer is above the naive ensemble on Ward tasks, not on random ones",
        neutral=NEUTRAL,
    )
)
