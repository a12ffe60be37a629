"""A run that is stopped goes on to the same bytes; a folder belongs to one run at a time."""

import fcntl
import json
import os
import re
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import intarsia as ia
from damage import flip
from intarsia.errors import DamagedError, FileError, FileWarning, TrainingError
from intarsia.files import digest_of, sealed
from intarsia.modules import bank as modules_bank
from intarsia.training.engines import select as choose
from intarsia.training.progress import Progress
from intarsia.training.run_folder import TIME, spent


def with_batchnorm(shape, outputs):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, outputs)
    )


def with_convolution(shape, outputs):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3),
        nn.Flatten(), nn.Linear(32, outputs),
    )  # fmt: skip


SETTINGS = {
    "preset": "paper",
    "model": "mlp(12)",
    "epochs": 3,
    "learning_rate": 1e-2,
    "sparsity": 0.8,
    "keep_rounds": True,
    "checkpoint_every": 0,
}
FEW = {"epochs": 2, "rounds": 1}  # a stop within a round, one between two, one between chunks
RUNS = {
    "paper": {},
    "released": {"preset": "released", "epochs": 4, "patience": 1},
    "territory": {"pruning": "territory", "sparsity": None, "keep_rounds": False},
    "won": {"pruning": "territory(by='magnitude')", "sparsity": None},
    "random": {"pruning": "random(biases=True)", "schedule": "cosine"},
    "stack": {"engine": "stack", "keep_moments": True},
    "streams": {"engine": "streams", "model": with_convolution, **FEW},
    "grouped": {"engine": "grouped", "model": with_convolution, **FEW},
    "plain": {"engine": "plain", "keep_moments": True, "select": "loss"},
    "batchnorm": {"model": with_batchnorm, **FEW},
    "shown": {"objective": "xe", "batch": 16, "preset": "released", "patience": 1},
    "shown plain": {"objective": "xe", "batch": 16, "engine": "plain"},
    "negatives": {"preset": "auto", "negatives": "noise(0.25) + mixed(0.25)"},
    "negatives weighted": {
        "preset": "auto",
        "negatives": "noise(0.25) + mixed(0.25)",
        "objective": "xe",
        "sample_weight": [0.0, 1.0, 2.0, 3.0, 4.0] * 40,
    },
    "negatives stack": {"preset": "auto", "negatives": "mixed", "engine": "stack"},
    **{
        f"{optimiser} {engine}": {
            "optimiser": optimiser,
            "engine": engine,
            "keep_moments": engine == "stack",
            "schedule": "onecycle",
            "batches": "balanced(1, corrected=True)",
            "batch": 16,
            **FEW,
        }
        for optimiser in ("adam", "adamw", "sgd")
        for engine in ("auto", "stack")
    },
}
# few steps: threads that share tiny sums mostly wait for one another
THREADED = {"model": with_batchnorm, "epochs": 3, "sparsity": 0, "rounds": 0, "batch": 200}


def settings_of(name):
    return {**SETTINGS, **RUNS[name]}


def file_bytes(folder):
    """All but what tells how long it took."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != TIME]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


@pytest.fixture
def stop_after(monkeypatch):
    """`stop_after(n)` lets n epochs end in the next call of train, then stops it."""
    return stopper(monkeypatch)


def stopper(monkeypatch):
    left = [None]
    original = Progress.watch

    def watch(self, tasks):
        inner = original(self, tasks)

        def show(progress, scores, epochs):
            inner(progress, scores, epochs)
            if left[0] is not None:
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt

        return show

    monkeypatch.setattr(Progress, "watch", watch)

    def set_to(epochs):
        left[0] = epochs

    return set_to


@pytest.fixture(scope="module")
def finished_once(small_data, tmp_path_factory, threads):
    """The folder of a run with the paper's settings, which tests read or copy."""
    folder = tmp_path_factory.mktemp("finished")
    with threads(1):
        ia.train(small_data, out=folder, **settings_of("paper"))
    return folder


