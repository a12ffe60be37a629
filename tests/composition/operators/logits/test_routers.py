"""Routers: weights, masks and the sentinel worked out by hand; files, changes and exports."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import intarsia as ia
from intarsia.composition import OPERATORS, Composition, MergeContext, compose
from intarsia.composition.operators.logits.routers import UNCOVERED, Router
from intarsia.data import Split
from intarsia.encoders import ENCODERS
from intarsia.errors import CompositionError, FileError, IntarsiaError, ModelError
from intarsia.modules import Base
from small_modules import same, small_module

pytestmark = pytest.mark.usefixtures("one_thread")

Make = Callable[..., MergeContext]
BY_SAMPLES = ("centroid", "centroid_entropy")
EVERY = ("centroid(top=2)", "entropy_router", "entropy_router(top=2)", "centroid_entropy(top=2)")
X = torch.randint(0, 256, (40, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
SAMPLES = Split(X, torch.arange(40) % 4)


def routed(how: str, logits: list[Tensor], context: MergeContext) -> Tensor:
    return OPERATORS.call(OPERATORS.spec(how), logits=logits, context=context)


def similar(context: MergeContext, *rows: list[float]) -> MergeContext:
    return replace(context, similarities=torch.tensor(rows))


def test_weights_masks_and_sentinel_by_hand(make_context: Make) -> None:
    """Two of three modules; what they say of others' classes, 9 here, is not asked."""
    context = make_context(3, rewarded=("ab", "c", "d"))
    logits = [
        torch.tensor([[1.0, 2.0, 9.0, 9.0]]),
        torch.tensor([[9.0, 9.0, -3.0, 9.0]]),
        torch.tensor([[9.0, 9.0, 9.0, 4.0]]),
    ]
    near = similar(context, [0.5, 0.1, 0.9])
    odds = math.exp(0.9) / (math.exp(0.9) + math.exp(0.5))
    expected = torch.tensor([[1 - odds, 2 * (1 - odds), UNCOVERED, 4 * odds]])
    torch.testing.assert_close(routed("centroid(top=2)", logits, near), expected)
    odds = math.exp(9) / (math.exp(9) + math.exp(5))
    expected = torch.tensor([[1 - odds, 2 * (1 - odds), UNCOVERED, 4 * odds]])
    torch.testing.assert_close(routed("centroid(2, temperature=0.1)", logits, near), expected)
    alone = routed("centroid(top=1)", logits, near)
    assert alone.tolist() == [[UNCOVERED, UNCOVERED, UNCOVERED, 4.0]]


def test_each_row_goes_its_own_way_and_all_may_be_chosen(make_context: Make) -> None:
    context = make_context(2, rewarded=("a", "b"))
    logits = [torch.full((2, 4), 1.0), torch.full((2, 4), 2.0)]
    near = similar(context, [0.9, 0.1], [0.1, 0.9])
    one = routed("centroid(top=1)", logits, near)
    assert one[:, :2].tolist() == [[1, UNCOVERED], [UNCOVERED, 2]]
    both = routed("centroid", logits, near)  # three of two are two
    odds = math.exp(0.9) / (math.exp(0.9) + math.exp(0.1))
    torch.testing.assert_close(
        both[:, :2], torch.tensor([[odds, 2 * (1 - odds)], [1 - odds, 2 * odds]])
    )
    assert (both[:, 2:] == UNCOVERED).all()  # classes of no module


def test_modules_that_share_a_class_add_up(make_context: Make) -> None:
    context = make_context(2, rewarded=("ab", "b"))
    near = similar(context, [0.0, 0.0])
    logits = [torch.tensor([[2.0, 4.0, 0, 0]]), torch.tensor([[7.0, 6.0, 0, 0]])]
    assert routed("centroid", logits, near).tolist() == [[1, 5, UNCOVERED, UNCOVERED]]


