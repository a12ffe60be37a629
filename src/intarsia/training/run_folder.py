"""Run folder: where a run leaves its modules, its checkpoints and its time, and how it is taken up.

A folder belongs to one run, by the key of its plan, and to one process at a time, by a lock. A
chunk of the bank that is done has its modules there; one in training has a checkpoint of its state
after an epoch. All files are written whole, so a run that is killed goes on from what is there.
"""

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import yaml
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from intarsia.errors import TrainingError
from intarsia.files import digest_of, take_lock, write_whole
from intarsia.modules import LISTING, Bank, Module
from intarsia.modules.bank import file_names
from intarsia.pruning import Mask
from intarsia.training.engines.base import Engine, Slot
from intarsia.training.loop import RoundProgress
from intarsia.training.plan import TrainingPlan

RECIPE, TIME, PROGRESS = "recipe.yaml", "time.json", ".progress"
PART = f".{'[0-9a-f]' * 16}.part"  # what write_whole leaves if it is killed


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
        self.lock: IO[str] | None = None
        self.clock: Clock | None = None

    def __enter__(self) -> Self:
        if self.path is None:
            return self
        progress = self.path / PROGRESS
        try:
            progress.mkdir(parents=True, exist_ok=True)
            self.lock = (progress / "lock").open("w")
        except OSError as error:
            raise TrainingError(f"cannot write to {self.path}: {error.strerror}") from error
        if not _locked(self.lock):
            self.lock.close()
            raise TrainingError(
                f"another process trains into {self.path}: wait for it or use another folder"
            )
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
        if (self.path / LISTING).exists():  # all is there: what led there can go
            shutil.rmtree(self.path / PROGRESS, ignore_errors=True)
        elif self.clock is not None:
            self.clock.write(self.path / PROGRESS)
        self.lock.close()

    def finished(self) -> Bank | None:
        """The bank that an earlier call completed, if there is one."""
        if self.path is None or not (self.path / LISTING).exists():
            return None
        bank = self._load(self.path)
        if self.keep_rounds:
            earlier = range(1, self.last + 1)
            bank.rounds = tuple(self._load(self.path / f"round-{number}") for number in earlier)
        return bank

    def _load(self, folder: Path) -> Bank:
        return Bank.load(folder, self.plan.factory, quiet=True)

    def threads(self, now: int) -> list[int]:
        """With how many threads the run went on after each stop, which is written down."""
        if self.path is None:
            return [now]
        progress = self.path / PROGRESS
        note, history = progress / "threads", []
        # What was stopped before it had anything to go on from has no history.
        if note.exists() and (any(progress.glob("*.safetensors")) or any(progress.glob("*/"))):
            history = list(json.loads(note.read_text()))
        if history[-1:] != [now]:
            history.append(now)
            write_whole(note, json.dumps(history).encode())
        return history

    def checkpoint_file(self, chunk: str) -> Path | None:
        """Where the state of a chunk in training goes."""
        return None if self.path is None else self.path / PROGRESS / f"{chunk}.safetensors"

    def chunk_done(self, chunk: str) -> bool:
        """Whether a chunk was completed before."""
        return self.path is not None and (self._place(chunk, self.last) / LISTING).exists()

    def wants(self, round_: int) -> bool:
        """Whether the modules of a round are to be kept."""
        return round_ == self.last or self.keep_rounds

    def add(self, chunk: str, round_: int, modules: Sequence[Module], diverged: list[str]) -> None:
        """Keep the modules of a chunk as they are after a round."""
        bank = Bank(modules, diverged)
        if self.path is None:
            self.memory[chunk, round_] = bank
        else:
            bank.save(self._place(chunk, round_))

    def finish(self, chunks: Sequence[str], report: dict[str, Any], notes: Sequence[str]) -> Bank:
        """All modules as one bank, as planned; where there is a path, their files go up to it."""
        report = {**report, "key": self.key}
        wanted = range(self.last + 1) if self.keep_rounds else [self.last]
        rounds = [self._join(chunks, round_, report) for round_ in wanted]
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
                earlier.save(self.path / f"round-{number}", its_files)
            write_whole(self.path / RECIPE, yaml.safe_dump(self.plan.recipe.as_dict()).encode())
            if self.clock is not None:
                self.clock.write(self.path)
            bank.save(self.path, files)
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
                names = zip(part.names, file_names(part.names), strict=True)
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
            key = note.read_text(encoding="utf-8")
        else:
            write_whole(note, self.key.encode())
        if key != self.key:
            raise TrainingError(
                f"{self.path} holds modules of another recipe, data set, network or keep_rounds: "
                "train into a new folder, or delete this one first"
            )


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


