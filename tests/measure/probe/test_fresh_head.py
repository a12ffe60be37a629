"""Fresh heads: both protocols against a plain loop, what is left alone, and wrong use by name."""

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import intarsia as ia
from intarsia.data import Data, Split
from intarsia.errors import CompositionError, DataError, ModelError, RecipeError
from intarsia.measure import FRESH_HEAD
from intarsia.measure.probe import (
    HeadTraining,
    ProbeScore,
    head_training,
    readout_inputs,
    readout_of,
    train_head,
    train_heads,
)
from intarsia.measure.probe.head_training import CachedFeatures
from intarsia.models.axes import OUTPUT
from tiny_encoder import feature_bank, pictures

pytestmark = pytest.mark.usefixtures("one_thread")
FAST: dict[str, Any] = {"epochs": 4, "learning_rate": 1e-2, "batch": 32, "device": "cpu"}


@pytest.fixture(scope="module")
def data() -> Data:
    """Digits with two classes that look alike left in, small enough for many probes."""
    return ia.load_data("digits", classes=["1", "2", "8", "9"])


@pytest.fixture
def merged(data: Data) -> nn.Module:
    """Good features below a readout that answers the wrong class."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4))
    adam = torch.optim.Adam(network.parameters(), 1e-2)
    x = data.train.x.float()
    for _ in range(40):
        adam.zero_grad()
        nn.functional.cross_entropy(network(x), data.train.y).backward()
        adam.step()
    with torch.no_grad():
        for values in (network[3].weight, network[3].bias):
            values.copy_(values.roll(1, 0))
    return network


class Ends(nn.Module):
    """A linear layer, and something after it."""

    def __init__(self, after: Callable[[Tensor], Any], classes: int = 4) -> None:
        super().__init__()
        self.body, self.fc, self.after = nn.Linear(64, 8), nn.Linear(8, classes), after

    def forward(self, x: Tensor) -> Any:
        return self.after(self.fc(torch.relu(self.body(x.flatten(1)))))


def test_a_new_readout_recovers_what_the_readout_lost(merged: nn.Module, data: Data) -> None:
    result = ia.fresh_head(merged, data, joint=[0.98, 1.0], seeds=(0, 1, 2), **FAST)
    logits = merged(data.test.x.float())
    assert result.native.values == (float((logits.argmax(1) == data.test.y).double().mean()),)
    assert result.native.mean < 0.2
    assert result.fresh.mean > 0.9
    assert (result.fresh.n, result.native.n, result.joint.n) == (3, 1, 2)
    assert result.fresh.sd == pytest.approx(np.std(result.fresh.values, ddof=1))
    shortfall = 0.99 - result.native.mean
    expected = [(value - result.native.mean) / shortfall for value in result.fresh.values]
    assert result.recovered.values == pytest.approx(expected)
    assert result.gap.mean == pytest.approx(result.fresh.mean - result.native.mean)
    assert result.head == "3"
    assert result.samples == {"train": 456, "validation": 114, "test": 143}


def test_of_dead_features_a_new_readout_recovers_nothing(merged: nn.Module, data: Data) -> None:
    merged[1].weight.data.zero_()
    assert ia.fresh_head(merged, data, **FAST).fresh.mean < 0.4


def test_both_protocols_draw_the_same_batches_and_agree(merged: nn.Module, data: Data) -> None:
    cached, literal = (
        ia.fresh_head(merged, data, seeds=(3, 7), protocol=p, **FAST) for p in ("cached", "literal")
    )
    assert cached.fresh.values == pytest.approx(literal.fresh.values, abs=0.005)
    assert cached.epochs == literal.epochs
    assert cached.native == literal.native
    assert len(set(cached.fresh.values)) > 1  # seeds differ, so the agreement is of batches


def test_the_head_is_that_of_a_plain_loop(merged: nn.Module, data: Data) -> None:
    """Every weight of it: AdamW on the features, the epoch with the best validation accuracy."""
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    how = HeadTraining(epochs=3, learning_rate=1e-2, batch=50, initial="zeros")
    features = {name: readout_inputs(merged, split.x) for name, split in splits.items()}
    labels = {name: split.y for name, split in splits.items()}
    trained = train_head(CachedFeatures(features), 32, 4, labels, how, seed=5)

    with torch.no_grad():
        known = {n: torch.relu(merged[1](s.x.float().flatten(1))) for n, s in splits.items()}
    weight, bias = torch.zeros(4, 32, requires_grad=True), torch.zeros(4, requires_grad=True)
    adamw = torch.optim.AdamW([weight, bias], lr=1e-2, weight_decay=1e-4)
    from intarsia.files import stream

    draw = torch.Generator().manual_seed(stream("fresh head", 5))
    kept: list[tuple[float, Tensor]] = []
    for _ in range(3):
        for rows in torch.randperm(len(data.train), generator=draw).split(50):
            adamw.zero_grad()
            logits = known["train"][rows] @ weight.T + bias
            nn.functional.cross_entropy(logits, data.train.y[rows]).backward()
            adamw.step()
        right = (known["validation"] @ weight.T + bias).argmax(1) == data.validation.y
        kept.append((float(right.double().mean()), weight.detach().clone()))
    best = max(score for score, _ in kept)
    first = next(place for place, (score, _) in enumerate(kept) if score == best)
    assert (trained.epoch, trained.validation) == (first + 1, best)
    torch.testing.assert_close(trained.head.weight.detach(), kept[first][1], rtol=1e-3, atol=1e-5)
    right = (known["test"] @ trained.head.weight.T + trained.head.bias).argmax(1) == data.test.y
    assert trained.test == float(right.double().mean())


def test_a_head_begins_as_a_linear_layer_or_at_zeros() -> None:
    features = {name: torch.zeros(4, 9) for name in ("train", "validation", "test")}
    labels = {name: torch.zeros(4, dtype=torch.int64) for name in features}

    def start(initial: Any, seed: int) -> Tensor:
        how = HeadTraining(epochs=1, weight_decay=0.0, initial=initial)
        return train_head(CachedFeatures(features), 9, 2, labels, how, seed).head.weight.detach()

    assert not start("zeros", 0).any()
    drawn = start("linear", 0)
    assert 0 < drawn.abs().max() <= 1 / 3  # U(-1 / sqrt(9), 1 / sqrt(9)), as torch draws it
    assert torch.equal(drawn, start("linear", 0))
    assert not torch.equal(drawn, start("linear", 1))


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_a_head_is_trained_to_the_end_on_features_of_any_size(size: float, data: Data) -> None:
    """Raw pixels, small and large: as well as scikit-learn's logistic regression does."""
    from sklearn.linear_model import LogisticRegression

    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    x = {name: split.x.float().flatten(1) / 16 for name, split in splits.items()}
    known = LogisticRegression(max_iter=1000).fit(x["train"], data.train.y)
    least = known.score(x["test"], data.test.y) - 0.02
    labels = {name: split.y for name, split in splits.items()}
    features = CachedFeatures({name: size * (own + 3) for name, own in x.items()})
    trained = train_head(features, 64, 4, labels, HeadTraining(None, 1e-2), seed=0)
    assert trained.test >= least
    assert trained.finished
    # The head reads features as they are: what was learned of scaled ones is put into it.
    answers = features(trained.head, "test").argmax(1)
    assert float((answers == data.test.y).double().mean()) == trained.test


