"""The page on convolutional modules: what they reach on CIFAR-10 and -100, and in what time."""

from collections.abc import Mapping, Sequence
from typing import Any

import studies
from intarsia.studies import Findings, Measured
from intarsia.studies.wording import titled
from pages import RESULTS, Load, Result, mean_sd_of, origin, page, table

STUDIES = {"cifar10": "Ten modules on CIFAR-10", "cifar100": "A hundred modules on CIFAR-100"}
REMOVAL = "cifar_removal"


def cifar(load: Load) -> str:
    """A part is left out if it has not been measured."""
    known = studies.read_studies(RESULTS)
    parts: list[str] = []
    for name, title in STUDIES.items():
        if name in known:
            parts += [f"## {title}", *_study(name, known[name])]
    if times := _times([variant for name in STUDIES for variant in known.get(name, [])]):
        parts += ["## Training time", times]
    if (RESULTS / f"{REMOVAL}.json").exists():
        parts += ["## Removing a class", *_removal(load(REMOVAL))]
    return page(
        "Convolutional modules on CIFAR",
        [],
        "How close do modules of convolutional networks with BatchNorm, trained apart and joined "
        "without further training, come to one network trained on all classes? "
        "[The guide](../guide/scale.md) explains how they are trained and joined.",
        *_in_short([variant for name in STUDIES for variant in known.get(name, [])]),
        *(parts or ["Nothing has been measured yet."]),
    )


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
        parts += studies.tables_markdown(variant.study.tables(variant.measured))
    return parts


def _times(variants: Sequence[Any]) -> str:
    """Seconds of training by network and way, over seeds, as the runs recorded them."""
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = {}
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
            f"{own[0][1]:g}",
            mean_sd_of([taken for taken, _ in own], 1),
            mean_sd_of([taken / modules for taken, modules in own], 2),
        ]
        for label, own in groups.items()
    ]
    if not rows:
        return ""
    head = "data|network|trained as|n|modules|seconds|seconds per module"
    note = "Elapsed time of whole banks, including loading, graph capture and checkpoints, on "
    return f"{table(head, rows)}\n\n{note}{', '.join(devices)}."


def _by_bank(events: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """By the key of a bank, its seconds and modules; those trained as one share them evenly."""
    return {
        key: (event["seconds"] / len(event["keys"]), event["modules"] / len(event["keys"]))
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
