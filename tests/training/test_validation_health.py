"""Who is hardly above chance, by the loss of the best constant answer."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

import intarsia as ia
from intarsia.modules import Finding
from intarsia.objectives import Objective, loss, objective
from intarsia.training import Task
from intarsia.training.validation_health import constant_loss, gain, learning_findings

CLASSES = 4
COUNTS = torch.tensor([30, 10, 50, 10])
LABELS = torch.arange(CLASSES).repeat_interleave(COUNTS)


def never() -> tuple[Tensor, Tensor]:
    raise AssertionError("nothing is suspicious: the network need not be asked")


def judged(
    logits: Tensor, goal: str = "me", rewarded: Sequence[int] = (0,), lazy: bool = False
) -> list[str]:
    """The kinds of what is found of a module that gives these logits to the samples."""
    task = _task(goal, rewarded)
    result = learning_findings(
        task, _scores(logits, task), LABELS, never if lazy else lambda: (logits, LABELS), 1.0
    )
    assert all(isinstance(one, Finding) and one.module == task.name for one in result)
    return [one.kind for one in result]


@pytest.mark.parametrize("goal", ["me", "me(reward=3.0)", "qme", "xe", "smoothing", "other"])
@pytest.mark.parametrize("rewarded", [(0,), (1, 2)])
def test_no_constant_answer_is_better(goal: str, rewarded: tuple[int, ...]) -> None:
    """The closed form against a search over all distributions."""
    table = objective(goal, CLASSES, rewarded)

    def of(z: Any) -> float:
        return float(loss(torch.tensor(z).expand(len(LABELS), -1), LABELS, table))

    most = {"maxiter": 20_000, "maxfev": 20_000, "fatol": 1e-10, "xatol": 1e-8}
    start = [0.1 * i for i in range(table.outputs)]
    best = minimize(of, start, method="Nelder-Mead", options=most)
    constant, perfect = constant_loss(table, COUNTS)
    assert constant == pytest.approx(best.fun, abs=1e-4)
    rows = table.table.clamp_min(1e-30).log()[LABELS]
    assert perfect == pytest.approx(float(loss(rows, LABELS, table)), abs=1e-5)


def test_a_bonus_counts_as_in_training() -> None:
    table = objective("confidence_penalty(amount=0.2)", CLASSES, (0, 1))
    constant, _ = constant_loss(table, COUNTS)
    shown = COUNTS[:2] / COUNTS[:2].sum()
    logits = torch.cat([shown, torch.zeros(2)]).clamp_min(1e-30).log().expand(len(LABELS), -1)
    assert constant == pytest.approx(float(loss(logits, LABELS, table)), abs=1e-5)


def test_what_knows_its_class_is_not_even_asked() -> None:
    assert judged(_sure(0, 6.0), lazy=True) == []


def test_an_untrained_network_is_undertrained_though_it_seems_always_right() -> None:
    """It answers its class to whatever it sees: the rewarded accuracy is 1."""
    noise = 0.05 * torch.randn(len(LABELS), CLASSES, generator=torch.Generator().manual_seed(0))
    logits = noise + torch.tensor([1.0, 0, 0, 0])
    assert bool((logits.argmax(1) == 0).all())
    assert judged(logits) == ["undertrained"]


def test_a_constant_answer_is_dead() -> None:
    assert judged(torch.tensor([[0.3, 0, 0, 0]]).repeat(len(LABELS), 1)) == ["dead"]


def test_who_is_too_sure_of_what_it_knows_is_not_undertrained() -> None:
    """A few samples get the wrong answer with full confidence: a large loss, and much knowledge."""
    logits = _sure(0, 60.0)
    logits[[35, 45]] = _sure(0, 60.0)[:2]
    task = _task("me", (0,))
    constant, perfect = constant_loss(task.objective, COUNTS)
    assert _scores(logits, task)["loss"] > constant
    assert gain(logits, LABELS, task.objective) > 0.5 * (constant - perfect)
    assert "undertrained" not in judged(logits)


def test_toning_down_never_harms() -> None:
    goal = _task("me", (0,)).objective
    against = torch.zeros(len(LABELS), CLASSES)
    against[LABELS != 0, 0] = 5.0  # sure of all samples that are not its own, and of no other
    assert gain(against, LABELS, goal) == pytest.approx(0, abs=1e-9)


def test_entropy_far_below_what_is_asked_is_inconsistent() -> None:
    """It tells its class from the others, and answers something to these as well."""
    logits = _sure(0, 4.0) + 8.0 * torch.nn.functional.one_hot((LABELS + 1) % 4, 4) * (
        LABELS[:, None] > 0
    )
    assert "inconsistent" in judged(logits, "me")
    assert "inconsistent" not in judged(logits, "xe", (0, 1))  # which asks for nothing there
    assert judged(_sure(0, 4.0), "me") == []


def test_where_there_is_nothing_to_learn_there_is_nothing_to_say() -> None:
    assert judged(torch.zeros(len(LABELS), CLASSES), "xe", (0,), lazy=True) == []


def test_few_samples_prove_little() -> None:
    """A module of much promise with one sure mistake: among 8 samples that is no evidence."""
    labels = torch.tensor([0, 1, 2, 3] * 2)
    logits = 3.0 * torch.nn.functional.one_hot(torch.zeros_like(labels), 4) * (labels == 0)[:, None]
    logits[1, 0] = 6.0
    task = _task("me", (0,))
    to_learn = -float(torch.tensor(constant_loss(task.objective, labels.bincount())).diff())
    bound = gain(logits, labels, task.objective)
    again = gain(logits.repeat(50, 1), labels.repeat(50), task.objective)
    assert bound > again  # the same gain on average, better known
    assert bound > 0.1 * to_learn


def test_training_tells_the_untrained_from_the_trained(small_data: ia.Data) -> None:
    settings = {"model": "mlp([16])", "sparsity": 0.0, "progress": False}
    untrained = ia.train(small_data, epochs=1, learning_rate=1e-7, **settings)
    assert [f.kind for f in untrained.health.findings] == ["undertrained"] * 4
    trained = ia.train(small_data, epochs=30, learning_rate=0.01, **settings)
    assert trained.health.ok
    assert "health" not in trained[0].provenance


def test_health_does_not_depend_on_the_engine_or_the_folder(
    small_data: ia.Data, tmp_path: Any
) -> None:
    settings = {"model": "mlp([16])", "sparsity": 0.0, "epochs": 1, "progress": False}
    banks = [
        ia.train(small_data, learning_rate=1e-7, engine=engine, **settings, **more)
        for engine, more in (("mlp", {"out": tmp_path}), ("plain", {}), ("single", {}))
    ]
    kinds = [[(f.kind, f.module) for f in bank.health.findings] for bank in banks]
    assert kinds[0] == kinds[1] == kinds[2]


def _task(goal: str, rewarded: Sequence[int]) -> Task:
    names = tuple("abcd"[i] for i in rewarded)
    return Task("m", names, tuple(rewarded), 0, 1e-3, objective(goal, CLASSES, rewarded))


def _scores(logits: Tensor, task: Task) -> dict[str, float]:
    """As the engines measure them, for logits over the catalogue."""
    goal: Objective = task.objective
    mine = torch.isin(LABELS, torch.tensor(task.indices))
    log_p = torch.log_softmax(logits.double(), 1)
    entropy = -(log_p.exp() * log_p).sum(1)[~mine]
    return {
        "accuracy": float((logits.argmax(1) == LABELS)[mine].double().mean()),
        "entropy": float(entropy.mean()) if len(entropy) else math.nan,
        "loss": float(loss(logits, LABELS, goal)),
    }


def _sure(label: int, size: float) -> Tensor:
    """Logits that are sure of the samples of one label, and uniform elsewhere."""
    logits = torch.zeros(len(LABELS), CLASSES)
    logits[label == LABELS, label] = size
    return logits
