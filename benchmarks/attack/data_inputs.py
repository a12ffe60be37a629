"""Data files: arrays, tables, pictures and published archives, damaged, hostile and huge."""

import bz2
import gzip
import io
import os
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks.attack import mutations
from benchmarks.attack.surface import Input, Maker, Surface
from benchmarks.small_data import zipped
from intarsia.data import DATASETS, load_data
from intarsia.data.sources import formats

BLOCK = 2**22  # zeros that are compressed once and then repeated
ROWS = (10**6, 5 * 10**7)  # of tables that take few bytes
CELLS = (
    "",
    " ",
    "?",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "1e-999",
    "9" * 5000,
    "0x1f",
    "1_0",
    "é",
    "\x00",
    "\x1b[31m",
    '"',
    '""',
    '"a',
    "a,b",
    "\t",
    ";",
    "\ud7ff",
    "18446744073709551616",
    "9223372036854775808",
    "-0",
    "True",
    "2001-01-01",
    "=1+1",
    "x" * 140_000,
)
OPTIONS = (
    "validation",
    "test",
    "seed",
    "scale",
    "classes",
    "labels",
    "target",
    "encoding",
    "missing",
    "size",
)


def surfaces(folder: Path) -> list[Surface]:
    folder.mkdir(parents=True, exist_ok=True)
    kinds: dict[str, Maker] = {
        "npz: bits and bytes": _damaged("d.npz", npz(_arrays())),
        "npz: headers of arrays": _npz_headers,
        "npz: odd arrays": _npz_arrays,
        "npz: zip bombs and sizes": _npz_bombs,
        "csv: bits and bytes": _damaged("d.csv", _csv().encode()),
        "csv: cells, lines, encodings": _csv_cells,
        "published: idx, zip, tar": _published,
        "not an ordinary file": _odd_path,
        "options": _options,
    }
    if find_spec("pyarrow") is not None:
        for rows in ROWS:  # before processes are forked, which then have them
            _repeated(rows)
        kinds["parquet: bits and bytes"] = _damaged("d.parquet", parquet())
        kinds["parquet: odd tables"] = _parquet_tables
    if find_spec("PIL") is not None:
        kinds["pictures: bits and bytes"] = _pictures_damaged
        kinds["pictures: sizes and modes"] = _pictures_odd
    return [Surface("data files", kinds, weight=4)]


def _loading(path: Any, **options: Any) -> Input:
    """Read it as a table or arrays; there is no seal, so what can be read is right."""
    return Input(lambda: str(load_data(path, progress=False, download=False, **options)))


def _damaged(name: str, content: bytes) -> Maker:
    def make(chance: Random, place: Path) -> Input:
        how = chance.choice(
            [
                mutations.flip,
                mutations.damage,
                lambda c, b: mutations.raw(c, (b"", b"PK\x03\x04", b"PAR1", b"\x93NUMPY")),
            ]
        )
        (place / name).write_bytes(how(chance, content))
        return _loading(place / name)

    return make


# npz


def _arrays() -> dict[str, np.ndarray]:
    chance = np.random.default_rng(0)
    return {"x": chance.normal(size=(30, 4)).astype(np.float32), "y": np.arange(30) % 3}


def npz(arrays: dict[str, np.ndarray]) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def _npz_headers(chance: Random, place: Path) -> Input:
    """The text that says which type and shape an array has, written by someone else."""
    shape = chance.choice(
        [
            "(30, 4)",
            "(30,)",
            "(10**9, 10**9)",
            "(1000000000000,)",
            "(-1, 4)",
            "(30, 4, 0)",
            "(2**62,)",
            "()",
            "(4611686018427387904, 4)",
            "30",
            "(30.0, 4)",
            "'a'",
            "(True, 4)",
            "(" * 200,
            "(" + "9" * 5000 + ",)",
            "(30, 4" + ", 1" * 70 + ")",
            "(800000000,)",
        ]
    )
    kind = chance.choice(
        [
            "'<f4'",
            "'<f8'",
            "'|O'",
            "'<U9'",
            "'<U999999999'",
            "'|S0'",
            "'|V8'",
            "'<c16'",
            "'<M8[ns]'",
            "'>i8'",
            "'<u8'",
            "'|b1'",
            "'<f2'",
            "'nonsense'",
            "None",
            "[('a', '<f4')]",
            "[('a', '|O')]",
            "('<f4', (2,))",
            "__import__('os')",
            "{}",
            "'" + "x" * 9000,
        ]
    )
    order = chance.choice(["False", "True", "1", "None", "[]"])
    head = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}"
    head = chance.choice([head] * 6 + [head[:-1], "{" + head, "[]", "", "\x00" * 40])
    version = chance.choice([b"\x01\x00"] * 4 + [b"\x02\x00", b"\x03\x00", b"\x09\x09"])
    text = head.encode("latin-1", "replace") + b"\n"
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", min(len(text), 65535))
    array = b"\x93NUMPY" + version + size + text + chance.randbytes(chance.choice([0, 16, 480]))
    good = npz({"y": _arrays()["y"]})
    path = place / "d.npz"
    with zipfile.ZipFile(io.BytesIO(good)) as old, zipfile.ZipFile(path, "w") as new:
        new.writestr("y.npy", old.read("y.npy"))
        new.writestr(chance.choice(["x.npy", "x", "x.npy", "../x.npy", "x\x1b[31m.npy"]), array)
        if chance.random() < 0.1:
            new.writestr("classes.npy", array)
    return _loading(path)


