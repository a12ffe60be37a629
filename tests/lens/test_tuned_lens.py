"""Tuned lenses: maps equal a direct solution, layers are the right ones, bad input is refused."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import intarsia as ia
from intarsia.data import Data, Split, subsample
from intarsia.errors import DataError, ModelError
from intarsia.lens import tune, tuned
from intarsia.lens.tuned_lens import (
    LayerReader,
    _placed,
    _Sums,
    _vector,
    entropies,
    predicting,
)
from intarsia.measure.logits import entropy
from intarsia.modules import Module

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def data() -> Data:
    """Three classes of small pictures that a linear map can tell apart."""
    generator = np.random.default_rng(0)
    y = np.arange(240) % 3
    x = generator.normal(size=(240, 1, 8, 8)).astype("float32")
    x[np.arange(240), 0, y, :] += 2
    return ia.load_data(x, y)


def module(model: str, data: Data, rewarded: str = "1") -> Module:
    """A module that nothing was learned by: its layers and logits are all that matters."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = ia.models.build(model, data.shape, data.classes)
    return Module.of(
        network, rewarded=[rewarded], catalogue=data.catalogue, shape=data.shape,
        scaling=data.scaling, model=model,
    )  # fmt: skip


MODELS = {
    "mlp(12, 6)": ["before layers.1", "before layers.2"],
    "lenet": ["before fc1", "before fc2", "before fc3"],
    "vgg11(2)": [*(f"before convs.{n}" for n in range(1, 8)), "before fc"],
    "resnet18(2)": [*(f"before stages.{s}.{b}" for s in range(4) for b in range(2)), "before fc"],
    "fastnet(4)": [*(f"before convs.{n}" for n in range(6)), "before fc"],
    "vit(4, 12, 2, 3)": ["before blocks.0", "before blocks.1", "before fc"],
}


@pytest.mark.parametrize("model", MODELS)
def test_layers_are_named_by_what_reads_them(model: str, data: Data) -> None:
    lens = tune(module(model, data), subsample(data.train, 40))
    assert lens.layers == ("input", *MODELS[model], "logits")
    few = data.test.x[:7]
    logits = lens.logits(few)
    own = predicting(module(model, data))(few).double()
    assert torch.allclose(logits[-1], own, atol=1e-5)
    assert torch.isfinite(logits).all()
    assert lens.entropies(few).shape == (len(lens.layers), 7)


def test_maps_are_ridge_regressions_of_the_logits(data: Data) -> None:
    """Against one solution of the whole, from batches that do not divide the samples."""
    one, ridge = module("mlp(12, 6)", data), 0.01
    lens = tune(one, data, ridge=ridge, batch=37)
    scaled = data.scaling(data.train.x).flatten(1).double().numpy()
    z = predicting(one)(data.train.x).detach().double().numpy()
    x, target = scaled - scaled.mean(0), z - z.mean(0)
    covariance = x.T @ x / len(x)
    penalty = ridge * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    weight = np.linalg.solve(covariance + penalty, x.T @ target / len(x))
    assert np.allclose(lens.maps[0].weight.numpy(), weight, atol=1e-7)
    rows = data.scaling(data.test.x).flatten(1).double().numpy()
    expected = (rows - scaled.mean(0)) @ weight + z.mean(0)
    assert np.allclose(lens.logits(data.test.x)[0].numpy(), expected, atol=1e-6)
    again = tune(one, data, ridge=ridge, batch=1000)
    assert torch.allclose(lens.maps[1].weight, again.maps[1].weight, atol=1e-8)


def test_the_last_hidden_layer_is_the_own_head(data: Data) -> None:
    lens = tune(module("mlp(12, 6)", data), data, ridge=1e-12)
    logits = lens.logits(data.test.x)
    assert torch.allclose(logits[-2], logits[-1], atol=1e-4)
    assert not torch.allclose(logits[0], logits[-1], atol=1e-2)


def test_validation_samples_choose_the_ridge(data: Data) -> None:
    """The error from sums is that of the samples themselves, and the least of all is taken."""
    one = module("mlp(12, 6)", data)
    chosen, held = tune(one, data), data.validation.x
    for place in range(2):
        errors = {}
        for ridge in (1e-6, 1e-4, 1e-2, 1.0):
            logits = tune(one, data, ridge=ridge).logits(held)
            errors[ridge] = float((logits[place] - logits[-1]).square().sum())
        assert chosen.maps[place].ridge == min(errors, key=errors.__getitem__)


