"""Study `fresh_head`: what a new readout recovers of fine-tuned experts that were merged.

The experts are those of study `base`, and its banks serve both: of one pretrained base, one for
each task, by the usual loss or by maximum entropy. They are merged by task arithmetic or TIES with
settings that validation samples choose, and the merged network is probed with a fresh head. Probed
beside it are the joint network and the base itself, on which nobody trained an expert.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

from intarsia.data import Data
from intarsia.measure.probe import FRESH_HEAD, HeadTraining, Readout, readout_of
from intarsia.measure.significance import LEVEL, clustered, holm
from intarsia.studies.base.expert_banks import base_network, expert_bank, expert_source
from intarsia.studies.base.expert_merges import (
    ARITHMETIC,
    NORMS,
    TIES,
    ExpertMerges,
    check_merging,
    fresh_heads,
    native_and_features,
)
from intarsia.studies.base.experts import (
    JOINT,
    NEUTRAL,
    check_partitions,
    check_ways,
    expert_groups,
)
from intarsia.studies.base.fine_tuned import SCALES as BASE_SCALES
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.fresh_head.printed_tables import printed_fresh_heads
from intarsia.studies.fresh_head.readout_of_modules import FRESH, NATIVE, unfinished_note
from intarsia.studies.maxent.shared.complete_merges import figure_name
from intarsia.studies.options import check_head
from intarsia.studies.scale.claims import diverged_banks
from intarsia.studies.study import Study, register
from intarsia.studies.tables import (
    Entry,
    Spread,
    Table,
    accuracy_bars,
    finite,
    grouped,
    known,
    point,
)
from intarsia.studies.verdict import Claim, Findings, Verdict
from intarsia.studies.wording import titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "fresh_head"
OPERATORS = {ARITHMETIC: "task arithmetic", TIES: "TIES"}
BASE = "base"  # no expert at all: a head on the features of what they are fine-tuned from
WAYS = ["cross-entropy", "ME, public images", "ME, all tasks"]
USUAL = "cross-entropy"
UNUSED = ("sparsities", "ways")  # options of study `base` that this one has otherwise, or not
SCALES = {
    scale: {**{k: v for k, v in own.items() if k not in UNUSED}, "ways": WAYS}
    for scale, own in BASE_SCALES.items()
}


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """One per data set, model, seed, partition and way; and two per seed for joint and base."""
    partitions, ways = check_partitions(options["partitions"]), check_ways(options["ways"])
    head = check_head(options["head"])
    own = check_merging(options)
    for group in expert_groups(options, context):
        yield group.cell(NAME, JOINT, head=head)
        yield group.cell(NAME, BASE, head=head)
        for partition, way in product(partitions, ways):
            yield group.cell(NAME, way, partition, head=head, **own)


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """Native and fresh accuracies on the test samples of all tasks, by operator and statistics."""
    settings, source = cell.settings, expert_source(cell, context)
    if source is None:
        return {"diverged": list(context.bank(cell.banks["base"], pruned=False).diverged)}
    way, data = settings["way"], source.measured
    training = HeadTraining(**settings["head"])
    contract = {"contract": FRESH_HEAD.to_json()}
    if way == BASE:  # which has no head for these classes
        read = readout_of(base_network(source, context.device), data.train.x)
        return {**_probed(read, data, training, settings, native=False), **contract}
    bank = expert_bank(settings, context, source)
    if bank.diverged:
        return {"diverged": list(bank.diverged)}
    if way == JOINT:
        read = readout_of(bank[0].to_module().to(context.device), data.train.x)
        return {**_probed(read, data, training, settings), **contract}
    merges = ExpertMerges(bank, data)
    found, features = [], []
    for operator in OPERATORS:
        for best in merges.search(operator, settings):
            merges.put(best.change, best.norms)
            accuracy, read_by_split = merges.probed()
            found.append((best, accuracy))
            features.append(read_by_split)
    heads = fresh_heads(features, data, training, settings["seed"])
    result: dict[str, Any] = {norms: {} for norms in merges.kinds}
    for (best, accuracy), head in zip(found, heads, strict=True):
        result[best.norms][best.operator] = {
            NATIVE: accuracy,
            FRESH: head.test,
            "epoch": head.epoch,
            "validation": best.validation,
            "chosen": best.spec,
        }
    return {**result, "sets": [list(module.rewarded) for module in bank], **contract}


def _probed(
    readout: Readout,
    data: Data,
    training: HeadTraining,
    settings: Mapping[str, Any],
    native: bool = True,
) -> dict[str, Any]:
    """What a fresh head makes of one network's features, and its own head where that is asked."""
    accuracy, features = native_and_features(readout, data)
    (head,) = fresh_heads([features], data, training, settings["seed"])
    own = {NATIVE: accuracy} if native else {}
    return {**own, FRESH: head.test, "epoch": head.epoch}


