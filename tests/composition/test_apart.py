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


def test_an_explicit_other_is_shared_out_after_the_network() -> None:
    bank = ia.train("digits", model="mlp(8)", objective="other", **SETTINGS)
    assert bank[0].architecture.outputs == 11
    with pytest.warns(UserWarning, match="off the sum of their logits"):
        ia.compose(bank, "sum")


def test_modules_that_share_units_are_not_territories() -> None:
    settings = SETTINGS | {"pruning": "magnitude", "sparsity": 0.5}
    bank = ia.train("digits", model=lambda shape, outputs: Net(outputs, torch.sigmoid), **settings)
    assert ia.compose(bank, "sum").report["notes"] == []
