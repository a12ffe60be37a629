"""Study `base`: experts fine-tuned from one pretrained base, and what joining leaves of them.

Half of the classes pretrain the base. The others are cut into tasks; an expert is fine-tuned for
each, by the usual loss or by maximum entropy with negatives from one source or another, and the
experts are joined: by their logits, or in the weights of one network.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import isfinite
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from intarsia.composition import OPERATORS
from intarsia.data import Data
from intarsia.measure.probe import FRESH_HEAD, HeadTraining
from intarsia.measure.significance import clustered
from intarsia.modules import Bank
from intarsia.studies.base.expert_banks import expert_bank, expert_source
from intarsia.studies.base.expert_merges import (
    ARITHMETIC,
    NORMS,
    TIES,
    ExpertLogits,
    ExpertMerges,
    check_compared,
    check_merging,
    fresh_heads,
)
from intarsia.studies.base.experts import (
    JOINT,
    NEUTRAL,
    WAYS,
    check_partitions,
    check_ways,
    expert_groups,
)
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.shared.baselines import right
from intarsia.studies.maxent.shared.complete_merges import figure_name
from intarsia.studies.options import check_count, check_head, check_within
from intarsia.studies.study import Study, register, scales
from intarsia.studies.tables import Entry, Spread, Table, accuracy_bars, grouped, point
from intarsia.studies.verdict import Claim, Findings, Verdict
from intarsia.studies.wording import titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RECIPE = {
    "batch": 128,
    "learning_rate": 1e-3,
    "schedule": "cosine",
    "select": "last",
    "temperature": 1.0,
    "augment": "crop(4) + flip",
}
SCALES = scales(
    paper={
        "data": ["cifar100"],
        "models": ["resnet18(32)"],
        "preset": "paper",
        "partitions": ["random", "ward"],
        "ways": list(WAYS),
        "tasks": 5,
        "base_fraction": 0.5,  # of the classes, which pretrain the base
        "named": False,  # whether models are bases by name, pretrained elsewhere: all classes learn
        "public": "",  # data whose images are public where the base is named
        "amount": 4.0,  # public images for each of a task's own
        "pretraining": 30,  # epochs
        "sparsities": [0.0],  # of the changes; those above 0 are pruned in one round
        "scales": [0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0],  # of task vectors, chosen on validation
        "densities": [0.1, 0.3, 0.5],  # of TIES, likewise
        "selection": 0,  # validation samples to choose on, evenly spaced; 0: all
        "operators": [],  # to compare besides, by their best settings; or "all"
        "statistics": 0,  # validation samples that those of them see that look at samples; 0: 1000
        "head": {"epochs": 10, "learning_rate": 1e-3, "weight_decay": 1e-4, "batch": 64},
        "keep_banks": True,  # so that experts are trained once for all studies that measure them
        "recipe": {**RECIPE, "epochs": 10, "precision": "bf16"},
    },
    small={
        "models": ["mlp(32)"],
        "partitions": ["random"],
        "tasks": 3,
        "base_fraction": 0.4,
        "pretraining": 6,
        "sparsities": [0.0],
        "scales": [0.3, 1.0],
        "densities": [0.5],
        "head": {"epochs": 3, "learning_rate": 1e-2, "weight_decay": 1e-4, "batch": 64},
        "recipe": {**RECIPE, "augment": "none", "learning_rate": 1e-2, "epochs": 6},
    },
)
OWN, LOGITS = "own task", "logits"
ONE_NETWORK = (ARITHMETIC, TIES)
FRESH = "fresh head"
COMPARED = "compared"
COLUMNS = {
    OWN: "own task",
    LOGITS: "logits added",
    ARITHMETIC: "task arithmetic",
    TIES: "TIES",
    FRESH: "task arithmetic, fresh head",
    JOINT: "joint",
}


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """One per data set, model, seed, partition, way and sparsity; and one per seed for joint."""
    partitions, ways = check_partitions(options["partitions"]), check_ways(options["ways"])
    check_within("sparsities", options["sparsities"], 0, 1)
    own = check_merging(options) | {"head": check_head(options["head"])}
    own |= {"operators": check_compared(options)}
    own |= {"statistics": check_count(options, "statistics", least=0)}
    for group in expert_groups(options, context):
        yield group.cell("base", JOINT, **own)
        for partition, way, sparsity in product(partitions, ways, options["sparsities"]):
            yield group.cell("base", way, partition, sparsity, **own)


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """Accuracies on the test samples of all tasks, by every way to join the experts."""
    source = expert_source(cell, context)
    if source is None:
        return {"diverged": list(context.bank(cell.banks["base"], pruned=False).diverged)}
    bank, data = expert_bank(cell.settings, context, source), source.measured
    if bank.diverged:
        return {"diverged": list(bank.diverged)}
    if cell.settings["way"] == JOINT:
        return {JOINT: right(bank[0].to_module().to(context.device), data.test)}
    return {
        **joined(cell.settings, bank, data),
        "sets": [list(module.rewarded) for module in bank],
        "contract": FRESH_HEAD.to_json(),  # of the fresh head
        **sizes(bank),
    }


def joined(settings: Mapping[str, Any], bank: Bank, data: Data) -> dict[str, Any]:
    """What is left of the experts by each way to join them; settings are chosen on validation.

    Everything is measured where the data lie.
    """
    logits = ExpertLogits.of(bank, data.test, data.test.x.device)
    merges = ExpertMerges(bank, data, settings["statistics"])
    found: dict[str, dict[str, Any]] = {norms: {} for norms in merges.kinds}
    features: dict[str, Any] = {}
    for operator in ONE_NETWORK:
        for best in merges.search(operator, settings):
            merges.put(best.change, best.norms)
            if operator == ARITHMETIC:
                test, features[best.norms] = merges.probed()
            else:
                test = right(merges.classifier, data.test)
            own = {"validation": best.validation, "test": test, "chosen": best.spec}
            found[best.norms][operator] = own
    training = HeadTraining(**settings["head"], initial="zeros")
    heads = fresh_heads(list(features.values()), data, training, settings["seed"])
    for norms, head in zip(features, heads, strict=True):
        found[norms][ARITHMETIC][FRESH] = head.test
    own_tasks = logits.own_accuracies()
    result = {OWN: fmean(own_tasks), LOGITS: logits.accuracy(LOGITS), **found}
    if operators := settings["operators"]:
        result[COMPARED] = {name: merges.accuracies(name, settings) for name in operators}
    return result


def sizes(bank: Bank) -> dict[str, Any]:
    """Bytes of the files of an expert in the mean, and of the dense change of the whole network."""
    with TemporaryDirectory() as folder:
        files = []
        for number, module in enumerate(bank):
            path = Path(folder) / f"{number}.safetensors"
            module.save(path)
            files.append(path.stat().st_size)
    return {"file": fmean(files), "dense": 4 * bank[0].parameters}


def tables(done: Sequence[Measured]) -> list[Table]:
    """The experts of every way and what each way to join them leaves; then files and sparsity."""
    result = []
    for (data, model), group in grouped(done, "data", "model").items():
        once = _once(group)
        joint = Spread.of_any(cell.result[JOINT] for cell in once if JOINT in cell.result)
        experts = [cell for cell in group if LOGITS in cell.result]
        for (partition,), every in grouped(experts, "partition").items():
            own = [cell for cell in every if cell in once]
            dense = [cell for cell in own if not cell.settings["sparsity"]]
            name = f"{titled(data)}, {model}, {partition} tasks"
            if dense:
                result.append(_summary(name, dense, joint))
            result += _all_operators(name, [cell for cell in every if COMPARED in cell.result])
            if any(cell.settings["sparsity"] for cell in own):
                result.append(_by_sparsity(name, own))
    return result


def _once(done: Sequence[Measured]) -> list[Measured]:
    """One cell for each seed and way: where operators were compared besides, experts are the same.

    Those without a comparison come first, since others may have chosen on fewer samples.
    """
    chosen: dict[tuple[Any, ...], Measured] = {}
    for cell in sorted(done, key=lambda cell: COMPARED in cell.result):
        keys = ("data", "model", "way", "partition", "sparsity", "seed", "amount", "recipe")
        chosen.setdefault(tuple(str(cell.settings.get(key)) for key in keys), cell)
    kept = {cell.key for cell in chosen.values()}
    return [cell for cell in done if cell.key in kept]


def _summary(name: str, group: Sequence[Measured], joint: Spread | None) -> Table:
    ways = grouped(group, "way")
    norms = [kind for kind in NORMS if any(kind in cell.result for cell in group)]
    rows: list[list[Entry]] = []
    for (way,), own in ways.items():
        row: list[Entry] = [way, _spread(own, OWN), _spread(own, LOGITS)]
        for operator in ONE_NETWORK:
            row += [Spread.of(_values(own, kind, operator, "test")) for kind in norms]
        row += [
            Spread.of(_values(own, norms[-1], ARITHMETIC, FRESH)),
            Spread.of(best_of_one_network(cell) for cell in own),
            joint,
        ]
        rows.append(row)
    columns = ["expert training", COLUMNS[OWN], COLUMNS[LOGITS]]
    for operator in ONE_NETWORK:
        several = len(norms) > 1
        columns += [
            f"{COLUMNS[operator]}, {kind}" if several else COLUMNS[operator] for kind in norms
        ]
    columns += [COLUMNS[FRESH], "best single network", COLUMNS[JOINT]]
    notes = [
        "test accuracy over the classes of all tasks; own task: each expert on its own task, with "
        "predictions among its own classes",
        "the scale of task arithmetic, the density and scale of TIES, and the best single network "
        "of all merges are chosen on validation samples, seed by seed",
        "a fresh head is a new linear layer on the features of the joined network, trained on all "
        "tasks, and not a method to deploy",
        "joint: one network fine-tuned from the same base on all tasks together, for as many steps "
        "as one expert that sees all tasks, not as many as all experts together",
        "other experts take steps in proportion to their own samples: as many as joint where "
        f"these are one in {1 + group[0].settings['amount']:g} of all",
    ]
    if len(norms) > 1:
        notes.append(
            "averaged, recomputed: BatchNorm statistics of the joined network; the fresh head "
            "uses the recomputed ones"
        )
    notes += [f"{label}: {text}" for label, text in FRESH_HEAD.labelled().items()]
    title = f"{name}: experts of one base, joined"
    return Table(title, columns, rows, notes, statements=FRESH_HEAD.labelled())


def _all_operators(name: str, group: Sequence[Measured]) -> list[Table]:
    """Every operator that was compared, by the ways that experts were trained, the best first."""
    ways = {way: own for (way,), own in grouped(group, "way").items()}
    specs = dict.fromkeys(spec for cell in group for spec in cell.result.get(COMPARED, {}))
    spreads = {
        spec: [Spread.of(_best_compared(cell, spec) for cell in own) for own in ways.values()]
        for spec in specs
    }
    if not spreads:
        return []
    places = [_places(column) for column in zip(*spreads.values(), strict=True)]
    rows: list[list[Entry]] = []
    for number, (spec, row) in enumerate(spreads.items()):
        entries: list[Entry] = [spec]
        for column, spread in zip(places, row, strict=True):
            entries += [spread, column[number]]
        rows.append(entries)
    rows.sort(key=lambda entries: entries[2])  # type: ignore[arg-type,return-value]
    columns = ["operator", *(label for way in ways for label in (way, f"rank, {way}"))]
    notes = [
        "test accuracy over the classes of all tasks; settings, and whether BatchNorm statistics "
        "are averaged or recomputed, are chosen on validation samples, seed by seed",
        "rank: by the mean over seeds, 1 is the best",
        *_rank_correlations(list(ways), list(spreads.values())),
    ]
    return [Table(f"{name}: all operators", columns, rows, notes)]


def _rank_correlations(ways: Sequence[str], spreads: Sequence[Sequence[Spread]]) -> Iterator[str]:
    """How alike the operators are ordered by the first way to train experts and by the others."""
    first, *others = ([spread.mean for spread in column] for column in zip(*spreads, strict=True))
    for way, means in zip(ways[1:], others, strict=True):
        correlation, count = _rank_correlation(first, means)
        if correlation is not None:
            yield (
                f"Spearman's correlation of the ranks for {ways[0]} and for {way}: "
                f"{correlation:.2f}, of {count} operators"
            )


def _rank_correlation(one: Sequence[float], other: Sequence[float]) -> tuple[float | None, int]:
    """Spearman's, over pairs of numbers, and how many these are; None if all of them are alike."""
    from scipy.stats import spearmanr

    both = [pair for pair in zip(one, other, strict=True) if all(map(isfinite, pair))]
    if min((len(set(column)) for column in zip(*both, strict=True)), default=0) < 2:
        return None, len(both)
    return float(spearmanr(both).statistic), len(both)


