"""Try the mutants of one room on its tests, each in a process forked from one that is ready.

A fork of the room's process collects its tests and runs them as they are, under a tracer that notes
which lines each test reaches; the libraries that they import are then imported in both processes.
Tests that fail in a fork made then, with nothing changed, would seem to kill every mutant that they
reach: they are left out. A mutant inside a function is tried in a fork of the second, where the
function's code is exchanged; one that takes effect when its file is imported, in a fork of the
first, where an import hook compiles the file with the change. The former runs only the tests that
reach the changed lines, the latter all of the room, those of the least time first; the first that
fails ends it. Nothing is written into the tree.
"""

import contextlib
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

from benchmarks.mutation.mutate import Mutant, function_code, mutants_of, mutated_code

OPTIONS = ("-q", "-p", "no:cacheprovider", "--capture=sys", "--continue-on-collection-errors")
FIRST = 15  # tests that are sorted by time; the others stay in order and share their fixtures
GIB = 2**30
SURVIVED, KILLED = 0, 1  # exit codes of a trial
FAILING = "failed without a change in a trial"
Lines = set[tuple[str, int]]


@dataclass(frozen=True)
class Order:
    """What to do, as the command wrote it down for the process of one room."""

    room: str
    root: str
    sources: list[str]
    tests: list[str]
    chosen: list[int] | None  # places among all mutants of the room; None for all
    tokens: tuple[int, int]  # a pipe with one byte for each process that may run
    scratch: str
    answer: str

    @classmethod
    def read(cls, path: str) -> "Order":
        return cls(**json.loads(Path(path).read_text()))

    @property
    def mutants(self) -> dict[int, Mutant]:
        every = room_mutants(Path(self.root), self.sources)
        return dict(enumerate(every)) if self.chosen is None else {n: every[n] for n in self.chosen}


@dataclass
class Baseline:
    """What the tests do without a change: those that pass, their time, the lines they reach."""

    seconds: dict[str, float] = field(default_factory=dict)  # of the processor, fixtures included
    lines: dict[str, dict[str, list[int]]] = field(default_factory=dict)  # by test and file
    left_out: dict[str, str] = field(default_factory=dict)
    imports: list[str] = field(default_factory=list)  # modules of others that tests import

    def reaching(self, mutant: Mutant) -> list[str]:
        """Tests that run a changed line, the quickest first."""
        first, last = mutant.lines
        reached = [
            test
            for test, lines in self.lines.items()
            if any(first <= line <= last for line in lines.get(mutant.file, ()))
        ]
        return self._quickest_first(reached)

    def importing(self, mutant: Mutant) -> list[str]:
        """All tests, those that run lines of the changed file first."""
        near = [test for test, lines in self.lines.items() if mutant.file in lines]
        far = [test for test in self.lines if test not in set(near)]
        return [*self._quickest_first(near), *far]

    def _quickest_first(self, tests: list[str]) -> list[str]:
        quickest = sorted(tests, key=self.seconds.__getitem__)[:FIRST]
        return [*quickest, *(test for test in tests if test not in set(quickest))]

    def leave_out(self, tests: Iterable[str], reason: str) -> None:
        for test in tests:
            self.left_out[test] = reason
            del self.lines[test], self.seconds[test]

    def limit(self, tests: Iterable[str]) -> float:
        """Seconds of the processor that a trial of these tests may take."""
        return 3 + 4 * sum(self.seconds[test] for test in tests)


def room_mutants(root: Path, sources: Iterable[str]) -> list[Mutant]:
    """Mutants of all files of a room."""
    return [m for source in sources for m in mutants_of((root / source).read_text(), source)]


def main() -> None:
    order = Order.read(sys.argv[1])
    pool = Pool(order.tokens, Path(order.scratch))
    mutants = order.mutants
    # The first answer is written by a fork that has collected the tests.
    collected = os.fork()
    if not collected:
        code = 1
        try:
            pytest.main([*OPTIONS, *order.tests], plugins=[Collected(order, pool, mutants)])
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(collected, 0)
    if status or not Path(order.answer).exists():
        sys.exit(f"{order.room}: its tests could not be collected or run, status {status}")
    answer = json.loads(Path(order.answer).read_text())
    baseline = Baseline(**answer.pop("baseline"))
    _import_all(baseline.imports)
    gc.freeze()
    waiting = [n for n in mutants if str(n) not in answer["outcomes"]]
    if waiting:
        baseline.leave_out(_failing_imported(order, baseline, pool), FAILING)
    answer["outcomes"] |= pool.run(_imported(order, mutants[n], n, baseline) for n in waiting)
    answer["seconds"] |= pool.seconds
    answer["left_out"] = baseline.left_out
    answer["tests"] = len(baseline.seconds)
    Path(order.answer).write_text(json.dumps(answer))


