"""Profiles of modules: what is measured by layer, against plain loops over the samples."""

import io
import json
import math

import numpy as np
import pytest
import torch
from rich.console import Console
from sklearn.metrics import roc_auc_score

import intarsia as ia
from intarsia.data import Data
from intarsia.errors import RecipeError
from intarsia.lens import TunedProfiles, tune, tuned
from intarsia.lens.tuned_profiles import _sign, _strangers
from intarsia.measure.logits import entropy
from intarsia.modules import Bank

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def data() -> Data:
    return ia.load_data("digits", classes=["0", "3", "8"])


@pytest.fixture(scope="module")
def bank(data: Data) -> Bank:
    return ia.train(data, model="mlp(24, 12)", epochs=8, rounds=0, progress=False)


@pytest.fixture(scope="module")
def profiles(bank: Bank, data: Data) -> TunedProfiles:
    return tuned(bank, data)


def test_entropies_and_areas_are_those_of_the_lens(
    bank: Bank, data: Data, profiles: TunedProfiles
) -> None:
    for module in bank:
        lens, own = tune(module, data), profiles[module.name]
        mine = (data.test.y == data.catalogue.index(module.rewarded[0])).numpy()
        for place, layer in enumerate(own):
            h = entropy(lens.logits(data.test.x)[place], module.temperature)
            assert layer.rewarded == pytest.approx(h[mine].mean(), abs=1e-9)
            assert layer.other == pytest.approx(h[~mine].mean(), abs=1e-9)
            assert layer.auc_other == pytest.approx(roc_auc_score(~mine, h), abs=1e-6)
        assert own["logits"].explained == 1
        assert own["logits"].agreed == 1
        assert own["before layers.2"].explained > 0.999  # the head itself
        assert own.samples["rewarded"] == mine.sum()


@pytest.mark.parametrize("alpha", [0.5, 2.0, math.inf])
def test_entropies_are_of_the_order_that_is_asked_for(bank: Bank, data: Data, alpha: float) -> None:
    found = tuned(bank, data, alpha)
    for module in bank:
        lens, own = tune(module, data), found[module.name]
        mine = (data.test.y == data.catalogue.index(module.rewarded[0])).numpy()
        p = (lens.logits(data.test.x) / module.temperature).softmax(-1).numpy()
        h = -np.log(p.max(-1)) if math.isinf(alpha) else np.log((p**alpha).sum(-1)) / (1 - alpha)
        np.testing.assert_allclose(lens.entropies(data.test.x, alpha=alpha), h, atol=1e-9)
        for place, layer in enumerate(own):
            assert layer.rewarded == pytest.approx(h[place, mine].mean(), abs=1e-9)
            assert layer.auc_other == pytest.approx(roc_auc_score(~mine, h[place]), abs=1e-6)
    assert found.to_json()["alpha"] == ("inf" if math.isinf(alpha) else alpha)
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(found)
    assert f"alpha {alpha:g}" in " ".join(console.export_text().split())
    with pytest.raises(RecipeError, match="alpha is 0"):
        tuned(bank, data, 0)


def test_the_last_layer_is_what_evaluate_says(
    bank: Bank, data: Data, profiles: TunedProfiles
) -> None:
    for module in bank:
        score = ia.evaluate(module, data.test)
        assert profiles[module.name]["logits"].other == pytest.approx(score.entropy, abs=1e-5)


def test_together_the_surest_module_answers(
    bank: Bank, data: Data, profiles: TunedProfiles
) -> None:
    logits = torch.stack([module.to_module()(data.test.x).detach() for module in bank])
    levels = np.stack([entropy(z, bank[0].temperature) for z in logits])
    surest = levels.argmin(0)
    answers = np.array([int(logits[k, i].argmax()) for i, k in enumerate(surest)])
    wrong = answers != data.test.y.numpy()
    assert profiles.wrong == wrong.sum()
    last = profiles.together[-1]
    assert last.right == pytest.approx(levels.min(0)[~wrong].mean(), abs=1e-5)
    assert last.strangers.keys() == {"noise", "shuffled"}
    assert last.strangers["noise"] > 0.7


def test_strangers_keep_the_numbers_or_the_range(data: Data) -> None:
    x = data.test.x
    made = _strangers(x, ("noise", "shuffled"), 0)
    assert torch.equal(made["shuffled"].flatten(1).sort(1)[0], x.flatten(1).sort(1)[0])
    assert not torch.equal(made["shuffled"], x)
    assert made["noise"].shape == x.shape
    again = _strangers(x, ("shuffled",), 0)["shuffled"]
    assert torch.equal(made["shuffled"], again)
    assert list(_strangers(x.long(), ("noise", "shuffled"), 0)) == ["shuffled"]


def test_signs_are_those_of_sure_changes() -> None:
    assert _sign(torch.tensor([0.1, 0.2, 0.15])) == 1
    assert _sign(torch.tensor([-0.1, -0.2, -0.15])) == -1
    assert _sign(torch.tensor([0.5, -0.4, 0.01])) == 0
    assert _sign(torch.tensor([3.0])) == 0


def test_they_show_themselves(profiles: TunedProfiles) -> None:
    text = str(profiles)
    assert "means over 3 modules" in text
    assert "the surest answers" in text
    assert "…" not in text
    stored = json.loads(json.dumps(profiles.to_json(), allow_nan=False))
    assert [layer["name"] for layer in stored["modules"][0]["layers"]] == list(profiles.layers)
    assert stored["modules"][0]["layers"][0]["rewarded"] == profiles.modules[0].layers[0].rewarded
    drawn = profiles.figure().axes[0]
    assert drawn.get_xticklabels()[0].get_text() == "input"
    assert len(drawn.lines) == 2
    counts = profiles.signs("before layers.1", "other")
    assert sum(counts.values()) == 3
    assert math.isnan(profiles.mean("rewarded", "nowhere"))


def test_compositions_are_one_network_or_their_parts(bank: Bank, data: Data) -> None:
    one = tuned(ia.compose(bank, "inlay"), data, strangers=())
    assert len(one.modules) == 1
    assert one.modules[0].rewarded == data.catalogue
    assert math.isnan(one.modules[0]["logits"].other)
    assert one.together == ()
    parts = tuned(ia.compose(bank, "logits"), data, strangers=())
    assert [own.name for own in parts] == [module.name for module in bank]
    assert one.to_json()["modules"][0]["layers"][0]["other"] is None
