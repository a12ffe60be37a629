"""Chunks that workers train: the bytes of one process, whoever is lost on the way."""

import shutil
import sys
from collections import Counter, deque
from contextlib import contextmanager

import pytest
from torch import nn

import intarsia as ia
from intarsia.errors import FileWarning, RecipeError, TrainingError
from intarsia.objectives import objective
from intarsia.training import Task
from intarsia.training.chunk_training import ChunkTrainer
from intarsia.training.distributed.chunk_driver import RETRIES, ChunkDriver, WorkerPool
from intarsia.training.distributed.chunk_worker import (
    CheckpointDone,
    ChunkWorker,
    EpochDone,
    Lost,
    Ready,
    RoundDone,
    WorkerSetting,
    failures_sent,
    to_send,
)
from intarsia.training.distributed.executors import ExecutorChoice
from intarsia.training.distributed.process_pool import Copies
from intarsia.training.plan import TrainingPlan
from intarsia.training.progress import Progress
from intarsia.training.run_folder import TIME

SETTINGS = {
    "preset": "paper",
    "model": "mlp(12)",
    "epochs": 2,
    "learning_rate": 1e-2,
    "batch": 100,
    "sparsity": 0.8,
    "keep_rounds": True,
    "checkpoint_every": 0,
}


def with_batchnorm(shape, outputs):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, outputs)
    )


def own_tasks(data):
    goal = objective("xe", 4, (2,))
    return [Task(f"c{rate}", ("c",), (2,), 0, rate, goal) for rate in (1e-3, 1e-2)]


def seeds_in_turn(data):
    """One class after another, each with all seeds: chunks have them seed after seed."""
    goals = {name: objective("me", 4, (place,)) for place, name in enumerate("ab")}
    return [
        Task(f"{name}{seed}", (name,), ("ab".index(name),), seed, 1e-2, goal)
        for name, goal in goals.items()
        for seed in range(4)
    ]


def wild_task():
    return Task("wild", ("a",), (0,), 0, 1e30, objective("me", 4, (0,)))


RUNS = {
    "mlp": {},
    "single": {"engine": "single", "keep_moments": True, "keep_rounds": False},
    "plain": {"engine": "plain", "patience": 1, "schedule": "cosine"},
    "batchnorm": {"model": with_batchnorm},
    "convolutional": {"model": "lenet", "rounds": 1, "augment": "crop(1) + flip"},
    "seeds": {"pruning": "territory", "sparsity": None, "seeds": [0, 1, 2]},
    "negatives": {"preset": "auto", "negatives": "noise(0.25) + mixed(0.25)"},
    "tasks": {"tasks": own_tasks},
    "seeds in turn": {"tasks": seeds_in_turn},
    "weights": {"preset": "auto", "sample_weight": [0.0, 1.0, 2.0, 3.0, 4.0] * 40},
}


