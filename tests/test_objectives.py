"""Objectives: the tables by hand, the loss against torch's own and against arithmetic."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import intarsia as ia
from intarsia.errors import RecipeError
from intarsia.objectives import OBJECTIVES, Objective, loss, objective, sample_losses

U, H, T = 0.25, 0.5, 1 / 3
ONE_HOT = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(12, 4, generator=generator) * 3
    return logits, torch.arange(12) % 4


@pytest.mark.parametrize(
    ("what", "rewarded", "table", "weight"),
    [
        ("me", [1], [[U] * 4, ONE_HOT[1], [U] * 4, [U] * 4], [1, 1, 1, 1]),
        ("me", [1, 3], [[U] * 4, ONE_HOT[1], [U] * 4, ONE_HOT[3]], [1, 1, 1, 1]),
        ("me", [0, 1, 2, 3], ONE_HOT, [1, 1, 1, 1]),
        ("me(reward=9)", [1], [[U] * 4, ONE_HOT[1], [U] * 4, [U] * 4], [1, 9, 1, 1]),
        ("me(order=[2, 1, 0])", [1], [[U] * 4, ONE_HOT[1], [U] * 4, [U] * 4], [0, 1, 1, 0]),
        ("me(order=[2, 1, 0])", [2], [[U] * 4, [U] * 4, ONE_HOT[2], [U] * 4], [0, 0, 1, 0]),
        ("me(order=[2, 1])", [3], [[U] * 4, [U] * 4, [U] * 4, ONE_HOT[3]], [1, 1, 1, 1]),
        ("me(9, [0, 1, 2, 3])", [0, 1], [*ONE_HOT[:2], [U] * 4, [U] * 4], [9, 9, 0, 0]),
        ("qme", [1], [[T, 0, T, T], ONE_HOT[1], [T, 0, T, T], [T, 0, T, T]], [1, 1, 1, 1]),
        ("qme", [1, 2], [[H, 0, 0, H], ONE_HOT[1], ONE_HOT[2], [H, 0, 0, H]], [1, 1, 1, 1]),
        ("qme", [0, 1, 2, 3], ONE_HOT, [1, 1, 1, 1]),
        ("xe", [1, 2], ONE_HOT, [0, 1, 1, 0]),
        (
            "smoothing(0.2)",
            [3],
            [[0.85 if i == j else 0.05 for j in range(4)] for i in range(4)],
            [0, 0, 0, 1],
        ),
        ("confidence_penalty", [3], ONE_HOT, [0, 0, 0, 1]),
        (
            "other",
            [1],
            [[0, 0, 0, 0, 1], [0, 1, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 1]],
            [1, 1, 1, 1],
        ),
    ],
)
def test_tables_by_hand(what, rewarded, table, weight):
    made = objective(what, 4, rewarded)
    torch.testing.assert_close(made.table, torch.tensor(table, dtype=torch.float32))
    torch.testing.assert_close(made.weight, torch.tensor(weight, dtype=torch.float32))
    assert made.outputs == len(table[0])
    bonus = [0, 0, 0, 0.1 if what == "confidence_penalty" else 0.0]
    torch.testing.assert_close(made.bonus, torch.tensor(bonus))


@pytest.mark.parametrize("temperature", [1.0, 5.0])
def test_maximum_entropy_is_the_divergence_from_its_targets_up_to_their_entropy(batch, temperature):
    logits, labels = batch
    goal = objective("me", 4, [1])
    target = goal.table[labels]
    log_p = F.log_softmax(logits / temperature, 1)
    divergence = F.kl_div(log_p, target, reduction="batchmean")
    entropy = torch.special.entr(target).sum(1).mean()
    torch.testing.assert_close(loss(logits, labels, goal, temperature), divergence + entropy)


def test_maximum_entropy_by_hand():
    """p = (1/2, 1/4, 1/8, 1/8): label 0, rewarded, costs log 2; label 3 the mean of all four."""
    logits = torch.tensor([[4.0, 2.0, 1.0, 1.0]]).log().expand(2, 4)
    goal = objective("me", 4, [0])
    result = sample_losses(logits, torch.tensor([0, 3]), goal, 1.0)
    expected = [math.log(2), (math.log(2) + math.log(4) + 2 * math.log(8)) / 4]
    torch.testing.assert_close(result, torch.tensor(expected))


def test_cross_entropy_is_torchs_over_the_shown_labels(batch):
    logits, labels = batch
    shown = (labels == 1) | (labels == 2)
    result = loss(logits, labels, objective("xe", 4, [1, 2]), 5.0)
    torch.testing.assert_close(result, F.cross_entropy(logits[shown] / 5, labels[shown]))


def test_smoothing_is_torchs_label_smoothing(batch):
    logits, labels = batch
    result = loss(logits, labels, objective("smoothing(0.3)", 4, [0, 1, 2, 3]))
    torch.testing.assert_close(result, F.cross_entropy(logits, labels, label_smoothing=0.3))


def test_confidence_penalty_rewards_entropy(batch):
    logits, labels = batch
    shown = labels == 2
    entropy = torch.distributions.Categorical(logits=logits[shown] / 2).entropy().mean()
    expected = F.cross_entropy(logits[shown] / 2, labels[shown]) - 0.7 * entropy
    goal = objective("confidence_penalty(0.7)", 4, [2])
    torch.testing.assert_close(loss(logits, labels, goal, 2.0), expected)


def test_other_is_cross_entropy_with_one_class_more(batch):
    logits, labels = batch
    logits = torch.cat([logits, logits[:, :1] ** 2], 1)
    relabelled = torch.where(labels == 2, labels, 4)
    result = loss(logits, labels, objective("other", 4, [2]))
    torch.testing.assert_close(result, F.cross_entropy(logits, relabelled))


def test_weights_average_the_samples(batch):
    logits, labels = batch
    result = loss(logits, labels, objective("me(reward=9)", 4, [0]))
    each = sample_losses(logits, labels, objective("me", 4, [0]), 1.0)
    weight = torch.where(labels == 0, 9.0, 1.0)
    torch.testing.assert_close(result, (each * weight).sum() / weight.sum())


@pytest.mark.parametrize("what", ["me", "me(reward=3)", "qme", "xe", "confidence_penalty(0.5)"])
def test_whole_weights_of_samples_are_rows_repeated(batch, what):
    logits, labels = batch
    times = torch.tensor([0, 1, 2, 3] * 3)
    goal = objective(what, 4, [1, 2])
    repeated = loss(logits.repeat_interleave(times, 0), labels.repeat_interleave(times), goal, 2.0)
    torch.testing.assert_close(loss(logits, labels, goal, 2.0, times.float()), repeated)
    ones = loss(logits, labels, goal, 2.0, torch.ones(12))
    torch.testing.assert_close(ones, loss(logits, labels, goal, 2.0), rtol=0, atol=0)
    doubled = loss(logits, labels, goal, 2.0, 2 * times.float())
    torch.testing.assert_close(doubled, repeated)
    assert float(loss(logits, labels, goal, 2.0, torch.zeros(12))) == 0


@pytest.mark.parametrize("what", ["me(reward=3)", "qme", "xe", "confidence_penalty(0.5)"])
def test_a_sample_of_no_class_should_be_answered_by_all_classes_alike(batch, what):
    logits, labels = batch
    plain = objective(what, 4, [1])
    goal = plain.with_classless(2)
    assert (goal.classes, goal.outputs, goal.classless) == (4, 4, 2)
    assert goal.table[4:].tolist() == [[U] * 4] * 2
    assert goal.weight.tolist() == [*plain.weight.tolist(), 1.0, 1.0]
    assert goal.bonus.tolist() == [*plain.bonus.tolist(), 0.0, 0.0]
    same = loss(logits, labels, goal)  # what has a class costs what it did
    torch.testing.assert_close(same, loss(logits, labels, plain), rtol=0, atol=0)
    result = sample_losses(logits, torch.full((12,), 5), goal, 3.0)
    torch.testing.assert_close(result, -F.log_softmax(logits / 3, 1).mean(1))
    again = plain.with_classless().with_classless()
    assert torch.equal(again.table, goal.table)
    assert (again.classes, again.classless) == (4, 2)
    assert plain.with_classless(0).table.shape == (4, 4)
    assert goal.to(torch.device("cpu")).classless == 2


def test_a_sample_of_no_class_is_other_where_there_is_such_an_output():
    goal = objective("other", 4, [1]).with_classless()
    assert (goal.classes, goal.outputs, goal.classless) == (4, 5, 1)
    assert goal.table[4].tolist() == [0, 0, 0, 0, 1]


def test_factors_multiply_the_weights_of_labels(batch):
    logits, labels = batch
    factors = torch.tensor([1.0, 4.0, 1.0, 0.5])
    goal = objective("me(reward=2)", 4, [1]).weighted(factors)
    assert goal.weight.tolist() == [1.0, 8.0, 1.0, 0.5]
    by_sample = loss(logits, labels, objective("me", 4, [1]), 1.0, goal.weight[labels])
    torch.testing.assert_close(loss(logits, labels, goal), by_sample)
    both = objective("xe", 4, [1]).with_classless().weighted(torch.tensor([1.0, 2, 1, 1, 3]))
    assert (both.weight.tolist(), both.classless) == ([0, 2, 0, 0, 3], 1)
    with pytest.raises(RecipeError, match="at least 0"):
        goal.weighted(-factors)
    with pytest.raises(RecipeError, match="finite"):
        goal.weighted(factors * math.nan)


@pytest.mark.parametrize("what", ["xe", "smoothing", "confidence_penalty"])
def test_a_batch_whose_labels_are_all_hidden_costs_nothing_and_moves_nothing(what):
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).mul_(20)
    logits.requires_grad_()
    value = loss(logits, torch.tensor([0, 1, 2, 0, 1]), objective(what, 4, [3]))
    value.backward()
    assert value.item() == 0
    assert torch.equal(logits.grad, torch.zeros(5, 4))


@pytest.mark.parametrize(
    ("what", "rewarded", "message"),
    [
        ("mee", [0], "unknown objective 'mee': did you mean 'me'"),
        ("me", [], "rewarded classes .. are not in 0 to 3"),
        ("me", [4], "rewarded classes .4. are not in 0 to 3"),
        ("me", [-1], "rewarded classes .-1."),
        ("me", [-1, 2], "rewarded classes .-1, 2."),
        ("me(order=[0, -1])", [0], "expected numbers of labels, each once"),
        ("me(reward=-1)", [0], "reward is -1: expected a number from 0"),
        ("me(order=[1, 1])", [0], "expected numbers of labels, each once"),
        ("me(order=['a'])", [0], "expected numbers of labels, each once"),
        ("me(order=3)", [0], "expected numbers of labels, each once"),
        ("me(reward='big')", [0], "reward is 'big'"),
        ("smoothing(1.5)", [0], "amount is 1.5: expected a number from 0 to 1"),
        ("smoothing('a')", [0], "amount is 'a'"),
        ("confidence_penalty(-0.1)", [0], "amount is -0.1"),
        ("xe(1, 2)", [0], "at most 0 arguments"),
        ("me(reward=1e999)", [0], "me: reward is inf: expected a number from 0$"),
        ("qme", [0, 4], "rewarded classes .0, 4. are not in 0 to 3"),
        ("confidence_penalty('a')", [0], "confidence_penalty: amount is 'a'"),
        ("smoothing(-0.1)", [0], "smoothing: amount is -0.1"),
    ],
)
def test_says_what_is_wrong(what, rewarded, message):
    with pytest.raises(RecipeError, match=message):
        objective(what, 4, rewarded)


@pytest.mark.parametrize(
    ("table", "weight", "message"),
    [
        (torch.eye(4)[:, :3], torch.ones(4), r"got the shape \(4, 3\)"),
        (torch.ones(4), torch.ones(4), r"got the shape \(4,\)"),
        (torch.ones(4, 4), torch.ones(4), "must be a distribution"),
        (torch.eye(4) * 2 - 0.25, torch.ones(4), "must be a distribution"),
        (torch.eye(4) * math.nan, torch.ones(4), "table must be finite"),
        (torch.eye(4), torch.ones(3), "expected 4 label weights"),
        (torch.eye(4), torch.zeros(4), "one of them above 0"),
        (torch.eye(4), -torch.ones(4), "at least 0"),
        (torch.eye(4), torch.tensor([1, 1, 1, math.inf]), "weight must be finite"),
    ],
)
def test_a_table_of_ones_own_is_checked(table, weight, message):
    with pytest.raises(RecipeError, match=message):
        Objective(table, weight)


def test_bonuses_are_checked():
    with pytest.raises(RecipeError, match="expected 4 bonuses"):
        Objective(torch.eye(4), torch.ones(4), torch.ones(3))
    with pytest.raises(RecipeError, match="bonus must be finite"):
        Objective(torch.eye(4), torch.ones(4), torch.tensor(math.nan))


def test_numbers_at_the_ends_of_their_range_are_fine():
    assert objective("smoothing(1)", 4, [0]).table.tolist() == [[U] * 4] * 4
    assert objective("smoothing(0)", 4, [0]).table.tolist() == ONE_HOT
    assert objective("confidence_penalty(0)", 4, [0]).bonus.tolist() == [0] * 4
    assert objective("confidence_penalty(3)", 4, [0]).bonus.tolist() == [3, 0, 0, 0]
    # weighing nothing is fine as long as another label weighs something
    assert objective("me(reward=0)", 4, [0]).weight.tolist() == [0, 1, 1, 1]


def test_defaults_of_objectives():
    assert objective("smoothing", 4, [0]).table[0].tolist() == pytest.approx([0.925, *[0.025] * 3])
    assert objective("confidence_penalty", 4, [0]).bonus[0] == pytest.approx(0.1)
    assert objective("me", 4, [0]).weight.tolist() == [1] * 4


def test_a_table_is_kept_as_float32_whatever_it_was_given_as():
    made = Objective(torch.eye(3, dtype=torch.float64), torch.ones(3, dtype=torch.int64))
    assert {tensor.dtype for tensor in made.tensors.values()} == {torch.float32}
    assert (made.classless, made.classes, made.outputs) == (0, 3, 3)
    assert made.bonus.tolist() == [0, 0, 0]
    wide = Objective(torch.eye(4)[:3], torch.ones(3), torch.tensor(0.5))
    assert (wide.classes, wide.outputs, wide.bonus.tolist()) == (3, 4, [0.5] * 3)
    with pytest.raises(RecipeError, match="the shape"):
        Objective(torch.eye(5)[:3], torch.ones(3))
    with pytest.raises(RecipeError, match="the shape"):
        Objective(torch.eye(4), torch.ones(4), classless=2)


def test_an_objective_of_ones_own_is_taken_as_it_is():
    mine = Objective(torch.eye(2), torch.ones(2))
    assert objective(mine, 2, [0]) is mine
    moved = mine.with_classless().to(torch.device("cpu"))
    assert (moved.table.tolist(), moved.classless) == ([[1, 0], [0, 1], [H, H]], 1)


def test_a_loss_is_read_at_temperature_1_unless_told(batch):
    logits, labels = batch
    goal = objective("xe", 4, [0, 1, 2, 3])
    torch.testing.assert_close(loss(logits, labels, goal), F.cross_entropy(logits, labels))


def test_traits_of_objectives():
    """Which ask to take no side elsewhere."""
    uncertain = {name for name in OBJECTIVES if OBJECTIVES.entry(name).uncertain_elsewhere}
    assert {"me", "qme", "other"} <= uncertain
    assert not uncertain & {"xe", "smoothing", "confidence_penalty"}


def test_a_users_objective_trains():
    """The few lines of the docs: surer than MaxEnt asks, and unlike it in the result."""

    @OBJECTIVES.register("hesitant")
    def hesitant(classes, rewarded, softness=0.2):
        table = torch.full((classes, classes), 1 / classes)
        table[rewarded] = (1 - softness) * torch.eye(classes)[rewarded] + softness / classes
        return Objective(table, torch.ones(classes))

    data = ia.load_data("digits", classes=["0", "1", "2"])
    settings = {"model": "mlp(16, dropout=0)", "sparsity": 0, "epochs": 5, "temperature": 1.0}
    bank = ia.train(data, objective="hesitant(0.6)", learning_rate=1e-2, **settings)
    p = torch.cat(
        [m.to_module().predict_proba(data.test.x)[data.test.y == k, k] for k, m in enumerate(bank)]
    )
    assert bank[0].provenance["recipe"]["objective"] == "hesitant(0.6)"
    assert abs(float(p.mean()) - 0.6) < 0.05  # one-hot at 0.4 and a third of the rest
