"""Arms that ask a language model: which task it was given, in which format, and is it right?"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from intarsia.errors import ModelError, StudyError, nearest, shortened
from intarsia.lens import (
    Classification,
    LanguageModel,
    Profile,
    Written,
    answer_chances,
    classify,
    open_model,
    packaged_model,
    profiles_written,
)
from intarsia.lens.classification import ALL
from intarsia.lens.language_models import PACKAGED
from intarsia.studies.context import StudyContext
from intarsia.studies.lens.lens_summaries import by_label, means_and_spreads, plane
from intarsia.studies.lens.prompts import (
    ANSWER,
    INSTRUCTIONS,
    QUESTIONS,
    Prompt,
    format_prompts,
    question_prompts,
    task_prompts,
)
from intarsia.studies.options import check_count, check_within

LENGTH, BREAKS = "tokens of the prompt", "line breaks of the text"
CHOSEN, MARGIN = "log-probability of the answer", "margin to the next answer"
KIND = "kind of question"
CPU_BATCH, GPU_BATCH = 128, 512  # texts that are written at once
SHOWN = 2  # texts of each label that a cell keeps
COMMON = ("model", "temperature", "alphas", "neighbours", "folds")
TASK_SETTINGS = (*COMMON, "stories", "task_tokens")
FORMAT_SETTINGS = (*COMMON, "topics", "format_tokens", "format_windows")
CORRECTNESS_SETTINGS = (*(key for key in COMMON if key != "temperature"), "questions",
                        "instructions")  # fmt: skip


def check_task(options: Mapping[str, Any]) -> None:
    """Refuse what the arm `task` cannot measure."""
    _check(options, {"stories": 2, "task_tokens": 1})
    task_prompts(options["stories"], 0)


def check_format(options: Mapping[str, Any]) -> None:
    """Refuse what the arm `format` cannot measure."""
    _check(options, {"topics": 2, "format_tokens": 1, "format_windows": 1})
    format_prompts(options["topics"], 0)
    if options["format_tokens"] < options["format_windows"]:
        raise StudyError("option 'format_tokens' is below 'format_windows': take fewer windows")


def check_correctness(options: Mapping[str, Any]) -> None:
    """Refuse what the arm `correctness` cannot measure."""
    _check(options, {"questions": 2})
    for name in options["instructions"]:
        if name not in INSTRUCTIONS:
            raise StudyError(
                f"option 'instructions' has {shortened(name)}: {nearest(name, INSTRUCTIONS)}"
            )
        question_prompts(options["questions"], name, 0)


def _check(options: Mapping[str, Any], counts: Mapping[str, int]) -> None:
    for key, least in {**counts, "neighbours": 1, "folds": 2}.items():
        check_count(options, key, least)
    check_within("temperature", [options["temperature"]], 0, math.inf)
    for alpha in options["alphas"]:
        if alpha != "inf":
            check_within("alphas", [alpha], 1e-3, math.inf)
    if options["model"] in PACKAGED:
        try:
            packaged_model(options["model"])
        except ModelError as error:
            raise StudyError(f"option 'model': {error}") from None


def task(settings: Mapping[str, Any], context: StudyContext) -> dict[str, Any]:
    """Which kind of task a prompt sets, from what the model writes behind it."""
    model = _opened(settings, context)
    asked = task_prompts(settings["stories"], settings["seed"])
    rows = [model.ask(prompt.text) for prompt in asked]
    written = _written(model, rows, settings, settings["task_tokens"], 1)
    lengths = {LENGTH: [len(row) for row in rows]}
    return _measured(model, asked, written, settings, lengths)


def text_format(settings: Mapping[str, Any], context: StudyContext) -> dict[str, Any]:
    """In which format a text is that the model writes, in windows from its beginning to its end."""
    model = _opened(settings, context)
    asked = format_prompts(settings["topics"], settings["seed"])
    rows = [model.ask(prompt.text) for prompt in asked]
    count = settings["format_tokens"]
    written = _written(model, rows, settings, count, settings["format_windows"])
    breaks = [model.decode(text[-count:]).count("\n") for text in written.texts]
    plain = {LENGTH: [len(row) for row in rows], BREAKS: breaks}
    return _measured(model, asked, written, settings, plain)


def correctness(settings: Mapping[str, Any], context: StudyContext) -> dict[str, Any]:
    """Whether the model's answer to a question is right, under every instruction."""
    model = _opened(settings, context)
    found = {name: _answered(model, name, settings) for name in settings["instructions"]}
    return {"model": model.name, "instructions": found}