def test_the_error_of_sums_is_that_of_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    x, z, w = (torch.randn(s, generator=generator).double() for s in ((50, 4), (50, 3), (4, 3)))
    sums = _Sums(x[:5].mean(0), z[:5].mean(0))
    sums.add(x, z)
    a, b = torch.ones(4).double(), torch.zeros(3).double()
    expected = (z - sums.offset - b - (x - sums.centre - a) @ w).square().sum() / 50
    assert sums.error(w, a, b) == pytest.approx(float(expected))


def test_pictures_are_averaged_over_cells_and_wide_vectors_projected() -> None:
    data = ia.load_data(np.random.default_rng(0).normal(size=(12, 3, 40, 40)), np.arange(12) % 2)
    reader = LayerReader(predicting(module("lenet", data)), data.train.x[:2])
    features, _ = next(reader.batches(data.test.x, 5))
    # 3 x 18 x 18 of 3 x 40 x 40; a flattened map of 64 x 19 x 19 has 4 x 4 cells for each channel
    assert [own.shape[1] for own in features.values()] == [972, 1024, 120, 64]
    wide = torch.randn(3, 5000, generator=torch.Generator().manual_seed(0))
    small = _vector("one", 5000, wide.device)(wide)
    assert small.shape == (3, 4096)
    assert torch.allclose(torch.cdist(small, small), torch.cdist(wide, wide), rtol=0.1)


def test_entropies_are_those_of_the_measures() -> None:
    logits = torch.randn(2, 9, 4, generator=torch.Generator().manual_seed(1)) * 30
    for one in logits:
        assert np.allclose(entropies(one, 2.0).numpy(), entropy(one, 2.0))
    assert float(entropies(torch.zeros(1, 5))[0]) == pytest.approx(math.log(5))
    assert float(entropies(torch.tensor([[2000.0, 0.0]]))[0]) == 0


def test_a_layer_that_never_changes_is_no_trouble(data: Data) -> None:
    one = module("mlp(12, 6)", data)
    state = {name: torch.zeros_like(value) for name, value in one.state.items()}
    lens = tune(replace(one, state=state), data)
    assert torch.allclose(lens.entropies(data.test.x), torch.tensor(math.log(3)).double())


def test_a_network_of_ones_own_is_read_by_its_layers(data: Data) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 3))
    one = Module.of(network, rewarded=["0"], catalogue=data.catalogue, shape=data.shape)
    assert tune(one, data).layers == ("input", "before 3", "logits")


REFUSED: dict[str, tuple[type[Exception], Callable[[Module, Data], object]]] = {
    "ridge is 0": (DataError, lambda one, data: tune(one, data, ridge=0)),
    "ridge is True": (DataError, lambda one, data: tune(one, data, ridge=True)),
    "batch is 0": (DataError, lambda one, data: tune(one, data, batch=0)),
    "there are 0": (DataError, lambda one, data: tune(one, data.train.select([]))),
    "not for": (ModelError, lambda one, data: tune(nn.Linear(2, 2), data)),  # type: ignore[arg-type]
    "no layers of its own": (
        ModelError,
        lambda one, data: tune(ia.compose([one, replace(one, name="b", rewarded=("2",))], "logits"),
        data),
    ),
    "not finite": (
        DataError,
        lambda one, data: tune(one, Split(data.train.x * math.nan, data.train.y)),
    ),
    "rows is 1": (DataError, lambda one, data: tuned(one, data, rows=1)),
    "unknown strangers": (DataError, lambda one, data: tuned(one, data, strangers=["nois"])),
    "no module to look at": (DataError, lambda one, data: tuned([], data)),
    "is not a module": (ModelError, lambda one, data: tuned([data], data)),  # type: ignore[list-item]
    "has no training samples": (DataError, lambda one, data: tuned(one, data.test)),  # type: ignore[arg-type]
    "has the classes": (
        DataError,
        lambda one, data: tuned(one, replace(data, catalogue=("a", "b", "c"))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_looked_at_is_refused(text: str, data: Data) -> None:
    kind, call = REFUSED[text]
    with pytest.raises(kind, match=text):
        call(module("mlp(12, 6)", data), data)


def test_a_network_stays_where_its_owner_has_it(data: Data) -> None:
    """On the device `meta`, since a machine may have no other than the CPU."""
    whole = ia.compose([module("mlp(12, 6)", data)], "sum")
    assert _placed(whole, torch.device("cpu")) is whole
    copied = _placed(whole, torch.device("meta"))
    assert {tensor.device.type for tensor in copied.parameters()} == {"meta"}
    assert {tensor.device.type for tensor in whole.parameters()} == {"cpu"}
