"""Joining changes of one base: the base and the joined change, in every operator."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import intarsia as ia
from intarsia.composition import MergeContext
from intarsia.composition.operators.registry import State
from intarsia.composition.operators.weights import join_states
from intarsia.data import Split
from intarsia.errors import CompositionError, FileError
from intarsia.measure.pair import blend
from intarsia.models import initialise
from intarsia.modules import Base, Module, file
from small_modules import same, small_module

CATALOGUE = ("a", "b", "c", "d")
SHAPE = (6,)


def normed(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, outputs))


def parts_of(
    count: int = 3, density: float = 0.5, model: Any = "mlp(7)", seed: int = 0
) -> list[Module]:
    base = Base(initialise(model, SHAPE, len(CATALOGUE), seed).state_dict(), f"start {seed}")
    learned = dict(initialise(model, SHAPE, len(CATALOGUE), seed).named_parameters())
    draw = torch.Generator().manual_seed(1)
    parts = []
    for i in range(count):
        state: dict[str, Tensor] = {}
        mask: dict[str, Tensor] = {}
        for key, tensor in base.state.items():
            if not tensor.is_floating_point():
                state[key] = tensor + i
                continue
            moved = tensor + 0.3 * torch.randn(tensor.shape, generator=draw).abs()
            state[key] = moved
            if key in learned:
                mask[key] = torch.rand(tensor.shape, generator=draw) < density
                state[key] = torch.where(mask[key], moved, tensor)
        parts.append(
            small_module(
                CATALOGUE[i], state, mask, CATALOGUE, model, SHAPE, origin=base.digest, base=base
            )
        )
    return parts


def bare(parts: Sequence[Module]) -> list[Module]:
    return [part.without_base() for part in parts]


@pytest.fixture
def samples() -> Split:
    draw = torch.Generator().manual_seed(2)
    x = torch.randint(0, 256, (64, *SHAPE), dtype=torch.uint8, generator=draw)
    return Split(x, torch.arange(64) % 4)


def joined(parts: Sequence[Module], operator: str, samples: Split | None = None) -> Module:
    module = ia.compose(parts, operator, samples=samples, recalibrate=False).joined
    assert module is not None
    return module


@pytest.mark.parametrize("model", ["mlp(7)", normed])
@pytest.mark.parametrize(
    "operator",
    ["sum", "mean", "task_arithmetic(scale=0.4)", "ties", "dare(density=0.7)", "regmean", "fisher"],
)
def test_the_result_is_base_plus_joined_change(model: Any, operator: str, samples: Split) -> None:
    """Against numpy where the operator is simple; what nobody changed is the base's, all in all."""
    parts = parts_of(model=model)
    base = parts[0].base
    assert base is not None
    result = joined(parts, operator, samples)
    assert result.base is base
    assert result.origin == base.digest
    for name in MergeContext(tuple(parts)).learned:
        start = base.state[name].double().numpy()
        changes = [part.state[name].double().numpy() - start for part in parts]
        masks = [part.mask[name].numpy() for part in parts]
        nobody = ~np.any(masks, axis=0)
        assert np.array_equal(result.state[name].numpy()[nobody], base.state[name].numpy()[nobody])
        expected = {
            "sum": start + sum(changes),
            "mean": start + sum(changes) / 3,
            "task_arithmetic(scale=0.4)": start + 0.4 * sum(changes),
        }.get(operator)
        if expected is not None:
            np.testing.assert_array_equal(result.state[name].numpy(), expected.astype("float32"))


@pytest.mark.parametrize("operator", ["mean", "fisher", "regmean"])
def test_means_of_changes_are_means_of_weights(operator: str, samples: Split) -> None:
    parts = parts_of(density=1.0)
    for module in parts:
        assert module.density == 1.0
    changes = joined(parts, operator, samples)
    weights = joined(bare(parts), operator, samples)
    for name, tensor in changes.state.items():
        torch.testing.assert_close(tensor, weights.state[name], rtol=1e-4, atol=1e-6)


def test_task_vectors_from_zero_are_the_weights(samples: Split) -> None:
    parts = parts_of()
    one = joined(parts, "task_arithmetic(base='zero')")
    other = joined(bare(parts), "sum")
    for name, tensor in one.state.items():
        torch.testing.assert_close(tensor, other.state[name], rtol=1e-6, atol=1e-6)


def test_one_part_is_itself_to_the_last_bit() -> None:
    (part, *_) = parts_of(model=normed)
    for operator in ("sum", "mean", "task_arithmetic"):
        result = joined([part], operator)
        assert all(torch.equal(t, part.state[n]) for n, t in result.state.items())
        assert result.nonzero == part.nonzero


def test_statistics_are_averaged_as_always(samples: Split) -> None:
    parts = parts_of(model=normed)
    result = joined(parts, "sum").state
    mean = sum(part.state["1.running_mean"] for part in parts) / 3
    torch.testing.assert_close(result["1.running_mean"], mean)
    assert int(result["1.num_batches_tracked"]) == 2
    whole = ia.compose(parts, "sum", samples=samples)
    assert "recomputed" in whole.report["notes"][0]


