"""Watch: processes that try inputs one by one, and a parent that ends those that take too much.

For Linux: memory is read from /proc. A process may have so much address space more than it begins
with (RLIMIT_AS), so that one input cannot take the machine down; an allocation that fails there is
a fault, also where an error of ours follows.
"""

import contextlib
import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.attack.surface import Input, Maker, Outcome, Surface, outcome_of

ROUND = 400  # inputs after which a process makes way for a fresh one
STUCK = 3.0  # seconds without any processor time
TURNS = 5  # how often an input is drawn until it can be made
SLACK = 2**30  # address space beyond the limit, which may be asked for but not be used


@dataclass(frozen=True)
class Limits:
    """What an input may take."""

    seconds: float = 10.0
    memory: int = 2 * 2**30


Number = tuple[str, int]  # a surface and the number of an input there


def attempt(surface: Surface, seed: int, index: int, folder: Path) -> Outcome:
    """Make one input in an empty folder, and hand it in; the kinds take turns."""
    kinds = list(surface.kinds.values())
    place = folder / str(index)
    place.mkdir()
    before = _memory("VmRSS")
    try:
        given = _made(kinds[index % len(kinds)], f"{seed}/{surface.name}/{index}", place)
        _forget_peak()
        began = time.process_time()
        outcome = outcome_of(given)
        return replace(
            outcome,
            seconds=time.process_time() - began,
            peak=max(0, _memory("VmHWM") - before),
        )
    finally:
        _remove(place)


def _made(make: Maker, name: str, place: Path) -> Input:
    """The input of this name; what chance made impossible to write is drawn anew."""
    reason: Exception | None = None
    for turn in range(TURNS):
        try:
            return make(Random(f"{name}/{turn}"), place)
        except Exception as error:
            reason = error
            _remove(place)
            place.mkdir()
    raise AssertionError(f"the input {name} cannot be made: {reason!r}") from reason


def watch(
    surfaces: Mapping[str, Surface],
    numbers: Sequence[Number],
    seed: int,
    workers: int,
    limits: Limits,
    done: Callable[[Number, Outcome], None],
) -> None:
    """Try all inputs in processes that are forked from this one; `done` is given each outcome."""
    waiting: Iterator[Number] = iter(numbers)
    with tempfile.TemporaryDirectory(prefix="attack-") as scratch:
        pool = [Worker(surfaces, seed, limits, Path(scratch)) for _ in range(workers)]
        try:
            busy = {worker for worker in pool if worker.give(next(waiting, None))}
            while busy:
                ready = wait([worker.pipe for worker in busy], timeout=0.2)
                for worker in list(busy):
                    outcome = worker.outcome(worker.pipe in ready)
                    if outcome is None:
                        continue
                    done(worker.number, outcome)
                    if not worker.give(next(waiting, None)):
                        busy.discard(worker)
        finally:
            for worker in pool:
                worker.end()


class Worker:
    """A process and what it is doing."""

    def __init__(
        self, surfaces: Mapping[str, Surface], seed: int, limits: Limits, scratch: Path
    ) -> None:
        self.settings = (surfaces, seed, limits, scratch)
        self.limits = limits
        self.number: Number = ("", -1)
        self.process: Any = None
        self._start()

    def _start(self) -> None:
        processes = multiprocessing.get_context("fork")
        self.pipe, there = processes.Pipe()
        self.process = processes.Process(target=_work, args=(there, *self.settings))
        self.process.start()
        there.close()
        self.tried = 0

    def give(self, number: Number | None) -> bool:
        """Begin with another input; False where there is none."""
        if number is None:
            return False
        if self.tried >= ROUND:
            self.end()
            self._start()
        self.number, self.began = number, time.monotonic()
        self.before = self.seen = _seconds(self.process.pid)
        self.moved = self.began
        self.tried += 1
        self.pipe.send(number)
        return True

    def outcome(self, ready: bool) -> Outcome | None:
        """How it ended, by itself or by its limit; None while it goes on."""
        if ready:
            try:
                result: Any = self.pipe.recv()
                if isinstance(result, AssertionError):
                    raise result
                return result
            except (EOFError, OSError):
                self.process.join()
                code = self.process.exitcode
                self.end()
                self._start()
                return Outcome("died", f"exit code {code}")
        reason = self._overdue()
        if reason is None:
            return None
        self.end()
        self._start()
        return Outcome("time", reason)

    def _overdue(self) -> str | None:
        """Too much processor time, or too long a wait in which nothing is done: how it is stuck.

        Others may keep the machine busy, so the clock alone says little. The maker has a second.
        """
        now, spent, limit = time.monotonic(), _seconds(self.process.pid), self.limits.seconds
        if spent > self.seen:
            self.seen, self.moved = spent, now
        if spent - self.before > limit + 1:
            return f"no answer in {limit:g} s"
        if now - self.began > limit and now - self.moved > STUCK:
            return f"waits for what never comes, {limit:g} s by now"
        return None

    def end(self) -> None:
        """End the process with all that it started."""
        if self.process.is_alive():
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                self.process.kill()
        self.process.join()
        self.pipe.close()


def _work(
    pipe: Connection, surfaces: Mapping[str, Surface], seed: int, limits: Limits, scratch: Path
) -> None:
    os.setsid()
    _be_quiet(scratch)
    _limit_memory(limits)
    folder = Path(tempfile.mkdtemp(dir=scratch))
    while True:
        try:
            name, index = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            pipe.send(judged(attempt(surfaces[name], seed, index, folder), limits))
        except AssertionError as error:
            pipe.send(error)


def judged(outcome: Outcome, limits: Limits) -> Outcome:
    """The outcome, with what it took."""
    if outcome.verdict not in ("foreign", "wrong", "memory"):
        if outcome.peak > limits.memory:
            return replace(outcome, verdict="memory", detail=f"{outcome.peak / 2**30:.1f} GiB")
        if outcome.seconds > limits.seconds:
            return replace(outcome, verdict="time", detail=f"{outcome.seconds:.1f} s")
    return outcome


def _be_quiet(scratch: Path) -> None:
    """Nothing to read and nowhere to print; what was imported may warn."""
    warnings.simplefilter("ignore")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    os.chdir(tempfile.mkdtemp(dir=scratch))


def _limit_memory(limits: Limits) -> None:
    most = _memory("VmSize") + limits.memory + SLACK
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _memory(field: str) -> int:
    """Bytes, by the system's word for them."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


def _seconds(process: int) -> float:
    """The processor time of a process and of those that it waited for."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _forget_peak() -> None:
    """The peak counts from now; where that may not be set, it is that of the process."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _remove(folder: Path) -> None:
    """Everything below, whatever it is, and none of what it points to."""
    shutil.rmtree(folder, ignore_errors=True)
