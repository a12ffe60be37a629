"""Headers are checked before a tensor is read; what they say of files is never trusted."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import intarsia as ia
from intarsia.composition.streaming import tensor_files
from intarsia.composition.streaming.shards import Shard, ShardTensor, cut_shards
from intarsia.composition.streaming.tensor_files import DTYPES, OpenFiles, TensorFiles, is_model
from intarsia.errors import FileError, IntarsiaError

W = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
V = {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}


def written(path: Path, header: Any, size: int = 12) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
    return path


def test_tensors_are_read_whole_and_in_pieces(tmp_path: Path) -> None:
    state = {
        str(code): (torch.arange(12) % 2 if code == "BOOL" else torch.arange(12))
        .to(dtype)
        .reshape(3, 4)
        for code, dtype in DTYPES.items()
    } | {"empty": torch.zeros(0, 3), "scalar": torch.tensor(2.5)}
    save_file(state, tmp_path / "all.safetensors")
    files = TensorFiles(tmp_path / "all.safetensors")
    assert list(files.tensors) == sorted(state)
    for name, tensor in state.items():
        stored = files.tensors[name]
        assert (stored.shape, stored.dtype) == (tuple(tensor.shape), tensor.dtype)
        assert torch.equal(stored.read(), tensor.flatten())
        if tensor.numel() == 12:
            assert torch.equal(stored.read(5, 3), tensor.flatten()[5:8])


BAD: dict[str, tuple[Any, int]] = {
    "was cut off": ({"w": W, "v": V}, 11),
    "bytes beyond its end": ({"w": W, "v": V}, 13),
    "overlap": ({"w": W, "v": {**V, "data_offsets": [4, 8]}}, 8),
    "leave a gap": ({"v": V}, 12),
    "by its shape": ({"w": {**W, "shape": [3]}, "v": V}, 12),
    "the type 'F8_E4M3'": ({"w": {**W, "dtype": "F8_E4M3"}, "v": V}, 12),
    "no shape or place": ({"w": {**W, "shape": [-2]}, "v": V}, 12),
    "that torch cannot have": ({"w": {**W, "shape": [2, *[1] * 64]}, "v": V}, 12),
    "shape that torch cannot": ({"w": {**W, "shape": [2**63, 0], "data_offsets": [0, 0]}}, 0),
    "no place": ({"w": {**W, "data_offsets": [0]}, "v": V}, 12),
    "no shape": ({"w": 3, "v": V}, 12),
    "given twice": (b'{"w":1,"w":2}', 12),
    "sound safetensors": (b"[]", 12),
    "join modules with compose": ({"__metadata__": {"intarsia": "{}"}, "w": W, "v": V}, 12),
    "holds no tensors": ({}, 0),
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_header_is_refused(tmp_path: Path, message: str) -> None:
    header, size = BAD[message]
    with pytest.raises(FileError, match=message):
        TensorFiles(written(tmp_path / "bad.safetensors", header, size))


def test_a_header_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    path = written(tmp_path / "long.safetensors", {"w": W, "v": V})
    with ia.limited(header=16), pytest.raises(IntarsiaError, match="limit 'header'"):
        TensorFiles(path)
    path.write_bytes((2**60).to_bytes(8, "little"))
    with pytest.raises(FileError, match="truncated"):
        TensorFiles(path)


def test_an_index_names_files_beside_it_and_what_they_hold(tmp_path: Path) -> None:
    save_file({"w": torch.ones(2)}, tmp_path / "x.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    for content, message in [
        ({"w": "../x.safetensors"}, "beside the index"),
        ({"w": "x.bin"}, "beside the index"),
        ({"w": "x.safetensors", "v": "x.safetensors"}, "'v' lies in 'x.safetensors', which"),
        ({"v": "x.safetensors"}, "'w', against the index"),
        ({"w": "y.safetensors"}, "cannot be read"),
        ({}, "has no weight_map"),
    ]:
        index.write_text(json.dumps({"weight_map": content}))
        with pytest.raises(FileError, match=message):
            TensorFiles(tmp_path)
    index.write_text('{"weight_map": {"w": "x.safetensors"}}')
    assert list(TensorFiles(tmp_path).tensors) == ["w"]


def test_what_is_no_model_says_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="nothing is fetched"):
        TensorFiles(tmp_path / "organisation" / "model")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(FileError, match="pickled weights are never read"):
        TensorFiles(tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(FileError, match="it is an adapter"):
        TensorFiles(tmp_path)
    os.mkfifo(tmp_path / "model.safetensors")  # never opened: that would wait
    assert not is_model(tmp_path)
    with pytest.raises(FileError):
        TensorFiles(tmp_path / "model.safetensors")


def test_a_file_that_shrinks_meanwhile_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "w.safetensors", {"w": W, "v": V})
    files = TensorFiles(path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(FileError, match="cut off while it was read"):
        files.tensors["v"].read()


def test_shards_are_cut_in_order_and_read_by_safetensors(tmp_path: Path) -> None:
    kinds = [("a", torch.bool, 3), ("b", torch.float32, 2), ("c", torch.float64, 1)]
    tensors = [ShardTensor(n, (s,), d, s * d.itemsize) for n, d, s in kinds]
    cut = cut_shards(tensors, 12)
    assert [[t.name for t in shard.tensors] for shard in cut] == [["b", "a"], ["c"]]
    assert [shard.name for shard in cut][1] == "model-00002-of-00002.safetensors"
    (whole,) = cut_shards(tensors, 100)
    assert whole.name == "model.safetensors"
    assert len(cut_shards(tensors, 1)) == 3
    path = tmp_path / whole.name
    path.write_bytes(whole.header() + bytes(19))
    assert {name: t.dtype for name, t in load_file(path).items()} == {n: d for n, d, _ in kinds}
    assert len(Shard("x", ()).header()) % 8 == 0


def test_two_sets_of_weights_in_one_folder_are_refused(tmp_path: Path) -> None:
    """transformers would take model.safetensors, mergekit what the index names."""
    for name in ("model.safetensors", "x.safetensors"):
        save_file({"w": torch.ones(2)}, tmp_path / name)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"w": "x.safetensors"}}')
    with pytest.raises(FileError, match=r"has both model\.safetensors and"):
        TensorFiles(tmp_path)
    assert list(TensorFiles(tmp_path / "model.safetensors").tensors) == ["w"]
    index.write_text('{"weight_map": {"w": "model.safetensors"}}')
    assert list(TensorFiles(tmp_path).tensors) == ["w"]


def test_a_name_that_no_file_can_have_is_no_model(tmp_path: Path) -> None:
    for name in ("x" * 5000, "a\0b"):
        assert not is_model(tmp_path / name)
        with pytest.raises(FileError, match="nothing is fetched"):
            TensorFiles(tmp_path / name)


def test_a_file_is_known_by_more_than_its_size_and_time(tmp_path: Path) -> None:
    """What is unpacked from an archive may have one time for all; every tensor has a say."""
    state = {"small": torch.zeros(3), "large": torch.zeros(5000), "empty": torch.zeros(0)}
    known = []
    for changed in (None, "small", "large"):
        own = {name: t + 1 if name == changed else t for name, t in state.items()}
        save_file(own, tmp_path / "w.safetensors")
        os.utime(tmp_path / "w.safetensors", ns=(1, 1))
        known.append(TensorFiles(tmp_path / "w.safetensors").headers["w.safetensors"])
    assert len({tuple(each[:2]) for each in known}) == 1
    assert len({each[2] for each in known}) == 3


def test_files_are_held_open_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as may be, and only those of the tensors that are read now."""
    stored = []
    for name in "abc":
        save_file({"w": torch.full((4,), float(ord(name)))}, tmp_path / f"{name}.safetensors")
        stored.append(TensorFiles(tmp_path / f"{name}.safetensors").tensors["w"])
    monkeypatch.setattr(tensor_files, "MOST_OPEN", 2)
    files = OpenFiles()
    held = files.hold(stored)
    handles = [tensor.handle for tensor in held]
    can_hold = hasattr(os, "preadv")
    assert [handle is not None for handle in handles] == [can_hold, can_hold, False]
    for one, other in zip(held, stored, strict=True):
        assert torch.equal(one.read(1, 2), other.read(1, 2))
    path = tmp_path / "a.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(FileError, match="cut off while it was read"):
        held[0].read()
    path.unlink()
    assert files.hold(stored[:2])[0].handle == handles[0]
    files.close()
    with pytest.raises(FileError, match="No such file"):
        files.hold(stored[:1])[0].read()
    for handle in handles[: 2 * can_hold]:
        assert handle is not None
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(handle)


def test_files_are_opened_again_where_several_threads_cannot_share_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "preadv", raising=False)
    save_file({"w": torch.arange(4.0)}, tmp_path / "w.safetensors")
    (held,) = OpenFiles().hold([TensorFiles(tmp_path / "w.safetensors").tensors["w"]])
    assert held.handle is None
    assert held.read(1, 2).tolist() == [1.0, 2.0]
