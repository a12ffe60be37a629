"""What is found in passes over pieces is what a look at the whole tensor finds."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from intarsia.composition.operators import pieces
from intarsia.composition.operators.pieces import gram, gram_of, largest, sums


class Whole:
    """Tensors in memory, cut into pieces."""

    name, first = "w", 0

    def __init__(self, tensors: list[Tensor], step: int) -> None:
        self.tensors, self.step, self.entries = tensors, step, len(tensors[0])
        self.passes = 0

    @property
    def count(self) -> int:
        return -(-self.entries // self.step)

    def each(
        self, look: Callable[[list[Tensor], int], Any], every: int = 1
    ) -> Iterator[tuple[int, Any]]:
        self.passes += every == 1
        for start in range(0, self.entries, self.step * every):
            yield start, look([t[start : start + self.step] for t in self.tensors], start)


def chosen(tensor: Whole, counts: list[int], **options: Any) -> list[Tensor]:
    found = largest(tensor, list, counts, **options)
    parts: list[list[Tensor]] = [[] for _ in counts]
    for start in range(0, tensor.entries, tensor.step):
        for place, (own, series) in enumerate(zip(found, tensor.tensors, strict=True)):
            parts[place].append(own.of(series[start : start + tensor.step], start))
    return [torch.cat(part) for part in parts]


def by_sorting(series: Tensor, count: int) -> Tensor:
    kept = torch.zeros(len(series), dtype=torch.bool)
    kept[series.sort(descending=True, stable=True).indices[:count]] = True
    return kept


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.floats(0, 1e300)),
        min_size=1,
        max_size=60,
    ),
    st.integers(1, 17),
    st.floats(0, 1),
    st.integers(1, 8),
)
def test_the_largest_are_those_of_a_sort(
    values: list[tuple[float, float]], step: int, fraction: float, room: int
) -> None:
    """With equals in one series and few in the other, and no room, so that guesses are needed."""
    series = [torch.tensor(own, dtype=torch.float64) for own in zip(*values, strict=True)]
    count = int(fraction * len(values))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "ROOM", room)
        patch.setattr(pieces, "STRIDE", 2)
        kept = chosen(Whole(series, step), [count, len(values) - count])
    for own, many, where in zip(series, (count, len(values) - count), kept, strict=True):
        assert torch.equal(where, by_sorting(own, many))


def test_all_equals_stay_where_they_are_asked_for() -> None:
    series = torch.tensor([3.0, 1, 2, 2, 2, 0], dtype=torch.float64)
    assert chosen(Whole([series], 2), [2], equals=True)[0].tolist() == [1, 0, 1, 1, 1, 0]
    assert chosen(Whole([series], 2), [2])[0].tolist() == [1, 0, 1, 0, 0, 0]
    infinite = torch.tensor([torch.inf, 1, torch.inf], dtype=torch.float64)
    assert chosen(Whole([infinite], 2), [1])[0].tolist() == [1, 0, 0]


def test_a_large_tensor_is_searched_in_one_pass_with_little_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pieces, "ROOM", 1000)
    draws = torch.Generator().manual_seed(0)
    series = torch.randn(200_000, generator=draws, dtype=torch.float64).abs()
    for count in (2000, 100_000, 199_999):
        tensor = Whole([series], 1000)
        assert torch.equal(chosen(tensor, [count])[0], by_sorting(series, count))
        assert tensor.passes == 1
    # the sample says nothing of what is sorted by size inside the pieces; the search goes on
    tensor = Whole([series.sort().values], 1000)
    assert torch.equal(chosen(tensor, [70_000])[0], by_sorting(tensor.tensors[0], 70_000))
    frozen = Whole([torch.zeros(200_000, dtype=torch.float64)], 1000)
    assert torch.equal(chosen(frozen, [7])[0], by_sorting(frozen.tensors[0], 7))


def test_sums_and_products_of_pieces_are_those_of_the_whole() -> None:
    draws = torch.Generator().manual_seed(1)
    parts = [torch.randn(103, generator=draws, dtype=torch.float64) for _ in range(3)]
    tensor = Whole(parts, 10)
    torch.testing.assert_close(gram_of(tensor), torch.stack(parts) @ torch.stack(parts).T)
    torch.testing.assert_close(gram(parts), torch.stack(parts) @ torch.stack(parts).T)
    found = sums(tensor, lambda changes, start: [change.abs() for change in changes])
    assert found == pytest.approx([float(part.abs().sum()) for part in parts])
