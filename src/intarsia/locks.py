"""Locks: one process at a time works on a file or folder, also where there is no flock.

A lock by `flock` ends with the process that holds it. Some network and user-space file systems do
not have it. There a lock is a file `NAME.held` that says which process of which machine holds it,
and that is touched every `BEAT` seconds. One whose process is gone, or on another machine has not
been touched for `STALE` seconds, is taken over.

INTARSIA_LOCKS=files asks for such files everywhere: some file systems have a flock that other
machines do not see.
"""

import errno
import hashlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Protocol, TypeVar

from intarsia.errors import FileError, RecipeError
from intarsia.files import part_of

try:
    import fcntl
except ImportError:  # Windows: no lock, the rest works
    fcntl = None  # type: ignore[assignment]

BEAT = 10.0  # seconds between two touches of a lock file
STALE = 120.0  # seconds without one after which a holder on another machine is given up
PATIENCE = 300.0  # seconds to wait for a process that clears a folder up
SETTING = "INTARSIA_LOCKS"
TAKEN = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}
UNSUPPORTED = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
T = TypeVar("T")


class Lock(Protocol):
    """Held until it is released, or the process ends."""

    @property
    def lost(self) -> bool:
        """Whether another process took it over, since this one seemed to be gone."""

    def release(self) -> None:
        """Let go of it; safe to call twice."""


def take_lock(path: str | Path) -> Lock | None:
    """The lock of this path, or None where another process has it: `holder_of` says which."""
    path = Path(path)
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _files_wanted():
            with suppress(_UnsupportedError):
                return _take_flock(path)
        return _take_file(path)


def is_locked(path: str | Path) -> bool:
    """Whether a file of this lock is there: a glance that may be wrong in a moment."""
    path = Path(path)
    return path.exists() or _held(path).exists()


def holder_of(path: str | Path) -> str:
    """Who has the lock of this path, for a message."""
    path = Path(path)
    holder = _Holder.read(_held(path)) or _Holder.read(path)
    return "another process" if holder is None else f"process {holder.pid} on {holder.host}"


@contextmanager
def shared_lock(path: str | Path, when_alone: Callable[[], None]) -> Iterator[None]:
    """Share a path with other processes that do the same, as long as the block runs.

    `when_alone` is called before the block and after it if no other process is within such a
    block; none can enter one meanwhile.
    """
    path = Path(path)
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        users = _users(path)
    try:
        with _explained(path):
            users.enter(when_alone)
        yield
        with _explained(path):
            users.leave(when_alone)
    finally:
        users.close()


class _UnsupportedError(OSError):
    """The file system has no flock."""


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(
            f"cannot lock {path}: {error.strerror or error}; "
            "check the folder's permissions and free space"
        ) from error


def _files_wanted() -> bool:
    setting = os.environ.get(SETTING) or "auto"
    if setting not in ("auto", "files"):
        raise RecipeError(f"{SETTING} is {setting!r}: set it to auto or files, or not at all")
    return setting == "files"


# By flock


def _take_flock(path: Path) -> "Lock | None":
    """The file is removed before it is let go, so that one got on a removed file is not held."""
    file = _opened(path)
    try:
        mine = _flock(file) and os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        mine = False
    except _UnsupportedError:
        file.close()
        path.unlink(missing_ok=True)
        raise
    except BaseException:
        file.close()
        raise
    if not mine:
        file.close()
        return None
    lock = _FlockLock(path, file)
    try:
        _Holder.own().write(file)
    except BaseException:
        lock.release()
        raise
    return lock


class _FlockLock:
    lost = False

    def __init__(self, path: Path, file: IO[str]) -> None:
        self.path, self.file = path, file

    def release(self) -> None:
        if not self.file.closed:
            with suppress(OSError):
                self.path.unlink()
            self.file.close()