@pytest.fixture(scope="module")
def stopped_once(small_data, tmp_path_factory, threads):
    """The folder of the same run when it was stopped after four epochs, to be copied."""
    folder = tmp_path_factory.mktemp("stopped")
    with threads(1), pytest.MonkeyPatch.context() as patch:
        stopper(patch)(4)
        with pytest.raises(KeyboardInterrupt):
            ia.train(small_data, out=folder, **settings_of("paper"))
    return folder


@pytest.fixture
def finished(finished_once, tmp_path):
    """A folder whose run has ended, the test's own."""
    return shutil.copytree(finished_once, tmp_path / "finished")


@pytest.fixture
def stopped(stopped_once, tmp_path):
    """A folder whose run was stopped, the test's own, and its checkpoint."""
    out = shutil.copytree(stopped_once, tmp_path / "out")
    (checkpoint,) = (out / ".progress").glob("*.safetensors")
    return out, checkpoint


@pytest.fixture(scope="module")
def whole(finished_once):
    """What a run with the paper's settings ends with, whatever happens to it."""
    return file_bytes(finished_once)


def train_in_pieces(data, out, settings, stop_after, epochs=1):
    """The same call again and again, each stopped after some epochs; returns how often."""
    for stops in range(100):
        stop_after(epochs)
        try:
            ia.train(data, out=out, **settings)
        except KeyboardInterrupt:
            assert not (out / "bank.json").exists()
            continue
        return stops
    pytest.fail("no progress is made")


@pytest.mark.parametrize("name", list(RUNS))
def test_a_run_stopped_after_every_epoch_ends_with_the_same_bytes(
    small_data, tmp_path, stop_after, monkeypatch, name
):
    if name not in ("won", "territory"):
        monkeypatch.setattr(choose, "CPU_CHUNK", (3, 3))
    settings = settings_of(name)
    merged = ia.train(small_data, out=tmp_path / "whole", **settings)
    stops = train_in_pieces(small_data, tmp_path / "parts", settings, stop_after)
    assert stops >= 2
    assert file_bytes(tmp_path / "parts") == file_bytes(tmp_path / "whole")
    assert len(merged) == 4


def test_a_run_taken_up_with_other_threads_says_so(small_data, tmp_path, stop_after):
    """Sums of the engine `single` are shared by threads, and rounded by how many there are."""
    settings, out = {**SETTINGS, **THREADED}, tmp_path / "out"
    stop_after(1)
    with pytest.raises(KeyboardInterrupt):
        ia.train(small_data, out=out, **settings)
    stop_after(1)
    torch.set_num_threads(2)
    words = r"begun with torch.set_num_threads\(1\) and taken up with 2"
    with pytest.warns(UserWarning, match=words), pytest.raises(KeyboardInterrupt):
        ia.train(small_data, out=out, **settings)
    stop_after(None)
    with pytest.warns(UserWarning, match=words):
        bank = ia.train(small_data, out=out, **settings)
    assert bank.report["threads"] == [1, 2]
    assert [note for note in bank.report["notes"] if "taken up with 2" in note]
    assert ia.Bank.report_of(out) == bank.report
    torch.set_num_threads(1)  # what is finished stays as it is, and is no news
    assert ia.train(small_data, out=out, **settings).report == bank.report


def test_a_run_that_was_stopped_before_its_first_checkpoint_begins_anew(
    small_data, tmp_path, stop_after
):
    settings = {**SETTINGS, **THREADED, "checkpoint_every": 600}
    stop_after(1)
    with pytest.raises(KeyboardInterrupt):
        ia.train(small_data, out=tmp_path / "out", **settings)
    stop_after(None)
    torch.set_num_threads(2)
    assert ia.train(small_data, out=tmp_path / "out", **settings).report["threads"] == [2]


def test_the_mlp_engine_may_be_taken_up_with_any_number_of_threads(small_data, stopped, whole):
    out, _ = stopped
    torch.set_num_threads(2)
    assert ia.train(small_data, out=out, **settings_of("paper")).report["threads"] == [1]
    assert file_bytes(out) == whole


