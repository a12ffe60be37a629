"""Study `cifar100`: a hundred modules of one class, twenty of five, and how they degrade.

Modules join one after another, by their logits and in the weights of one network; at some sizes a
joint network of the same classes stands beside them. Arms change the recipe of the modules, such as
how their batches are drawn or how much a rewarded sample counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia.data import DATASETS, Data
from intarsia.errors import StudyError, shortened
from intarsia.files import stream
from intarsia.measure.significance import clustered
from intarsia.modules import Bank, logits_of
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.shared.complete_merges import figure_name
from intarsia.studies.options import check_count, check_counts, check_operators, readable
from intarsia.studies.scale.bank_logits import (
    SplitLogits,
    accuracy,
    calibrated_accuracy,
    growth,
)
from intarsia.studies.scale.claims import diverged_banks, near_joint
from intarsia.studies.scale.merged_weights import MergeCandidate, best_merges, inlay_nonzero
from intarsia.studies.scale.recipes import (
    RECIPE,
    SHARED,
    SMALL_RECIPE,
    bank_plan,
    check_arms,
    check_options,
    joint_plan,
    mirrored,
)
from intarsia.studies.study import Study, register, scales, seeds_of
from intarsia.studies.tables import Entry, Spread, Table, grouped, point
from intarsia.studies.verdict import Claim, Findings, Verdict
from intarsia.studies.wording import listed, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALES = scales(
    paper={
        **SHARED,
        "data": ["cifar100"],
        "models": ["fastnet(32)"],
        "seeds": 2,
        # By name, what modules of one class are trained with otherwise. An epoch of ten for each of
        # its own has a tenth of the samples: sixty take half the steps of twelve.
        "arms": {"plain": {}, "balanced": {"batches": "balanced(9)", "epochs": 60}},
        "group": 5,  # classes of a module where several share one; 0 leaves these out
        "group_arms": {"plain": {}},  # the same of these modules
        "sizes": [10, 20, 50],  # classes at which a joint network of the same classes is trained
        "order": "catalogue",  # in which classes join; or "shuffled", by the seed
        "operators": ["sum", "mean", "ties(density=0.2)"],  # of one network, by validation
        "merge_sizes": [2, 5, 10, 20, 50, 100],  # modules at which these are tried
        "recipe": {**RECIPE, "learning_rate": 1.6, "epochs": 12},
    },
    small={
        "data_options": {},
        "models": ["vgg11(4)"],
        "arms": {"plain": {}},
        "group": 2,
        "sizes": [2, 5],
        "operators": ["sum"],
        "merge_sizes": [2, 10],
        "recipe": SMALL_RECIPE,
        "flips": False,  # a digit in a mirror is another sign
    },
)
JOINT, ONE_CLASS, GROUPS = "joint", "modules of one class", "modules of several classes"
ORDERS = ("catalogue", "shuffled")
NEAR = 0.03  # how far below the joint network all modules may lie
GRACE = 0.05  # the same at every size, where they are said to degrade gracefully


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """One per data set, model and seed for every arm and every size of a joint network."""
    check_options(options)
    arms, group_arms = check_arms(options, "arms"), check_arms(options, "group_arms")
    sizes, group = check_counts(options, "sizes"), check_count(options, "group", least=0)
    merging: dict[str, Any] = {
        "operators": check_operators(options, samples=False),
        "merge_sizes": check_counts(options, "merge_sizes"),
        "calibration": check_count(options, "calibration", least=0),
    }
    for data, model in readable(options, context):
        there = context.data(data, options["preset"])
        for seed in seeds_of(options["seeds"]):
            order = class_order(there.catalogue, options["order"], seed)
            what = (options, context, data, model, seed)
            settings = {"data": data, "model": model, "preset": options["preset"], "seed": seed}
            settings |= {"order": options["order"]}
            settings |= {"flips": True} if options["flips"] else {}
            for size in [*(size for size in sizes if size < there.classes), there.classes]:
                plan = joint_plan(*what, order[:size], longer=there.classes / size)
                yield Cell("cifar100", {**settings, "way": JOINT, "size": size}, {"modules": plan})
            for arm, recipe in arms.items():
                plan = bank_plan(*what, [(name,) for name in order], arm=recipe)
                own = {**settings, "way": ONE_CLASS, "arm": arm, **merging}
                yield Cell("cifar100", own, {"modules": plan})
            for arm, recipe in group_arms.items() if group else ():
                sets = class_groups(there, data, group, context)
                plan = bank_plan(*what, sets, arm=recipe)
                own = {**settings, "way": GROUPS, "arm": arm, "group": group, **merging}
                yield Cell("cifar100", own, {"modules": plan})


def class_order(catalogue: Sequence[str], order: Any, seed: int) -> list[str]:
    """The classes in the order in which they join."""
    if order not in ORDERS:
        raise StudyError(f"option 'order' is {shortened(order)}: expected {' or '.join(ORDERS)}")
    names = list(catalogue)
    if order == "catalogue":
        return names
    generator = torch.Generator().manual_seed(stream("class order", seed))
    return [names[place] for place in torch.randperm(len(names), generator=generator).tolist()]


def class_groups(data: Data, name: str, size: int, context: StudyContext) -> list[tuple[str, ...]]:
    """Classes that share a module: those of one coarse label where the data have such labels, and
    these make groups of the size asked for; else neighbours in the catalogue."""
    known = DATASETS.get(name)
    if known is not None and known.coarse_classes:
        options = {key: value for key, value in data.options.items() if key != "classes"}
        fine, coarse = (
            context.loading({**options, **labels}).data(name)
            for labels in ({}, {"labels": "coarse"})
        )
        kept = [[n for n in group if n in data.catalogue] for group in coarse_groups(fine, coarse)]
        groups = [tuple(group) for group in kept if group]
        if all(len(group) == size for group in groups):
            return groups
    names = data.catalogue
    return [tuple(names[first : first + size]) for first in range(0, len(names), size)]


def coarse_groups(data: Data, coarse: Data) -> list[tuple[str, ...]]:
    """The classes under every coarse label, by the test samples, which both have alike."""
    if not torch.equal(data.test.x, coarse.test.x):
        raise StudyError(f"{data.name!r} has other test samples where its labels are coarse")
    groups: list[list[str]] = [[] for _ in coarse.catalogue]
    for place, name in enumerate(data.catalogue):
        above = coarse.test.y[data.test.y == place].unique().tolist()
        if len(above) != 1:
            raise StudyError(f"{data.name!r}: class {name!r} is under {len(above)} coarse labels")
        groups[above[0]].append(name)
    return [tuple(group) for group in groups]


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """Accuracy as modules join one after another, of the best merges, and of the joint network."""
    settings, device = cell.settings, context.device
    flips = bool(settings.get("flips"))
    data = context.data(settings["data"], settings["preset"])
    plan = cell.banks["modules"]
    bank = context.bank(plan)
    about: dict[str, Any] = {"bank": plan.key}
    if len(bank) < plan.modules:
        return {**about, "diverged": list(bank.diverged)}
    if settings["way"] == JOINT:
        return {**about, **_joint(bank, data, device, flips)}
    classes = [[data.catalogue.index(name) for name in module.rewarded] for module in bank]
    splits = (data.test, data.validation)
    test, validation = (SplitLogits.of(bank, split, device, flips) for split in splits)
    grown = growth(test, classes)
    return {
        **about,
        "sizes": grown.sizes,
        "closed": grown.closed,
        "open": grown.open,
        "test": test.added(),
        "validation": validation.added(),
        "calibrated": calibrated_accuracy(bank, data, test, settings["calibration"], flips),
        "nonzero": inlay_nonzero(bank),
        "merged": _merged(settings, bank, classes, data, device),
    }


def _joint(bank: Bank, data: Data, device: torch.device, flips: bool) -> dict[str, Any]:
    """Answers among the network's own classes, on samples of these."""
    (joint,) = bank
    present = [data.catalogue.index(name) for name in joint.rewarded]
    network = joint.to_module().to(device)
    scores = {}
    for name, split in (("test", data.test), ("validation", data.validation)):
        own = split.select(present)
        scores[name] = accuracy(logits_of(network, own.x, flips=flips), own.y, present)
    return {**scores, "nonzero": joint.nonzero, "of": data.classes}


