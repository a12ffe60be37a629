"""Locks: one process at a time, by flock or by files, and none that is held for ever."""

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from intarsia import locks
from intarsia.errors import FileError, RecipeError
from intarsia.locks import STALE, holder_of, shared_lock, take_lock

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no locks here")
Flock = Callable[[int], None]
NO_FLOCK = """
import errno, fcntl, pathlib, socket, sys, time
def fail(*_):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = fail
socket.gethostname = lambda: sys.argv[2]
from intarsia import locks
place = pathlib.Path(sys.argv[1])
"""


@pytest.fixture
def flock_fails(monkeypatch: pytest.MonkeyPatch) -> Flock:
    """`flock_fails(errno.ENOSYS)`: from now on it does, with this error."""

    def fails(number: int) -> None:
        def fail(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(fcntl, "flock", fail)

    return fails


@pytest.fixture(params=["flock", "files"])
def either(request: pytest.FixtureRequest, flock_fails: Flock) -> str:
    if request.param == "files":
        flock_fails(errno.ENOSYS)
    return str(request.param)


@pytest.fixture
def held(tmp_path: Path, flock_fails: Flock) -> Path:
    """The file of a lock where there is no flock."""
    flock_fails(errno.EOPNOTSUPP)
    return tmp_path / "lock.held"


def other(**changes: object) -> str:
    """What the file of another process's lock holds."""
    own = vars(locks._Holder.own())
    return json.dumps({**own, "token": "0" * 16, **changes})


def test_a_lock_is_given_to_one_and_leaves_nothing(tmp_path: Path, either: str) -> None:
    lock = take_lock(tmp_path / "deep" / "lock")
    assert lock is not None
    assert not lock.lost
    assert take_lock(tmp_path / "deep" / "lock") is None
    host = socket.gethostname()
    assert holder_of(tmp_path / "deep" / "lock") == f"process {os.getpid()} on {host}"
    lock.release()
    lock.release()
    assert not [*(tmp_path / "deep").iterdir()]
    again = take_lock(tmp_path / "deep" / "lock")
    assert again is not None
    again.release()


@pytest.mark.parametrize("number", sorted(locks.TAKEN))
def test_taken_is_not_unsupported(tmp_path: Path, flock_fails: Flock, number: int) -> None:
    flock_fails(number)
    assert take_lock(tmp_path / "lock") is None


@pytest.mark.parametrize("number", sorted(locks.UNSUPPORTED))
def test_where_flock_is_missing_a_file_is_the_lock(
    tmp_path: Path, flock_fails: Flock, number: int
) -> None:
    flock_fails(number)
    lock = take_lock(tmp_path / "lock")
    assert lock is not None
    assert (tmp_path / "lock.held").exists()
    lock.release()


def test_other_errors_are_told(tmp_path: Path, flock_fails: Flock) -> None:
    flock_fails(errno.EIO)
    with pytest.raises(FileError, match=r"cannot lock .*lock: Input/output error"):
        take_lock(tmp_path / "lock")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot lock"):
        take_lock(tmp_path / "file" / "lock")


def test_files_may_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(locks.SETTING, "files")
    lock = take_lock(tmp_path / "lock")
    assert lock is not None
    assert [path.name for path in tmp_path.iterdir()] == ["lock.held"]
    lock.release()
    monkeypatch.setenv(locks.SETTING, "file")
    with pytest.raises(RecipeError, match="INTARSIA_LOCKS is 'file'"):
        take_lock(tmp_path / "lock")


@pytest.mark.parametrize("gone", [{"pid": 2**22 + 5}, {"began": "1"}, {"pid": 2**80}])
def test_a_lock_of_a_process_that_is_gone_is_taken_over(
    held: Path, gone: dict[str, object]
) -> None:
    """Also of one whose number another process has now."""
    held.write_text(other(**gone))
    lock = take_lock(held.with_suffix(""))
    assert lock is not None
    assert not lock.lost
    lock.release()
    assert not [*held.parent.iterdir()]


@pytest.mark.parametrize(
    "content",
    ["", "[" * 10**5, '{"host":1}', "\0", other(machine="there")],
    ids=["empty", "nested", "half", "null", "another machine"],
)
def test_a_lock_from_elsewhere_is_taken_over_once_its_heart_stands_still(
    held: Path, content: str
) -> None:
    held.write_text(content)
    assert take_lock(held.with_suffix("")) is None
    past = time.time() - STALE + 20
    os.utime(held, (past, past))
    assert take_lock(held.with_suffix("")) is None
    past -= 30
    os.utime(held, (past, past))
    lock = take_lock(held.with_suffix(""))
    assert lock is not None
    lock.release()


def test_the_holder_on_another_machine_is_named(held: Path) -> None:
    held.write_text(other(host="elsewhere", pid=17))
    assert take_lock(held.with_suffix("")) is None
    assert holder_of(held.with_suffix("")) == "process 17 on elsewhere"


def test_of_many_that_see_a_dead_lock_one_gets_it(held: Path) -> None:
    for _ in range(5):
        held.write_text(other(pid=2**22 + 5))
        start, got = threading.Barrier(8), []

        def grab(start: threading.Barrier = start, got: list[object] = got) -> None:
            start.wait()
            got.append(take_lock(held.with_suffix("")))

        crew = [threading.Thread(target=grab) for _ in range(8)]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
        (lock,) = [lock for lock in got if lock is not None]
        assert not lock.lost  # type: ignore[attr-defined]
        lock.release()  # type: ignore[attr-defined]
    assert not [*held.parent.iterdir()]


def test_a_takeover_that_was_killed_is_taken_over_itself(held: Path) -> None:
    dead = other(pid=2**22 + 5)
    held.write_text(dead)
    lock = take_lock(held.with_suffix(""))
    assert lock is not None
    lock.release()
    held.write_text(dead)
    guard = locks.hashlib.sha256(dead.encode()).hexdigest()[:8]
    held.with_name(f"lock.held-{guard}.held").write_text(other(pid=2**22 + 6))
    lock = take_lock(held.with_suffix(""))
    assert lock is not None
    lock.release()
    held.write_text(dead)
    held.with_name(f"lock.held-{guard}.held").write_text(other())  # somebody is at it
    assert take_lock(held.with_suffix("")) is None


def test_links_are_not_needed(held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", fail)
    lock = take_lock(held.with_suffix(""))
    assert lock is not None
    assert take_lock(held.with_suffix("")) is None
    lock.release()
    assert not [*held.parent.iterdir()]


def test_the_heart_beats_while_a_lock_is_held(held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "BEAT", 0.01)
    heart = locks._Heart()
    monkeypatch.setattr(locks, "_HEART", heart)
    lock = take_lock(held.with_suffix(""))
    assert lock is not None
    os.utime(held, (0, 0))
    assert _until(lambda: held.stat().st_mtime > 0)
    held.write_text(other(host="elsewhere"))  # as one that took it over
    os.utime(held, (0, 0))
    assert lock.lost
    time.sleep(0.05)
    assert held.stat().st_mtime == 0
    lock.release()
    assert held.exists()
    assert _until(lambda: heart.thread is None)


def test_a_fork_holds_no_lock_of_its_parent(held: Path) -> None:
    lock = take_lock(held.with_suffix(""))
    assert lock is not None
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        child = os.fork()  # beside the thread that touches
    if not child:
        lock.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert not lock.lost
    lock.release()


def test_two_machines_without_flock_take_turns(tmp_path: Path) -> None:
    """Each adds one to a number again and again, and none is lost."""
    script = NO_FLOCK + (
        "for _ in range(25):\n"
        "    while (lock := locks.take_lock(place / 'lock')) is None: pass\n"
        "    number = place / 'number'\n"
        "    number.write_text(str(int(number.read_text()) + 1))\n"
        "    lock.release()\n"
    )
    (tmp_path / "number").write_text("0")
    assert _run_both(script, tmp_path) == [b"", b""]
    assert (tmp_path / "number").read_text() == "50"
    assert [path.name for path in tmp_path.iterdir()] == ["number"]


def test_a_shared_lock_calls_when_alone(tmp_path: Path, either: str) -> None:
    seen: list[str] = []
    with shared_lock(tmp_path / "lock", lambda: seen.append("alone")):
        assert seen == ["alone"]
        with shared_lock(tmp_path / "lock", lambda: seen.append("second")):
            pass
        assert seen == ["alone"]
    assert seen == ["alone", "alone"]


def test_of_two_machines_only_the_one_alone_sweeps(tmp_path: Path) -> None:
    """Whoever sweeps while another is within would remove its file."""
    script = NO_FLOCK + (
        "own = place / 'files' / sys.argv[2]\n"
        "def sweep():\n"
        "    for path in (place / 'files').iterdir(): path.unlink()\n"
        "for _ in range(15):\n"
        "    with locks.shared_lock(place / 'lock', sweep):\n"
        "        own.write_text('')\n"
        "        time.sleep(0.002)\n"
        "        assert own.exists()\n"
        "        own.unlink()\n"
    )
    (tmp_path / "files").mkdir()
    assert _run_both(script, tmp_path) == [b"", b""]


def test_those_that_were_killed_do_not_count(tmp_path: Path, flock_fails: Flock) -> None:
    flock_fails(errno.ENOSYS)
    users = tmp_path / "lock.users"
    users.mkdir()
    for name in ("gate", "one"):
        (users / f"{name}.held").write_text(other(pid=2**22 + 5))
    (users / ".0.part").write_text("")
    seen: list[int] = []
    with shared_lock(tmp_path / "lock", lambda: seen.append(1)):
        assert seen == [1]
        assert len([*users.iterdir()]) == 1


def test_waiting_has_an_end_that_names_the_holder(
    tmp_path: Path, either: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    if either == "files":
        (tmp_path / "lock.users").mkdir()
        (tmp_path / "lock.users" / "gate.held").write_text(other(host="elsewhere", pid=17))
    with (tmp_path / "lock").open("w") as file:
        if either == "flock":
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(other(host="elsewhere", pid=17))
            file.flush()
        shared = shared_lock(tmp_path / "lock", lambda: None)
        with pytest.raises(FileError, match=r"locked for 0\.1 s by process 17 on elsewhere"):
            shared.__enter__()


def _run_both(script: str, place: Path) -> list[bytes]:
    """What two processes that call themselves different machines say against it."""
    crew = [
        subprocess.Popen([sys.executable, "-c", script, str(place), host], stderr=subprocess.PIPE)
        for host in ("one", "two")
    ]
    return [process.communicate(timeout=120)[1] for process in crew]


def _until(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()