def file_bytes(folder):
    """All but what tells how long it took."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != TIME]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


class InlineWorker:
    """A worker of this process: it has trained a chunk before its first message is heard."""

    def __init__(self, pool, number):
        self.pool, self.number = pool, number
        self.messages, self.heard = deque(), 0
        with failures_sent(self.send):
            setting = WorkerSetting("cpu", pool.engine, 1)
            self.worker = ChunkWorker(Copies.loads(pool.plan), setting)
            self.send(Ready(self.worker.survey))

    def send(self, message):
        self.messages.append(Copies.loads(Copies.dumps(message)))


class InlinePool(WorkerPool):
    """Workers speak in turn; `loses` says after which message one is gone."""

    def __init__(self, plan, engine, loses=lambda worker, message: False):
        self.plan, self.engine, self.loses = bytes(Copies.dumps(to_send(plan))), engine, loses
        self.started, self.stopped, self.requests = [], [], []

    def start(self, number):
        self.started.append(InlineWorker(self, number))
        return self.started[-1]

    def ask(self, worker, request):
        self.requests.append(request)
        with failures_sent(worker.send):
            worker.worker.train(Copies.loads(Copies.dumps(request)), worker.send)

    def wait(self, workers):
        worker = min((w for w in workers if w.messages), key=lambda worker: worker.heard)
        message, worker.heard = worker.messages.popleft(), worker.heard + 1
        if self.loses(worker, message):
            worker.messages.clear()
            return [(worker, message), (worker, Lost("by signal 9"))]
        return [(worker, message)]

    def stop(self, workers):
        self.stopped += workers


@pytest.fixture
def inline(monkeypatch):
    """`inline(loses)` puts workers of this process where others would be started."""
    pools = []

    def use(loses=lambda worker, message: False):
        @contextmanager
        def start_workers(spread, plan, device):
            pools.append(InlinePool(plan, spread.engine, loses))
            driver = ChunkDriver(pools[-1], spread.workers)
            try:
                yield driver
            finally:
                driver.close()

        monkeypatch.setattr(sys.modules["intarsia.training.train"], "start_workers", start_workers)
        return pools

    return use


def spread(settings, workers=2):
    return {**settings, "engine": f"processes({settings.get('engine', '')})", "workers": workers}


@pytest.mark.parametrize("name", list(RUNS))
def test_workers_give_the_bytes_of_one_process(small_data, tmp_path, inline, name):
    settings, pools = {**SETTINGS, **RUNS[name]}, inline()
    ia.train(small_data, out=tmp_path / "alone", **settings)
    ia.train(small_data, out=tmp_path / "spread", **spread(settings))
    assert file_bytes(tmp_path / "spread") == file_bytes(tmp_path / "alone")
    (pool,) = pools
    sizes = [len(request.names) for request in pool.requests]
    expected = {"seeds": [4, 4, 4], "tasks": [1, 1], "seeds in turn": [4, 4]}
    assert sizes == expected.get(name, [2, 2])
    assert pool.stopped == pool.started


def test_modules_in_memory_are_the_same(small_data, inline):
    inline()
    alone = ia.train(small_data, **SETTINGS)
    bank = ia.train(small_data, **spread(SETTINGS, 3))
    assert [m.digest for m in bank] == [m.digest for m in alone]
    assert [[m.digest for m in b] for b in bank.rounds] == [
        [m.digest for m in b] for b in alone.rounds
    ]
    assert bank.report == alone.report


def test_changes_of_a_base(small_data, tmp_path, inline):
    base = ia.train(small_data, model="mlp(12)", epochs=1, partition=[["a", "b"]])[0]
    settings = {"base": base, "trainable": "all", "epochs": 2, "sparsity": 0.5}
    inline()
    ia.train(small_data, out=tmp_path / "alone", **settings)
    ia.train(small_data, out=tmp_path / "spread", **spread(settings))
    assert file_bytes(tmp_path / "spread") == file_bytes(tmp_path / "alone")


def test_a_lost_worker_is_replaced_and_its_chunk_goes_on(small_data, tmp_path, inline):
    """One after an epoch, one after a round: each goes on from its last checkpoint."""
    ia.train(small_data, out=tmp_path / "alone", **SETTINGS)
    seen = Counter()

    def loses(worker, message):
        seen[type(message)] += 1
        return seen[type(message)] == {EpochDone: 5, RoundDone: 4}.get(type(message))

    pools = inline(loses)
    ia.train(small_data, out=tmp_path / "spread", **spread(SETTINGS))
    assert file_bytes(tmp_path / "spread") == file_bytes(tmp_path / "alone")
    (pool,) = pools
    assert len(pool.started) == 4
    assert {*pool.stopped} == {*pool.started}
    assert len(pool.stopped) == 4
    went_on = [request for request in pool.requests if request.checkpoint is not None]
    assert len(pool.requests) == 4
    assert len(went_on) == 2
    assert seen[EpochDone] == 2 * 6 + 1  # that which was lost before its checkpoint came


def test_a_chunk_in_memory_begins_again(small_data, inline):
    alone, lost = ia.train(small_data, **SETTINGS), []

    def loses(worker, message):
        if isinstance(message, RoundDone) and not lost:
            lost.append(worker)
            return True
        assert not isinstance(message, CheckpointDone)
        return False

    pools = inline(loses)
    bank = ia.train(small_data, **spread(SETTINGS))
    assert [m.digest for m in bank] == [m.digest for m in alone]
    assert [request.checkpoint for request in pools[0].requests] == [None] * 3


@pytest.mark.parametrize(
    ("kind", "words"), [(EpochDone, "had modules 'a', 'b' was lost"), (Ready, "had no module yet")]
)
def test_workers_that_are_lost_again_and_again_are_an_error(
    small_data, tmp_path, inline, kind, words
):
    pools = inline(lambda worker, message: isinstance(message, kind))
    with pytest.raises(TrainingError, match=rf"{words}.* {RETRIES + 1} times.*by signal 9.*"):
        ia.train(small_data, out=tmp_path / "out", **spread(SETTINGS))
    pool = pools[0]
    assert {*pool.stopped} == {*pool.started}
    assert max(Counter(r.label for r in pool.requests).values(), default=0) <= RETRIES + 1


def test_what_is_done_is_not_trained_again_by_others(small_data, tmp_path, inline):
    """Stopped with four workers, taken up with two, with four, and by this process.

    What was begun in small pieces goes on in them, also where fewer workers would cut larger ones.
    """
    ia.train(small_data, out=tmp_path / "alone", **SETTINGS)
    done = []

    def stop(worker, message):
        done.append(isinstance(message, RoundDone) and message.round == 2)
        if sum(done) == 3:
            raise KeyboardInterrupt

    pools = inline(stop)
    with pytest.raises(KeyboardInterrupt):
        ia.train(small_data, out=tmp_path / "four", **spread(SETTINGS, 4))
    assert pools[-1].stopped == pools[-1].started
    inline()
    for name, workers, sizes in (("two", 2, [1, 1]), ("again", 4, [1, 1])):
        out = shutil.copytree(tmp_path / "four", tmp_path / name)
        ia.train(small_data, out=out, **spread(SETTINGS, workers))
        assert file_bytes(out) == file_bytes(tmp_path / "alone")
        assert [len(request.names) for request in pools[-1].requests] == sizes
    ia.train(small_data, out=tmp_path / "four", **SETTINGS)
    assert file_bytes(tmp_path / "four") == file_bytes(tmp_path / "alone")


@pytest.fixture
def stopped(small_data, tmp_path, inline):
    """A folder whose run by two workers was stopped, and the checkpoint of one chunk."""

    def stop(worker, message):
        if isinstance(message, RoundDone):
            raise KeyboardInterrupt

    inline(stop)
    with pytest.raises(KeyboardInterrupt):
        ia.train(small_data, out=tmp_path / "out", **spread(SETTINGS))
    inline()
    checkpoint, *_ = sorted((tmp_path / "out" / ".progress").glob("*.safetensors"))
    return tmp_path / "out", checkpoint


def test_a_damaged_checkpoint_is_named_and_not_sent(small_data, stopped, tmp_path):
    out, checkpoint = stopped
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    with pytest.warns(FileWarning, match=rf"{checkpoint.name}: is damaged.*is trained again"):
        ia.train(small_data, out=out, **spread(SETTINGS))
    ia.train(small_data, out=tmp_path / "alone", **SETTINGS)
    assert file_bytes(out) == file_bytes(tmp_path / "alone")


def test_a_checkpoint_of_another_engine_is_not_sent(small_data, stopped):
    out, _ = stopped
    with pytest.raises(TrainingError, match="belongs to another recipe, engine or device"):
        ia.train(small_data, out=out, **spread({**SETTINGS, "engine": "single"}))


def test_workers_that_differ_are_refused(small_data, inline, monkeypatch):
    kinds = iter(["2.1", "2.2"])

    def versions():
        return {"torch": next(kinds)}

    monkeypatch.setattr("intarsia.training.chunk_training.versions", versions)
    inline()
    with pytest.raises(TrainingError, match=r"workers differ.*2\.1.*another.*2\.2.*same versions"):
        ia.train(small_data, **spread(SETTINGS))


def test_what_a_worker_cannot_do_is_told_in_its_words(small_data, inline, monkeypatch):
    inline()
    with pytest.raises(RecipeError, match="trains its modules in step"):
        ia.train(small_data, **spread({**SETTINGS, "engine": "stack", "patience": 1}))
    for error, words in ((MemoryError(), "memory ran out"), (ZeroDivisionError("odd"), "odd")):

        def fail(*given, error=error):
            raise error

        monkeypatch.setattr(ChunkTrainer, "_train", fail)
        with pytest.raises(TrainingError, match=words):
            ia.train(small_data, **spread(SETTINGS))


def test_a_module_that_diverges_is_kept_out(small_data, inline):
    inline()
    settings = {**SETTINGS, "tasks": lambda data: [*own_tasks(data), wild_task()]}
    bank = ia.train(small_data, **spread(settings, 3))
    assert bank.diverged == ("wild",)
    assert len(bank) == 2


def test_progress_of_all_workers_is_counted(small_data, inline, monkeypatch):
    counts = []
    show = Progress.watch

    def watch(self, modules):
        inner = show(self, modules)

        def counted(*given):
            inner(*given)
            counts.append(int(self.bar.tasks[0].completed))

        return counted

    monkeypatch.setattr(Progress, "watch", watch)
    rounds = []
    inline(lambda worker, message: rounds.append(getattr(message, "round", None)))
    ia.train(small_data, **{**spread(SETTINGS), "keep_rounds": False})
    assert counts == sorted(counts)
    assert [round_ for round_ in rounds if round_ is not None] == [2, 2]  # no other is wanted
    assert counts[-1] == 4 * (2 * 2 + 2)  # modules, two rounds and the last


def test_a_plan_is_sent_without_what_workers_do_not_need(small_data):
    plan = TrainingPlan.of(small_data, None, None, {"model": "mlp(4)", "epochs": 1}, None)
    sent = to_send(plan)
    assert vars(sent)["origins"] is plan.origins
    assert (len(sent.data.test), sent.data.encoder) == (0, None)
    assert sent.data.digest == small_data.digest
    assert sent.key == plan.key


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"engine": "processes(stak)"}, r"unknown engine 'stak'.*did you mean 'stack'"),
        ({"engine": "rai"}, r"unknown engine 'rai'.*did you mean 'ray'"),
        ({"engine": "ray(auto"}, r"unknown engine 'ray\(auto'"),
        ({"engine": "mlp", "workers": 2}, "choose 'processes' or 'ray'"),
        ({"engine": "processes", "workers": 0}, "workers is 0"),
        ({"engine": "ray", "workers": 1.5}, "workers is 1.5"),
        ({"engine": "processes", "address": "auto"}, "for engine 'ray'"),
    ],
)
def test_what_cannot_be_asked_for(small_data, tmp_path, given, words):
    with pytest.raises(RecipeError, match=words):
        ia.train(small_data, out=tmp_path / "out", epochs=1, model="mlp(4)", **given)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("engine", "kind", "inner"),
    [
        ("auto", None, "auto"),
        ("ray", "ray", "auto"),
        (" ray( stack ) ", "ray", "stack"),
        ("processes()", "processes", "auto"),
    ],
)
def test_how_an_engine_is_written(engine, kind, inner):
    spread = ExecutorChoice.of(engine, None, None)
    assert (spread.kind, spread.engine) == (kind, inner)
