"""Units that answer alike: of the two most alike the weaker goes, by a plain loop."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import intarsia as ia
from intarsia.errors import RecipeError, WiringError
from intarsia.models import initialise, wiring_of
from intarsia.pruning import PRUNINGS, Group

UNITS = 10


def group_of(answers: Tensor, fraction: float = 0.5) -> Group:
    """One module of one hidden layer that answers as is said."""
    network = initialise(f"mlp({UNITS})", (6,), 4, 0)
    wiring = wiring_of(network, (6,))
    names = [name for name, _ in network.named_parameters()]
    state = {name: network.state_dict()[name] for name in names}
    (axis,) = {a.name for a in wiring["layers.0.weight"] if a} - {"input"}
    return Group(
        [state], [{}], {n: wiring[n] for n in names}, fraction, [0], [0],
        activations=[{axis: answers}],
    )  # fmt: skip


def kept(group: Group, rule: str = "similarity") -> set[int]:
    (mask,) = PRUNINGS.call(PRUNINGS.spec(rule), group=group)
    return set(mask["layers.0.weight"].any(1).nonzero().flatten().tolist())


def kept_by_loop(answers: Tensor, count: int, centred: bool) -> set[int]:
    answers = answers.double()
    answers = answers - answers.mean(1, keepdim=True) if centred else answers
    norms, left = answers.norm(dim=1), set(range(len(answers)))
    while len(left) > count:
        pairs = [(i, j) for i in left for j in left if i < j]
        alike = {
            (i, j): float((answers[i] @ answers[j]).abs() / norms[i] / norms[j]) for i, j in pairs
        }
        left.remove(min(max(pairs, key=alike.__getitem__), key=lambda unit: float(norms[unit])))
    return left


@given(seed=st.integers(0, 10**6), centred=st.booleans())
def test_a_plain_loop_keeps_the_same_units(seed: int, centred: bool) -> None:
    answers = torch.randn(UNITS, 7, generator=torch.Generator().manual_seed(seed)) + 0.5
    rule = "similarity(by='correlation')" if centred else "similarity"
    result = kept(group_of(answers), rule)
    assert 1 < len(result) < UNITS
    assert result == kept_by_loop(answers, len(result), centred)


def test_copies_go_first_and_of_each_pair_the_weaker() -> None:
    answers = torch.eye(UNITS)
    answers[3], answers[7] = 2 * answers[1], -0.5 * answers[4]
    left = kept(group_of(answers, 0.15))
    assert left == set(range(UNITS)) - {1, 7}


def test_units_that_answer_nothing_go_before_all_others() -> None:
    answers = torch.randn(UNITS, 7, generator=torch.Generator().manual_seed(0))
    answers[[2, 5, 8]] = 0
    assert not kept(group_of(answers, 0.25)) & {2, 5, 8}
    answers[[2, 5, 8]] = 3.0  # never changes: a correlation is with nothing
    assert not kept(group_of(answers, 0.25), "similarity(by='correlation')") & {2, 5, 8}


def test_what_it_cannot_do_is_said() -> None:
    group = group_of(torch.eye(UNITS))
    with pytest.raises(RecipeError, match="'cosine' or 'correlation'"):
        kept(group, "similarity(by='euclid')")
    with pytest.raises(RecipeError, match="0 of 1 modules"):
        kept(dataclasses.replace(group, activations=()))
    with pytest.raises(WiringError, match="no names"):
        kept(dataclasses.replace(group, wiring=None))


def test_modules_are_trained_with_it() -> None:
    data = ia.load_data("digits", classes=["0", "1", "2"])
    settings = {"model": "mlp(40)", "epochs": 2, "sparsity": 0.5, "progress": False}
    bank = ia.train(data, pruning="similarity", **settings)
    for module in bank:
        units = module.mask["layers.0.weight"].any(1)
        assert 0 < int(units.sum()) <= 20
        assert torch.equal(units, module.mask["layers.1.weight"].any(0))


def test_only_rules_that_ask_see_samples_and_none_that_are_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Tensor] = []
    from intarsia.training import job

    real = job.unit_activations

    def watched(network, state, inputs, wiring):
        seen.append(inputs)
        return real(network, state, inputs, wiring)

    monkeypatch.setattr(job, "unit_activations", watched)
    data = ia.load_data("digits", classes=["0", "1", "2"], scale="none")
    settings = {"model": "mlp(8)", "epochs": 1, "sparsity": 0.5, "progress": False}
    ia.train(data, pruning="units", **settings)
    assert not seen
    ia.train(data, pruning="similarity", visibility="own", negatives="noise", **settings)
    assert len(seen) == 3
    scaled = data.scaling(data.train.x).float()
    for label, inputs in enumerate(seen):
        own = {row.numpy().tobytes() for row in scaled[data.train.y == label]}
        assert len(inputs) > 10
        assert {row.numpy().tobytes() for row in inputs} <= own
