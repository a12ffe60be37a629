"""RegMean against least squares on the layers' inputs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from intarsia.composition import OPERATORS, MergeContext
from intarsia.composition.operators import regmean
from intarsia.composition.operators.regmean import _check_layers, _solve, gram_matrices
from intarsia.errors import CompositionError, RecipeError
from intarsia.models.custom.adapting import tie_shared

pytestmark = pytest.mark.usefixtures("one_thread")

Make = Callable[..., MergeContext]


def join(context: MergeContext, **settings: Any) -> dict[str, Tensor]:
    states = [part.state for part in context.parts]
    return OPERATORS["regmean"](states=states, context=context, **settings)


def inputs_of(network: nn.Module, layer: str, inputs: Tensor) -> Tensor:
    """What a layer is given, by a hook of the test's own."""
    seen: list[Tensor] = []
    hook = network.get_submodule(layer).register_forward_pre_hook(lambda _, a: seen.append(a[0]))
    with torch.no_grad():
        network(inputs)
    hook.remove()
    return seen[0].double()


@pytest.mark.parametrize("density", [1.0, 0.4])
def test_rows_are_least_squares_over_what_is_kept(density: float, make_context: Make) -> None:
    """With alpha=1 and more samples than inputs each row has one solution, found by lstsq."""
    context = make_context(3, density=density, samples=80)
    joined = join(context, alpha=1.0)
    networks, inputs = context.networks(), context.scaled("regmean")
    for layer in ("layers.0", "layers.1"):
        name = f"{layer}.weight"
        xs = [inputs_of(network, layer, inputs) for network in networks]
        states = [part.state[name].double() for part in context.parts]
        kept = torch.stack(
            [
                p.mask.get(name, torch.ones_like(s, dtype=torch.bool))
                for p, s in zip(context.parts, states, strict=True)
            ]
        ).any(0)
        for row in range(len(kept)):
            columns = kept[row].nonzero().flatten()
            stacked = torch.cat([x[:, columns] for x in xs])
            goal = torch.cat([x @ s[row] for x, s in zip(xs, states, strict=True)])
            live = stacked.abs().sum(0) > 0
            answer = torch.linalg.lstsq(stacked[:, live], goal[:, None]).solution[:, 0]
            seen = joined[name][row, columns[live]].double()
            torch.testing.assert_close(
                stacked[:, live] @ seen, stacked[:, live] @ answer, atol=1e-5, rtol=1e-4
            )
        assert (joined[name][~kept] == 0).all()


def test_diagonal_grams_give_a_weighted_mean(make_context: Make) -> None:
    """With alpha=0 an input counts by its mean square in each part: a closed form."""
    context = make_context(3, density=1.0, samples=40)
    joined = join(context, alpha=0.0)
    xs = [inputs_of(n, "layers.1", context.scaled("regmean")) for n in context.networks()]
    powers = [x.square().mean(0) for x in xs]
    states = [part.state["layers.1.weight"].double() for part in context.parts]
    above = sum(s * p for s, p in zip(states, powers, strict=True))
    below = sum(powers)
    expected = torch.where(below > 0, above / below, sum(states) / 3)
    torch.testing.assert_close(joined["layers.1.weight"].double(), expected, atol=1e-6, rtol=1e-5)


def test_other_parameters_are_averaged(make_context: Make) -> None:
    context = make_context(2, "resnet18(2)", (3, 8, 8), samples=10)
    joined = join(context)
    for name, entry in context.plan.items():
        if entry.learned and len(entry.shape) == 1:
            mean = torch.stack([part.state[name] for part in context.parts]).mean(0)
            torch.testing.assert_close(joined[name], mean)


