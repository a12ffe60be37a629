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
    """Every part is left out where its numbers are not there yet."""
    known = studies.read_studies(RESULTS)
    parts: list[str] = []
    for name, title in STUDIES.items():
        if name in known:
            parts += [f"## {title}", *_study(name, known[name])]
    if times := _times([variant for name in STUDIES for variant in known.get(name, [])]):
        parts += ["## Time of training", times]
    if (RESULTS / f"{REMOVAL}.json").exists():
        parts += ["## Removing a class", *_removal(load(REMOVAL))]
    return page(
        "Convolutional modules on CIFAR",
        [],
        "Modules of convolutional networks with BatchNorm, trained apart and joined without "
        "training: [the guide](../guide/scale.md) says how.",
        *(parts or ["Nothing is measured yet."]),
    )


def _study(name: str, variants: Sequence[Any]) -> list[str]:
    """What was aimed at and whether it is met, then the tables."""
    parts = [f"[The study's page](study_{name}.md) has the commands, the machine and figures."]
    for variant in variants:
        verdict = variant.study.judge(Findings(variant.measured, variant.label))
        claims = [f"- {claim.text}" for claim in verdict.claims]
        parts += [f"With {variant.label}:", *(["\n".join(claims)] if claims else [])]
        parts += studies.tables_markdown(variant.study.tables(variant.measured))
    return parts


def _times(variants: Sequence[Any]) -> str:
    """Seconds of training by network and way, over seeds, as the runs noted them."""
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
    head = "data|network|way|n|modules|seconds|seconds a module"
    note = "Seconds by the clock of whole banks, loading, capture and checkpoints included, on "
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
    head = "data|network|seed|all others bit for bit|inlay, s|by logits, s|joint network trained, s"
    note = (
        "Seconds by the clock to take one class out, the median over classes, and those that the "
        "joint network of the same seed was trained for. An inlay of a wide network is not built: "
        "it would be nearly all zeros."
    )
    return [origin(result), table(head, rows), note]
