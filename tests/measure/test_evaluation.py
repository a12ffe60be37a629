"""`evaluate` gives the measures of what the model answers, whatever kind of model it is."""

import json
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from intarsia import measure
from intarsia.data import Data, Scaling, Split
from intarsia.errors import DataError, ModelError
from intarsia.exports import to_network
from intarsia.measure import Evaluation, evaluate, evaluate_logits
from intarsia.measure.evaluation import format_number, one_answer
from intarsia.models import initialise
from intarsia.modules import Architecture, Bank, Classifier, Module, logits_of

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


def test_classes_of_other_data_are_matched_by_name(module: Module, split: Split) -> None:
    """Data of some classes number them from 0, whatever the model's numbers are."""
    chosen = split.select([0, 2])
    renumbered = Split(chosen.x, (chosen.y == 0).to(torch.int64))
    data = Data.build("some", ("[red]", "cat"), renumbered, renumbered, renumbered, "unit")
    for model in (module, module.to_module()):
        assert str(evaluate(model, data.test)) == str(evaluate(model, chosen))
    others = Data.build("others", ("cow", "cat"), renumbered, renumbered, renumbered, "unit")
    with pytest.raises(DataError, match="class 'cow', which is not in the model's catalogue"):
        evaluate(module, others.test)


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