def _places(column: Sequence[Spread]) -> list[int]:
    means = [spread.mean for spread in column]
    return [1 + sum(other > mean for other in means) for mean in means]


def _best_compared(cell: Measured, spec: str) -> float | None:
    """Test accuracy by the BatchNorm statistics that are best on validation samples."""
    by_norms = cell.result.get(COMPARED, {}).get(spec, {})
    best = max(by_norms.values(), key=lambda own: own["validation"], default=None)
    return None if best is None else best["test"]


def _by_sparsity(name: str, group: Sequence[Measured]) -> Table:
    rows: list[list[Entry]] = []
    for (way, sparsity), own in grouped(group, "way", "sparsity").items():
        size = Spread.of(cell.result["file"] / 1024 for cell in own)
        smaller = Spread.of(cell.result["dense"] / cell.result["file"] for cell in own)
        rows.append(
            [
                way,
                sparsity,
                *(_spread(own, OWN), _spread(own, LOGITS)),
                Spread.of(best_of_one_network(cell) for cell in own),
                *(size, smaller),
            ]
        )
    columns = ["expert training", "sparsity of changes", COLUMNS[OWN], COLUMNS[LOGITS]]
    columns += ["best single network", "file, KiB", "times smaller than dense"]
    notes = ["dense: four bytes for each parameter of the network"]
    return Table(f"{name}: sparse changes", columns, rows, notes)


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """What each way to train experts leaves after joining, by tasks."""
    result = {}
    for (data, model), group in grouped(_once(done), "data", "model").items():
        experts = [
            cell for cell in group if LOGITS in cell.result and not cell.settings["sparsity"]
        ]
        panels = {}
        for (partition,), own in grouped(experts, "partition").items():
            panels[f"{partition} tasks"] = {
                COLUMNS[kind]: {
                    way: point(values)
                    for (way,), cells_ in grouped(own, "way").items()
                    if (values := [value_of(cell, kind) for cell in cells_])
                }
                for kind in (OWN, LOGITS, ARITHMETIC)
            }
        if panels:
            title = f"{titled(data)}, {model}: experts of one base, joined"
            result[figure_name("base", data, model)] = accuracy_bars(panels, title)
    return result