def test_a_run_stopped_elsewhere_does_too(small_data, tmp_path, stop_after):
    settings = settings_of("released")
    ia.train(small_data, out=tmp_path / "whole", **settings)
    for epochs in (2, 3, 5):
        train_in_pieces(small_data, tmp_path / f"{epochs}", settings, stop_after, epochs)
        assert file_bytes(tmp_path / f"{epochs}") == file_bytes(tmp_path / "whole")


def test_in_memory_and_in_a_folder_are_the_same(small_data, finished):
    settings = settings_of("paper")
    here = ia.train(small_data, **settings)
    there = ia.train(small_data, out=finished, **settings)
    assert [m.digest for m in here] == [m.digest for m in there]
    for mine, theirs in zip(here.rounds, there.rounds, strict=True):
        assert [m.digest for m in mine] == [m.digest for m in theirs]


def test_modules_of_finished_chunks_are_not_written_again(small_data, tmp_path, monkeypatch, whole):
    """A kill while they move up loses nothing: the next call ends with the same bytes."""
    monkeypatch.setattr(choose, "CPU_CHUNK", (3, 3))
    settings, out = settings_of("paper"), tmp_path / "out"
    saved, save, link = [], ia.Module.save, modules_bank.link_whole

    def counted(self, path):
        saved.append(path)
        save(self, path)

    def stop_at_the_third(source, path):
        if len(moved) == 2:
            raise KeyboardInterrupt
        moved.append(path)
        link(source, path)

    moved = []
    monkeypatch.setattr(ia.Module, "save", counted)
    monkeypatch.setattr(modules_bank, "link_whole", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        ia.train(small_data, out=out, **settings)
    assert len(saved) == 3 * 4  # rounds and modules
    assert all(".progress" in str(path) for path in saved)
    assert all(path.exists() for path in moved)
    assert not (out / "bank.json").exists()
    monkeypatch.setattr(modules_bank, "link_whole", link)
    ia.train(small_data, out=out, **settings)
    assert len(saved) == 3 * 4
    assert file_bytes(out) == whole


def test_a_finished_folder_returns_at_once(small_data, tmp_path, monkeypatch):
    settings = {**settings_of("paper"), "epochs": 1}
    bank = ia.train(small_data, out=tmp_path / "out", **settings)
    before = file_bytes(tmp_path / "out")

    def never(*args):
        raise AssertionError("trained again")

    home = sys.modules["intarsia.training.chunk_training"]
    monkeypatch.setattr(home, "train_rounds", never)
    again = ia.train(small_data, out=tmp_path / "out", **settings)
    assert [m.digest for m in again] == [m.digest for m in bank]
    assert len(again.rounds) == len(bank.rounds) == 2
    assert again.report == bank.report
    assert file_bytes(tmp_path / "out") == before
    assert not (tmp_path / "out" / ".progress").exists()


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 5},
        {"learning_rate": 1e-3},
        {"seeds": [1]},
        {"keep_rounds": False},
        {"objective": "xe"},
        {"negatives": "noise"},
        {"silent": True},
        {"balance": 0.5},
        {"sample_weight": [1.0] * 199 + [2.0]},
    ],
)
def test_a_folder_belongs_to_one_recipe(small_data, finished, stopped, ended, change):
    out = finished if ended else stopped[0]
    before = file_bytes(out)
    with pytest.raises(TrainingError, match="another recipe, data set, network or keep_rounds"):
        ia.train(small_data, out=out, **{**settings_of("paper"), **change})
    after = file_bytes(out)
    assert {n: b for n, b in after.items() if "lock" not in n} == {
        n: b for n, b in before.items() if "lock" not in n
    }


