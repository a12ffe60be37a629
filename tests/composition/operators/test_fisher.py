"""The Fisher average against gradients taken one sample and one class at a time."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from intarsia.composition import OPERATORS, MergeContext
from intarsia.composition.operators import fisher
from intarsia.composition.operators.fisher import _agrees, _mapped, diagonal
from intarsia.errors import RecipeError
from intarsia.models import initialise

pytestmark = pytest.mark.usefixtures("one_thread")

Make = Callable[..., MergeContext]


class Odd(nn.Module):
    """What the house has no model of: a layer used twice, groups, in-place steps, LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, stride=2, padding="valid", dilation=1, groups=2)
        self.norm = nn.BatchNorm2d(4, affine=False)
        self.again = nn.Linear(4, 4)
        self.layer_norm = nn.LayerNorm(4)
        self.free = nn.Parameter(torch.randn(4))
        self.head = nn.Linear(4, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu_(self.norm(self.conv(x))).flatten(2).mT  # N, places, channels
        x = torch.tanh_(self.again(torch.relu_(self.again(x))))
        return self.head(self.layer_norm(x).mean(1) * self.free)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: initialise("mlp(5, 4)", (6,), 3, 0), (6,)),
    "lenet": (lambda: initialise("lenet", (1, 6, 6), 3, 0), (1, 6, 6)),
    "resnet": (lambda: initialise("resnet18(2)", (3, 8, 8), 3, 0), (3, 8, 8)),
    "odd": (Odd, (2, 7, 7)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_diagonal_is_the_mean_of_squared_gradients(name: str) -> None:
    make, shape = NETWORKS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = make().eval()
        inputs = torch.randn(19, *shape)  # more than a chunk, and not a multiple of one
    temperature = 2.0
    expected = {k: torch.zeros_like(p, dtype=torch.float64) for k, p in network.named_parameters()}
    for x in inputs:
        log_p = torch.log_softmax(network(x[None])[0] / temperature, dim=0)
        for c in range(3):
            gradients = torch.autograd.grad(log_p[c], list(network.parameters()), retain_graph=True)
            for key, gradient in zip(expected, gradients, strict=True):
                expected[key] += (
                    float(log_p[c].detach().exp()) * gradient.double() ** 2 / len(inputs)
                )
    before = {k: v.clone() for k, v in network.state_dict().items()}
    seen = diagonal(network, inputs, temperature)
    assert seen.keys() == expected.keys()
    for key in expected:
        scale = float(expected[key].max())
        assert scale > 0, key
        torch.testing.assert_close(seen[key] / scale, expected[key] / scale, atol=1e-5, rtol=1e-3)
    assert all(torch.equal(v, before[k]) for k, v in network.state_dict().items())
    assert all(p.grad is None for p in network.parameters())


def join(context: MergeContext, **settings: Any) -> dict[str, Tensor]:
    states = [part.state for part in context.parts]
    return OPERATORS["fisher"](states=states, context=context, **settings)


def test_the_average_is_weighed_by_information(make_context: Make) -> None:
    context = make_context(3, samples=25)
    weights, floor = {"a": 2.0, "b": 0.5}, 1e-4
    joined = join(context, weights=weights, floor=floor)
    inputs = context.scaled("fisher")
    factors = []
    for part, network in zip(context.parts, context.networks(), strict=True):
        own = diagonal(network, inputs, context.temperature)
        weight = weights.get(part.name, 1.0)
        factors.append({k: weight * own[k].clamp_min(floor) * part.mask[k] for k in own})
    for name in context.plan:
        above = sum(s[name] * p.state[name] for s, p in zip(factors, context.parts, strict=True))
        below = sum(s[name] for s in factors)
        expected = torch.where(below > 0, above / below, 0).float()
        torch.testing.assert_close(joined[name], expected)
        lows = torch.stack([p.state[name] for p in context.parts])
        assert (joined[name] <= lows.amax(0).clamp_min(0) + 1e-6).all()
        assert (joined[name] >= lows.amin(0).clamp_max(0) - 1e-6).all()


def test_without_information_the_floor_makes_a_mean(make_context: Make) -> None:
    context = make_context(3, density=1.0, samples=5)
    joined = join(context, floor=1e9)
    for name in context.plan:
        mean = torch.stack([part.state[name] for part in context.parts]).mean(0)
        torch.testing.assert_close(joined[name], mean)


def test_weights_and_floor_are_numbers_above_0(make_context: Make) -> None:
    context = make_context(3, samples=5)
    for settings in ({"weights": 0.0}, {"weights": {"a": -1.0}}, {"floor": 0.0}, {"floor": -1.0}):
        with pytest.raises(RecipeError, match="above 0"):
            join(context, **settings)
    assert join(context, weights=1e-9, floor=1e-30)


def test_weights_are_1_and_the_floor_is_small_unless_told(make_context: Make) -> None:
    context = make_context(3, samples=9)
    default, given = join(context), join(context, weights=1.0, floor=1e-6)
    assert all(torch.equal(default[name], given[name]) for name in default)
    raised = join(context, floor=1.0)
    assert any(not torch.equal(default[name], raised[name]) for name in default)


def test_what_torch_maps_is_trusted_where_it_agrees() -> None:
    """A layer of which the map is wrong is taken sample by sample; one it can map is not."""
    gradients = {"w": torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]])}
    assert _agrees(gradients, {"w": gradients["w"][:1]})
    assert _agrees(gradients, {"w": gradients["w"][:1] + 1e-3})
    assert not _agrees(gradients, {"w": gradients["w"][:1] + 0.1})
    assert not _agrees(gradients, {"w": gradients["w"][1:]})
    wrong = {"w": gradients["w"][:1], "v": torch.zeros(1, 1, 1)}
    assert not _agrees({**gradients, "v": torch.ones(2, 1, 1)}, wrong)
    near_zero = {"w": torch.tensor([[[5e-3, 10.0]]])}  # to a thousandth of the largest
    assert _agrees(near_zero, {"w": torch.tensor([[[0.0, 10.0]]])})
    assert not _agrees(near_zero, {"w": torch.tensor([[[0.1, 10.0]]])})


