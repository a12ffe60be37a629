"""A training run is killed, or a bit of its files flipped, and resumed: are the bytes the same?

    python benchmarks/experiments/kills.py --kills 400 --flips 100
    python benchmarks/experiments/kills.py --kills 100 --flips 0 --device cuda

trains modules of made-up images into a folder, once undisturbed, then again and again: killed at
random moments (by KILL, TERM and HUP in turn) and right before a file operation, one after the
other, on every engine that the device has; and once more where locks are files. After the last
kill the same call resumes the run, and every file is compared with the undisturbed ones. Then bits
are flipped in folders of stopped and of finished runs, and the call is made again: it must end with
the same modules, or say what it found. A kill counts where it hit a process that had begun to
train. The result goes to docs/results/kills.json (with --device cuda to kills_cuda.json), or to
the file of --output. It needs no data and no network.
"""

import argparse
import importlib
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # or asking for GPUs would harm forks

import torch

import intarsia
from benchmarks.record import RESULTS, made_by, save
from benchmarks.small_data import striped_images
from intarsia.errors import FileWarning, HealthWarning, IntarsiaError
from intarsia.locks import SETTING
from intarsia.training import chunk_training
from intarsia.training.run_folder import PROGRESS, TIME

ENGINES = {"cpu": ["mlp", "single", "stack", "plain", "grouped", "streams"]}
ENGINES["cuda"] = ["mlp", "lenet", "single", "stack", "plain", "grouped", "streams"]
MODELS = {"lenet": "lenet", "grouped": "resnet18(2)", "streams": "fastnet(2)"}
MODEL = "mlp(12)"  # of all other engines
# Four modules in two chunks, three rounds of two epochs; Adam's moments live on in some.
RECIPE = {"preset": "paper", "batch": 64, "sparsity": 0.8, "rounds": 2, "epochs": 2}
CONVOLUTIONAL = {
    **RECIPE,
    "augment": "crop(1) + flip + cutout(2)",
    "batches": "balanced(2)",
    "optimiser": "sgd",
    "learning_rate": 0.05,
    "schedule": "onecycle",
    "select": "last",
}
RECIPES = {"grouped": CONVOLUTIONAL, "streams": CONVOLUTIONAL}  # others train by the first
RELEASED = {**RECIPE, "preset": "released", "patience": 1, "epochs": 3}
CHUNK = 2  # modules
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
AT_RANDOM = 0.2  # of the kills; the others come right before a file operation
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = ("os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir")
# What a bit is flipped in, and how often.
FLIPPED = {
    "a checkpoint": 10,
    "a module of a finished chunk": 3,
    "the listing of a finished chunk": 2,
    "a note of a stopped run": 2,
    "a module of a finished run": 1,
    "bank.json of a finished run": 2,
}
RESTARTED = "a part starts again, said so; same bytes"
REFUSED = "refused by name"
UNTOUCHED = "same modules"
SILENT, FOREIGN = "OTHER MODULES, SILENTLY", "ANOTHER ERROR THAN OURS"


@dataclass(frozen=True)
class Case:
    """What is trained and how: by which engine, with locks by flock or by files."""

    engine: str
    device: str
    recipe: dict[str, Any] = field(default_factory=lambda: RECIPE)
    locks: str = "auto"

    @property
    def settings(self) -> dict[str, Any]:
        model = MODELS.get(self.engine, MODEL)
        return {**self.recipe, "model": model, "engine": self.engine, "device": self.device}


