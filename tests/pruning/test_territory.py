"""Territory: units are owned, so nothing of two modules meets."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import intarsia as ia
from intarsia.errors import RecipeError, WiringError
from intarsia.models import initialise, wiring_of
from intarsia.models.wiring import axis_sizes, hidden_axes
from intarsia.pruning import PRUNINGS, Group
from intarsia.pruning.territory import _auction, unit_norms
from intarsia.training.engines.stack import StackEngine

SHAPE = (1, 8, 8)
RULES = ["territory", "territory(by='magnitude')"]


def group_of(model, seeds, shape=SHAPE, jitter=0.1):
    wiring = wiring_of(initialise(model, shape, 4, 0), shape)
    states = []
    for k, seed in enumerate(seeds):
        generator = torch.Generator().manual_seed(k)
        origin = initialise(model, shape, 4, seed).state_dict()
        states.append(
            {
                n: t + jitter * torch.randn(t.shape, generator=generator)
                if t.is_floating_point()
                else t
                for n, t in origin.items()
            }
        )
    return Group(states, [{} for _ in seeds], wiring, 0.0, list(seeds), list(range(len(seeds))))


def prune(text, group):
    return PRUNINGS.call(PRUNINGS.spec(text), group=group)


def owned_units(mask, wiring, sizes):
    """Axis -> which units a module has a surviving weight on, read off the mask alone."""
    owned = {axis: torch.zeros(sizes[axis], dtype=torch.bool) for axis in hidden_axes(wiring)}
    for name, kept in mask.items():
        for dimension, axis in enumerate(wiring[name]):
            if axis is not None and axis.name in owned:
                rest = [d for d in range(kept.ndim) if d != dimension]
                entries = kept.any(dim=rest) if rest else kept
                owned[axis.name] |= entries.view(sizes[axis.name], axis.block).any(1)
    return owned


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("mlp(11)", SHAPE),
        ("mlp(16, 9)", SHAPE),
        ("lenet", SHAPE),
        ("resnet18(width=10)", (3, 8, 8)),
    ],
)
def test_every_hidden_unit_has_one_owner_in_its_seed(rule, model, shape):
    group = group_of(model, seeds=(0, 0, 0, 5, 5), shape=shape)
    masks = prune(rule, group)
    sizes = axis_sizes(group.wiring, group.states[0])
    for members in ([0, 1, 2], [3, 4]):
        all_owned = [owned_units(masks[m], group.wiring, sizes) for m in members]
        for axis in hidden_axes(group.wiring):
            claims = torch.stack([o[axis] for o in all_owned]).sum(0)
            assert torch.equal(claims, torch.ones_like(claims)), axis
            shares = [int(o[axis].sum()) for o in all_owned]
            assert max(shares) - min(shares) <= 1, axis


@pytest.mark.parametrize("rule", RULES)
def test_what_crosses_a_border_goes_and_the_rest_stays(rule):
    group = group_of("mlp(12, 8)", seeds=(0, 0))
    sizes = axis_sizes(group.wiring, group.states[0])
    for mask in prune(rule, group):
        owned = owned_units(mask, group.wiring, sizes)
        first, second = owned["layers.0"], owned["layers.1"]
        assert torch.equal(mask["layers.0.weight"], first[:, None].expand(12, 64))
        assert torch.equal(mask["layers.0.bias"], first)
        assert torch.equal(mask["layers.1.weight"], second[:, None] & first[None])
        assert torch.equal(mask["layers.2.weight"], second[None].expand(4, 8))


def test_normalisation_of_units_owned_by_others_is_silenced_but_its_statistics_are_no_weights():
    group = group_of("resnet18(width=10)", seeds=(0, 0), shape=(3, 8, 8))
    for mask in prune("territory", group):
        assert int(mask["norm.weight"].sum()) == int(mask["norm.bias"].sum()) == 5
        assert not [n for n in mask if "running" in n or "num_batches" in n]
        assert "fc.bias" not in mask


def test_masks_only_shrink():
    group = group_of("mlp(12)", seeds=(0, 0))
    before = prune("random", Group(group.states, group.masks, group.wiring, 0.4, [0, 0], [1, 2]))
    after = prune("territory", Group(group.states, before, group.wiring, 0.0, [0, 0], [1, 2]))
    for old, new in zip(before, after, strict=True):
        assert bool((new["layers.0.weight"] <= old["layers.0.weight"]).all())


def test_by_magnitude_units_go_to_the_largest_claim():
    """Module 0 is large on units 0 and 3, module 1 on units 1 and 2."""
    group = group_of("mlp(4)", seeds=(0, 0))
    for k, mine in enumerate([(0, 3), (1, 2)]):
        for unit in range(4):
            group.states[k]["layers.0.weight"][unit] = 1.0 if unit in mine else 0.1
            group.states[k]["layers.1.weight"][:, unit] = 1.0 if unit in mine else 0.1
    one, other = prune("territory(by='magnitude')", group)
    assert one["layers.0.bias"].tolist() == [True, False, False, True]
    assert other["layers.0.bias"].tolist() == [False, True, True, False]


def test_units_are_won_by_squared_weights_in_and_out_as_a_fraction_of_the_modules_own():
    """Module 0 is ten times as large all over, and wins no more by that."""
    group = group_of("mlp(3)", seeds=(0, 0), jitter=0.0)
    sizes = [[3.0, 1.0, 2.0], [1.0, 2.0, 3.0]]
    for k, own in enumerate(sizes):
        for unit, size in enumerate(own):
            group.states[k]["layers.0.weight"][unit] = 0
            group.states[k]["layers.1.weight"][:, unit] = 0
            group.states[k]["layers.0.weight"][unit, 0] = size * (1 if k else 10)
            group.states[k]["layers.1.weight"][0, unit] = size * (1 if k else 10)
    one, other = prune("territory(by='magnitude')", group)
    assert one["layers.0.bias"].tolist() == [True, True, False]
    assert other["layers.0.bias"].tolist() == [False, False, True]


def test_claims_by_hand():
    group = group_of("mlp(2)", seeds=(0,), jitter=0.0, shape=(2,))
    state = group.states[0]
    state["layers.0.weight"] = torch.tensor([[1.0, 2.0], [0.0, 3.0]])
    state["layers.1.weight"] = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [2.0, -4.0]])
    claim = unit_norms(state, group.wiring, "layers.0", 2)
    assert claim.tolist() == [1 + 4 + 1 + 1 + 1 + 4, 9 + 16]


@pytest.mark.parametrize(
    ("claims", "owners"),
    [
        ([[0.5, 0.3, 0.2], [0.4, 0.35, 0.25]], [0, 1, 0]),
        ([[0.9, 0.8, 0.7, 0.1], [0.1, 0.1, 0.1, 0.1]], [0, 0, 1, 1]),
        ([[0.2, 0.2], [0.2, 0.2]], [0, 1]),
        ([[0.1, 0.9, 0.3]], [0, 0, 0]),
        ([[0.9, 0.8, 0.7, 0.6, 0.5]] * 2, [0, 0, 0, 1, 1]),
    ],
)
def test_an_auction_by_hand(claims, owners):
    """By falling claim; who has an equal number takes no more, the first take the rest."""
    assert _auction(torch.tensor(claims)).tolist() == owners


def test_equal_runs_by_hand():
    group = group_of("mlp(7)", seeds=(0, 0, 0))
    owned = [mask["layers.0.bias"].int().tolist() for mask in prune("territory", group)]
    assert owned == [[1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 1]]


def test_a_network_without_names_for_its_units_has_no_territories():
    group = group_of("mlp(4)", seeds=(0,))
    nameless = Group(group.states, group.masks, None, 0.0, [0], [0])
    with pytest.raises(WiringError, match="have no names"):
        prune("territory", nameless)


@given(units=st.integers(1, 30), modules=st.integers(1, 6))
def test_shares_are_equal_up_to_one_unit_or_there_are_too_few(units, modules):
    group = group_of(f"mlp({units})", seeds=(0,) * modules, shape=(2,))
    for rule in RULES:
        if units < modules:
            with pytest.raises(RecipeError, match="cannot share the"):
                prune(rule, group)
            continue
        counts = [int(m["layers.0.bias"].sum()) for m in prune(rule, group)]
        assert sum(counts) == units
        assert max(counts) - min(counts) <= 1


def test_unknown_rule():
    with pytest.raises(RecipeError, match="unknown territory rule 'luck'"):
        prune("territory(by='luck')", group_of("mlp(4)", seeds=(0,)))


def test_units_that_meet_in_a_normalisation_cannot_be_owned():
    def layered(shape, outputs):
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, outputs)
        )

    with pytest.raises(RecipeError, match="meet in a normalisation"):
        prune("territory", group_of(layered, seeds=(0, 0)))


def test_a_residual_of_the_input_has_no_units_to_own():
    class Residual(nn.Module):
        def __init__(self, shape, outputs):
            super().__init__()
            self.inner, self.head = nn.Linear(64, 64), nn.Linear(64, outputs)

        def forward(self, x):
            x = x.flatten(1)
            return self.head(x + torch.relu(self.inner(x)))

    with pytest.raises(RecipeError, match="made of hidden units, and this network has none"):
        prune("territory", group_of(Residual, seeds=(0, 0)))


def test_its_traits():
    def acts_before_training(text):
        return PRUNINGS.entry(text).before_training(PRUNINGS.settings(text))

    assert acts_before_training("territory")
    assert not acts_before_training("territory(by='magnitude')")
    assert not acts_before_training("magnitude")
    traits = ("whole_group", "needs_units", "own_sparsity")
    assert all(getattr(PRUNINGS.entry("territory(by='magnitude')"), trait) for trait in traits)
    assert not any(getattr(PRUNINGS.entry("random"), trait) for trait in traits)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("model", ["mlp(40, dropout=0.2)", "mlp(40, 20)", "lenet"])
def test_the_sum_of_weights_is_the_sum_of_logits(rule, model):
    data = ia.load_data("digits", classes=["0", "1", "2", "3"])
    settings = {"preset": "paper", "model": model, "epochs": 2, "learning_rate": 3e-3}
    bank = ia.train(data, pruning=rule, **settings)
    by_weights = ia.compose(bank, "sum")(data.test.x)
    by_logits = ia.compose(bank, "logits")(data.test.x)
    torch.testing.assert_close(by_weights, by_logits, rtol=1e-4, atol=1e-4)
    assert float(by_logits.detach().std()) > 0.1
    unowned = ia.train(data, sparsity=0, **settings)
    apart = ia.compose(unowned, "sum")(data.test.x) - ia.compose(unowned, "logits")(data.test.x)
    assert float(apart.detach().abs().max()) > 0.1


@pytest.mark.parametrize("rule", RULES)
def test_too_few_units_are_told_before_a_round_is_trained(monkeypatch, rule):
    monkeypatch.setattr(StackEngine, "epoch", None)
    data = ia.load_data("digits", classes=["0", "1", "2", "3"])
    with pytest.raises(RecipeError, match=r"4 modules cannot share the 3 units of axis 'convs\.0'"):
        ia.train(data, model="vgg11(3)", pruning=rule, rounds=1, engine="single")


@pytest.mark.parametrize("rule", [*RULES, "units", "similarity"])
def test_units_that_meet_are_told_before_a_round_is_trained(monkeypatch, rule):
    monkeypatch.setattr(StackEngine, "epoch", None)
    data = ia.load_data("digits", classes=["0", "1"])
    own = {} if rule in RULES else {"sparsity": 0.5}
    with pytest.raises(RecipeError, match="meet in a normalisation"):
        ia.train(data, model="vit(4, 12, 1, 3)", pruning=rule, rounds=1, engine="single", **own)


def test_a_seed_that_is_cut_into_chunks_would_lose_its_borders(monkeypatch):
    monkeypatch.setattr("intarsia.training.engines.select.CPU_CHUNK", (2, 2))
    data = ia.load_data("digits", classes=["0", "1", "2"])
    bank = ia.train(data, model="mlp(9)", pruning="territory", epochs=1, seeds=[0, 1])
    for seed in (0, 1):
        owned = torch.stack([m.mask["layers.0.bias"] for m in bank.seed(seed)])
        assert owned.sum(0).tolist() == [1] * 9