def verdict(findings: Findings) -> Verdict:
    """Whether maximum entropy keeps more of the experts than the usual loss, paired by seed.

    The line is of the first network alone.
    """
    claims, lines = [], []
    for number, (network, every) in enumerate(findings.by_network()):
        dense = [c for c in every if LOGITS in c.result and not c.settings["sparsity"]]
        for (partition,), group in grouped(dense, "partition").items():
            where = f"{network}, {partition} tasks"
            by_way = {way: own for (way,), own in grouped(_once(group), "way").items()}
            usual = by_way.get("cross-entropy", [])
            for way in [name for name in by_way if usual and name.startswith("ME")]:
                claim = _compared(where, way, by_way[way], usual)
                claims.append(claim)
                ours, theirs = claim.evidence[LOGITS].values()
                line = f"{where}: {way} {ours:.3f}, cross-entropy {theirs:.3f} (logits added)"
                lines += [line] if number == 0 else []
            claims += _best_operators(where, [cell for cell in group if COMPARED in cell.result])
    return Verdict("; ".join(lines) or "nothing to compare yet", claims)


def _compared(where: str, way: str, own: Sequence[Measured], usual: Sequence[Measured]) -> Claim:
    """Logits added and the best single network, against experts trained by cross-entropy."""
    texts, holds, evidence, tested = [], [], {}, 0
    for kind, words in ((LOGITS, "with logits added"), ("best", "as the best single network")):
        ours, theirs = (
            {cell.settings["seed"]: [value_of(cell, kind)] for cell in cells_}
            for cells_ in (own, usual)
        )
        test = clustered(ours, theirs)
        means = [Spread.of(v for row in rows.values() for v in row) for rows in (ours, theirs)]
        sure = test is not None and test.above()
        holds.append(sure)
        tested = min(means[0].n, means[1].n)
        p = "" if test is None else f" (p = {test.p:.2g}, paired by seed)"
        texts.append(f"{means[0].mean:.3f} against {means[1].mean:.3f} {words}{p}")
        evidence[kind] = {"ours": means[0].mean, "cross-entropy": means[1].mean}
    text = (
        f"{where}: accuracy of experts trained by {way} above that of experts trained by "
        f"cross-entropy: {' and '.join(texts)}."
    )
    return Claim(text, holds=all(holds) if tested > 1 else None, evidence=evidence, n=tested)