def _merged(
    settings: Mapping[str, Any],
    bank: Bank,
    classes: Sequence[Sequence[int]],
    data: Data,
    device: torch.device,
) -> dict[str, Any]:
    """By classes present, the one-network operator that is best on validation samples."""
    candidates = [MergeCandidate(operator) for operator in settings["operators"]]
    found: dict[str, Any] = {}
    for size in settings["merge_sizes"]:
        if not 2 <= size <= len(bank):
            continue
        present = [place for own in classes[:size] for place in own]
        tried = best_merges(
            bank[:size], candidates, data, device, present, bool(settings.get("flips"))
        ).items()
        norms, best = max(tried, key=lambda item: item[1]["validation"])
        found[str(len(present))] = {**best, "norms": norms}
    return found


Seeds = Mapping[int, Mapping[str, Any]]  # by seed, what was measured


def tables(done: Sequence[Measured]) -> list[Table]:
    """All classes, then the sizes at which there is a joint network or a merge."""
    result = []
    for (data, model), group in grouped(done, "data", "model").items():
        name = f"{titled(data)}, {model}"
        joint, arms = joint_of(group), arms_of(group)
        if joint or arms:
            result.append(_all_classes(name, joint, arms, mirrored(group)))
        for label, own in arms.items():
            result.append(_by_size(name, label, own, same_classes(label, joint)))
    return result


