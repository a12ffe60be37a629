"""Optimisers against torch's own and against their formulas, and what decay must not reach."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import intarsia as ia
from intarsia.data import Data
from intarsia.errors import RecipeError
from intarsia.objectives import loss
from intarsia.specs import Spec
from intarsia.training.engines.base import Engine, Start
from intarsia.training.engines.plain import PlainEngine
from intarsia.training.engines.select import choose
from intarsia.training.engines.stack import StackEngine
from intarsia.training.job import Job
from intarsia.training.settings.optimisers import OPTIMISERS, OptimiserState, StackedStep

Values = dict[str, Tensor]
Make = Callable[..., tuple[Job, list[Values]]]
TEXTS = [
    "adamw(decay=0.3)",
    "sgd",
    "sgd(momentum=0.5, decay=0.3, nesterov=false)",
    "sgd(momentum=0, decay=0.3)",
]
RATE, STEPS = 0.05, 6
ENGINES: dict[str, Callable[[Job], Engine]] = {
    "plain": PlainEngine,
    "single": lambda job: StackEngine(job, 1),
    "stack": lambda job: StackEngine(job, 3),
}


def draws(shape: tuple[int, ...], count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator) for _ in range(count)]


def stepped(text: str, start: Values, grads: list[Values], decayed: Any) -> Values:
    """The weights after our fused steps."""
    optimiser = OPTIMISERS.call(OPTIMISERS.spec(text))
    weights = {n: t.clone() for n, t in start.items()}
    state = OptimiserState.zeros(optimiser.moments, weights)
    own = {n: torch.zeros_like(t) for n, t in start.items()}
    step = StackedStep(optimiser, weights, own, state, torch.tensor(RATE), decayed)
    for given in grads:
        for name, grad in given.items():
            own[name].copy_(grad)
        step.step()
    return weights


def torch_steps(optimiser: type, start: Tensor, grads: list[Tensor], **settings: Any) -> Tensor:
    weight = start.clone().requires_grad_()
    own = optimiser([weight], lr=RATE, **settings)
    for grad in grads:
        weight.grad = grad
        own.step()
    return weight.detach()


@pytest.mark.parametrize(
    ("text", "optimiser", "settings"),
    [
        ("adam", torch.optim.Adam, {}),
        ("adamw(decay=0.3)", torch.optim.AdamW, {"weight_decay": 0.3}),
        ("adamw", torch.optim.AdamW, {"weight_decay": 0.01}),
        ("sgd(decay=0)", torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        ("sgd(0.5, 0, false)", torch.optim.SGD, {"momentum": 0.5}),
        ("sgd(0, 0)", torch.optim.SGD, {}),
        # without momentum, decay in the gradient is decay of the weight
        ("sgd(0, 0.3)", torch.optim.SGD, {"weight_decay": 0.3}),
    ],
)
def test_steps_are_torchs(text: str, optimiser: type, settings: dict[str, Any]) -> None:
    start, *grads = draws((4, 3), STEPS + 1)
    ours = stepped(text, {"a": start}, [{"a": grad} for grad in grads], {"a": None})
    expected = torch_steps(optimiser, start, grads, **settings)
    torch.testing.assert_close(ours["a"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("nesterov", [True, False])
def test_decay_of_sgd_is_not_fed_through_the_momentum(nesterov: bool) -> None:
    momentum, decay = 0.8, 0.3
    start, *grads = draws((4, 3), STEPS + 1)
    weight, moved = start.double(), torch.zeros(4, 3).double()
    for grad in (g.double() for g in grads):
        moved = momentum * moved + grad
        step = grad + momentum * moved if nesterov else moved
        weight = weight - RATE * decay * weight - RATE * step
    text = f"sgd({momentum}, {decay}, nesterov={nesterov})"
    ours = stepped(text, {"a": start}, [{"a": grad} for grad in grads], {"a": None})["a"]
    torch.testing.assert_close(ours.double(), weight, rtol=1e-5, atol=1e-6)
    coupled = torch_steps(
        torch.optim.SGD, start, grads, momentum=momentum, nesterov=nesterov, weight_decay=decay
    )
    assert float((coupled - ours).abs().max()) > 1e-2


def test_small_decay_is_not_lost_in_rounding() -> None:
    """As a factor, 1 - 5e-7 has an error of five in a hundred in float32."""
    start = torch.rand(2000, 1, generator=torch.Generator().manual_seed(0)) + 0.5
    zero = [{"a": torch.zeros_like(start)}] * 100
    weight = stepped(f"sgd(0, {5e-7 / RATE})", {"a": start}, zero, {"a": None})["a"]
    lost = (start.double() - weight.double()).sum() / start.double().sum()
    assert float(lost) == pytest.approx(5e-5, rel=0.02)


def test_decay_is_for_what_is_named_and_not_masked() -> None:
    start = {"a": torch.ones(2, 2), "b": torch.ones(2), "c": torch.ones(2, 2)}
    zeros = [{n: torch.zeros_like(t) for n, t in start.items()}]
    mask = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    after = stepped("sgd(decay=2.0)", start, zeros, {"a": mask, "c": None})
    assert torch.equal(after["a"], 1 - 0.1 * mask)
    assert torch.equal(after["b"], start["b"])
    assert torch.equal(after["c"], torch.full((2, 2), 0.9))


# in engines


def job_with(make_job: Make, model: str, text: str, **settings: Any) -> tuple[Job, list[Values]]:
    job, origins = make_job(model, several=False, **settings)
    return replace(job, optimiser=OPTIMISERS.spec(text)), origins


def run(engine: Engine, starts: list[Start], rates: Any = 0.02, epochs: int = 2) -> list[Values]:
    engine.begin(starts)
    for epoch in range(epochs):
        engine.epoch(0, epoch, [rates] * len(starts), [True] * len(starts))
    engine.keep(range(len(starts)))
    return [engine.best(k) for k in range(len(starts))]


def far_apart(ours: Values, oracle: Values) -> float:
    flat = [
        torch.cat([v[n].double().flatten() for n, t in oracle.items() if t.is_floating_point()])
        for v in (ours, oracle)
    ]
    return float((flat[0] - flat[1]).norm() / flat[1].norm())


@pytest.mark.parametrize("moments", [False, True])
@pytest.mark.parametrize("density", [1.0, 0.3])
@pytest.mark.parametrize("text", TEXTS)
def test_stacks_equal_the_plain_loop(
    make_job: Make, masked: Any, with_moments: Any, text: str, density: float, moments: bool
) -> None:
    """In double, and with a learning rate that every precision has: rounding tells nothing."""
    job, origins = job_with(make_job, "mlp([24], dropout=0)", text, dtype=torch.float64)
    starts = masked(origins, density)
    if moments:
        starts = [with_moments(start, k) for k, start in enumerate(starts)]
    oracle = run(PlainEngine(job), starts, 2**-5)
    for kind in ("single", "stack"):
        trained = run(ENGINES[kind](job), starts, 2**-5)
        for ours, theirs, start in zip(trained, oracle, starts, strict=True):
            assert far_apart(ours, theirs) < 1e-6
            assert far_apart(start.state, theirs) > 1e-2


@pytest.mark.parametrize("text", TEXTS[:2])
def test_normalisations_do_not_decay(make_job: Make, text: str) -> None:
    """With a gradient of 0, since no sample counts, decay alone moves weights."""
    job, origins = job_with(make_job, "resnet18(width=4)", text, samples=16, batch=8)
    tasks = [replace(task, objective=task.objective.weighted(torch.ones(10))) for task in job.tasks]
    job = replace(job, tasks=tasks[:2], sample_weight=torch.zeros(len(job.y)))
    starts = [Start(dict(origin)) for origin in origins[:2]]
    for make in ENGINES.values():
        for ours, start in zip(run(make(job), starts, epochs=1), starts, strict=True):
            for name, parameter in job.network.named_parameters():
                still = torch.equal(ours[name], start.state[name])
                assert still is (parameter.dim() == 1), name
                if not still:
                    factor = (1 - 0.02 * OPTIMISERS.call(job.optimiser).decay) ** 2
                    expected = factor * start.state[name]
                    torch.testing.assert_close(ours[name], expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("kind", list(ENGINES))
@pytest.mark.parametrize("text", TEXTS)
def test_pruned_and_frozen_weights_never_move(
    make_job: Make, masked: Any, with_moments: Any, text: str, kind: str, changes: bool
) -> None:
    """Under decay and momentum, also that of the round before; of a base they keep its values."""
    job, origins = job_with(make_job, "mlp([24, 16], dropout=0)", text)
    starts = masked(origins, 0.3)
    for k, start in enumerate(starts):
        state = dict(origins[k]) if changes else start.state
        frozen = {"layers.0.bias": torch.zeros(24, dtype=torch.bool)}
        mask = {**start.mask, **frozen}
        starts[k] = with_moments(Start(state, mask, changes=changes), k)
    engine = ENGINES[kind](job)
    run(engine, starts, epochs=1)
    for slot, start in zip(engine.slots, starts, strict=True):
        for name, mask in start.mask.items():
            assert torch.equal(slot.parameters[name][~mask], start.state[name][~mask])
            assert not mask.any() or not torch.equal(slot.parameters[name], start.state[name])


@pytest.mark.parametrize("kind", ["plain", "single", "stack", "mlp"])
def test_learning_rates_may_change_from_batch_to_batch(
    make_job: Make, masked: Any, kind: str
) -> None:
    """Batches with a learning rate of 0 move nothing but moments."""
    from intarsia.training.engines.mlp_cpu.mlp_engine import MlpEngine

    job, origins = make_job("mlp([24], dropout=0)", several=False)
    starts = masked(origins, 1.0)
    rates = [0.02, 0.01, *[0.0] * 8]
    make = MlpEngine if kind == "mlp" else ENGINES[kind]
    ours = run(make(job), starts, rates, epochs=1)
    network, goal = job.network, job.tasks[0].objective
    network.load_state_dict(starts[0].state)
    adam = torch.optim.Adam(network.parameters())
    for indices, rate in zip(job.order(job.tasks[0], 0, 0).split(64), rates, strict=True):
        adam.param_groups[0]["lr"] = rate
        adam.zero_grad()
        loss(network(job.x[indices]), job.y[indices], goal, job.temperature).backward()
        adam.step()
    expected = {n: t.detach() for n, t in network.named_parameters()}
    assert far_apart(ours[0], expected) < 1e-5


@pytest.mark.parametrize("model", ["mlp(24)", "lenet"])
@pytest.mark.parametrize("text", ["adamw", "sgd"])
def test_engines_with_adam_by_hand_are_not_chosen(
    make_job: Make, monkeypatch: pytest.MonkeyPatch, model: str, text: str
) -> None:
    job, _ = job_with(make_job, model, text)
    assert choose(job, "auto", patience=False).engine == "single"
    kind = model.partition("(")[0]
    with pytest.raises(RecipeError, match=rf"has Adam's step alone, and the optimiser is {text}"):
        choose(job, kind, patience=False)
    monkeypatch.setattr(Job, "device", property(lambda job: torch.device("cuda", 0)))
    monkeypatch.setattr("intarsia.training.engines.select.find_spec", lambda name: object())
    assert choose(job, "auto", patience=False).engine == "stack"
    assert choose(replace(job, optimiser=Spec("adam")), "auto", patience=False).engine == kind


@pytest.mark.parametrize("text", ["adamw(0.1)", "sgd(decay=0.1)"])
def test_moments_live_on_across_rewinds(small_data: Data, text: str) -> None:
    settings: dict[str, Any] = {
        "preset": "paper", "model": "mlp([12], dropout=0)", "epochs": 2, "sparsity": 0.5,
        "learning_rate": 1e-2, "optimiser": text, "progress": False,
    }  # fmt: skip
    banks = {
        (engine, keep): ia.train(small_data, engine=engine, keep_moments=keep, **settings)
        for engine in ("plain", "stack")
        for keep in (False, True)
    }
    for k in range(4):
        kept, plain = banks["stack", True][k].state, banks["plain", True][k].state
        assert far_apart(kept, plain) < 1e-4
        assert far_apart(kept, banks["stack", False][k].state) > 1e-3
    assert banks["stack", True][0].provenance["recipe"]["optimiser"] == str(OPTIMISERS.spec(text))


def test_adam_is_not_part_of_a_recipe() -> None:
    """So that recipes, folders and digests of before stay as they are."""
    plain = ia.Recipe().resolve()
    named = ia.Recipe(optimiser="adam", schedule={"name": "cosine"}).resolve()
    assert plain.as_dict() == named.as_dict()
    assert "optimiser" not in plain.as_dict()
    other = ia.Recipe(optimiser={"name": "sgd", "nesterov": False}).resolve()
    assert other.as_dict()["optimiser"] == "sgd(nesterov=False)"
    assert other.digest() != plain.digest()
    again = ia.Recipe.read(other.as_dict()).resolve()
    assert again.digest() == other.digest()


def test_the_choices_name_what_is_not_usual() -> None:
    from intarsia.training.settings.presets import DataSize, describe

    size = DataSize(1000, 64, 10)
    recipe = ia.Recipe(optimiser="sgd", batches="balanced(2)", schedule="onecycle")
    told = describe(recipe.resolve(size), size)
    assert "onecycle, optimiser sgd, negatives" in told
    assert "in batches of 64, balanced(amount=2), learning rate" in told
    assert "optimiser" not in describe(ia.Recipe().resolve(size), size)
