"""Encodings keep survivors bit for bit and refuse indices that do not add up."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.errors import FileError
from intarsia.modules.architecture import TensorSpec
from intarsia.modules.file import decode, encode

SPECIAL = [0.0, -0.0, 1.5, -3e-42, 3.4e38]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(SPECIAL)), max_size=60),
    st.integers(0, 600),
    st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]),
)
def test_round_trip_is_bit_exact(
    cells: list[tuple[bool, float]], pruned_first: int, dtype: torch.dtype
) -> None:
    keep = torch.tensor([False] * pruned_first + [keep for keep, _ in cells], dtype=torch.bool)
    values = torch.tensor([0.0] * pruned_first + [v if k else 0.0 for k, v in cells])
    values = torch.nan_to_num(values.to(dtype))
    entry, stored = encode("w", values, keep)
    expected = TensorSpec(tuple(values.shape), dtype, True)
    tensor, mask = decode("w", entry["encoding"], expected, stored)
    assert mask is not None
    assert torch.equal(mask, keep)
    width = {2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]
    assert torch.equal(tensor.view(width), values.view(width))


@pytest.mark.parametrize(
    ("places", "size", "encoding", "dtype"),
    [
        ([3, 258], 10_000, "gaps", torch.uint8),  # largest gap 254
        ([3, 259], 10_000, "gaps", torch.uint8),  # 255, the last that fits
        ([3, 260], 10_000, "gaps", torch.uint16),
        ([65_535], 1_000_000, "gaps", torch.uint16),  # the last that fits
        ([65_536], 1_000_000, "gaps", torch.int32),
        ([70_000], 1_000_000, "gaps", torch.int32),
        ([0, 1], 16, "bits", torch.uint8),  # as small as two gaps
        ([0, 1], 17, "gaps", torch.uint8),
        ([], 10_000, "gaps", torch.uint8),
        (range(0, 64, 2), 64, "bits", torch.uint8),
    ],
)
def test_smallest_encoding_wins(
    places: list[int], size: int, encoding: str, dtype: torch.dtype
) -> None:
    mask = torch.zeros(size, dtype=torch.bool)
    mask[list(places)] = True
    entry, stored = encode("w", mask.float(), mask)
    assert entry == {"shape": [size], "encoding": encoding}
    assert stored[f"w/{encoding}"].dtype == dtype
    index_bytes = stored[f"w/{encoding}"].nbytes
    assert index_bytes <= min(math.ceil(size / 8), len(places) * dtype.itemsize or 1)


def test_without_mask_the_tensor_is_whole() -> None:
    tensor = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    entry, stored = encode("w", tensor, None)
    assert (entry["encoding"], list(stored)) == ("dense", ["w"])
    assert torch.equal(stored["w"], tensor)


def test_indices_at_the_edge_are_read() -> None:
    spec = TensorSpec((10,), torch.float32, True)
    _, mask = decode("w", "gaps", spec, _gaps(0, 8))
    assert mask is not None
    assert mask.nonzero().flatten().tolist() == [0, 9]
    tensor, mask = decode("w", "bits", spec, _bits(0b10000000, 0b01000000))
    assert mask is not None
    assert tensor.nonzero().flatten().tolist() == mask.nonzero().flatten().tolist() == [0, 9]
    _, mask = decode("w", "gaps", spec, _gaps(values=0))
    assert mask is not None
    assert not mask.any()


def _gaps(*gaps: int, values: int = 2, dtype: str = "uint8") -> dict[str, torch.Tensor]:
    return {
        "w/values": torch.ones(values),
        "w/gaps": torch.from_numpy(np.array(gaps, dtype=dtype)),
    }


def _bits(*bits: int, values: int = 2) -> dict[str, torch.Tensor]:
    return {"w/values": torch.ones(values), "w/bits": torch.tensor(bits, dtype=torch.uint8)}


@pytest.mark.parametrize(
    ("encoding", "stored", "message"),
    [
        ("gaps", _gaps(0, 9), "lead to entry 10 of 10"),
        ("gaps", _gaps(0, 1, 1), "2 values but 3 gaps"),
        ("gaps", _gaps(0, -1, dtype="int32"), "negative gap"),
        ("gaps", _gaps(0, 1, dtype="int64"), "gaps of type torch.int64"),
        ("gaps", _gaps(0, 1) | {"w/gaps": torch.zeros(2, 1, dtype=torch.uint8)}, "gaps of type"),
        ("gaps", _gaps(10, values=1), "lead to entry 10 of 10"),
        ("bits", _bits(1, 2, 3), r"shape \(3,\)"),
        ("bits", _bits(0b11, 0) | {"w/bits": torch.zeros(2, dtype=torch.int8)}, "torch.int8"),
        ("bits", _bits(0b11100000, 0, values=4), "4 values but 3 bits"),
        ("gaps", _gaps(2**31 - 1, 2**31 - 1, dtype="int32"), "lead to entry"),
        ("bits", _bits(0b11000000), "shape \\(1,\\)"),
        ("bits", _bits(0b11100000, 0), "2 values but 3 bits"),
        ("bits", _bits(0b10000000, 0b00100000), "beyond its last entry"),
        ("gaps", _gaps(0, 1) | {"w/values": torch.ones(2, 1)}, "expected one row"),
        ("gaps", _gaps(0, 1) | {"w/values": torch.ones(2).double()}, "float64"),
        ("dense", {"w": torch.ones(9)}, "expected \\(10,\\)"),
        ("zip", {}, "unknown encoding 'zip'"),
    ],
)
def test_inconsistent_encodings_are_refused(
    encoding: str, stored: dict[str, torch.Tensor], message: str
) -> None:
    with pytest.raises(FileError, match=message):
        decode("w", encoding, TensorSpec((10,), torch.float32, True), stored)