@dataclass(frozen=True)
class Recovery:
    """Native and fresh of one group, one value for each seed, and what they are held against."""

    native: Mapping[int, float]
    fresh: Mapping[int, float]
    joint: Mapping[int, float]

    @classmethod
    def of(
        cls, group: Sequence[Measured], norms: str, operator: str, joint: Mapping[int, float]
    ) -> "Recovery":
        done = {
            cell.settings["seed"]: cell.result[norms][operator]
            for cell in group
            if operator in cell.result.get(norms, {})
        }
        return cls(
            {seed: own[NATIVE] for seed, own in done.items()},
            {seed: own[FRESH] for seed, own in done.items()},
            {seed: joint[seed] for seed in done if seed in joint},
        )

    @property
    def gaps(self) -> dict[int, float]:
        """fresh - native, seed by seed."""
        return {seed: self.fresh[seed] - native for seed, native in self.native.items()}

    @property
    def recovered(self) -> list[float]:
        """(fresh - native) / (joint - native), for seeds whose native is below joint."""
        return [
            self.gaps[seed] / (joint - self.native[seed])
            for seed, joint in self.joint.items()
            if joint > self.native[seed]
        ]


def references(group: Sequence[Measured], way: str, key: str) -> dict[int, float]:
    """What the joint network or the base reaches, by seed."""
    return {
        cell.settings["seed"]: cell.result[key]
        for cell in group
        if cell.settings["way"] == way and key in cell.result
    }


def recoveries(group: Sequence[Measured]) -> dict[tuple[str, str, str, str], Recovery]:
    """By partition, way, operator and BatchNorm statistics, of one data set and model."""
    joint = references(group, JOINT, NATIVE)
    experts = [cell for cell in group if cell.settings["way"] not in (JOINT, BASE)]
    found = {}
    for (partition, way), own in grouped(experts, "partition", "way").items():
        for operator, norms in product(OPERATORS, NORMS):
            recovery = Recovery.of(own, norms, operator, joint)
            if recovery.native:
                found[partition, way, operator, norms] = recovery
    return found


def tables(done: Sequence[Measured]) -> list[Table]:
    """One per partition with the contract of the probe below, then what the paper printed."""
    result = []
    for (data, model), group in grouped(done, "data", "model").items():
        found = recoveries(group)
        for partition in dict.fromkeys(key[0] for key in found):
            own = {key[1:]: value for key, value in found.items() if key[0] == partition}
            title = f"{titled(data)}, {model}, {partition} tasks: merged experts with fresh heads"
            shown = [
                cell
                for cell in group
                if cell.settings["way"] in (JOINT, BASE) or cell.settings["partition"] == partition
            ]
            result.append(_table(title, own, shown))
    return [*result, printed_fresh_heads()] if result else []