def test_an_operator_of_ones_own_is_given_changes() -> None:
    seen: list[State] = []

    @ia.operator("halved", on="weights", paper="")
    def halved(states: Sequence[State], context: MergeContext) -> dict[str, Tensor]:
        seen.extend(states)
        return join_states(states, context.plan, lambda name, tensors: tensors[0] / 2)

    try:
        parts = parts_of(2)
        base = parts[0].base
        assert base is not None
        result = joined(parts, "halved")
    finally:
        del ia.OPERATORS["halved"]
    name = "layers.0.weight"
    assert seen[0][name].dtype == torch.float64
    assert not seen[0][name][~parts[0].mask[name]].any()
    torch.testing.assert_close(result.state[name], (parts[0].state[name] + base.state[name]) / 2)


def test_parts_come_and_go_bit_for_bit(samples: Split) -> None:
    parts = parts_of(4)
    for operator in ("sum", "ties", "dare", "mean", "logits", "inlay"):
        whole = ia.compose(parts[:3], operator)
        back = (ia.compose(parts[:3], operator) + parts[3]) - parts[3].name
        assert same(whole, back, samples.x)


def test_units_and_logits_look_at_whole_networks(samples: Split) -> None:
    parts = parts_of(density=0.1)
    logits = ia.compose(parts, "logits")(samples.x)
    torch.testing.assert_close(ia.compose(parts, "inlay")(samples.x), logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ia.compose(parts)(samples.x), logits, rtol=1e-4, atol=1e-4)
    scaled = ia.compose(parts, "inlay", samples=samples, calibrate=True)
    assert scaled.joined is not None
    assert scaled.joined.base is None
    aligned = ia.align(parts)
    assert all(part.base is None for part in aligned)
    ia.compose(parts, "mean", align="weights")


def test_weights_of_two_bases_are_not_added(samples: Split) -> None:
    one, other = parts_of(1)[0], parts_of(2, seed=5)[1]
    for second in (other, parts_of(2)[1].without_base()):
        with pytest.raises(CompositionError, match=r"its base is .*train both from one base"):
            ia.compose([one, second], "sum")
    both = ia.compose([one, other], "logits")
    expected = one.to_module()(samples.x) + other.to_module()(samples.x)
    torch.testing.assert_close(both(samples.x), expected)
    ia.compose([one, other], "mean", align="weights")


def test_a_file_has_each_base_once(tmp_path: Path, samples: Split) -> None:
    parts = [*parts_of(3, density=0.05, model="mlp(300)"), *parts_of(4, seed=5)[3:]]
    path = tmp_path / "whole.safetensors"
    for some in (parts[:3], parts):
        whole = ia.compose(some, "logits", samples=samples)
        whole.save(path)
        assert same(ia.Composition.load(path, quiet=True), whole, samples.x)
    _, tensors = file.read(path, "intarsia-composition")
    assert len([name for name in tensors if name.endswith("/layers.0.weight")]) == 2
    loaded = ia.Composition.load(path, quiet=True)
    assert loaded.parts[0].base is loaded.parts[1].base


def test_crafted_compositions_end_in_our_error(tmp_path: Path) -> None:
    path = tmp_path / "whole.safetensors"
    ia.compose(parts_of(2), "sum").save(path)
    fields, tensors = file.read(path, "intarsia-composition")
    name = "bases/0/layers.0.weight"
    wide = {**tensors, name: torch.zeros(7, 9)}
    digest = fields["bases"][0]["base"]
    for change, held, message in (
        ({"bases": 3}, tensors, "not a list of bases"),
        ({"bases": [3]}, tensors, "not a list of bases"),
        ({"bases": [{"name": "x"}]}, tensors, "lacks base"),
        ({"bases": []}, tensors, "of no part"),
        ({"bases": []}, {k: t for k, t in tensors.items() if k[:5] != "bases"}, "lacks the base"),
        ({}, wide, "not those of the base"),
        ({}, {k: t for k, t in tensors.items() if k != name}, "not those of the base"),
        ({"bases": [{"name": "x", "base": "0" * 64}]}, tensors, "not those of the base"),
        ({"bases": [{"name": 3, "base": digest}]}, tensors, "expected text"),
    ):
        file.write(path, "intarsia-composition", {**fields, **change}, held)
        with pytest.raises(FileError, match=message):
            ia.Composition.load(path)


def test_a_path_leads_over_the_base(samples: Split) -> None:
    one, other = parts_of(2)
    base = one.base
    assert base is not None
    for weights, expected in (((1.0, 0.0), one), ((0.0, 1.0), other)):
        state = blend(one, other, *weights).network.state_dict()
        assert all(torch.equal(t, expected.state[n]) for n, t in state.items())
    middle = blend(one, other, 1.0, 1.0).network.state_dict()
    total = joined([one, other], "sum").state
    assert all(torch.equal(t, total[n]) for n, t in middle.items())
    walked = ia.path(one, other, samples, points=3)
    assert len(walked.t) == 3


def test_compatibility_compares_changes() -> None:
    one, other = parts_of(2)
    seen = ia.compatibility(one, other)
    assert seen.sign_conflicts == 0.0  # all of them grew
    assert seen.same_origin
    assert 0 < seen.mask_jaccard < 1
    flat = [
        torch.cat([(m.state[n] - m.base.state[n]).flatten() for n in m.mask])  # type: ignore[union-attr]
        for m in (one, other)
    ]
    cosine = float(torch.nn.functional.cosine_similarity(*flat, dim=0))
    assert seen.cosine == pytest.approx(cosine, abs=1e-5)