def test_the_surest_takes_all_or_entropies_weigh(make_context: Make) -> None:
    context = make_context(2, rewarded=("a", "b"))
    sure, unsure = torch.tensor([[50.0, 0, 0, 0]]), torch.tensor([[0, 5.0, 0, 0]])
    assert routed("entropy_router", [sure, unsure], context)[0].tolist()[:2] == [50, UNCOVERED]
    p = torch.softmax(torch.stack([sure[0], unsure[0]]).double() / context.temperature, dim=1)
    h = -(p * p.log()).sum(1) / math.log(4)
    weights = torch.softmax(-h / 0.5, dim=0).float()
    seen = routed("entropy_router(top=2, temperature=0.5)", [sure, unsure], context)[0]
    torch.testing.assert_close(seen[:2], torch.stack([50 * weights[0], 5 * weights[1]]))


def test_the_mixture_is_the_product_of_both_weights(make_context: Make) -> None:
    context = make_context(2, rewarded=("a", "b"))
    near = similar(context, [0.2, 0.7])
    logits = [torch.tensor([[10.0, 0, 0, 0]]), torch.tensor([[0, 5.0, 0, 0]])]

    def weights(how: str) -> Tensor:
        return routed(how, logits, near)[0, :2] / torch.tensor([10.0, 5.0])

    product = weights("centroid") * weights("entropy_router(top=2)") ** 3
    torch.testing.assert_close(weights("centroid_entropy(exponent=3)"), product / product.sum())
    torch.testing.assert_close(weights("centroid_entropy(exponent=0)"), weights("centroid"))


def test_centroids_are_mean_features_of_own_samples(make_context: Make) -> None:
    """Of the scaled inputs, and of what the last layer of the first module reads."""
    parts = make_context(3).parts
    first = parts[0].to_module()
    hidden: list[Tensor] = []
    last = [layer for layer in first.modules() if isinstance(layer, nn.Linear)][-1]
    hook = last.register_forward_pre_hook(lambda _, given: hidden.append(given[0].detach()))
    first(X)
    hook.remove()
    for features, read in (("readout", hidden[0]), ("inputs", X / 255)):
        merged = compose(parts, f"centroid(features={features!r})", samples=SAMPLES)
        assert merged.router is not None
        means = torch.stack([read[SAMPLES.y == c].mean(0) for c in range(3)])
        expected = torch.cosine_similarity(read[:, None], means[None], dim=2)
        torch.testing.assert_close(merged.router(X), expected)
        torch.testing.assert_close(merged.router(X.numpy()), expected)


def test_a_common_base_reads(make_context: Make) -> None:
    state = dict(make_context(1).parts[0].state)
    head = [name for name in state if name.endswith("weight")][-1]
    base = Base(state | {head: torch.zeros_like(state[head])})  # a head that says nothing yet
    parts = [
        replace(part, base=base, mask={}, origin=base.digest, state=dict(part.state))
        for part in make_context(3).parts
    ]
    merged, alone = (compose(some, "centroid", samples=SAMPLES) for some in (parts, parts[1:]))
    assert merged.router is not None
    assert alone.router is not None
    torch.testing.assert_close(merged.router(X)[:, 1:], alone.router(X))  # whoever is first


def test_an_encoder_reads(make_context: Make) -> None:
    @ENCODERS.register("halves", resizes=False)
    def halves() -> Any:
        return nn.AvgPool1d(3)

    merged = compose(make_context(3).parts, "centroid(features='halves')", samples=SAMPLES)
    read = X.float().reshape(40, 2, 3).mean(2)
    means = torch.stack([read[SAMPLES.y == c].mean(0) for c in range(3)])
    assert merged.router is not None
    torch.testing.assert_close(
        merged.router(X), torch.cosine_similarity(read[:, None], means[None], dim=2)
    )
    with pytest.raises(ModelError, match="its router reads features of an encoder"):
        ia.to_network(merged)


@pytest.mark.parametrize("how", EVERY)
def test_files_and_changes_keep_every_bit(how: str, make_context: Make, tmp_path: Path) -> None:
    parts = make_context(4).parts
    merged = compose(parts, how, samples=SAMPLES)
    merged.save(tmp_path / "whole")
    assert same(Composition.load(tmp_path / "whole"), merged, X)
    less = compose(parts[1:], how, samples=SAMPLES)
    assert same(merged - "a", less, X)
    assert same(less.add(parts[0]), merged, X)


@pytest.mark.parametrize("how", EVERY)
def test_networks_of_torch_alone_route_alike(how: str, make_context: Make) -> None:
    merged = compose(make_context(4).parts, how, samples=SAMPLES)
    with torch.no_grad():
        torch.testing.assert_close(ia.to_network(merged)(X.float()), merged(X))


