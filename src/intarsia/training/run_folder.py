"""Run folder: where a run leaves its modules, its checkpoints and its time, and how it is taken up.

A folder belongs to one run, by the key of its plan, and to one process at a time, by a lock. A
chunk of the bank that is done has its modules there; one in training has a checkpoint of its state
after an epoch. All files are written whole, so a run that is killed goes on from what is there, and
with digests, so that a chunk whose files are damaged is trained again.
"""

import json
import math
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
import yaml
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from intarsia.data import is_path
from intarsia.errors import (
    DamagedError,
    FileError,
    FileWarning,
    IntarsiaError,
    StoppedError,
    TrainingError,
    shortened,
)
from intarsia.files import digest_of, is_no_file, is_unreadable, read_sealed, sealed, write_whole
from intarsia.locks import Lock, holder_of, take_lock
from intarsia.modules import BASE, LISTING, Bank, Module
from intarsia.parsing import parse_yaml, read_settings
from intarsia.pruning import Mask
from intarsia.training.engines.base import Engine, Slot
from intarsia.training.loop import RoundProgress
from intarsia.training.plan import TrainingPlan
from intarsia.training.tasks import Task

RECIPE, TIME, PROGRESS = "recipe.yaml", "time.json", ".progress"
TOLD = 3  # settings that a message names
CHUNK = "[0-9a-f]" * 16  # the label of a chunk
PART = f".{CHUNK}.part"  # what write_whole leaves if it is killed


