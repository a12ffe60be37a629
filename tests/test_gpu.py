"""What users call, with data or networks on a GPU; it is pretended, so that this runs anywhere."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import intarsia as ia
from devices import GPU, PretendedGpu, on_gpu
from intarsia import flow, lens
from intarsia.composition import OPERATORS, Composition
from intarsia.data import Data, Scaling, subsample
from intarsia.encoders import Encoder
from intarsia.measure.probe import HeadTraining
from intarsia.modules import Bank, Module
from intarsia.studies.base.expert_merges import ExpertLogits, ExpertMerges, fresh_heads

pytestmark = pytest.mark.usefixtures("one_thread")
SETTINGS: dict[str, Any] = {"scales": [1.0], "densities": [0.5], "selection": 0}
TASKS = (("0", "1"), ("2",), ("3",))


@pytest.fixture(scope="module")
def data() -> Data:
    """A few of the digits."""
    whole = ia.load_data("digits", classes=["0", "1", "2", "3"])
    few = {name: subsample(getattr(whole, name), 48) for name in ("train", "validation", "test")}
    return Data.build("few digits", whole.catalogue, **few, scale="unit")


@pytest.fixture(scope="module")
def experts(data: Data) -> Bank:
    return changed("mlp(9)", data)


@pytest.fixture(scope="module")
def convolutions(data: Data) -> Bank:
    """Of networks with BatchNorm."""
    return changed("fastnet(2)", data)


def changed(model: str, data: Data) -> Bank:
    """Changes of one base, as fine-tuning would leave them."""
    base = ia.initialise(model, data.shape, data.classes, seed=0)
    draw = torch.Generator().manual_seed(1)
    modules = []
    for task in TASKS:
        network = ia.initialise(model, data.shape, data.classes, seed=0)
        with torch.no_grad():
            for weight in network.parameters():
                weight += 0.1 * torch.randn(weight.shape, generator=draw)
        modules.append(
            Module.of(
                network, rewarded=task, name="".join(task), catalogue=data.catalogue,
                shape=data.shape, scaling=data.scaling, model=model, base=base,
            )
        )  # fmt: skip
    return Bank(modules)


@pytest.fixture
def gpu() -> Iterator[None]:
    with PretendedGpu():
        yield


@pytest.mark.parametrize("operator", OPERATORS)
def test_compositions_move_and_change(
    operator: str, experts: Bank, data: Data, gpu: None, tmp_path: Path
) -> None:
    """They answer as on the CPU, and stay on the GPU as modules come and go."""
    parts, x = parts_for(operator, experts), data.test.x
    expected = ia.compose(parts, operator, samples=data)(x)
    merged = ia.compose(parts, operator, samples=on_gpu(data)).to(GPU)
    for rows in (x, x.to(GPU)):
        assert merged(rows).is_cuda
        assert torch.equal(merged(rows).cpu(), expected)
    merged.save(tmp_path / "merged.safetensors")
    assert torch.equal(Composition.load(tmp_path / "merged.safetensors", quiet=True)(x), expected)
    if OPERATORS[operator].most is None:
        other = (merged - "01").add(parts[0])
        assert torch.equal(other(x).cpu(), expected)
        assert other.remove("3")(x).is_cuda


@pytest.mark.parametrize("operator", ["mean", "fisher", "regmean", "inlay", "logits", "centroid"])
def test_convolutions_are_joined(operator: str, convolutions: Bank, data: Data, gpu: None) -> None:
    parts = parts_for(operator, convolutions)
    merged = ia.compose(parts, operator, samples=on_gpu(data)).to(GPU)
    expected = ia.compose(parts, operator, samples=data)(data.test.x)
    assert torch.equal(merged(data.test.x).cpu(), expected)


def parts_for(operator: str, bank: Bank) -> list[Module]:
    """As many modules as it joins; an inlay moves units, which a base's cannot."""
    parts = list(bank)[: OPERATORS[operator].most]
    return [part.without_base() for part in parts] if operator == "inlay" else parts


@pytest.mark.parametrize("operator", ["mean", "logits", "inlay"])
def test_what_was_moved_is_exported(
    operator: str, experts: Bank, data: Data, gpu: None, tmp_path: Path
) -> None:
    parts = [part.without_base() for part in experts]
    settings = {"samples": on_gpu(data), "calibrate": operator != "mean"}
    merged = ia.compose(parts, operator, **settings).to(GPU)
    expected = merged(data.test.x).cpu()
    assert ia.export(merged, tmp_path / "exported.safetensors") == "safetensors"
    assert torch.allclose(ia.to_network(merged)(data.test.x), expected, atol=1e-5)
    assert merged(data.test.x).is_cuda


@pytest.mark.parametrize("name", ["experts", "convolutions"])
def test_experts_are_joined_where_the_data_lie(
    name: str, request: pytest.FixtureRequest, data: Data, gpu: None
) -> None:
    """By every operator, also those that look at samples."""
    bank, there = request.getfixturevalue(name), on_gpu(data)
    chosen = ["fisher", "regmean", "ties"] if name == "convolutions" else list(OPERATORS)
    merges, expected = ExpertMerges(bank, there), ExpertMerges(bank, data)
    for operator in chosen:
        how = OPERATORS[operator]
        if how.on == "units" or (how.most or len(bank)) < len(bank):
            continue
        found, known = (one.accuracies(operator, SETTINGS) for one in (merges, expected))
        for norms, own in known.items():
            assert found[norms]["test"] == pytest.approx(own["test"], abs=0.05), operator
    _, features = merges.probed()
    fresh_heads([features, features], there, HeadTraining(epochs=1), seed=0)
    ExpertLogits.of(bank, there.test, GPU).own_accuracies()


