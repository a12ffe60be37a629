"""Shards: tensors written as they are made, each file whole or not at all, with a manifest.

A merge that is killed leaves finished shards and the manifest, which has their digests. Whoever
merges the same again keeps those that hold what was written.
"""

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from intarsia.composition.streaming.tensor_files import CODES, INDEX, WEIGHTS, TensorFiles
from intarsia.errors import FileError, FileWarning
from intarsia.files import OTHER_WEIGHTS, part_of, read_sealed, sealed, write_whole
from intarsia.locks import Lock, holder_of, take_lock
from intarsia.parsing import parse_mapping

MANIFEST, LOCK = "intarsia_merge.json", "intarsia_merge.lock"
BLOCK = 2**24  # bytes that are read at once to find a digest
LARGEST_COPY = 2**28  # bytes of a file that is copied
# What belongs to a model besides its weights, as plain files that hold no code.
COPIED = (
    "config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json",
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "spiece.model",
    "sentencepiece.bpe.model", "chat_template.jinja", "chat_template.json",
)  # fmt: skip


@dataclass(frozen=True)
class ShardTensor:
    """What a tensor of the output will be."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    nbytes: int


@dataclass(frozen=True)
class Shard:
    """A file of the output."""

    name: str
    tensors: tuple[ShardTensor, ...]

    def header(self) -> bytes:
        """What comes before the tensors, as safetensors has it."""
        entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        end = 0
        for tensor in self.tensors:
            place = [end, end := end + tensor.nbytes]
            code = CODES[tensor.dtype]
            entries[tensor.name] = {
                "dtype": code, "shape": list(tensor.shape), "data_offsets": place
            }  # fmt: skip
        text = json.dumps(entries, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text


def cut_shards(tensors: Sequence[ShardTensor], size: int) -> list[Shard]:
    """Tensors in their order, into files of at most so many bytes unless one alone is larger."""
    cut: list[list[ShardTensor]] = [[]]
    held = 0
    for tensor in tensors:
        if cut[-1] and held + tensor.nbytes > size:
            cut.append([])
            held = 0
        cut[-1].append(tensor)
        held += tensor.nbytes
    names = [f"model-{i + 1:05}-of-{len(cut):05}.safetensors" for i in range(len(cut))]
    # wide types come first, so that all tensors begin at a multiple of their size
    return [
        Shard(name, tuple(sorted(own, key=lambda t: (-t.dtype.itemsize, t.name))))
        for name, own in zip(names if len(cut) > 1 else [WEIGHTS], cut, strict=True)
    ]


def check_folder_name(path: Path) -> None:
    """Refuse a name that means a file, before anything is read."""
    if path.suffix.lower() in (".safetensors", *OTHER_WEIGHTS):
        raise FileError(
            f"{path} is the name of a file, and a merge of models writes a folder, with shards and "
            f"the config: give its name, as in {path.with_suffix('')}"
        )


class MergeFolder:
    """The folder of one merge: which shards are there, and whether all are."""

    def __init__(self, path: Path, merge: Mapping[str, Any], shards: Sequence[Shard]) -> None:
        self.path, self.merge, self.shards = path, merge, shards
        self.written: dict[str, list[Any]] = {}  # by name the size and the digest
        self.lock: Lock | None = None

    def __enter__(self) -> "MergeFolder":
        if self.path.exists() and not self.path.is_dir():
            raise FileError(f"{self.path}: is not a folder: give another, for shards and an index")
        self.lock = take_lock(self.path / LOCK)
        if self.lock is None:
            raise FileError(
                f"another process merges into {self.path}, {holder_of(self.path / LOCK)}: wait for "
                "it or use another folder"
            )
        try:
            self._resume()
        except BaseException:
            self.lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self.lock is not None
        self.lock.release()

    def _resume(self) -> None:
        """Keep the shards that the manifest proves, and sweep what a kill left half written."""
        try:
            known = read_sealed(self.path / MANIFEST)
        except FileNotFoundError:
            if others := sorted(p.name for p in self.path.iterdir() if not _is_passing(p)):
                raise FileError(
                    f"{self.path}: holds {others[0]} already, and no merge that could go on: give "
                    "an empty folder"
                ) from None
            known = {"merge": self.merge, "shards": {}}
        if known.get("merge") != self.merge or not isinstance(known.get("shards"), dict):
            raise FileError(
                f"{self.path}: holds another merge, of other files or settings: delete it, or give "
                "another folder"
            )
        for part in self.path.glob(".*.part"):
            part.unlink(missing_ok=True)
        for shard in self.shards:
            if (seal := known["shards"].get(shard.name)) is None:
                continue
            if digest_of_file(self.path / shard.name) == seal:
                self.written[shard.name] = seal
            else:
                warnings.warn(
                    f"{self.path / shard.name} is not what was written to it, and is made again",
                    FileWarning,
                    stacklevel=2,
                )
        self._save(complete=False)

    def write(self, shard: Shard, pieces: Iterable[Tensor]) -> None:
        """A shard, whole or not at all, of the flat pieces of its tensors one after another."""
        path = self.path / shard.name
        digest, size = hashlib.sha256(), 0
        part = part_of(path)
        try:
            with part.open("xb", buffering=0) as file:
                for content in _contents(shard, pieces):
                    _write_all(file, content)
                    digest.update(content)
                    size += len(content)
                os.fsync(file.fileno())
            part.replace(path)
        except OSError as error:
            raise FileError(
                f"cannot write {path}: {error.strerror or error}; check the folder's permissions "
                "and free space, and run the same again: what is finished is kept"
            ) from error
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        self.written[shard.name] = [size, digest.hexdigest()]
        self._save(complete=False)

    def finish(self, source: Path | None, dtype: torch.dtype | None) -> None:
        """The files beside the weights, the index, and the manifest that says that all is there."""
        if source is not None:
            copy_plain_files(source, self.path, dtype)
        if len(self.shards) > 1:
            placed = {t.name: shard.name for shard in self.shards for t in shard.tensors}
            total = sum(t.nbytes for shard in self.shards for t in shard.tensors)
            index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(placed.items()))}
            write_whole(self.path / INDEX, json.dumps(index, indent=2).encode() + b"\n")
        self._save(complete=True)

    def _save(self, complete: bool) -> None:
        content = {"merge": self.merge, "shards": self.written, "complete": complete}
        write_whole(self.path / MANIFEST, sealed(content))


def check_manifest(files: TensorFiles) -> None:
    """Of a model that was merged here: it is finished, and holds what was written."""
    folder = files.folder
    if folder is None or not (folder / MANIFEST).is_file():
        return
    known = read_sealed(folder / MANIFEST)
    if "merge" not in known or not isinstance(known.get("shards"), dict):
        return  # another program's
    if known.get("complete") is not True:
        raise FileError(f"{folder}: is a merge that is not finished: run it again first")
    for file in files.files:
        if digest_of_file(file) != known["shards"].get(file.name):
            raise FileError(f"{file}: is not what was written to it: merge it again")


def digest_of_file(path: Path) -> list[Any] | None:
    """Size and sha256 of a file's bytes; None where there is none."""
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(BLOCK):
                digest.update(block)
            return [file.tell(), digest.hexdigest()]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from error


