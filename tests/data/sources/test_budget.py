"""Files that are none, that unpack to far more than they are, and numbers that no int64 holds."""

import gzip
import io
import os
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.small_data import zipped
from intarsia.data import load_data
from intarsia.data.sources import budget, formats
from intarsia.errors import DataError
from intarsia.limits import VARIABLE

X, Y = np.arange(60, dtype=np.float32).reshape(15, 4), np.arange(15) % 3


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget of a few numbers."""
    monkeypatch.setenv(VARIABLE, "numbers=100")


@pytest.mark.parametrize("name", ["d.npz", "d.csv", "d.parquet"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink(path, path)])
def test_what_is_no_file_is_refused_at_once(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    """A pipe that nobody writes to would be waited for without end."""
    make(tmp_path / name)
    with pytest.raises(DataError):
        load_data(tmp_path / name)


@pytest.mark.parametrize("read", [formats.read_idx, formats.untar])
def test_published_files_are_files(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="is a pipe: expected a file"):
        read(tmp_path / "pipe")


@pytest.mark.parametrize(
    "source", ["/dev/zero.csv", "x" * 300 + ".npz", "a\0b.csv", "y/" * 3000 + "d.csv"]
)
def test_paths_that_no_system_takes(tmp_path: Path, source: str) -> None:
    with pytest.raises(DataError):
        load_data(tmp_path / source)


def test_a_device_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "d.csv").symlink_to("/dev/zero")
    with pytest.raises(DataError, match="is a device"):
        load_data(tmp_path / "d.csv")


def test_a_bomb_is_counted_before_it_is_unpacked(tmp_path: Path) -> None:
    """Megabytes in kilobytes: what its headers say is refused, whether they lie or not."""
    path = tmp_path / "d.npz"
    np.savez_compressed(path, x=np.zeros((9_000_000, 4), np.uint8), y=Y)
    assert path.stat().st_size < 100_000
    budget.check_entries(36_000_060, 2**23, path)  # that many bytes may hold them
    with pytest.raises(DataError, match=f"36000060 numbers.*{VARIABLE}=numbers=36000060"):
        load_data(path)


@pytest.mark.usefixtures("little")
def test_the_limit_is_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "d.npz", x=np.zeros((3000, 4)), y=np.arange(3000) % 3)
    with pytest.raises(DataError, match="the limit 'numbers' is"):
        load_data(tmp_path / "d.npz")
    monkeypatch.setenv(VARIABLE, "numbers=24000")
    assert len(load_data(tmp_path / "d.npz").train) == 1920


@pytest.mark.parametrize(
    "shape", ["(10**12, 4)", "(1099511627776, 4)", "(-1, 4)", "(((", "(4, -4)"]
)
def test_an_array_has_the_bytes_that_its_shape_needs(tmp_path: Path, shape: str) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, y=Y)
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head)
    with pytest.raises(DataError, match=r"cannot be read as \.npz") as refused:
        load_data(path)
    assert not isinstance(refused.value.__cause__, MemoryError)


@pytest.mark.usefixtures("little")
def test_what_publishers_pack_is_counted(tmp_path: Path) -> None:
    zeros = bytes(100_000)
    (tmp_path / "idx").write_bytes(
        gzip.compress(b"\0\0\x08\x01" + struct.pack(">I", 10**5) + zeros)
    )
    with pytest.raises(DataError, match="would unpack to"):
        formats.read_idx(tmp_path / "idx")
    with tarfile.open(tmp_path / "tar", "w:gz") as archive:
        member = tarfile.TarInfo("data")
        member.size = len(zeros)
        archive.addfile(member, io.BytesIO(zeros))
    with pytest.raises(DataError, match="would unpack to"):
        formats.untar(tmp_path / "tar")
    with pytest.raises(DataError, match="would unpack to"):
        formats.unzip(zipped({"data": zeros}))


@pytest.mark.usefixtures("little")
def test_tables_and_pictures_are_counted(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    columns = {"a": np.zeros(10_000), "label": np.zeros(10_000, np.int8)}
    parquet.write_table(pyarrow.table(columns), tmp_path / "d.parquet", compression="zstd")
    with pytest.raises(DataError, match="would unpack to 50000 numbers"):
        load_data(tmp_path / "d.parquet")
    pillow = pytest.importorskip("PIL.Image")
    for name in "ab":
        (tmp_path / "pictures" / name).mkdir(parents=True)
        pillow.new("L", (200, 200)).save(tmp_path / "pictures" / name / "0.png")
    with pytest.raises(DataError, match="would unpack to 120000 numbers"):
        load_data(tmp_path / "pictures")
    with pytest.raises(DataError, match="would unpack to 3000000 numbers"):
        load_data(tmp_path / "pictures", size=1000)


@pytest.mark.parametrize(
    "label",
    [
        np.uint64(2**63),
        np.uint64(2**64 - 1),
        np.float64(2.0**63),
        np.float64(-1e300),
        np.float32(1e30),
    ],
)
def test_labels_beyond_64_bits_do_not_become_others(label: Any) -> None:
    y = np.array([label, 1, 2] * 5, dtype=label.dtype)
    with pytest.raises(DataError, match=r"beyond what 64 bits hold.*row 0"):
        load_data(X, y)


def test_the_largest_labels_stay(tmp_path: Path) -> None:
    y = np.array([2**63 - 1, -(2**63), 0] * 5)
    assert load_data(X, y).catalogue == (str(-(2**63)), "0", str(2**63 - 1))


@pytest.mark.parametrize("encoding", ["punycode", "hex", "idna", "no such", ["utf-8"]])
def test_an_encoding_that_is_none(tmp_path: Path, encoding: Any) -> None:
    (tmp_path / "d.csv").write_bytes(b"a,b\n1,|\xff\n2,y\n")
    with pytest.raises(DataError, match="encoding"):
        load_data(tmp_path / "d.csv", encoding=encoding)