class Scaled(nn.Module):
    """A network whose only parameters belong to no layer that is called."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def test_parameters_of_no_layer_are_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """With z = x s: the gradient of sqrt(p_c) by s_j is x_j (1[c = j] - p_j) sqrt(p_c) / 2 / t."""
    network, t = Scaled(), 2.0
    inputs = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    calls: list[int] = []
    usual = fisher._one_by_one
    monkeypatch.setattr(
        fisher, "_one_by_one", lambda n, o, x, t: (calls.append(len(x)), usual(n, o, x, t))[1]
    )
    seen = diagonal(network, inputs, t)["scale"]
    p = torch.softmax(inputs * network.scale.detach() / t, dim=1)
    expected = (p * (1 - p) * (inputs / t) ** 2).mean(0)
    torch.testing.assert_close(seen.float(), expected, atol=1e-6, rtol=1e-4)
    assert calls == [1, 1]  # a sample of each chunk is looked at, the others are mapped


def test_a_layer_that_torch_cannot_map_is_taken_sample_by_sample() -> None:
    """PReLU's map is wrong in torch: the diagonal is right all the same."""
    network = nn.Sequential(nn.Linear(3, 3), nn.PReLU(3))
    inputs = torch.randn(18, 3, generator=torch.Generator().manual_seed(1))
    seen = diagonal(network, inputs, 1.0)["1.weight"]
    expected = torch.zeros(3)
    for x in inputs:
        p = torch.softmax(network(x[None])[0], 0)
        for c in range(3):
            (slope,) = torch.autograd.grad(p[c].log(), [network[1].weight], retain_graph=True)
            expected += p[c].detach() * slope**2 / len(inputs)
    torch.testing.assert_close(seen.float(), expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    ("network", "shape", "sizes"),
    [
        (nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)), (3,), [5, 5, 2]),
        (nn.Sequential(nn.Conv1d(1, 2, 2), nn.Flatten(), nn.Linear(4, 2)), (1, 3), [2] * 6),
        (nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), (3,), [2] * 6),
    ],
)
def test_fewer_samples_are_held_where_layers_make_patches(
    network: nn.Module, shape: tuple[int, ...], sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many at once for linear layers alone; else a few, since patches take room."""
    seen: list[int] = []
    usual = fisher._add_layers
    monkeypatch.setattr(fisher, "CHUNK", 2)
    monkeypatch.setattr(fisher, "MANY", 5)
    monkeypatch.setattr(
        fisher,
        "_add_layers",
        lambda s, n, x, *rest: (seen.append(len(x)), usual(s, n, x, *rest))[1],
    )
    diagonal(network.eval(), torch.rand(12, *shape), 1.0)
    assert seen == sizes


class ReadAgain(nn.Module):
    """A layer whose weight the network's own forward reads as well."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        return self.head(nn.functional.linear(x, self.first.weight)) * self.head.bias.norm()


def test_a_weight_that_is_read_outside_its_layer_counts_wherever_it_is_read() -> None:
    torch.manual_seed(0)
    network, x = ReadAgain().eval(), torch.randn(6, 4)
    expected = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    for row in x:
        log_p = torch.log_softmax(network(row[None]), dim=1)[0]
        for one in log_p:
            slopes = torch.autograd.grad(one, list(network.parameters()), retain_graph=True)
            for name, slope in zip(expected, slopes, strict=True):
                expected[name] += one.exp().detach() * slope.square() / len(x)
    seen = diagonal(network, x, 1.0)
    for name, own in expected.items():
        assert torch.allclose(seen[name].float(), own, rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize("reads_words", [False, True])
def test_frozen_parameters_inform_like_others(reads_words: bool) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)]
    network = nn.Sequential(*([nn.Embedding(5, 2), nn.Flatten()] if reads_words else []), *layers)
    x = torch.randint(0, 5, (6, 2)) if reads_words else torch.randn(6, 4)
    expected = diagonal(copy.deepcopy(network), x, 1.0)
    seen = diagonal(network.requires_grad_(False), x, 1.0)
    assert all(torch.equal(seen[name], own) for name, own in expected.items())
    assert all(bool(own.any()) for own in expected.values())