def _npz_arrays(chance: Random, place: Path) -> Input:
    """Sound files of arrays that nobody should train on."""
    arrays = _arrays()
    y: list[Any] = [
        np.full(30, 2**63, np.uint64),
        2**64 - 1 - np.arange(30, dtype=np.uint64),
        np.full(30, -(2**63)),
        np.arange(30) * 2.0**62,
        np.full(30, np.nan),
        np.array(["a", "b", mutations.ESCAPES] * 10),
        np.array([b"\xff", b"b", b"c"] * 10),
        np.arange(30) % 3 == 0,
        np.zeros(30, np.int64),
        np.arange(30),
        np.zeros((30, 1), np.int64),
        np.zeros((30, 2)),
        np.array(3),
        np.zeros(0),
        np.array(["2001-01-01", "2002-01-01", "NaT"] * 10, "M8[D]"),
        np.zeros(30, complex),
        np.zeros(30, [("a", "f4")]),
        np.array(["a\0b", "\ud800", ""] * 10),
        np.array(["x" * 100_000, "b", "c"] * 10),
        np.array(["1e400", "2", "3"] * 10),
        np.array(["1" + "0" * 400, "2", "nan"] * 10),
        np.float16(np.arange(30) % 3),
        np.longdouble(np.arange(30) % 3),
        np.array([2.0**63, 0, 1] * 10),
        np.array([1e300, 0, 1] * 10),
    ]
    x: list[Any] = [
        np.zeros((30, 0)),
        np.zeros((0, 4)),
        np.full((30, 4), np.nan),
        np.full((30, 4), 1e300),
        np.full((30, 4), np.inf),
        np.zeros((30, 4, 4, 4, 4)),
        np.zeros((30, 8, 8), np.uint8),
        np.zeros((30, 3, 8, 8)),
        np.full((30, 4), 2**63, np.uint64),
        np.full((30, 4), -(2**63)),
        np.full((30, 4), 3 + 4j),
        np.full((30, 4), "a"),
        np.zeros((30, 4), bool),
        np.zeros((29, 4)),
        np.zeros(30),
        np.float64(3),
        np.zeros((30, 4), "M8[s]"),
        np.zeros((30, 4), np.float16),
        np.full((30, 4), np.longdouble("1e4000")),
        np.zeros((30, 4), [("a", "f4")]),
        np.full((30, 4), 1e-310),
        np.array([[1e38, -1e38, 3e38, -3e38]] * 30, np.float32),
        np.asfortranarray(np.ones((30, 4), ">f4")),
    ]
    classes: list[Any] = [
        np.array(["a", "b", "c"]),
        np.array(["a", "a", "b"]),
        np.array([]),
        np.array([1, 2, 3]),
        np.array("a"),
        np.array(["a", "b"]),
        np.zeros((2, 2)),
        np.array([str(i) for i in range(100_000)]),
    ]
    for key, values in (("y", y), ("x", x), ("classes", classes)):
        if chance.random() < 0.5:
            arrays[key] = chance.choice(values)
    if chance.random() < 0.3:
        names = [
            "x_train",
            "y_train",
            "x_test",
            "y_test",
            "X",
            mutations.ESCAPES,
            "y",
            "../x",
            "x" * 300,
        ]
        arrays[chance.choice(names)] = arrays[chance.choice(list(arrays))]
    path = place / "d.npz"
    with np.errstate(all="ignore"):
        path.write_bytes(npz(arrays))
    return _loading(
        path,
        **chance.choice(
            [
                {},
                {},
                {"target": "y"},
                {"target": -1},
                {"target": 9},
                {"missing": "mean"},
                {"classes": ["0", "1"]},
                {"scale": "standard"},
            ]
        ),
    )


