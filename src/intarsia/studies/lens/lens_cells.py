"""Cells of the study `lens`: one for each arm and seed.

An arm is one entry of ARMS: which settings its cells have, and what is measured of them. Further
arms are added there, and shown by an entry in `lens_tables.TABLES`.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.data.sources.fetch import matches
from intarsia.errors import StudyError, nearest, shortened
from intarsia.lens import LanguageModel, Profile, classify, generate, open_model, profile
from intarsia.lens.classification import ALL
from intarsia.lens.language_models import data_folder
from intarsia.lens.llama_files import BOS
from intarsia.studies.cells import Cell
from intarsia.studies.context import StudyContext
from intarsia.studies.lens.asked_arms import (
    CORRECTNESS_SETTINGS,
    FORMAT_SETTINGS,
    TASK_SETTINGS,
    check_correctness,
    check_format,
    check_task,
    correctness,
    task,
    text_format,
)
from intarsia.studies.lens.lens_summaries import by_label, means_and_spreads, plane
from intarsia.studies.lens.prompts import INSTRUCTIONS
from intarsia.studies.lens.text_kinds import (
    KINDS,
    STORIES,
    check_kind,
    passages,
    scrambled,
)
from intarsia.studies.options import check_count, check_counts, check_within
from intarsia.studies.study import seeds_of

NAME = "lens"
TEXT_KIND, TASK, FORMAT, CORRECTNESS = "text_kind", "task", "format", "correctness"
OWN, SCRAMBLE = "story", "scramble"
LETTERS = 6  # of a passage for each token that is kept: a token of stories260K is about two
LAST = 8  # tokens that are read alone
MODEL_DIGEST = "sha256:b0a507e7ad0f626624f17112325e66691f9076d622e1d3274d103d00299f2696"
SCALES: dict[str, dict[str, Any]] = {
    "paper": {
        "arms": [TEXT_KIND],
        "seeds": 3,
        "kinds": [OWN, SCRAMBLE, "novel", "speech", "code"],
        "texts": 80,
        "tokens": 48,
        "temperature": 0.7,
        "alphas": [0.5, 1.0, 2.0, 5.0, "inf"],
        "windows": [4],
        "neighbours": 29,
        "folds": 10,
        "model": "smollm2",
        "stories": 100,
        "task_tokens": 8,
        "topics": 100,
        "format_tokens": 256,
        "format_windows": 8,
        "questions": 480,
        "instructions": list(INSTRUCTIONS),
    },
}
SCALES["smollm2"] = {
    **SCALES["paper"],
    "arms": [TASK, FORMAT, CORRECTNESS],
    "alphas": [0.5, 1.0, 5.0],
}
SCALES["small"] = {
    **SCALES["paper"],
    "seeds": 2,
    "kinds": [OWN, SCRAMBLE, "code", "manual"],
    "texts": 20,
    "tokens": 24,
    "alphas": [1.0, 2.0],
    "windows": [2],
    "neighbours": 9,
    "folds": 4,
    "stories": 6,
    "topics": 12,
    "format_tokens": 16,
    "format_windows": 2,
    "questions": 40,
}


@dataclass(frozen=True)
class Arm:
    """What is asked of one model: settings of its cells, and what is measured of a cell."""

    settings: tuple[str, ...]
    check: Callable[[Mapping[str, Any]], None]
    measure: Callable[[Mapping[str, Any], StudyContext], dict[str, Any]]


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """One for each arm and seed."""
    for name in options["arms"]:
        if name not in ARMS:
            raise StudyError(f"option 'arms' has {shortened(name)}: {nearest(name, ARMS)}")
        arm = ARMS[name]
        arm.check(options)
        own = {key: options[key] for key in arm.settings}
        for seed in seeds_of(options["seeds"]):
            yield Cell(NAME, {"arm": name, **own, "seed": seed}, {})


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """What the arm of a cell measures."""
    return ARMS[cell.settings["arm"]].measure(cell.settings, context)


def _check_text_kind(options: Mapping[str, Any]) -> None:
    if len(options["kinds"]) < 2:
        raise StudyError("option 'kinds' has one kind: expected two or more to tell apart")
    for kind in options["kinds"]:
        known = (OWN, SCRAMBLE, *KINDS)
        if kind not in known:
            raise StudyError(f"option 'kinds' has {shortened(kind)}: {nearest(kind, known)}")
        if kind in KINDS:
            check_kind(kind)
    for key, least in (("texts", 2), ("tokens", LAST), ("neighbours", 1), ("folds", 2)):
        check_count(options, key, least)
    check_counts(options, "windows")
    check_within("temperature", [options["temperature"]], 0, math.inf)
    for alpha in options["alphas"]:
        if alpha != "inf":
            check_within("alphas", [alpha], 1e-3, math.inf)
    stories_folder()


def stories_folder() -> Path:
    """Where model.bin and tok.bin of stories260K are."""
    folder = data_folder(STORIES)
    if folder is None or not (folder / "model.bin").is_file():
        raise StudyError(
            f"the model {STORIES} is not on this machine: put its llama2.c files model.bin and "
            f"tok.bin in the folder {STORIES!r} of INTARSIA_DATA"
        )
    return folder


def _text_kind(settings: Mapping[str, Any], context: StudyContext) -> dict[str, Any]:
    """Which kind a text is, from the profile of a model that wrote one of the kinds."""
    model = context.remembered(STORIES, lambda: open_model(stories_folder()))
    texts, labels, groups = _texts(model, settings)
    read = partial(profile, model, texts, batch=128)
    judged = partial(
        classify, neighbours=settings["neighbours"], folds=settings["folds"],
        seed=settings["seed"],
    )  # fmt: skip
    found = read()
    last = read_last(model, texts)
    windows = {f"{w} windows": read(windows=w) for w in settings["windows"]}
    others = {**windows, f"last {LAST} tokens": last}
    features = {name: own.features() for name, own in others.items()}
    scores = judged(found, labels, groups, baselines=features)
    orders = {
        str(alpha): judged(read(alpha=float(alpha)), labels, groups) for alpha in settings["alphas"]
    }
    return {
        "model": STORIES,
        "known_model": matches(stories_folder() / "model.bin", MODEL_DIGEST),
        "scores": means_and_spreads(scores),
        "alphas": {name: [own.mean(ALL), own.sd(ALL)] for name, own in orders.items()},
        "subsets": _subsets(found, labels, groups, judged),
        "profiles": by_label(found, labels),
        "plane": plane(found),
        "labels": labels,
        "expansion": found.expansion.tolist(),
        "groups": scores.groups,
    }


def read_last(model: LanguageModel, texts: list[list[int]]) -> Profile:
    """The mean over the last tokens alone, which have seen all others."""
    whole = profile(model, texts, per_token=True, batch=128)
    assert whole.per_token is not None
    values = np.stack([own[-LAST:].mean(0) for own in whole.per_token])[:, None]
    counts = np.full(len(values), LAST)
    return Profile(values, counts, 1.0, whole.model, whole.log_probability, whole.spread)


def _texts(
    model: LanguageModel, settings: Mapping[str, Any]
) -> tuple[list[list[int]], list[str], list[str]]:
    """Texts as tokens with their kinds and groups; a scramble shares its story's group."""
    count, length, seed = settings["texts"], settings["tokens"], settings["seed"]
    rows: list[list[int]] = []
    labels: list[str] = []
    groups: list[str] = []
    stories: list[list[int]] = []
    if {OWN, SCRAMBLE} & set(settings["kinds"]):
        how = {"temperature": settings["temperature"], "seed": seed}
        stories = generate(model, [[BOS]] * count, length - 1, **how)
    for kind in settings["kinds"]:
        if kind == OWN:
            own = stories
        elif kind == SCRAMBLE:
            own = [model.encode(scrambled(model.decode(text), seed)) for text in stories]
        else:
            own = [model.encode(t) for t in passages(kind, count, LETTERS * length, seed)]
        rows += [row[:length] for row in own]
        labels += [kind] * count
        together = "story" if kind in (OWN, SCRAMBLE) else kind
        groups += [f"{together} {place}" for place in range(count)]
    return rows, labels, groups