def _opened(path: Path) -> IO[str]:
    """Open for writing without harm to what another process has written."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+", encoding="utf-8")


def _flock(file: IO[str], shared: bool = False) -> bool:
    """Whether the lock was got; a second call changes it from shared to alone or back."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in TAKEN:
            return False
        if error.errno in UNSUPPORTED:
            raise _UnsupportedError(*error.args) from error
        raise
    return True


# By files


@dataclass(frozen=True)
class _Holder:
    """Who holds a lock; a process is known by its machine, its number and when it began."""

    host: str
    machine: str
    pid: int
    began: str
    token: str  # of this one lock

    @classmethod
    def own(cls) -> "_Holder":
        pid = os.getpid()
        return cls(socket.gethostname(), _machine(), pid, _began(pid), secrets.token_hex(8))

    @classmethod
    def read(cls, path: Path) -> "_Holder | None":
        """What the file of a lock says; None where it says nothing that can be read."""
        try:
            holder = cls(**json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError, RecursionError):
            return None
        texts = (holder.host, holder.machine, holder.began, holder.token)
        sound = type(holder.pid) is int and all(isinstance(text, str) for text in texts)
        return holder if sound else None

    def write(self, file: IO[str]) -> None:
        file.seek(0)
        file.truncate()
        file.write(json.dumps(asdict(self)))
        file.flush()

    @property
    def here(self) -> bool:
        return (self.host, self.machine) == (socket.gethostname(), _machine())

    @property
    def alive(self) -> bool:
        """Whether a process of this machine still runs, and is not another of the same number."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except (OSError, OverflowError):
            pass  # it is another user's
        return _began(self.pid) == self.began


def _machine() -> str:
    """This boot of this machine, and its numbering of processes: containers have their own."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _began(pid: int) -> str:
    """When a process began, as the kernel counts; of one that has ended "gone", "" if unknown."""
    try:
        # the name in brackets may hold anything; after it come the state and then numbers
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return "gone" if Path("/proc/self/stat").exists() else ""
    return "gone" if fields[0] in "ZX" else fields[19]


def _held(path: Path) -> Path:
    return path.with_name(f"{path.name}.held")


def _take_file(path: Path) -> "_FileLock | None":
    """Make the file that says it is ours, in one step, or take over one that was left behind."""
    held, holder = _held(path), _Holder.own()
    part = part_of(held)
    try:
        with part.open("x", encoding="utf-8") as file:
            holder.write(file)
        if _make(held, part, holder) or _take_over(held, part):
            return _FileLock(held, holder.token)
        return None
    finally:
        part.unlink(missing_ok=True)


def _make(held: Path, part: Path, holder: _Holder) -> bool:
    """Give the file its name if there is none of that name, with links or without."""
    try:
        os.link(part, held)
    except FileExistsError:  # maybe by ourselves: answers of a network get lost
        with suppress(OSError):
            return held.samefile(part)
        return False
    except OSError:
        try:
            with held.open("x", encoding="utf-8") as file:
                holder.write(file)
        except FileExistsError:
            return False
    return True


def _take_over(held: Path, part: Path) -> bool:
    """Put our file in the place of one whose holder is gone.

    Of several that see it, one at a time may, by a lock named after the very file that is to go;
    whoever comes next sees another file. No live lock is ever replaced.
    """
    before = _content(held)
    if before is None or not _is_stale(held, part):
        return False
    guard = _take_file(held.with_name(f"{held.name}-{hashlib.sha256(before).hexdigest()[:8]}"))
    if guard is None:
        return False
    try:
        if _content(held) != before:
            return False
        part.replace(held)
        return True
    except FileNotFoundError:  # ours was swept: the holder is there after all
        return False
    finally:
        guard.release()


def _is_stale(held: Path, now: Path) -> bool:
    """Whether a holder is gone; `now` is a file just written there, so that one clock is asked."""
    holder = _Holder.read(held)
    if holder is not None and holder.here:
        return not holder.alive
    try:
        return now.stat().st_mtime - held.stat().st_mtime > STALE
    except FileNotFoundError:
        return False


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


