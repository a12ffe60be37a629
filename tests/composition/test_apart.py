"""Territories whose sum is not the sum of their logits say so."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import intarsia as ia

SETTINGS = {
    "preset": "paper",
    "partition": [["0", "1"], ["2", "3"]],
    "epochs": 1,
    "pruning": "territory",
    "progress": False,
}


class Net(nn.Module):
    wiring: Any = {  # noqa: RUF012
        "first.weight": ("hidden", "input"),
        "first.bias": ("hidden",),
        "head.weight": ("output", "hidden"),
        "head.bias": ("output",),
    }

    def __init__(self, outputs: int, last: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.head, self.last = nn.Linear(64, 8), nn.Linear(8, outputs), last

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.head(torch.relu(self.first(x.flatten(1)))))


def owned(last: Callable[[Tensor], Tensor]) -> ia.Bank:
    return ia.train("digits", model=lambda shape, outputs: Net(outputs, last), **SETTINGS)


def log_softmax(z: Tensor) -> Tensor:
    return torch.log_softmax(z, dim=1)


def gap(bank: ia.Bank) -> float:
    x = ia.load_data("digits").test.x[:50]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        return float((ia.compose(bank, "sum")(x) - ia.compose(bank, "logits")(x)).abs().max())


def test_a_linear_last_layer_gives_the_sum_of_logits_and_no_note() -> None:
    bank = owned(lambda z: z)
    assert ia.compose(bank, "sum").report["notes"] == []
    assert gap(bank) < 1e-4


@pytest.mark.parametrize("last", [torch.sigmoid, nn.functional.normalize, log_softmax])
def test_what_is_done_to_the_outputs_is_said(last: Callable[[Tensor], Tensor]) -> None:
    bank = owned(last)
    assert gap(bank) > 1e-2
    with pytest.warns(UserWarning, match=r"off the sum of their logits.*join them by \"logits\""):
        merged = ia.compose(bank, "sum")
    assert any("off the sum of their logits" in note for note in merged.report["notes"])


def test_it_is_said_of_what_no_trial_input_reaches() -> None:
    with pytest.warns(UserWarning, match="off the sum of their logits"):
        ia.compose(owned(lambda z: z.clamp(-1000, 1000)), "sum")


def plain(shape: tuple[int, ...], outputs: int, *between: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), *between, nn.ReLU(), nn.Linear(8, outputs))


def test_statistics_without_a_weight_are_those_of_the_part_with_the_unit() -> None:
    bank = ia.train(
        "digits", model=lambda *form: plain(*form, nn.BatchNorm1d(8, affine=False)), **SETTINGS
    )
    assert gap(bank) < 1e-4
    (note,) = ia.compose(bank, "sum").report["notes"]
    assert "hold as they are" in note


def test_weights_that_are_no_units_are_said() -> None:
    """One factor of all inputs is added up."""

    class Scaled(nn.Module):
        def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
            super().__init__()
            self.scale, self.inner = nn.Parameter(torch.tensor(2.0)), plain(shape, outputs)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x * self.scale)

    bank = ia.train("digits", model=Scaled, **SETTINGS)
    assert gap(bank) > 1e-2
    with pytest.warns(UserWarning, match="weights that are no unit's"):
        ia.compose(bank, "sum")


def test_an_explicit_other_is_shared_out_after_the_network() -> None:
    bank = ia.train("digits", model="mlp(8)", objective="other", **SETTINGS)
    assert bank[0].architecture.outputs == 11
    with pytest.warns(UserWarning, match="off the sum of their logits"):
        ia.compose(bank, "sum")


def test_modules_that_share_units_are_not_territories() -> None:
    settings = SETTINGS | {"pruning": "magnitude", "sparsity": 0.5}
    bank = ia.train("digits", model=lambda shape, outputs: Net(outputs, torch.sigmoid), **settings)
    assert ia.compose(bank, "sum").report["notes"] == []
