"""Store: a folder of finished cells and trained banks that studies and processes share.

    store.json                 what the folder is
    cells/STUDY/KEY.json       a cell's settings and result, with their digest
    banks/KEY/                 the modules, and round-1/ with those that are not pruned yet
    fits/KEY/                  pattern networks that several cells start from
    work/, locks/, lock        banks in training, and who works on what
    runs/                      what was done when, and how long it took

Everything is written whole or not at all and checked when it is read. Cells and banks hold nothing
that changes from run to run; times and dates are in runs/.
"""

import contextlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from intarsia.errors import (
    DamagedError,
    FileError,
    IntarsiaError,
    StoppedError,
    StudyError,
    VersionError,
)
from intarsia.files import (
    canonical,
    digest_of,
    is_unreadable,
    plain,
    read_sealed,
    sealed,
    write_whole,
)
from intarsia.locks import Lock, shared_lock, take_lock
from intarsia.modules import LISTING, Bank
from intarsia.studies.cells import Cell, Measured, rounded

FORMAT = {"format": "intarsia-store", "version": 1}
CELL = {"format": "intarsia-cell", "version": 1}
UNPRUNED = "round-1"
WAIT = 0.1  # seconds between looks at a bank that another process makes


class BankPlan(Protocol):
    """What a bank is kept by: everything that determines it, as one digest."""

    @property
    def key(self) -> str: ...

    @property
    def keeps_unpruned(self) -> bool:
        """Whether its unpruned modules are kept beside the others."""


