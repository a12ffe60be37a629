"""Study `readout_of_modules`: what a new readout recovers of joined maximum-entropy modules.

One module per class, joined in the weights of one network by one way or another, and probed with
fresh heads. Probed beside them are what the numbers have to be read against: the joint network, one
module alone, and the network before any training.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from torch import nn

from intarsia.composition import compose
from intarsia.composition.batchnorm import has_batchnorm, recalibrate
from intarsia.composition.merge_context import kept_samples
from intarsia.data import Data
from intarsia.errors import StudyError
from intarsia.measure.probe import FRESH_HEAD, fresh_head
from intarsia.measure.significance import LEVEL, TTest, clustered, holm
from intarsia.modules import Bank, Module
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.shared.baselines import UNPRUNED, right, untrained
from intarsia.studies.maxent.shared.complete_merges import figure_name
from intarsia.studies.options import check_count, check_head, check_names, readable
from intarsia.studies.plans import Plan
from intarsia.studies.scale.claims import diverged_banks
from intarsia.studies.scale.merged_weights import MergeCandidate, Room, merged_networks
from intarsia.studies.scale.recipes import RECIPE
from intarsia.studies.study import Study, register, scales, seeds_of
from intarsia.studies.tables import Spread, Table, accuracy_bars, finite, grouped, known, point
from intarsia.studies.verdict import Claim, Findings, Verdict
from intarsia.studies.wording import listed, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "readout_of_modules"
SUM, MEAN, ALIGNED, TIES, TERRITORY = "sum", "mean", "aligned sum", "ties", "territory"
LOGITS, JOINT, ALONE, UNTRAINED = "logits", "joint", "one module", "untrained"
MERGES = (SUM, MEAN, ALIGNED, TIES, TERRITORY)  # in the weights of one network
LABELS = {
    SUM: "weights added",
    MEAN: "weights averaged",
    ALIGNED: "aligned weights added",
    TIES: "TIES",
    TERRITORY: "territories added",
    LOGITS: "logits added",
    JOINT: "joint network",
    ALONE: "one module alone",
    UNTRAINED: "untrained network",
}
NATIVE, FRESH = "native", "fresh"
HALF = 0.5  # of the shortfall, above which most of it is the readout's
REFERENCES = {JOINT: "the joint network", ALONE: "one module", UNTRAINED: "an untrained network"}
# What it means where merges have less than a reference, or no more than one that learned nothing.
TAILS = {
    ALONE: "For those below, a linear head reads less from the merge than from one of its modules: "
    "the features themselves are harder to read, whatever the layer that reads them",
    UNTRAINED: "For the others, these seeds do not show that a head reads more from the merge than "
    "from features that have learned nothing",
}
_SCALES = scales(
    paper={
        "models": ["shallow"],
        "ways": list(LABELS),
        "align": ["weights"],
        "densities": [0.2, 1.0],  # of TIES, chosen on validation samples
        "scales": [1.0],  # likewise
        "heads": 3,  # fresh ones for each network
        "head": {"epochs": 10, "learning_rate": 1e-3, "weight_decay": 1e-4, "batch": 64},
    },
    small={
        "recipe": {"epochs": 4, "sparsity": 0.8, "learning_rate": 1e-2},
        "heads": 2,
        "head": {"epochs": 4, "learning_rate": 1e-2, "weight_decay": 1e-4, "batch": 64},
    },
)
# CIFAR-10 as study `cifar10` has it: modules with BatchNorm, which are not pruned.
CIFAR10 = {
    "data": ["cifar10"],
    "data_options": {"validation": 0.05},
    "models": ["resnet18(16)"],
    "seeds": 3,
    "recipe": {**RECIPE, **UNPRUNED},
}
SCALES = {
    "paper": _SCALES["paper"],
    "cifar10": {**_SCALES["paper"], **CIFAR10},
    "small": _SCALES["small"],
}


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """One per data set, model, seed and way.

    Territories fall out where a layer has fewer units than there are modules.
    """
    ways = check_names(options, "ways", LABELS)
    probe = {"heads": check_count(options, "heads"), "head": check_head(options["head"])}
    for key in (key for way in ways for key in _needed(way)):
        if not options[key]:
            raise StudyError(f"option {key!r} is empty: give values to choose from, or other ways")
    merging = {key: list(options[key]) for key in ("align", "densities", "scales")}
    for data, model in readable(options, context):
        there = context.data(data, options["preset"])
        for seed in seeds_of(options["seeds"]):
            settings = {"data": data, "model": model, "preset": options["preset"], "seed": seed}
            modules, territory, joint = _plans(options, context, settings, there)
            room = Room.of(modules, there.shape, there.classes)
            for way in ways:
                own = {**settings, "way": way, **({} if way == LOGITS else probe)}
                own |= {key: merging[key] for key in _needed(way)}
                bank = territory if way == TERRITORY else modules
                if way != TERRITORY or room.units >= there.classes:
                    yield Cell(NAME, own, {"modules": bank, "joint": joint})


def _plans(
    options: Mapping[str, Any], context: StudyContext, settings: Mapping[str, Any], data: Data
) -> tuple[Plan, Plan, Plan]:
    """Modules, modules with territories and the joint network, by one recipe.

    All train for as many epochs, over all rounds.
    """

    def plan(sets: Sequence[Sequence[str]] | None, **recipe: Any) -> Plan:
        preset, seed = settings["preset"], settings["seed"]
        return context.plan(
            settings["data"], settings["model"], sets, seed, preset=preset, **recipe
        )

    modules = plan(None, **options["recipe"])
    whole = {**options["recipe"], **UNPRUNED, "epochs": modules.epochs}
    whole.pop("pruning_epochs", None)
    territory = plan(None, **{**whole, "pruning": TERRITORY})
    joint = plan([tuple(data.catalogue)], objective="xe", **whole)
    return modules, territory, joint


def _needed(way: str) -> tuple[str, ...]:
    """The options that say how modules are joined this way."""
    return {ALIGNED: ("align",), TIES: ("densities", "scales")}.get(way, ())


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """Test accuracies: native, with each fresh head, and of the joint network; with the contract.

    Of modules joined by their logits, which have no readout in common, there is the native one.
    """
    settings, device = cell.settings, context.device
    data = context.data(settings["data"], settings["preset"])
    bank, joint = (context.bank(cell.banks[role]) for role in ("modules", "joint"))
    lost = [*bank.diverged, *joint.diverged]
    if lost:
        return {"diverged": lost}
    reference = right(joint[0].to_module().to(device), data.test)
    if settings["way"] == LOGITS:
        added = compose(bank, LOGITS).to(device)
        return {NATIVE: right(added, data.test), JOINT: reference}
    network, chosen = probed_network(cell, bank, joint[0], data, context)
    first = settings["seed"] * settings["heads"]
    probe = fresh_head(
        network,
        data,
        joint=reference,
        seeds=range(first, first + settings["heads"]),
        device=str(device),
        **settings["head"],
    )
    return {
        NATIVE: probe.native.mean,
        FRESH: list(probe.fresh.values),
        JOINT: reference,
        "epochs": list(probe.epochs),
        **({"chosen": chosen} if chosen else {}),
        "contract": probe.contract.to_json(),
    }


def probed_network(
    cell: Cell, bank: Bank, joint: Module, data: Data, context: StudyContext
) -> tuple[nn.Module, str]:
    """The network to probe, and what validation samples chose for it, where there was a choice."""
    way, seed = cell.settings["way"], cell.settings["seed"]
    if way == JOINT:
        return joint.to_module().to(context.device), ""
    if way == ALONE:
        return bank[seed % len(bank)].to_module().to(context.device), ""
    if way == UNTRAINED:
        origin = untrained(cell.banks["modules"].recipe, data).to(context.device)
        if has_batchnorm(origin):
            seen = kept_samples(data, bank[0]).x
            recalibrate(origin.network, data.scaling(seen).to(context.device))
        return origin, ""
    if way == TERRITORY:  # every unit is one module's, and so are its BatchNorm statistics
        return compose(bank, SUM).to(context.device), ""
    candidates = _candidates(way, cell.settings)
    tried = []
    for candidate in candidates:
        *_, (_, network, _) = merged_networks(bank, candidate, data, context.device)
        score = right(network, data.validation) if len(candidates) > 1 else 0.0
        tried.append((score, network, str(candidate)))
    _, network, chosen = max(tried, key=lambda one: one[0])
    return network, chosen if len(candidates) > 1 else ""


def _candidates(way: str, settings: Mapping[str, Any]) -> list[MergeCandidate]:
    if way == ALIGNED:
        return [MergeCandidate(SUM, how) for how in settings["align"]]
    if way == TIES:
        grid = product(settings["densities"], settings["scales"])
        return [MergeCandidate(f"ties(density={d!r}, scale={s!r})") for d, s in grid]
    return [MergeCandidate(way)]


@dataclass(frozen=True)
class Probed:
    """What the cells of one network and way say, one value for each seed; None where missing."""

    native: Mapping[int, float]
    fresh: Mapping[int, float | None]  # the mean over heads
    joint: Mapping[int, float]
    heads: Sequence[float]  # deviations over the heads of a seed

    @classmethod
    def of(cls, group: Sequence[Measured]) -> "Probed":
        done = {cell.settings["seed"]: cell.result for cell in group if NATIVE in cell.result}
        heads = {seed: result.get(FRESH) for seed, result in done.items()}
        return cls(
            {seed: result[NATIVE] for seed, result in done.items()},
            {seed: fmean(values) if values else None for seed, values in heads.items()},
            {seed: result[JOINT] for seed, result in done.items()},
            [stdev(values) for values in heads.values() if values and len(values) > 1],
        )

    @property
    def gaps(self) -> list[float]:
        """fresh - native, seed by seed."""
        return [f - self.native[seed] for seed, f in self.fresh.items() if f is not None]

    @property
    def recovered(self) -> list[float]:
        """(fresh - native) / (joint - native), for seeds whose native is below joint."""
        return [
            (fresh - self.native[seed]) / (self.joint[seed] - self.native[seed])
            for seed, fresh in self.fresh.items()
            if fresh is not None and self.joint[seed] > self.native[seed]
        ]

    def test(self) -> TTest | None:
        """Whether fresh is above native, paired by seed."""
        return clustered(_as_clusters(self.fresh), _as_clusters(self.native))


def probed_ways(group: Sequence[Measured]) -> dict[str, Probed]:
    """The ways of one network that are measured, in the order of tables."""
    by_way = {way: Probed.of(own) for (way,), own in grouped(group, "way").items()}
    return {way: by_way[way] for way in LABELS if way in by_way and by_way[way].native}


def tables(done: Sequence[Measured]) -> list[Table]:
    """A row for each way, with the contract of the probe below."""
    result = []
    for (data, model), group in grouped(done, "data", "model").items():
        ways = probed_ways(group)
        rows = [
            [
                LABELS[way],
                Spread.of(own.native.values()),
                Spread.of_any(own.fresh.values()),
                fmean(own.heads) if own.heads else None,
                Spread.of_any(own.gaps),
                Spread.of(own.joint.values()),
                None if way == JOINT else Spread.of_any(own.recovered),
            ]
            for way, own in ways.items()
        ]
        columns = [
            "network",
            "native head",
            "fresh head",
            "sd over heads",
            "fresh - native",
            "joint",
            "recovered",
        ]
        title = f"{titled(data)}, {model}: one module per class, joined and probed"
        notes = _notes(group)
        result.append(Table(title, columns, rows, notes, statements=FRESH_HEAD.labelled()))
    return result


def _notes(group: Sequence[Measured]) -> list[str]:
    heads = {cell.settings["heads"] for cell in group if "heads" in cell.settings}
    number = f"{heads.pop()} heads" if len(heads) == 1 else "heads"
    contract = [f"{label}: {text}" for label, text in FRESH_HEAD.labelled().items()]
    return [
        "accuracy on test samples, with predictions among all classes; spreads are over seeds of "
        f"modules; fresh head is the mean of {number} on each network, followed by the standard "
        "deviation over them",
        "recovered: (fresh - native) / (joint - native), seed by seed, where native is below "
        "joint; the shortfall is joint - native",
        "joint: one network trained on all classes by cross-entropy; it and the modules with "
        "territories are not pruned and train for as many epochs as a module in all its rounds",
        "one module alone and the untrained network are not merges: they show what a fresh head "
        "reads from features that were not merged",
        "in networks without biases, averaged weights give the features of added weights times a "
        "constant and so the same linear readouts: differences between their fresh heads come from "
        "the training of the heads",
        "settings of TIES and of alignment are chosen on validation samples; BatchNorm statistics "
        "of merges, except territories, and of the untrained network are recomputed from these",
        *_unfinished(group),
        *contract,
    ]


def _unfinished(group: Sequence[Measured]) -> list[str]:
    return unfinished_note(
        (epoch, cell.settings["head"]["epochs"])
        for cell in group
        for epoch in cell.result.get("epochs", ())
    )


def unfinished_note(kept: Iterable[tuple[int, int | None]]) -> list[str]:
    """How many heads were still getting better when their training ended, by the epoch kept of each
    and how many there were; nothing where none was."""
    last = [epoch == epochs for epoch, epochs in kept]
    if not any(last):
        return []
    return [
        f"for {sum(last)} of {len(last)} heads, the last epoch was the best on validation samples: "
        "longer training may improve them"
    ]


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """All ways, native and then with fresh heads; one figure per data set."""
    result = {}
    for (data,), group in grouped(done, "data").items():
        panels: dict[str, Any] = {}
        for (model,), own in grouped(group, "model").items():
            if ways := probed_ways(own):
                panels[model] = {
                    NATIVE: {LABELS[way]: point(one.native.values()) for way, one in ways.items()},
                    FRESH: {LABELS[way]: point(one.fresh.values()) for way, one in ways.items()},
                }
        if panels:
            title = f"{titled(data)}: accuracy of joined modules with native and fresh heads"
            result[figure_name(NAME, data)] = accuracy_bars(panels, title)
    return result


def verdict(findings: Findings) -> Verdict:
    """For each data set and operator: whether fresh is above native, and what is recovered."""
    claims: list[Claim] = []
    lines = []
    for where, group in findings.by_network():
        ways = probed_ways(group)
        merges = {way: ways[way] for way in MERGES if way in ways and ways[way].gaps}
        claims += [*_in_short(where, ways, merges), *_recovered_claims(where, merges)]
        claims += _references(where, ways, merges)
        if merges:
            words = [f"{way} {_short(own)}" for way, own in merges.items()]
            lines.append(f"{where}: {', '.join(words)}")
    failed = diverged_banks([cell for cells_ in findings.by_label.values() for cell in cells_])
    return Verdict("; ".join(lines) or "no merge is probed yet", claims, failed)


def _short(own: Probed) -> str:
    """`0.806 native, 0.951 fresh (0.83 of the shortfall recovered)`."""
    text = f"{_mean(own.native)} native, {_mean(own.fresh)} fresh"
    part = Spread.of(own.recovered)
    return f"{text} ({part.mean:.2f} of the shortfall recovered)" if part.n else text


def _in_short(where: str, ways: Mapping[str, Probed], merges: Mapping[str, Probed]) -> list[Claim]:
    """The one conclusion: is most of what merging weights cost the readout's, and what is left?"""
    parts = {way: Spread.of(own.recovered).mean for way, own in merges.items() if own.recovered}
    if not parts:
        return []
    most = [LABELS[way] for way, part in parts.items() if part > HALF]
    least, largest = min(parts.values()), max(parts.values())
    spread = f"{least:.2f}" + (f" to {largest:.2f}" if len(parts) > 1 else "")
    best = max(merges, key=lambda way: fmean(finite(merges[way].fresh.values())))
    text = (
        f"{where}, in short: of the shortfall of merged weights a new readout recovers {spread}, "
        f"more than half for {len(most)} of {len(parts)} merges{_named(most)}. The best of them "
        f"with a fresh head, {LABELS[best]}, reaches {_mean(merges[best].fresh)}"
    )
    if UNTRAINED in ways and ways[UNTRAINED].gaps:
        text += f"; the features of an untrained network reach {_mean(ways[UNTRAINED].fresh)}"
    if LOGITS in ways:
        text += f"; adding logits reaches {_mean(ways[LOGITS].native)} without a new head"
    evidence = {"count": len(most), "of": len(parts), "recovered": known(largest)}
    n = min(len(merges[way].recovered) for way in parts)
    short = "merges of whose shortfall a new readout recovers more than half"
    return [Claim(f"{text}.", evidence=evidence, n=n, short=short)]