def test_the_lower_rate_begins_where_the_loss_was_least(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the weights of that epoch, and with the moments of the optimiser that belong to them."""
    seen: list[tuple[float, float, dict[str, Any], dict[str, Any]]] = []
    one_epoch = head_training._HeadRun.epoch

    def state(run: Any) -> dict[str, Any]:
        tensors = dict(run.head.named_parameters())
        of = {key: run.optimiser.state[parameter] for key, parameter in tensors.items()}
        moments = {f"{k} {m}": v for k, own in of.items() for m, v in own.items()}
        return {k: v.detach().clone() for k, v in (tensors | moments).items()}

    def epoch(run: Any) -> float:
        before, rate = state(run), run.optimiser.param_groups[0]["lr"]
        seen.append((rate, one_epoch(run), before, state(run)))
        return seen[-1][1]

    monkeypatch.setattr(head_training._HeadRun, "epoch", epoch)
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    features = CachedFeatures({name: own.x.float().flatten(1) for name, own in splits.items()})
    labels = {name: own.y for name, own in splits.items()}
    train_head(features, 64, 4, labels, HeadTraining(None, 1e-2), seed=0)
    first = [entry for entry in seen if entry[0] == 1e-2]
    rate, _, begins, _ = seen[len(first)]
    best = min(range(len(first)), key=lambda place: first[place][1])
    assert best < len(first) - 1
    assert rate == pytest.approx(1e-3)
    expected = first[best][3]
    assert begins.keys() == expected.keys()
    assert len(begins) == 8  # weight and bias, each with two moments and a count of steps
    assert all(torch.equal(begins[key], expected[key]) for key in begins)


def test_without_epochs_both_protocols_and_stacks_agree(merged: nn.Module, data: Data) -> None:
    few: dict[str, Any] = {"seeds": (3, 7), "device": "cpu"}
    cached, literal = (
        ia.fresh_head(merged, data, protocol=p, **few) for p in ("cached", "literal")
    )
    assert cached.fresh.values == pytest.approx(literal.fresh.values, abs=0.01)
    assert cached.training == literal.training == HeadTraining(None, 1e-2)
    assert (cached.unfinished, cached.doubt) == (0, None)
    assert cached.to_json()["training"]["epochs"] is None
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    features = {name: readout_inputs(merged, split.x) for name, split in splits.items()}
    labels = {name: split.y for name, split in splits.items()}
    heads = train_heads([features, features], 4, labels, cached.training, seed=3)
    assert [head.test for head in heads] == [cached.fresh.values[0]] * 2


def test_heads_that_are_not_trained_enough_are_told(
    merged: nn.Module, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = ia.fresh_head(merged, data, epochs=1, seeds=2, device="cpu")
    assert short.training == HeadTraining(1, 1e-3)
    assert (short.unfinished, short.epochs) == (2, (1, 1))
    assert short.to_json()["unfinished"] == 2
    assert short.doubt is not None
    assert short.doubt in " ".join(str(short).split())
    monkeypatch.setattr("intarsia.measure.probe.head_training.LONGEST", (2, 300))
    # One step an epoch, of which each lowers the loss by less than what counts.
    slow = ia.fresh_head(merged, data, learning_rate=1e-5, batch=10_000, device="cpu")
    assert slow.unfinished == 1
    monkeypatch.setattr("intarsia.measure.probe.head_training.LONGEST", (2, 1))
    ended = ia.fresh_head(merged, data, device="cpu")
    assert ended.unfinished == 1
    assert "learning_rate" in str(ended.doubt)


@pytest.mark.parametrize("protocol", ["cached", "literal"])
def test_the_network_is_left_as_it_was(merged: nn.Module, data: Data, protocol: Any) -> None:
    merged.insert(3, nn.BatchNorm1d(32))
    merged.train()
    merged[1].bias.requires_grad_(False)
    state = {name: value.clone() for name, value in merged.state_dict().items()}
    generator = torch.get_rng_state()
    ia.fresh_head(merged, data, protocol=protocol, **FAST)
    assert all(torch.equal(state[name], value) for name, value in merged.state_dict().items())
    assert all(layer.training for layer in merged.modules())
    assert [p.requires_grad for p in merged.parameters()] == [True, False, *[True] * 4]
    assert all(p.grad is None or not p.grad.any() for p in merged[3].parameters())
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in merged.modules())
    assert torch.equal(generator, torch.get_rng_state())


@pytest.mark.parametrize("model", ["mlp(6, 5)", "lenet", "resnet18(width=2)", "fastnet(8)"])
def test_the_head_makes_the_output_axis_of_the_wiring(model: str) -> None:
    network = ia.initialise(model, (1, 16, 16), 4, 0)
    wiring = ia.wiring_of(network, (1, 16, 16))
    gives = {n for n, axes in wiring.items() if axes and axes[0] and axes[0].name == OUTPUT}
    assert f"{readout_of(network, torch.randn(2, 1, 16, 16)).name}.weight" in gives


def test_logits_may_be_a_multiple_of_what_the_head_gives(data: Data) -> None:
    """The factor belongs to the readout, so a new one starts without it, by either protocol."""
    torch.manual_seed(0)
    network = Ends(lambda z: z / 8)
    readout = readout_of(network, data.train.x)
    assert (readout.name, readout.factor) == ("fc", pytest.approx(1 / 8))
    probes = [ia.fresh_head(network, data, protocol=p, **FAST) for p in ("cached", "literal")]
    assert probes[0].fresh.mean == pytest.approx(probes[1].fresh.mean, abs=0.005)
    network.after = lambda z: z
    assert ia.fresh_head(network, data, **FAST).fresh.mean == probes[0].fresh.mean


def test_a_shortfall_that_samples_hardly_tell_is_said(merged: nn.Module, data: Data) -> None:
    native = ia.fresh_head(merged, data, epochs=1).native.mean
    n = len(data.test)
    noise = (2 * native * (1 - native) / n) ** 0.5
    near = ia.fresh_head(merged, data, epochs=1, joint=min(native + 0.5 * noise, 1.0))
    assert near.small_shortfall is not None
    assert f"which {n} test samples hardly tell from none" in near.small_shortfall
    assert "the recovered fraction says little" in " ".join(str(near).split())
    far = ia.fresh_head(merged, data, epochs=1, joint=min(native + 4 * noise, 1.0))
    below = ia.fresh_head(merged, data, epochs=1, joint=native - noise)
    for result in (far, below, ia.fresh_head(merged, data, epochs=1)):
        assert result.small_shortfall is None


def test_a_network_that_is_split_over_devices_stays_so(merged: nn.Module, data: Data) -> None:
    expected = ia.fresh_head(merged, data, epochs=1).native
    merged.register_buffer("elsewhere", torch.zeros(3, device="meta"))
    assert ia.fresh_head(merged, data, epochs=1).native == expected
    assert merged.get_buffer("elsewhere").is_meta


@pytest.fixture(scope="module")
def bank(data: Data) -> ia.Bank:
    how = {"preset": "paper", "sparsity": 0.0, "rounds": 0, "epochs": 6, "learning_rate": 1e-2}
    return ia.train(data, model="mlp(16, dropout=0)", progress=False, **how)


@pytest.mark.parametrize("protocol", ["cached", "literal"])
def test_logits_may_come_among_other_things(data: Data, protocol: Any) -> None:
    """As transformers give them: by name in a mapping, or as an attribute."""

    def probed(after: Callable[[Tensor], Any]) -> Any:
        torch.manual_seed(0)
        network = Ends(after)
        return ia.fresh_head(network, data, protocol=protocol, joint=network, **FAST).to_json()

    plain = probed(lambda z: z)
    for form in (lambda z: {"hidden": 0, "logits": z}, lambda z: SimpleNamespace(logits=z)):
        assert probed(form) == plain


@pytest.mark.parametrize("protocol", ["cached", "literal"])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64])
def test_merged_weights_may_have_other_types(
    merged: nn.Module, data: Data, protocol: Any, kind: torch.dtype
) -> None:
    """As tools leave them; the new head is trained in float32 all the same."""
    merged.to(kind)
    result = ia.fresh_head(merged, data, protocol=protocol, joint=merged, **FAST)
    right = merged(data.test.x.to(kind)).argmax(1) == data.test.y
    assert result.native.mean == float(right.double().mean())
    assert result.joint == result.native
    assert result.fresh.mean > 0.9
    assert ia.evaluate(merged, data.test).accuracy == result.native.mean
    assert {p.dtype for p in merged.parameters()} == {kind}


class ByName(Ends):
    """Its head is called with the name of what it reads."""

    def forward(self, x: Tensor) -> Any:
        return self.fc(input=torch.relu(self.body(x.flatten(1))))


@pytest.mark.parametrize("protocol", ["cached", "literal"])
def test_a_head_may_be_called_by_the_name_of_its_input(data: Data, protocol: Any) -> None:
    probed = []
    for network in (Ends, ByName):
        torch.manual_seed(0)
        probed.append(ia.fresh_head(network(lambda z: z), data, protocol=protocol, **FAST))
    assert probed[0].to_json() == probed[1].to_json()


class Tokens(nn.Module):
    """A row of pixels is a token; the answer is that for one of them, picked before the head or
    after it, as the sequence classifiers of decoders do.
    """

    def __init__(self, early: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.score, self.early = nn.Linear(8, 32), nn.Linear(32, 4), early

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.body(x.flatten(1, 2)))  # N, tokens, width
        place = torch.arange(len(x)), x.sum((1, 2, 3)).long() % 3 + 2
        return 0.5 * (self.score(hidden[place]) if self.early else self.score(hidden)[place])


@pytest.mark.parametrize("protocol", ["cached", "literal"])
@pytest.mark.parametrize("epochs", [None, 3])
def test_a_head_on_every_token_is_probed_where_it_answers(
    data: Data, protocol: Any, epochs: int | None
) -> None:
    settings = {"protocol": protocol, "epochs": epochs, "batch": 128, "device": "cpu"}
    expected = ia.fresh_head(Tokens(early=True), data, **settings)
    result = ia.fresh_head(Tokens(early=False), data, **settings)
    assert result.head == "score"
    assert result.native.mean == expected.native.mean
    assert result.fresh.mean == pytest.approx(expected.fresh.mean, abs=0.02)
    late, early = (readout_of(Tokens(each), data.train.x) for each in (False, True))
    for ours, theirs in zip(late.features(data.test.x), early.features(data.test.x), strict=True):
        torch.testing.assert_close(ours, theirs)
    wrapped = ia.Classifier(
        Tokens(early=False), catalogue=data.catalogue, shape=data.shape, scaling=data.scaling
    )
    assert readout_of(wrapped, data.train.x).features(data.test.x)[0].shape == (len(data.test), 32)


def test_one_of_many_places_is_found_among_almost_parallel_ones() -> None:
    """Of two classes and hundreds of tokens, some outputs point the same way to float32."""

    class Long(nn.Module):
        def __init__(self, place: int) -> None:
            super().__init__()
            self.score, self.place = nn.Linear(8, 2), place

        def forward(self, x: Tensor) -> Tensor:
            picked: Tensor = self.score(x)[:, self.place]
            return picked

    x = torch.randn(2, 256, 8, generator=torch.Generator().manual_seed(0))
    for place in range(256):
        assert readout_of(Long(place), x).factor == 1.0


@pytest.mark.parametrize("protocol", ["cached", "literal"])
def test_answers_that_are_not_finite_have_no_score(
    merged: nn.Module, data: Data, protocol: Any
) -> None:
    with torch.no_grad():
        merged[1].weight[0, 0] = torch.nan
    with pytest.raises(DataError, match=r"of the network for .* not finite: it diverged"):
        ia.fresh_head(merged, data, protocol=protocol)
    with pytest.raises(DataError, match=r"of the joint network hold .* not finite"):
        ia.fresh_head(Ends(lambda z: z), data, joint=merged)


def test_compositions_modules_and_classifiers_are_probed(bank: ia.Bank, data: Data) -> None:
    whole = ia.compose(bank, "sum")
    result = ia.fresh_head(whole, data, **FAST)
    assert result.native.mean == ia.evaluate(whole, data.test).accuracy
    assert result.fresh.mean == ia.fresh_head(whole.joined, data, **FAST).fresh.mean
    assert result.fresh.mean == ia.fresh_head(whole.networks[0], data, **FAST).fresh.mean
    literal = ia.fresh_head(whole, data, protocol="literal", **FAST)
    assert literal.fresh.mean == pytest.approx(result.fresh.mean, abs=0.005)
    wide = ia.fresh_head(ia.compose(bank, "inlay"), data, **FAST)
    assert wide.fresh.mean > 0.8
    with pytest.raises(CompositionError, match="logits joins the logits of 4 networks"):
        ia.fresh_head(ia.compose(bank, "logits"), data)


def test_the_native_score_of_a_calibrated_composition_is_its_own(bank: ia.Bank, data: Data) -> None:
    whole = ia.compose(bank, "inlay", samples=data, calibrate=True)
    assert whole.offset is not None
    whole.offset[0] = 1e3  # all samples are said to be of the first class
    result = ia.fresh_head(whole, data, **FAST)
    assert result.native.mean == float((data.test.y == 0).double().mean())
    assert result.fresh.mean > 0.5


def test_classes_are_matched_by_name(bank: ia.Bank, data: Data) -> None:
    """Data of some of the classes, in another order, against a whole catalogue."""
    whole = ia.compose(bank, "sum")
    some = ia.load_data("digits", classes=["9", "1", "2"])
    assert some.catalogue != data.catalogue[:3]
    result = ia.fresh_head(whole, some, **FAST)
    places = some.labels_in(data.catalogue)
    answers = whole.predict(some.test.x)
    assert result.native.mean == float((answers == places[some.test.y]).double().mean())
    assert result.fresh.mean > 0.7
    with pytest.raises(DataError, match="has the class '0', which is not in the model's catalogue"):
        ia.fresh_head(whole, ia.load_data("digits"))


def test_raw_inputs_go_through_the_encoder_of_the_modules() -> None:
    """Data of raw pictures and data of their features are the same to modules on features."""
    encoded, features = feature_bank()
    raw = ia.load_data(*pictures(90))
    whole = ia.compose(encoded, "sum")
    from_raw, from_features = (ia.fresh_head(whole, d, **FAST) for d in (raw, features))
    assert from_raw.fresh.values == pytest.approx(from_features.fresh.values, abs=0.06)
    assert from_raw.native.mean == from_features.native.mean
    assert ia.fresh_head(encoded[0], raw, **FAST).samples == from_raw.samples


def test_a_joint_reference_may_be_a_network(merged: nn.Module, bank: ia.Bank, data: Data) -> None:
    whole = ia.compose(bank, "inlay")
    result = ia.fresh_head(merged, data, joint=[whole, np.float32(0.5)], **FAST)
    assert result.joint.values == (ia.evaluate(whole, data.test).accuracy, 0.5)
    without = ia.fresh_head(merged, data, **FAST)
    assert (without.joint, without.recovered) == (None, None)
    below = ia.fresh_head(merged, data, joint=0.0, seeds=(0, 1), **FAST)
    assert np.isnan(below.recovered.values).all()
    assert below.to_json()["recovered"]["mean"] is None
    assert "│ recovered fraction │        - │" in str(below)
    with pytest.raises(ModelError, match=r"joint network gives logits of shape .*: expected N x 4"):
        ia.fresh_head(merged, data, joint=Ends(lambda z: z, 5))


def test_the_contract_goes_into_every_form_of_the_result(merged: nn.Module, data: Data) -> None:
    """Statement by statement: printed, as a table of a terminal, as JSON, in both docstrings."""
    result = ia.fresh_head(merged, data, **FAST)
    as_json = json.loads(json.dumps(result.to_json()))
    assert as_json["contract"] == FRESH_HEAD.to_json()
    forms = (repr(result), str(result), str(ia.fresh_head.__doc__), str(type(result).__doc__))
    for form in (*forms, FRESH_HEAD.markdown(), str(FRESH_HEAD)):
        for label, statement in FRESH_HEAD.labelled().items():
            assert label in form
            assert statement in " ".join(form.split())


def test_json_has_every_number_with_its_spread(merged: nn.Module, data: Data) -> None:
    result = ia.fresh_head(merged, data, joint=0.9, seeds=2, **FAST)
    as_json = result.to_json()
    for name in ("native", "fresh", "joint", "gap", "recovered"):
        score: ProbeScore = getattr(result, name)
        assert as_json[name]["mean"] == score.mean
        assert as_json[name]["n"] == score.n
        assert as_json[name]["values"] == list(score.values)
    assert as_json["native"]["sd"] is None
    assert as_json["fresh"]["sd"] == result.fresh.sd
    assert as_json["training"]["epochs"] == FAST["epochs"]
    assert as_json["seeds"] == [0, 1]


class Convolved(nn.Module):
    """A network whose logits no linear layer makes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).flatten(1)