def test_a_folder_belongs_to_one_process(small_data, tmp_path):
    out = tmp_path / "out"
    (out / ".progress").mkdir(parents=True)
    with (out / ".progress" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TrainingError, match="another process trains into"):
            ia.train(small_data, out=out, **settings_of("paper"))
    assert len(ia.train(small_data, out=out, **settings_of("paper"))) == 4


def test_a_path_that_is_no_folder(small_data, tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(TrainingError, match=r"cannot write to .*: it is a file; name a folder"):
        ia.train(small_data, out=tmp_path / "out", **settings_of("paper"))


def rewrite(path, change):
    """Another checkpoint with a digest that fits."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        note = json.loads(file.metadata()["intarsia-progress"])
    tensors = load_file(path)
    change(note, tensors)
    note = json.dumps(note)
    save_file(tensors, path, {"intarsia-progress": note, "digest": digest_of(note, tensors)})


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\xff" * 100),
        lambda path: save_file({"a": torch.zeros(1)}, path),
        lambda path: flip(path, 9),
        lambda path: flip(path, -9),
        lambda path: flip(path, 0.5),
        lambda path: (path.unlink(), os.mkfifo(path)),
        lambda path: rewrite(path, lambda note, tensors: note.pop("standing")),
        lambda path: rewrite(path, lambda note, tensors: note["standing"].update(stale=[[]] * 4)),
        lambda path: rewrite(path, lambda note, tensors: note.update(standing=[])),
        lambda path: rewrite(path, lambda note, tensors: tensors.update(x=torch.zeros(1))),
    ],
)
def test_a_damaged_checkpoint_is_named_and_its_part_trained_again(
    small_data, stopped, whole, damage, monkeypatch
):
    out, checkpoint = stopped
    damage(checkpoint)
    said = []
    monkeypatch.setattr(Progress, "say", lambda self, line: said.append(line))
    words = rf"{checkpoint.name}.*is damaged.*is trained again"
    with pytest.warns(FileWarning, match=rf"(?s){words}"):
        ia.train(small_data, out=out, **settings_of("paper"))
    assert [line for line in said if re.search(words, line, re.DOTALL)]
    assert file_bytes(out) == whole


def test_a_checkpoint_that_is_a_folder_is_named(small_data, stopped):
    out, checkpoint = stopped
    checkpoint.unlink()
    checkpoint.mkdir()
    said = rf"{checkpoint.name} cannot be removed .*: remove it"
    with pytest.warns(FileWarning), pytest.raises(TrainingError, match=said):
        ia.train(small_data, out=out, **settings_of("paper"))
    assert checkpoint.is_dir()


def test_a_checkpoint_of_other_tensors_is_named(small_data, stopped):
    out, checkpoint = stopped
    rewrite(checkpoint, lambda note, tensors: tensors.pop("2/slot/best/layers.0.bias"))
    with pytest.raises(TrainingError, match=rf"{checkpoint.name} holds other tensors.*delete it"):
        ia.train(small_data, out=out, **settings_of("paper"))


@pytest.mark.parametrize("pattern", ["*-round-0/a.safetensors", "*-round-2/bank.json"])
def test_a_damaged_chunk_is_named_and_trained_again(
    small_data, tmp_path, stop_after, monkeypatch, pattern, whole
):
    """One that is done, and one whose first round is: both are in the folder."""
    monkeypatch.setattr(choose, "CPU_CHUNK", (2, 2))
    settings, out = settings_of("paper"), tmp_path / "out"
    stop_after(13)  # of 9 epochs each
    with pytest.raises(KeyboardInterrupt):
        ia.train(small_data, out=out, **settings)
    stop_after(None)
    for victim in (out / ".progress").glob(pattern):
        flip(victim, 0.5)
    (out / ".progress").joinpath("unrelated").mkdir()
    with pytest.warns(FileWarning, match="is trained again"):
        ia.train(small_data, out=out, **settings)
    assert file_bytes(out) == whole


def test_a_damaged_round_of_a_chunk_in_training_is_trained_again(small_data, stopped, whole):
    out, _ = stopped
    (victim,) = (out / ".progress").glob("*-round-0/c.safetensors")
    flip(victim, -3)
    with pytest.warns(FileWarning, match=r"c\.safetensors.*is trained again"):
        ia.train(small_data, out=out, **settings_of("paper"))
    assert file_bytes(out) == whole


@pytest.mark.parametrize("name", ["key", "threads"])
@pytest.mark.parametrize(
    "content", [b"", b"\xff\x00", b"[1]", b"[" * 10**5, b'{"digest":1}', b"9" * 5000, None]
)
def test_a_damaged_note_is_named(small_data, stopped, name, content):
    out, _ = stopped
    note = out / ".progress" / name
    if content is None:
        flip(note, 0.2)
    else:
        note.write_bytes(content)
    with pytest.raises(DamagedError, match=rf"{name}: is damaged.*delete .*progress"):
        ia.train(small_data, out=out, **settings_of("paper"))


def test_a_checkpoint_of_another_engine_is_not_taken_up(small_data, stopped):
    out, _ = stopped
    with pytest.raises(TrainingError, match="belongs to another recipe, engine or device"):
        ia.train(small_data, out=out, engine="stack", **settings_of("paper"))


def test_what_a_killed_process_left_behind_is_swept(small_data, stopped, whole):
    out, _ = stopped
    (out / "round-1").mkdir()
    for place in (out, out / "round-1", out / ".progress"):
        (place / ".0123456789abcdef.part").write_bytes(b"half")
    ia.train(small_data, out=out, **settings_of("paper"))
    assert file_bytes(out) == whole


def test_chunks_cut_elsewhere_lose_no_module(
    small_data, tmp_path, stop_after, monkeypatch, finished_once, whole
):
    """As when a run goes on with less memory: what was done in other pieces stays."""
    settings, out = settings_of("paper"), tmp_path / "out"
    monkeypatch.setattr(choose, "CPU_CHUNK", (2, 2))
    stop_after(11)  # one piece of two modules is done, nine epochs each
    with pytest.raises(KeyboardInterrupt):
        ia.train(small_data, out=out, **settings)
    stop_after(None)
    monkeypatch.setattr(choose, "CPU_CHUNK", (3, 3))
    saved, save = [], ia.Module.save
    monkeypatch.setattr(
        ia.Module, "save", lambda self, path: (saved.append(path), save(self, path))
    )
    bank = ia.train(small_data, out=out, **settings)
    assert len(saved) == 3 * 2  # rounds, and modules that were left
    assert bank.names == ia.Bank.load(finished_once).names
    assert file_bytes(out) == whole


def test_a_finished_module_that_was_altered_is_not_taken_for_right(small_data, finished):
    (finished / "b.safetensors").write_bytes((finished / "a.safetensors").read_bytes())
    with pytest.raises(FileError, match=r"b\.safetensors"):
        ia.train(small_data, out=finished, **settings_of("paper"))


def test_the_time_of_all_calls_is_kept_beside_the_modules(stop_after, small_data, tmp_path):
    out = tmp_path / "out"
    stop_after(2)
    with pytest.raises(KeyboardInterrupt):
        ia.train(small_data, out=out, **settings_of("paper"))
    before = spent(out / ".progress")
    assert before.calls == 1
    assert before.seconds > 0
    stop_after(None)
    ia.train(small_data, out=out, **settings_of("paper"))
    after = spent(out)
    assert after.calls == 2
    assert after.seconds > before.seconds
    ia.train(small_data, out=out, **settings_of("paper"))
    assert spent(out) == after  # nothing was left to do
    whole = (out / TIME).read_bytes()
    odd = [{"calls": "1", "seconds": 1}, {"calls": 1, "seconds": []}, {"calls": 1}]
    damaged = [b"{}", b"[" * 10**5, b"\xff", b"[]", b"9" * 5000, whole.replace(b":2,", b":3,")]
    for content in [*damaged, *map(sealed, odd)]:
        (out / TIME).write_bytes(content)
        assert spent(out) is None