def _locked(file: IO[str]) -> bool:
    """Take the lock; a worker of a run that was just killed may hold it for a moment longer."""
    for _ in range(20):
        if take_lock(file):
            return True
        time.sleep(0.05)
    return False


def _sweep(folder: Path) -> None:
    """Remove the temporary files of a process that was killed while it wrote."""
    for pattern in (PART, f"round-*/{PART}", f"{PROGRESS}/**/{PART}"):
        for part in folder.glob(pattern):
            part.unlink(missing_ok=True)


class Checkpoint:
    """Where a chunk of a bank keeps its state; without a path it keeps none."""

    def __init__(self, path: Path | None, every: float, key: str = "") -> None:
        """`every` is the least number of seconds between two writes; `key` tells runs apart."""
        self.path, self.every, self.key = path, every, key
        self.written = time.monotonic()

    def save(self, engine: Engine, masks: Sequence[Mask], progress: RoundProgress) -> None:
        """Write the state down if it is time; called at the end of an epoch."""
        if self.path is None or time.monotonic() - self.written < self.every:
            return
        tensors: dict[str, Tensor] = {}
        for k, (slot, mask) in enumerate(zip(engine.slots, masks, strict=True)):
            tensors |= {f"{k}/slot/{n}": t for n, t in slot.tensors().items()}
            tensors |= {f"{k}/mask/{n}": t for n, t in mask.items()}
        note = json.dumps({"key": self.key, "standing": progress.to_json()})
        # one copy each, since slots may be views of one stack
        plain = {n: t.detach().cpu().clone() for n, t in tensors.items()}
        write_whole(self.path, save(plain, {"intarsia-progress": note}))
        self.written = time.monotonic()

    def load(self, modules: int) -> tuple[RoundProgress, list[Mask], list[dict[str, Tensor]]]:
        """The progress, masks and slot tensors to go on from; empty lists for a fresh start."""
        if self.path is None or not self.path.exists():
            return RoundProgress(modules), [], []
        try:
            with safe_open(self.path, "pt") as file:
                note = json.loads((file.metadata() or {})["intarsia-progress"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if note["key"] == self.key:
                progress = RoundProgress.from_json(note["standing"])
                return progress, _part(tensors, "mask", modules), _part(tensors, "slot", modules)
        except (OSError, SafetensorError, LookupError, ValueError, TypeError) as error:
            raise self._damaged(repr(error)) from error
        raise TrainingError(
            f"{self.path} belongs to another recipe, engine or device: "
            "train into a new folder, or delete it to start this part again"
        )

    def restore(self, slots: Sequence[Slot], tensors: Sequence[dict[str, Tensor]]) -> None:
        """Give the slots what `load` found for them, if it found anything."""
        for slot, given in zip(slots, tensors, strict=False):
            own = {name: tensor.shape for name, tensor in slot.tensors().items()}
            if {name: tensor.shape for name, tensor in given.items()} != own:
                raise self._damaged("its tensors are not those of the modules")
            slot.load(given)

    def clear(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _damaged(self, why: str) -> TrainingError:
        return TrainingError(
            f"{self.path} cannot be read, {why}: delete it to train this part again"
        )


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
        text = json.dumps({"seconds": seconds, "calls": self.before.calls + 1})
        write_whole(folder / TIME, text.encode())


def spent(folder: Path) -> Spent | None:
    """What the training in a folder took; None where its time was not kept or cannot be read."""
    try:
        time_ = json.loads((folder / TIME).read_bytes())
        return Spent(float(time_["seconds"]), int(time_["calls"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
