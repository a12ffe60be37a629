"""Means over states that pruned different units, by hand."""

import math

import pytest
import torch

from intarsia.modules.statistics import (
    is_finite,
    joint_buffer,
    mean_where,
    sibling_name,
    total,
)

A, B = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([5.0, 8.0, 7.0])


def test_a_mean_is_over_those_that_keep_the_entry_or_over_all() -> None:
    kept = [torch.tensor([True, True, False]), torch.tensor([True, False, False])]
    assert mean_where([A, B], kept, [1.0, 1.0]).tolist() == [3.0, 2.0, 5.0]
    assert mean_where([A, B], kept, [3.0, 1.0]).tolist() == [2.0, 2.0, 4.0]
    assert mean_where([B, A], kept[::-1], [1.0, 3.0]).tolist() == [2.0, 2.0, 4.0]


def test_a_mean_keeps_the_type_of_its_tensors() -> None:
    kept = [torch.ones(3, dtype=torch.bool)] * 2
    assert mean_where([A.half(), B.half()], kept, [1.0, 1.0]).dtype == torch.float16


def test_a_running_statistic_is_averaged_where_its_gain_is_not_pruned() -> None:
    states = [
        {"norm.running_mean": A, "norm.weight": torch.tensor([1.0, 0.0, 0.0])},
        {"norm.running_mean": B, "norm.weight": torch.tensor([-0.5, 2.0, 0.0])},
    ]
    assert joint_buffer("norm.running_mean", states, [1.0, 1.0]).tolist() == [3.0, 8.0, 5.0]
    assert joint_buffer("norm.running_mean", states, [3.0, 1.0]).tolist() == [2.0, 8.0, 4.0]


@pytest.mark.parametrize("gain", [None, torch.tensor([0.0]), torch.zeros(3, 2)])
def test_without_a_gain_per_unit_all_states_count(gain: torch.Tensor | None) -> None:
    states = [{"running_mean": A}, {"running_mean": B}]
    if gain is not None:
        states = [state | {"weight": gain} for state in states]
    assert joint_buffer("running_mean", states, [1.0, 3.0]).tolist() == [4.0, 6.5, 6.0]


def test_of_counts_the_largest_is_taken() -> None:
    counts = (torch.tensor(4), torch.tensor(9), torch.tensor(6))
    states = [{"norm.num_batches_tracked": count} for count in counts]
    assert int(joint_buffer("norm.num_batches_tracked", states, [1.0, 1.0, 1.0])) == 9


def test_names_within_a_layer() -> None:
    assert sibling_name("a.b.weight", "running_mean") == "a.b.running_mean"
    assert sibling_name("weight", "bias") == "bias"


def test_a_sum_is_taken_in_order() -> None:
    """In float32 1e8 swallows a 1 that comes after it, and not one that comes before its end."""
    large, one = torch.tensor([1e8]), torch.tensor([1.0])
    assert float(total([large, one, -large])) == 0
    assert float(total([large, -large, one])) == 1
    assert total([A]) is A


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str
)
def test_what_is_not_finite_is_seen_wherever_it_is(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    for count in (1, 7, 64, 1001):
        numbers = torch.linspace(-1, 1, count).to(dtype)
        assert is_finite(numbers)
        assert is_finite(torch.full_like(numbers, largest))  # though their sum is not
        for bad in (math.nan, math.inf, -math.inf):
            for place in {0, count // 2, count - 1}:
                spoiled = numbers.clone()
                spoiled[place] = bad
                assert not is_finite(spoiled)
    both = torch.tensor([math.inf, -math.inf], dtype=dtype)
    assert not is_finite(both)
    assert is_finite(torch.zeros(0, dtype=dtype))
    assert is_finite(torch.arange(3))
    assert is_finite(torch.ones(3, dtype=dtype, requires_grad=True))