class Wrapped(nn.Module):
    """A linear layer whose answer is put into another form."""

    def __init__(self, form: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.form = nn.Linear(6, 4), form

    def forward(self, x: Tensor) -> Any:
        return self.form(self.layer(x))


def test_outputs_of_a_plain_network_have_the_names_of_the_split(split: Split) -> None:
    """Where classes are called by numbers, too: "1" is not the output of that number."""
    network = initialise(lambda shape, outputs: nn.Linear(6, outputs), (6,), 4, 0)
    named = Split(split.x, split.y, ("2", "3", "1", "0"))
    seen = evaluate(network, named, ["1"])
    assert (seen.catalogue, seen.rewarded) == (("2", "3", "1", "0"), ("1",))
    z = logits_of(network, split.x)
    assert seen.accuracy == measure.rewarded_accuracy(z, split.y, [2])
    assert seen.entropy == measure.nonrewarded_entropy(z, split.y, [2])
    fewer = evaluate(network, Split(split.x, split.y, ("2", "3", "1")))
    assert fewer.catalogue == ("0", "1", "2", "3")


def test_a_network_that_answers_with_logits_among_other_things(split: Split) -> None:
    forms = (lambda z: {"logits": z, "hidden": 0}, lambda z: SimpleNamespace(logits=z))
    for network in map(Wrapped, forms):
        expected = evaluate(network.layer, split).to_json()
        assert evaluate(network, split).to_json() == expected
        wrapped = Classifier(network, catalogue=CATALOGUE, shape=(6,), scaling=SCALING)
        assert torch.allclose(wrapped(split.x), network.layer(split.x / 255), atol=1e-6)
        assert torch.equal(to_network(wrapped)(split.x), wrapped(split.x))
    with pytest.raises(ModelError, match="Wrapped gives a dict: expected logits N x C"):
        evaluate(Wrapped(lambda z: {"answer": z}), split)


def test_unknown_classes_against_scikit_learn(module: Module, split: Split) -> None:
    draw = torch.Generator().manual_seed(3)
    strange = torch.randint(0, 256, (31, 6), dtype=torch.uint8, generator=draw)
    seen = evaluate(module, split, ["cat", "dog"], batch=7, unknown=Split(strange, split.y[:31]))
    assert seen.unknown is not None
    known = split.x[split.y < 2]
    z = [module.to_module()(x).detach().double() / 3 for x in (known, strange)]
    p = [torch.softmax(one, 1) for one in z]
    entropies = [-(one * one.log()).sum(1) for one in p]
    assert seen.unknown.known_entropy == pytest.approx(float(entropies[0].mean()))
    assert seen.unknown.entropy == pytest.approx(float(entropies[1].mean()))
    is_strange = [0] * len(known) + [1] * len(strange)
    by_entropy = roc_auc_score(is_strange, torch.cat(entropies))
    by_softmax = roc_auc_score(is_strange, -torch.cat(p).amax(1))
    assert seen.unknown.auroc_entropy == pytest.approx(by_entropy)
    assert seen.unknown.auroc_softmax == pytest.approx(by_softmax)
    assert (seen.unknown.known, seen.unknown.unknown) == (len(known), 31)
    # The rest is as it is without them, and other models and forms of samples give the same.
    alone = evaluate(module, split, ["cat", "dog"], batch=7)
    assert seen.to_json() == alone.to_json() | {"unknown": seen.unknown.to_json()}
    assert str(seen).splitlines()[0] == str(alone).splitlines()[0]
    assert f"AUROC {by_entropy:.4f} by entropy" in str(seen)
    for rows in (strange, strange.numpy(), strange.reshape(31, 6, 1).squeeze(2).long()):
        again = evaluate(module.to_module(), split, ["cat", "dog"], unknown=rows)
        assert str(again.unknown) == str(seen.unknown)
    held = measure.abstention(module, split.select([0, 1]), strange, 0.9)
    assert held.auroc_entropy == seen.unknown.auroc_entropy
    assert held.auroc_softmax == seen.unknown.auroc_softmax


def test_unknown_classes_worked_out_by_hand() -> None:
    """Entropies of 0 and log 2 on known samples, of log 2 and log 4 on unknown ones."""
    sure, torn, even = [1e9, 0.0, 0.0, 0.0], [1e9, 1e9, 0.0, 0.0], [0.0] * 4
    known, unknown = torch.tensor([sure, torn, even]), torch.tensor([torn, even])
    seen = evaluate_logits(known, torch.tensor([0, 1, 2]), rewarded=[0, 1], unknown=unknown).unknown
    assert seen is not None
    assert seen.known_entropy == pytest.approx(math.log(2) / 2)
    assert seen.entropy == pytest.approx(math.log(2) * 3 / 2)
    assert seen.auroc_entropy == (1 + 0.5 + 1 + 1) / 4
    nobody = evaluate_logits(known, torch.tensor([2, 2, 2]), rewarded=[0], unknown=unknown[:0])
    assert set(nobody.to_json()["unknown"].values()) == {None, 0}


def test_unknown_samples_that_do_not_fit(module: Module, split: Split) -> None:
    with pytest.raises(DataError, match=r"unknown samples do not fit: .* \(4, 5\): expected N x 6"):
        evaluate(module, split, unknown=torch.zeros(4, 5))
    with pytest.raises(ModelError, match=r"unknown samples do not fit: .* inputs of shape \(5,\)"):
        evaluate(nn.Linear(6, 4), split, unknown=np.zeros((4, 5)))
    data = Data.build("own", CATALOGUE, split, split, split, "none")
    with pytest.raises(DataError, match=r"as in data\.test\.x"):
        evaluate(module, split, unknown=data)  # type: ignore[arg-type]
    turned = Split(split.x, split.y, columns=tuple("fedcba"))
    reader = module.to_module()
    reader.columns = tuple("abcdef")
    with pytest.raises(DataError, match="bring the columns into one order"):
        evaluate(reader, split, unknown=turned)


def test_absent_class_in_json_and_table(module: Module, split: Split) -> None:
    seen = evaluate(module, split)
    value = json.loads(json.dumps(seen.to_json(), allow_nan=False))
    assert value["accuracy_per_class"][3] is None
    assert value["confusion"] == seen.confusion.tolist()
    lines = str(seen).splitlines()
    assert f"rewarded accuracy {seen.accuracy:.4f}" in lines[0]
    assert any("* [red]" in line for line in lines)
    assert next(line for line in lines if " eel " in line).count(" - ") == 2


def test_entropy_on_classes_is_weighted_by_their_samples() -> None:
    """Entropies of 0, log 2 and log 4: one, two and three samples of class 0, 1 and 2."""
    sure, torn = [1e9, 0.0, 0.0, 0.0], [1e9, 1e9, 0.0, 0.0]
    logits = torch.tensor([sure, torn, torn, [0.0] * 4, [0.0] * 4, [0.0] * 4])
    seen = evaluate_logits(logits, torch.tensor([0, 1, 1, 2, 2, 2]))
    two, four = math.log(2), math.log(4)
    assert seen.entropy_on(["0", "1"]) == pytest.approx(2 * two / 3)
    assert seen.entropy_on(["1", "2", "3"]) == pytest.approx((2 * two + 3 * four) / 5)
    soft = evaluate_logits(torch.tensor([[0.0, 3.0]]), torch.tensor([0]), rewarded=[1])
    assert soft.entropy == pytest.approx(measure.entropy([[0.0, 3.0]], 1.0)[0])
    assert seen.entropy_on(["2"]) == pytest.approx(four)
    assert math.isnan(seen.entropy_on(["3"]))
    assert math.isnan(seen.entropy_on([]))


def test_rewarded_classes_come_once_and_in_the_catalogues_order() -> None:
    logits = torch.eye(10)
    seen = evaluate_logits(logits, torch.arange(10), rewarded=[8, 1, 8])
    assert seen.rewarded == ("1", "8")
    assert seen.to_json()["rewarded"] == ["1", "8"]
    with pytest.raises(DataError, match="no class number -1: expected 0 to 9"):
        evaluate_logits(logits, torch.arange(10), rewarded=[-1])
    with pytest.raises(DataError, match="no class number 10"):
        evaluate_logits(logits, torch.arange(10), rewarded=[10])


def test_models_that_answer_one_class_to_everything_are_found() -> None:
    """Only where samples of several rewarded classes were asked."""

    def answering(answers: list[int], labels: list[int], rewarded: list[int]) -> Evaluation:
        return evaluate_logits(torch.eye(3)[answers], torch.tensor(labels), rewarded=rewarded)

    scores = {
        "stuck": answering([2, 2], [0, 2], [0, 2]),
        "of all": answering([1, 1, 1], [0, 1, 2], [0, 1, 2]),
        "fine": answering([0, 2], [0, 2], [0, 2]),
        "one class": answering([2, 2], [2, 2], [2]),
        "one asked": answering([2, 2], [2, 2], [0, 2]),
        "one rewarded": answering([2, 2], [0, 2], [2]),
    }
    found = list(one_answer(scores))
    assert [(f.kind, f.module) for f in found] == [("dead", "stuck"), ("dead", "of all")]
    assert "it answers '2' to all of 2 samples" in found[0].message
    assert "'1' to all of 3" in found[1].message


def test_numbers_have_four_decimals_and_nothing_is_a_dash() -> None:
    assert [format_number(v) for v in (0.12345, 1, None, math.nan)] == [
        "0.1235",
        "1.0000",
        "-",
        "-",
    ]


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


class Reader(nn.Module):
    """Token ids, of which 0 has no place of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(10, 4), nn.Embedding(3, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((self.tokens(x) + self.places(input=(x > 0).cumsum(1))).mean(1))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[1, 0, 9], [3, 12, 0]], "tokens' has 10 embeddings, .* given ids from 0 to 12:"),
        ([[1, 2, -3]], "tokens' has 10 embeddings, .* given ids from -3 to 2:"),
        ([[1, 2, 9]], "places' has 3 embeddings, .* given ids from 1 to 3:"),
    ],
)
def test_ids_that_an_embedding_has_not_are_told(ids: list[list[int]], message: str) -> None:
    x, network, names = torch.tensor(ids), Reader(), ("a", "b", "c")
    scaling = Scaling("none", torch.zeros(()), torch.ones(()))
    classifier = Classifier(network, catalogue=names, shape=(3,), scaling=scaling)
    with pytest.raises(DataError, match=f"layer 'network.{message}"):
        classifier.predict(x)
    with pytest.raises(DataError, match=f"layer '{message}"):
        evaluate(network, Split(x, torch.zeros(len(x), dtype=torch.int64)))
    assert not network.tokens._forward_pre_hooks


def test_other_errors_of_an_index_are_the_networks_own() -> None:
    class Wrong(Reader):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)[:, [int(x.max())]]

    with pytest.raises(IndexError, match="index 7"):
        logits_of(Wrong(), torch.tensor([[0, 7, 0]]))


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
    with pytest.raises(DataError, match=r"on a tuple: pass a Split, .* Split\(x, y\)"):
        evaluate(module, (split.x, split.y))  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"the model gives \(50, 6, 1\): expected logits N x C"):
        evaluate(nn.Unflatten(1, (6, 1)), split)
    with pytest.raises(ModelError, match=r"Linear fails on inputs of shape \(6,\): mat1"):
        evaluate(nn.Linear(5, 4), split)
    with pytest.raises(RuntimeError, match="not enough memory"):  # which is not the samples' fault
        evaluate(Exhausted(), split)


class Exhausted(nn.Module):
    """Fails as torch does where the machine has no memory left."""

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes")


def test_flips_average_the_logits_of_a_picture_and_its_mirror_image() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (50, 1, 4, 3), dtype=torch.uint8, generator=generator)
    split = Split(x, torch.randint(0, 4, (50,), generator=generator))
    network = initialise("mlp(8)", (1, 4, 3), 4, 0)
    model = Classifier(network, catalogue=CATALOGUE, shape=(1, 4, 3), scaling=SCALING)
    mirrored = split.x[..., [2, 1, 0]]
    with torch.no_grad():
        for one in (model.eval(), network):
            rows = [x.float() if one is network else x for x in (split.x, mirrored)]
            z = (one(rows[0]) + one(rows[1])) / 2
            torch.testing.assert_close(logits_of(one, split.x, batch=7, flips=True), z)
            seen = evaluate(one, split, batch=7, flips=True)
            assert np.array_equal(seen.confusion, measure.confusion(z, split.y))
            assert seen.entropy_per_class == pytest.approx(
                measure.entropy_per_class(z, split.y), rel=1e-6
            )
            assert not np.array_equal(
                seen.entropy_per_class, evaluate(one, split).entropy_per_class
            )
    held = measure.abstention(model, split, split, 0.9, flips=True)
    assert held.accuracy != measure.abstention(model, split, split, 0.9).accuracy


@pytest.mark.parametrize("shape", [(6,), (2, 3), (4, 4, 3)])
def test_what_is_no_picture_is_not_mirrored(shape: tuple[int, ...]) -> None:
    """Nor one with its channels last, of which that would mirror the colours."""
    split = Split(torch.zeros(5, *shape), torch.zeros(5, dtype=torch.long))
    network = initialise("mlp(8)", shape, 4, 0)
    with pytest.raises(DataError, match="flips mirrors pictures, N x channels x height x width"):
        evaluate(network, split, flips=True)