def _best_operators(where: str, group: Sequence[Measured]) -> Iterator[Claim]:
    """Which operators are best, and whether experts of another training put them in another order.

    Nobody claimed anything, so the claims neither hold nor fail.
    """
    by_way = {
        way: {
            spec: Spread.of(_best_compared(cell, spec) for cell in own).mean
            for spec in own[0].result[COMPARED]
        }
        for (way,), own in grouped(group, "way").items()
    }
    usual = by_way.pop("cross-entropy", {})
    for way, means in by_way.items():
        shared = [s for s in usual if s in means and isfinite(usual[s]) and isfinite(means[s])]
        both = ([own[spec] for spec in shared] for own in (usual, means))
        correlation, count = _rank_correlation(*both)
        if correlation is None:
            continue
        evidence: dict[str, Any] = {"correlation": correlation, "operators": count}
        texts = []
        for on, words in (("logits", "on logits"), ("weights", "in the weights of one network")):
            specs = [spec for spec in shared if OPERATORS.entry(spec).on == on]
            if specs:
                best = [max(specs, key=own.__getitem__) for own in (usual, means)]
                named = [
                    f"{spec} ({own[spec]:.3f})"
                    for spec, own in zip(best, (usual, means), strict=True)
                ]
                evidence[on] = best
                texts.append(f"{words}, {' and '.join(named)}")
        yield Claim(
            f"{where}, the best of {count} operators for experts trained by cross-entropy and for "
            f"those trained by {way}: {'; '.join(texts)}. Spearman's correlation of the ranks is "
            f"{correlation:.2f}.",
            evidence=evidence,
            n=min(len(own) for own in grouped(group, "way").values()),
        )