def joint_of(group: Sequence[Measured]) -> dict[int, dict[int, Mapping[str, Any]]]:
    """Joint networks by their number of classes and seed."""
    found: dict[int, dict[int, Mapping[str, Any]]] = {}
    for cell in group:
        if cell.settings["way"] == JOINT and "test" in cell.result:
            own = found.setdefault(cell.settings["size"], {})
            own[cell.settings["seed"]] = cell.result
    return dict(sorted(found.items()))


def arms_of(group: Sequence[Measured]) -> dict[str, dict[int, Mapping[str, Any]]]:
    """Modules by their label and seed."""
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    for cell in group:
        if cell.settings["way"] != JOINT and "closed" in cell.result:
            own = found.setdefault(label_of(cell.settings), {})
            own[cell.settings["seed"]] = cell.result
    return found


def same_classes(label: str, joint: Mapping[int, Seeds]) -> Mapping[int, Seeds]:
    """The joint networks that have the classes of the modules at their size.

    Modules of one class join in the order of these networks' classes; others are alike at the end.
    """
    if label.startswith(ONE_CLASS):
        return joint
    return {size: own for size, own in joint.items() if own is _whole(joint)}


def label_of(settings: Mapping[str, Any]) -> str:
    """`modules of one class (plain)`."""
    way = f"modules of {settings['group']} classes" if "group" in settings else ONE_CLASS
    return f"{way} ({settings['arm']})"


