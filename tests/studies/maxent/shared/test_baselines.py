"""Ascent and fine-tuning are what a plain loop does, chosen on validation samples alone."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

import intarsia as ia
from intarsia.errors import StudyError
from intarsia.files import digest_of
from intarsia.modules import Classifier, logits_of
from intarsia.studies import Store, StudyContext, find_study
from intarsia.studies.maxent.shared.baselines import (
    UNPRUNED,
    Ascent,
    ascend,
    best_ascent,
    fine_tune,
    right,
    untrained,
)

CPU = torch.device("cpu")
RATES = (1e-3, 1e-2)


@pytest.fixture(scope="module")
def joint(data: ia.Data) -> ia.Module:
    settings = {"model": "mlp(16, dropout=0.2)", "epochs": 3, "learning_rate": 0.01, **UNPRUNED}
    settings["preset"] = "paper"  # as those of the studies
    sets = [list(data.catalogue)]
    return ia.train(data, partition=sets, device="cpu", progress=False, **settings)[0]


def test_ascent_climbs_the_loss_of_its_samples(joint: ia.Module, data: ia.Data) -> None:
    forget = data.train.select([3])
    network, expected = joint.to_module(), joint.to_module()
    steps = ascend(network, forget, Ascent("SGD", 0.5), lambda _: False, seed=7, limit=5)
    draw = torch.Generator().manual_seed(7)
    for _ in range(5):
        rows = torch.randperm(len(forget), generator=draw)[:256]
        loss = cross_entropy(expected(forget.x[rows]) / joint.temperature, forget.y[rows])
        values = list(expected.parameters())
        for value, slope in zip(values, torch.autograd.grad(loss, values), strict=True):
            value.data += 0.5 * slope
    assert steps == 5
    assert not _same(network, joint.to_module())
    for name, value in expected.state_dict().items():
        assert torch.allclose(network.state_dict()[name], value, atol=1e-7), name


def test_ascent_stops_once_it_has_forgotten(joint: ia.Module, data: ia.Data) -> None:
    looks = []

    def third(network: Classifier) -> bool:
        looks.append(network)
        return len(looks) == 3

    network = joint.to_module()
    forget = data.train.select([3])
    assert ascend(network, forget, Ascent("Adam", 1e-3), third, seed=0, limit=50) == 4
    assert len(looks) == 3  # before steps 0, 2 and 4


def test_best_ascent_leaves_most_on_validation_samples(joint: ia.Module, data: ia.Data) -> None:
    others = data.validation.select([i for i in range(10) if i != 4])
    mine = data.validation.select([4])
    tried = {}
    for rate in RATES:
        network = joint.to_module()
        ascend(
            network,
            data.train.select([4]),
            Ascent("Adam", rate),
            lambda model: ia.evaluate(model, mine, ["4"]).accuracy <= 0.1,
            seed=0,
        )
        assert ia.evaluate(network, mine, ["4"]).accuracy <= 0.1
        tried[rate] = ia.evaluate(network, others).accuracy
    result = best_ascent(joint, data, 4, [Ascent("Adam", rate) for rate in RATES], 0, CPU)
    assert len(set(tried.values())) == 2
    assert result.ascent.learning_rate == max(tried, key=lambda rate: tried[rate])
    assert result.remaining == max(tried.values())
    assert result.removed == right(result.network, mine) <= 0.1


def test_ascent_that_reaches_nothing_is_not_preferred(joint: ia.Module, data: ia.Data) -> None:
    """One that does not move keeps all of the others, and has forgotten nothing."""
    ascents = [Ascent("Adam", 0.0), Ascent("Adam", 1e-2)]
    result = best_ascent(joint, data, 4, ascents, 0, CPU, limit=100)
    assert result.ascent.learning_rate == 1e-2
    still = best_ascent(joint, data, 4, ascents[:1], 0, CPU, limit=3)
    assert (still.steps, still.removed > 0.1) == (3, True)


def test_ascent_looks_at_no_test_samples(joint: ia.Module, data: ia.Data) -> None:
    ascents = [Ascent("Adam", rate) for rate in RATES]
    blind = replace(data, test=ia.Split(data.test.x[:0], data.test.y[:0]))
    one, other = (best_ascent(joint, d, 0, ascents, 0, CPU, limit=20) for d in (data, blind))
    assert (one.ascent, one.steps) == (other.ascent, other.steps)
    assert _same(one.network, other.network)


def test_fine_tuning_is_adam_on_its_samples(data: ia.Data) -> None:
    split = data.train.select([2, 5])
    recipe = ia.Recipe(model="mlp(8, dropout=0)", seeds=[3]).resolve()
    network, expected = untrained(recipe, data), untrained(recipe, data)
    fine_tune(network, split, passes=2, learning_rate=0.01, batch=50, seed=1)
    _adam_by_hand(expected, split, passes=2, rate=0.01, batch=50, seed=1)
    for name, value in expected.state_dict().items():
        assert torch.allclose(network.state_dict()[name], value, atol=1e-4), name
    before, after = (
        cross_entropy(logits_of(one, split.x) / 5, split.y)
        for one in (untrained(recipe, data), network)
    )
    assert after < before - 0.3
    assert not network.training


def test_fine_tuning_draws_from_its_seed_alone(data: ia.Data) -> None:
    recipe = ia.Recipe(model="mlp(8, dropout=0.5)", seeds=[0]).resolve()
    split = data.train.select([1])
    networks = []
    for own, world in ((5, 0), (5, 1), (6, 0)):
        torch.manual_seed(world)
        before = torch.get_rng_state()
        networks.append(untrained(recipe, data))
        fine_tune(networks[-1], split, passes=1, learning_rate=0.01, batch=32, seed=own)
        assert torch.equal(torch.get_rng_state(), before)
    assert _same(networks[0], networks[1])
    assert not _same(networks[0], networks[2])


def test_untrained_is_the_origin_of_the_modules(joint: ia.Module, data: ia.Data) -> None:
    recipe = ia.Recipe(preset="paper", model="mlp(16, dropout=0.2)", seeds=[0]).resolve()
    network = untrained(recipe, data)
    assert digest_of("origin", network.network.state_dict()) == joint.origin
    assert (network.temperature, network.catalogue) == (joint.temperature, joint.catalogue)


@pytest.mark.parametrize("study", ["unlearning", "continual"])
@pytest.mark.parametrize("rates", [[], [0.1, -1], ["fast"]])
def test_step_sizes_are_checked_before_training(study: str, rates: list, tmp_path: Path) -> None:
    result = find_study(study)
    with pytest.raises(StudyError, match=r"rates is .*: expected step sizes above 0"):
        result.plan(
            result.options("small", rates=rates), StudyContext(Store(tmp_path / "store"), "cpu")
        )


def _adam_by_hand(
    network: Classifier, split: ia.Split, *, passes: int, rate: float, batch: int, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    values = list(network.parameters())
    first, second = ([torch.zeros_like(v) for v in values] for _ in range(2))
    step = 0
    for _ in range(passes):
        order = torch.randperm(len(split), generator=draw)
        for rows in (order[i : i + batch] for i in range(0, len(order), batch)):
            step += 1
            log_p = torch.log_softmax(network(split.x[rows]) / network.temperature, 1)
            loss = -log_p[torch.arange(len(rows)), split.y[rows]].mean()
            slopes = torch.autograd.grad(loss, values)
            for k, slope in enumerate(slopes):
                first[k] = 0.9 * first[k] + 0.1 * slope
                second[k] = 0.999 * second[k] + 0.001 * slope**2
                mean, square = first[k] / (1 - 0.9**step), second[k] / (1 - 0.999**step)
                values[k].data -= rate * mean / (square.sqrt() + 1e-8)


def _same(one: Classifier, other: Classifier) -> bool:
    state = other.state_dict()
    return all(torch.equal(value, state[name]) for name, value in one.state_dict().items())