def _subsets(
    found: Profile, labels: list[str], groups: list[str], judged: Callable[..., Any]
) -> dict[str, dict[str, list[float]]]:
    """Of kinds that are alike: foreign texts alone, and stories against their scrambles."""
    kinds = list(dict.fromkeys(labels))
    foreign = [kind for kind in kinds if kind in KINDS]
    sets = [foreign, [kind for kind in kinds if kind in (OWN, SCRAMBLE)]]
    result = {}
    for own in sets:
        if len(own) < 2:
            continue
        kept = np.array([label in own for label in labels])
        part = Profile(
            found.values[kept], found.tokens[kept], found.alpha, found.model,
            found.log_probability[kept], found.spread[kept],
        )  # fmt: skip
        names = [label for label in labels if label in own]
        chosen = [group for group, label in zip(groups, labels, strict=True) if label in own]
        result[" / ".join(own)] = means_and_spreads(judged(part, names, chosen))
    return result


ARMS: dict[str, Arm] = {
    TEXT_KIND: Arm(
        ("kinds", "texts", "tokens", "temperature", "alphas", "windows", "neighbours", "folds"),
        _check_text_kind,
        _text_kind,
    ),
    TASK: Arm(TASK_SETTINGS, check_task, task),
    FORMAT: Arm(FORMAT_SETTINGS, check_format, text_format),
    CORRECTNESS: Arm(CORRECTNESS_SETTINGS, check_correctness, correctness),
}
"""All arms by name."""
