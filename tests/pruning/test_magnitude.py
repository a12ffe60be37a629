"""Magnitude and random pruning: exact counts, the right survivors, masks that only shrink."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from intarsia.errors import RecipeError
from intarsia.models import initialise, wiring_of
from intarsia.pruning import PRUNINGS, Group, density, prunable, round_fraction

SHAPE = (1, 8, 8)
HIDDEN, HIDDEN_BIAS, OUTPUT = "layers.0.weight", "layers.0.bias", "layers.1.weight"


def group_of(model="mlp(20)", masks=None, fraction=0.5, seeds=(0,), shape=SHAPE):
    states = [dict(initialise(model, shape, 4, s).state_dict()) for s in seeds]
    wiring = wiring_of(initialise(model, shape, 4, 0), shape)
    masks = masks or [{} for _ in seeds]
    return Group(states, masks, wiring, fraction, list(seeds), [100 + s for s in seeds])


def prune(text, group):
    return PRUNINGS.call(PRUNINGS.spec(text), group=group)


def again(group, masks):
    """The same group one round on."""
    return Group(group.states, masks, group.wiring, group.fraction, group.seeds, group.streams)


def kept(mask):
    return {name: int(m.sum()) for name, m in mask.items()}


def test_global_pruning_keeps_the_largest_of_the_whole_network():
    group = group_of(fraction=0.75)
    (mask,) = prune("magnitude", group)
    names = [HIDDEN, OUTPUT]
    assert list(mask) == names
    values = np.concatenate([group.states[0][n].abs().numpy().ravel() for n in names])
    result = np.concatenate([mask[n].numpy().ravel() for n in names])
    total = 64 * 20 + 20 * 4
    assert result.sum() == total - round(0.75 * total)
    assert set(np.flatnonzero(result)) == set(np.argsort(values)[-result.sum() :])


def test_layer_pruning_keeps_the_largest_of_every_layer():
    group = group_of(fraction=0.75)
    (mask,) = prune("magnitude(scope='layer', biases=True)", group)
    for name, total in {HIDDEN: 1280, HIDDEN_BIAS: 20, OUTPUT: 80}.items():
        values, result = group.states[0][name].abs().numpy().ravel(), mask[name].numpy().ravel()
        assert result.sum() == total // 4
        assert set(np.flatnonzero(result)) == set(np.argsort(values)[-result.sum() :])


@pytest.mark.parametrize("rule", ["magnitude", "random"])
def test_biases_go_only_if_asked(rule):
    group = group_of("mlp(20, 10)")
    assert not [n for n in prune(rule, group)[0] if n.endswith("bias")]
    assert [n for n in prune(f"{rule}(biases=True)", group)[0] if n.endswith("bias")] == [
        "layers.0.bias",
        "layers.1.bias",
    ]


def test_normalisation_is_never_pruned():
    group = group_of("resnet18(width=4)")
    names = prunable(group.states[0], group.wiring, biases=True)
    assert all(group.states[0][n].ndim > 1 or n == "fc.bias" for n in names)
    assert "fc.bias" in names
    assert "conv.weight" in names
    (mask,) = prune("magnitude(biases=True)", group)
    assert set(mask) == set(names)


def test_the_released_preset_ends_at_its_densities():
    """Two rounds at 0.9 leave 1.0% of the hidden layer; at 0.45 they leave 30.25% of the output."""
    fraction = round_fraction(0.99, 2)
    assert fraction == pytest.approx(0.9)
    group = group_of("mlp(200)", fraction=fraction)
    masks = group.masks
    for _ in range(2):
        masks = prune(
            "magnitude(scope='layer', biases=True, ratios={'output': 0.5})", again(group, masks)
        )
    assert kept(masks[0]) == {HIDDEN: 128, OUTPUT: 242, HIDDEN_BIAS: 2}
    assert pytest.approx(0.6975) == 1 - 242 / 800


def test_ratios_go_by_pattern_and_the_last_that_fits_counts():
    group = group_of("mlp(20, 10)", fraction=0.8)
    ratios = "{'layers.*': 0.5, 'layers.1.weight': 0.25, 'output': 0}"
    (mask,) = prune(f"magnitude(scope='layer', ratios={ratios})", group)
    assert kept(mask) == {
        "layers.0.weight": 1280 - 512,
        "layers.1.weight": 200 - 40,
        "layers.2.weight": 40,
    }


@given(
    sparsity=st.floats(0.01, 0.995),
    rounds=st.integers(1, 4),
    scope=st.sampled_from(["global", "layer"]),
    rule=st.sampled_from(["magnitude", "random"]),
    biases=st.booleans(),
)
def test_masks_only_shrink_and_end_at_the_sparsity(sparsity, rounds, scope, rule, biases):
    group = group_of("mlp(20, 10)", fraction=round_fraction(sparsity, rounds), seeds=(0, 1))
    before = group.masks
    for _ in range(rounds):
        after = prune(f"{rule}(scope={scope!r}, biases={biases})", again(group, before))
        for old, new in zip(before, after, strict=True):
            assert all(bool((new[n] <= old.get(n, torch.ones_like(new[n]))).all()) for n in new)
        before = after
    for mask in before:
        sets = [list(mask)] if scope == "global" else [[n] for n in mask]
        for names in sets:
            total = sum(mask[n].numel() for n in names)
            left = sum(int(mask[n].sum()) for n in names)
            assert abs(left - (1 - sparsity) * total) <= 1.0 * rounds  # each round rounds once


def test_ties_are_broken_so_that_the_count_is_exact():
    group = group_of(fraction=0.3)
    equal = {n: torch.ones_like(t) for n, t in group.states[0].items()}
    group = Group([equal], [{}], group.wiring, 0.3, [0], [0])
    (mask,) = prune("magnitude", group)
    assert sum(kept(mask).values()) == 1360 - round(0.3 * 1360)


def test_a_given_mask_is_left_as_it_was():
    group = group_of()
    (first,) = prune("magnitude", group)
    copy = {n: m.clone() for n, m in first.items()}
    prune("magnitude", again(group, [first]))
    assert all(torch.equal(first[n], copy[n]) for n in copy)


def test_random_pruning_follows_its_stream_alone():
    group = group_of(seeds=(0, 1))
    one, other = prune("random", group)
    assert not torch.equal(one[HIDDEN], other[HIDDEN])
    repeated = prune("random", group)
    alone = Group(group.states[1:], [{}], group.wiring, 0.5, [1], group.streams[1:])
    for name in one:
        assert torch.equal(one[name], repeated[0][name])
        assert torch.equal(other[name], prune("random", alone)[0][name])
    shifted = Group(group.states[:1], [{}], group.wiring, 0.5, [0], [7])
    assert not torch.equal(one[HIDDEN], prune("random", shifted)[0][HIDDEN])


def test_random_pruning_does_not_look_at_magnitudes():
    group = group_of(fraction=0.5)
    (mask,) = prune("random", group)
    size = group.states[0][HIDDEN].abs()
    inside, outside = size[mask[HIDDEN]].mean(), size[~mask[HIDDEN]].mean()
    assert abs(float(inside - outside)) < 5 * float(size.std()) / 320**0.5


def test_density_counts_all_parameters():
    group = group_of()
    mask = {OUTPUT: torch.zeros(4, 20, dtype=torch.bool)}
    assert density(mask, group.states[0]) == 1 - 80 / (1280 + 20 + 80)
    assert density({}, group.states[0]) == 1


def test_the_fraction_of_a_round():
    assert round_fraction(0.99, 2) == pytest.approx(0.9)
    assert round_fraction(0.6, 1) == pytest.approx(0.6)
    assert round_fraction(0.6, 0) == 0
    assert round_fraction(0.0, 3) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("magnitude(scope='network')", "unknown pruning scope 'network'"),
        ("magnitude(ratios={'output': 0.5})", "need scope='layer'"),
        ("magnitude(scope='layer', ratios={'fc': 0.5})", "'fc', which fits no prunable parameter"),
        ("magnitude(scope='layer', ratios={'output': 3})", "fraction of 1.5"),
        ("magnitude(scope='layer', ratios=0.5)", "ratios is 0.5: expected patterns"),
        ("magnitude(scope='layer', ratios={'output': 'x'})", "ratios is {'output': 'x'}"),
        ("magnitude(scope='layer', ratios={'output': 1e999})", "ratios is {'output': inf}"),
        ("magnitud", "did you mean 'magnitude'"),
        ("random(scope='network')", "unknown pruning scope 'network'"),
    ],
)
def test_says_what_is_wrong(text, message):
    with pytest.raises(RecipeError, match=message):
        prune(text, group_of())