class RunFolder:
    """A run's folder, or the memory where no path is given.

    .progress/ holds what is not finished: checkpoints and the modules of finished chunks. At the
    end come the modules, recipe.yaml, time.json, which alone differs from run to run, and last
    bank.json, which says that all is there.
    """

    def __init__(self, path: str | Path | None, plan: TrainingPlan, keep_rounds: bool) -> None:
        self.path = None if path is None else Path(path)
        self.plan, self.key, self.keep_rounds = plan, plan.key, keep_rounds
        if keep_rounds:  # a folder without the earlier rounds cannot be taken up as one with them
            self.key = digest_of([plan.key, "keep_rounds"])
        self.last = plan.recipe.rounds or 0
        self.memory: dict[tuple[str, int], Bank] = {}
        self.lock: Lock | None = None
        self.clock: Clock | None = None

    def __enter__(self) -> Self:
        if self.path is None:
            return self
        progress = self.path / PROGRESS
        if self.path.is_file():
            raise TrainingError(f"cannot write to {self.path}: it is a file; name a folder")
        source = self.plan.recipe.data
        if source and is_path(source) and self.path.resolve() == Path(source).resolve():
            raise TrainingError(
                f"{self.path} is the folder of the data: name another one for the modules"
            )
        try:
            self.lock = _locked(progress / "lock")
        except FileError as error:
            raise TrainingError(f"cannot write to {self.path}: {error}") from error
        try:
            _sweep(self.path)
            self._check_key()
            if not (self.path / LISTING).exists():
                self.clock = Clock(progress)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self.path is None or self.lock is None:
            return
        try:
            if (self.path / LISTING).exists():  # all is there: what led there can go
                shutil.rmtree(self.path / PROGRESS, ignore_errors=True)
            elif self.clock is not None and not self.lock.lost:
                with suppress(FileError):  # a full disk, perhaps, which stopped the run
                    self.clock.write(self.path / PROGRESS)
        finally:
            self.lock.release()

    def finished(self) -> Bank | None:
        """The bank that an earlier call completed, if there is one."""
        if self.path is None or not (self.path / LISTING).exists():
            return None
        places = [self.path, *(self.path / f"round-{n}" for n in range(1, self.last + 1))]
        banks = [
            Bank.load(place, self.plan.factory, quiet=True, encoder=self.plan.data.encoder)
            for place in places[: None if self.keep_rounds else 1]
        ]
        banks[0].rounds = tuple(banks[1:])
        return banks[0]

    def _load(self, folder: Path) -> Bank:
        """What is not finished yet, whose base the plan has."""
        plan = self.plan
        encoder = plan.data.encoder
        return Bank.load(folder, plan.factory, base=plan.base, quiet=True, encoder=encoder)

    @cached_property
    def base_file(self) -> Path | None:
        """The base's file among the progress, which all folders of modules link to."""
        if self.path is None or self.plan.base is None:
            return None
        self.plan.base.save(self.path / PROGRESS / BASE)
        return self.path / PROGRESS / BASE

    def threads(self, now: int) -> list[int]:
        """With how many threads the run went on after each stop, which is written down."""
        if self.path is None:
            return [now]
        progress = self.path / PROGRESS
        note, history = progress / "threads", []
        # What was stopped before it had anything to go on from has no history.
        if note.exists() and (any(progress.glob("*.safetensors")) or any(progress.glob("*/"))):
            history = list(self._note(note)["threads"])
        if history[-1:] != [now]:
            history.append(now)
            write_whole(note, sealed({"threads": history}))
        return history

    def pieces(self, cut: Callable[[Sequence[Task]], list[list[Task]]]) -> list[list[Task]]:
        """The tasks in the pieces of the call that began the run, as far as they fit today.

        How large a piece `cut` makes depends on the device and on its free memory. What was begun
        in other pieces would not be found again, so these are written down. One that has become
        too large is cut anew, unless it is done.
        """
        tasks = self.plan.tasks
        fresh = cut(tasks)
        if self.path is None:
            return fresh
        note = self.path / PROGRESS / "pieces"
        if note.exists():
            by_name = {task.name: task for task in tasks}
            begun = [[by_name[name] for name in names] for names in self._note(note)["pieces"]]
            most = max(map(len, fresh))
            fits = [piece for piece in begun if len(piece) <= most or self._is_done(piece)]
            known = {task.name for piece in fits for task in piece}
            rest = [task for task in tasks if task.name not in known]
            fresh = [*fits, *cut(rest)] if rest else fits
        write_whole(note, sealed({"pieces": [[t.name for t in piece] for piece in fresh]}))
        return fresh

    def _note(self, path: Path) -> dict[str, Any]:
        try:
            return read_sealed(path)
        except DamagedError as error:
            raise DamagedError(
                f"{error}: delete {path.parent} to train from the beginning, or use another folder"
            ) from error

    def checkpoint_file(self, chunk: str) -> Path | None:
        """Where the state of a chunk in training goes."""
        return None if self.path is None else self.path / PROGRESS / f"{chunk}.safetensors"

    def finished_chunks(self, say: Callable[[str], None]) -> dict[str, list[Task]]:
        """Chunks that an earlier call completed, however it cut the bank, by their labels."""
        if self.path is None:
            return {}
        result = {}
        for place in sorted((self.path / PROGRESS).glob(f"{CHUNK}-round-{self.last}")):
            chunk = place.name.partition("-")[0]
            bank = self.chunk_done(chunk, say)
            if bank is not None:
                names = {*bank.names, *bank.diverged}
                result[chunk] = [task for task in self.plan.tasks if task.name in names]
        return result

    def chunk_done(self, chunk: str, say: Callable[[str], None]) -> Bank | None:
        """The modules of a chunk that was completed before.

        One with a damaged file is dropped, with its checkpoint, and we say so.
        """
        checkpoint = self.checkpoint_file(chunk)
        if checkpoint is None:
            return None
        places = [self._place(chunk, round_) for round_ in self.wanted]
        done = (places[-1] / LISTING).exists()
        bank = None
        try:
            for place in places:
                if done or (place / LISTING).exists():
                    bank = self._load(place)
        except FileError as error:
            if is_unreadable(error):
                raise
            trained_again(str(error), say)
            checkpoint.unlink(missing_ok=True)
            for place in reversed(places):  # the last one says that all are there
                shutil.rmtree(place, ignore_errors=True)
            return None
        return bank if done else None

    @property
    def wanted(self) -> list[int]:
        """The rounds whose modules are to be kept."""
        return list(range(self.last + 1)) if self.keep_rounds else [self.last]

    def add(self, chunk: str, round_: int, modules: Sequence[Module], diverged: list[str]) -> None:
        """Keep the modules of a chunk as they are after a round."""
        self._check_lock()
        bank = Bank(modules, diverged)
        if self.path is None:
            self.memory[chunk, round_] = bank
        else:
            bank.save(self._place(chunk, round_), base_file=self.base_file)

    def finish(self, chunks: Sequence[str], report: dict[str, Any], notes: Sequence[str]) -> Bank:
        """All modules as one bank, as planned; where there is a path, their files go up to it."""
        self._check_lock()
        report = {**report, "key": self.key}
        rounds = [self._join(chunks, round_, report) for round_ in self.wanted]
        bank, files = rounds.pop()
        if notes:
            bank.report["notes"] = list(notes)
        bank.rounds = tuple(earlier for earlier, _ in rounds)
        if not bank:
            if self.path is not None:  # leave nothing that would bind the folder to this recipe
                shutil.rmtree(self.path / PROGRESS, ignore_errors=True)
            raise TrainingError("every module diverged: lower the learning rate")
        if self.path is not None:
            for number, (earlier, its_files) in enumerate(rounds, 1):
                earlier.save(self.path / f"round-{number}", its_files, self.base_file)
            write_whole(self.path / RECIPE, yaml.safe_dump(self.plan.recipe.as_dict()).encode())
            if self.clock is not None:
                self.clock.write(self.path)
            bank.save(self.path, files, self.base_file)
        return bank

    def _join(
        self, chunks: Sequence[str], round_: int, report: dict[str, Any]
    ) -> tuple[Bank, dict[str, Path]]:
        """The modules of all chunks after a round, and the files they were written to."""
        modules: dict[str, Module] = {}
        files: dict[str, Path] = {}
        diverged: set[str] = set()
        for chunk in chunks:
            if self.path is None:
                part = self.memory[chunk, round_]
            else:
                place = self._place(chunk, round_)
                part = self._load(place)
                names = zip(part.names, part.file_names, strict=True)
                files |= {name: place / file for name, file in names}
            modules |= {module.name: module for module in part}
            diverged |= set(part.diverged)
        order = [task.name for task in self.plan.tasks]
        bank = Bank(
            [modules[name] for name in order if name in modules],
            [name for name in order if name in diverged],
            report,
        )
        return bank, files

    def _is_done(self, piece: Sequence[Task]) -> bool:
        return (self._place(piece_label(piece), self.last) / LISTING).exists()

    def _check_lock(self) -> None:
        if self.path is not None and self.lock is not None and self.lock.lost:
            raise TrainingError(
                f"this process seemed to be gone, and {holder_of(self.path / PROGRESS / 'lock')} "
                f"trains into {self.path} now: leave it to that one"
            )

    def _place(self, chunk: str, round_: int) -> Path:
        assert self.path is not None
        return self.path / PROGRESS / f"{chunk}-round-{round_}"

    def _check_key(self) -> None:
        """A folder belongs to one recipe and data set."""
        assert self.path is not None
        note, listing = self.path / PROGRESS / "key", self.path / LISTING
        key: str | None = self.key
        if listing.exists():
            key = Bank.report_of(self.path).get("key")
        elif note.exists():
            key = self._note(note).get("key")
        else:
            write_whole(note, sealed({"key": self.key}))
        if key != self.key:
            raise TrainingError(
                f"{self.path} holds modules of another recipe, data set, network or keep_rounds"
                f"{self._differences()}: train into a new folder, or delete this one first"
            )

    def _differences(self) -> str:
        """The settings in which the recipe of a finished run differs from this one, if any."""
        assert self.path is not None
        try:
            there = read_settings(self.path / RECIPE)
        except IntarsiaError:
            return ""
        here = parse_yaml(yaml.safe_dump(self.plan.recipe.as_dict()), "the recipe")
        names = sorted(key for key in here if there.get(key) != here[key])
        if not names:
            return ""
        lines = [
            f"{key} is {shortened(there.get(key))} there and {shortened(here[key])} here"
            for key in names[:TOLD]
        ]
        more = f", and {len(names) - TOLD} more" if len(names) > TOLD else ""
        return f" ({'; '.join(lines)}{more})"


