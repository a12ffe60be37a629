"""Study `base`: experts fine-tuned from one pretrained base, and what joining leaves of them.

Half of the classes pretrain the base. The others are cut into tasks; an expert is fine-tuned for
each, by the usual loss or by maximum entropy with negatives from one source or another, and the
experts are joined: by their logits, or in the weights of one network.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from intarsia.composition import Composition, compose
from intarsia.composition.batchnorm import has_batchnorm, recalibrate
from intarsia.composition.merge_context import kept_samples
from intarsia.data import Data, Split, subsample
from intarsia.encoders import Encoder
from intarsia.errors import StudyError, nearest
from intarsia.measure.probe import readout_inputs
from intarsia.measure.significance import clustered
from intarsia.modules import BASES, Bank, Module, logits_of
from intarsia.specs import name_of
from intarsia.studies.base.experts import (
    JOINT,
    WAYS,
    base_classes,
    check_partitions,
    check_ways,
    class_means,
    fresh_accuracy,
    network_of,
    random_tasks,
    settings_of,
    task_data,
    ward_tasks,
)
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.shared.baselines import UNPRUNED, right
from intarsia.studies.maxent.shared.complete_merges import figure_name
from intarsia.studies.options import check_count, readable
from intarsia.studies.plans import Plan
from intarsia.studies.study import Study, register, scales, seeds_of
from intarsia.studies.tables import Entry, Spread, Table, grouped, point
from intarsia.studies.verdict import Claim, Findings, Verdict, titled
from intarsia.training import train

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
        "head": {"epochs": 10, "learning_rate": 1e-3, "weight_decay": 1e-4, "batch": 64},
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
ALONE = ("cross-entropy", "label smoothing")  # ways by which an expert sees its own classes alone
OWN, LOGITS = "own task", "logits"
ARITHMETIC, TIES = "task arithmetic", "ties"
ONE_NETWORK = (ARITHMETIC, TIES)
FRESH = "fresh head"
NORMS = {"averaged": False, "recomputed": True}  # BatchNorm statistics of a joined network
COLUMNS = {
    OWN: "own task",
    LOGITS: "logits added",
    ARITHMETIC: "task arithmetic",
    TIES: "TIES",
    FRESH: "task arithmetic, fresh head",
    JOINT: "joint",
}
PUBLIC = 10_000  # public images at most


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """One per data set, model, seed, partition, way and sparsity; and one per seed for joint."""
    preset, seeds = options["preset"], seeds_of(options["seeds"])
    partitions, ways = check_partitions(options["partitions"]), check_ways(options["ways"])
    shared: dict[str, Any] = {"tasks": check_count(options, "tasks", least=2)}
    shared |= {key: options[key] for key in ("base_fraction", "amount", "scales", "densities")}
    shared |= {"head": dict(options["head"]), "recipe": dict(options["recipe"])}
    named = check_named(options)
    shared |= {"named": named, "public": options["public"]}
    pairs = product(options["data"], options["models"]) if named else readable(options, context)
    for (data, model), seed in product(pairs, seeds):
        banks = {} if named else {"base": _base_plan(options, context, data, model, seed)}
        settings = {"data": data, "model": model, "preset": preset, "seed": seed, **shared}
        yield Cell("base", {**settings, "way": JOINT, "partition": "-", "sparsity": 0.0}, banks)
        for partition, way, sparsity in product(partitions, ways, options["sparsities"]):
            own = {"way": way, "partition": partition, "sparsity": float(sparsity)}
            yield Cell("base", {**settings, **own}, banks)


def _base_plan(
    options: Mapping[str, Any], context: StudyContext, data: str, model: str, seed: int
) -> Plan:
    """The base: one network by cross-entropy on its own part of the classes."""
    preset = options["preset"]
    sets = [base_classes(context.data(data, preset).catalogue, options["base_fraction"], seed)]
    how = {**options["recipe"], **UNPRUNED, "epochs": check_count(options, "pretraining")}
    return context.plan(data, model, sets, seed, preset=preset, objective="xe", pruned=False, **how)


def check_named(options: Mapping[str, Any]) -> bool:
    """Whether bases come by name; then they are known, and public images come from elsewhere."""
    if not options["named"]:
        return False
    for model in options["models"]:
        if name_of(model) not in BASES:
            raise StudyError(
                f"option 'models' has {model!r}, and named is true: {nearest(model, BASES)}"
            )
    if not options["public"]:
        raise StudyError("option 'public' is empty: name the data whose images are public")
    return True


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """Accuracies on the test samples of all tasks, by every way to join the experts."""
    settings, device = cell.settings, context.device
    whole = context.data(settings["data"], settings["preset"])
    base: Module | str = settings["model"]
    learned = list(whole.catalogue)
    if settings["named"]:
        other = context.data(settings["public"], settings["preset"])
        public = subsample(other.train, PUBLIC).x
    else:
        pretrained = context.bank(cell.banks["base"], pruned=False)
        if not len(pretrained):
            return {"diverged": list(pretrained.diverged)}
        base = pretrained[0]
        places = [whole.catalogue.index(name) for name in base.rewarded]
        public = subsample(whole.train.select(places), PUBLIC).x
        learned = [name for name in learned if name not in base.rewarded]
    data = task_data(whole, learned, public)
    way = settings["way"]
    sets = [learned] if way == JOINT else _tasks(settings, base, data, context)
    bank = _trained(settings, base, data, sets, context)
    if len(bank) < len(sets):
        return {"diverged": list(bank.diverged)}
    if way == JOINT:
        return {JOINT: right(bank[0].to_module().to(device), data.test)}
    return {
        **joined(settings, bank, data, context.device),
        "sets": sets,
        **sizes(bank),
    }


def _tasks(
    settings: Mapping[str, Any], base: Module | str, data: Data, context: StudyContext
) -> list[list[str]]:
    learned, count = list(data.catalogue), settings["tasks"]
    if settings["partition"] == "random":
        return random_tasks(learned, count, settings["seed"])
    if isinstance(base, str):  # the encoder of that name has the same body
        features = Encoder.of(base, data.shape)(data.train.x, context.device)
    else:
        scaled = base.scaling(data.train.x).to(context.device)
        features = readout_inputs(network_of(base, context.device), scaled)
    return ward_tasks(learned, class_means(features, data.train.y, data.classes), count)


def _trained(
    settings: Mapping[str, Any],
    base: Module | str,
    data: Data,
    sets: Sequence[Sequence[str]],
    context: StudyContext,
) -> Bank:
    sparsity = settings["sparsity"]
    pruning = {"sparsity": sparsity, "rounds": 1} if sparsity else dict(UNPRUNED)
    return train(
        data,
        base=base,
        preset=settings["preset"],
        partition=[list(task) for task in sets],
        seeds=[settings["seed"]],
        device=str(context.device),
        progress=False,
        **{**settings["recipe"], **_settings(settings), **pruning},
    )


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a way; experts that see their own classes alone train longer, for as many steps."""
    way, amount = settings["way"], settings["amount"]
    own = settings_of(way, amount)
    if way in ALONE:
        own["epochs"] = round((1 + amount) * settings["recipe"]["epochs"])
    return own


