"""Run folders: a training run that was stopped, whose files are no longer what it wrote.

The same call takes it up. It ends with the bytes of an undisturbed run, or with an error of ours.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.attack import mutations
from benchmarks.attack.module_inputs import container, read_container
from benchmarks.attack.surface import Input, Maker, Surface
from intarsia.data import Data, load_data
from intarsia.training import run_folder, train

SETTINGS: dict[str, Any] = {
    **{"model": "mlp(6)", "epochs": 2, "rounds": 1, "sparsity": 0.5, "learning_rate": 0.01},
    **{"engine": "stack", "device": "cpu", "progress": False, "checkpoint_every": 0},
}
NOTES = ("time.json", "key", "threads")


def surfaces(folder: Path) -> list[Surface]:
    folder.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(0)
    data = load_data(chance.normal(size=(45, 4)).astype(np.float32), np.arange(45) % 3)
    train(data, out=folder / "whole", **SETTINGS)
    expected = content(folder / "whole")
    stopped = folder / "stopped"
    _stop(data, stopped, after=3)
    again = folder / "again"
    shutil.copytree(stopped, again)
    assert resumed(data, again) == expected, "a run that is taken up must end with the same bytes"
    return [Surface("run folders", _kinds(data, stopped, expected), weight=1)]


def _stop(data: Data, folder: Path, after: int) -> None:
    """Train until so many checkpoints are written."""
    save, left = run_folder.Checkpoint.save, [after]

    def counted(self: Any, *given: Any) -> None:
        save(self, *given)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    with patch.object(run_folder.Checkpoint, "save", counted):
        try:
            train(data, out=folder, **SETTINGS)
        except KeyboardInterrupt:
            return
    raise AssertionError("the run ended before it was stopped")


def resumed(data: Data, folder: Path) -> dict[str, bytes]:
    train(data, out=folder, **SETTINGS)
    return content(folder)


def content(folder: Path) -> dict[str, bytes]:
    """Module files; how long it took, and with what restarts, may differ."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.safetensors"))}


def _kinds(data: Data, stopped: Path, expected: dict[str, bytes]) -> dict[str, Maker]:
    progress = ".progress"

    def changed(change: Callable[[Random, Path], Any]) -> Maker:
        def make(chance: Random, place: Path) -> Input:
            folder = place / "run"
            shutil.copytree(stopped, folder)
            change(chance, folder)
            return Input(
                lambda: resumed(data, folder), same=lambda made: made == expected, sealed=True
            )

        return make

    def checkpoint(folder: Path) -> Path:
        return next((folder / progress).glob("*.safetensors"))

    def bytes_of(change: Callable[[Random, bytes], bytes]) -> Maker:
        def write(chance: Random, folder: Path) -> None:
            path = checkpoint(folder)
            path.write_bytes(change(chance, path.read_bytes()))

        return changed(write)

    def flipped_data(chance: Random, content: bytes) -> bytes:
        entries, data = read_container(content)
        return container(entries, mutations.flip(chance, data))

    def note_changed(chance: Random, content: bytes) -> bytes:
        entries, data = read_container(content)
        key = "intarsia-progress"  # beside which stands the digest, in any order
        note = mutations.mutated(chance, json.loads(entries["__metadata__"][key]))
        entries["__metadata__"][key] = mutations.json_text(chance, note)
        return container(entries, data)

    def notes(chance: Random, folder: Path) -> None:
        path = folder / progress / chance.choice(NOTES)
        value = mutations.odd_value(chance)
        odd = [mutations.raw(chance), mutations.json_bytes(chance, value), b"\xff\xfe", b"[" * 5000]
        path.write_bytes(chance.choice(odd))

    def chunk(chance: Random, folder: Path) -> None:
        """The modules of a part that is said to be done."""
        path = checkpoint(folder)
        made = folder / progress / f"{path.stem}-round-1"
        made.mkdir(exist_ok=True)
        listing = chance.choice([mutations.raw(chance), b"{}", b"[]", b"null", b"[" * 9000])
        (made / "bank.json").write_bytes(listing)

    return {
        "data of checkpoints flipped": bytes_of(flipped_data),
        "bits flipped": bytes_of(mutations.flip),
        "bytes cut, added, moved": bytes_of(mutations.damage),
        "raw bytes": bytes_of(lambda chance, content: mutations.raw(chance)),
        "notes of checkpoints changed": bytes_of(note_changed),
        "time, key, threads": changed(notes),
        "parts said to be done": changed(chunk),
        "not an ordinary file": changed(mutations.odd_file_in),
    }