def _npz_bombs(chance: Random, place: Path) -> Input:
    """A few hundred kilobytes that unpack to gigabytes, or say that they do."""
    path = place / "d.npz"
    count = chance.choice([0.25, 1.5, 3, 6]) * 2**30 // 16
    count = int(count)
    table, flags = _npy_head((count, 4), "<f4"), _npy_head((count * 4,), "|b1")
    kind = chance.randrange(5)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as new:
        if kind == 0:
            _write_deflated(new, "x.npy", table, count * 16)
        elif kind == 1:
            _write_deflated(new, "x.npy", table, count * 16, stated=600)
        elif kind == 2:
            for number in range(chance.choice([20, 3000])):
                new.writestr(f"x{number}.npy", _npy_head((1000, 1000), "<f8"))
        elif kind == 3:
            for number in range(8):
                _write_deflated(
                    new, f"{'xyab'[number % 4]}{number // 4 or ''}.npy", flags, count * 4
                )
        else:
            new.writestr("x.npy", _npy_head((2**40, 4), "<f4") + bytes(500))
        new.writestr("y.npy", _npy_head((30,), "<i8") + np.arange(30).tobytes())
    content = path.read_bytes()
    if kind == 4 and chance.random() < 0.5:  # the size that the list of contents has
        place_of = content.rfind(b"PK\x01\x02")
        path.write_bytes(content[: place_of + 24] + b"\xff\xff\xff\x7f" + content[place_of + 28 :])
    return _loading(path)


def _npy_head(shape: tuple[int, ...], kind: str) -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text + b"\n"


