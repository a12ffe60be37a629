"""Networks that read and answer in other forms than one tensor."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from intarsia.errors import ModelError
from intarsia.models import build, wiring_of
from intarsia.models.axes import hidden_axes
from intarsia.models.custom.adapting import collated, packed


class Masked(nn.Module):
    """Reads ids and a mask by name, answers with an object."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(9, 6), nn.Linear(6, 3)

    def forward(self, ids: Tensor, mask: Tensor) -> Any:
        x = self.words(ids) * mask[..., None]
        return SimpleNamespace(logits=self.head(torch.relu(x).sum(1)))


def by_name(rows: Tensor) -> dict[str, Tensor]:
    return {"ids": rows, "mask": rows != 0}


def test_rows_become_what_the_network_reads_and_answers_become_logits() -> None:
    network = build(lambda shape, outputs: collated(Masked(), by_name), (4,), 3)
    rows = torch.tensor([[1, 2, 0, 0], [3, 4, 5, 6]])
    words = network.words(rows) * (rows != 0)[..., None]
    torch.testing.assert_close(network(rows), network.head(torch.relu(words).sum(1)))
    assert hidden_axes(wiring_of(network, (4,))) == ["words"]


def test_several_tensors_travel_as_one() -> None:
    one, two = torch.randn(5, 2, 3), torch.randn(5, 4)
    rows, collate = packed(one, two)
    assert rows.shape == (5, 10)
    assert all(torch.equal(a, b) for a, b in zip(collate(rows), (one, two), strict=True))
    with pytest.raises(ModelError, match="one type"):
        packed(one, two.long())
