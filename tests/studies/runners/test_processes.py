"""Processes on one store: they share the work, end with their parent, and tell what went wrong."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from slow import SLOW
from store_content import content, events

from intarsia.errors import StudyError
from intarsia.studies import Store, run
from intarsia.studies.runners.dispatch import run_with
from intarsia.studies.runners.local import RunRequest
from watching import descendants, title, until

pytestmark = pytest.mark.usefixtures("one_thread")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="finds workers in /proc")
OPTIONS = SLOW.options("small")
# A run long enough to be stopped in the middle.
SCRIPT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell runs us behind
sys.path.insert(0, sys.argv[1])
from slow import SLOW
from intarsia.studies import Store
from intarsia.studies.runners.dispatch import run_with
from intarsia.studies.runners.local import RunRequest
options = SLOW.options("small", seconds=30.0)
run_with("processes", RunRequest(SLOW, options, Store(sys.argv[2]), "cpu", workers=2))
"""


@pytest.fixture(autouse=True)
def one_thread_each(monkeypatch):
    """Of two workers and of the run they are compared with, also where there are many cores."""
    monkeypatch.setattr("intarsia.studies.runners.processes.cores", lambda: 2)


def workers_of(pid):
    return {child for child in descendants(pid) if "spawn_main" in title(child)}


@on_linux
def test_workers_share_the_work_and_do_that_of_a_lost_one(tmp_path):
    alone, store = Store(tmp_path / "alone"), Store(tmp_path / "shared")
    run(SLOW, OPTIONS, alone, device="cpu")
    said = []

    def say(line):
        if line.startswith("cell") and not any(s.startswith("cell") for s in said):
            os.kill(workers_of(os.getpid()).pop(), signal.SIGKILL)
        said.append(line)

    measured = run_with("processes", RunRequest(SLOW, OPTIONS, store, "cpu", workers=2, say=say))
    assert len(measured) == 4
    assert content(store) == content(alone)
    assert any("was lost by signal 9" in line for line in said)
    assert said[-1].startswith("cell 4 of 4: slow")
    trained = [key for event in events(store, "banks") for key in event["keys"]]
    assert len(trained) == len(set(trained)) == 4
    assert not workers_of(os.getpid())


def test_a_finished_study_starts_nobody(tmp_path, monkeypatch):
    store = Store(tmp_path / "store")
    options = SLOW.options("small", seeds=1, objectives=["me"], seconds=0.0)
    run(SLOW, options, store, device="cpu")
    monkeypatch.setattr("intarsia.studies.runners.processes._start", None)
    assert len(run_with("processes", RunRequest(SLOW, options, store, "cpu", workers=2))) == 1


@pytest.mark.parametrize(
    ("device", "gpus", "workers"),
    [("auto", 3, 3), ("cuda", 1, 1), ("cuda:1", 3, 1), ("auto", 0, 2), ("cpu", 3, 2)],
)
def test_by_default_each_gpu_or_core_has_a_worker(tmp_path, monkeypatch, device, gpus, workers):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr("intarsia.training.distributed.executors.cores", lambda: 2)
    asked = []

    @contextmanager
    def nobody(request, count):
        asked.append(count)
        yield []

    monkeypatch.setattr("intarsia.studies.runners.processes._crew", nobody)
    run_with("processes", RunRequest(SLOW, OPTIONS, Store(tmp_path / "store"), device))
    assert asked == [workers]


@on_linux
def test_a_failure_of_a_worker_is_told_and_ends_the_others(tmp_path):
    store = Store(tmp_path / "store")
    options = SLOW.options("small", fails=True, recipe={"epochs": 1, "sparsity": 0, "rounds": 0})
    with pytest.raises(StudyError, match=r"cell slow objective=.*: the pieces do not fit"):
        run_with("processes", RunRequest(SLOW, options, store, "cpu", workers=2))
    assert not workers_of(os.getpid())
    assert not [*(store.path / "locks").iterdir()]


@on_linux
@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path, sent):
    command = [
        sys.executable,
        "-c",
        SCRIPT,
        str(Path(__file__).parents[1]),
        str(tmp_path / "store"),
    ]
    parent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    locks = tmp_path / "store" / "locks"
    until(lambda: parent.poll() is not None or len([*locks.glob("*")]) == 2)
    assert parent.poll() is None, parent.communicate()
    workers = workers_of(parent.pid)
    assert len(workers) == 2
    if sent == signal.SIGINT:
        os.killpg(parent.pid, sent)  # as a terminal does
    else:
        parent.kill()
    _, errors = parent.communicate(timeout=60)
    until(lambda: not any("spawn_main" in title(pid) for pid in workers))
    assert parent.returncode == -sent
    if sent == signal.SIGINT:
        assert errors.count("Traceback") == 1, errors
        assert "KeyboardInterrupt" in errors
        assert not [*locks.iterdir()]


@pytest.mark.parametrize(
    ("engine", "workers", "address", "words"),
    [
        ("proceses", None, None, "did you mean 'processes'"),
        ("local", 2, None, "choose 'processes' or 'ray'"),
        ("processes", 0, None, "0 workers"),
        ("processes", None, "auto", "for engine 'ray'"),
    ],
)
def test_what_an_engine_cannot_do_is_told(tmp_path, engine, workers, address, words):
    with pytest.raises(StudyError, match=words):
        run_with(
            engine, RunRequest(SLOW, OPTIONS, Store(tmp_path / "store"), "cpu", workers), address
        )
