"""Building networks by name and by factory; the origin of a seed."""

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from intarsia.errors import IntarsiaError, ModelError, RecipeError
from intarsia.models import MODELS, Mlp, build, initialise
from intarsia.specs import Spec


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_registry_holds_the_networks() -> None:
    ours = {"mlp", "lenet", "resnet18", "vgg11", "vit", "fastnet"}
    assert set(MODELS) == ours | {"efficientnet_lite0", "mobilenet_v2"}


@pytest.mark.parametrize(
    ("model", "shape", "parameters"),
    [
        ("mlp", (784,), 784 * 512 + 512 + 512 * 10),
        ("mlp(512, 256)", (1, 28, 28), 784 * 512 + 512 + 512 * 256 + 256 + 256 * 10),
        ("lenet", (1, 28, 28), 1_308_098),  # the paper's 1.31 M: flat layer of 10816
        ("resnet18", (3, 32, 32), 11_173_962),  # the published count of the CIFAR form
        # eight convolutions, two BatchNorm vectors each, and 512 to 10
        ("vgg11", (3, 32, 32), 9_217_728 + 2 * 2752 + 5130),
        # six convolutions of 24, 64, 64, 256, 256, 256 channels, as many norms, and 256 to 10
        ("fastnet", (3, 32, 32), 9 * 218_624 + 2 * 1152 + 2560),
    ],
)
def test_sizes_are_those_of_the_papers(model: str, shape: tuple[int, ...], parameters: int) -> None:
    assert count(build(model, shape, 10)) == parameters


@pytest.mark.parametrize("side", [8, 28, 32, 33])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("model", ["mlp(7)", "lenet", "resnet18(2)", "vgg11(2)", "fastnet(2)"])
def test_every_network_gives_logits(model: str, channels: int, side: int) -> None:
    network = build(model, (channels, side, side), 6)
    logits = network(torch.rand(2, channels, side, side))
    assert logits.shape == (2, 6)
    assert logits.dtype == torch.float32
    assert logits.isfinite().all()


def test_images_need_not_be_square() -> None:
    for model in ("lenet", "resnet18(2)", "vgg11(2)", "fastnet(2)"):
        assert build(model, (3, 16, 40), 5)(torch.rand(2, 3, 16, 40)).shape == (2, 5)


def test_mlp_has_linear_layers_and_no_bias_at_the_output() -> None:
    network = build({"name": "mlp", "hidden": [6, 5], "dropout": 0.25}, (4,), 3)
    assert isinstance(network, Mlp)
    assert network.dropout == 0.25
    assert [tuple(layer.weight.shape) for layer in network.layers] == [(6, 4), (5, 6), (3, 5)]
    assert [layer.bias is None for layer in network.layers] == [False, False, True]
    x = torch.rand(7, 4)
    hidden = torch.relu(network.layers[1](torch.relu(network.layers[0](x))))
    assert torch.equal(network.eval()(x), hidden @ network.layers[2].weight.T)


def test_mlp_drops_out_in_training_only() -> None:
    network = build("mlp(2000, dropout=0.5)", (3,), 2)
    x = torch.ones(1, 3)
    assert torch.equal(network.eval()(x), network(x))
    assert not torch.equal(network.train()(x), network(x))
    network.dropout = 0.0
    assert torch.equal(network(x), network.eval()(x))


@pytest.mark.parametrize(
    ("model", "shape", "says"),
    [
        ("lenet", (784,), r"lenet reads images.*\(784,\)"),
        ("lenet", (1, 3, 28), "lenet needs images of at least 4 x 4, got 3 x 28"),
        ("vgg11", (3, 7, 32), "vgg11 needs images of at least 8 x 8, got 7 x 32"),
        ("resnet18", (28, 28), "resnet18 reads images"),
        ("resnet18(0)", (3, 32, 32), "resnet18: width is 0"),
        ("vgg11(width=1.5)", (3, 32, 32), "vgg11: width is 1.5"),
        ("fastnet", (3, 7, 32), "fastnet needs images of at least 8 x 8, got 7 x 32"),
        ("fastnet", (3072,), "fastnet reads images"),
        ("fastnet(0)", (3, 32, 32), "fastnet: width is 0"),
        ("fastnet(scale=0)", (3, 32, 32), "fastnet: scale is 0"),
        ("fastnet(scale='1')", (3, 32, 32), "fastnet: scale is '1'"),
        ("mlp(-3)", (4,), r"mlp: hidden is \[-3\]"),
        ("mlp('12')", (4,), "mlp: hidden is '12'"),
        ("mlp(hidden=None)", (4,), "mlp: hidden is None"),
        ("mlp(dropout=1)", (4,), "mlp: dropout is 1"),
        ("mlp", (), r"input shape is \(\)"),
        ("mlp", (0, 3), r"input shape is \(0, 3\)"),
    ],
)
def test_misfits_are_named(model: str, shape: tuple[int, ...], says: str) -> None:
    with pytest.raises(ModelError, match=says):
        build(model, shape, 10)


