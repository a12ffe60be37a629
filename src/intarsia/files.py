"""Files written whole or not at all, digests and seeds of what they hold."""

import contextlib
import hashlib
import json
import math
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.errors import DamagedError, FileError

if TYPE_CHECKING:
    import torch

# Endings of files with weights in formats that are not ours.
OTHER_WEIGHTS = (".onnx", ".pt", ".pt2", ".pth", ".bin", ".ckpt", ".gguf")


def write_whole(path: str | Path, content: bytes | memoryview) -> None:
    """Write `content` so that a reader, at any moment and after any crash, sees all of it or none.

    A temporary file in the same folder (`.*.part`) is synced and renamed; missing folders are made.
    """
    path = Path(path)
    if path.is_dir():
        raise FileError(f"cannot write {path}: it is a folder; name a file")
    if path.parent.is_file():
        raise FileError(f"cannot write {path}: {path.parent} is a file; name a folder")
    part = part_of(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise FileError(
            f"cannot write {path}: {error.strerror or error}; "
            "check the folder's permissions and free space"
        ) from error


def link_whole(source: str | Path, path: str | Path) -> None:
    """Give a file that was written whole a second name, in one step, as `write_whole` would.

    Its bytes are copied only where the file system has no links.
    """
    path = Path(path)
    part = part_of(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(source, part)
        try:
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)  # it stays where both names were the file's already
        _sync_folder(path.parent)
    except OSError:
        write_whole(path, Path(source).read_bytes())


def is_no_file(path: str | Path) -> bool:
    """Whether something else is there: a folder, or a pipe, on which whoever opens it waits."""
    return os.path.lexists(path) and not os.path.isfile(path)


def sealed(content: Mapping[str, Any]) -> bytes:
    """A JSON file of these values that carries their digest."""
    return canonical({**content, "digest": digest_of(content)}).encode() + b"\n"


def read_sealed(path: str | Path) -> dict[str, Any]:
    """What was `sealed` into a file, without the digest; a FileError if it holds anything else."""
    try:
        content = json.loads(read_bytes(path))
        digest = content.pop("digest")
        sound = digest == digest_of(content)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, MemoryError):
        sound = False
    if not sound:
        raise DamagedError(f"{path}: is damaged, its digest does not fit its content")
    result: dict[str, Any] = content
    return result


def read_bytes(path: str | Path, advice: str = "") -> bytes:
    """A file's content; a FileError if it cannot be read, or if something else is there.

    Where nothing is, it is a FileNotFoundError. `advice` says what to give instead of no file.
    """
    if is_no_file(path):
        raise FileError(f"{path}: is not a file" + (f": {advice}" if advice else ""))
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from error


def is_unreadable(error: BaseException) -> bool:
    """Whether an error is of a file that may be well, though it cannot be read here and now."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    return cause is not None and not isinstance(cause, FileNotFoundError)


def digest_of(header: Any, tensors: "Mapping[str, torch.Tensor] | None" = None) -> str:
    """sha256 (hex) over canonical JSON and over every tensor's name, dtype, shape and bytes.

    The order of the keys and of the tensors does not matter; their device does not either.
    """
    digest = hashlib.sha256(canonical(header).encode())
    for name, tensor in sorted((tensors or {}).items()):
        tensor = tensor.detach().cpu().contiguous()
        kind = str(tensor.dtype).removeprefix("torch.")
        digest.update(b"\n" + canonical([name, kind, list(tensor.shape)]).encode() + b"\n")
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def canonical(value: Any) -> str:
    """JSON with one spelling: sorted keys, no spaces, ASCII, finite numbers only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def plain(value: Any, name: str = "value") -> Any:
    """`value` as JSON gives it back: lists for tuples, text keys, null for nan and infinities."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): plain(v, f"{name}.{k}") for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        return [plain(v, f"{name}[{i}]") for i, v in enumerate(items)]
    if hasattr(value, "tolist"):  # numpy's and torch's numbers and arrays
        return plain(value.tolist(), name)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise FileError(
        f"{name} is a {type(value).__name__}, which JSON cannot hold: "
        "use text, numbers, lists and mappings"
    )


def cache_folder() -> Path:
    """INTARSIA_CACHE, else intarsia in XDG_CACHE_HOME, else ~/.cache/intarsia."""
    if own := os.environ.get("INTARSIA_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "intarsia"


def stream(*parts: object) -> int:
    """A seed that depends on all parts and on nothing else; the same on every machine."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def part_of(path: Path) -> Path:
    """A name beside a file, unlike any other, for what is to become that file."""
    return path.parent / f".{secrets.token_hex(8)}.part"


def _bytes(tensor: "torch.Tensor") -> memoryview:
    import torch

    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # Windows has no handle of a folder to sync
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