def test_a_program_routes_alike(make_context: Make) -> None:
    merged = compose(make_context(4).parts, "centroid_entropy(top=2)", samples=SAMPLES)
    with torch.no_grad():
        program = ia.export_program(merged).module()
        torch.testing.assert_close(program(X.float()), merged(X))


def test_tensors_alone_do_not_route(make_context: Make, tmp_path: Path) -> None:
    parts = make_context(3).parts
    with pytest.raises(FileError, match="centroid chooses modules by what it sees"):
        ia.export(compose(parts, "centroid", samples=SAMPLES), tmp_path / "one.safetensors")
    ia.export(compose(parts, "entropy_router"), tmp_path / "two.safetensors")


def test_the_router_moves_along_and_is_never_trained(make_context: Make) -> None:
    parts = make_context(3, model="mlp(7, dropout=0.5)").parts
    merged = compose(parts, "centroid", samples=SAMPLES)
    before = merged(X)
    assert merged.double()(X).dtype == torch.float64
    torch.testing.assert_close(merged(X).float(), before)
    assert isinstance(merged.router, Router)
    seen = merged.router(X)
    merged.train()
    assert torch.equal(merged.router(X), seen)
    assert not any(p.requires_grad for p in merged.router.parameters())


@pytest.mark.parametrize("how", EVERY)
def test_all_of_it_is_on_one_device(how: str, make_context: Make) -> None:
    """Tensors of the device `meta` meet none of the CPU, as those of a GPU would not."""
    merged = compose(make_context(3).parts, how, samples=SAMPLES).to("meta")
    assert merged(X.to("meta")).device.type == "meta"


def test_a_composition_stays_as_it_was_where_samples_are_missing(make_context: Make) -> None:
    parts = make_context(4).parts
    known = Split(X[SAMPLES.y < 3], SAMPLES.y[SAMPLES.y < 3])
    merged = compose(parts[:3], "centroid", samples=known)
    before = merged(X)
    with pytest.raises(CompositionError, match="no sample has a class of module 'd'"):
        merged.add(parts[3])
    assert torch.equal(merged(X), before)
    with pytest.raises(CompositionError, match="no sample has a class of module 'a'"):
        compose(parts, "centroid", samples=X)  # without labels


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("centroid(top=0)", "^centroid: top is 0: expected at least 1"),
        ("centroid(top=1.5)", "^centroid: top is 1.5: expected a whole number"),
        ("centroid(temperature=0)", "^centroid: temperature is 0: expected more than 0"),
        ("entropy_router(top=-1)", "^entropy_router: top is -1"),
        ("entropy_router(temperature=-1)", "^entropy_router: temperature is -1"),
        ("centroid_entropy(exponent=-1)", "^centroid_entropy: exponent is -1: expected 0 or more"),
        ("centroid_entropy(top=0)", "^centroid_entropy: top is 0"),
        ("centroid(features='input')", "unknown features 'input': did you mean 'inputs'"),
        ({"name": "centroid", "features": len}, "a function gets one by @ia.ENCODERS.register"),
    ],
)
def test_wrong_settings_are_refused_by_name(how: Any, message: str, make_context: Make) -> None:
    with pytest.raises(IntarsiaError, match=message):
        compose(make_context(3).parts, how, samples=SAMPLES)


@pytest.mark.parametrize("how", [*BY_SAMPLES, "entropy_router"])
def test_calibration_is_refused(how: str, make_context: Make) -> None:
    with pytest.raises(CompositionError, match=f"^{how} weighs the modules for each input"):
        compose(make_context(3).parts, how, samples=SAMPLES, calibrate=True)


class LogProbabilities(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(shape[0], classes)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log_softmax(self.layer(x), dim=1)


def test_networks_without_a_readout_are_refused() -> None:
    state = LogProbabilities((6,), 4).state_dict()
    module = small_module("a", state, {}, ("a", "b", "c", "d"), LogProbabilities, (6,))
    with pytest.raises(ModelError, match="does not answer with what a linear layer gives"):
        compose([module], "centroid", samples=SAMPLES)
    compose([module], "centroid(features='inputs')", samples=SAMPLES)
