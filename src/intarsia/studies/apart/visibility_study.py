"""Study `apart`: modules that see all classes, those before theirs, or their own alone.

Beside them, one network of the same kind: trained on all classes at once, and by classes that
arrive one by one, with none or a few samples of the earlier ones kept.
"""

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.composition import compose
from intarsia.data import Data
from intarsia.errors import StudyError
from intarsia.measure import evaluate
from intarsia.measure.significance import LEVEL, clustered
from intarsia.studies.apart.one_network import trained_by_arrival
from intarsia.studies.cells import DATA_OPTIONS, Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.shared.baselines import check_rates, on
from intarsia.studies.options import check_count, check_names, check_operators
from intarsia.studies.plans import Plan
from intarsia.studies.study import Study, register, scales, seeds_of
from intarsia.studies.tables import Entry, Spread, Table, grouped, point
from intarsia.studies.verdict import Claim, Findings, Verdict
from intarsia.studies.wording import listed, titled
from intarsia.training import Recipe
from intarsia.training.settings.presets import DataSize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEATURES = "cifar100_lite0"
LOADING: dict[str, dict[str, Any]] = {
    "digits": {"scale_on": "train"},
    "har": {"scale": "standard", "scale_on": "train", "groups": "subject"},
    f"{FEATURES}.npz": {"scale": "standard", "scale_on": "public", "public": "x_public"},
}
"""How data are loaded, where not as usual: nothing but what all may know enters the scaling."""