def copy_plain_files(source: Path, folder: Path, dtype: torch.dtype | None) -> None:
    """Config and tokenizer, by names that are known; a config says the type that was chosen."""
    for name in COPIED:
        path = source / name
        if not path.is_file():
            continue
        if path.stat().st_size > LARGEST_COPY:
            raise FileError(f"{path}: has {path.stat().st_size} bytes, too many to be copied")
        content = path.read_bytes()
        if name == "config.json" and dtype is not None:
            content = _with_dtype(path, content, dtype)
        write_whole(folder / name, content)


def _with_dtype(path: Path, content: bytes, dtype: torch.dtype) -> bytes:
    try:
        config = parse_mapping(content)
    except ValueError as error:
        raise FileError(f"{path}: is not a mapping in JSON ({error})") from error
    key = "dtype" if "dtype" in config else "torch_dtype"
    config[key] = str(dtype).removeprefix("torch.")
    return json.dumps(config, indent=2).encode() + b"\n"


def _is_passing(path: Path) -> bool:
    return path.name.startswith(LOCK) or (path.name.startswith(".") and path.suffix == ".part")


def _contents(shard: Shard, pieces: Iterable[Tensor]) -> Iterator[memoryview]:
    yield memoryview(shard.header())
    for piece in pieces:
        if piece.numel():
            yield piece.contiguous().view(torch.uint8).numpy().data


def _write_all(file: Any, content: memoryview) -> None:
    done = 0
    while done < len(content):
        done += file.write(content[done:])
