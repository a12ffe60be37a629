"""Compatibility: the measures against plain numpy, the score against the accuracy it foretells."""

import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from intarsia.data import Data, Scaling, Split, evenly_spaced
from intarsia.errors import CompositionError, DataError
from intarsia.measure import compatibility, compatibility_matrix
from intarsia.measure.compatibility import MOST, interference, joined_logits, posterior
from intarsia.measure.pair import blend
from intarsia.models import initialise
from intarsia.modules import Architecture, Bank, Module
from small_modules import small_module

CATALOGUE = ("a", "b", "[red]", "d")
X = torch.randint(0, 256, (5000, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
NAMES = ("interference", "mask_jaccard", "unit_overlap", "sign_conflicts", "cosine")


def part(name: str, seed: int, model: str = "mlp(9, 7)", keep: float = 0.3) -> Module:
    """A module of random weights, pruned by a generator of its own."""
    network = initialise(model, (6,), 4, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    state, mask = dict(network.state_dict()), {}
    for key, parameter in network.named_parameters():
        if parameter.dim() > 1:
            mask[key] = torch.rand(parameter.shape, generator=generator) < keep
            state[key] = state[key] * mask[key]
    return small_module(name, state, mask, CATALOGUE, model, (6,), origin="0")


def custom(name: str, factory: Callable[..., nn.Module], seed: int) -> Module:
    """A module whose network intarsia has no name for."""
    state = initialise(factory, (6,), 4, seed).state_dict()
    kind = Architecture(None, (6,), 4)
    return replace(part(name, 0), state=state, mask={}, architecture=kind, factory=factory)


def kept(module: Module) -> dict[str, np.ndarray]:
    return {k: module.mask.get(k, torch.ones(v.shape, dtype=torch.bool)).numpy().ravel()
            for k, v in module.state.items()}  # fmt: skip


def test_masks_signs_and_cosine_are_those_of_numpy() -> None:
    one, other = part("a", 0), part("b", 1)
    result = compatibility(one, other)
    mine, theirs = kept(one), kept(other)
    pruned = [k for k in mine if k in one.mask or k in other.mask]
    both = sum((mine[k] & theirs[k]).sum() for k in pruned)
    assert result.mask_jaccard == both / sum((mine[k] | theirs[k]).sum() for k in pruned)
    w = [np.concatenate([v.numpy().ravel() for v in m.state.values()]).astype(float)
         for m in (one, other)]  # fmt: skip
    assert result.cosine == pytest.approx(w[0] @ w[1] / np.linalg.norm(w[0]) / np.linalg.norm(w[1]))
    common = np.concatenate([mine[k] & theirs[k] for k in mine])
    signs = np.sign(w[0][common]) * np.sign(w[1][common])
    assert result.sign_conflicts == (signs < 0).mean()
    assert math.isnan(result.interference)
    assert result.samples == 0


def test_units_that_are_read_by_hand() -> None:
    """Of three units, the first module uses 0 and 1, the second 1 and 2; the rest are cut off."""
    modules = []
    for name, used in (("a", [0, 1]), ("b", [1, 2])):
        merged = part(name, 0, "mlp(3)", keep=1.0)
        (key,) = (k for k, v in merged.state.items() if v.shape == (4, 3))
        reads = torch.zeros(4, 3, dtype=torch.bool)
        reads[:, used] = True
        state = {**merged.state, key: merged.state[key] * reads}
        modules.append(replace(merged, state=state, mask={key: reads}))
    result = compatibility(*modules)
    assert result.unit_overlap == 1 / 3
    assert list(result.unit_overlap_per_axis.values()) == [1 / 3]
    assert result.mask_jaccard == 4 / 12


def test_a_module_is_like_itself() -> None:
    one = part("a", 0)
    result = compatibility(one, replace(one, name="again"), X)
    assert (result.mask_jaccard, result.unit_overlap, result.sign_conflicts) == (1, 1, 0)
    assert result.cosine == pytest.approx(1)
    assert (
        compatibility(*(replace(m, mask={}) for m in (part("a", 0), part("b", 1)))).mask_jaccard
        == 1
    )


def test_posterior_undoes_maximum_entropy() -> None:
    """A perfect module mixes one-hot and uniform targets by P(c|x): it is found again."""
    rng = np.random.default_rng(0)
    truth = rng.dirichlet(np.ones(4), size=50)  # P(c|x) over all four classes
    rewarded = [0, 2]
    inside = truth[:, rewarded].sum(1, keepdims=True)
    p = np.zeros((50, 4)) + (1 - inside) / 4
    p[:, rewarded] += truth[:, rewarded]
    result = posterior(torch.tensor(3.0 * np.log(p)), rewarded, temperature=3.0)
    for c in rewarded:
        assert result[c].numpy() == pytest.approx(truth[:, c])
    everything = posterior(torch.tensor(np.log(truth)), [0, 1, 2, 3], 1.0)
    assert everything[3].numpy() == pytest.approx(truth[:, 3])


def test_interference_with_sure_labels_is_the_accuracy_lost() -> None:
    """Wide margins and posteriors of 0 and 1 make it the mean of two recalls' fall."""
    y = np.repeat([0, 1, 2], 20)
    right = 100.0 * np.eye(4)[y]
    wrong = right.copy()
    wrong[:5] = 100.0 * np.eye(4)[3]  # a quarter of class 0, none of class 1, all of class 2
    wrong[40:] = 100.0 * np.eye(4)[3]
    labels = [(c, torch.tensor((y == c) * 1.0)) for c in (0, 1)]
    apart, joined = torch.tensor(right), torch.tensor(wrong)
    assert interference(apart, joined, labels, 1.0) == pytest.approx((0.25 + 0) / 2)
    assert interference(joined, apart, labels, 1.0) == pytest.approx(-0.125)
    assert interference(apart, apart, labels, 1.0) == 0
    nobody = torch.zeros(len(y), dtype=torch.float64)
    assert interference(apart, joined, [*labels, (3, nobody)], 1.0) == pytest.approx(0.125)
    assert math.isnan(interference(apart, joined, [(3, nobody)], 1.0))


def test_modules_on_units_of_their_own_do_not_interfere() -> None:
    """Then the weight sum is the logit sum (but for the output bias, which the mlp has not)."""
    modules = []
    for name, mine in (("a", slice(0, 5)), ("b", slice(5, 9))):
        merged = part(name, int(name == "b"), "mlp(9)", keep=1.0)
        mask = {k: torch.zeros(v.shape, dtype=torch.bool) for k, v in merged.state.items()}
        for value in mask.values():
            value[(slice(None), mine) if value.shape[0] == 4 else mine] = True
        state = {k: v * mask[k] for k, v in merged.state.items()}
        modules.append(replace(merged, state=state, mask=mask))
    result = compatibility(*modules, X)
    assert result.interference == pytest.approx(0, abs=1e-6)
    assert (result.unit_overlap, result.mask_jaccard, result.cosine) == (0, 0, 0)
    assert math.isnan(result.sign_conflicts)


def test_interference_is_read_from_the_weight_sum() -> None:
    one, other = part("a", 0), part("[red]", 3)
    rows = X[evenly_spaced(len(X), MOST)]
    with torch.no_grad():
        z = [m.to_module()(rows).double() for m in (one, other)]
        joined = one.to_module()
        joined.network.load_state_dict({k: v + other.state[k] for k, v in one.state.items()})
        summed = joined(rows).double()
    labels = [*posterior(z[0], [0], 5.0).items(), *posterior(z[1], [2], 5.0).items()]
    expected = interference(z[0] + z[1], summed, labels, 5.0)
    assert abs(expected) > 1e-4
    result = compatibility(one, other, X)
    assert result.interference == pytest.approx(expected, rel=1e-9)
    assert result.samples == MOST == 4096
    swapped = compatibility(other, one, X)
    assert swapped.interference == pytest.approx(expected, rel=1e-9)


def test_samples_may_be_a_split_a_data_set_or_an_array() -> None:
    one, other = part("a", 0), part("b", 1)
    split = Split(X[:50], torch.full((50,), -1))
    nothing = Split(X[:4], torch.arange(4))
    data = Data.build("toy", CATALOGUE, nothing, split, nothing, "unit")
    for samples in (split, data, X[:50].numpy()):
        assert (
            compatibility(one, other, samples).interference
            == compatibility(one, other, X[:50]).interference
        )
    with pytest.raises(DataError, match="no samples"):
        compatibility(one, other, X[:0])


def test_matrix_holds_every_pair() -> None:
    bank = Bank([part("a", 0), part("b", 1), part("[red]", 2)])
    result = compatibility_matrix(bank, X)
    assert result.names == ("a", "b", "[red]")
    for name in NAMES:
        values = result[name]
        assert np.isnan(values.diagonal()).all()
        for i in range(3):
            for j in range(i):
                pair = compatibility(bank[j], bank[i], X)
                assert values[i, j] == values[j, i] == getattr(pair, name)
    assert "[red]" in str(result)
    assert "interference" in str(result)
    assert json.loads(json.dumps(result.to_json()))["measures"]["cosine"][0][0] is None
    assert "sign conflicts" in [ax.get_title() for ax in result.figure().axes]
    without = compatibility_matrix(bank)
    assert "interference" not in [ax.get_title() for ax in without.figure().axes]
    assert "mask jaccard" in str(without)
    with pytest.raises(DataError, match="did you mean 'cosine'"):
        result["cosin"]
    with pytest.raises(CompositionError, match="1 modules make no pair"):
        compatibility_matrix(bank[:1])


def test_it_prints_itself_and_is_json() -> None:
    result = compatibility(part("a", 0), replace(part("[red]", 1), origin="f"), X)
    assert "a and [red], two origins, 4096 samples" in str(result)
    assert f"{result.cosine:.4f}" in str(result)
    value = json.loads(json.dumps(result.to_json()))
    assert value["unit_overlap_per_axis"].keys() == result.unit_overlap_per_axis.keys()
    assert len(result.unit_overlap_per_axis) == 2
    assert not result.same_origin


def test_network_without_wiring_has_no_units() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.sort(self.first(x), 1).values.cumsum(1))

    def factory(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return Odd()

    modules = [custom(name, factory, seed) for seed, name in enumerate("ab")]
    result = compatibility(*modules, X)
    assert math.isnan(result.unit_overlap)
    assert not result.unit_overlap_per_axis
    assert math.isfinite(result.interference)


def test_batchnorm_of_the_sum_normalises_by_the_samples() -> None:
    """Statistics of the parts play no role in the sum: changing them changes its logits nowhere."""

    def factory(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, outputs))

    modules = [custom(name, factory, seed) for seed, name in enumerate("ab")]
    far = [
        replace(m, state={k: v + 3 if "running" in k else v for k, v in m.state.items()})
        for m in modules
    ]
    z, again = (joined_logits(blend(*pair, 1.0, 1.0), X[:20]) for pair in (modules, far))
    assert torch.equal(z, again)
    assert math.isfinite(compatibility(*modules, X).interference)
    assert joined_logits(blend(*modules, 1.0, 1.0), X[:1]).isfinite().all()  # by the parts' own


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"catalogue": ("z", "b", "[red]", "d"), "rewarded": ("b",)}, "its catalogue is .*'z'"),
        ({"temperature": 1.0}, "its temperature is 1.0, not 5.0: train both"),
        ({"scaling": Scaling("none", torch.tensor(0.0), torch.tensor(1.0))}, "its scaling is"),
    ],
)
def test_modules_that_cannot_be_compared(change: dict[str, object], message: str) -> None:
    with pytest.raises(CompositionError, match=f"module 'b' does not fit module 'a': {message}"):
        compatibility(part("a", 0), replace(part("b", 1), **change))  # type: ignore[arg-type]


def test_other_networks_and_other_things_are_refused() -> None:
    with pytest.raises(CompositionError, match=r"model is mlp\(hidden=\[9\]"):
        compatibility(part("a", 0), part("b", 0, "mlp(9)"))
    with pytest.raises(CompositionError, match=r"a Bank cannot be compared .*compatibility_matrix"):
        compatibility(Bank([part("a", 0)]), part("b", 0))  # type: ignore[arg-type]


@pytest.mark.parametrize(("count", "most"), [(10, 10), (10, 3), (3, 10), (7, 4), (1, 1), (0, 4)])
def test_spaced_rows(count: int, most: int) -> None:
    rows = evenly_spaced(count, most).tolist()
    expected = [i * count // most for i in range(most)] if count > most else range(count)
    assert rows == list(expected)
    assert len(set(rows)) == min(count, most)