CHAIN = "stick_breaking"
DEFAULT = "default"  # the negatives that the preset takes for these data and this visibility
SCALES = scales(
    paper={
        "data": ["digits", "har", f"{FEATURES}.npz", "mnist", "fashion_mnist"],
        "models": ["mlp(128)"],
        "feature_models": ["mlp(64)"],  # of the data in a file, which are features
        "preset": "auto",
        "visibilities": ["all", "past", "own"],
        "negatives": [DEFAULT, "noise(1.0) + mixed(1.0)"],  # of modules that do not see all
        "chained": [CHAIN],  # operators by which modules of past classes are joined besides
        "kept": 20,  # samples of every earlier class that replay keeps
        "rates": [1e-3, 1e-4],  # of the network that classes arrive at, by Adam
        "passes": 2,  # over what is there at each arrival
        "batch": 64,
        "joint_epochs": 12,  # at least, of the joint network, which has more to learn
        "wide": ["mlp(1024, dropout=0.5)"],  # a joint network as an expert would make it
        "wide_recipe": {"epochs": 15, "learning_rate": 1e-3, "schedule": "cosine"},
        "recipe": {"sparsity": 0.0, "learning_rate": 2e-3},
    },
    small={
        "models": ["mlp(16)"],
        "feature_models": ["mlp(16)"],
        "negatives": [DEFAULT],
        "chained": [CHAIN],
        "seeds": 2,
        "passes": 1,
        "rates": [1e-2],
        "joint_epochs": 6,
        "wide": ["mlp(32)"],
        "wide_recipe": {"epochs": 6},
        "recipe": {"sparsity": 0.0, "epochs": 3},
    },
)
# Of a chain each module says how probable its class is among those up to it: every sample of these
# counts, and counts alike.
PLAIN = {"visibility": "past(amount=None)", "balance": 0.0}
JOINT, WIDE, TUNING, REPLAY = "joint", "wide joint", "fine-tuning", "replay"
VISIBLE = {"all": "all classes visible", "past": "past classes only", "own": "own class only"}
# By data set: how far a way may lie below another at most, as the issue asks.
TARGETS: dict[str, list[tuple[str, str, float]]] = {
    FEATURES: [
        ("all", JOINT, 0.005),
        ("own", JOINT, 0.03),
        ("own", WIDE, 0.03),
        ("past", "own", 0.0),
        (f"past, {CHAIN}", "own", 0.0),
    ],
    "digits": [("past", JOINT, 0.01)],
    "mnist": [("past", JOINT, 0.05), (f"past, {CHAIN}", JOINT, 0.05)],
}


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """One per data set, model, way and seed."""
    arrival: dict[str, Any] = {
        key: check_count(options, key) for key in ("kept", "passes", "batch")
    }
    arrival["rates"] = check_rates(options["rates"])
    epochs = check_count(options, "joint_epochs")
    visibilities = check_names(options, "visibilities", VISIBLE)
    chained = check_operators(options, "chained", samples=False) if options["chained"] else []
    for given in _there(options["data"]):
        loading = {**LOADING.get(given, {}), **options[DATA_OPTIONS]}
        data = context.loading(loading).data(_source(given), options["preset"])
        for model in options["feature_models" if given.endswith(".npz") else "models"]:
            for seed in seeds_of(options["seeds"]):
                settings: dict[str, Any] = {"data": data.name, "model": model, "seed": seed}
                settings |= {"preset": options["preset"], "source": given, DATA_OPTIONS: loading}
                joint = _joint_plan(options, data, model, seed, epochs)
                yield Cell("apart", {**settings, "way": JOINT}, {"joint": joint})
                for wide in options["wide"]:
                    plan = _wide_plan(options, data, wide, seed)
                    yield Cell("apart", {**settings, "way": WIDE, "wide": wide}, {"joint": plan})
                for way in (TUNING, REPLAY):
                    more = {**arrival, "kept": 0}
                    if way == REPLAY:
                        more = {**arrival, "balanced": True}  # classes count alike
                    yield Cell("apart", {**settings, **more, "way": way}, {"joint": joint})
                for way, how in _arms(visibilities, options["negatives"]):
                    plan = _plan(options, data, model, seed, how)
                    yield Cell("apart", {**settings, "way": way}, {"modules": plan})
                for operator in chained if "past" in visibilities else ():
                    plan = _plan(options, data, model, seed, PLAIN)
                    own = {"way": f"past, {operator}", "operator": operator}
                    yield Cell("apart", {**settings, **own}, {"modules": plan})


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """Accuracy on test and on validation samples, answers among the whole catalogue."""
    settings, device = cell.settings, context.device
    data = context.data(_source(settings["source"]), settings["preset"])
    if settings["way"] in (TUNING, REPLAY):
        chosen = {key: settings[key] for key in ("kept", "rates", "passes", "batch")}
        recipe = cell.banks["joint"].recipe
        return vars(trained_by_arrival(recipe, data, device, **chosen))
    (role,) = cell.banks
    bank = context.bank(cell.banks[role])
    if len(bank) < cell.banks[role].modules:
        return {"accuracy": None, "validation": None, "diverged": list(bank.diverged)}
    merged = compose(bank, settings.get("operator", "logits")).to(device)
    return {
        "accuracy": evaluate(merged, on(data.test, device)).accuracy,
        "validation": evaluate(merged, on(data.validation, device)).accuracy,
        "negatives": cell.banks[role].recipe.negatives,
    }


def tables(done: Sequence[Measured]) -> list[Table]:
    """A row for each way; how far it is from the joint network, seed by seed."""
    return [_table(data, model, group) for (data, model), group in _groups(done).items()]


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """The accuracy of every way, data set by data set."""
    from intarsia.plots import bar_panels

    panels: dict[str, Any] = {}
    for (data, model), group in _groups(done).items():
        bars = {label_of(way): point(own.values()) for way, own in _by_way(group).items()}
        if any(math.isfinite(mean) for mean, _ in bars.values()):  # not where all diverged
            panels[f"{titled(data)}, {model}"] = {"": bars}
    title = "Accuracy of modules that see all classes, earlier ones, or one"
    return (
        {}
        if not panels
        else {"apart": bar_panels(panels, title=title, y="accuracy", bounds=(0.0, 1.0))}
    )


