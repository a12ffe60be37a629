"""Schedules by hand, and that they depend on the place in a round alone."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

import intarsia as ia
from intarsia.data import Data
from intarsia.errors import RecipeError
from intarsia.training.engines.select import choose
from intarsia.training.job import Job
from intarsia.training.settings.schedules import SCHEDULES, each_batch, scheduled


def test_cosine_is_by_epoch_to_the_bit() -> None:
    for epochs in (1, 3, 7, 20, 61):
        for epoch in range(epochs):
            expected = 6e-3 * 0.5 * (1 + math.cos(math.pi * epoch / epochs))
            assert scheduled("cosine", 6e-3, epoch, epochs, 11) == expected
            assert scheduled("constant", 6e-3, epoch, epochs, 11) == 6e-3


def test_one_cycle_by_hand() -> None:
    """Ten steps in five epochs of two batches: four up from 0.2, six down to 0.1."""
    text = "onecycle(warmup=0.4, start=0.2, end=0.1)"
    rates = [rate for epoch in range(5) for rate in scheduled(text, 2.0, epoch, 5, 2)]
    up = [0.2, 0.4, 0.6, 0.8]
    down = [1.0, 0.85, 0.7, 0.55, 0.4, 0.25]
    assert rates == pytest.approx([2 * factor for factor in up + down])


@pytest.mark.parametrize("warmup", [0.0, 0.3, 1.0])
def test_one_cycle_has_one_peak(warmup: float) -> None:
    rates = scheduled(f"onecycle({warmup})", 1.0, 0, 1, 1000)
    assert isinstance(rates, list)
    peak = rates.index(max(rates))
    assert peak == pytest.approx(1000 * warmup, abs=1)
    assert rates[peak] == pytest.approx(1, abs=2e-3)
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert min(rates) > 0


def test_one_rate_serves_all_batches() -> None:
    assert each_batch(0.1, 3) == [0.1] * 3
    assert each_batch([0.1, 0.2], 2) == [0.1, 0.2]


def test_a_schedule_of_ones_own(small_data: Data) -> None:
    asked: list[tuple[int, int]] = []

    @SCHEDULES.register("halving", by_batch=True)
    def halving(step: int, steps: int, times: int = 2) -> float:
        asked.append((step, steps))
        return float(0.5 ** int(times * step / steps))

    settings: dict[str, Any] = {
        "model": "mlp([12], dropout=0)", "epochs": 2, "batch": 50, "sparsity": 0.5, "rounds": 1,
        "pruning_epochs": 1, "partition": [["a"]], "negatives": "none", "progress": False,
    }  # fmt: skip
    bank = ia.train(small_data, schedule="halving(times=4)", **settings)
    assert bank[0].provenance["recipe"]["schedule"] == "halving(times=4)"
    # tried twice when the recipe is read, then every round goes through all of it
    steps = [(step, 4) for step in range(4)] + [(step, 8) for step in range(8)]
    assert asked[-12:] == steps
    constant = ia.train(small_data, schedule="halving(times=0)", **settings)
    plain = ia.train(small_data, schedule="constant", **settings)
    for name, tensor in plain[0].state.items():
        assert torch.equal(constant[0].state[name], tensor)
        assert tensor.dim() == 1 or not torch.equal(bank[0].state[name], tensor)


def test_kernels_with_one_rate_for_an_epoch_are_not_chosen(
    make_job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = make_job("mlp(24)")
    job = replace(job, schedule=SCHEDULES.spec("onecycle"))
    assert choose(job, "auto", patience=False).engine == "mlp"  # on a CPU it has one per batch
    monkeypatch.setattr(Job, "device", property(lambda job: torch.device("cuda", 0)))
    monkeypatch.setattr("intarsia.training.engines.select.find_spec", lambda name: object())
    assert choose(job, "auto", patience=False).engine == "stack"
    with pytest.raises(RecipeError, match=r"one learning rate for all batches .* is onecycle"):
        choose(job, "mlp", patience=False)
    by_epoch = replace(job, schedule=SCHEDULES.spec("cosine"))
    assert choose(by_epoch, "auto", patience=False).engine == "mlp"