def _recovered_claims(where: str, merges: Mapping[str, Probed]) -> list[Claim]:
    """One claim per operator; p is corrected for their number."""
    tests = {way: own.test() for way, own in merges.items()}
    tested = {way: test.p for way, test in tests.items() if test is not None}
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
    return [_recovered(where, way, own, tests[way], corrected) for way, own in merges.items()]


def _recovered(
    where: str, way: str, own: Probed, test: TTest | None, corrected: Mapping[str, float]
) -> Claim:
    gap, part = Spread.of(own.gaps), Spread.of(own.recovered)
    holds = None if test is None else test.t > 0 and corrected[way] < LEVEL
    if test is None:
        tested, outcome = "", "too few seeds for a test"
    else:
        more = f" after Holm's correction for {len(corrected)} operators" * (len(corrected) > 1)
        tested = f"; paired by seed, p = {corrected[way]:.2g}{more}"
        outcome = "significantly higher" if holds else "not significantly higher"
    recovered = "the native head is not below the joint network, so there is no shortfall"
    if part.n:
        recovered = f"the fraction of the shortfall recovered is {part.mean:.2f}{_sd(part, 2)}"
    return Claim(
        f"{where}, {LABELS[way]}: fresh head {_mean(own.fresh)} against native "
        f"{_mean(own.native)}, {outcome} ({gap.mean:+.4f}{_sd(gap, 4)}, n {gap.n}{tested}); "
        f"{recovered}.",
        holds=holds,
        evidence={"gap": gap.mean, "p": corrected.get(way), "recovered": known(part.mean)},
        n=gap.n,
    )