def _all_classes(
    name: str, joint: Mapping[int, Seeds], arms: Mapping[str, Seeds], more: Sequence[str]
) -> Table:
    """Everything at the full number of classes."""
    whole = _whole(joint)
    ways: dict[str, Seeds] = {"joint network": whole}
    for label, own in arms.items():
        ways[f"{label}, logits added"] = own
        ways[f"{label}, logits calibrated"] = {
            seed: {"test": value["calibrated"], "nonzero": value["nonzero"]}
            for seed, value in own.items()
            if value["calibrated"] is not None
        }
        ways[f"{label}, best single network"] = {
            seed: best for seed, value in own.items() if (best := _full_merge(value))
        }
    rows: list[list[Entry]] = []
    for way, values in ways.items():
        if not values:
            continue
        tests = {seed: value["test"] for seed, value in values.items()}
        rows.append(
            [
                way,
                Spread.of(tests.values()),
                Spread.of_any(away(tests, whole)) if values is not whole else None,
                Spread.of_any(value.get("validation") for value in values.values()),
                round(Spread.of(value["nonzero"] for value in values.values()).mean),
            ]
        )
    columns = ["way", "accuracy", "minus joint", "validation", "nonzero parameters"]
    notes = [
        "accuracy on test samples of all classes; minus joint: difference from the joint network "
        "of the same seed",
        "scales and offsets of calibrated logits are fitted on validation samples, which also "
        "choose the operator and the BatchNorm statistics of the best single network",
        "nonzero parameters of modules whose logits are added are those of their inlay, which "
        "gives the same answers",
        *more,
    ]
    return Table(f"{name}: all classes", columns, rows, notes)


def _by_size(name: str, label: str, own: Seeds, joint: Mapping[int, Seeds]) -> Table:
    """A row for each number of classes at which something stands beside the modules."""
    merged = {int(size) for value in own.values() for size in value["merged"]}
    present = {size for value in own.values() for size in value["sizes"]}
    rows: list[list[Entry]] = []
    for size in sorted(present & (merged | set(joint))):
        closed, there = at_size(own, size), joint.get(size, {})
        merges = [value["merged"].get(str(size), {}) for value in own.values()]
        rows.append(
            [
                size,
                Spread.of(closed.values()),
                Spread.of_any(value["test"] for value in there.values()),
                Spread.of_any(away(closed, there)),
                Spread.of(at_size(own, size, "open").values()),
                Spread.of_any(merge.get("test") for merge in merges),
            ]
        )
    columns = ["classes", "logits added", "joint network", "minus joint", "any answer"]
    columns.append("best single network")
    notes = [
        "accuracy on test samples of the classes present, answers among these; any answer: of the "
        "logits, among the whole catalogue",
        "a joint network is trained on the classes present, for as many steps as the one of all",
    ]
    return Table(f"{name}, {label}: from one class to all", columns, rows, notes)


def at_size(own: Seeds, size: int, key: str = "closed") -> dict[int, float]:
    """By seed, the accuracy with so many classes present."""
    return {
        seed: value[key][value["sizes"].index(size)]
        for seed, value in own.items()
        if size in value["sizes"]
    }


def away(own: Mapping[int, float], joint: Seeds) -> list[float]:
    """Differences to the joint network, seed by seed."""
    return [value - joint[seed]["test"] for seed, value in own.items() if seed in joint]


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """Accuracy from one class to all: logits of every arm, the best single network, joint."""
    from intarsia.plots import curve_panels

    result = {}
    for (data, model), group in grouped(done, "data", "model").items():
        curves: dict[str, Any] = {}
        for label, own in arms_of(group).items():
            sizes = sorted({n for value in own.values() for n in value["sizes"]})
            curves[f"{label}, logits"] = {n: point(at_size(own, n).values()) for n in sizes}
            merged = sorted({int(n) for value in own.values() for n in value["merged"]})
            if merged:
                curves[f"{label}, one network"] = {
                    n: point(v["merged"].get(str(n), {}).get("test") for v in own.values())
                    for n in merged
                }
        if joint := joint_of(group):
            curves["joint networks"] = {
                n: point(value["test"] for value in own.values()) for n, own in joint.items()
            }
        if curves:
            title = f"{titled(data)}, {model}: from one class to all"
            result[figure_name("cifar100", data, model)] = curve_panels(
                {"": curves}, title=title, x="classes", y="accuracy", bounds=(0.0, 1.0)
            )
    return result