def _import_all(names: Iterable[str]) -> None:
    """Once, here, instead of in every fork."""
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def _foreign(root: str) -> list[str]:
    """Modules that are imported here, packages around them too, and are not the project's."""
    files = {n: getattr(module, "__file__", None) or root for n, module in sys.modules.items()}
    return [n for n, file in files.items() if not file.startswith(root) and _is_whole(n)]


def _is_whole(name: str) -> bool:
    """Whether the packages that a module is in are imported: it may have been taken out of them."""
    package = name.rpartition(".")[0]
    return not package or (package in sys.modules and _is_whole(package))


@dataclass(frozen=True)
class Job:
    """One trial: what to do in a fork, and for how many seconds of the processor at most."""

    mutant: int
    limit: float
    run: Callable[[], int]  # an exit code


@dataclass
class Pool:
    """Forks, as many at a time as there are tokens in a pipe that all rooms share."""

    tokens: tuple[int, int]
    scratch: Path
    seconds: dict[str, float] = field(default_factory=dict)  # of the processor, by mutant
    _running: dict[int, tuple[Job, float]] = field(default_factory=dict)

    def run(self, jobs: Iterable[Job]) -> dict[str, str]:
        """`killed`, `survived`, `crashed` or `out of time`, by mutant."""
        outcomes: dict[str, str] = {}
        for job in jobs:
            while not self._take_token():
                outcomes |= self._ended()
                time.sleep(0.005)
            self._start(job)
            outcomes |= self._ended()
        while self._running:
            outcomes |= self._ended()
            time.sleep(0.005)
        return outcomes

    def _take_token(self) -> bool:
        try:
            return bool(os.read(self.tokens[0], 1))
        except BlockingIOError:
            return False

    def _start(self, job: Job) -> None:
        pid = os.fork()
        if pid:
            self._running[pid] = (job, time.monotonic() + 60 + 10 * job.limit)
            return
        code = KILLED
        try:
            _set_apart(self.scratch / str(job.mutant), job.limit)
            code = job.run()
        finally:
            os._exit(code)

    def _ended(self) -> dict[str, str]:
        outcomes = {}
        for pid, (job, deadline) in list(self._running.items()):
            late = time.monotonic() > deadline
            if late:
                os.kill(pid, signal.SIGKILL)
            ended, status, used = os.wait4(pid, 0 if late else os.WNOHANG)
            if not ended:
                continue
            self.seconds[str(job.mutant)] = used.ru_utime + used.ru_stime
            del self._running[pid]
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # what its tests have started
            shutil.rmtree(self.scratch / str(job.mutant), ignore_errors=True)
            os.write(self.tokens[1], b".")
            outcomes[str(job.mutant)] = "out of time" if late else _outcome(status)
        return outcomes


def _outcome(status: int) -> str:
    if os.WIFSIGNALED(status):
        return "out of time" if os.WTERMSIG(status) == signal.SIGXCPU else "crashed"
    return "survived" if os.WEXITSTATUS(status) == SURVIVED else "killed"


def _set_apart(scratch: Path, limit: float) -> None:
    """A process group, a folder and limits of its own; silent."""
    os.setsid()
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(scratch)
    seconds = int(time.process_time() + limit) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory = pages * os.sysconf("SC_PAGE_SIZE") + 8 * GIB
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