def test_parameters_without_entries_have_no_information() -> None:
    class Empty(nn.Linear):
        def __init__(self) -> None:
            super().__init__(3, 2)
            self.none = nn.Parameter(torch.zeros(0, 3))

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + self.none.sum()

    assert diagonal(Empty().eval(), torch.rand(4, 3), 1.0)["none"].shape == (0, 3)


class Aside(nn.Module):
    """A layer and a parameter that are used, but not for the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.aside = nn.Linear(3, 2)
        self.free = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        self.seen = self.aside(x) * self.free
        return self.head(x)


def test_what_no_answer_depends_on_has_no_information() -> None:
    seen = diagonal(Aside(), torch.rand(4, 3, generator=torch.Generator().manual_seed(0)), 1.0)
    assert all(bool((seen[name] == 0).all()) for name in ("aside.weight", "aside.bias", "free"))
    assert bool((seen["head.weight"] > 0).all())


class InPlace(nn.Module):
    """A network that works on its inputs in place, or does the same to a copy."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place
        self.scale = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))
        self.head = nn.Linear(3, 2)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([[1.0, -2.0, 0.5], [0.0, 1.0, -1.0]]))

    def forward(self, x: Tensor) -> Tensor:
        x = x.sub_(0.5) if self.in_place else x - 0.5
        return self.head(x * self.scale)


def test_inputs_stay_as_they_are() -> None:
    """Of a network that changes them in place, the information is that of one that does not."""
    inputs = torch.rand(6, 3, generator=torch.Generator().manual_seed(0))
    before = inputs.clone()
    own, other = InPlace(True), InPlace(False)
    other.load_state_dict(own.state_dict())
    seen, expected = diagonal(own, inputs, 1.0), diagonal(other, inputs, 1.0)
    assert torch.equal(inputs, before)
    assert not inputs.requires_grad
    for name in expected:
        torch.testing.assert_close(seen[name], expected[name])


def test_a_layer_that_torch_maps_slowly_is_not_mapped() -> None:
    """Torch only warns that it maps one sample after another; other warnings are not ours."""

    def warning(text: str) -> dict[str, Tensor] | None:
        def roots(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
            warnings.warn(text, UserWarning, stacklevel=1)
            return parameters["w"] * x

        return _mapped(roots, {"w": torch.ones(2)}, torch.ones(3, 2))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert warning("There is a performance drop because of aten::some") is None
        seen = warning("something else")
    assert seen is not None
    assert torch.equal(seen["w"], torch.eye(2).expand(3, 2, 2))