class Pooled(Tokens):
    """The mean of what the head gives for all tokens, which is that for none of them."""

    def __init__(self) -> None:
        super().__init__(early=False)

    def forward(self, x: Tensor) -> Tensor:
        pooled: Tensor = self.score(self.body(x.flatten(1, 2))).mean(1)
        return pooled


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "none": (Convolved, "Convolved has no linear layer: a fresh head takes the place"),
    "after": (lambda: Ends(lambda z: z.log_softmax(1)), "Ends does not answer with what a linear"),
    "form": (lambda: Ends(lambda z: {"answer": z}), "Ends gives a dict: expected logits N x C"),
    "tokens": (lambda: Pooled(), "Pooled does not answer with what a linear layer gives"),
    "width": (lambda: Ends(lambda z: z, 7), "'fc' has 7 outputs and digits has 4 classes"),
    "shape": (lambda: nn.Linear(5, 4), r"Linear fails on 2 inputs of shape \(1, 8, 8\)"),
    "kind": (lambda: [1], "a list has no readout"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_networks_without_a_fitting_head_are_refused(case: str, data: Data) -> None:
    make, message = REFUSED[case]
    with pytest.raises(ModelError, match=message):
        ia.fresh_head(make(), data)


def test_a_head_is_named(merged: nn.Module, data: Data) -> None:
    assert ia.fresh_head(merged, data, head="3", **FAST).head == "3"
    for name, message in (
        ("fc", "Sequential has no layer 'fc' to be its head: known: 1, 3"),
        ("2", "the head '2' is a ReLU: a fresh head takes the place of a Linear layer"),
        ("1", "the head '1' does not make the logits of Sequential"),
    ):
        with pytest.raises(ModelError, match=message):
            ia.fresh_head(merged, data, head=name)


def test_test_data_never_trains(merged: nn.Module, data: Data) -> None:
    """Splits that share most test samples are refused, wherever they came in; a few are told."""
    both = Split(torch.cat([data.train.x, data.test.x]), torch.cat([data.train.y, data.test.y]))
    for leak in ({"train": both}, {"validation": data.test}, {"test": data.train}):
        with pytest.raises(DataError, match="test samples are among its training and validation"):
            ia.fresh_head(merged, replace(data, **leak))
    shuffled = replace(data, train=Split(both.x.flip(0), both.y.flip(0)))
    with pytest.raises(DataError, match="a head trained on test data measures nothing"):
        ia.fresh_head(merged, shuffled)
    few = Split(
        torch.cat([data.train.x, data.test.x[:3]]), torch.cat([data.train.y, data.test.y[:3]])
    )
    result = ia.fresh_head(merged, replace(data, train=few), **FAST)
    assert (result.repeated, result.to_json()["repeated"]) == (3, 3)
    assert "(3 of these seen before)" in " ".join(str(result).split())
    assert ia.fresh_head(merged, data, **FAST).repeated == 0


def test_the_test_split_changes_neither_head_nor_epoch(merged: nn.Module, data: Data) -> None:
    other = replace(data, test=Split(data.test.x, (data.test.y + 1) % 4))
    one, two = (ia.fresh_head(merged, d, seeds=(0, 1), **FAST) for d in (data, other))
    assert one.epochs == two.epochs
    assert two.fresh.mean < 0.2 < 0.9 < one.fresh.mean  # the same heads, other answers asked for


def test_labels_are_in_the_catalogue(merged: nn.Module, data: Data) -> None:
    for name, label in (("train", 4), ("validation", -1), ("test", 9)):
        split: Split = getattr(data, name)
        y = split.y.clone()
        y[2] = label
        with pytest.raises(DataError, match=f"the {name} split has the label {label}, outside"):
            ia.fresh_head(merged, replace(data, **{name: Split(split.x, y)}))
    nothing = Split(data.test.x[:0], data.test.y[:0])
    with pytest.raises(DataError, match="digits has no validation samples"):
        ia.fresh_head(merged, replace(data, validation=nothing))
    with pytest.raises(DataError, match="cannot be trained on a Split: give Data"):
        ia.fresh_head(merged, data.train)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"protocol": "chached"}, "protocol is 'chached': did you mean 'cached'"),
        ({"epochs": 0}, "epochs is 0: expected a whole number"),
        ({"batch": 2.5}, "batch is 2.5: expected a whole number"),
        ({"learning_rate": 0}, "learning_rate is 0: expected a number above 0"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0: expected a number of at least 0"),
        ({"seeds": ()}, "seeds is .*: expected how many, or whole numbers"),
        ({"seeds": 0}, "seeds is 0: expected how many"),
        ({"seeds": True}, "seeds is True: expected how many"),
        ({"seeds": (1, 1)}, "seeds is .*: a seed is there twice"),
        ({"joint": 88.5}, "joint is 88.5: expected an accuracy from 0 to 1"),
        ({"joint": []}, "joint is empty"),
    ],
)
def test_settings_are_checked(
    settings: dict[str, Any], message: str, merged: nn.Module, data: Data
) -> None:
    with pytest.raises(RecipeError, match=message):
        ia.fresh_head(merged, data, **settings)