def _answered(
    model: LanguageModel, instruction: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The answer is the one whose log-probability the question raises most.

    Behind the question its text has the log-probability a, behind the bare word "Answer:" b, and
    the largest a - b is the model's answer: names that are likely anywhere are not preferred. The
    profile is that of the last position of the question, where the answer begins.
    """
    asked = question_prompts(settings["questions"], instruction, settings["seed"])
    chances = _chances(model, asked, [prompt.text for prompt in asked])
    raised = chances - _chances(model, asked, [ANSWER] * len(asked))  # Q, answers
    chosen = raised.argmax(1)
    right = chosen == 0
    labels = ["right" if own else "wrong" for own in right]
    rows = [model.encode(prompt.text) for prompt in asked]
    written = _written(model, rows, {**settings, "temperature": 0}, 1, 1)
    kinds = np.array([list(QUESTIONS).index(prompt.label) for prompt in asked])
    best = np.sort(raised, axis=1)
    plain = {
        CHOSEN: chances[range(len(asked)), chosen],
        MARGIN: best[:, -1] - best[:, -2],
        LENGTH: np.array([len(row) for row in rows], dtype=float),
    }
    known = {name: right[kinds == n] for n, name in enumerate(QUESTIONS) if (kinds == n).any()}
    result: dict[str, Any] = {
        "accuracy": 100 * float(right.mean()),
        "prompts": len(asked),
        "accuracies": {kind: 100 * float(own.mean()) for kind, own in known.items()},
        "likeliest": 100 * float((chances.argmax(1) == 0).mean()),
    }
    if min(labels.count("right"), labels.count("wrong")) < settings["folds"]:
        return result  # too few of one class to tell apart
    judged = partial(_judged, labels=labels, groups=[p.group for p in asked], settings=settings)
    found = written.profiles[1.0]
    whole = judged(found, baselines={**plain, KIND: np.eye(len(QUESTIONS))[kinds]})
    within = judged(
        _centred(found, kinds),
        baselines={name: _less_means(own, kinds) for name, own in plain.items()},
    )
    return {
        **result,
        "scores": means_and_spreads(whole),
        "within_kinds": means_and_spreads(within),
        "alphas": _by_order(written, judged),
        "profiles": by_label(found, labels),
        "expansion": found.expansion.tolist(),
    }


def _chances(model: LanguageModel, asked: Sequence[Prompt], before: Sequence[str]) -> np.ndarray:
    """Log-probabilities of every answer as a text.  # Q, answers"""
    prompts = [own for own, p in zip(before, asked, strict=True) for _ in p.answers]
    answers = [answer for prompt in asked for answer in prompt.answers]
    return answer_chances(model, prompts, answers).reshape(len(asked), -1)


def _centred(found: Profile, kinds: np.ndarray) -> Profile:
    """What is left of profiles when the mean of their kind of question is taken away."""
    return replace(
        found,
        values=_less_means(found.values, kinds),
        log_probability=_less_means(found.log_probability, kinds),
        spread=_less_means(found.spread, kinds),
    )


def _less_means(values: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    result = values.astype(float)
    for kind in np.unique(kinds):
        result[kinds == kind] -= values[kinds == kind].mean(0)
    return result


def _opened(settings: Mapping[str, Any], context: StudyContext) -> LanguageModel:
    def opened() -> LanguageModel:
        model = open_model(settings["model"])
        model.network.to(context.device)
        return model

    return context.remembered(f"lens model {settings['model']}", opened)


def _written(
    model: LanguageModel, rows: list[list[int]], settings: Mapping[str, Any], tokens: int,
    windows: int,
) -> Written:  # fmt: skip
    cuda = next(model.network.parameters()).is_cuda
    orders = sorted({1.0, *(float(alpha) for alpha in settings["alphas"])})
    return profiles_written(
        model, rows, tokens, orders, windows, temperature=settings["temperature"],
        seed=settings["seed"], batch=GPU_BATCH if cuda else CPU_BATCH,
    )  # fmt: skip


def _judged(
    found: Any, labels: Sequence[str], groups: Sequence[str], settings: Mapping[str, Any],
    **more: Any,
) -> Classification:  # fmt: skip
    usual = {"neighbours": settings["neighbours"], "folds": settings["folds"]}
    return classify(found, labels, groups, seed=settings["seed"], **{**usual, **more})


def _by_order(written: Written, judged: Callable[..., Classification]) -> dict[str, list[float]]:
    result = {}
    for alpha, own in written.profiles.items():
        scores = judged(own)
        result[str(alpha)] = [scores.mean(ALL), scores.sd(ALL)]
    return result


def _measured(
    model: LanguageModel, asked: Sequence[Prompt], written: Written,
    settings: Mapping[str, Any], plain: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    labels = [prompt.label for prompt in asked]
    judged = partial(_judged, labels=labels, settings=settings)
    whole = partial(judged, groups=[prompt.group for prompt in asked])
    found = written.profiles[1.0]
    wordings = _wordings(asked)
    return {
        "model": model.name,
        "prompts": len(asked),
        "groups": len({prompt.group for prompt in asked}),
        "scores": means_and_spreads(whole(found, baselines=plain)),
        "alphas": _by_order(written, whole),
        "other_wordings": means_and_spreads(
            judged(found, groups=wordings, folds=2, baselines=plain)
        ),
        "profiles": by_label(found, labels),
        "plane": plane(found),
        "labels": labels,
        "expansion": found.expansion.tolist(),
        "examples": _examples(model, asked, written),
    }


def _wordings(asked: Sequence[Prompt]) -> list[str]:
    """The first and the second wording of every label, as the two groups."""
    known: dict[str, list[str]] = {}
    for prompt in asked:
        own = known.setdefault(prompt.label, [])
        if prompt.wording not in own:
            own.append(prompt.wording)
    return [str(known[prompt.label].index(prompt.wording)) for prompt in asked]


def _examples(
    model: LanguageModel, asked: Sequence[Prompt], written: Written
) -> dict[str, list[str]]:
    """The ends of a few texts of each label, as they were written."""
    count = int(written.profiles[1.0].tokens[0])
    result: dict[str, list[str]] = {}
    for prompt, text in zip(asked, written.texts, strict=True):
        own = result.setdefault(prompt.label, [])
        if len(own) < SHOWN:
            own.append(model.decode(text[-count:]))
    return result