def test_a_published_network_is_given_as_one() -> None:
    for name in ("hf/./folder", "timm/resnet18.a1_in1k"):
        with pytest.raises(
            ModelError, match=f"what published\\('{name}'\\) returns.*base='{name}'"
        ):
            build(name, (1, 8, 8), 3)


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(RecipeError, match="did you mean 'resnet18'"):
        build("resnet", (3, 32, 32), 10)
    with pytest.raises(RecipeError, match="did you mean 'hidden'"):
        build(Spec("mlp", {"hiden": 3}), (4,), 10)


def wrong_outputs(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Linear(shape[0], outputs + 1)


def wrong_inputs(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Linear(shape[0] + 1, outputs)


class Pair(nn.Linear):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(shape[0], outputs)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        return super().forward(x), x


def tied(shape: tuple[int, ...], outputs: int) -> nn.Module:
    first, second = nn.Linear(shape[0], shape[0]), nn.Linear(shape[0], shape[0])
    second.weight = first.weight
    return nn.Sequential(first, second, nn.Linear(shape[0], outputs))


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        (wrong_outputs, r"gives \(2, 4\).*expected logits of shape \(2, 3\)"),
        (wrong_inputs, "fails on two inputs of shape"),
        (Pair, "gives tuple"),
        (lambda shape, outputs: "net", "returned str: expected a torch.nn.Module"),
        (nn.Linear(5, 3), "ready Linear: give a factory"),
        (7, "expected a name, a mapping or a factory"),
        (nn.ReLU, r"ReLU takes \(inplace.*lambda shape, outputs: ReLU\("),
    ],
)
def test_a_factory_is_tried_out(factory: Callable[..., nn.Module], says: str) -> None:
    with pytest.raises(ModelError, match=says):
        build(factory, (5,), 3)


@pytest.mark.parametrize("outputs", [0, -1, 2.0])
def test_outputs_are_checked(outputs: int) -> None:
    with pytest.raises(ModelError, match="outputs is"):
        build("mlp", (5,), outputs)


def test_the_trial_leaves_modes_and_statistics_alone() -> None:
    def factory(shape: tuple[int, ...], outputs: int) -> nn.Module:
        network = nn.Sequential(nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, outputs))
        network[1].eval()
        return network

    network = build(factory, (5,), 3)
    assert [network.training, *(layer.training for layer in network)] == [True, True, False, True]
    assert network[0].num_batches_tracked == 0


FACTORIES = [
    "mlp(9, 8)",
    "lenet",
    "resnet18(2)",
    "vgg11(2)",
    "fastnet(2)",
    lambda s, o: build("lenet", s, o),
]


@pytest.mark.parametrize("model", FACTORIES)
def test_the_origin_is_the_same_bytes_each_time(model: str) -> None:
    shape = (1, 8, 8)
    torch.manual_seed(123)
    before = torch.get_rng_state()
    first = initialise(model, shape, 4, 7).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    again = initialise(model, shape, 4, 7).state_dict()
    other = initialise(model, shape, 4, 8).state_dict()
    assert list(first) == list(again)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_the_origin_is_what_torch_gives_for_the_seed() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        expected = nn.Linear(6, 4).weight
    network = initialise("mlp(4)", (6,), 3, 5)
    assert torch.equal(network.layers[0].weight, expected)


def test_factories_that_do_not_repeat_are_refused() -> None:
    shared = nn.Linear(5, 3)
    with pytest.raises(ModelError, match="the same network on every call"):
        initialise(lambda shape, outputs: shared, (5,), 3, seed=0)

    def elsewhere(shape: tuple[int, ...], outputs: int) -> nn.Module:
        network = nn.Linear(5, 3)
        nn.init.constant_(network.weight, random.random() + float(np.random.default_rng().random()))
        return network

    with pytest.raises(ModelError, match="'weight' other values for the same seed"):
        initialise(elsewhere, (5,), 3, seed=0)


def test_errors_are_ours() -> None:
    assert issubclass(ModelError, IntarsiaError)


def test_each_form_that_a_factory_makes_is_tried_once() -> None:
    class Head(nn.Module):
        def __init__(self, outputs: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(outputs, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            asked.append(self.weight.device.type)
            return x @ self.weight.t()

    class Wrong(Head):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    def factory(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return made(outputs)

    asked: list[str] = []
    made: Callable[[int], nn.Module] = Head
    for _ in range(3):
        build(factory, (4,), 3)
    build(factory, (4,), 2)
    with torch.device("meta"):
        build(factory, (4,), 3)
    assert asked == ["cpu", "cpu", "meta"]
    for made in (Wrong, lambda outputs: Head(outputs + 1)):  # noqa: B007 (the factory's)
        with pytest.raises(ModelError, match=r"expected logits of shape \(2, 3\)"):
            build(factory, (4,), 3)


def test_a_shared_weight_is_one_tensor_with_one_name() -> None:
    network = build(tied, (4,), 3)
    assert "1.weight" not in network.state_dict()
    x = torch.randn(5, 4)
    state = {name: torch.randn_like(t) for name, t in network.state_dict().items()}
    network.load_state_dict(state)
    hidden = (x @ state["0.weight"].T + state["0.bias"]) @ state["0.weight"].T + state["1.bias"]
    torch.testing.assert_close(network(x), hidden @ state["2.weight"].T + state["2.bias"])
