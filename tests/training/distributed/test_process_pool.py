"""Workers that are processes: they share a bank, are replaced when lost, and end with the run."""

import os
import signal
import sys
from contextlib import nullcontext

import pytest
import torch
from torch import nn

import intarsia as ia
from intarsia.errors import TrainingError
from intarsia.training.chunk_training import current_device
from intarsia.training.distributed import process_pool
from intarsia.training.distributed.chunk_driver import ChunkDriver
from intarsia.training.distributed.chunk_worker import EpochDone
from intarsia.training.distributed.executors import ExecutorChoice, start_workers
from intarsia.training.plan import TrainingPlan
from intarsia.training.progress import Progress
from intarsia.training.run_folder import TIME
from watching import descendants, title

SETTINGS = {
    "preset": "paper",
    "model": "mlp(512)",  # whose checkpoints fill a pipe: a worker is as far as the run has heard
    "epochs": 2,
    "sparsity": 0.8,
    "keep_rounds": True,
    "checkpoint_every": 0,
}
EPOCHS = 2 * (2 * 2 + 2)  # of two chunks, in two rounds and the last


def file_bytes(folder):
    """All but what tells how long it took."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != TIME]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def workers():
    return {pid for pid in descendants(os.getpid()) if "spawn_main" in title(pid)}


@pytest.mark.skipif(sys.platform != "linux", reason="finds workers in /proc")
def test_a_lost_process_costs_nothing_and_ctrl_c_ends_all(small_data, tmp_path, monkeypatch):
    """A worker is killed after an epoch, the run is stopped later, and this process ends it."""
    hear, epochs, there, lines = ChunkDriver._hear, [], [], []

    def disturbed(self, worker, message):
        hear(self, worker, message)
        if isinstance(message, EpochDone):
            epochs.append(message)
            if len(epochs) == 1:
                there.extend(workers())
                os.kill(worker.process.pid, signal.SIGKILL)
            if len(epochs) == EPOCHS - 2:
                raise KeyboardInterrupt

    alone, out = tmp_path / "alone", tmp_path / "out"
    ia.train(small_data, out=alone, **SETTINGS)
    with monkeypatch.context() as patch:
        patch.setattr(ChunkDriver, "_hear", disturbed)
        patch.setattr(Progress, "say", lambda self, line: lines.append(line))
        with pytest.raises(KeyboardInterrupt):
            ia.train(small_data, out=out, engine="processes", workers=2, **SETTINGS)
    assert len(there) == 2
    assert not workers()
    assert [line for line in lines if line.endswith("on cpu, 2 workers")]
    assert [line for line in lines if "lost by signal 9: another goes on with modules" in line]
    done = [*(out / ".progress").glob("*-round-2/bank.json")]
    assert len(done) <= 1
    ia.train(small_data, out=out, **SETTINGS)
    assert file_bytes(out) == file_bytes(alone)


def test_workers_take_one_gpu_after_another(small_data, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    torch.set_num_threads(4)
    plan = TrainingPlan.of(small_data, None, None, {"epochs": 1, "model": "mlp(4)"}, None)

    def settings(spread, device, plan=plan):
        with start_workers(spread, plan, device) as executor:
            return [(s.device, s.engine, s.threads) for s in executor.pool.settings]

    stack = ExecutorChoice("processes", "stack")
    gpus = ["cuda:0", "cuda:1", "cuda:2"]
    assert settings(stack, "cuda") == [(gpu, "stack", 1) for gpu in gpus]
    assert settings(stack, "auto") == settings(stack, "cuda")
    assert settings(ExecutorChoice("processes", "auto", 2), "cpu") == [("cpu", "auto", 2)] * 2
    assert [device for device, *_ in settings(ExecutorChoice("processes", "auto", 9), "cuda")] == [
        *gpus,
        "cuda:0",
    ]  # of nine, no more than there are modules
    assert settings(ExecutorChoice("processes", "auto", 2), "cuda:1") == [("cuda:1", "auto", 2)] * 2
    assert settings(stack, "cuda:1") == [("cuda:1", "stack", 4)]
    whole = TrainingPlan.of(
        small_data, None, None, {"epochs": 1, "model": "mlp(4)", "pruning": "territory"}, None
    )
    assert len(settings(stack, "cuda", whole)) == 1  # a seed stays together


def test_engines_run_on_the_gpu_of_their_worker(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext(asked.append(str(device))))
    with current_device(torch.device("cuda:1")), current_device(torch.device("cpu")):
        assert asked == ["cuda:1"]


def test_a_network_that_cannot_be_sent_is_told(small_data, tmp_path):
    def factory(shape, outputs):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, outputs))

    with pytest.raises(TrainingError, match=r"cannot be sent.*factory.*engine 'ray'"):
        ia.train(small_data, model=factory, epochs=1, engine="processes", workers=2)
    assert not workers()


def at_the_top():
    """Sent by its name."""


def test_a_network_that_a_worker_does_not_find_is_told(monkeypatch):
    content = process_pool.Copies.dumps(at_the_top)
    monkeypatch.delattr(sys.modules[__name__], "at_the_top")
    with pytest.raises(TrainingError, match=r"cannot make.*at_the_top.*notebook"):
        process_pool._unpacked(content)


def test_tensors_are_sent_by_value():
    tensor = torch.arange(6.0).reshape(2, 3)
    copy = process_pool.Copies.loads(process_pool.Copies.dumps({"x": tensor.t()}))["x"]
    assert torch.equal(copy, tensor.t())
    assert not tensor.is_shared()
    assert not copy.is_shared()