def test_equal_parts_give_themselves(make_context: Make) -> None:
    """Every part agrees with the answer, whatever the samples leave open."""
    context = make_context(1, "lenet", (1, 6, 6), samples=10)
    joined = join(MergeContext((context.parts[0],) * 3, context.samples))
    for name, tensor in context.parts[0].state.items():
        torch.testing.assert_close(joined[name], tensor, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel_size": 3},
        {"kernel_size": (3, 2), "stride": 2, "padding": 1, "bias": False},
        {"kernel_size": 2, "dilation": 2, "groups": 2},
        {"kernel_size": 3, "padding": "same", "padding_mode": "circular", "groups": 4},
    ],
)
def test_gram_of_a_convolution(settings: dict[str, Any]) -> None:
    """Its output is its weight times what it reads: the output's second moment is W G W^T."""
    draw = torch.Generator().manual_seed(0)
    conv = nn.Conv2d(4, 8, **settings)
    network = nn.Sequential(conv)
    x = torch.randn(40, 4, 7, 6, generator=draw)
    gram = gram_matrices(network, x)["0.weight"]
    groups = conv.groups
    with torch.no_grad():
        y = (conv(x) - (0 if conv.bias is None else conv.bias[:, None, None])).double()
        y = y.movedim(1, -1).reshape(-1, groups, 8 // groups).movedim(1, 0)
        rows = conv.weight.double().reshape(groups, 8 // groups, -1)
        torch.testing.assert_close(
            rows @ gram @ rows.mT, y.mT @ y / y.shape[1], atol=1e-5, rtol=1e-4
        )


def test_gram_of_a_layer_used_twice() -> None:
    class Twice(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(torch.relu_(super().forward(x)))

    network = Twice(nn.Linear(3, 3))
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        both = torch.cat([x, torch.relu(network[0](x))]).double()
    gram = gram_matrices(network, x)["0.weight"]
    torch.testing.assert_close(gram[0], both.mT @ both / 100, atol=1e-6, rtol=1e-5)


def test_alpha_is_nine_tenths_unless_told(make_context: Make) -> None:
    context = make_context(3, samples=20)
    default, given, other = join(context), join(context, alpha=0.9), join(context, alpha=0.5)
    assert all(torch.equal(default[name], given[name]) for name in default)
    assert any(not torch.equal(default[name], other[name]) for name in default)
    for alpha in (-0.1, 1.1):
        with pytest.raises(RecipeError, match="alpha"):
            join(context, alpha=alpha)


def test_layers_that_do_not_mix_come_before_those_that_do() -> None:
    """A normalisation is passed over, and what is called after it is measured all the same."""
    network = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2), nn.LayerNorm(2), nn.Linear(2, 2))
    network.eval()
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))  # more than a chunk
    grams = gram_matrices(network, x)
    assert list(grams) == ["1.weight", "3.weight"]
    with torch.no_grad():
        inside = network[0](x).double()
    torch.testing.assert_close(grams["1.weight"][0], inside.mT @ inside / 100, atol=1e-6, rtol=0)


def test_rows_are_solved_together_and_each_to_its_end() -> None:
    """Rows that arrive at once, slowly and not at all, against a solver of dense systems."""
    draw = torch.Generator().manual_seed(3)
    base = torch.randn(1, 9, 6, generator=draw, dtype=torch.float64)
    scales = torch.tensor([1.0, 10.0, 0.1, 3.0, 1.0, 0.5], dtype=torch.float64)
    left = (base * scales).mT @ (base * scales)
    left[:, 5], left[:, :, 5] = 0, 0  # an input that is always 0
    truth = torch.randn(1, 4, 6, generator=draw, dtype=torch.float64)
    kept = torch.rand(1, 4, 6, generator=draw) < 0.7
    kept[0, 0], kept[0, 3] = True, False
    kept[0, 1, 5] = True
    right = torch.where(kept, truth, 0) @ left
    start = torch.where(kept, torch.ones_like(truth), 0)
    start[0, 0] = torch.where(torch.arange(6) < 5, truth[0, 0], 7.0)  # there already
    solved = _solve(left, right, start, kept)
    expected = torch.where(kept, truth, 0)
    torch.testing.assert_close(solved[..., :5], expected[..., :5], atol=1e-6, rtol=1e-5)
    assert torch.equal(solved[..., 5], start[..., 5])
    assert torch.equal(solved[0, 0, :5], truth[0, 0, :5])


def test_weights_of_ones_own_forward_are_refused(make_context: Make) -> None:
    network = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)))
    with pytest.raises(CompositionError, match="layer '0'"):
        _check_layers(network)
    _check_layers(nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)))
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    tie_shared(tied)
    with pytest.raises(CompositionError, match=r"layer '1' \(Linear\), which is tied"):
        _check_layers(tied)


