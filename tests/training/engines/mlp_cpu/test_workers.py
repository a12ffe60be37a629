"""Forked workers: shared memory, answers in order, and no trace of them when anything dies."""

import fcntl
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

import intarsia as ia
from intarsia.errors import TrainingError
from intarsia.training.engines.mlp_cpu.hand_mlp import HandMlp
from intarsia.training.engines.mlp_cpu.workers import WORTH, Arena, Workers, few_threads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")


@pytest.fixture
def workers():
    made = []

    def make(count, serve):
        made.append(Workers(count, serve))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_answers_come_in_the_order_of_the_calls(workers):
    def late(i):
        time.sleep(0.02 * (3 - i % 3))
        return i * i

    assert workers(2, late).map([(i,) for i in range(7)]) == [i * i for i in range(7)]


def test_what_workers_write_into_the_arena_is_seen_here(workers):
    tensors = [torch.arange(5.0), torch.ones(3, 2), torch.zeros(())]
    arena = Arena(Arena.room(tensors))
    shared = [arena.copy(t) for t in tensors]
    assert all(torch.equal(a, b) for a, b in zip(shared, tensors, strict=True))

    def double(i):
        shared[i].mul_(2).add_(1)

    workers(2, double).map([(i,) for i in range(3)])
    assert all(torch.equal(a, 2 * b + 1) for a, b in zip(shared, tensors, strict=True))


def test_a_failure_in_a_worker_is_raised_here_with_its_trace(workers):
    def fail(_):
        raise ValueError("seven is not a colour")

    with pytest.raises(RuntimeError, match="seven is not a colour"):
        workers(2, fail).map([(1,)])


@pytest.mark.parametrize("error", [MemoryError, "DefaultCPUAllocator: can't allocate memory"])
def test_memory_that_runs_out_in_a_worker_is_told_and_the_run_goes_on(
    small_data, tmp_path, monkeypatch, error
):
    monkeypatch.setattr("intarsia.training.engines.mlp_cpu.mlp_engine.WORTH", 0)
    settings = {"model": "mlp([24])", "epochs": 2, "preset": "paper", "checkpoint_every": 0}
    bank = ia.train(small_data, **settings)
    torch.set_num_threads(2)
    epoch = HandMlp.epoch

    def fail(self, *arguments):
        if count[0]:
            raise error() if error is MemoryError else RuntimeError(error)
        return epoch(self, *arguments)

    count = [1]
    monkeypatch.setattr(HandMlp, "epoch", fail)
    with pytest.raises(TrainingError, match="memory ran out: train fewer classes"):
        ia.train(small_data, out=tmp_path / "out", **settings)
    count[0] = 0
    again = ia.train(small_data, out=tmp_path / "out", **settings)
    assert [m.digest for m in again] == [m.digest for m in bank]


def test_a_worker_that_dies_is_named(workers):
    def die(_):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(TrainingError, match="ended by itself"):
        workers(1, die).map([(1,)])


def test_closing_ends_the_processes_and_may_be_repeated(workers):
    pool = workers(2, lambda: os.getpid())
    pids = {pool.map([()])[0] for _ in range(4)}
    pool.close()
    pool.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_workers_do_not_outlive_a_killed_parent_nor_hold_its_lock(tmp_path):
    lock = tmp_path / "lock"
    script = f"""
import fcntl, os, time
from intarsia.training.engines.mlp_cpu.hand_mlp import HandMlp
from intarsia.training.engines.mlp_cpu.workers import Workers
held = open({str(lock)!r}, "w")
fcntl.flock(held, fcntl.LOCK_EX)
workers = Workers(1, os.getpid)
print(workers.map([()])[0], flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        with lock.open() as again:
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        deadline = time.monotonic() + 10
        while os.path.exists(f"/proc/{child}") and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not os.path.exists(f"/proc/{child}")


@pytest.mark.parametrize("preset", ["paper", "released"])
def test_modules_are_the_same_with_and_without_workers(small_data, preset, monkeypatch):
    made, init = [], Workers.__init__

    def counted(self, count, serve):
        made.append(count)
        init(self, count, serve)

    monkeypatch.setattr(Workers, "__init__", counted)
    monkeypatch.setattr("intarsia.training.engines.mlp_cpu.mlp_engine.WORTH", 0)
    settings = {"model": "mlp([24])", "epochs": 2, "preset": preset, "sparsity": 0.8}
    torch.set_num_threads(1)
    alone = ia.train(small_data, **settings)
    torch.set_num_threads(2)
    shared = ia.train(small_data, **settings)
    assert torch.get_num_threads() == 2
    assert made == [2] * len(made)
    assert len(made) == shared[0].provenance["recipe"]["rounds"] + 1  # forked in every round
    for a, b in zip(alone, shared, strict=True):
        assert a.digest == b.digest


def test_too_little_work_is_not_shared(small_data, monkeypatch):
    def never(self, count, serve):
        raise AssertionError("forked")

    monkeypatch.setattr(Workers, "__init__", never)
    torch.set_num_threads(2)
    ia.train(small_data, model="mlp([24])", epochs=2)
    with few_threads(WORTH - 1):
        assert torch.get_num_threads() == 1
    with few_threads(WORTH):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 2


def test_a_module_alone_trains_on_one_thread_too(small_data, monkeypatch):
    """So it has the same bits as in a bank, however many threads there are."""
    seen, epoch = set(), HandMlp.epoch

    def counted(self, *arguments):
        seen.add(torch.get_num_threads())
        return epoch(self, *arguments)

    monkeypatch.setattr(HandMlp, "epoch", counted)
    torch.set_num_threads(3)
    ia.train(small_data, model="mlp([8])", epochs=1, rounds=0, partition=[["a"]])
    assert seen == {1}
    assert torch.get_num_threads() == 3