MEASURES: dict[str, Callable[[Any, Data], Any]] = {
    "evaluate": lambda model, data: ia.evaluate(model, data.test, unknown=data.validation).n,
    "abstention": lambda model, data: (
        ia.abstention(
            model, data.test, data.validation.x, ia.threshold(model, data.validation)
        ).accuracy
    ),
    "novelty": lambda model, data: (
        ia.novelty(model, data.validation).unknown(model, data.test.x).tolist()
    ),
    "fresh_head": lambda model, data: ia.fresh_head(model, data, epochs=1, joint=model).fresh.mean,
    "literal": lambda model, data: (
        ia.fresh_head(model, data, epochs=1, protocol="literal").fresh.mean
    ),
}


@pytest.mark.parametrize("measure", MEASURES)
def test_measures_of_models_and_data(measure: str, experts: Bank, data: Data, gpu: None) -> None:
    """Wherever either lies, the same is measured."""
    measured, there = MEASURES[measure], on_gpu(data)
    expected = measured(experts[0], data)
    for model in (experts[0], experts[0].to_module().to(GPU)):
        for samples in (data, there):
            assert measured(model, samples) == pytest.approx(expected)
    measured(ia.compose(experts, "mean").to(GPU), there)


def test_measures_of_two_modules(experts: Bank, data: Data, gpu: None) -> None:
    one, other, *_ = experts
    there = on_gpu(data)
    expected = ia.path(one, other, data.test, points=3).curves["split"].loss
    for samples, device in ((there, "cpu"), (data, "cuda"), (there, "cuda")):
        curve = ia.path(one, other, samples.test, points=3, device=device).curves["split"]
        assert curve.loss == pytest.approx(expected)
    found = ia.compatibility(one, other, there)
    assert found.to_json() == ia.compatibility(one, other, data).to_json()
    alone = [one.without_base(), other.without_base()]
    samples = data.scaling(data.validation.x)
    for aligned, same in zip(
        ia.align(alone, "activations", samples.to(GPU)),
        ia.align(alone, "activations", samples),
        strict=True,
    ):
        assert all(torch.equal(t, same.state[name]) for name, t in aligned.state.items())


def test_lenses(experts: Bank, data: Data, gpu: None) -> None:
    there = on_gpu(data)
    expected = lens.tuned(experts[0], data).to_json()
    for samples, device in ((there, "cpu"), (data, "cuda"), (there, "cuda")):
        assert lens.tuned(experts[0], samples, device=device).to_json() == expected
    model = experts[0].to_module().to(GPU)
    assert not lens.tune(model, data, device="cuda").logits(there.test.x).is_cuda


def test_modules_of_networks(experts: Bank, data: Data, gpu: None) -> None:
    """A network on a GPU, which scales nothing yet, becomes a Classifier there or a Module here."""
    there, part = on_gpu(data), experts[0]
    network = part.to_module().network.to(GPU)
    how: dict[str, Any] = {"catalogue": data.catalogue, "shape": data.shape}
    scaling = Scaling.fit("unit", there.train.x)
    classifier = ia.Classifier(network, scaling=scaling, **how)
    expected = part.to_module()(data.test.x)
    assert torch.equal(classifier(data.test.x).cpu(), expected)
    assert ia.evaluate(classifier, there.test).n == len(data.test)
    module = Module.of(network, rewarded=["0"], scaling=scaling, base=network, **how)
    assert torch.equal(module.to_module()(data.test.x), expected)


def test_splits_are_cut_where_they_lie(data: Data, gpu: None) -> None:
    own = on_gpu(data).test.select([1, 2])
    assert own.x.is_cuda
    assert own.y.tolist() == data.test.select([1, 2]).y.tolist()


def test_training_on_data_there(data: Data, gpu: None) -> None:
    """What is said about learning comes after it, and reads validation samples again."""
    how: dict[str, Any] = {"epochs": 1, "device": "cpu", "progress": False}
    made = ia.train(on_gpu(data), model="mlp(4)", partition=[["0"]], learning_rate=1e-9, **how)
    assert len(made) == 1


@pytest.mark.parametrize("kind", ["network", "function"])
def test_encoders(kind: str, data: Data, gpu: None) -> None:
    """A network computes where it is told; a function reads what it was tried on, the CPU's."""
    matrix = torch.rand(64, 5)

    def function(x: Tensor) -> Any:
        return x.flatten(1).numpy() @ matrix.numpy()

    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
    encoder = Encoder.of(network if kind == "network" else function, data.shape)
    expected = encoder(data.test.x)
    for x in (data.test.x, data.test.x.to(GPU)):
        for device in ("cpu", "cuda"):
            made = encoder(x, device)
            assert made.device.type == device
            assert torch.equal(made.cpu(), expected)


def test_flows(gpu: None) -> None:
    pair = flow.balanced_quadratic(0.3)
    numbers, pairs = flow.draw("gaussian", 256), flow.draw("gaussian", 64, 2)
    expected = flow.iterate(pair, numbers, 2).to_json(), flow.propagate(pair, pairs).to_json()
    moved = flow.balanced_quadratic(0.3).to(GPU)
    found = flow.iterate(moved, numbers.to(GPU), 2), flow.propagate(moved, pairs.to(GPU))
    assert tuple(one.to_json() for one in found) == expected
