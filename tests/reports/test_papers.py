"""The paper's cells stand beside a bank of its settings, and beside no other."""

from typing import Any

import pytest
import torch

import intarsia as ia
from intarsia.data import Data, Split
from intarsia.modules import Architecture
from intarsia.reports.measured import Measured
from intarsia.reports.papers import paper_model, papers
from intarsia.reports.subject import subject_of
from intarsia.studies.plans import plan_of

NAMES = tuple("0123456789")


@pytest.fixture(scope="module")
def data() -> Data:
    """As mnist, but of twenty samples in each part."""
    draw = torch.Generator().manual_seed(0)
    parts = [
        Split(torch.randint(256, (20, 1, 28, 28), generator=draw).byte(), torch.arange(20) % 10)
        for _ in range(3)
    ]
    return Data.build("mnist", NAMES, *parts, scale="unit")


def bank(data: Data, model: str = "shallow", **changed: Any) -> ia.Bank:
    """Two modules that were never trained and say that they were."""
    recipe = plan_of(data, model, [NAMES], 0).recipe.as_dict() | changed
    architecture = Architecture.of(recipe["model"], data.shape, 10)
    state = {n: torch.zeros(e.shape) for n, e in architecture.plan().items()}
    provenance = {"recipe": recipe, "data": {"name": "mnist", "digest": data.digest}, "seed": 0}
    return ia.Bank(
        ia.Module(n, state, {}, (n,), NAMES, architecture, data.scaling, 5.0, "origin", provenance)
        for n in ("0", "1")
    )


def test_the_papers_settings_are_known(data: Data) -> None:
    assert paper_model(subject_of(bank(data), data)) == "shallow"
    assert paper_model(subject_of(bank(data, "deep"), data)) == "deep"
    assert paper_model(subject_of(bank(data, epochs=3), data)) is None
    assert paper_model(subject_of(bank(data, sparsity=0.95), data)) is None
    assert paper_model(subject_of(bank(data, preset="released"), data)) is None
    unpruned = {"sparsity": 0.0, "rounds": 0}
    assert paper_model(subject_of(bank(data, **unpruned), data)) == "shallow"


def test_printed_cells_stand_beside_ours(data: Data) -> None:
    found = papers(Measured(subject_of(bank(data), data)))
    assert found is not None
    assert "0.999 (0.001)" in found.body  # Table 1, shallow, MNIST, with IMP
    assert "two, sum" in found.body
    assert "0.992" in found.body  # two modules by logits, in the text


def test_other_data_has_no_cell(data: Data) -> None:
    other = bank(data)
    strange = Data.build("mnist", NAMES, data.test, data.test, data.train, scale="signed")
    assert papers(Measured(subject_of(other, strange))) is None