class _FileLock:
    def __init__(self, held: Path, token: str) -> None:
        self.held, self.token = held, token
        _HEART.add(self)

    @property
    def lost(self) -> bool:
        holder = _Holder.read(self.held)
        return holder is None or holder.token != self.token

    def touch(self) -> None:
        with suppress(OSError):
            if not self.lost:
                os.utime(self.held)

    def release(self) -> None:
        if _HEART.remove(self):
            with suppress(OSError):
                if not self.lost:
                    self.held.unlink()


class _Heart:
    """A thread that touches the files of all locks that this process holds."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.locks: set[_FileLock] = set()
        self.thread: threading.Thread | None = None
        self.guard = threading.Lock()

    def add(self, lock: _FileLock) -> None:
        with self.guard:
            self.locks.add(lock)
            if self.thread is None:
                self.thread = threading.Thread(target=self._beat, name="locks", daemon=True)
                self.thread.start()

    def remove(self, lock: _FileLock) -> bool:
        """Whether it was there."""
        with self.guard:
            there = lock in self.locks
            self.locks.discard(lock)
            return there

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT)
            with self.guard:
                held = list(self.locks)
                if not held:
                    self.thread = None
                    return
            for lock in held:
                lock.touch()


_HEART = _Heart()
if hasattr(os, "register_at_fork"):  # a child holds none of its parent's locks
    os.register_at_fork(after_in_child=_HEART.reset)


# Several processes on one path


def _users(path: Path) -> "_FlockUsers | _FileUsers":
    if not _files_wanted():
        file = _opened(path)
        try:
            return _FlockUsers(path, file, alone=_flock(file))
        except _UnsupportedError:
            file.close()
            path.unlink(missing_ok=True)
        except BaseException:
            file.close()
            raise
    return _FileUsers(path.with_name(f"{path.name}.users"))


class _FlockUsers:
    """A shared lock; who gets it alone is alone."""

    def __init__(self, path: Path, file: IO[str], alone: bool) -> None:
        self.path, self.file, self.alone = path, file, alone

    def enter(self, when_alone: Callable[[], None]) -> None:
        if self.alone:
            _Holder.own().write(self.file)
            when_alone()
        _wait(lambda: _flock(self.file, shared=True), self.path)

    def leave(self, when_alone: Callable[[], None]) -> None:
        if _flock(self.file):
            when_alone()

    def close(self) -> None:
        self.file.close()


class _FileUsers:
    """A folder with a lock file of each process, and a gate through which one passes at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.gate = folder, folder / "gate"
        self.own: _FileLock | None = None

    def enter(self, when_alone: Callable[[], None]) -> None:
        self.folder.mkdir(exist_ok=True)
        gate = _wait(lambda: _take_file(self.gate), self.gate)
        try:
            if self._alone():
                when_alone()
            self.own = _take_file(self.folder / secrets.token_hex(8))
        finally:
            gate.release()

    def leave(self, when_alone: Callable[[], None]) -> None:
        self.close()
        gate = _take_file(self.gate)
        if gate is None:  # whoever has it enters or leaves, and looks
            return
        try:
            if self._alone():
                when_alone()
        finally:
            gate.release()

    def close(self) -> None:
        if self.own is not None:
            self.own.release()

    def _alone(self) -> bool:
        """Whether no other process is there; files of those that are gone are removed."""
        gate = _held(self.gate)
        others = [path for path in self.folder.iterdir() if path != gate]
        for path in others:
            if path.suffix == ".part" or _is_stale(path, gate):
                path.unlink(missing_ok=True)
        return not any(path.exists() for path in others if path.suffix == ".held")


def _wait(attempt: Callable[[], T | None], path: Path) -> T:
    """What `attempt` gives in the end; an error that names the holder if that takes too long."""
    end = time.monotonic() + PATIENCE
    while True:
        result = attempt()
        if result:
            return result
        if time.monotonic() > end:
            raise FileError(
                f"{path} has been locked for {PATIENCE:g} s by {holder_of(path)}: "
                "end that process, or delete the file if there is none"
            )
        time.sleep(0.02)