def piece_label(piece: Sequence[Task]) -> str:
    """By its modules: where a bank is cut depends on the device and on its free memory."""
    return digest_of([task.name for task in piece])[:16]


def other_threads(history: Sequence[int]) -> list[str]:
    """What to say of a run that was taken up with another number of threads."""
    if len(history) < 2:
        return []
    return [
        f"the run was begun with torch.set_num_threads({history[0]}) and taken up with "
        f"{', then '.join(map(str, history[1:]))}: sums are rounded otherwise, so the modules may "
        "differ from those of a run that was left alone; for the same bytes, train into a new "
        "folder with one number of threads"
    ]


def trained_again(why: str, say: Callable[[str], None]) -> None:
    """Tell that a chunk starts again, since what there was of it cannot be used."""
    line = f"{why}: this part of the bank is trained again"
    say(line)
    warnings.warn(line, FileWarning, stacklevel=2)


def _locked(path: Path) -> Lock:
    """Take the lock; a worker of a run that was just killed may hold it for a moment longer."""
    for _ in range(20):
        if (lock := take_lock(path)) is not None:
            return lock
        time.sleep(0.05)
    folder = path.parent.parent
    raise TrainingError(
        f"another process trains into {folder}, {holder_of(path)}: "
        "wait for it or use another folder"
    )