def _table(
    title: str, found: Mapping[tuple[str, str, str], Recovery], group: Sequence[Measured]
) -> Table:
    several = len({norms for _, _, norms in found}) > 1
    rows: list[list[Entry]] = []
    for (way, operator, norms), own in found.items():
        rows.append(
            [
                *(way, OPERATORS[operator], *([norms] if several else [])),
                Spread.of(own.native.values()),
                Spread.of(own.fresh.values()),
                Spread.of(own.gaps.values()),
                Spread.of_any(own.joint.values()),
                Spread.of_any(own.recovered),
            ]
        )
    for way, label in ((JOINT, "joint network"), (BASE, "none: the base itself")):
        native, fresh = (references(group, way, key) for key in (NATIVE, FRESH))
        if fresh:
            row: list[Entry] = [label, None, *([None] if several else [])]
            gap = Spread.of_any(f - native[s] for s, f in fresh.items() if s in native)
            row += [Spread.of_any(native.values()), Spread.of(fresh.values()), gap, None, None]
            rows.append(row)
    columns = ["expert training", "merged by", *(["BatchNorm"] if several else [])]
    columns += ["native head", "fresh head", "fresh - native", "joint", "recovered"]
    notes = _notes(several, group)
    return Table(title, columns, rows, notes, statements=FRESH_HEAD.labelled())


def tables_in_short(done: Sequence[Measured]) -> list[Table]:
    """One per data set and model with the merges of all partitions, for a page that leads here.

    With recomputed BatchNorm statistics, where a network has any; no joint network and no base.
    """
    result = []
    for (data, model), group in grouped(done, "data", "model").items():
        shown = last_norms(recoveries(group))
        rows: list[list[Entry]] = [
            [
                *(partition, way, OPERATORS[operator]),
                Spread.of(own.native.values()),
                Spread.of(own.fresh.values()),
                Spread.of_any(own.joint.values()),
                Spread.of_any(own.recovered),
            ]
            for (partition, way, operator, _), own in shown.items()
        ]
        columns = ["tasks", "expert training", "merged by"]
        columns += ["native head", "fresh head", "joint", "recovered"]
        if rows:
            notes = unfinished_note(kept_epochs(group))
            title = f"{titled(data)}, {model}"
            result.append(Table(title, columns, rows, notes, statements=FRESH_HEAD.labelled()))
    return result


def _notes(several: bool, group: Sequence[Measured]) -> list[str]:
    norms = [
        "averaged, recomputed: BatchNorm statistics of the merged network, averaged over the "
        "experts or recomputed from validation samples; settings are chosen and heads trained for "
        "each"
    ]
    contract = [f"{label}: {text}" for label, text in FRESH_HEAD.labelled().items()]
    return [
        "test accuracy over the classes of all tasks; the scale of task arithmetic and the density "
        "and scale of TIES are chosen on validation samples, seed by seed",
        "recovered: (fresh - native) / (joint - native), seed by seed, where native is below "
        "joint; the shortfall is joint - native",
        "joint: one network fine-tuned from the same base on all tasks together by cross-entropy, "
        "for as many steps as one expert that sees all tasks",
        "the base has no head for these classes: its row shows what a fresh head reads from "
        "features that no expert has changed",
        *(norms if several else []),
        *unfinished_note(kept_epochs(group)),
        *contract,
    ]


def kept_epochs(group: Sequence[Measured]) -> Iterator[tuple[int, int | None]]:
    """The epoch kept of every head, and how many it was trained for."""
    for cell in group:
        merges = (own for norms in NORMS for own in cell.result.get(norms, {}).values())
        for own in (cell.result, *merges):
            if "epoch" in own:
                yield own["epoch"], cell.settings["head"]["epochs"]


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """Native and fresh by way and operator, a panel for each partition."""
    result = {}
    for (data, model), group in grouped(done, "data", "model").items():
        panels: dict[str, Any] = {}
        for (partition, way, operator, _), own in last_norms(recoveries(group)).items():
            bars = panels.setdefault(f"{partition} tasks", {NATIVE: {}, FRESH: {}})
            label = f"{way}: {OPERATORS[operator]}"
            bars[NATIVE][label] = point(own.native.values())
            bars[FRESH][label] = point(own.fresh.values())
        if panels:
            title = (
                f"{titled(data)}, {model}: accuracy of merged experts with native and fresh heads"
            )
            result[figure_name(NAME, data, model)] = accuracy_bars(panels, title)
    return result


