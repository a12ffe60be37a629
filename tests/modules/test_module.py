"""A module is what it says: density, zeros, copies, and a classifier of raw inputs."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from intarsia.data import Scaling, Split, load_data
from intarsia.errors import DataError, ModelError
from intarsia.models import initialise
from intarsia.modules import Architecture, Classifier, Module

Make = Callable[..., Module]


def test_density_counts_surviving_parameters(module: Module) -> None:
    kept = sum(int(mask.sum()) for mask in module.mask.values())
    total = sum(p.numel() for p in initialise("mlp(8)", (6,), 4, 0).parameters())
    assert (module.nonzero, module.density) == (kept, kept / total)


def test_density_leaves_buffers_out(make_module: Make) -> None:
    module = make_module(model="resnet18(width=2)", shape=(3, 8, 8), density=0.5)
    network = module.to_module().network
    assert module.parameters == sum(p.numel() for p in network.parameters())
    assert any("running_mean" in name for name in module.state)
    survivors = [module.mask.get(k, torch.ones_like(p)) for k, p in network.named_parameters()]
    assert module.nonzero == sum(int(mask.sum()) for mask in survivors)


def test_surviving_zero_counts(make_module: Make) -> None:
    module = make_module(density=0.5)
    state = {k: v * 0 for k, v in module.state.items()}
    zero = make_module(density=0.5, provenance={})
    zero = replace(zero, state=state, mask=module.mask)
    assert zero.nonzero == module.nonzero > 0


def test_pruned_entries_are_positive_zero(module: Module) -> None:
    for name, mask in module.mask.items():
        assert not torch.signbit(module.state[name][~mask]).any()


def test_unpruned_parameters_have_no_mask(make_module: Make) -> None:
    assert make_module(density=1.1).mask == {}
    assert make_module(density=1.1).density == 1.0


def test_tensors_are_copied(module: Module) -> None:
    before = {k: v.clone() for k, v in module.state.items()}
    for parameter in module.to_module().parameters():
        parameter.data.fill_(7)
    assert all(torch.equal(before[k], v) for k, v in module.state.items())


def test_making_a_network_draws_no_random_number(module: Module) -> None:
    before = torch.random.get_rng_state()
    module.to_module()
    assert torch.equal(before, torch.random.get_rng_state())


def test_logits_are_the_network_of_scaled_inputs(module: Module) -> None:
    x = torch.randint(0, 256, (5, 6), dtype=torch.uint8)
    network = initialise("mlp(8)", (6,), 4, seed=9).eval()
    network.load_state_dict(module.state)
    with torch.no_grad():
        expected = network((x.float() - 0) * torch.tensor(1 / 255))
        classifier = module.to_module()
        assert not classifier.training
        assert torch.equal(classifier(x), expected)
    probabilities = classifier.predict_proba(x.numpy())
    assert torch.equal(probabilities, torch.softmax(expected / 5, dim=1))
    assert torch.equal(classifier.predict(x, batch=2), expected.argmax(1))


def test_inputs_lie_flat_or_without_their_channel(make_module: Make) -> None:
    classifier = make_module(model="lenet", shape=(1, 12, 12)).to_module()
    x = np.random.default_rng(0).integers(0, 256, (3, 1, 12, 12), dtype=np.uint8)
    with torch.no_grad():
        expected = classifier(x)
        assert torch.equal(classifier(x.reshape(3, 144)), expected)
        assert torch.equal(classifier(x.reshape(3, 12, 12).astype(np.float64)), expected)
        assert torch.equal(classifier(x.reshape(3, 12, 12, 1)), expected)
    for shape in ((3, 12, 1, 12), (3, 6, 24), (3, 1, 144)):
        with pytest.raises(DataError, match="expected N x 1 x 12 x 12 or N x 144 or"):
            classifier(x.reshape(shape))


def test_channels_last_are_the_transposed_images(make_module: Make) -> None:
    classifier = make_module(shape=(3, 6, 7)).to_module()
    x = np.random.default_rng(0).integers(0, 256, (60, 6, 7, 3), dtype=np.uint8)
    first = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    assert torch.equal(classifier.predict_proba(x), classifier.predict_proba(first))
    assert torch.equal(classifier.predict(torch.tensor(x)), classifier.predict(first))
    data = load_data(x, np.arange(60) % 2, test=0, validation=0)
    assert torch.equal(classifier.predict(data.train.x), classifier.predict(x))
    with pytest.raises(DataError, match=r"expected N x 3 x 6 x 7 or N x 126 or N x 6 x 7 x 3$"):
        classifier.predict(x.swapaxes(1, 2))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_inputs_that_are_not_finite_are_refused(module: Module, value: float) -> None:
    x = np.zeros((9, 6))
    x[[5, 5, 7], [0, 2, 1]] = value
    classifier = module.to_module()
    for predict in (classifier.predict, classifier.predict_proba):
        for batch, count in ((4096, 3), (6, 2)):
            with pytest.raises(DataError, match=rf"{count} values .* NaN or infinite .* row 5"):
                predict(x, batch)


def test_a_classifier_can_be_traced(module: Module) -> None:
    class Answers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.classifier = module.to_module()

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.classifier(x), self.classifier.predict_proba(x)

    answers, x = Answers(), torch.rand(3, 6)
    with torch.no_grad():
        traced = torch.export.export(answers, (x,), strict=False).module()
        for one, other in zip(traced(x), answers(x), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 5)), "expected N x 6"),
        (np.zeros(6), "add a first axis"),
        (np.array([["a", "b"]]), "not numbers"),
        (np.zeros((2, 6), dtype=complex), "complex"),
        (Split(torch.zeros(2, 6), torch.zeros(2)), "a Split: give its rows"),
    ],
)
def test_inputs_that_do_not_fit(module: Module, x: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        module.to_module()(x)


def test_other_output_is_shared_out(make_module: Make) -> None:
    module = make_module(outputs=5, temperature=2.0)
    x = torch.randint(0, 256, (7, 6), dtype=torch.uint8)
    classifier = module.to_module()
    with torch.no_grad():
        p = torch.softmax(classifier.network(x.double().float() / 255) / 2, dim=1).double()
    expected = p[:, :4] + p[:, 4:] / 4
    assert torch.allclose(classifier.predict_proba(x).double(), expected, atol=1e-6)
    assert classifier(x).shape == (7, 4)


def test_classifier_trains(module: Module) -> None:
    classifier = module.to_module()
    classifier(torch.ones(2, 6)).sum().backward()
    assert all(p.grad is not None for p in classifier.parameters())


def test_prediction_ignores_training_mode(module: Module) -> None:
    classifier = module.to_module().train()
    x = torch.ones(4, 6)
    assert torch.equal(classifier.predict_proba(x), classifier.predict_proba(x))
    assert classifier.training
    assert classifier.network.training


def test_buffers_outside_the_state_keep_their_values(make_module: Make) -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, 4)
            self.register_buffer("weights", torch.arange(6.0), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x * self.weights)

    module = make_module(model=lambda shape, outputs: Weighted())
    network = module.to_module().network
    assert torch.equal(network.weights, torch.arange(6.0))
    assert torch.equal(network.head.weight, module.state["head.weight"])


def test_architecture_fills_in_defaults() -> None:
    made = [Architecture.of(m, (6,), 4) for m in ("mlp", "mlp(512)", {"name": "mlp"})]
    assert made[0] == made[1] == made[2]
    assert made[0].to_json()["model"]["arguments"] == {"hidden": [512], "dropout": 0.5}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewarded": ("9",)}, "'9', which is not in its catalogue"),
        ({"rewarded": ()}, "at least one"),
        ({"rewarded": ("1", "1")}, "each class once"),
        ({"catalogue": ("0", "1", "1", "2")}, "each class once"),
        ({"outputs": 6}, "6 outputs for a catalogue of 4"),
        ({"temperature": 0}, "temperature 0.0"),
        ({"temperature": math.nan}, "temperature nan"),
        ({"scaling": Scaling("standard", torch.zeros(5), torch.ones(5))}, "does not fit inputs"),
    ],
)
def test_contradictions_are_refused(
    make_module: Make, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        make_module(**changes)


def test_wrong_tensors_are_refused(module: Module) -> None:
    weight = "layers.0.weight"
    state = dict(module.state)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"state": {k: v for k, v in state.items() if k != weight}}, "lacks the tensor"),
        ({"state": state | {"more": torch.ones(1)}}, "has the tensor 'more'"),
        ({"state": state | {weight: torch.ones(8, 5)}}, "its model needs \\(8, 6\\)"),
        ({"state": state | {weight: torch.ones(8, 6).double()}}, "float64"),
        ({"state": state | {weight: torch.ones(8, 6)}}, "its mask says pruned"),
        ({"state": state | {weight: torch.full((8, 6), math.nan)}}, "it diverged"),
        ({"mask": {weight: torch.ones(3)}}, "fits no parameter"),
    ]
    for change, message in cases:
        with pytest.raises(ModelError, match=message):
            replace(module, **change)


def test_classifier_refuses_a_network_of_another_size() -> None:
    scaling = Scaling("none", torch.tensor(0.0), torch.tensor(1.0))
    classifier = Classifier(nn.Linear(6, 7), catalogue="abcd", shape=(6,), scaling=scaling)
    with pytest.raises(ModelError, match="N x 4"):
        classifier(torch.ones(1, 6))
