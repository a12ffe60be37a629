"""Moments through networks: exact where layers are affine, near where inputs are Gaussian."""

import pytest
import torch
from torch import nn

import intarsia as ia
from intarsia.errors import DataError, IntarsiaError, ModelError
from intarsia.flow import UnitLayer, balanced_quadratic, cumulants, draw, propagate
from intarsia.models import Mlp

pytestmark = pytest.mark.usefixtures("one_thread")


def chain(unit: str, width: int = 8, depth: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for reads in (4, *[width] * (depth - 1)):
        layers += [nn.Linear(reads, width, dtype=torch.float64), UnitLayer(unit)]
    return nn.Sequential(*layers)


@pytest.fixture(scope="module")
def bank() -> ia.Bank:
    data = ia.load_data("digits")
    return ia.train(data, model="mlp(8)", epochs=1, partition=[["0"], ["1"]], progress=False)


def test_linear_networks_are_exact() -> None:
    x = draw("exponential", 500, 4)
    for layer in propagate(chain("linear"), x):
        assert layer.mean_error == pytest.approx(0, abs=1e-12)
        assert layer.covariance_error == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("unit", ["tanh", "relu", "quadratic"])
def test_gaussian_inputs_are_met_at_the_first_layer(unit: str) -> None:
    found = propagate(chain(unit), draw("gaussian", 20_000, 4))
    first = found[2]
    assert first.covariance_error is not None
    assert first.covariance_error < 3 * first.covariance_noise
    assert first.mean_error is not None
    assert first.mean_error < 3 * first.mean_noise


def test_other_inputs_are_off_at_the_first_layer_and_by_the_right_amount() -> None:
    found = propagate(chain("tanh"), draw("exponential", 20_000, 4))
    error = found[2].covariance_error
    assert error is not None
    assert error > 4 * found[2].covariance_noise
    assert 1 < found[0].skewness < 3  # 2 of the law


def test_the_mean_of_quadratic_units_needs_order_2_alone() -> None:
    found = propagate(chain("quadratic"), draw("exponential", 300, 4))
    assert found[2].mean_error == pytest.approx(0, abs=1e-12)
    assert found[2].covariance_error is not None
    assert found[2].covariance_error > 0.01


def test_noise_is_what_sampling_gives() -> None:
    """Of an exact prediction, the error over repeated samples is as large as the noise says."""
    mean, covariance = torch.zeros(3).double(), torch.diag(torch.tensor([1.0, 2.0, 3.0]).double())
    start = ia.flow.Cumulants((mean, covariance), diagonal=False)
    runs = [propagate(nn.Linear(3, 3).double(), start, samples=500, seed=s)[0] for s in range(60)]
    errors = torch.tensor([run.covariance_error for run in runs])
    noise = torch.tensor([run.covariance_noise for run in runs])
    assert float(errors.square().mean().sqrt() / noise.mean()) == pytest.approx(1, abs=0.2)


def test_an_mlp_has_its_own_activations() -> None:
    torch.manual_seed(1)
    network = Mlp((1, 2, 2), 3, (5, 6), dropout=0.5)
    x = draw("gaussian", 50, 4)
    found = propagate(network, x)
    assert [layer.name for layer in found] == [
        "input", "layers.0", "layers.0 relu", "layers.1", "layers.1 relu", "layers.2",
    ]  # fmt: skip
    outputs = network.double().eval()(x)
    torch.testing.assert_close(found[-1].mean, outputs.mean(0).detach())


def test_modules_and_compositions_take_raw_inputs(bank: ia.Bank) -> None:
    x = ia.load_data("digits").test.x[:200]
    for network in (bank[0], ia.compose(bank, "inlay"), ia.compose(bank, "sum")):
        found = propagate(network, x)
        model = network.to_module() if isinstance(network, ia.Module) else network
        with torch.no_grad():
            logits = model(x).double()
        torch.testing.assert_close(found[-1].mean, logits.mean(0), rtol=1e-4, atol=1e-4)
        assert found["scaling"].kind == "affine"
    assert len(list(propagate(bank[0], ia.load_data("digits")))) == len(list(found))


def test_a_calibrated_composition_has_its_offset(bank: ia.Bank) -> None:
    data = ia.load_data("digits", classes=["0", "1"])
    merged = ia.compose(bank, "sum")
    found = propagate(merged, data.test.x)
    merged.offset = torch.ones(10)
    moved = propagate(merged, data.test.x)
    assert moved.layers[-1].name == "offset"
    torch.testing.assert_close(moved[-1].mean, found[-1].mean + 1)


def test_pair_networks_have_two_layers() -> None:
    network = balanced_quadratic(2.0)
    x = draw("gaussian", 4000, 2)
    found = propagate(network, x)
    torch.testing.assert_close(found[-1].mean[0], network(x).mean().detach())
    assert found[-1].covariance_error is not None
    assert found[-1].covariance_error < 3 * found[-1].covariance_noise


def test_samples_alone() -> None:
    found = propagate(chain("tanh"), draw("gaussian", 50, 4), closure="sample")
    assert {layer.covariance_error for layer in found} == {None}
    with pytest.raises(DataError, match="nothing was predicted"):
        found.figure()


def test_cumulants_may_be_given_for_samples() -> None:
    x = draw("gaussian", 5000, 4)
    whole = propagate(chain("tanh"), cumulants(x), samples=300)
    assert whole.samples == 300
    torch.testing.assert_close(whole[0].predicted_mean, x.mean(0))
    many = draw("gaussian", 100, 12)
    assert propagate(nn.Linear(12, 2), cumulants(many), samples=50)[0].units == 12


REFUSED = (
    (nn.Conv2d(1, 1, 1), "not a chain"),
    (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), "layer '1' is a BatchNorm1d"),
    (object(), "is not a network"),
    (None, "is not a network"),
    (nn.Sequential(nn.Linear(4, 5), nn.Linear(6, 2)), "layer '0' gives 5 numbers each: layer '1'"),
)


