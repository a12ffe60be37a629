"""Arms meet their budgets exactly, keep what they say they keep, and fold what they take."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from intarsia.errors import ModelError, RecipeError
from intarsia.sweetspot.networks import PatternBank, PatternLayout, PatternNetwork
from intarsia.sweetspot.pattern_fits import initial_bank
from intarsia.sweetspot.pruning_arms import (
    ARMS,
    ArmContext,
    connections,
    copy_masks,
    keep_best,
    live_masks,
    prune,
    similarity,
)
from intarsia.sweetspot.targets import load_network

LAYOUT = PatternLayout((("cache", 4), ("gaussian", 2), ("sin", 2)), 4)
BUDGETED = [name for name, arm in ARMS.items() if not arm.own_budget]


def network(seed: int = 0, layout: PatternLayout = LAYOUT) -> PatternNetwork:
    return initial_bank(layout, [seed])[0]


def small(*weights: list[list[float]], blocks: str = "cache 3") -> PatternNetwork:
    """A network with weights that are written out."""
    depth = len(weights) - 1
    return PatternNetwork(PatternLayout(blocks, depth), [torch.tensor(w) for w in weights])


def live_by_loop(net: PatternNetwork) -> set[tuple[int, int, int]]:
    """Weights on a path from an input, or a unit that speaks by itself, to an output."""
    speaks = [name == "gaussian" for name in net.layout.activations]
    places = {
        (layer, row, column)
        for layer, w in enumerate(net.weights)
        for row, column in w.nonzero().tolist()
    }
    while True:
        into = {(layer + 1, row) for layer, row, _ in places}
        out_of = {(layer, column) for layer, _, column in places}
        kept = {
            (layer, row, column)
            for layer, row, column in places
            if (layer == 0 or speaks[column] or (layer, column) in into)
            and (layer == net.layout.depth or (layer + 1, row) in out_of)
        }
        if kept == places:
            return kept
        places = kept


def places_of(masks: list[Tensor]) -> set[tuple[int, int, int]]:
    return {(n, r, c) for n, m in enumerate(masks) for r, c in m.nonzero().tolist()}


@given(seed=st.integers(0, 10**6), kept=st.floats(0.05, 0.6))
def test_live_weights_are_those_on_a_way_to_the_picture(seed: int, kept: float) -> None:
    draw = torch.Generator().manual_seed(seed)
    weights = [torch.rand(s, generator=draw) < kept for s in LAYOUT.shapes]
    net = PatternNetwork(LAYOUT, [w.float() for w in weights])
    assert places_of(live_masks(LAYOUT, net.weights)) == live_by_loop(net)


@pytest.mark.parametrize("budget", [12, 23, 60, 150])
@pytest.mark.parametrize("arm", BUDGETED)
def test_a_budget_is_met_exactly_by_weights_that_live(arm: str, budget: int) -> None:
    bank = initial_bank(LAYOUT, 2)
    pruned = prune(bank, arm, weights=budget, map_size=8, origin=bank)
    assert pruned.nonzero == (budget, budget)
    assert pruned.names == bank.names
    for net in pruned:
        assert len(live_by_loop(net)) == budget
        assert net.masks is not None
        assert sum(int(m.sum()) for m in net.masks) == budget


@given(seed=st.integers(0, 10**6), budget=st.integers(5, 200))
def test_the_best_are_kept_to_the_weight(seed: int, budget: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    net = network(seed % 5)
    scores = [torch.rand(w.shape, generator=draw) for w in net.weights]
    kept = PatternNetwork(LAYOUT, keep_best(LAYOUT, net.weights, scores, budget))
    assert kept.nonzero == len(live_by_loop(kept)) == budget


def test_magnitude_is_a_plain_sort_where_no_unit_dies() -> None:
    net = network()
    pruned = prune(net, "magnitude", weights=net.nonzero - 20)[0]
    every = torch.cat([w.flatten() for w in net.weights]).abs().sort(descending=True).values
    left = torch.cat([w.flatten() for w in pruned.weights]).abs()
    assert torch.equal(left[left > 0].sort(descending=True).values, every[:-20])


def test_a_lottery_ticket_keeps_the_largest_and_starts_anew() -> None:
    trained, start = network(0), network(1)
    won = prune(trained, "ticket", weights=60, origin=start)[0]
    largest = prune(trained, "magnitude", weights=60)[0]
    for kept, before, mask in zip(won.weights, start.weights, largest.masks or (), strict=True):
        assert torch.equal(kept, torch.where(mask, before, 0))
    again = prune(trained, "magnitude", weights=60, origin=start, rewind=True)[0]
    assert all(torch.equal(a, b) for a, b in zip(won.weights, again.weights, strict=True))


def test_wanda_keeps_the_same_share_of_every_row() -> None:
    net = network(layout=PatternLayout("cache 8", 3))
    pruned = prune(net, "wanda", weights=net.nonzero // 2, map_size=8)[0]
    for matrix, whole in zip(pruned.weights, net.weights, strict=True):
        rows = (matrix != 0).sum(1)
        rows = rows[rows > 0]  # others belong to units that no kept weight reads
        assert rows.max() - rows.min() <= 1
        assert abs(int(rows.max()) - whole.shape[1] / 2) <= 1


def test_wanda_leaves_every_unit_an_input() -> None:
    """A second round, in which rows have as few inputs as the first round has left them."""
    net = network(layout=PatternLayout("cache 8", 3))
    first = prune(net, "wanda", weights=net.nonzero // 3, map_size=8)[0]
    assert int((first.weights[0] != 0).sum(1).max()) <= 2
    second = prune(first, "wanda", weights=first.nonzero // 2, map_size=8)[0]
    read = [(w != 0).any(0) for w in second.weights[1:]]
    for layer, (matrix, before) in enumerate(zip(second.weights, first.weights, strict=True)):
        rows = (matrix != 0).sum(1)
        assert rows.any()
        fed = (before != 0).any(1) & (read[layer] if layer < len(read) else True)
        assert bool((rows[fed] >= 1).all())
    assert float(second.image(16).flatten(0, 1).std(0).max()) > 1e-3


def test_wanda_drops_as_many_of_a_row_as_its_authors_do() -> None:
    """Of n inputs int(n s) go, in rows of any length: here s is a half, of 4, 8 and 8."""
    net = network(1, PatternLayout("cache 8", 2))
    budget = 8 * 2 + 8 * 4 + 3 * 4
    pruned = prune(net, "wanda", weights=budget, map_size=8)[0]
    maps = [_inputs(8), *(own.flatten(1) for own in net.maps(8))]
    expected = []
    for matrix, values in zip(net.weights, maps, strict=True):
        scores = matrix.abs() * values.norm(dim=1)
        gone = scores.argsort(dim=1)[:, : int(matrix.shape[1] * 0.5)]
        expected.append(matrix.scatter(1, gone, 0.0))
    whole = replace(net, weights=tuple(expected))
    assert all(bool(m.any(0).all()) for m in whole.weights[1:])  # no unit dies, for this seed
    for own, wanted in zip(pruned.weights, whole.weights, strict=True):
        assert torch.equal(own, wanted)


def test_units_that_draw_the_same_become_one_and_the_picture_stays() -> None:
    """Unit 1 draws twice what unit 0 does: it takes over, and nothing is lost."""
    net = small(
        [[0.5, 0.1, 0.0, 0.0], [1.0, 0.2, 0.0, 0.0], [0.0, 0.0, 1.0, -0.4]],
        [[0.3, 0.4, 0.1], [0.1, -0.2, 0.5], [0.6, 0.3, 0.2]],
    )
    budget = 2 + 2 + 3 + 3
    merged = similarity(net, ArmContext(budget, 16, torch.Generator()))
    assert merged.nonzero == budget
    assert not merged.weights[0][0].any()
    assert not merged.weights[1][:, 0].any()
    heir = net.weights[1][:, 1] + 0.5 * net.weights[1][:, 0]
    assert torch.allclose(merged.weights[1][:, 1], heir)
    assert torch.allclose(merged.image(16), net.image(16), atol=1e-5)


def test_a_threshold_ends_where_no_pair_is_as_alike() -> None:
    net = small(
        [[0.5, 0.1, 0.0, 0.0], [1.0, 0.2, 0.0, 0.0], [0.0, 0.0, 1.0, -0.4]],
        [[0.3, 0.4, 0.1], [0.1, -0.2, 0.5], [0.5, 0.3, 0.2]],
    )
    assert prune(net, "similarity(threshold=0.999)", map_size=16).nonzero == (10,)
    assert prune(net, "similarity(threshold=0.999)", weights=12, map_size=16).nonzero == (12,)
    merged = prune(net, "connections(threshold=0.999)", map_size=16)[0]
    assert torch.allclose(merged.image(16), net.image(16), atol=1e-5)
    assert [int((w != 0).sum()) for w in merged.weights] == [4, 6]


@pytest.mark.parametrize("arm", ["similarity", "connections"])
def test_a_budget_is_met_with_a_threshold_too(arm: str) -> None:
    """Hardly any pair is as alike: what is too much goes weight by weight."""
    bank = PatternBank.of([network(0), network(1)])
    alone = prune(bank, f"{arm}(threshold=0.9999)", map_size=8)
    assert min(alone.nonzero) > 60
    assert prune(bank, f"{arm}(threshold=0.9999)", weights=60, map_size=8).nonzero == (60, 60)


def test_correlation_sees_through_an_offset_and_cosine_does_not() -> None:
    net = small(
        [[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 3.0], [0.0, 1.0, 0.0, 0.3]],
        [[0.3, 0.4, 0.1], [0.1, -0.2, 0.5], [0.6, 0.3, 0.2]],
    )
    units = [int(prune(net, f"similarity(by='{by}', threshold=0.99)", map_size=16).nonzero[0])
             for by in ("cosine", "correlation")]  # fmt: skip
    assert units[0] == net.nonzero
    assert units[1] < net.nonzero


def test_within_linear_units_leaves_the_others_alone() -> None:
    net = network()
    pruned = prune(net, "similarity(within='linear')", weights=120, map_size=8)[0]
    alive = torch.stack([(w != 0).any(0) for w in pruned.weights[1:]])
    assert alive[:, 4:].all()
    assert not alive[:, :4].all()


def test_units_of_the_smallest_contribution_go_by_a_plain_loop() -> None:
    layout = PatternLayout("sin 5", 2)
    net = network(2, layout)
    pruned = prune(net, "contribution", weights=30, map_size=8)[0]
    weights, left = [w.clone() for w in net.weights], [set(range(5)), set(range(5))]
    while True:
        maps = PatternNetwork(layout, weights).maps(8)
        given = [
            {u: float(maps[n][u].norm() * weights[n + 1][:, u].norm()) for u in left[n]}
            for n in (0, 1)
        ]
        shares = {
            (n, u): own[u] / sum(own.values())
            for n, own in enumerate(given)
            for u in own
            if len(own) > 1
        }
        layer, unit = min(shares, key=shares.__getitem__)
        before = [w.clone() for w in weights]
        weights[layer][unit] = 0
        weights[layer + 1][:, unit] = 0
        if sum(int(w.count_nonzero()) for w in weights) < 30:
            break
        left[layer].remove(unit)
    for kept, matrix in zip(pruned.weights, before, strict=True):
        assert not kept[matrix == 0].any()
        assert torch.equal(kept[kept != 0], matrix[kept != 0])
    assert [len(units) for units in left] != [5, 5]


def test_folded_connections_match_a_plain_loop() -> None:
    net = network(3, PatternLayout("cache 4, sin 2", 2))
    folded = connections(net, ArmContext(None, 8, torch.Generator()), threshold=0.8)
    first, values = net.weights[0], _inputs(8)
    expected = torch.zeros_like(first)
    norms = values.norm(dim=1)
    for row in range(len(first)):
        kept: list[int] = []
        for column in sorted(range(4), key=lambda c: -float(first[row, c].abs() * norms[c])):
            alike = [
                float((values[k] @ values[column]).abs() / norms[k] / norms[column]) for k in kept
            ]
            if alike and max(alike) > 0.8:
                heir = kept[alike.index(max(alike))]
                amount = values[heir] @ values[column] / norms[heir] ** 2
                expected[row, heir] += amount * first[row, column]
            else:
                kept.append(column)
                expected[row, column] += first[row, column]
    read = folded.weights[1].any(0)  # the others' weights went with them
    assert read.sum() > 3
    assert torch.allclose(folded.weights[0][read], expected[read], atol=1e-5)


def test_the_evolved_wiring_has_the_connections_of_the_genome() -> None:
    totem = load_network("totem")
    fresh = initial_bank(totem.layout, 2)
    wired = prune(fresh, "evolved", wiring=totem)
    assert wired.nonzero == (totem.nonzero,) * 2
    for matrix, own, there in zip(wired.weights, fresh.weights, totem.weights, strict=True):
        assert torch.equal(matrix, torch.where(there != 0, own, 0))
    held = prune(fresh, "evolved(copies='held')", wiring=totem, image=totem, steps=3, size=8)
    copies = copy_masks(totem)
    assert sum(int(m.sum()) for m in copies) > 5
    for matrix, own, mask, there in zip(
        held.weights, fresh.weights, copies, totem.weights, strict=True
    ):
        assert (matrix[:, mask] == 1).all()
        others = (there != 0) & ~mask
        assert not others.any() or (matrix[:, others] != own[:, others]).any()


def test_what_is_trained_on_keeps_its_masks() -> None:
    bank = initial_bank(LAYOUT, 2)
    trained = prune(bank, "random", weights=40, image="totem", steps=5, size=8)
    assert trained.nonzero == (40, 40)
    assert trained.losses is not None
    assert trained.report["arm"] == "random"
    untrained = prune(bank, "random", weights=40)
    assert not torch.equal(trained.weights[1], untrained.weights[1])
    assert torch.equal(trained.weights[1] != 0, untrained.weights[1] != 0)


def test_random_arms_follow_their_seed() -> None:
    net = network()
    for arm in ("random", "random_units"):
        one, same, other = (prune(net, arm, weights=60, seed=s, map_size=8) for s in (0, 0, 1))
        assert torch.equal(one.weights[1], same.weights[1])
        assert not torch.equal(one.weights[1], other.weights[1])


def test_an_arm_of_your_own() -> None:
    @ARMS.register("first_rows")
    def first_rows(network: PatternNetwork, context: ArmContext) -> PatternNetwork:
        scores = [-torch.arange(len(w), dtype=torch.float32)[:, None] + 0 * w
                  for w in network.weights]  # fmt: skip
        kept = keep_best(network.layout, network.weights, scores, context.budget())
        return PatternNetwork(network.layout, kept)

    assert prune(network(), "first_rows", weights=70).nonzero == (70,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"arm": "magnitud", "weights": 9}, "did you mean 'magnitude'"),
        ({"arm": "magnitude"}, "give `weights`"),
        ({"arm": "magnitude", "weights": 0}, "weights is 0"),
        ({"arm": "magnitude", "weights": 10**6}, "give 1 to 248"),
        ({"arm": "similarity", "weights": 10**6}, "give 1 to 248"),
        ({"arm": "similarity", "weights": 1}, "one of each layer stays"),
        ({"arm": "ticket", "weights": 9}, "give `origin`"),
        ({"arm": "evolved"}, "give `wiring`"),
        ({"arm": "evolved", "weights": 9}, "leave out weights"),
        ({"arm": "similarity(by='l2')", "weights": 9}, "'cosine' or 'correlation'"),
        ({"arm": "similarity(within='sin')", "weights": 9}, "'all' or 'linear'"),
        ({"arm": "connections(by='l2')", "weights": 9}, "'cosine' or 'correlation'"),
        ({"arm": "connections(threshold=0.1)", "weights": 200}, "fewer than the 200"),
        ({"arm": "connections(threshold='a')"}, "threshold is 'a'"),
        ({"arm": "similarity(threshold=-1)"}, "threshold is -1"),
        ({"arm": "similarity(threshold=1.5)"}, "from 0 to 1"),
        ({"arm": "evolved(copies='gone')", "wiring": "own"}, "'trained' or 'held'"),
        ({"arm": "random", "weights": 9, "steps": 5}, "needs the `image`"),
        ({"arm": "random", "weights": 9, "map_size": 1}, "map_size is 1"),
    ],
)
def test_what_cannot_be_pruned_is_said(settings: dict, message: str) -> None:
    net = network()
    wiring = {"wiring": net} if "wiring" in settings else {}
    with pytest.raises(RecipeError, match=message):
        prune(net, **{**settings, **wiring})


def test_networks_that_do_not_fit_are_refused() -> None:
    net, other = network(), network(layout=PatternLayout("cache 8", 3))
    with pytest.raises(RecipeError, match="must be the same"):
        prune(net, "evolved", wiring=other)
    with pytest.raises(RecipeError, match="were trained from"):
        prune(net, "ticket", weights=9, origin=other)
    with pytest.raises(RecipeError, match="give one that is not pruned"):
        prune(prune(net, "magnitude", weights=50)[0], "evolved", wiring=net)
    with pytest.raises(RecipeError, match="origin has 0 at"):
        prune(net, "ticket", weights=90, origin=prune(network(1), "random", weights=60))
    for other_things in ("totem", [net, 1], None):
        with pytest.raises(ModelError, match="expected a PatternBank"):
            prune(other_things, "magnitude", weights=9)  # type: ignore[arg-type]
    assert isinstance(prune([net, network(1)], "magnitude", weights=50), PatternBank)


def _inputs(size: int) -> Tensor:
    line = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(line, line, indexing="ij")
    return torch.stack([x, y, 1.4 * torch.hypot(x, y), torch.ones_like(x)]).flatten(1)


@pytest.mark.parametrize("arm", ["similarity", "connections", "magnitude", "contribution"])
def test_networks_whose_maps_overflow_are_pruned_all_the_same(arm: str) -> None:
    begun = initial_bank(load_network("totem").layout, 2)
    weights = [w.clone() for w in begun.weights]
    for matrix in weights:
        matrix[1] *= 1e9
    bank = PatternBank(begun.layout, tuple(weights))
    assert prune(bank, arm, weights=300).nonzero == (300, 300)