def test_an_even_scale_is_solved_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where inputs are independent, dividing by their mean squares is the whole solution."""
    monkeypatch.setattr(regmean, "STEPS", 1)
    powers = torch.tensor([1.0, 100.0, 0.01], dtype=torch.float64)
    truth = torch.tensor([[[1.0, -2.0, 3.0]]], dtype=torch.float64)
    left = torch.diag(powers)[None]
    solved = _solve(left, truth @ left, torch.zeros_like(truth), truth != 0)
    torch.testing.assert_close(solved, truth)


def test_there_are_no_more_steps_than_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conjugate gradients are exact by then; steps that each begin anew are far from it."""
    monkeypatch.setattr(regmean, "STEPS", 8)
    draw = torch.Generator().manual_seed(0)
    base = torch.randn(20, 8, generator=draw, dtype=torch.float64)
    base[:, 1:] += 2 * base[:, :-1]  # columns that go together
    left = (base.mT @ base)[None]
    truth = torch.randn(1, 3, 8, generator=draw, dtype=torch.float64)
    kept = torch.ones_like(truth, dtype=torch.bool)
    solved = _solve(left, truth @ left, torch.zeros_like(truth), kept)
    torch.testing.assert_close(solved, truth, atol=1e-5, rtol=1e-5)


def test_what_is_solved_takes_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Tensor) -> None:
        raise AssertionError("a step was taken")

    monkeypatch.setattr(regmean, "_ratio", fail)
    nothing, start = torch.zeros(1, 2, 2), torch.ones(1, 3, 2)
    kept = torch.ones_like(start, dtype=torch.bool)
    assert torch.equal(_solve(nothing, torch.zeros_like(start), start, kept), start)


def test_rows_stop_at_the_tolerance() -> None:
    """A residual of a ten millionth of the right side is none."""
    left = torch.diag(torch.tensor([1.0, 4.0], dtype=torch.float64))[None]
    truth = torch.tensor([[[1.0, -2.0]]], dtype=torch.float64)
    kept = torch.ones_like(truth, dtype=torch.bool)
    near, far = truth * (1 + 0.9e-7), truth * (1 + 1.1e-7)
    assert torch.equal(_solve(left, truth @ left, near, kept), near)
    assert not torch.equal(_solve(left, truth @ left, far, kept), far)


def test_what_regmean_takes_is_counted_by_hand(make_context: Make) -> None:
    """Five Gram matrices of each layer in float64, four copies of the parts, patches twice."""
    context = make_context(2, samples=10)
    grams, read = 8 * (6**2 + 7**2), 8 * 10 * (6 + 7)
    assert regmean.regmean_nbytes(context) == 5 * grams + 4 * context.nbytes + 2 * read
    assert context.weight_shapes == [(7, 6), (4, 7)]


def test_gram_matrices_leave_the_inputs_as_they_are() -> None:
    """Every part is shown the same ones, also after a network that works on them in place."""

    class Shifted(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.sub_(1.0))

    inputs = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    for _ in range(2):
        gram = gram_matrices(Shifted(nn.Linear(2, 2)), inputs)["0.weight"]
        assert torch.equal(gram, torch.tensor([[[2.0, 4.0], [4.0, 8.5]]], dtype=torch.float64))


def grouped(shape: tuple[int, ...], outputs: int) -> nn.Module:
    conv = nn.Conv2d(shape[0], 4, 3, groups=2)
    return nn.Sequential(conv, nn.ReLU(), nn.Flatten(), nn.Linear(16, outputs))


def test_groups_are_solved_apart(make_context: Make) -> None:
    context = make_context(1, grouped, (2, 4, 4), samples=40)
    joined = join(MergeContext((context.parts[0],) * 2, context.samples), alpha=1.0)
    for name, tensor in context.parts[0].state.items():
        torch.testing.assert_close(joined[name], tensor, atol=1e-6, rtol=1e-5)


def own_forward(shape: tuple[int, ...], outputs: int) -> nn.Module:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    return nn.Sequential(Doubled(*shape, outputs))


def test_an_operator_refuses_layers_that_it_cannot_solve(make_context: Make) -> None:
    with pytest.raises(CompositionError, match=r"^regmean solves for the weight of layer '0'"):
        join(make_context(2, own_forward, samples=4))


def test_a_weight_that_is_read_outside_its_layer_is_refused(make_context: Make) -> None:
    class ReadAgain(nn.Module):
        def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
            super().__init__()
            self.first, self.head = nn.Linear(*shape, *shape), nn.Linear(*shape, outputs)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(self.first(x))
            return self.head(nn.functional.linear(x, self.first.weight))

    with pytest.raises(CompositionError, match="layer 'first', which the network reads in another"):
        join(make_context(2, ReadAgain, samples=20))
