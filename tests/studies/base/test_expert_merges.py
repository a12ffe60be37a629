"""Merges of experts, tried in one network: what is computed, and that nothing is twice."""

from typing import Any

import pytest
import torch
from torch import Tensor

from intarsia.composition import compose
from intarsia.data import load_data
from intarsia.measure.probe import readout_of
from intarsia.modules import logits_of
from intarsia.studies.base.expert_merges import ARITHMETIC, TIES, ExpertMerges
from intarsia.studies.maxent.shared.baselines import right
from intarsia.training import train

pytestmark = pytest.mark.usefixtures("one_thread")
SETTINGS = {"scales": [0.3, 1.0], "densities": [0.2, 0.5, 1.0], "selection": 0}


@pytest.fixture(scope="module")
def merges() -> ExpertMerges:
    data = load_data("digits", classes=["0", "1", "2", "3"])
    how: dict[str, Any] = {"preset": "paper", "sparsity": 0.0, "rounds": 0, "progress": False}
    how |= {"epochs": 2, "learning_rate": 1e-2, "batch": 64, "model": "mlp(9, dropout=0)"}
    base = train(data, objective="xe", partition=[list(data.catalogue)], **how)[0]
    bank = train(data, partition=[["0", "1"], ["2", "3"]], **{**how, "model": None}, base=base)
    return ExpertMerges(bank, data)


def test_experts_are_joined_once_for_each_density(
    merges: ExpertMerges, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is chosen is the change that `compose` makes, with the best score of all tried."""
    made: list[Any] = []
    join = ExpertMerges.joined

    def counted(self: ExpertMerges, operator: str, **settings: Any) -> Tensor:
        made.append(settings.get("density"))
        return join(self, operator, **settings)

    monkeypatch.setattr(ExpertMerges, "joined", counted)
    for operator, densities in ((ARITHMETIC, [None]), (TIES, [0.2, 0.5, 1.0])):
        made.clear()
        (best,) = merges.search(operator, SETTINGS)
        assert made == densities
        merges.put(best.change)
        whole = compose(merges.bank, best.spec)
        expected = whole.networks[0].network.state_dict()
        assert all(torch.equal(t, expected[n]) for n, t in merges.network.state_dict().items())
        tried = {}
        for density in densities:
            for scale in (0.3, 1.0, 0.5):
                given = f"scale={scale}" if density is None else f"density={density}, scale={scale}"
                spec = f"{operator.replace(' ', '_')}({given})"
                tried[spec] = right(compose(merges.bank, spec), merges.data.validation)
        assert best.validation == pytest.approx(max(tried.values()), abs=0.02)
        assert tried[best.spec] == pytest.approx(best.validation, abs=0.02)


def test_one_pass_gives_the_native_score_and_the_features(merges: ExpertMerges) -> None:
    (best,) = merges.search(ARITHMETIC, SETTINGS)
    merges.put(best.change)
    seen: list[int] = []
    hook = merges.network.register_forward_hook(lambda _, given, __: seen.append(len(given[0])))
    try:
        readout_of(merges.classifier, merges.data.train.x)
        alone = sum(seen)  # rows that finding the readout takes
        seen.clear()
        native, features = merges.probed()
    finally:
        hook.remove()
    splits = {name: getattr(merges.data, name) for name in ("train", "validation", "test")}
    assert sum(seen) <= sum(map(len, splits.values())) + alone
    assert native == pytest.approx(right(merges.classifier, merges.data.test), abs=1e-9)
    layer = merges.network.layers[-1]
    for name, split in splits.items():
        with torch.no_grad():
            logits = layer(features[name])
        torch.testing.assert_close(logits, logits_of(merges.classifier, split.x))