class Collected:
    """The plugin that takes over once pytest has collected the tests."""

    def __init__(self, order: Order, pool: Pool, mutants: Mapping[int, Mutant]) -> None:
        self.order, self.pool, self.mutants = order, pool, mutants
        self.failed = False

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        _without_shrinking()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        baseline = self._baseline(session, list(items.values()))
        _import_all(baseline.imports)
        functions = _functions({str(Path(self.order.root, s)) for s in self.order.sources})
        caches = _caches(self.order.root)
        gc.freeze()  # forks share what is there already
        fit = [items[test] for test in baseline.seconds]
        baseline.leave_out(self._failing(fit), FAILING)
        outcomes = self.pool.run(self._jobs(items, baseline, functions, caches))
        answer = {
            "outcomes": outcomes,
            "baseline": vars(baseline),
            "seconds": self.pool.seconds,
        }
        Path(self.order.answer).write_text(json.dumps(answer))
        return True

    def _baseline(self, session: pytest.Session, items: list[pytest.Item]) -> Baseline:
        """Measured in a fork, so that no test leaves anything behind in this process."""
        path = Path(self.order.scratch) / "baseline.json"
        files = {str(Path(self.order.root, source)): source for source in self.order.sources}

        def measure() -> int:
            tracer = Tracer(files, _caches(self.order.root))
            session.config.pluginmanager.register(tracer)
            baseline = tracer.baseline(items)
            baseline.imports = _foreign(self.order.root)
            path.write_text(json.dumps(vars(baseline)))
            return SURVIVED

        outcome = self.pool.run([Job(-1, 3600, measure)])["-1"]
        if outcome != "survived":
            raise RuntimeError(f"{self.order.room}: the tests without a change: {outcome}")
        return Baseline(**json.loads(path.read_text()))

    def _failing(self, items: Sequence[pytest.Item]) -> list[str]:
        """Tests that fail in a fork as it is made for a mutant, though there is none."""
        path = Path(self.order.scratch) / "failing.json"

        def look() -> int:
            failing = []
            for item, following in zip(items, [*items[1:], None], strict=False):
                self.failed = False
                item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
                failing += [item.nodeid] if self.failed else []
            path.write_text(json.dumps(failing))
            return SURVIVED

        outcome = self.pool.run([Job(-2, 3600, look)])["-2"]
        if outcome != "survived":
            raise RuntimeError(f"{self.order.room}: a trial of no mutant: {outcome}")
        failing: list[str] = json.loads(path.read_text())
        return failing

    def _jobs(
        self,
        items: Mapping[str, pytest.Item],
        baseline: Baseline,
        functions: "Functions",
        caches: Sequence[Any],
    ) -> Iterator[Job]:
        for number, mutant in self.mutants.items():
            tests = baseline.reaching(mutant)
            if mutant.unit is None or not tests:
                continue  # it may take effect on import: tried by an import hook
            path = Path(self.order.root, mutant.file)
            code = mutated_code(path.read_text(), mutant, str(path))
            new = function_code(code, mutant.unit)
            own = functions.get((str(path), *mutant.unit), [])
            if new is None or not own or any(_differs(new, f) for f in own):
                continue
            trial = functools.partial(self._try, new, own, [items[t] for t in tests], caches)
            yield Job(number, baseline.limit(tests), trial)

    def _try(
        self,
        code: CodeType,
        functions: Sequence[FunctionType],
        items: Sequence[pytest.Item],
        caches: Sequence[Any],
    ) -> int:
        for function in functions:
            function.__code__ = code
        for cache in caches:
            cache.cache_clear()
        for item, following in zip(items, [*items[1:], None], strict=False):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                return KILLED
        return SURVIVED


Functions = dict[tuple[str, str, int], list[FunctionType]]


def _functions(files: set[str]) -> Functions:
    """All functions of these files that exist, also those that a decorator has wrapped."""
    result: Functions = {}
    for value in gc.get_objects():
        if type(value) is FunctionType and value.__code__.co_filename in files:
            code = value.__code__
            key = (code.co_filename, code.co_qualname, code.co_firstlineno)
            result.setdefault(key, []).append(value)
    return result


def _differs(code: CodeType, function: FunctionType) -> bool:
    """Whether a function cannot take the code, since it would close over other variables."""
    return code.co_freevars != function.__code__.co_freevars


def _caches(root: str) -> list[Any]:
    """The caches of the project's own functions."""
    own = []
    for value in gc.get_objects():
        if type(value) is functools._lru_cache_wrapper:
            function = getattr(value, "__wrapped__", None)
            code = getattr(function, "__code__", None)
            if code is not None and code.co_filename.startswith(f"{root}{os.sep}"):
                own.append(value)
    return own