def _sweep(folder: Path) -> None:
    """Remove the temporary files of a process that was killed while it wrote."""
    for pattern in (PART, f"round-*/{PART}", f"{PROGRESS}/**/{PART}"):
        for part in folder.glob(pattern):
            part.unlink(missing_ok=True)


class Checkpoint:
    """Where a chunk of a bank keeps its state; without a path it keeps none."""

    def __init__(
        self,
        path: Path | None,
        every: float,
        key: str = "",
        say: Callable[[str], None] = lambda line: None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        """`every` is the least number of seconds between two writes; `key` tells runs apart.

        `say` shows a line to whoever watches; `stop` says when to write at once and end.
        """
        self.path, self.every, self.key, self.say, self.stop = path, every, key, say, stop
        self.written = time.monotonic()

    def save(self, engine: Engine, masks: Sequence[Mask], progress: RoundProgress) -> None:
        """Write the state down if it is time; called at the end of an epoch."""
        stopped = self.stop is not None and self.stop()
        due = stopped or time.monotonic() - self.written >= self.every
        if self.path is not None and due:
            self._save(engine, masks, progress)
        if stopped:
            kept = "the same call goes on" if self.path else "nothing is kept without a folder"
            raise StoppedError(f"training was stopped after epoch {progress.epoch}: {kept}")

    def _save(self, engine: Engine, masks: Sequence[Mask], progress: RoundProgress) -> None:
        tensors: dict[str, Tensor] = {}
        for k, (slot, mask) in enumerate(zip(engine.slots, masks, strict=True)):
            tensors |= {f"{k}/slot/{n}": t for n, t in slot.tensors().items()}
            tensors |= {f"{k}/mask/{n}": t for n, t in mask.items()}
        note = json.dumps({"key": self.key, "standing": progress.to_json()})
        # one copy each, since slots may be views of one stack
        plain = {
            n: t.detach().cpu().clone(memory_format=torch.contiguous_format)
            for n, t in tensors.items()
        }
        seal = digest_of(note, plain)
        self.write(save(plain, {"intarsia-progress": note, "digest": seal}))
        self.written = time.monotonic()

    def write(self, content: bytes) -> None:
        """Put a state where it is kept."""
        assert self.path is not None
        write_whole(self.path, content)

    def load(self, modules: int) -> tuple[RoundProgress, list[Mask], list[dict[str, Tensor]]]:
        """The progress, masks and slot tensors to go on from; empty lists for a fresh start.

        A fresh start is also what a damaged checkpoint leads to: it is removed, and we say so.
        """
        if self.path is None or not self.path.exists():
            return RoundProgress(modules), [], []
        try:
            note, tensors = _read_checkpoint(self.path)
            if note["key"] == self.key:
                progress = RoundProgress.from_json(note["standing"], modules)
                return progress, _part(tensors, "mask", modules), _part(tensors, "slot", modules)
        except (DamagedError, LookupError, ValueError, TypeError, RecursionError) as error:
            ours = isinstance(error, DamagedError)
            trained_again(str(error) if ours else f"{self.path}: is damaged ({error})", self.say)
            self.clear()
            return RoundProgress(modules), [], []
        raise TrainingError(
            f"{self.path} belongs to another recipe, engine or device: "
            "train into a new folder, or delete it to start this part again"
        )

    def restore(self, slots: Sequence[Slot], tensors: Sequence[dict[str, Tensor]]) -> None:
        """Give the slots what `load` found for them, if it found anything."""
        for slot, given in zip(slots, tensors, strict=False):
            own = {name: tensor.shape for name, tensor in slot.tensors().items()}
            if {name: tensor.shape for name, tensor in given.items()} != own:
                raise TrainingError(
                    f"{self.path} holds other tensors than these modules have: "
                    "delete it to train this part again"
                )
            slot.load(given)

    def clear(self) -> None:
        if self.path is None:
            return
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise TrainingError(
                f"{self.path} cannot be removed ({error.strerror or error}): "
                "remove it to train this part again"
            ) from error


def _read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The note and the tensors of a checkpoint, once its digest is right."""
    if is_no_file(path):
        raise DamagedError(f"{path}: is damaged, it is not a file")
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise TrainingError(f"{path} cannot be read: {error.strerror or error}") from error
    except (SafetensorError, ValueError, RuntimeError, TypeError) as error:
        raise DamagedError(f"{path}: is damaged ({error})") from error
    note = metadata.get("intarsia-progress", "")
    if metadata.get("digest") != digest_of(note, tensors):
        raise DamagedError(f"{path}: is damaged, its digest does not fit its content")
    result: dict[str, Any] = json.loads(note)
    return result, tensors


def _part(tensors: dict[str, Tensor], part: str, modules: int) -> list[dict[str, Tensor]]:
    parts: list[dict[str, Tensor]] = [{} for _ in range(modules)]
    for name, tensor in tensors.items():
        k, kind, rest = name.split("/", 2)
        if kind == part:
            parts[int(k)][rest] = tensor
    return parts


@dataclass(frozen=True)
class Spent:
    """Seconds of training, and the calls they were spent in.

    A call that was killed is counted, its seconds are not: they went with it.
    """

    seconds: float
    calls: int


class Clock:
    """Runs while a folder is held; between calls the time so far is kept among the progress."""

    def __init__(self, progress: Path) -> None:
        self.before, self.began = spent(progress) or Spent(0.0, 0), time.monotonic()
        self.write(progress)

    def write(self, folder: Path) -> None:
        """To the progress while training is not done, at the end to the modules."""
        seconds = round(self.before.seconds + time.monotonic() - self.began, 3)
        write_whole(folder / TIME, sealed({"seconds": seconds, "calls": self.before.calls + 1}))


def spent(folder: Path) -> Spent | None:
    """What the training in a folder took; None where its time was not kept or cannot be read."""
    try:
        time_ = read_sealed(folder / TIME)
        seconds, calls = time_["seconds"], time_["calls"]
    except (OSError, FileError, KeyError):
        return None
    sound = type(seconds) in (int, float) and type(calls) is int
    return Spent(seconds, calls) if sound and math.isfinite(seconds) else None
