import gzip
from pathlib import Path

import numpy as np
import pytest

from intarsia.data.sources import formats
from intarsia.errors import DataError

RNG = np.random.default_rng(0)


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: b"",
        lambda raw: raw[:-9],
        lambda raw: b"plain text",
        lambda raw: raw[:20] + bytes([raw[20] ^ 255]) + raw[21:],
        lambda raw: gzip.compress(gzip.decompress(raw)[:-1]),
        lambda raw: gzip.compress(gzip.decompress(raw)[:6]),
        lambda raw: gzip.compress(b"\x00\x00\x0d" + gzip.decompress(raw)[3:]),
    ],
)
def test_damaged_idx_files(tmp_path: Path, idx, change) -> None:
    path = put(tmp_path / "f.gz", change(idx(RNG.integers(0, 256, (5, 4), np.uint8))))
    with pytest.raises(DataError, match=r"f\.gz"):
        formats.read_idx(path)
