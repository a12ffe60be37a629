"""The page on convolutional modules: what they reach on CIFAR-10 and -100, and in what time."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import studies
from intarsia.studies import Findings, Measured
from intarsia.studies.scale import cifar10_study as ten
from intarsia.studies.scale import cifar100_study as hundred
from intarsia.studies.tables import grouped
from intarsia.studies.wording import listed, titled
from pages import RESULTS, Load, Result, mean_sd_of, origin, page, table

STUDIES = {"cifar10": "Ten modules on CIFAR-10", "cifar100": "A hundred modules on CIFAR-100"}
WAYS = {
    ten.JOINT: "joint network",
    ten.MODULES: "dense modules",
    ten.TERRITORY: "territories",
    ten.INLAY: "inlay",
}
REMOVAL, MINUTE = "cifar_removal", "ten_modules"
CHOICES = ("cifar_choice", "cifar_choice_vgg", "cifar_choice_resnet", "cifar_choice_100")
SHARED = ("2026-11-19", "2026-11-20")  # days on which several runs had the GPU at once


def cifar(load: Load) -> str:
    """A part is left out if it has not been measured."""
    known = studies.read_studies(RESULTS)
    parts: list[str] = []
    for name, title in STUDIES.items():
        if name in known:
            parts += [f"## {title}", *_study(name, known[name])]
    if times := _times([variant for name in STUDIES for variant in known.get(name, [])]):
        parts += ["## Training time", times]
    if (RESULTS / f"{MINUTE}.json").exists():
        parts += ["## From a new process", *_minute(load(MINUTE))]
    if (RESULTS / f"{REMOVAL}.json").exists():
        parts += ["## Removing a class", *_removal(load(REMOVAL))]
    choices = [load(name) for name in CHOICES if (RESULTS / f"{name}.json").exists()]
    if choices:
        parts += ["## How settings were chosen", *_choices(choices)]
    return page(
        "Convolutional modules on CIFAR",
        [],
        "How close do modules of convolutional networks with BatchNorm, trained apart and joined "
        "without further training, come to one network trained on all classes? "
        "[The guide](../guide/scale.md) explains how they are trained and joined.",
        *_in_short([variant for name in STUDIES for variant in known.get(name, [])]),
        *(parts or ["Nothing has been measured yet."]),
    )


def cifar_in_short(load: Load) -> str:
    """The joint network, logits, and one network, of every data set."""
    known, rows = studies.read_studies(RESULTS), []
    for variant in known.get("cifar10", [])[:1]:
        for (data, model), group in grouped(variant.measured, "data", "model").items():
            ways = ten.ways_of(group)
            cells = [_tests(ways.get(ten.LABELS[way], {})) for way in (ten.JOINT, ten.LOGITS)]
            inlay = _tests(ways.get(ten.LABELS[ten.INLAY], {}))
            rows.append([titled(data), model, "10 of one class", *cells, inlay])
    for variant in known.get("cifar100", [])[:1]:
        for (data, model), group in grouped(variant.measured, "data", "model").items():
            joint = hundred.joint_of(group)
            whole = _tests(joint[max(joint)]) if joint else "-"
            for label, own in hundred.arms_of(group).items():
                modules = f"{len(next(iter(own.values()))['sizes'])} {_without_modules(label)}"
                rows.append([titled(data), model, modules, whole, _tests(own), "-"])
    if not rows:
        return ""
    text = (
        "Convolutional networks with BatchNorm, trained apart and joined without further training: "
        "test accuracy, mean ± standard deviation over seeds where there are several. An inlay is "
        "pruned to be no larger than the joint network. On balanced batches a module sees nine "
        "pictures of other classes for each of its own. [Convolutional modules](cifar.md) has all "
        "numbers, times and commands."
    )
    head = "data|network|modules|one network, trained jointly|logits added|inlay"
    words = textwrap.fill(text, 119, break_on_hyphens=False, break_long_words=False)
    return f"{words}\n\n{table(head, rows)}"


def _tests(values: Mapping[int, Mapping[str, Any]]) -> str:
    tests = [value["test"] for value in values.values()]
    return f"{mean_sd_of(tests)} (n = {len(tests)})" if tests else "-"


def _without_modules(label: str) -> str:
    """`of one class, balanced`, from a label of the study."""
    return label.removeprefix("modules ")


def _in_short(variants: Sequence[Any]) -> list[str]:
    """The studies' verdicts in one line."""
    lines = [v.study.judge(Findings(v.measured, v.label)).line for v in variants]
    return [f"In short: {'; '.join(lines)}."] if lines else []


def _study(name: str, variants: Sequence[Any]) -> list[str]:
    """What was aimed at and whether it is met, then the tables."""
    parts = [f"[The study's page](study_{name}.md) has the commands, the machine and the figures."]
    for variant in variants:
        verdict = variant.study.judge(Findings(variant.measured, variant.label))
        claims = [f"- {claim.marked}" for claim in verdict.claims]
        parts += [f"With {variant.label}:", *(["\n".join(claims)] if claims else [])]
        if name == "cifar10":
            parts += _unmeasured(variant.measured)
        parts.append(_trained([archive.options for archive in variant.archives.values()]))
        parts += studies.tables_markdown(variant.study.tables(variant.measured))
    return parts


def _unmeasured(done: Sequence[Measured]) -> list[str]:
    """What the paper's scale of the study has and no archive."""
    missing = ten.unmeasured(done, ten.SCALES["paper"]["models"])
    parts = [
        f"`{model}`"
        if len(ways) == len(ten.WAYS)
        else f"{listed([WAYS[way] for way in ways])} of `{model}`"
        for model, ways in missing.items()
    ]
    return [f"Not measured: {'; '.join(parts)}."] if parts else []


