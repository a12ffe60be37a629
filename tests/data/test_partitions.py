from itertools import chain, permutations
from math import comb

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import intarsia as ia
from intarsia.data import (
    class_means,
    disjoint_pairs,
    load_data,
    named_set,
    partition,
    set_name,
    ward_partition,
    ward_tasks,
)
from intarsia.data.partitions import read_sets
from intarsia.errors import DataError, RecipeError

TEN = tuple("abcdefghij")


def catalogue(n: int) -> tuple[str, ...]:
    return tuple(f"class {i}" for i in range(n))


def test_each_and_named_sets() -> None:
    assert partition(TEN[:3]) == [("a",), ("b",), ("c",)]
    assert partition(TEN, [["b", "a"], ("c",), "d"]) == [("b", "a"), ("c",), ("d",)]


@given(st.integers(1, 30), st.data())
def test_blocks_hold_every_class_once(n: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, n))
    blocks = partition(catalogue(n), f"blocks({size})", data.draw(st.integers(0, 9)))
    assert sorted(chain(*blocks)) == sorted(catalogue(n))
    assert all(len(block) == size for block in blocks[:-1])
    assert len(blocks) == -(-n // size)


@given(st.integers(1, 30), st.data())
def test_tasks_hold_every_class_once_and_are_of_one_size(n: int, data: st.DataObject) -> None:
    tasks, seed = data.draw(st.integers(1, n)), data.draw(st.integers(0, 9))
    for how in (f"random({tasks})", f"randperm({tasks}, {seed})"):
        sets = partition(catalogue(n), how, seed)
        assert sorted(chain(*sets)) == sorted(catalogue(n))
        assert len(sets) == tasks
        assert max(map(len, sets)) - min(map(len, sets)) <= 1
        order = [[catalogue(n).index(name) for name in own] for own in sets]
        assert order == [sorted(own) for own in order]


def test_random_tasks_follow_the_seed() -> None:
    sets = [partition(TEN, "random(5)", seed) for seed in (0, 0, 1)]
    assert sets[0] == sets[1] != sets[2]


def test_randperm_is_torchs_draw_cut_into_blocks() -> None:
    """Whatever the seed of the partition is: the draw has its own."""
    drawn = torch.randperm(100, generator=torch.Generator().manual_seed(200)).tolist()
    names = catalogue(100)
    expected = [
        tuple(names[i] for i in sorted(drawn[start : start + 20])) for start in range(0, 100, 20)
    ]
    assert partition(names, "randperm(5, 200)") == expected
    assert partition(names, "randperm(5, 200)", seed=7) == expected
    assert partition(names, "randperm(5, 100)") != expected


def test_ward_puts_near_classes_together() -> None:
    means = torch.tensor([[0.0, 0], [9, 9], [0.1, 0], [9, 9.1], [0, 5]])
    tasks = ward_tasks(TEN[:5], means, 3)
    assert sorted(tasks) == [("a", "c"), ("b", "d"), ("e",)]
    assert ward_tasks(TEN[:5], means, 1) == [TEN[:5]]
    with pytest.raises(DataError, match="makes 1 groups"):
        ward_tasks(TEN[:3], torch.zeros(3, 2), 2)
    with pytest.raises(DataError, match="6 tasks cannot be made of 5 classes"):
        ward_tasks(TEN[:5], means, 6)


def test_class_means_are_those_of_a_plain_loop() -> None:
    features, labels = torch.randn(20, 3), torch.arange(20) % 4
    means = class_means(features, labels, 5)
    for c in range(4):
        torch.testing.assert_close(means[c].float(), features[labels == c].mean(0))
    assert not means[4].any()


def test_ward_partition_reads_features_of_any_kind() -> None:
    """By a function that tells odd classes from even ones, the tasks are these."""
    labels = torch.arange(120) % 6
    x = torch.cat([labels[:, None].float(), torch.rand(120, 3)], dim=1)
    data = load_data(x.numpy(), labels.numpy())

    def odd(rows: torch.Tensor) -> torch.Tensor:
        return torch.stack([rows[:, 0] % 2, rows[:, 0] / 100], dim=1)

    sets = ward_partition(data, 2, features=odd)
    assert sorted(sets) == [("0", "2", "4"), ("1", "3", "5")]
    assert partition(data.catalogue, sets) == sets
    read = data.scaling(data.train.x)
    expected = ward_tasks(data.catalogue, class_means(read, data.train.y, 6), 3)
    assert ia.ward_partition(data, 3) == expected
    encoded = load_data(x.numpy(), labels.numpy(), features=odd)
    assert sorted(ward_partition(encoded, 2)) == sorted(sets)
    with pytest.raises(DataError, match=r"holds features of .* already"):
        ward_partition(encoded, 3, features=odd)


def test_blocks_follow_the_seed() -> None:
    blocks = [partition(TEN, "blocks(5)", seed) for seed in (0, 0, 1)]
    assert blocks[0] == blocks[1] != blocks[2]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("eahc", "did you mean 'each'"),
        ("blocks(0)", "blocks of 0"),
        ("blocks(11)", "cannot be cut from 10"),
        ("random(0)", "0 tasks cannot be made of 10 classes"),
        ("randperm(11, 100)", "11 tasks cannot be made of 10 classes"),
        ("randperm(5)", "unknown partition 'randperm\\(5\\)'"),
        ("random(5, 1)", "unknown partition"),
        (f"randperm(5, {2**63})", "is too large"),
        ([["a", "x"]], "class 'x' is not in the catalogue"),
        ([["a", "a"]], "distinct"),
        ([[]], "distinct"),
        ([], "at least one set"),
    ],
)
def test_bad_partitions(how: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        partition(TEN, how)


def test_numbers_are_the_names_they_are_written_as() -> None:
    digits = tuple("0123")
    assert partition(digits, [3, [0, "1"]]) == [("3",), ("0", "1")]  # type: ignore[list-item]


@pytest.mark.parametrize("how", [3, None, {"a": "b"}, [None], [["a"], 1.5]])
def test_partitions_of_another_type(how: object) -> None:
    with pytest.raises(RecipeError, match=r"expected .*list"):
        partition(TEN, how)  # type: ignore[arg-type]


def test_bad_catalogues() -> None:
    for names in ((), ("a", "a")):
        with pytest.raises(DataError, match="distinct class names"):
            partition(names)


@given(st.integers(2, 9), st.data())
def test_pairs_are_disjoint_distinct_and_as_many_as_possible(n: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, n // 2))
    count = data.draw(st.integers(1, 25))
    pairs = disjoint_pairs(catalogue(n), size, count, data.draw(st.integers(0, 5)))
    possible = comb(n, size) * comb(n - size, size) // 2
    assert len(pairs) == min(count, possible)
    assert len({frozenset((frozenset(a), frozenset(b))) for a, b in pairs}) == len(pairs)
    for a, b in pairs:
        assert len(a) == len(b) == size
        assert len({*a, *b} & set(catalogue(n))) == 2 * size


def test_all_pairs_of_halves_come_out() -> None:
    assert len(disjoint_pairs(TEN, 5, count=10_000)) == comb(10, 5) // 2


def test_pairs_follow_the_seed() -> None:
    assert disjoint_pairs(TEN, 2) == disjoint_pairs(TEN, 2) != disjoint_pairs(TEN, 2, seed=1)


@pytest.mark.parametrize(("size", "count"), [(0, 1), (6, 1), (1, 0)])
def test_bad_pairs(size: int, count: int) -> None:
    with pytest.raises(DataError, match=r"disjoint sets|number of pairs"):
        disjoint_pairs(TEN, size, count)


ODD = ["a", "b", "a+b", "C++", "Java", '"C++"+Java', '"a"', "x,y", "x", "y", "back\\slash", " a"]


def test_names_of_sets_are_told_apart_and_read_back() -> None:
    names: dict[str, tuple[str, ...]] = {}
    for size in (1, 2, 3):
        for classes in permutations(ODD, size):
            name = set_name(classes, ODD)
            assert names.setdefault(name, classes) == classes
            assert tuple(named_set(name, ODD)) == classes
    assert set_name(["C++"], ODD) == "C++"
    assert set_name(["a+b"], ODD) == '"a+b"'
    assert set_name(["a+b"], ["a+b", "c"]) == "a+b"
    assert set_name(["0", "1"], ["0", "1"]) == "0+1"
    assert named_set("d", ODD) == []


@given(st.lists(st.lists(st.text(min_size=1), min_size=1, max_size=3), min_size=1, max_size=3))
def test_every_name_can_be_typed(sets: list[list[str]]) -> None:
    def quoted(name: str) -> str:
        return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"

    words = ",".join("+".join(map(quoted, names)) for names in sets)
    assert read_sets(words, "--partition") == sets
    for names in sets:
        if len(names) > 1:
            assert read_sets(set_name(names, ()), "--partition") == [names]


@pytest.mark.parametrize("words", ["C++", "a,,b", "'a", '"a"b', "", "+a"])
def test_words_without_a_name_say_how_to_quote(words: str) -> None:
    with pytest.raises(RecipeError, match=r"are quoted"):
        read_sets(words, "--partition")


def test_means_that_are_no_numbers_are_refused() -> None:
    means = torch.tensor([[0.0], [1.0], [float("nan")]])
    with pytest.raises(DataError, match="features of class 'c' are not finite"):
        ward_tasks("abc", means, 2)


@pytest.mark.parametrize("how", ["randperm(2, {})", "randperm({}, 1)", "blocks({})", "random({})"])
def test_numbers_of_thousands_of_digits_are_refused(how: str) -> None:
    with pytest.raises(DataError, match="a number of 5000 digits"):
        partition("abc", how.format("9" * 5000))