def last_norms(
    found: Mapping[tuple[str, str, str, str], Recovery],
) -> dict[tuple[str, str, str, str], Recovery]:
    """Those with recomputed statistics, or all where no network has BatchNorm."""
    kind = [norms for norms in NORMS if any(key[3] == norms for key in found)][-1:]
    return {key: own for key, own in found.items() if key[3] in kind}


def verdict(findings: Findings) -> Verdict:
    """Whether fresh is above native everywhere, what is recovered, and how the losses compare."""
    claims: list[Claim] = []
    lines = []
    for where, group in findings.by_network():
        found = recoveries(group)
        if not found:
            continue
        above = _above_native(where, found)
        claims += [above, *_tested(where, found), *_by_loss(where, found)]
        claims += _above_base(where, found, references(group, BASE, FRESH))
        lines.append(f"{where}: fresh head above native in {above.counted} cells")
    failed = diverged_banks([cell for cells_ in findings.by_label.values() for cell in cells_])
    return Verdict("; ".join(lines) or "no merge is probed yet", claims, failed)


def _above_native(where: str, found: Mapping[Any, Recovery]) -> Claim:
    """A cell is one seed of a group."""
    gaps = [gap for own in found.values() for gap in own.gaps.values()]
    count = sum(gap > 0 for gap in gaps)
    parts = [Spread.of(own.recovered).mean for own in found.values() if own.recovered]
    text = f"{where}: a fresh head is above the native one in {count} of {len(gaps)} cells"
    text += f"; fresh - native is {min(gaps):+.3f} to {max(gaps):+.3f}"
    if parts:
        text += (
            f"; the fraction of the shortfall recovered is {min(parts):.2f} to {max(parts):.2f} "
        )
        text += "in the means of groups"
    evidence = {"count": count, "of": len(gaps), "recovered": [round(p, 4) for p in parts]}
    return Claim(
        f"{text}.", count == len(gaps), evidence, len(gaps), short="cells with fresh above native"
    )


def _tested(where: str, found: Mapping[tuple[str, str, str, str], Recovery]) -> list[Claim]:
    """How many groups have fresh above native by a test paired by seed, all of them named."""
    tests = {
        key: test
        for key, own in found.items()
        if (test := clustered(_clusters(own.fresh), _clusters(own.native))) is not None
    }
    if not tests:
        return [Claim(f"{where}: there are too few seeds to test whether fresh is above native.")]
    corrected = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    sure = [key for key, test in tests.items() if test.t > 0 and corrected[key] < LEVEL]
    n = min(len(found[key].native) for key in tests)
    text = (
        f"{where}: fresh is significantly above native in {len(sure)} of {len(tests)} groups of "
        f"partition, training and merge (paired by seed, Holm's correction, 95%, n {n} or more)."
    )
    details = [
        f"{where}, {_name(key, found)}: {_numbers(found[key], p)}" for key, p in corrected.items()
    ]
    evidence = {"count": len(sure), "of": len(tests)}
    short = "groups with fresh significantly above native"
    return [Claim(text, len(sure) == len(tests), evidence, n, short, details)]


def _name(key: tuple[str, str, str, str], found: Iterable[tuple[str, str, str, str]]) -> str:
    """What a group is called; by its BatchNorm statistics where there are several kinds."""
    partition, way, operator, norms = key
    several = len({other[3] for other in found}) > 1
    statistics = f", {norms} statistics" if several else ""
    return f"{partition} tasks, {way}, {OPERATORS[operator]}{statistics}"