def verdict(findings: Findings) -> Verdict:
    """Whether modules that see less come as near the joint network as they should."""
    claims, lines = [], []
    for (data, model), group in _groups(findings.cells).items():
        ways = _by_way(group)
        where = f"{titled(data)}, {model}"
        spreads = {way: Spread.of(own.values()) for way, own in ways.items()}
        known = {way: spread for way, spread in spreads.items() if spread.n}
        words = [f"{spread.mean:.3f} for {label_of(way)}" for way, spread in known.items()]
        n = max((spread.n for spread in known.values()), default=0)
        evidence = {way: spread.mean for way, spread in known.items()}
        claims.append(Claim(f"{where}: mean accuracy is {listed(words)}.", evidence=evidence, n=n))
        aims = [
            _aim(where, ways, *aim)
            for aim in TARGETS.get(data, [])
            if aim[0] in known and aim[1] in known
        ]
        claims += aims
        order = (JOINT, WIDE, *VISIBLE)
        short = [f"{spreads[way].mean:.3f} {way}" for way in order if way in known]
        lines.append(f"{where}: {', '.join(short)}")
    return Verdict("; ".join(lines) or "no cell is measured yet", claims)


def label_of(way: str) -> str:
    """A way in words: `own class only, negatives noise(1.0)`."""
    name, _, negatives = way.partition(", ")
    return f"{VISIBLE.get(name, name)}, {negatives}" if negatives else VISIBLE.get(name, name)


def _aim(
    where: str, ways: Mapping[str, Mapping[int, Any]], way: str, other: str, at_most: float
) -> Claim:
    """Whether a way lies at most so far below another, in the mean over seeds both have."""
    seeds = [s for s in ways[way] if s in ways[other]]
    pairs = [(ways[way][s], ways[other][s]) for s in seeds]
    differences = [a - b for a, b in pairs if a is not None and b is not None]
    spread = Spread.of(differences)
    holds = spread.n > 0 and spread.mean >= -at_most
    test = clustered({s: [ways[way][s]] for s in seeds}, {s: [ways[other][s]] for s in seeds})
    tested = ""
    if test is not None:
        apart = "significant" if test.p < LEVEL else "not significant"
        tested = f"; {apart} in the paired test over seeds, p = {test.p:.2g}"
    aim = f"at most {at_most:g} below" if at_most else "no worse than"
    text = (
        f"{where}: {label_of(way)} should be {aim} {label_of(other)}; the mean difference is "
        f"{spread.mean:+.4f} (sd {spread.sd:.4f}, n {spread.n}{tested})."
    )
    evidence = {"difference": spread.mean, "at_most": at_most}
    return Claim(text, holds=holds, evidence=evidence, n=spread.n)


def _table(data: str, model: str, group: Sequence[Measured]) -> Table:
    ways = _by_way(group)
    validation = _by_way(group, "validation")
    joint = ways.get(JOINT, {})
    rows: list[list[Entry]] = []
    for way, own in ways.items():
        away = [v - joint[s] for s, v in own.items() if v is not None and joint.get(s) is not None]
        test = clustered({s: [v] for s, v in own.items()}, {s: [v] for s, v in joint.items()})
        p = None if test is None or way == JOINT else f"{test.p:.2g}"
        made = next((c.result.get("negatives") for c in group if c.settings["way"] == way), None)
        rows.append(
            [
                label_of(way),
                Spread.of(own.values()),
                Spread.of(away) if way != JOINT else None,
                p,
                Spread.of(validation[way].values()),
                made if way != JOINT and made not in (None, "none") else None,
            ]
        )
    notes = [
        "accuracy on test samples, with predictions among the whole catalogue; logits of modules "
        "are added unless another operator is named; minus joint: difference from the joint "
        "network of the same seed, with the p of the paired test over seeds",
        "joint: one network of the same kind, trained by cross-entropy on all classes; wide joint: "
        "a wider network, trained longer, as an expert would; fine-tuning sees the classes one by "
        "one in the order of the catalogue; replay also keeps a few samples of every earlier "
        "class; both use the step size that is best on validation samples",
        "negatives: how many there are for each sample of the module's own class, or for each "
        "sample where all classes are visible",
    ]
    columns = ["way", "accuracy", "minus joint", "p", "validation accuracy", "negatives"]
    return Table(f"{titled(data)}, {model}: modules trained apart", columns, rows, notes)