def verdict(findings: Findings) -> Verdict:
    """Whether all modules come near the joint network, how they get there, and what arms change."""
    claims, lines = [], []
    for (data, model), group in grouped(findings.cells, "data", "model").items():
        where, joint, arms = f"{titled(data)}, {model}", joint_of(group), arms_of(group)
        whole = _whole(joint)
        words = [f"{Spread.of(v['test'] for v in whole.values()).mean:.3f} joint"] if whole else []
        for label, own in arms.items():
            logits = {seed: value["test"] for seed, value in own.items()}
            words.append(f"{Spread.of(logits.values()).mean:.3f} {label}")
            if differences := away(logits, whole):
                claims.append(near_joint(where, f"the sum of logits of {label}", differences, NEAR))
            claims += _graceful(where, label, own, same_classes(label, joint))
        claims += _compared(where, arms)
        if words:
            lines.append(f"{where}: {', '.join(words)}")
    line = "; ".join(lines) or "no cell is measured yet"
    return Verdict(line, claims, diverged_banks(findings.cells))


def _graceful(where: str, label: str, own: Seeds, joint: Mapping[int, Seeds]) -> list[Claim]:
    """Modules degrade gracefully where, at every size with a joint network of the same classes,
    they lie at most GRACE below it in the mean over seeds."""
    gaps = {
        size: Spread.of(differences)
        for size, there in joint.items()
        if (differences := away(at_size(own, size), there))
    }
    if len(gaps) < 2:
        return []
    holds = all(round(gap.mean, 6) >= -GRACE for gap in gaps.values())
    verb = "degrade" if holds else "do not degrade"
    each = listed([f"{gap.mean:+.4f} with {size}" for size, gap in gaps.items()])
    text = (
        f"{where}: {label} {verb} gracefully, that is, stay at most {GRACE:g} below a joint "
        f"network of the same classes at every size: {each}."
    )
    evidence = {str(size): gap.mean for size, gap in gaps.items()}
    return [Claim(text, holds=holds, evidence=evidence, n=min(gap.n for gap in gaps.values()))]


def _compared(where: str, arms: Mapping[str, Seeds]) -> list[Claim]:
    """What every further arm of one class changes against the first."""
    own = {label: value for label, value in arms.items() if label.startswith(ONE_CLASS)}
    if len(own) < 2:
        return []
    first, *others = own
    claims = []
    for label in others:
        pairs = [
            (value["test"], own[first][seed]["test"])
            for seed, value in own[label].items()
            if seed in own[first]
        ]
        spread = Spread.of(a - b for a, b in pairs)
        if not spread.n:
            continue
        ours, theirs = (
            {seed: [value["test"]] for seed, value in own[name].items()} for name in (label, first)
        )
        test = clustered(ours, theirs)
        p = "" if test is None else f", p = {test.p:.2g} paired by seed"
        text = (
            f"{where}: the accuracy of {label} differs by {spread.mean:+.4f} from that of {first} "
            f"(n {spread.n}{p})."
        )
        claims.append(Claim(text, evidence={"difference": spread.mean}, n=spread.n))
    return claims


def _whole(joint: Mapping[int, Seeds]) -> Seeds:
    """The joint networks of all classes."""
    return next((own for n, own in joint.items() for v in own.values() if v["of"] == n), {})


def _full_merge(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The best single network of all modules, where it was tried."""
    found: Mapping[str, Any] | None = value["merged"].get(str(value["sizes"][-1]))
    return found


register(
    Study(
        "cifar100",
        "Beyond the paper: a hundred modules on CIFAR-100",
        "A hundred modules of one class and twenty of five, trained apart and joined without "
        "further training, from one to all: by their logits, and in the weights of one network. "
        "At some sizes they are compared with a joint network of the same classes. A cell is one "
        "network, seed and arm, or one joint network.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="nothing in numbers; its extended version says that a hundred modules degrade "
        "gracefully",
    )
)
