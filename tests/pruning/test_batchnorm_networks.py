"""BatchNorm networks from training to one network: pruned, rewound, joined and taken apart."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

import intarsia as ia
from intarsia.modules import compact

pytestmark = pytest.mark.usefixtures("one_thread")
MODELS = ["resnet18(3)", "vgg11(3)", "fastnet(3)"]
PRUNINGS = ["magnitude(scope='layer')", "units", "territory"]


@cache
def pictures() -> ia.Data:
    """Three classes of small pictures, by where a bar stands."""
    draw = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = draw.integers(0, 100, (90, 8, 8), dtype=np.uint8)
    x[np.arange(90), :, 2 * y + 1] += 120
    return ia.load_data((x, y), test=0.2, validation=0.2)


@cache
def bank_of(model: str, pruning: str) -> ia.Bank:
    asked = {} if pruning == "territory" else {"sparsity": 0.6, "rounds": 1}
    return ia.train(
        pictures(), model=model, pruning=pruning, epochs=2, pruning_epochs=1, batch=16,
        learning_rate=3e-3, negatives="none", engine="single", **asked,
    )  # fmt: skip


def answers(model: torch.nn.Module) -> Tensor:
    with torch.no_grad():
        return model(pictures().test.x)


CASES = [(model, pruning) for model in MODELS for pruning in PRUNINGS]


@pytest.mark.parametrize(("model", "pruning"), CASES)
def test_statistics_are_those_of_the_last_round(model: str, pruning: str) -> None:
    """Rewinding puts them back too: two epochs of the last round are all that they have seen."""
    steps = len(pictures().train) // 16
    for module in bank_of(model, pruning):
        counts = {int(t) for n, t in module.state.items() if n.endswith("num_batches_tracked")}
        assert len(counts) == 1
        assert counts.pop() in (steps, 2 * steps)  # the better epoch is kept
        assert any(t.any() for n, t in module.state.items() if n.endswith("running_mean"))


@pytest.mark.parametrize("model", MODELS)
def test_magnitude_leaves_norms_alone_and_units_take_theirs_along(model: str) -> None:
    by_weight, by_unit = (bank_of(model, pruning)[0] for pruning in PRUNINGS[:2])
    norms = [name for name in by_weight.plan if "norm" in name and by_weight.plan[name].learned]
    norms += [n for n in by_weight.plan if "shortcut.1" in n and by_weight.plan[n].learned]
    assert norms
    assert not [name for name in norms if name in by_weight.mask]
    assert all(not by_unit.mask[name].all() for name in norms)
    assert by_unit.density <= 0.4


@pytest.mark.parametrize(("model", "pruning"), CASES)
def test_joined_and_taken_apart(model: str, pruning: str) -> None:
    bank = bank_of(model, pruning)
    apart = answers(ia.compose(bank, "logits"))
    assert float(apart.std()) > 1e-4
    inlay = ia.compose(bank, "inlay")
    assert inlay.in_blocks
    torch.testing.assert_close(answers(inlay), apart, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(answers(inlay.compact().to_module()), apart, rtol=1e-4, atol=1e-5)
    fewer, rest = inlay - "1", ia.compose([bank["0"], bank["2"]], "inlay")
    assert torch.equal(answers(fewer), answers(rest))
    for module in bank:
        small = compact(module)
        expected = answers(module.to_module())
        torch.testing.assert_close(answers(small.to_module()), expected, rtol=1e-4, atol=1e-5)
        if pruning != PRUNINGS[0]:
            assert small.parameters < 0.6 * module.parameters


@pytest.mark.parametrize("model", MODELS)
def test_territories_add_up_and_other_sums_get_new_statistics(model: str) -> None:
    bank = bank_of(model, "territory")
    merged = ia.compose(bank, "sum")
    assert "hold as they are" in merged.report["notes"][0]
    expected = answers(ia.compose(bank, "logits"))
    torch.testing.assert_close(answers(merged), expected, rtol=1e-4, atol=1e-5)
    mixed = ia.compose(bank_of(model, PRUNINGS[0]), "sum", samples=pictures())
    assert "were recomputed from" in mixed.report["notes"][0]
    assert answers(mixed).isfinite().all()