@pytest.mark.parametrize(("network", "message"), REFUSED)
def test_networks_that_are_not_chains(network: object, message: str) -> None:
    with pytest.raises(IntarsiaError, match=message):
        propagate(network, draw("gaussian", 10, 4))  # type: ignore[arg-type]


def test_a_network_that_diverged_is_named_and_not_shown() -> None:
    network = chain("tanh")
    with torch.no_grad():
        network[2].bias.fill_(float("inf"))
    with pytest.raises(ModelError, match="layer '2' gives numbers that are not finite"):
        propagate(network, draw("gaussian", 10, 4))


def test_logits_that_are_joined_are_no_network(bank: ia.Bank) -> None:
    with pytest.raises(ModelError, match="inlay"):
        propagate(ia.compose(bank, "logits"), ia.load_data("digits").test.x)


@pytest.mark.parametrize(
    ("inputs", "more", "message"),
    [
        ([[1.0, 2.0]] * 3, {}, "2 numbers each: the network reads 4"),
        ([[1.0] * 4], {}, "one sample"),
        ([[float("nan")] * 4] * 2, {}, "not finite"),
        ([[1.0] * 4] * 3, {"closure": "gausian"}, "did you mean 'gaussian'"),
        (cumulants([[1.0] * 4] * 3, 1), {}, "orders 1 and 2"),
        (cumulants([[1.0] * 4] * 3), {"samples": 1}, "samples is 1"),
    ],
)
def test_inputs_that_do_not_fit(inputs: object, more: dict[str, object], message: str) -> None:
    with pytest.raises(IntarsiaError, match=message):
        propagate(chain("tanh"), inputs, **more)  # type: ignore[arg-type]


def test_a_covariance_that_is_none() -> None:
    bad = torch.diag(torch.tensor([1.0, -1.0]).double())
    start = ia.flow.Cumulants((torch.zeros(2).double(), bad), diagonal=False)
    with pytest.raises(DataError, match="a variance is negative"):
        propagate(nn.Linear(2, 2), start)


def test_layers_by_name() -> None:
    found = propagate(chain("tanh"), draw("gaussian", 20, 4))
    assert found["2"].units == 8
    with pytest.raises(DataError, match="no layer 'inptu': did you mean 'input'"):
        found["inptu"]
    assert found.figure().axes
    assert len(found.to_json()["layers"]) == 7
    assert found.__rich__().row_count == 7
    shown = str(found)
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