def _groups(done: Sequence[Measured]) -> dict[tuple[Any, ...], list[Measured]]:
    return grouped(done, "data", "model")


def _by_way(group: Sequence[Measured], key: str = "accuracy") -> dict[str, dict[int, Any]]:
    """By way, what was measured for every seed."""
    ways: dict[str, dict[int, Any]] = {}
    for cell in group:
        ways.setdefault(cell.settings["way"], {})[cell.settings["seed"]] = cell.result[key]
    return ways


def _arms(
    visibilities: Sequence[str], negatives: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The ways of modules, and what their recipes have besides."""
    for visibility in visibilities:
        if visibility == "all":
            yield "all", {}
            continue
        for made in negatives:
            if made == DEFAULT:
                yield visibility, {"visibility": visibility}
            elif made != "none" or visibility == "past":
                how = {"visibility": visibility, "negatives": made}
                yield f"{visibility}, {made}", how


def _plan(
    options: Mapping[str, Any], data: Data, model: str, seed: int, how: Mapping[str, Any]
) -> Plan:
    """The bank of one way, with all settings that the preset takes for these data."""
    settings = {
        "preset": options["preset"],
        "data": data.name,
        "data_options": dict(data.options),
        "model": model,
        "partition": [[name] for name in data.catalogue],
        "seeds": [seed],
        **options["recipe"],
        **how,
    }
    recipe = Recipe.read(settings).resolve(DataSize.of(data))
    return Plan(dataclasses.replace(recipe, data_options=dict(data.options)), data.digest)


def _joint_plan(options: Mapping[str, Any], data: Data, model: str, seed: int, epochs: int) -> Plan:
    """One network for all classes, by cross-entropy and without made-up samples."""
    how = {"partition": [list(data.catalogue)], "objective": "xe", "negatives": "none"}
    plan = _plan(options, data, model, seed, how)
    if (plan.recipe.epochs or 0) >= epochs:
        return plan
    return _plan(options, data, model, seed, {**how, "epochs": epochs})


def _wide_plan(options: Mapping[str, Any], data: Data, model: str, seed: int) -> Plan:
    """A joint network that is as wide and is trained as long as pays on validation samples."""
    how = {"partition": [list(data.catalogue)], "objective": "xe", "negatives": "none"}
    return _plan(options, data, model, seed, {**how, **options["wide_recipe"]})


def _there(names: Sequence[str]) -> list[str]:
    """The data that can be had: a file that is not on this machine falls out."""
    there = [name for name in names if not name.endswith(".npz") or Path(_source(name)).is_file()]
    if not there:
        raise StudyError(
            f"none of {', '.join(names)} is on this machine: put the file into the current folder, "
            "or into the one that INTARSIA_DATA names"
        )
    return there


def _source(name: str) -> str:
    """Where a file of data lies: as it was named, or in the folder of data."""
    folder = os.environ.get("INTARSIA_DATA")
    if not name.endswith(".npz") or folder is None or Path(name).is_file():
        return name
    return str(Path(folder).expanduser() / name)


register(
    Study(
        "apart",
        "Beyond the paper: modules trained apart",
        "What do modules lose if they do not see each other's classes? Each sees all classes, "
        "those before its own, or its own alone; what it does not see is made up or public. They "
        "are compared with one network of the same kind, trained on all classes at once or on one "
        "after another. Data in a file that is not on the machine are left out.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="nothing; modules that see all classes, earlier ones or one, compared with one "
        "network",
    )
)
