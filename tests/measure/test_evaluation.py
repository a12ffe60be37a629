"""`evaluate` gives the measures of what the model answers, whatever kind of model it is."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from intarsia import measure
from intarsia.data import Data, Scaling, Split
from intarsia.errors import DataError
from intarsia.measure import evaluate, evaluate_logits
from intarsia.models import initialise
from intarsia.modules import Architecture, Bank, Classifier, Module

CATALOGUE = ("cat", "dog", "[red]", "eel")
SCALING = Scaling("unit", torch.tensor(0.0), torch.tensor(1 / 255))


@pytest.fixture
def split() -> Split:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (50, 6), dtype=torch.uint8, generator=generator)
    return Split(x, torch.randint(0, 3, (50,), generator=generator))


@pytest.fixture
def module() -> Module:
    network = initialise("mlp(8)", (6,), 4, 0)
    return Module(
        name="cat+[red]",
        state=network.state_dict(),
        mask={},
        rewarded=("cat", "[red]"),
        catalogue=CATALOGUE,
        architecture=Architecture.of("mlp(8)", (6,), 4),
        scaling=SCALING,
        temperature=3.0,
        origin="0",
    )


def test_module_and_its_classifier(module: Module, split: Split) -> None:
    with torch.no_grad():
        z = module.to_module()(split.x)
    for model in (module, module.to_module(), module.to_module().train()):
        seen = evaluate(model, split, batch=7)
        assert seen.accuracy == measure.rewarded_accuracy(z, split.y, [0, 2])
        expected = measure.nonrewarded_entropy(z, split.y, [0, 2], 3.0)
        assert seen.entropy == pytest.approx(expected, rel=1e-6)
        assert np.array_equal(seen.confusion, measure.confusion(z, split.y))
        assert (seen.n, seen.ceiling, seen.rewarded) == (50, math.log(4), ("cat", "[red]"))


def test_logits_that_are_there_already(module: Module, split: Split) -> None:
    classifier = module.to_module()
    logits = classifier(split.x).detach()
    for model, rewarded in ((module, None), (classifier, ["dog"]), (module, [0, 1])):
        seen = evaluate_logits(logits, split.y, model, rewarded)
        assert str(seen) == str(evaluate(module, split, rewarded))
    assert evaluate_logits(logits, split.y).catalogue == ("0", "1", "2", "3")


def test_rewarded_by_name_or_number(module: Module, split: Split) -> None:
    named, numbered = evaluate(module, split, ["dog"]), evaluate(module, split, [1])
    assert named.to_json() == numbered.to_json()
    assert named.rewarded == ("dog",)
    with pytest.raises(DataError, match="no class 'dgo': did you mean 'dog'"):
        evaluate(module, split, ["dgo"])
    with pytest.raises(DataError, match="no class number 4"):
        evaluate(module, split, [4])


def test_plain_network(split: Split) -> None:
    network = initialise(lambda shape, outputs: nn.Linear(6, outputs), (6,), 4, 0)
    seen = evaluate(network, split)
    with torch.no_grad():
        z = network(split.x.float())
    assert seen.accuracy == measure.rewarded_accuracy(z, split.y, range(4))
    assert math.isnan(seen.entropy)
    assert seen.catalogue == ("0", "1", "2", "3")
    wrapped = Classifier(network, catalogue=CATALOGUE, shape=(6,), scaling=SCALING)
    assert evaluate(wrapped, split).rewarded == CATALOGUE


def test_absent_class_in_json_and_table(module: Module, split: Split) -> None:
    seen = evaluate(module, split)
    value = json.loads(json.dumps(seen.to_json(), allow_nan=False))
    assert value["accuracy_per_class"][3] is None
    assert value["confusion"] == seen.confusion.tolist()
    lines = str(seen).splitlines()
    assert f"rewarded accuracy {seen.accuracy:.4f}" in lines[0]
    assert any("* [red]" in line for line in lines)
    assert next(line for line in lines if " eel " in line).count(" - ") == 2


def test_mode_is_given_back(module: Module, split: Split) -> None:
    classifier = module.to_module().train()
    evaluate(classifier, split)
    assert classifier.training


def test_empty_split(module: Module) -> None:
    empty = Split(torch.zeros(0, 6), torch.zeros(0, dtype=torch.int64))
    seen = evaluate(module, empty)
    assert seen.n == 0
    assert math.isnan(seen.accuracy)


def test_inputs_that_are_not_finite_are_not_the_models_fault(module: Module, split: Split) -> None:
    x = split.x.float()
    x[11, 3] = torch.nan
    with pytest.raises(DataError, match=r"1 values of the inputs .* row 11") as error:
        evaluate(module, Split(x, split.y), batch=8)
    assert "diverged" not in str(error.value)


def test_what_cannot_be_evaluated(module: Module, split: Split) -> None:
    with pytest.raises(DataError, match="a Bank cannot be evaluated"):
        evaluate(Bank([module]), split)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="outside the logits' classes"):
        evaluate(module, Split(split.x, split.y + 4))
    with pytest.raises(DataError, match="batch is 0"):
        evaluate(module, split, batch=0)
    data = Data.build("own", CATALOGUE, split, split, split, "none")
    with pytest.raises(DataError, match=r"on a Data: .* data\.test"):
        evaluate(module, data)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="on a tuple: pass a Split"):
        evaluate(module, (split.x, split.y))  # type: ignore[arg-type]
