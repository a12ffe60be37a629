"""Who is here: every visitor's own modules and uploads, bounded in number, bytes and time."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, RLock
from typing import TypeVar

from intarsia.errors import FileError
from intarsia.modules import Module
from intarsia.studio.session import Session
from intarsia.studio.uploads import LoadResult, load, load_from_folder
from intarsia.studio.web.studio_limits import StudioLimits, megabytes

VISITOR: ContextVar[str] = ContextVar("visitor")
"""Whose request is being answered: the guard says so."""

Result = TypeVar("Result")
UNCLAIMED = 60.0  # seconds after which an upload that nobody loaded is deleted
STRAYS = 500  # files in the folder of uploads that belong to nobody


@dataclass
class _Record:
    """What one visitor has here beyond what the studio was started with."""

    seen: float
    session: Session | None = None
    sizes: dict[str, int] = field(default_factory=dict)  # bytes of each module, by its name
    unread: dict[Path, int] = field(default_factory=dict)  # bytes of each upload, not loaded yet
    expected: list[int] = field(default_factory=list)  # bytes of each upload on its way

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values()) + sum(self.unread.values()) + sum(self.expected)

    @property
    def is_empty(self) -> bool:
        return not (self.sizes or self.unread or self.expected)


class Visitors:
    """The sessions and uploads of all visitors; what the studio was started with is shared.

    A visitor is the value of a cookie. Those without modules of their own use the shared session,
    which nobody can change. `uploads` is the folder in which files arrive.
    """

    def __init__(
        self,
        shared: Session,
        uploads: Path,
        limits: StudioLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shared, self.uploads = shared, uploads.resolve()
        self.limits, self.clock = limits or StudioLimits(), clock
        self._records: dict[str, _Record] = {}
        self._lock = RLock()  # never held while something is computed: the network waits for it
        self._reading: list[Path] = []  # uploads that are being loaded
        self._loading = Lock()  # one file at a time is read, whoever sent it

    def session(self, visitor: str) -> Session:
        """The session of a visitor: their own, or the shared one."""
        with self._lock:
            self._expire()
            record = self._records.get(visitor)
            if record is None:
                return self.shared
            record.seen = self.clock()
            return record.session or self.shared

    @contextmanager
    def receiving(self, visitor: str, length: int) -> Iterator[None]:
        """Room for an upload of so many bytes while it is on its way, or an error that says why."""
        with self._lock:
            self.sweep()
            record = self._record(visitor)
            if len(record.unread) + len(record.expected) >= self.limits.unread_files:
                raise FileError(
                    f"{self.limits.unread_files} of your files are being read: try again in a "
                    "minute"
                )
            self._check_strays()
            self._check_bytes(record, length)
            record.expected.append(length)
            self._records[visitor] = record
        try:
            yield
        finally:
            with self._lock:
                record.expected.remove(length)
                self._drop_if_empty(visitor)

    def arrived(self, visitor: str, paths: Sequence[Path]) -> None:
        """An upload is there: it belongs to this visitor until it is loaded, or a minute passed."""
        with self._lock:
            record = self._record(visitor)
            record.unread.update({path.resolve(): path.stat().st_size for path in paths})
            self._records[visitor] = record
            if len(paths) > 1:  # the page sends one
                for path in paths:
                    self._claim(visitor, path.resolve(), reading=False)
                    self._delete(path.resolve(), reading=False)
                raise FileError("several files came at once: send one at a time")

    def owns(self, visitor: str, path: Path) -> bool:
        """Whether this visitor uploaded that file, and it was not loaded yet."""
        with self._lock:
            record = self._records.get(visitor)
            return record is not None and path in record.unread

    def load(self, visitor: str, path: Path) -> LoadResult:
        """Read an upload into the visitor's session; the file goes in any case."""
        self._claim(visitor, path)
        try:
            return self._load(visitor, lambda own, check: load(own, path, path.name, check))
        finally:
            self._delete(path)

    def read(self, visitor: str, path: Path, reading: Callable[[Path], Result]) -> Result:
        """What a function makes of an upload; the file goes in any case."""
        self._claim(visitor, path)
        try:
            with self._loading:
                return reading(path)
        finally:
            self._delete(path)

    def load_from_folder(self, visitor: str, name: str) -> LoadResult:
        """Read a file of the folders that the studio was given into the visitor's session."""
        return self._load(visitor, lambda own, check: load_from_folder(own, name, check))

    def remove(self, visitor: str, name: str) -> None:
        """Remove a module that the visitor loaded."""
        self.session(visitor).remove(name)
        with self._lock:
            if record := self._records.get(visitor):
                record.sizes.pop(name, None)
                self._drop_if_empty(visitor)

    def sweep(self) -> None:
        """Forget visitors that were not seen for long, and delete uploads that nobody loaded."""
        with self._lock:
            self._expire()
            latest = time.time() - UNCLAIMED
            for path in self._files():
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_mtime < latest:
                        for visitor in list(self._records):
                            self._claim(visitor, path, reading=False)
                        self._delete(path, reading=False)

    def _expire(self) -> None:
        now = self.clock()
        for visitor, record in list(self._records.items()):
            if now - record.seen > self.limits.idle_seconds and not record.expected:
                del self._records[visitor]

    def _load(
        self,
        visitor: str,
        loading: Callable[[Session, Callable[[Sequence[Module]], None]], LoadResult],
    ) -> LoadResult:
        with self._loading:
            with self._lock:
                record = self._record(visitor)
            own = record.session or self.shared.for_visitor()

            def check(parts: Sequence[Module]) -> None:
                with self._lock:
                    self._check_modules(record, len(parts))
                    self._check_bytes(record, sum(map(self._size, parts)))

            try:
                return loading(own, check)
            finally:  # also of a file whose later parts do not fit
                added = [name for name in own.names if name not in own.initial]
                with self._lock:
                    record = self._records.setdefault(visitor, record)
                    record.sizes = {name: self._size(own[name]) for name in added}
                    record.session, record.seen = own, self.clock()
                    self._drop_if_empty(visitor)

    def _record(self, visitor: str) -> _Record:
        """What is known of a visitor, or a new record, which is not kept yet."""
        record = self._records.get(visitor)
        if record is not None:
            return record
        if len(self._records) >= self.limits.visitors:
            raise FileError(
                f"{self.limits.visitors} visitors have modules here: try again later, or ask for "
                "another --limit visitors"
            )
        return _Record(self.clock())

    def _check_modules(self, record: _Record, more: int) -> None:
        limits = self.limits
        if len(record.sizes) + more > limits.visitor_modules:
            raise FileError(
                f"this would be {len(record.sizes) + more} modules of yours, the limit is "
                f"{limits.visitor_modules}: remove some first"
            )
        if sum(len(r.sizes) for r in self._records.values()) + more > limits.all_modules:
            raise FileError(
                f"all visitors together may load {limits.all_modules} modules: try again later"
            )

    def _check_bytes(self, record: _Record, more: int) -> None:
        limits = self.limits
        if more and record.bytes + more > limits.visitor_bytes:
            raise FileError(
                f"your modules and uploads would take {megabytes(record.bytes + more)}, the limit "
                f"is {megabytes(limits.visitor_bytes)}: remove some first"
            )
        if more and sum(r.bytes for r in self._records.values()) + more > limits.all_bytes:
            raise FileError(
                f"the modules of all visitors together may take {megabytes(limits.all_bytes)}: "
                "try again later"
            )

    def _check_strays(self) -> None:
        """Uploads that were broken off lie about for a minute: there may be only so many."""
        unread = {path for record in self._records.values() for path in record.unread}
        strays = [path for path in self._files() if path not in unread]
        if len(strays) > STRAYS:
            raise FileError("too many uploads were broken off: try again in a minute")

    def _files(self) -> list[Path]:
        paths = [*self.uploads.glob("*"), *self.uploads.glob("*/*")]
        return [path for path in paths if path.is_file()]

    def _drop_if_empty(self, visitor: str) -> None:
        record = self._records.get(visitor)
        if record is not None and record.is_empty:
            del self._records[visitor]

    def _claim(self, visitor: str, path: Path, reading: bool = True) -> None:
        """A visitor's upload is no longer waiting: it is being loaded, or it goes."""
        with self._lock:
            if visitor in self._records:
                self._records[visitor].unread.pop(path, None)
                self._drop_if_empty(visitor)
            if reading:
                self._reading.append(path)

    def _delete(self, path: Path, reading: bool = True) -> None:
        """Delete a file, unless another visitor sent the same and wants it."""
        with self._lock:
            if reading:
                self._reading.remove(path)
            waiting = any(path in record.unread for record in self._records.values())
            if not waiting and path not in self._reading:
                path.unlink(missing_ok=True)
                if path.parent != self.uploads:
                    with contextlib.suppress(OSError):  # not empty: another file has its content
                        path.parent.rmdir()

    def _size(self, module: Module) -> int:
        """The bytes that a module's numbers, its mask and its logits on the test split take."""
        tensors = (*module.state.values(), *module.mask.values())
        logits = len(self.shared.test) * len(self.shared.catalogue) * 4
        return logits + sum(tensor.numel() * tensor.element_size() for tensor in tensors)