def main() -> None:
    options = _arguments()
    begun = time.monotonic()
    cases = _cases(options.engines, options.device)
    if {case.engine for case in cases} - {"mlp", "lenet", "plain"}:
        importlib.import_module("torch._dynamo")  # which they import late: no fork has to
    with tempfile.TemporaryDirectory() as scratch:
        tasks = [
            (case, Path(scratch) / str(n), kills, flips, n, options)
            for n, (case, kills, flips) in enumerate(
                zip(
                    cases,
                    _divide(options.kills, len(cases)),
                    _divide(options.flips, len(cases)),
                    strict=True,
                )
            )
        ]
        # This process has imported torch and computes nothing with it, so forks of it may.
        pool = ProcessPoolExecutor(options.at_once, multiprocessing.get_context("fork"))
        with pool:
            rows, outcomes = zip(*pool.map(run_case, *zip(*tasks, strict=True)), strict=True)
    flips = _rows(sum(outcomes, Counter()))
    result = {
        **made_by(
            __file__,
            *("--kills", options.kills, "--flips", options.flips),
            *("--seed", options.seed, "--device", options.device),
            *(("--engines", *options.engines) if options.engines else ()),
            intarsia=intarsia.__version__,
        ),
        "device": options.device,
        "kills": sum(row["kills"] for row in rows),
        "runs": sum(row["runs"] for row in rows),
        "equal": all(row["equal"] for row in rows),
        "seconds": round(time.monotonic() - begun, 1),
        "cases": rows,
        "flips": flips,
    }
    save(options.output.parent, options.output.stem, result)
    bad = sum(row["count"] for row in flips if row["outcome"] in (SILENT, FOREIGN))
    verdict = "every file has the same bytes" if result["equal"] else "FILES DIFFER"
    print(
        f"{result['kills']} kills, {result['runs']} runs, {result['seconds']} s: {verdict} "
        f"as in an undisturbed run; {sum(row['count'] for row in flips)} flips, {bad} of them bad"
    )
    sys.exit(0 if result["equal"] and not bad else 1)


def _cases(engines: Sequence[str] | None, device: str) -> list[Case]:
    """Every engine; the first of them also where locks are files, with another recipe."""
    names = engines or ENGINES[device]
    return [
        *(Case(name, device, RECIPES.get(name, RECIPE)) for name in names),
        *(Case(name, device, RECIPES.get(name, RELEASED), "files") for name in names[:1]),
    ]


def run_case(
    case: Case, place: Path, kills: int, flips: int, number: int, options: argparse.Namespace
) -> tuple[dict[str, Any], Counter[tuple[str, str]]]:
    """Flip bits and kill, so often; cases with flock together hit every operation."""
    chance = random.Random(f"{options.seed} {number}")
    trial = Trial(case, place, chance)
    outcomes = flip_bits(trial, flips, chance)
    step = len(options.engines or ENGINES[options.device])
    return trial.row(kills, range(number % step, 10**6, step), options.per_run), outcomes


# In the process that is killed