def _numbers(own: Recovery, p: float) -> str:
    part = Spread.of(own.recovered)
    recovered = f", recovered {part.mean:.2f}" if part.n else ""
    return (
        f"native {_mean(own.native)}, fresh {_mean(own.fresh)}{recovered} "
        f"(n {len(own.native)}, p = {p:.2g})"
    )


def _by_loss(where: str, found: Mapping[tuple[str, str, str, str], Recovery]) -> list[Claim]:
    """Whether less is left to recover where experts were trained by maximum entropy."""
    ways = [way for way in dict.fromkeys(key[1] for key in found) if way.startswith("ME")]
    claims = []
    for way in ways:
        pairs = [
            (own.gaps, found[usual].gaps)
            for key, own in last_norms(found).items()
            if key[1] == way and (usual := (key[0], USUAL, *key[2:])) in found
        ]
        seeds = sorted({seed for ours, _ in pairs for seed in ours})
        ours, theirs = (
            {seed: [one[place].get(seed) for one in pairs] for seed in seeds} for place in (0, 1)
        )
        test = clustered(ours, theirs)
        if test is None:
            continue
        means = [fmean(finite(v for row in rows.values() for v in row)) for rows in (ours, theirs)]
        smaller = test.t < 0 and test.p < LEVEL
        word = "significantly less than" if smaller else "not significantly less than"
        claims.append(
            Claim(
                f"{where}: fresh - native for experts trained by {way}, averaged over partitions "
                f"and operators, is {means[0]:.3f}, {word} the {means[1]:.3f} for cross-entropy (p "
                f"= {test.p:.2g}, paired by seed, n {len(seeds)}).",
                holds=smaller,
                evidence={"gap": means[0], "cross-entropy": means[1], "p": known(test.p)},
                n=len(seeds),
            )
        )
    return claims


def _above_base(
    where: str, found: Mapping[tuple[str, str, str, str], Recovery], base: Mapping[int, float]
) -> list[Claim]:
    """In how many cells fresh heads read more from a merge than from the base as it was."""
    pairs = [
        (value, base[seed])
        for own in found.values()
        for seed, value in own.fresh.items()
        if seed in base
    ]
    if not pairs:
        return []
    count = sum(value > reference for value, reference in pairs)
    text = (
        f"{where}: a fresh head on the base itself, before any expert, reaches {_mean(base)}; a "
        f"fresh head on a merge is above that in {count} of {len(pairs)} cells."
    )
    below = [_name(key, found) for key, own in found.items() if _is_below(own, base)]
    if below:
        text += f" Its mean is not above that for {'; '.join(below)}."
    evidence = {"count": count, "of": len(pairs)}
    return [
        Claim(
            text, count == len(pairs), evidence, len(base), "cells above a fresh head on the base"
        )
    ]


def _is_below(own: Recovery, base: Mapping[int, float]) -> bool:
    gaps = [value - base[seed] for seed, value in own.fresh.items() if seed in base]
    return bool(gaps) and fmean(gaps) <= 0


def _clusters(values: Mapping[int, float]) -> dict[int, list[float | None]]:
    return {seed: [value] for seed, value in values.items()}


def _mean(values: Mapping[int, float]) -> str:
    return f"{fmean(values.values()):.3f}"


register(
    Study(
        NAME,
        "The fresh-head paper: what a new readout recovers from merged experts",
        "Experts are fine-tuned from one pretrained base, each on its own task. Merging their "
        "weights in one network costs accuracy. Is it the features that suffer, or the layer that "
        "reads them? The merged network is frozen and gets a new last layer, trained on all tasks "
        "(a fresh head). The joint network and the base itself are probed for comparison. Each "
        "cell is one seed, one partition of the classes into tasks and one way to train experts. "
        "The experts are those of study `base`, trained by the first cell of a store that needs "
        "them, and their training time counts for that cell.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="fresh heads are well above native ones for task arithmetic and TIES, on Ward and "
        "random tasks; on average, 0.77 to 0.99 of the shortfall is recovered",
        neutral=NEUTRAL,
    )
)