def _deflated(head: bytes, zeros: int) -> bytes:
    """A head and at least so many zeros, compressed: one block of them, repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(BLOCK)) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + block * -(-zeros // BLOCK) + packer.flush()


@cache
def _check_sum(head: bytes, zeros: int) -> int:
    """Of a head and zeros, as a zip has it; not computed where it comes too late to matter."""
    total = zlib.crc32(head)
    for _ in range(zeros // BLOCK if zeros <= 2**29 else 0):
        total = zlib.crc32(bytes(BLOCK), total)
    return total


def _write_deflated(
    archive: zipfile.ZipFile, name: str, head: bytes, zeros: int, stated: int | None = None
) -> None:
    """A member of a head and zeros, which says that it has so many bytes."""
    raw, info = _deflated(head, zeros), zipfile.ZipInfo(name)
    info.file_size = min(len(head) + zeros, 2**32 - 1) if stated is None else stated
    info.compress_type, info.compress_size = zipfile.ZIP_DEFLATED, len(raw)
    info.CRC = _check_sum(head, zeros)
    info.header_offset = archive.fp.tell()
    archive.fp.write(info.FileHeader(zip64=False) + raw)
    archive.filelist.append(info)
    archive.NameToInfo[name] = info
    archive.start_dir = archive.fp.tell()
    archive._didModify = True


# tables


def _csv() -> str:
    rows = [f"{i / 7:.3f},{i % 5},{(i * i) % 11},{'abc'[i % 3]}" for i in range(30)]
    return "\n".join(["first,second,third,label", *rows]) + "\n"


def _csv_cells(chance: Random, place: Path) -> Input:
    rows = [line.split(",") for line in _csv().splitlines()]
    for _ in range(chance.randint(1, 4)):
        row = chance.choice(rows)
        kind = chance.randrange(6)
        if kind <= 2 and row:
            row[chance.randrange(len(row))] = chance.choice(CELLS)
        elif kind == 3:
            row.extend(chance.choice(CELLS) for _ in range(chance.choice([1, 5, 3000])))
        elif kind == 4:
            row.clear()
        else:
            rows[:] = chance.choice(
                [rows[:1], rows[1:], rows * 2, rows[:2], [], rows[::-1], [r[-1:] for r in rows]]
            )
        rows = rows or [[""]]
    parted = chance.choice([",", ",", ",", ";", "\t", "|", " "])
    text = chance.choice(["\n", "\n", "\r\n", "\r", "\0"]).join(parted.join(row) for row in rows)
    encoding = chance.choice(
        ["utf-8", "utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-16-le", "utf-32", "utf-7"]
    )
    path = place / chance.choice(["d.csv", "d.CSV", "\x1b[31md.csv"])
    path.write_bytes(text.encode(encoding, "replace"))
    options: dict[str, Any] = chance.choice(
        [
            {},
            {},
            {},
            {"target": "label"},
            {"target": chance.choice(mutations.NAMES)},
            {"target": chance.choice([0, -1, 99, 2**70])},
            {"missing": "mean"},
            {"missing": "most_frequent"},
            {
                "encoding": chance.choice(
                    [
                        "utf-16",
                        "rot13",
                        "hex",
                        "zlib",
                        "idna",
                        "punycode",
                        "undefined",
                        "unicode_escape",
                        "x\0",
                        "",
                        "mbcs",
                    ]
                )
            },
        ]
    )
    return _loading(path, **options)


def parquet(columns: dict[str, Any] | None = None, **settings: Any) -> bytes:
    import pyarrow
    from pyarrow import parquet as writer

    chance = np.random.default_rng(0)
    columns = columns or {
        "a": chance.normal(size=30),
        "b": np.arange(30),
        "label": ["x", "y", "z"] * 10,
    }
    content = io.BytesIO()
    writer.write_table(pyarrow.table(columns), content, **settings)
    return content.getvalue()


def _parquet_tables(chance: Random, place: Path) -> Input:
    import pyarrow as pa

    n = 30
    odd: list[Any] = [
        pa.array([None] * n),
        pa.array([[1, 2]] * n),
        pa.array([{"a": 1}] * n),
        pa.array([b"\xff"] * n),
        pa.array([2**63] * n, pa.uint64()),
        pa.array([1.5, None, float("nan")] * 10),
        pa.array(["a", None, "b"] * 10),
        pa.array([True, False, None] * 10),
        pa.array([0] * n, pa.timestamp("ns")),
        pa.array(["a", "b", "c"] * 10).dictionary_encode(),
        pa.array([0] * n, pa.duration("s")),
        pa.array(["1" * 5000] * n),
        pa.array([1e308] * n),
        pa.array([mutations.ESCAPES, "b", "c"] * 10),
        pa.array([10**37] * n, pa.decimal128(38, 0)),
        pa.array([10**70] * n, pa.decimal256(76, 0)),
        pa.array([2**63, 0, 1] * 10, pa.uint64()),
        pa.array([0.5, 1, 2] * 10),
        pa.array([1] * n, pa.date32()),
        pa.array([0] * n, pa.time32("s")),
        pa.array([2**64 - 1, 0, 1] * 10, pa.uint64()),
        pa.array([10**30, 1, 2] * 10, pa.decimal128(38, 0)),
        pa.array([1.0, 2.0, 3.0] * 10, pa.float16()),
        pa.nulls(n),
    ]
    columns = {
        "a": pa.array(np.arange(n) / 3),
        "b": pa.array(np.arange(n)),
        "label": pa.array(["x", "y", "z"] * 10),
    }
    columns[chance.choice(["a", "label", "label", mutations.ESCAPES, "", "__index_level_0__"])] = (
        chance.choice(odd)
    )
    path = place / "d.parquet"
    if chance.random() < 0.15:  # rows that repeat take no room: a table of gigabytes in kilobytes
        rows = chance.choice(ROWS)
        path.write_bytes(_repeated(rows))
    else:
        path.write_bytes(
            parquet(columns, compression=chance.choice(["none", "snappy", "gzip", "zstd"]))
        )
    return _loading(
        path, **chance.choice([{}, {}, {"target": "a"}, {"target": "label"}, {"missing": "mean"}])
    )


@cache
def _repeated(rows: int) -> bytes:
    """A parquet file of so many equal rows, written group by group."""
    import pyarrow as pa
    from pyarrow import parquet as writer

    group = min(rows, 10**6)
    table = pa.table(
        {
            "a": np.zeros(group, np.float32),
            "b": np.zeros(group, np.float32),
            "label": np.zeros(group, np.int8),
        }
    )
    content = io.BytesIO()
    with writer.ParquetWriter(content, table.schema, compression="zstd") as out:
        for _ in range(rows // group):
            out.write_table(table)
    return content.getvalue()


# pictures


def _folder_of_pictures(chance: Random, place: Path, ending: str) -> list[Path]:
    from PIL import Image

    paths = []
    for name in ("cat", "dog"):
        (place / "pictures" / name).mkdir(parents=True)
        for number in range(3):
            path = place / "pictures" / name / f"{number}{ending}"
            Image.fromarray(np.full((8, 8), 40 * number + 9, np.uint8)).save(path)
            paths.append(path)
    return paths


def _pictures_damaged(chance: Random, place: Path) -> Input:
    paths = _folder_of_pictures(
        chance, place, chance.choice([".png", ".bmp", ".gif", ".jpg", ".tif", ".webp", ".pgm"])
    )
    path = chance.choice(paths)
    how = chance.choice(
        [
            mutations.flip,
            mutations.damage,
            lambda c, b: mutations.raw(
                c, (b"\x89PNG\r\n\x1a\n", b"GIF89a", b"II*\0", b"P5 9 9 9 ")
            ),
        ]
    )
    path.write_bytes(how(chance, path.read_bytes()))
    return _loading(place / "pictures")


def _pictures_odd(chance: Random, place: Path) -> Input:
    from PIL import Image

    paths = _folder_of_pictures(chance, place, ".png")
    path = chance.choice(paths)
    kind = chance.randrange(12)
    options: dict[str, Any] = chance.choice(
        [
            {},
            {"size": 8},
            {"size": [8, 8]},
            {"size": 10**6},
            {"size": 20_000},
            {"size": 2**63},
            {"size": -1},
        ]
    )
    if kind == 0:
        path.write_bytes(
            png_head(chance.choice([8, 30_000, 2**31 - 1]), chance.choice([8, 30_000]))
        )
    elif kind == 1:
        size = chance.choice([(9000, 9000), (13_000, 13_000), (1, 89_000_000)])
        path.write_bytes(_png(*size))
    elif kind == 2:
        modes = ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I", "F", "I;16"]
        mode = chance.choice(modes)
        path.unlink()
        Image.new(mode, (8, 8)).save(path.with_suffix(".tif"))
    elif kind == 3:
        path.unlink()
        mutations.odd_path(chance, path.parent, path.name)
    elif kind == 4:
        (
            place
            / "pictures"
            / chance.choice(
                ["\x1b[31m", "train", "test", ".hidden", "x" * 200, os.fsdecode(b"\xff")]
            )
        ).mkdir()
    elif kind == 5:
        shutil.rmtree(path.parent)
        path.parent.symlink_to(place)
    elif kind == 6:
        os.mkfifo(path.parent / "fifo.png")
    elif kind == 7:
        (path.parent / "link.png").symlink_to(
            chance.choice(["/dev/zero", "/dev/urandom", "link.png", "nowhere"])
        )
    elif kind == 8:
        for number in range(chance.choice([10, 400])):
            (path.parent / f"many{number}.png").write_bytes(_png(2000, 2000))
            if number == 12 and options:
                break
        return _loading(place / "pictures", **options)
    elif kind == 9:
        path.write_bytes(b"P5 100000 100000 255\n")
        path.rename(path.with_suffix(".pgm"))
    elif kind == 10:
        frames = [Image.new("L", (8, 8), i % 255) for i in range(50)]
        frames[0].save(path.with_suffix(".gif"), save_all=True, append_images=frames[1:])
    else:
        path.parent.rename(
            path.parent.with_name(
                chance.choice([mutations.ESCAPES.replace("/", ""), " ", "é" * 100])
            )
        )
    return _loading(place / "pictures", **options)


def png_head(width: int, height: int) -> bytes:
    return _chunks(width, height, zlib.compress(b""))


@cache
def _png(width: int, height: int) -> bytes:
    """A black picture, so that many pixels take few bytes."""
    size = height * (1 + width)
    size += -size % BLOCK
    ending = struct.pack(">I", (size % 65521) << 16 | 1)  # Adler's check sum of zeros
    return _chunks(width, height, b"\x78\xda" + _deflated(b"", size) + ending)


def _chunks(width: int, height: int, data: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in parts
    )


# what publishers serve


def _published(chance: Random, place: Path) -> Input:
    """An idx file, a zip and a tar, read as if their digest had been right."""
    path = place / "file"
    makers: dict[str, Callable[[], bytes]] = {
        "idx": lambda: gzip.compress(_idx(chance)),
        "idx bomb": lambda: _gzip_bomb(chance.choice([1, 4])),
        "yeast": lambda: zipped({"yeast.data": b"A 1 2 3 4 5 6 7 8 CYT\n" * 9}),
        "har": lambda: zipped(
            {
                f"UCI/{name}": b"1 2\n2 3\n"
                for name in (
                    "activity_labels.txt",
                    "train/X_train.txt",
                    "train/y_train.txt",
                    "test/X_test.txt",
                    "test/y_test.txt",
                )
            }
        ),
        "zip bomb": lambda: _zip_bomb(chance.choice([1.0, 4.0])),
        "cifar": lambda: _tar(
            {
                "data_batch_1.bin": bytes(3073),
                "test_batch.bin": bytes(3073),
                "batches.meta.txt": b"a b c",
            },
            chance,
        ),
        "tar bomb": lambda: _tar_bomb(chance.choice([1, 4])),
    }
    kind = chance.choice(list(makers))
    content = makers[kind]()
    if chance.random() < 0.7 and "bomb" not in kind:
        content = chance.choice([mutations.flip, mutations.damage])(chance, content)
    if chance.random() < 0.1:
        path = mutations.odd_path(chance, place, "file", content)
    else:
        path.write_bytes(content)
    readers: dict[str, Callable[[Path], Any]] = {
        "idx": formats.read_idx,
        "yeast": DATASETS["yeast"],
        "har": DATASETS["har"],
        "zip": DATASETS["har"],
        "cifar": chance.choice([DATASETS["cifar10"], DATASETS["cifar100"]]),
        "tar": DATASETS["cifar10"],
    }
    read = readers[kind.split()[0]]
    return Input(lambda: len(read(path)))


def _idx(chance: Random) -> bytes:
    sizes = chance.choice(
        [(5, 4, 4), (5,), (0,), (2**32 - 1,) * 3, (2**31, 2**31), (65536,) * 4, (1,) * 255]
    )
    return (
        bytes([0, 0, chance.choice([8, 8, 9, 13]), len(sizes)])
        + struct.pack(f">{len(sizes)}I", *sizes)
        + bytes(chance.choice([0, 5, 80]))
    )


def _gzip_bomb(gigabytes: int, head: bytes = b"") -> bytes:
    return b"\x1f\x8b\x08\0\0\0\0\0\x02\xff" + _deflated(head, gigabytes * 2**30) + bytes(8)


def _zip_bomb(gigabytes: float) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        _write_deflated(archive, "UCI/activity_labels.txt", b"1 2\n", int(gigabytes * 2**30))
    return content.getvalue()


def _tar(files: dict[str, bytes], chance: Random) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(chance.choice([name, name, f"../../{name}", f"/{name}"]))
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        if chance.random() < 0.4:
            info = tarfile.TarInfo("loop")
            info.type, info.linkname = chance.choice(
                [
                    (tarfile.SYMTYPE, "loop"),
                    (tarfile.LNKTYPE, "loop"),
                    (tarfile.FIFOTYPE, ""),
                    (tarfile.CHRTYPE, ""),
                    (tarfile.SYMTYPE, "/etc/passwd"),
                ]
            )
            archive.addfile(info)
    return content.getvalue()


def _tar_bomb(gigabytes: int) -> bytes:
    info = tarfile.TarInfo("data_batch_1.bin")
    info.size = gigabytes * 2**30
    return _gzip_bomb(gigabytes, info.tobuf())


# paths and options


def _odd_path(chance: Random, place: Path) -> Input:
    name, content = chance.choice(
        [
            ("d.npz", npz(_arrays())),
            ("d.csv", _csv().encode()),
            ("d.parquet", b"PAR1"),
            ("pictures", b""),
            ("d.txt", b"x"),
            ("d.npz", bz2.compress(b"x")),
        ]
    )
    path = mutations.odd_path(chance, place, name, content)
    return _loading(chance.choice([path, str(path)]))


def _options(chance: Random, place: Path) -> Input:
    """Sound data with settings that are not."""
    options = {
        chance.choice(OPTIONS): mutations.odd_value(chance) for _ in range(chance.randint(1, 2))
    }
    path = place / "d.npz"
    source: Any = chance.choice(["npz", "csv", "arrays", "name"])
    if source == "npz":
        path.write_bytes(npz(_arrays()))
        source = path
    elif source == "csv":
        source = place / "d.csv"
        source.write_text(_csv())
    elif source == "arrays":
        source = _arrays()
    else:
        source = chance.choice(["digits", "mnist", *mutations.NAMES, 3, None, b"x", [], object])
    return _loading(source, **options)