def train(folder: str, case: Case, deadly: int | None, answer: Connection) -> None:
    """One call that checkpoints after every epoch; dies before its `deadly`-th file operation.

    Tells that it begins, and in the end what came of it.
    """
    for sent in SIGNALS[1:]:
        signal.signal(sent, signal.SIG_DFL)
    os.environ[SETTING] = case.locks
    torch.set_num_threads(1)
    limit = mock.patch.object(chunk_training, "limit_of", return_value=CHUNK)
    asked = limit.start()  # two chunks on any machine
    data = striped_images("images")
    answer.send("begun")
    count = count_operations(folder, deadly)
    how = {"keep_rounds": True, "checkpoint_every": 0, "progress": False}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", HealthWarning)
        try:
            bank = intarsia.train(data, out=folder, **how, **case.settings)
        except IntarsiaError as error:
            answer.send({"refused": str(error)})
        except Exception:
            answer.send({"foreign": traceback.format_exc()})
        else:
            said = [str(w.message) for w in caught if issubclass(w.category, FileWarning)]
            digests = [m.digest for part in (bank, *bank.rounds) for m in part]
            result = {"said": said, "digests": digests, "operations": count[0]}
            answer.send({**result, "chunks": len(bank) // CHUNK if asked.called else 1})


def count_operations(folder: str, deadly: int | None) -> list[int]:
    """From now on count what changes files of the folder, and die before one of these."""
    count, sync = [0], os.fsync

    def step() -> None:
        count[0] += 1
        if count[0] == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            if isinstance(arguments[0], str) and arguments[2] & WRITES and ours(arguments[0]):
                step()
        elif event in CHANGES and ours(arguments[0]) and not there(event, arguments[0]):
            step()

    def there(event: str, path: Any) -> bool:
        return event == "os.mkdir" and os.path.isdir(path)

    def ours(path: Any) -> bool:
        path = os.fspath(path)
        return isinstance(path, str) and (path.startswith(folder) or not os.path.isabs(path))

    def counted(handle: int) -> None:
        step()
        sync(handle)

    os.fsync = counted
    sys.addaudithook(hook)
    return count


# In the process that kills


class Life:
    """A process at work, from the moment on which it has begun."""

    def __init__(self, folder: Path, case: Case, deadly: int | None = None) -> None:
        processes = multiprocessing.get_context("fork")
        self.answers, there = processes.Pipe()
        arguments = (str(folder), case, deadly, there)
        self.process = processes.Process(target=train, args=arguments)
        self.process.start()
        there.close()
        self.answers.recv()
        self.begun = time.monotonic()

    def end(self, after: float | None = None, sent: signal.Signals = signal.SIGKILL) -> Any:
        """Wait, at most so long before the signal is sent; what it answered, None if killed."""
        self.process.join(after)
        if self.process.exitcode is None:
            os.kill(self.process.pid, sent)
            self.process.join()
        self.seconds = time.monotonic() - self.begun
        code = self.process.exitcode
        if code < 0 and -code in SIGNALS:
            return None
        try:
            answer = self.answers.recv()
        except EOFError:
            answer = {"foreign": f"ended with exit code {code}"}
        finally:
            self.answers.close()
            self.process.close()
        return answer


class Trial:
    """Runs of one case, each compared with the undisturbed one."""

    def __init__(self, case: Case, place: Path, chance: random.Random) -> None:
        self.case, self.place, self.chance = case, place, chance
        self.undisturbed = place / "undisturbed"
        life = Life(self.undisturbed, case)
        answer = self._finished(life.end())
        self.length, self.operations = life.seconds, answer["operations"]
        self.chunks = answer["chunks"]
        self.digests, self.expected = answer["digests"], contents(self.undisturbed)
        self.differing: set[str] = set()
        self.runs = 0
        self.sent: Counter[str] = Counter()

    def row(self, kills: int, positions: Sequence[int], per_run: int) -> dict[str, Any]:
        """So many kills; those before file operations hit these positions first."""
        at_random = round(AT_RANDOM * kills)
        while self.sent.total() < at_random:
            self._run(self._moments(at_random - self.sent.total()))
        hit: list[int] = []
        while self.sent.total() < kills:
            hit.append(positions[len(hit)] % self.operations + 1)
            self._run(self._operations(hit[-1], min(per_run, kills - self.sent.total())))
        case, settings = self.case, self.case.settings
        print(f"{case.engine}, {case.locks} locks: {dict(self.sent)}, {self.runs} runs", flush=True)
        return {
            "engine": case.engine,
            "model": settings["model"],
            "recipe": settings["preset"],
            "locks": "files" if case.locks == "files" else "flock",
            "chunks": self.chunks,
            "kills": self.sent.total(),
            "by": dict(self.sent),
            "operations": self.operations,
            "hit": sorted(set(hit)),
            "runs": self.runs,
            "files": len(self.expected),
            "bytes": sum(map(len, self.expected.values())),
            "undisturbed_seconds": round(self.length, 2),
            "equal": not self.differing,
            "differing": sorted(self.differing),
        }

    def stop(self, folder: Path, deadly: int) -> None:
        """Leave a folder whose run was killed before this operation."""
        Life(folder, self.case, deadly).end()

    def resume(self, folder: Path) -> Any:
        return Life(folder, self.case).end()

    def _moments(self, kills: int) -> Iterator[tuple[int | None, float | None, signal.Signals]]:
        for number in range(kills):
            yield None, self.chance.uniform(0, 0.5 * self.length), SIGNALS[number % len(SIGNALS)]

    def _operations(
        self, first: int, kills: int
    ) -> Iterator[tuple[int | None, float | None, signal.Signals]]:
        for number in range(kills):
            more = self.chance.randint(1, max(1, self.operations // kills))
            yield more if number else first, None, signal.SIGKILL

    def _run(self, plan: Iterator[tuple[int | None, float | None, signal.Signals]]) -> None:
        """Train into a folder, killed as planned, until a process comes to its end."""
        self.runs += 1
        folder = self.place / f"run-{self.runs}"
        for deadly, after, sent in plan:
            answer = Life(folder, self.case, deadly).end(after, sent)
            if answer is not None:
                self._finished(answer)
                break
            self.sent["operation" if deadly else sent.name.removeprefix("SIG")] += 1
        else:
            self._finished(self.resume(folder))
        result = contents(folder)
        self.differing |= {
            name
            for name in self.expected.keys() | result
            if self.expected.get(name) != result.get(name)
        }
        shutil.rmtree(folder)

    def _finished(self, answer: Any) -> dict[str, Any]:
        if answer is None or "digests" not in answer:
            sys.exit(f"{self.case}: a run failed: {answer}")
        result: dict[str, Any] = answer
        return result


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the one that tells how long it took."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != TIME
    }


# Flipped bits


def flip_bits(trial: Trial, flips: int, chance: random.Random) -> Counter[tuple[str, str]]:
    """What came of single bits that were flipped, by what they were flipped in."""
    outcomes: Counter[tuple[str, str]] = Counter()
    for number in range(flips):
        (kind,) = chance.choices(list(FLIPPED), list(FLIPPED.values()))
        folder, files = trial.place / f"flip-{number}", []
        while not files:  # a run may be killed while it has no checkpoint
            shutil.rmtree(folder, ignore_errors=True)
            if kind.endswith("finished run"):
                shutil.copytree(trial.undisturbed, folder)
            else:  # the first chunk is about done, and the second begins
                trial.stop(folder, round(chance.uniform(0.35, 0.6) * trial.operations))
            files = _files(folder, kind)
        path = chance.choice(files)
        _flip(path, chance)
        finished = kind.endswith("finished run")
        outcomes[kind, _outcome(trial, folder, path, finished)] += 1
        shutil.rmtree(folder)
    print(f"{trial.case.engine}, {trial.case.locks} locks: {flips} flips", flush=True)
    return outcomes


def _rows(outcomes: Counter[tuple[str, str]]) -> list[dict[str, Any]]:
    rows = sorted(outcomes.items(), key=lambda item: (list(FLIPPED).index(item[0][0]), item[0][1]))
    return [{"what": what, "outcome": outcome, "count": n} for (what, outcome), n in rows]


def _files(folder: Path, kind: str) -> list[Path]:
    progress = folder / PROGRESS
    files = {
        "a checkpoint": progress.glob("*.safetensors"),
        "a module of a finished chunk": progress.glob("*/*.safetensors"),
        "the listing of a finished chunk": progress.glob("*/bank.json"),
        "a note of a stopped run": (progress / name for name in ("key", "threads", TIME)),
        "a module of a finished run": folder.rglob("*.safetensors"),
        "bank.json of a finished run": folder.rglob("bank.json"),
    }
    return sorted(path for path in files[kind] if path.exists())


def _flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    place = chance.randrange(8 * len(content))
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)


def _outcome(trial: Trial, folder: Path, flipped: Path, finished: bool) -> str:
    """What the call says to a folder with a flipped bit, and what it leaves there."""
    answer = trial.resume(folder)
    if "foreign" in answer:
        print(answer["foreign"], flush=True)
        return FOREIGN
    if "refused" in answer:
        return REFUSED if str(flipped) in answer["refused"] else f"refused: {answer['refused']}"
    same = answer["digests"] == trial.digests
    if not finished:
        same = same and contents(folder) == trial.expected
    if not same:
        return SILENT
    return RESTARTED if answer["said"] else UNTOUCHED


def _divide(kills: int, by: int) -> list[int]:
    return [kills // by + (n < kills % by) for n in range(by)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=400)
    parser.add_argument("--flips", type=int, default=100)
    parser.add_argument("--engines", nargs="+", choices=ENGINES["cuda"], help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=[*ENGINES], default="cpu")
    parser.add_argument("--per-run", type=int, help="kills before file operations in one run")
    parser.add_argument("--at-once", type=int, default=os.cpu_count(), help="engines")
    parser.add_argument("--output", type=Path, help="the JSON file to write")
    options = parser.parse_args()
    cuda = options.device == "cuda"
    options.output = options.output or RESULTS / ("kills_cuda.json" if cuda else "kills.json")
    options.per_run = options.per_run or (5 if cuda else 1)
    return options


if __name__ == "__main__":
    main()