def _trained(archives: Sequence[Mapping[str, Any]]) -> str:
    """In what the training of modules, of their arms and of joint networks differs."""
    options = archives[0]
    text = (
        f"Modules are trained with the objective `{options['objective']}`, joint networks with "
        f"`{options['joint_objective']}`; the recipe is otherwise the same"
    )
    changed = [f"the arm {_settings(name, arm)}" for name, arm in options.get("arms", {}).items()
               if arm]  # fmt: skip
    for own in archives:
        for model in own["models"]:
            kinds = own["by_model"].get(model, {})
            changed += [f"{word} of {_settings(model, kinds[kind])}"
                        for kind, word in (("modules", "modules"), ("joint", "joint networks"))
                        if kinds.get(kind)]  # fmt: skip
    return f"{text}, except for {listed(changed)}." if changed else f"{text}."


def _settings(name: str, changed: Mapping[str, Any]) -> str:
    return f"`{name}` with `{', '.join(f'{key}={value}' for key, value in changed.items())}`"


def _times(variants: Sequence[Any]) -> str:
    """Seconds of training by network and way, over seeds, as the runs recorded them."""
    groups: dict[tuple[str, ...], list[BankTime]] = {}
    devices: dict[str, None] = {}
    for variant in variants:
        for archive in variant.archives.values():
            seconds = _by_bank(archive.events)
            devices |= dict.fromkeys(archive.runs["devices"])
            for bank, cells in _by_key(archive.measured).items():
                if bank in seconds:
                    groups.setdefault(_label(cells), []).append(seconds[bank])
    rows = [
        [
            *label,
            len(own),
            f"{own[0].modules:g}",
            mean_sd_of([bank.seconds for bank in own], 1),
            mean_sd_of([bank.seconds / bank.modules for bank in own], 2),
            "shared" if any(bank.shared for bank in own) else "alone",
        ]
        for label, own in groups.items()
    ]
    if not rows:
        return ""
    head = "data|network|trained as|n|modules|seconds|seconds per module|GPU"
    note = (
        "Elapsed time of whole banks, including loading, graph capture and checkpoints, on "
        f"{', '.join(devices)}. Where the GPU was shared, other runs of this page had it at the "
        "same time, and a bank took longer than it would have alone."
    )
    return f"{table(head, rows)}\n\n{note}"


@dataclass(frozen=True)
class BankTime:
    """What training a bank took; of banks that were trained as one, an even part."""

    seconds: float
    modules: float
    shared: bool


def _by_bank(events: Sequence[Mapping[str, Any]]) -> dict[str, BankTime]:
    return {
        key: BankTime(
            event["seconds"] / len(event["keys"]),
            event["modules"] / len(event["keys"]),
            event["date"] in SHARED,
        )
        for event in events
        if event["event"] == "banks"
        for key in event["keys"]
    }


def _by_key(cells: Sequence[Measured]) -> dict[str, list[Mapping[str, Any]]]:
    """Settings of the cells that share a bank."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        found.setdefault(cell.result["bank"], []).append(cell.settings)
    return found


def _label(cells: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Data, network, and the ways that a bank was trained for."""
    ways = []
    for settings in cells:
        more = [settings[key] for key in ("arm", "pruning") if key in settings]
        if "size" in settings:
            more.append(f"{settings['size']} classes")
        ways.append(", ".join([settings["way"], *more]))
    return titled(cells[0]["data"]), cells[0]["model"], " and ".join(ways)


def _removal(result: Result) -> list[str]:
    rows = []
    for row in result["rows"]:
        exact = f"{row['exact']} of {row['classes']}" if "exact" in row else "not built"
        seconds = [row.get("inlay"), row["logits"], row["retraining"]]
        texts = ["-" if taken is None else f"{taken:.3f}" for taken in seconds]
        rows.append([titled(row["data"]), row["model"], row["seed"], exact, *texts])
    head = "data|network|seed|others unchanged, bit for bit"
    head += "|removal from the inlay, s|removal from logits, s|training the joint network, s"
    note = (
        "Elapsed time until the network without the class is available, median over the classes "
        "tried; for comparison, the training time of the joint network of the same seed. An inlay "
        "of a wide network is not built: it would be nearly all zeros."
    )
    return [origin(result), table(head, rows), note]


def _minute(result: Result) -> list[str]:
    rows = [
        [row["seed"], "yes" if row["first call"] else "no", row["engine"], row["seconds"],
         row["accuracy"], row["without mirror images"]]
        for row in result["rows"]
    ]  # fmt: skip
    head = "seed|first call of its process|engine|`train`, s|logits added|without mirror images"
    note = (
        f"How long do {result['rows'][0]['modules']} modules of `{result['model']}` take, with "
        "compilation and graph capture? One call of `train` with the recipe of study `cifar10`, "
        f"dense modules, {result['recipe']['epochs']} epochs; accuracy on test samples of "
        f"{titled(result['data'])}, as a mean over mirror images and without."
    )
    return [note, origin(result), table(head, rows)]


def _choices(results: Sequence[Result]) -> list[str]:
    """Validation accuracy by what is set otherwise than in the studies' own recipe."""
    parts = [
        "On validation samples, by one seed; modules have the batches, the learning rate and the "
        "augmentation of the joint network. Balanced batches were tried for modules of `vgg11`, "
        "and taken over for those of `resnet18(64)`."
    ]
    for result in results:
        rows = [
            [
                titled(result["data"]),
                row["model"],
                row["kind"],
                ", ".join(f"{k}={v}" for k, v in result["recipes"][row["recipe"]].items()),
                row["validation"],
                row["with mirror images"],
            ]
            for row in result["rows"]
        ]
        head = "data|network|trained|settings|validation|with mirror images"
        parts += [origin(result), table(head, rows)]
    return parts