class Tracer:
    """Runs all tests as they are and notes the lines that each reaches, through fixtures too."""

    def __init__(self, files: Mapping[str, str], caches: Sequence[Any]) -> None:
        self.files, self.caches = files, caches
        self.sinks: list[Lines] = []
        self.of_fixture: dict[Any, tuple[Lines, float]] = {}
        self.reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """What a fixture does counts for every test that has it, not for the first alone."""
        lines, seconds = self.of_fixture.setdefault(fixturedef, (set(), 0.0))
        self.sinks.append(lines)
        begun = time.process_time()
        try:
            return (yield)  # type: ignore[return-value]
        finally:
            self.sinks.pop()
            self.of_fixture[fixturedef] = (lines, max(seconds, time.process_time() - begun))

    def baseline(self, items: list[pytest.Item]) -> Baseline:
        own: dict[str, tuple[Lines, float]] = {}
        result = Baseline()
        for item, following in zip(items, [*items[1:], None], strict=False):
            for cache in self.caches:
                cache.cache_clear()
            self.reports.clear()
            lines: Lines = set()
            self.sinks.append(lines)
            begun = time.process_time()
            with self._tracing():
                item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            self.sinks.pop()
            bad = [report for report in self.reports if not report.passed]
            if bad:
                result.left_out[item.nodeid] = f"{bad[0].outcome} without a change"
                continue
            own[item.nodeid] = (lines, time.process_time() - begun)
        for item in items:
            if item.nodeid in own:
                self._add_fixtures(item, *own[item.nodeid], result)
        return result

    def _add_fixtures(
        self, item: pytest.Item, lines: Lines, seconds: float, result: Baseline
    ) -> None:
        known = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009
        for fixture in {fixture for several in known.values() for fixture in several}:
            more, longer = self.of_fixture.get(fixture, (set(), 0.0))
            lines, seconds = lines | more, seconds + longer
        by_file: dict[str, list[int]] = {}
        for file, line in sorted(lines):
            by_file.setdefault(file, []).append(line)
        result.lines[item.nodeid] = by_file
        result.seconds[item.nodeid] = seconds

    @contextlib.contextmanager
    def _tracing(self) -> Iterator[None]:
        sys.settrace(self._enter)
        threading.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if frame.f_code.co_filename in self.files else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        self.sinks[-1].add((self.files[frame.f_code.co_filename], frame.f_lineno))
        return self._line


def _imported(order: Order, mutant: Mutant, number: int, baseline: Baseline) -> Job:
    """The trial of a change that takes effect on import."""
    tests = baseline.importing(mutant)
    path = Path(order.root, mutant.file)
    name = ".".join(Path(mutant.file).relative_to("src").with_suffix("").parts)

    def run() -> int:
        code = mutated_code(path.read_text(), mutant, str(path))
        sys.meta_path.insert(0, MutatedFinder(name, str(path), code))
        files = sorted({test.partition("::")[0] for test in tests})
        ended = pytest.main([*OPTIONS, "-x", *files], plugins=[Chosen(tests)]) if tests else 0
        return SURVIVED if ended in (0, pytest.ExitCode.NO_TESTS_COLLECTED) else KILLED

    return Job(number, 20 + baseline.limit(tests), run)


def _failing_imported(order: Order, baseline: Baseline, pool: Pool) -> list[str]:
    """Tests that do not pass where files are imported with a change, though there is none."""
    tests = list(baseline.seconds)
    path = Path(order.scratch) / "failing.json"

    def look() -> int:
        passed = Passed()
        files = sorted({test.partition("::")[0] for test in tests})
        pytest.main([*OPTIONS, *files], plugins=[Chosen(tests), passed])
        path.write_text(json.dumps([test for test in tests if test not in passed.tests]))
        return SURVIVED

    outcome = pool.run([Job(-3, 3600, look)])["-3"]
    if outcome != "survived":
        raise RuntimeError(f"{order.room}: a trial of no mutant: {outcome}")
    failing: list[str] = json.loads(path.read_text())
    return failing


class Passed:
    """The plugin that notes which tests passed, with what is set up for them and taken down."""

    def __init__(self) -> None:
        self.tests: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed and report.when == "call":
            self.tests.add(report.nodeid)
        elif not report.passed:
            self.tests.discard(report.nodeid)


class Chosen:
    """The plugin that runs chosen tests, in their order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.order = {test: place for place, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        _without_shrinking()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self.order]
        items[:] = sorted(chosen, key=lambda item: self.order[item.nodeid])


@dataclass
class MutatedFinder(importlib.abc.MetaPathFinder):
    """Imports one module from code that is given."""

    name: str
    path: str
    code: CodeType

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        loader = MutatedLoader(fullname, self.path)
        loader.code = self.code
        return importlib.util.spec_from_file_location(fullname, self.path, loader=loader)


class MutatedLoader(importlib.machinery.SourceFileLoader):
    code: CodeType

    def get_code(self, fullname: str) -> CodeType:
        return self.code


def _without_shrinking() -> None:
    """A failing example is enough; hypothesis need not look for the smallest."""
    with contextlib.suppress(ImportError):
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutation", settings.default, phases=phases)
        settings.load_profile("mutation")


if __name__ == "__main__":
    main()
