"""Compaction: what can have no gradient is left out, and nothing else."""

from dataclasses import replace

import torch

from intarsia.models import initialise, wiring_of
from intarsia.training.engines.base import Start
from intarsia.training.engines.compaction import compaction_of, inputs_in_use, used_inputs
from intarsia.training.rounds import rewound
from intarsia.training.settings.optimisers import OptimiserState


def start_of(mask):
    network = initialise("mlp([6], dropout=0)", (5,), 3, 0)
    wiring = wiring_of(network, (5,))
    origin = dict(network.state_dict())
    merged = {n: mask.get(n, torch.ones_like(t, dtype=torch.bool)) for n, t in origin.items()}
    return wiring, Start(rewound(origin, merged), merged)


def test_units_that_nothing_reads_and_inputs_that_are_always_0_are_left_out():
    hidden, output = torch.ones(6, 5, dtype=torch.bool), torch.ones(3, 6, dtype=torch.bool)
    output[:, [1, 4]] = False  # nothing reads units 1 and 4
    hidden[[0, 2, 3, 5], 2] = False  # so nothing alive reads input 2
    wiring, start = start_of({"layers.0.weight": hidden, "layers.1.weight": output})
    used = torch.tensor([True, True, True, True, False])
    small = compaction_of(wiring, start, used)
    assert small.keep["layers.0"].tolist() == [0, 2, 3, 5]
    assert small.keep["input"].tolist() == [0, 1, 3]
    taken = small.take(start.state)
    assert taken["layers.0.weight"].shape == (4, 3)
    again = small.put(taken, start.state)
    assert all(torch.equal(again[n], t) for n, t in start.state.items())


def test_a_module_whose_moments_live_on_is_kept_whole():
    output = torch.zeros(3, 6, dtype=torch.bool)
    wiring, start = start_of({"layers.1.weight": output})
    start = Start(start.state, start.mask, OptimiserState.zeros(["first"], start.state))
    small = compaction_of(wiring, start, torch.zeros(5, dtype=torch.bool))
    assert {axis: len(kept) for axis, kept in small.keep.items()} == {"layers.0": 6, "input": 5}


def test_a_network_that_is_pruned_away_keeps_one_unit():
    mask = {
        "layers.0.weight": torch.zeros(6, 5, dtype=torch.bool),
        "layers.1.weight": torch.zeros(3, 6, dtype=torch.bool),
    }
    wiring, start = start_of(mask)
    small = compaction_of(wiring, start, torch.ones(5, dtype=torch.bool))
    assert {axis: len(kept) for axis, kept in small.keep.items()} == {"layers.0": 1, "input": 1}


def test_inputs_are_used_if_one_sample_of_any_split_uses_them():
    train, validation = torch.zeros(4, 3), torch.zeros(2, 3)
    train[3, 0], validation[1, 2] = 1.0, -1.0
    assert used_inputs(train, validation).tolist() == [True, False, True]


def test_inputs_are_not_chosen_by_samples_that_a_module_is_not_shown(make_job):
    """The border of the digits is always 0: left out, unless a label is hidden."""
    job, _ = make_job("mlp([6])", "me")
    hiding = make_job("mlp([6])", "xe")[0].tasks[1]
    in_use = inputs_in_use(replace(job, tasks=[job.tasks[0], hiding]))
    plain = used_inputs(job.x.flatten(1), job.x_validation.flatten(1))
    assert 0 < int(plain.sum()) < 64
    assert in_use[0].tolist() == plain.tolist()
    assert in_use[1].tolist() == [True] * 64
