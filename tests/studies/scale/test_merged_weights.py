"""One network of several modules: against compose, and an inlay that is counted and taken apart."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import intarsia as ia
from intarsia.composition import Composition
from intarsia.limits import limited
from intarsia.modules import logits_of
from intarsia.studies.scale import merged_weights
from intarsia.studies.scale.bank_logits import accuracy
from intarsia.studies.scale.merged_weights import AVERAGED, RECOMPUTED, MergeCandidate, Room

CPU = torch.device("cpu")


def right(merged: Composition, split: ia.Split) -> float:
    return float((merged.predict(split.x) == split.y).double().mean())


@pytest.mark.parametrize("align", [None, "weights", "activations"])
def test_merges_are_those_of_compose(bank: ia.Bank, data: ia.Data, align: str | None) -> None:
    found = merged_weights.best_merges(bank, [MergeCandidate("sum", align)], data, CPU)
    assert list(found) == [AVERAGED, RECOMPUTED]
    for norms, recompute in ((AVERAGED, False), (RECOMPUTED, True)):
        merged = ia.compose(bank, "sum", samples=data, align=align, recalibrate=recompute)
        assert found[norms]["test"] == right(merged, data.test)
        assert found[norms]["validation"] == right(merged, data.validation)
        assert found[norms]["nonzero"] == merged.nonzero
    assert found[AVERAGED]["chosen"] == ("sum" if align is None else f"sum, aligned by {align}")


def test_validation_chooses_among_candidates(bank: ia.Bank, data: ia.Data) -> None:
    specs = ["mean", "sum", "ties(density=0.3, scale=1.0)"]

    def chosen(*specs: str) -> dict[str, Any]:
        candidates = [MergeCandidate(spec) for spec in specs]
        return merged_weights.best_merges(bank, candidates, data, CPU)[RECOMPUTED]

    scores = {spec: chosen(spec) for spec in specs}
    assert chosen(*specs) == max(scores.values(), key=lambda one: one["validation"])
    assert len({one["validation"] for one in scores.values()}) > 1


def test_with_classes_present_others_do_not_count(bank: ia.Bank, data: ia.Data) -> None:
    found = merged_weights.best_merges(bank[:1], [MergeCandidate("sum")], data, CPU, [0])
    assert {one["test"] for one in found.values()} == {1.0}
    own = replace(data, validation=data.validation.select([0, 1]))
    merged = ia.compose(bank[:2], "sum", samples=own)  # with statistics of these samples alone
    test = data.test.select([0, 1])
    expected = accuracy(logits_of(merged, test.x), test.y, [0, 1])
    pair = merged_weights.best_merges(bank[:2], [MergeCandidate("sum")], data, CPU, [0, 1])
    assert pair[RECOMPUTED]["test"] == expected


def test_the_inlay_is_counted_without_being_built(
    bank: ia.Bank, pruned: ia.Bank, residual: ia.Bank
) -> None:
    for modules in (bank, pruned, residual):
        assert merged_weights.inlay_nonzero(modules) == ia.compose(modules, "inlay").nonzero
    parts = sum(module.nonzero for module in pruned)
    assert merged_weights.inlay_nonzero(pruned) < parts  # dead units, one bias


def test_the_sparsity_makes_the_inlay_fit() -> None:
    room = Room(weights=1000, tensors=2, others=20, units=4)
    # 10 * (82 + 20) = 1020 is all that the network has; two weights fewer, for rounding
    assert room.sparsity(10) == 0.92
    assert Room(weights=1000, tensors=2, others=112, units=4).sparsity(10) is None
    sparsity = Room(weights=997, tensors=1, others=31, units=4).sparsity(3)
    assert sparsity is not None
    assert 3 * (round((1 - sparsity) * 997) + 31) <= 997 + 31


def test_an_inlay_is_built_only_where_it_has_room(
    pruned: ia.Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert merged_weights.build_inlay(pruned) is not None
    monkeypatch.setattr(merged_weights, "BUILT", 100)
    assert merged_weights.build_inlay(pruned) is None


def test_a_module_taken_out_leaves_the_others(pruned: ia.Bank, residual: ia.Bank) -> None:
    for modules in (pruned, residual):
        inlay = merged_weights.build_inlay(modules)
        assert inlay is not None
        assert all(merged_weights.removed_exactly(inlay, module.name) for module in modules)


@pytest.mark.parametrize("all_of_them", [True, False])
def test_an_axis_may_have_no_live_unit(residual: ia.Bank, all_of_them: bool) -> None:
    """In any module, or in all but the first: an inlay then holds a dead one of it."""

    def emptied(module: ia.Module) -> ia.Module:
        name = "stages.1.0.conv2.weight"  # all that reads the units inside of this block
        nothing = torch.zeros_like(module.state[name])
        state, mask = {**module.state, name: nothing}, {**module.mask, name: nothing.bool()}
        return replace(module, state=state, mask=mask)

    first, *others = sorted(residual, key=lambda module: module.name)
    modules = [emptied(first) if all_of_them else first, *map(emptied, others)]
    inlay = merged_weights.build_inlay(modules)
    assert inlay is not None
    assert merged_weights.inlay_nonzero(modules[::-1]) == inlay.nonzero
    assert all(merged_weights.removed_exactly(inlay, module.name) for module in modules)


def test_removal_is_checked_whatever_the_usual_limit_of_memory(pruned: ia.Bank) -> None:
    """An inlay is joined when it is first asked for, and may then be larger than is usual."""
    inlay = merged_weights.build_inlay(pruned)
    assert inlay is not None
    with limited(memory="1 KiB"):
        assert merged_weights.removed_exactly(inlay, inlay.parts[0].name)


def test_a_trace_of_what_was_taken_out_is_seen(
    pruned: ia.Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network in which one weight of another module has moved."""
    inlay = merged_weights.build_inlay(pruned)
    assert inlay is not None
    joined = inlay.joined
    assert joined is not None
    state = {name: tensor.clone() for name, tensor in joined.state.items()}
    last = [name for name in state if name.startswith("convs")][-1]
    kept = state[last].nonzero()[-1]  # of the last part
    state[last][tuple(kept)] += 1e-3
    moved = replace(joined, state=state)
    monkeypatch.setattr(
        Composition,
        "joined",
        property(lambda self: moved if self is inlay else self._result.modules[0]),
    )
    assert not merged_weights.removed_exactly(inlay, inlay.parts[0].name)