class Store:
    """Cells and banks by their keys."""

    def __init__(self, path: str | Path, make: bool = True) -> None:
        self.path = Path(path)
        note = self.path / "store.json"
        if note.exists():
            _check_format(note)
        elif self.path.exists() and not self.path.is_dir():
            raise StudyError(f"{self.path} is a file: give the folder of a store")
        elif self.path.exists() and any(map(_is_foreign, self.path.iterdir())):
            raise StudyError(f"{self.path} is not a store of studies and not empty: give another")
        elif not make:
            raise StudyError(f"there is no store at {self.path}: run the study first")
        else:
            write_whole(note, canonical(FORMAT).encode() + b"\n")

    # cells

    def cell_file(self, cell: Cell) -> Path:
        return self.path / "cells" / cell.study / f"{cell.key}.json"

    def read(self, cell: Cell) -> Measured | None:
        """A finished cell, None if it is missing; DamagedError if it is not as it was written."""
        try:
            content = read_cell(self.cell_file(cell), cell.key)
        except FileNotFoundError:
            return None
        return Measured(content["settings"], content["result"], cell.key)

    def write(self, cell: Cell, result: dict[str, Any]) -> Measured:
        """Keep a cell's result."""
        content = {
            **CELL,
            "study": cell.study,
            "key": cell.key,
            "settings": plain(cell.settings, "settings"),
            "banks": {role: plan.key for role, plan in cell.banks.items()},
            "result": rounded(plain(result, "result")),
        }
        write_whole(self.cell_file(cell), sealed(content))
        return Measured(content["settings"], content["result"], cell.key)

    def keys(self, studies: Iterable[str]) -> set[str]:
        """Keys of all cells of these studies that have a file, without reading them."""
        folders = [self.path / "cells" / study for study in studies]
        return {path.stem for folder in folders for path in folder.glob("*.json")}

    # banks

    def bank_folder(self, plan: BankPlan) -> Path:
        return self.path / "banks" / plan.key

    def has_bank(self, plan: BankPlan) -> bool:
        return (self.bank_folder(plan) / LISTING).exists()

    def bank(self, plan: BankPlan) -> Bank:
        """A trained bank, its unpruned modules as `rounds[0]`; DamagedError if it is unreadable."""
        folder = self.bank_folder(plan)
        try:
            bank = Bank.load(folder, quiet=True)
            if (folder / UNPRUNED).exists():
                bank.rounds = (Bank.load(folder / UNPRUNED, quiet=True),)
        except IntarsiaError as error:
            if is_unreadable(error) or _other_version(error):
                raise  # it may be well
            raise DamagedError(f"bank {plan.key[:16]} is damaged: {error}") from error
        expected = [bank] if not plan.keeps_unpruned else [bank, *bank.rounds, None][:2]
        if any(part is None or part.report.get("plan") != plan.key for part in expected):
            raise DamagedError(f"bank {plan.key[:16]} is damaged: {folder} holds another, or half")
        return bank

    def bank_or_made(
        self,
        plan: BankPlan,
        make: Callable[[], Bank],
        *,
        keep: bool = True,
        stop: Callable[[], bool] | None = None,
        after: Callable[[], None] = lambda: None,
    ) -> Bank:
        """A bank that is there, or else made; of several processes one makes it at a time.

        The others wait for it, until `stop` says that they may not: then it is a StoppedError.
        Without `keep` it is made each time. `after` is called once it is made and kept, before
        another process goes on. A damaged one is made again. Call it inside `in_use`.
        """
        while True:
            if self.has_bank(plan):
                try:
                    return self.bank(plan)
                except DamagedError:
                    self.drop_bank(plan)
            with self.lock([plan.key]) as held:
                if held and not self.has_bank(plan):
                    made = make()
                    made.report["plan"] = plan.key
                    if keep:
                        self.add_bank(plan, made)
                    after()
                    return made
            if not held:
                if stop is not None and stop():
                    raise StoppedError("stopped while another process trains the bank needed next")
                time.sleep(WAIT)

    def add_bank(self, plan: BankPlan, bank: Bank) -> None:
        """Keep a bank: the whole folder appears at once."""

        def save(part: Path) -> None:
            if bank.rounds:
                bank.rounds[0].save(part / UNPRUNED)
            bank.save(part)  # its listing comes last

        self._add(plan, save)

    def files(self, plan: BankPlan) -> dict[str, bytes]:
        """A bank as the content of its files, to be sent to another store."""
        folder = self.bank_folder(plan)
        try:
            paths = sorted(path for path in folder.rglob("*") if path.is_file())
            return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        except OSError as error:
            raise FileError(f"bank {folder} cannot be read: {error.strerror}") from error

    def add_files(self, plan: BankPlan, files: Mapping[str, bytes]) -> None:
        """Keep a bank whose files come from another store."""

        def save(part: Path) -> None:
            for name, content in files.items():
                write_whole(part / name, content)

        self._add(plan, save)

    def _add(self, plan: BankPlan, save: Callable[[Path], None]) -> None:
        folder = self.bank_folder(plan)
        part = folder.parent / f".{secrets.token_hex(8)}.part"
        try:
            save(part)
            if folder.exists() and not self.has_bank(plan):
                self.drop_bank(plan)  # half of a bank that was being dropped
            os.rename(part, folder)
        except OSError as error:
            if not self.has_bank(plan):
                raise FileError(f"cannot write {folder}: {error.strerror}") from error
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def drop_bank(self, plan: BankPlan) -> None:
        """Take a bank away: a damaged one, or one whose cells are measured."""
        part = self.path / "banks" / f".{secrets.token_hex(8)}.part"
        with contextlib.suppress(OSError):
            os.rename(self.bank_folder(plan), part)
        shutil.rmtree(part, ignore_errors=True)

    def work_folder(self, plans: Sequence[BankPlan], kind: str = "cpu") -> Path:
        """Where a run that trains these banks keeps its checkpoints, by the kind of device.

        What one kind has begun another cannot go on with.
        """
        name = digest_of([plan.key for plan in plans])
        return self.path / "work" / (name if kind == "cpu" else f"{name}-{kind}")

    @contextmanager
    def fit_folder(self, key: str, kind: str = "cpu") -> Iterator[Path]:
        """The folder of networks that several cells start from; one process at a time has it."""
        while True:
            with self.lock([key]) as held:
                if held:
                    yield self.path / "fits" / (key if kind == "cpu" else f"{key}-{kind}")
                    return
            time.sleep(WAIT)

    @contextmanager
    def lock(self, keys: Sequence[str]) -> Iterator[list[str]]:
        """Those of the keys that no other process works on, ours until the block ends."""
        held: dict[str, Lock] = {}
        try:
            for key in keys:
                lock = take_lock(self.lock_file(key))
                if lock is not None:
                    held[key] = lock
            yield list(held)
        finally:
            for lock in held.values():
                lock.release()

    def lock_file(self, key: str) -> Path:
        """What is locked while somebody works on a cell or a bank."""
        return self.path / "locks" / key

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While the block runs, no other process takes what is half written for litter."""
        with shared_lock(self.path / "lock", when_alone=self._sweep):
            yield

    def _sweep(self) -> None:
        """Remove what processes that were killed had half written, or not cleared away."""
        kept = {digest_of([folder.name]) for folder in self.path.glob("banks/*")}
        for work in self.path.glob("work/*"):
            if work.name.partition("-")[0] in kept:
                shutil.rmtree(work, ignore_errors=True)
        litter = ("banks/.*.part", "cells/*/.*.part", "locks/*")
        for part in [path for pattern in litter for path in self.path.glob(pattern)]:
            if part.is_dir():
                shutil.rmtree(part, ignore_errors=True)
            else:
                part.unlink(missing_ok=True)


def read_cell(path: Path, key: str | None = None) -> dict[str, Any]:
    """The file of a cell, of this one if a key is given; DamagedError if it is not as written."""
    content = read_sealed(path)
    if {name: content.get(name) for name in CELL} != CELL:
        raise FileError(f"{path}: is not a cell that this version reads, expected {CELL}")
    mappings = all(isinstance(content.get(name), dict) for name in ("settings", "result"))
    own = isinstance(content.get("key"), str) and key in (None, content["key"])
    if not mappings or not own:
        raise DamagedError(f"{path}: is damaged, it is not the cell that its name says")
    return content


def _is_foreign(path: Path) -> bool:
    """Whether something is in the folder that no store has while it is made."""
    return path.suffix != ".part" and path.name != "store.json"


def _other_version(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, VersionError):
        cause = cause.__cause__
    return cause is not None


def _check_format(note: Path) -> None:
    try:
        result = json.loads(note.read_bytes()) if note.is_file() else None
    except (OSError, ValueError, RecursionError):
        result = None
    if result != FORMAT:
        raise StudyError(f"{note}: is not the note of a store that this version reads: {FORMAT}")