def joined(
    settings: Mapping[str, Any], bank: Bank, data: Data, device: torch.device
) -> dict[str, Any]:
    """What is left of the experts by each way to join them; settings are chosen on validation."""
    result: dict[str, Any] = {
        OWN: fmean([_own_accuracy(module, data.test, device) for module in bank]),
        LOGITS: right(compose(bank, "logits").to(device), data.test),
    }
    kinds = NORMS if has_batchnorm(bank[0].to_module()) else {"averaged": False}
    found: dict[str, dict[str, Any]] = {norms: {} for norms in kinds}
    samples = kept_samples(data, bank[0])
    scaled = bank[0].scaling(samples.x).to(device)
    for name, operators in _candidates(settings).items():
        scores = _scores(settings, bank, operators, kinds, data.validation, scaled)
        for norms, tried in scores.items():
            chosen = max(tried, key=lambda spec: tried[spec])
            merged = compose(bank, chosen, recalibrate=False).to(device)
            network = _bare(merged)
            if kinds[norms]:
                recalibrate(network, scaled)
            own = {
                "validation": tried[chosen],
                "test": right(merged, data.test),
                "chosen": chosen,
            }
            if name == ARITHMETIC:
                seed, how = settings["seed"], settings["head"]
                own[FRESH] = fresh_accuracy(network, data, device, seed, how)
            found[norms][name] = own
    return {**result, **found}


