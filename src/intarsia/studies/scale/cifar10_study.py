"""Study `cifar10`: one module per class of a convolutional network, joined in every way.

Beside them is the joint network of the same recipe. Modules are joined by their logits, in the
weights of one network, as territories, and as an inlay that is pruned to be no larger than the
joint network.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from torch import nn

from intarsia.composition import compose
from intarsia.data import Data, subsample
from intarsia.modules import Bank, logits_of
from intarsia.modules.statistics import total
from intarsia.pruning import PRUNINGS
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.shared.baselines import right
from intarsia.studies.maxent.shared.complete_merges import figure_name
from intarsia.studies.options import check_count, check_names, readable
from intarsia.studies.plans import Plan
from intarsia.studies.scale.bank_logits import (
    SplitLogits,
    accuracy,
    by_class,
    calibrated_accuracy,
)
from intarsia.studies.scale.claims import diverged_banks, near_joint
from intarsia.studies.scale.merged_weights import (
    AVERAGED,
    RECOMPUTED,
    MergeCandidate,
    Room,
    best_merges,
    build_inlay,
    inlay_nonzero,
    removed_exactly,
)
from intarsia.studies.scale.recipes import (
    BY_MODEL,
    RECIPE,
    SHARED,
    SMALL_RECIPE,
    bank_plan,
    check_options,
    check_recipe,
    joint_plan,
    mirrored,
)
from intarsia.studies.study import Study, register, scales, seeds_of
from intarsia.studies.tables import Entry, Spread, Table, accuracy_bars, grouped, point
from intarsia.studies.verdict import Claim, Findings, Verdict
from intarsia.studies.wording import titled
from intarsia.training import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

JOINT, MODULES, TERRITORY, INLAY = "joint", "modules", "territory", "inlay"
WAYS = (JOINT, MODULES, TERRITORY, INLAY)
SCALES = scales(
    paper={
        **SHARED,
        "data": ["cifar10"],
        "models": ["fastnet", "resnet18(16)", "resnet18(64)", "vgg11"],
        "by_model": BY_MODEL,
        "seeds": 2,
        "ways": list(WAYS),
        "prunings": ["magnitude"],  # of the inlay's modules
        "inlay": {"rounds": 1},  # settings of the recipe that these have otherwise
        "territory": {},  # and those of territories
        "first_round": True,  # dense modules are the first round of the inlay's, trained once
        "align": ["weights"],
        "densities": [0.2],  # of TIES, chosen on validation
        "scales": [0.3, 1.0],  # likewise
        "recipe": RECIPE,
    },
    small={
        "data_options": {},
        "models": ["vgg11(10)"],
        "by_model": {},
        "densities": [0.3],
        "scales": [1.0],
        "recipe": SMALL_RECIPE,
        "flips": False,  # a digit in a mirror is another sign
    },
)
# Settings in which modules may differ that are alike before any pruning.
OF_PRUNING = ("pruning", "sparsity", "rounds", "epochs", "pruning_epochs", "keep_moments")
LOGITS, CALIBRATED = "logits", "calibrated"
BY_CLASS = "by class"
SUM, ALIGNED, TIES = "sum", "aligned", "ties"
LABELS = {
    JOINT: "joint network",
    LOGITS: "logits added",
    CALIBRATED: "logits calibrated, added",
    f"{SUM}, {AVERAGED}": "weights added, statistics averaged",
    f"{SUM}, {RECOMPUTED}": "weights added, statistics recomputed",
    f"{ALIGNED}, {AVERAGED}": "aligned weights added, statistics averaged",
    f"{ALIGNED}, {RECOMPUTED}": "aligned weights added, statistics recomputed",
    f"{TIES}, {AVERAGED}": "TIES, statistics averaged",
    f"{TIES}, {RECOMPUTED}": "TIES, statistics recomputed",
    TERRITORY: "territories, weights added",
    INLAY: "inlay of pruned modules",
}
NOT_DRAWN = {LABELS[f"{name}, {AVERAGED}"] for name in (ALIGNED, TIES)}  # as low as the sum's
# What a joint network should reach at least, by data and model.
STRONG = {("cifar10", "resnet18(64)"): 0.940, ("cifar10", "fastnet"): 0.935}
NEAR, NEAR_INLAY = 0.010, 0.025  # how far below joint logits and inlay may lie
SHOWN = 20  # classes at most in a table of each class
SAME = 200  # test samples on which the built inlay is compared with the sum of logits
CLOSE = 1e-4  # how far off it may be, of the size of the logits: float32 adds up in another order


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """One per data set, model, seed and way; of inlays one per pruning.

    Territories fall out where a layer has fewer units than there are modules, and inlays where no
    sparsity would make them fit.
    """
    check_options(options)
    ways = check_names(options, "ways", WAYS)
    for key in ("inlay", "territory"):
        check_recipe(repr(key), options[key])
    merging: dict[str, Any] = {key: options[key] for key in ("align", "densities", "scales")}
    merging["calibration"] = check_count(options, "calibration", least=0)
    for data, model in readable(options, context):
        there = context.data(data, options["preset"])
        for seed in seeds_of(options["seeds"]):
            settings = {"data": data, "model": model, "preset": options["preset"], "seed": seed}
            settings |= {"flips": True} if options["flips"] else {}
            for way, own, plan in _plans(options, context, settings, there):
                if way in ways:
                    more = {**own, **(merging if way == MODULES else {})}
                    yield Cell("cifar10", {**settings, "way": way, **more}, {"modules": plan})


def _plans(
    options: Mapping[str, Any], context: StudyContext, settings: Mapping[str, Any], data: Data
) -> Iterator[tuple[str, dict[str, Any], Plan]]:
    """The ways of one network and seed, with settings of their own and the bank that each needs.

    Dense modules are the first round of those that are pruned, unless they are to be trained apart.
    """
    what = (options, context, settings["data"], settings["model"], settings["seed"])
    classes = [(name,) for name in data.catalogue]
    dense = bank_plan(*what, classes)
    room = Room.of(dense, data.shape, data.classes)
    inlays = {}
    if (fitting := room.sparsity(data.classes)) is not None:
        for pruning in options["prunings"]:
            arm = {"sparsity": fitting, "pruning": pruning, **options["inlay"]}
            inlays[pruning] = bank_plan(*what, classes, arm=arm)
    first = next(iter(inlays.values()), dense)
    shared = options["first_round"] and begins_as(first.recipe, dense.recipe)
    yield JOINT, {}, joint_plan(*what, data.catalogue)
    yield MODULES, {}, first if shared else dense
    if room.units >= data.classes:
        arm = {"pruning": TERRITORY, **options["territory"]}
        yield TERRITORY, {}, bank_plan(*what, classes, arm=arm)
    for pruning, plan in inlays.items():
        yield INLAY, {"pruning": pruning}, plan


def begins_as(pruned: Recipe, dense: Recipe) -> bool:
    """Whether the first round of pruned modules is the whole training of dense ones."""
    rest = [
        {key: value for key, value in recipe.as_dict().items() if key not in OF_PRUNING}
        for recipe in (pruned, dense)
    ]
    how = pruned.pruning or "magnitude"
    at_once = PRUNINGS.entry(how).before_training(PRUNINGS.settings(how))
    return not at_once and rest[0] == rest[1] and pruned.pruning_epochs == dense.epochs


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """Accuracies on test and validation samples, and parameters, of every way to join."""
    settings, device = cell.settings, context.device
    flips = bool(settings.get("flips"))
    data = context.data(settings["data"], settings["preset"])
    plan = cell.banks["modules"]
    bank = context.bank(plan, pruned=settings["way"] != MODULES)
    about = {"bank": plan.key}
    if len(bank) < plan.modules:
        return {**about, "diverged": list(bank.diverged)}
    if settings["way"] == JOINT:
        network = bank[0].to_module().to(device)
        return {**about, JOINT: {**_scores(network, data, flips), "nonzero": bank[0].nonzero}}
    if settings["way"] == TERRITORY:
        merged = compose(bank, "sum").to(device)
        return {**about, TERRITORY: {**_scores(merged, data, flips), "nonzero": merged.nonzero}}
    splits = (data.test, data.validation)
    test, validation = (SplitLogits.of(bank, split, device, flips) for split in splits)
    scores: dict[str, Any] = {"test": test.added(), "validation": validation.added()}
    scores[BY_CLASS] = by_class(test.total, test.labels, data.catalogue)
    if settings["way"] == INLAY:
        return {**about, INLAY: {**scores, "nonzero": inlay_nonzero(bank)}, **_inlay(bank, data)}
    nonzero = sum(module.nonzero for module in bank)
    calibrated = calibrated_accuracy(bank, data, test, settings["calibration"], flips)
    result: dict[str, Any] = {LOGITS: {**scores, "nonzero": nonzero}}
    if calibrated is not None:
        result[CALIBRATED] = {"test": calibrated, "nonzero": nonzero}
    for name, candidates in _candidates(settings).items():
        result[name] = best_merges(bank, candidates, data, device, flips=flips)
    return {**about, **result}


def _scores(network: nn.Module, data: Data, flips: bool) -> dict[str, Any]:
    test, labels = logits_of(network, data.test.x, flips=flips), data.test.y.cpu()
    return {
        "test": accuracy(test, labels),
        "validation": right(network, data.validation, flips),
        BY_CLASS: by_class(test, labels, data.catalogue),
    }


def _candidates(settings: Mapping[str, Any]) -> dict[str, list[MergeCandidate]]:
    """The one-network operators; where one has several settings, validation chooses."""
    ties = product(settings["densities"], settings["scales"])
    found = {
        SUM: [MergeCandidate("sum")],
        ALIGNED: [MergeCandidate("sum", how) for how in settings["align"]],
        TIES: [MergeCandidate(f"ties(density={d!r}, scale={s!r})") for d, s in ties],
    }
    return {name: candidates for name, candidates in found.items() if candidates}


def _inlay(bank: Bank, data: Data) -> dict[str, Any]:
    """Where the inlay can be built: how far it is off the sum of logits, and whether the class
    that comes first can be taken out with all others as they were."""
    merged = build_inlay(bank)
    if merged is None:
        return {"built": False}
    some = subsample(data.test, SAME)
    summed = total([logits_of(module.to_module(), some.x) for module in bank])
    off = float((logits_of(merged, some.x) - summed).abs().max() / summed.abs().max())
    gone = bank[0].name
    return {"built": True, "off": off, "removed": gone, "exact": removed_exactly(merged, gone)}


Ways = Mapping[str, Mapping[int, Mapping[str, Any]]]  # by label and seed, what was measured


def tables(done: Sequence[Measured]) -> list[Table]:
    """A row for each way to join, with its distance from the joint network and its parameters.

    Then the accuracies of each class, of cells that have them.
    """
    result = []
    for (data, model), group in grouped(done, "data", "model").items():
        ways = ways_of(group)
        result.append(_table(data, model, ways, mirrored(group)))
        result += _classes(data, model, ways)
    return result


def ways_of(group: Sequence[Measured]) -> dict[str, dict[int, Mapping[str, Any]]]:
    """By label and seed, what the cells of one network have of each way."""
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    for cell in group:
        for way, value in _flat(cell.result).items():
            label = LABELS[way]
            if way == INLAY and _several(group):
                label += f", {cell.settings['pruning']}"
            found.setdefault(label, {})[cell.settings["seed"]] = value
    order = {label: place for place, label in enumerate(LABELS.values())}
    places = {name: order.get(name, len(order)) for name in found}
    return dict(sorted(found.items(), key=lambda item: places[item[0]]))


def _flat(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    flat = {way: result[way] for way in LABELS if way in result}
    for name in (SUM, ALIGNED, TIES):
        flat |= {f"{name}, {kind}": own for kind, own in result.get(name, {}).items()}
    return flat


def _several(group: Sequence[Measured]) -> bool:
    return len({c.settings["pruning"] for c in group if c.settings["way"] == INLAY}) > 1


def _table(data: str, model: str, ways: Ways, more: Sequence[str]) -> Table:
    joint = ways.get(LABELS[JOINT], {})
    rows: list[list[Entry]] = []
    for label, own in ways.items():
        nonzero = Spread.of(value["nonzero"] for value in own.values())
        ratios = [v["nonzero"] / joint[s]["nonzero"] for s, v in own.items() if s in joint]
        rows.append(
            [
                label,
                Spread.of(value["test"] for value in own.values()),
                Spread.of(away(own, joint)) if label != LABELS[JOINT] else None,
                Spread.of_any(value.get("validation") for value in own.values()),
                round(nonzero.mean),
                Spread.of_any(ratios),
            ]
        )
    columns = ["way", "accuracy", "minus joint", "validation", "nonzero parameters", "of joint's"]
    notes = [
        "accuracy on test samples, answers among all classes; minus joint: difference from the "
        "joint network of the same seed",
        "validation chooses the settings of TIES and of alignment; scales and offsets of "
        "calibrated logits are fitted on its samples",
        "statistics are BatchNorm's: averaged over the modules, or recomputed from validation "
        "samples",
    ]
    if any(label.startswith(LABELS[INLAY]) for label in ways):
        notes.append(
            "an inlay answers with the sum of its modules' logits; they are pruned so that it has "
            "no more nonzero parameters than the joint network, and what survives is trained again"
        )
    notes += more
    return Table(f"{titled(data)}, {model}: one module per class, joined", columns, rows, notes)


def _classes(data: str, model: str, ways: Ways) -> list[Table]:
    """The accuracy of each class by every way that has it: one bad module shows."""
    found = {
        label: [value[BY_CLASS] for value in own.values() if BY_CLASS in value]
        for label, own in ways.items()
    }
    found = {label: own for label, own in found.items() if own}
    names = dict.fromkeys(name for own in found.values() for one in own for name in one)
    if not names or len(names) > SHOWN:
        return []
    rows = [
        [name, *(Spread.of_any(one.get(name) for one in own) for own in found.values())]
        for name in names
    ]
    notes = ["fraction of the test samples of a class that is answered right, among all classes"]
    return [Table(f"{titled(data)}, {model}: class by class", ["class", *found], rows, notes)]


def away(own: Mapping[int, Mapping[str, Any]], joint: Mapping[int, Any]) -> list[float]:
    """Differences of test accuracy to the joint network, seed by seed."""
    return [value["test"] - joint[seed]["test"] for seed, value in own.items() if seed in joint]


def unmeasured(done: Sequence[Measured], models: Sequence[str]) -> dict[str, list[str]]:
    """By network, the ways that no cell has; of a network without any cell, all of them."""
    measured = {(cell.settings["model"], cell.settings["way"]) for cell in done}
    missing = {model: [way for way in WAYS if (model, way) not in measured] for model in models}
    return {model: ways for model, ways in missing.items() if ways}


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """The accuracy of every way to join, network by network."""
    result = {}
    for (data,), group in grouped(done, "data").items():
        panels: dict[str, Any] = {}
        for (model,), own in grouped(group, "model").items():
            bars = {
                label: point(value["test"] for value in values.values())
                for label, values in ways_of(own).items()
                if label not in NOT_DRAWN
            }
            if bars:
                panels[model] = {"": bars}
        if panels:
            title = f"{titled(data)}: one module per class, joined"
            result[figure_name("cifar10", data)] = accuracy_bars(panels, title)
    return result


def verdict(findings: Findings) -> Verdict:
    """Whether logits and inlay come near the joint network; what is taken out leaves no trace."""
    claims, lines = [], []
    for (data, model), group in grouped(findings.cells, "data", "model").items():
        where, ways = f"{titled(data)}, {model}", ways_of(group)
        joint = ways.get(LABELS[JOINT], {})
        claims += _strong(where, (data, model), joint)
        if differences := away(ways.get(LABELS[LOGITS], {}), joint):
            claims.append(near_joint(where, "the sum of logits", differences, NEAR))
        inlays = [label for label in ways if label.startswith(LABELS[INLAY])]
        if inlays and away(best := ways[_best(inlays, ways)], joint):
            claims.append(_fits(where, best, joint))
        claims += [*_adds_up(where, group), *_exact(where, group)]
        short = {JOINT: "joint", LOGITS: "logits", INLAY: "inlay", TERRITORY: "territories"}
        means = {
            word: Spread.of(v["test"] for v in ways[LABELS[way]].values()).mean
            for way, word in short.items()
            if LABELS[way] in ways
        }
        if means:
            words = ", ".join(f"{mean:.3f} {word}" for word, mean in means.items())
            lines.append(f"{where}: {words}")
    return Verdict(
        "; ".join(lines) or "no cell is measured yet", claims, diverged_banks(findings.cells)
    )


def _strong(where: str, place: tuple[str, str], joint: Mapping[int, Any]) -> list[Claim]:
    """Whether the joint network is as good as such networks are, so that nearness means much."""
    if place not in STRONG or not joint:
        return []
    least, spread = STRONG[place], Spread.of(value["test"] for value in joint.values())
    holds = round(spread.mean, 6) >= least
    word = "reaches" if holds else "does not reach"
    text = f"{where}: the joint network {word} {least:g}: {spread}, n {spread.n}."
    return [Claim(text, holds=holds, evidence={"joint": spread.mean}, n=spread.n)]


def _best(labels: Sequence[str], ways: Ways) -> str:
    """The one with the best mean accuracy on validation samples."""
    means = {n: Spread.of(v["validation"] for v in ways[n].values()).mean for n in labels}
    return max(means, key=means.__getitem__)


def _fits(where: str, own: Mapping[int, Any], joint: Mapping[int, Any]) -> Claim:
    """The inlay, which must be no larger than the joint network as well."""
    pairs = [(v["nonzero"], joint[s]["nonzero"]) for s, v in own.items() if s in joint]
    larger = sum(mine > theirs for mine, theirs in pairs)
    ratio = Spread.of(mine / theirs for mine, theirs in pairs)
    more = f", with {ratio.mean:.4f} times its nonzero parameters"
    claim = near_joint(where, "the inlay", away(own, joint), NEAR_INLAY, more)
    evidence = {**claim.evidence, "nonzero_ratio": ratio.mean}
    holds = bool(claim.holds) and not larger
    text = claim.text
    if larger:
        text += (
            f" It is larger than the joint network in {larger} of {len(pairs)}, and must not be."
        )
    return Claim(text, holds=holds, evidence=evidence, n=claim.n)


def _adds_up(where: str, group: Sequence[Measured]) -> list[Claim]:
    """Whether the inlay, as one network, answers with the sum of logits that is measured for it."""
    tried = [cell.result["off"] for cell in group if "off" in cell.result]
    if not tried:
        return []
    holds = max(tried) <= CLOSE
    word = "answers" if holds else "does not answer"
    text = (
        f"{where}: built as one network the inlay {word} with the sum of logits: it is at most "
        f"{max(tried):.1e} of their size off (n {len(tried)})."
    )
    return [Claim(text, holds=holds, evidence={"off": max(tried)}, n=len(tried))]


def _exact(where: str, group: Sequence[Measured]) -> list[Claim]:
    """Whether taking one class out of the inlay left all others alone, to the last bit."""
    tried = [cell.result["exact"] for cell in group if "exact" in cell.result]
    if not tried:
        return []
    exact = sum(tried)
    text = f"{where}: a class taken out of the inlay leaves all others bit for bit in {exact} of "
    return [
        Claim(
            f"{text}{len(tried)}.",
            holds=exact == len(tried),
            evidence={"count": exact, "of": len(tried)},
            n=len(tried),
        )
    ]


register(
    Study(
        "cifar10",
        "Beyond the paper: convolutional modules on CIFAR-10",
        "One module per class of a convolutional network with BatchNorm, trained apart and joined "
        "without further training: by their logits, in the weights of one network, as territories, "
        "and as an inlay of pruned modules that has no more parameters than one network trained on "
        "all classes, with which all are compared. A cell is one network, seed and way.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="nothing in numbers; its extended version says that logits rescue what sums lose",
    )
)
