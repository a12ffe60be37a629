"""The paper's cells are shown for a bank of its settings, and for no other."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import intarsia as ia
from intarsia.data import Data, Split
from intarsia.modules import Architecture
from intarsia.reports.modules.report_input import subject_of
from intarsia.reports.modules.sections import ReportContext
from intarsia.reports.modules.trained import paper_cells, paper_model
from intarsia.studies.plans import plan_of
from intarsia.studies.tables import Spread

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


def bank(
    data: Data,
    model: str = "shallow",
    names: Sequence[str] = ("0", "1"),
    seeds: Sequence[int] = (0,),
    **changed: Any,
) -> ia.Bank:
    """Modules that were never trained and say that they were; of seed 0 all weights are 0."""
    recipe = plan_of(data, model, [NAMES], 0).recipe.as_dict() | changed
    architecture = Architecture.of(recipe["model"], data.shape, 10)
    plan = {n: e.shape for n, e in architecture.plan().items()}
    learned = {"recipe": recipe, "data": {"name": "mnist", "digest": data.digest}}
    traits = (NAMES, architecture, data.scaling, 5.0, "origin")
    made = []
    for seed in seeds:
        draw = torch.Generator().manual_seed(seed)
        state = {n: torch.randn(shape, generator=draw) * seed for n, shape in plan.items()}
        provenance = {**learned, "seed": seed}
        made += [ia.Module(f"{n}-s{seed}", state, {}, (n,), *traits, provenance) for n in names]
    return ia.Bank(made)


def test_the_papers_settings_are_known(data: Data) -> None:
    assert paper_model(subject_of(bank(data), data)) == "shallow"
    assert paper_model(subject_of(bank(data, "deep"), data)) == "deep"
    assert paper_model(subject_of(bank(data, epochs=3), data)) is None
    assert paper_model(subject_of(bank(data, sparsity=0.95), data)) is None
    assert paper_model(subject_of(bank(data, preset="released"), data)) is None
    unpruned = {"sparsity": 0.0, "rounds": 0}
    assert paper_model(subject_of(bank(data, **unpruned), data)) == "shallow"


def test_printed_cells_are_compared_with_ours(data: Data) -> None:
    result = paper_cells(ReportContext(subject_of(bank(data), data)))
    assert result is not None
    assert "0.999 (0.001)" in result  # Table 1, shallow, MNIST, with IMP
    assert "two, sum" in result
    assert "0.992" in result  # two modules by logits, in the text


def test_several_seeds_stand_there_with_their_spread(data: Data) -> None:
    two = bank(data, seeds=(0, 1))
    scores = [ia.evaluate(ia.compose(two.seed(s), "sum"), data.test) for s in (0, 1)]
    result = paper_cells(ReportContext(subject_of(two, data)))
    assert result is not None
    accuracy, entropy = (Spread.of(getattr(s, k) for s in scores) for k in ("accuracy", "entropy"))
    assert entropy.sd > 0.01
    assert f'<th scope="row">two, sum</th><td class="number">{accuracy}</td>' in result
    assert f'<td class="number">{entropy}</td>' in result
    every = bank(data, names=NAMES, seeds=(0, 1))
    scores = [ia.evaluate(ia.compose(every.seed(s), "sum"), data.test) for s in (0, 1)]
    result = paper_cells(ReportContext(subject_of(every, data)))
    assert result is not None
    ours = Spread.of(score.accuracy for score in scores)
    assert f"above 0.90; ours is {ours.mean:.3f} ± {ours.sd:.3f} (n = 2)." in result


def test_other_data_has_no_cell(data: Data) -> None:
    other = bank(data)
    strange = Data.build("mnist", NAMES, data.test, data.test, data.train, scale="signed")
    assert paper_cells(ReportContext(subject_of(other, strange))) is None