def test_heads_of_several_networks_come_out_as_each_alone() -> None:
    """Also where the best epochs of the networks differ."""
    draw = torch.Generator().manual_seed(0)
    sizes = {"train": 120, "validation": 30, "test": 40}
    labels = {name: torch.randint(0, 3, (n,), generator=draw) for name, n in sizes.items()}
    features = [
        {
            name: torch.randn(n, 5, generator=draw) + spread * labels[name][:, None]
            for name, n in sizes.items()
        }
        for spread in (0.0, 0.5, 2.0)
    ]
    for initial in ("linear", "zeros"):
        how = HeadTraining(epochs=6, learning_rate=3e-2, batch=32, initial=initial)
        together = train_heads(features, 3, labels, how, seed=1)
        alone = [train_head(CachedFeatures(own), 5, 3, labels, how, 1) for own in features]
        assert [head.epoch for head in together] == [head.epoch for head in alone]
        assert len({head.epoch for head in alone}) > 1
        for one, other in zip(together, alone, strict=True):
            torch.testing.assert_close(one.head.weight, other.head.weight, rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(one.head.bias, other.head.bias, rtol=1e-3, atol=1e-4)
            assert (one.validation, one.test) == (other.validation, other.test)
    (single,) = train_heads(features[:1], 3, labels, how, seed=1)
    assert torch.equal(single.head.weight, alone[0].head.weight)