def _bare(merged: Composition) -> nn.Module:
    """The one network of a composition, which takes scaled inputs."""
    network = merged.networks[0].network
    assert isinstance(network, nn.Module)
    return network


def _candidates(settings: Mapping[str, Any]) -> dict[str, list[str]]:
    """Operators without their scale, at which their change of the base is added in full."""
    return {
        ARITHMETIC: ["task_arithmetic("],
        TIES: [f"ties(density={density!r}, " for density in settings["densities"]],
    }


def _scores(
    settings: Mapping[str, Any],
    bank: Bank,
    operators: Sequence[str],
    kinds: Mapping[str, bool],
    validation: Split,
    scaled: Tensor,
) -> dict[str, dict[str, float]]:
    """Validation accuracy by kind of statistics and operator with its scale.

    Both operators add a change to the base that is proportional to the scale, so each is made once
    and its scales are tried on the network itself, where the samples are.
    """
    scales = dict.fromkeys([*settings["scales"], 1 / len(bank)])  # the last is a mean of weights
    scores: dict[str, dict[str, float]] = {norms: {} for norms in kinds}
    base = bank[0].base
    assert base is not None
    for operator in operators:
        merged = compose(bank, f"{operator}scale=1.0)", recalibrate=False).to(scaled.device)
        network = _bare(merged)
        whole = {n: t.detach().clone() for n, t in network.state_dict().items()}
        learned = [name for name, _ in network.named_parameters()]
        starts = {name: base.state[name].to(scaled.device) for name in learned}
        for scale in scales:
            state = dict(whole)
            for name, start in starts.items():
                change = whole[name].double() - start.double()
                state[name] = (start.double() + scale * change).to(start.dtype)
            network.load_state_dict(state)
            for norms, recompute in kinds.items():  # averaged first: the state has the averages
                if recompute:
                    recalibrate(network, scaled)
                scores[norms][f"{operator}scale={scale!r})"] = right(merged, validation)
    return scores


def sizes(bank: Bank) -> dict[str, Any]:
    """Bytes of the files of an expert in the mean, and of the dense change of the whole network."""
    with TemporaryDirectory() as folder:
        files = []
        for number, module in enumerate(bank):
            path = Path(folder) / f"{number}.safetensors"
            module.save(path)
            files.append(path.stat().st_size)
    return {"file": fmean(files), "dense": 4 * bank[0].parameters}


def _own_accuracy(module: Module, split: Split, device: Any) -> float:
    """Accuracy on a task's own samples with answers among its own classes."""
    places = [module.catalogue.index(name) for name in module.rewarded]
    own = split.select(places)
    logits = logits_of(module.to_module().to(device), own.x)[:, places]
    hits = logits.argmax(1) == own.y.new_tensor([places.index(y) for y in own.y.tolist()])
    return float(hits.double().mean())


