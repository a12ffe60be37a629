import hashlib
import json

import numpy as np
import pytest
import torch

from intarsia.data import Data, Split, load_data, subsample
from intarsia.errors import DataError


def split(rows: int, seed: int) -> Split:
    generator = torch.Generator().manual_seed(seed)
    return Split(torch.randn(rows, 3, generator=generator), torch.arange(rows) % 2)


def test_select_keeps_rows_and_labels() -> None:
    x, y = torch.arange(6.0)[:, None], torch.tensor([0, 1, 2, 1, 0, 2])
    chosen = Split(x, y).select([2, 0])
    assert chosen.x.flatten().tolist() == [0, 2, 4, 5]
    assert chosen.y.tolist() == [0, 2, 0, 2]
    assert len(Split(x, y).select([])) == 0


def test_labels_are_matched_by_name() -> None:
    x, y = torch.arange(4.0)[:, None], torch.tensor([0, 1, -1, 1])
    named = Split(x, y, ("b", "d"))
    assert named.over(("a", "b", "c", "d")).y.tolist() == [1, 3, -1, 3]
    assert named.select([0]).over(("a", "b")).y.tolist() == [1]
    assert named.labels_in(("d", "e")).tolist() == [-1, 0, -1, 0]
    assert Split(x, y).over(("a", "b")).y is y
    with pytest.raises(DataError, match="class 'd', which is not in the model's catalogue"):
        named.over(("a", "b"))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_labels_of_any_whole_number_are_matched_by_name(dtype: torch.dtype) -> None:
    y = torch.tensor([1, 0, 1])
    narrow = Split(torch.zeros(3, 2), y.to(dtype), ("a", "b"))
    assert narrow.labels_in(("b", "c", "a")).tolist() == [0, 2, 0]
    assert narrow.over(("b", "c", "a")).y.dtype == torch.int64


def test_splits_of_data_know_their_classes() -> None:
    data = Data.build("a", ("x", "y"), *(split(8, i) for i in range(3)), "standard")
    for part in (data.train, data.validation, data.test, subsample(data.test, 3)):
        assert part.catalogue == ("x", "y")


def test_few_rows_are_evenly_spaced() -> None:
    x, y = torch.arange(10.0)[:, None], torch.arange(10)
    less = subsample(Split(x, y), 4)
    assert less.x.flatten().tolist() == less.y.tolist() == [0, 2, 5, 7]
    assert subsample(Split(x, y), 20).y.tolist() == list(range(10))


def test_digest_is_of_the_contents() -> None:
    parts = [split(8, i) for i in range(3)]
    data = Data.build("a", ("x", "y"), *parts, "standard")
    sha = hashlib.sha256(json.dumps([["x", "y"], "standard"]).encode())
    for part in parts:
        for array in (part.x.numpy().astype("<f4"), part.y.numpy().astype("<i8")):
            sha.update(json.dumps([array.dtype.str, list(array.shape)]).encode() + array.tobytes())
    assert data.digest == sha.hexdigest()


def test_digest_tells_data_apart() -> None:
    parts = [split(8, i) for i in range(3)]
    base = Data.build("a", ("x", "y"), *parts, "standard").digest
    assert Data.build("other name", ("x", "y"), *parts, "standard").digest == base
    flipped = Split(parts[2].x, 1 - parts[2].y)
    others = [
        Data.build("a", ("y", "x"), *parts, "standard"),
        Data.build("a", ("x", "y"), *parts, "unit"),
        Data.build("a", ("x", "y"), parts[1], parts[0], parts[2], "standard"),
        Data.build("a", ("x", "y"), parts[0], parts[1], flipped, "standard"),
    ]
    assert len({base, *(data.digest for data in others)}) == 5


def test_digest_follows_the_seed_and_not_the_memory_layout() -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 5)), np.arange(40) % 2
    assert load_data(x, y).digest == load_data(np.asfortranarray(x), y).digest
    assert load_data(x, y).digest != load_data(x, y, seed=1).digest


def test_digest_of_digits_is_the_same_everywhere() -> None:
    assert load_data("digits").digest == (
        "d84e57ba9c5c81f72dcf2e618a7d20e46c08533d6a5a9ea9084abcddfa8c45bf"
    )


def test_shape_classes_and_a_short_repr() -> None:
    data = load_data("digits")
    assert data.shape == (1, 8, 8)
    assert data.classes == 10
    assert len(repr(data)) < 200
    assert "1150" in repr(data)
    assert "uint8" not in repr(data.train)


def test_options_are_those_that_were_not_the_defaults() -> None:
    x, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
    plain = load_data(x, y)
    assert plain.options == {} == load_data(x, y, test=0.2, seed=0, download=False).options
    given = load_data(x, y, validation=np.float64(0.25), scale="unit", classes=np.array([2, 0]))
    assert given.options == {"validation": 0.25, "scale": "unit", "classes": [2, 0]}
    json.dumps(given.options)
    assert load_data(x, y, **given.options).digest == given.digest != plain.digest
    assert load_data(given).options == given.options