def _references(
    where: str, ways: Mapping[str, Probed], merges: Mapping[str, Probed]
) -> list[Claim]:
    """What fresh heads make of features that nobody joined."""
    parts = [
        f"{_mean(ways[way].fresh)} on the features of {words}"
        for way, words in REFERENCES.items()
        if way in ways and ways[way].gaps
    ]
    claims = []
    if merges and parts:
        claims.append(Claim(f"{where}: for comparison, a fresh head reaches {listed(parts)}."))
    for way in TAILS:
        if merges and way in ways:
            claims += _against(where, merges, way, ways[way])
    return claims


def _against(where: str, merges: Mapping[str, Probed], way: str, base: Probed) -> list[Claim]:
    """Whether fresh heads read more from merges than from one module, or from no training."""
    tests = {
        merge: test
        for merge, own in merges.items()
        if (test := clustered(*(_as_clusters(one.fresh) for one in (own, base)))) is not None
    }
    if not tests:
        return []
    values = holm([test.p for test in tests.values()])
    signs = {
        LABELS[m]: test.t for (m, test), p in zip(tests.items(), values, strict=True) if p < LEVEL
    }
    above, below = ([m for m, t in signs.items() if side * t > 0] for side in (1, -1))
    text = (
        f"{where}: the fresh head is significantly above that of {REFERENCES[way]}, by the same "
        f"test, for {len(above)} of {len(tests)} merges{_named(above)}"
    )
    if below:
        text += f" and significantly below it for {len(below)}{_named(below)}"
    others = below if way == ALONE else {LABELS[merge] for merge in tests} - set(above)
    if others:
        text += f". {TAILS[way]}"
    short = f"merges whose fresh head is above that of {REFERENCES[way]}"
    evidence = {"count": len(above), "of": len(tests), "below": len(below)}
    return [Claim(f"{text}.", len(above) == len(tests), evidence, len(base.native), short)]


def _named(merges: Sequence[str]) -> str:
    return f" ({', '.join(merges)})" if merges else ""


def _as_clusters(values: Mapping[int, float | None]) -> dict[int, list[float | None]]:
    """Values by seed, as paired tests take them."""
    return {seed: [value] for seed, value in values.items()}


def _mean(values: Mapping[int, float | None]) -> str:
    return f"{fmean(finite(values.values())):.3f}"


def _sd(spread: Spread, places: int) -> str:
    return f", sd {spread.sd:.{places}f}" if spread.n > 1 else ""


register(
    Study(
        NAME,
        "Beyond the paper: what a new readout recovers from joined modules",
        "Joining the weights of one-class modules in one network costs accuracy. Is it the "
        "features that suffer, or the layer that reads them? The joined network is frozen and gets "
        "a new last layer, trained on all classes (a fresh head). The joint network, one module "
        "alone and an untrained network are probed for comparison. Each cell is one network, seed "
        "and way to join.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="nothing; the probe is taken from a paper on merged experts",
    )
)