def tables(done: Sequence[Measured]) -> list[Table]:
    """The experts of every way and what each way to join them leaves; then files and sparsity."""
    result = []
    for (data, model), group in grouped(done, "data", "model").items():
        joint = Spread.of_any(cell.result[JOINT] for cell in group if JOINT in cell.result)
        experts = [cell for cell in group if LOGITS in cell.result]
        for (partition,), own in grouped(experts, "partition").items():
            dense = [cell for cell in own if not cell.settings["sparsity"]]
            name = f"{titled(data)}, {model}, {partition} tasks"
            if dense:
                result.append(_summary(name, dense, joint))
            if any(cell.settings["sparsity"] for cell in own):
                result.append(_by_sparsity(name, own))
    return result


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
    columns = ["experts trained by", COLUMNS[OWN], COLUMNS[LOGITS]]
    for operator in ONE_NETWORK:
        several = len(norms) > 1
        columns += [
            f"{COLUMNS[operator]}, {kind}" if several else COLUMNS[operator] for kind in norms
        ]
    columns += [COLUMNS[FRESH], "best one network", COLUMNS[JOINT]]
    notes = [
        "test accuracy over the classes of all tasks; own task: answers among a task's own classes",
        "scale of task arithmetic, density and scale of TIES, and the best of all one-network ways "
        "are chosen on validation samples, seed by seed",
        "a fresh head is a new linear layer on the joined network's features, trained on all "
        "tasks: it says what the readout alone explains and is no way to ship",
        "joint: one network fine-tuned from the same base on all tasks together",
        "experts that see their own classes alone train as many times longer as the others see "
        "more samples, so that all take about as many steps",
    ]
    if len(norms) > 1:
        notes.append(
            "averaged, recomputed: BatchNorm statistics of the joined network; the fresh head "
            "reads the recomputed one"
        )
    return Table(f"{name}: experts of one base, joined", columns, rows, notes)


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
    columns = ["experts trained by", "sparsity of changes", COLUMNS[OWN], COLUMNS[LOGITS]]
    columns += ["best one network", "file, KiB", "times smaller than dense"]
    notes = ["dense: four bytes for each parameter of the network"]
    return Table(f"{name}: sparse changes", columns, rows, notes)


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """What each way to train experts leaves after joining, by tasks."""
    from intarsia.plots import bar_panels

    result = {}
    for (data, model), group in grouped(done, "data", "model").items():
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
            result[figure_name("base", data, model)] = bar_panels(
                panels, title=title, y="accuracy", share_y=True, bounds=(0.0, 1.0)
            )
    return result


def verdict(findings: Findings) -> Verdict:
    """Whether maximum entropy keeps more of the experts than the usual loss, paired by seed."""
    claims, lines = [], []
    for (data, model, partition), group in grouped(
        [c for c in findings.cells if LOGITS in c.result and not c.settings["sparsity"]],
        "data", "model", "partition",
    ).items():  # fmt: skip
        by_way = {way: own for (way,), own in grouped(group, "way").items()}
        usual = by_way.get("cross-entropy")
        if usual is None:
            continue
        for way in [name for name in by_way if name.startswith("ME")]:
            claim = _compared(
                f"{titled(data)}, {model}, {partition} tasks", way, by_way[way], usual
            )
            claims.append(claim)
            lines.append(claim.short)
    return Verdict("; ".join(lines) or "nothing to compare yet", claims)


def _compared(where: str, way: str, own: Sequence[Measured], usual: Sequence[Measured]) -> Claim:
    """Logits added and the best one network, against experts trained by cross-entropy."""
    texts, holds, evidence, tested = [], [], {}, 0
    for kind, words in ((LOGITS, "logits added"), ("best", "the best one network")):
        ours, theirs = (
            {cell.settings["seed"]: [value_of(cell, kind)] for cell in cells_}
            for cells_ in (own, usual)
        )
        test = clustered(ours, theirs)
        means = [Spread.of(v for row in rows.values() for v in row) for rows in (ours, theirs)]
        sure = test is not None and test.above()
        holds.append(sure)
        tested = min(means[0].n, means[1].n)
        p = "" if test is None else f", p = {test.p:.2g} paired by seed"
        texts.append(f"{words} {means[0].mean:.3f} against {means[1].mean:.3f}{p}")
        evidence[kind] = {"ours": means[0].mean, "cross-entropy": means[1].mean}
    text = f"{where}: experts trained by {way} give {' and '.join(texts)}."
    short = f"{where}: {way} {evidence[LOGITS]['ours']:.3f} (logits), cross-entropy "
    short += f"{evidence[LOGITS]['cross-entropy']:.3f}"
    return Claim(
        text, holds=all(holds) if tested > 1 else None, evidence=evidence, n=tested, short=short
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
        "joined without training. What does the loss they were trained with change? A cell is one "
        "seed, one way to cut classes into tasks and one way to train experts.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="nothing; fine-tuned experts of a pretrained network, as they are usually merged",
        neutral={"named": False, "public": ""},
    )
)