def best_of_one_network(cell: Measured) -> float | None:
    """Test accuracy of the one-network way that is best on validation samples."""
    found = [way for kind in NORMS for way in cell.result.get(kind, {}).values()]
    best = max(found, key=lambda way: way["validation"], default=None)
    return None if best is None else best["test"]


def value_of(cell: Measured, kind: str) -> float | None:
    if kind == "best":
        return best_of_one_network(cell)
    if kind in ONE_NETWORK:
        norms = [name for name in NORMS if name in cell.result]
        return cell.result[norms[-1]][kind]["test"] if norms else None
    return cell.result.get(kind)


def _values(group: Sequence[Measured], norms: str, operator: str, key: str) -> list[float | None]:
    return [cell.result.get(norms, {}).get(operator, {}).get(key) for cell in group]


def _spread(group: Sequence[Measured], key: str) -> Spread:
    return Spread.of(cell.result.get(key) for cell in group)


register(
    Study(
        "base",
        "Beyond the paper: experts of one pretrained base",
        "Several experts are fine-tuned from one pretrained base, each on its own classes, and "
        "joined without training. How does the training loss affect the result? Each cell is one "
        "seed, one partition of the classes into tasks and one way to train experts. Experts are "
        "trained by the first cell of a store that needs them, in whichever study, and their "
        "training time counts for that cell.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="nothing; fine-tuned experts of a pretrained network, the usual setting of model "
        "merging",
        neutral=NEUTRAL,
    )
)
