"""Faults of a study's machines: a full disk, no memory, no flock, files with any content."""

import errno
import json
import os
import socket
import sys
import traceback
import warnings

import pytest
from store_content import content, events
from toy import TOY

from intarsia import locks
from intarsia.errors import DamagedError, FileError, IntarsiaError, StudyError
from intarsia.files import digest_of, sealed
from intarsia.studies import Store, StudyContext, progress, run
from intarsia.studies.archive import load_archive, make_archive, save_archive
from intarsia.studies.records import read_records
from intarsia.studies.selection import select_archived
from intarsia.studies.store import read_cell

pytestmark = pytest.mark.usefixtures("one_thread")
OPTIONS = TOY.options("small", seeds=1, objectives=["me"])
TWO = TOY.options("small", seeds=2, objectives=["me"])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("store") / "finished")
    run(TOY, OPTIONS, store, device="cpu")
    return store


@pytest.mark.parametrize("number", [*range(1, 8), 12, 20, 30])
def test_a_full_disk_is_told_and_the_study_goes_on(finished, tmp_path, monkeypatch, number):
    """It is full when the file is synced, of the store, a checkpoint, a module, a cell."""
    sync, count = os.fsync, [0]

    def full(handle):
        count[0] += 1
        if count[0] >= number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(IntarsiaError, match="No space left on device"):
        run(TOY, OPTIONS, Store(tmp_path / "store"), device="cpu")
    monkeypatch.setattr(os, "fsync", sync)
    store = Store(tmp_path / "store")
    run(TOY, OPTIONS, store, device="cpu")
    assert content(store) == content(finished)
    assert not [*store.path.rglob("*.part")]


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_memory_that_runs_out_in_a_cell_is_told(finished, tmp_path, monkeypatch, error):
    def fail(cell, context):
        raise error

    store = Store(tmp_path / "store")
    with monkeypatch.context() as patched:
        patched.setitem(vars(TOY), "measure", fail)
        with pytest.raises(StudyError, match=r"cell toy .*: memory ran out"):
            run(TOY, OPTIONS, store, device="cpu")
    run(TOY, OPTIONS, store, device="cpu")
    assert content(store) == content(finished)


def machine(host, path, wait=None):
    """A process that takes itself for another machine, on a file system without flock."""
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        child = os.fork()
    if child:
        return child
    try:
        socket.gethostname = lambda: host
        locks.fcntl.flock = no_flock
        if wait is not None:
            os.read(wait, 1)
        run(TOY, TWO, Store(path), device="cpu")
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def no_flock(*_):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_two_machines_without_flock_share_a_store(tmp_path):
    alone = Store(tmp_path / "alone")
    run(TOY, TWO, alone, device="cpu")
    Store(tmp_path / "both")
    crew = [machine(host, tmp_path / "both") for host in ("one", "two")]
    assert [os.waitpid(child, 0)[1] for child in crew] == [0, 0]
    store = Store(tmp_path / "both")
    assert content(store) == content(alone)
    keys = [key for event in events(store, "banks") for key in event["keys"]]
    keys += [event["key"] for event in events(store, "cell")]
    assert len(keys) == len(set(keys)) == 4
    assert not [*(store.path / "locks").iterdir()]


def test_work_of_a_machine_that_is_gone_is_taken_over(tmp_path, monkeypatch):
    """Its heart has stood still for long enough; until then we wait, and say for whom."""
    alone, store = Store(tmp_path / "alone"), Store(tmp_path / "store")
    run(TOY, OPTIONS, alone, device="cpu")
    (plan,) = TOY.plan(OPTIONS, StudyContext(store, "cpu"))[0].banks.values()
    monkeypatch.setattr(locks.fcntl, "flock", no_flock)
    monkeypatch.setattr("intarsia.studies.runners.local.LONG_WAIT", 1)
    with monkeypatch.context() as away:
        away.setattr(socket, "gethostname", lambda: "gone")
        left = [store.in_use(), store.lock([plan.key])]
        assert [block.__enter__() for block in left] == [None, [plan.key]]
        locks._HEART.reset()
    waited = []

    def say(line):
        if line.startswith("waiting"):
            waited.append(line)
            os.utime(store.path / "locks" / f"{plan.key}.held", (0, 0))

    run(TOY, OPTIONS, store, device="cpu", say=say)
    assert content(store) == content(alone)
    assert [line for line in waited if f"process {os.getpid()} on gone" in line]


ODD = [b"", b"\xff\xfe", b"[1]", b"[" * 10**5, b"9" * 5000, b'{"digest": 1}', b'"text"', b"null"]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_files_with_any_content_are_named(finished, tmp_path, odd):
    path = tmp_path / "file.json"
    path.write_bytes(odd)
    with pytest.raises(DamagedError, match=r"file\.json: is damaged"):
        read_cell(path)
    with pytest.raises(FileError, match=r"file\.json: is not an archive"):
        load_archive(path)
    (tmp_path / "store.json").write_bytes(odd)
    with pytest.raises(StudyError, match=r"store\.json: is not the note of a store"):
        Store(tmp_path)


@pytest.mark.parametrize("change", [{"settings": []}, {"result": 1}, {"key": 7}, {"key": "other"}])
def test_a_sealed_cell_of_wrong_types_is_damaged(finished, tmp_path, change):
    (cell,) = (finished.path / "cells" / "toy").glob("*")
    result = json.loads(cell.read_bytes())
    del result["digest"]
    (tmp_path / cell.name).write_bytes(sealed({**result, **change}))
    with pytest.raises(DamagedError, match=cell.name):
        read_cell(tmp_path / cell.name, cell.stem)


@pytest.mark.parametrize(
    "change",
    [
        {"study": 1},
        {"options": []},
        {"missing": -1},
        {"missing": True},
        {"events": [{"event": "cell"}]},
        {"events": 3},
        {"measured": [{"settings": [], "result": {}, "key": ""}]},
        {"measured": [{"settings": {}, "result": {}, "key": 1}]},
        {"measured": {"a": 1}},
        {"measured": [{}]},
        {"measured": [{"settings": {"seed": []}, "result": {"pruned": 1}, "key": "k"}]},
    ],
)
def test_an_archive_of_wrong_types_is_refused_whatever_its_digest(finished, tmp_path, change):
    path = tmp_path / "toy.json"
    cells = TOY.plan(OPTIONS, StudyContext(finished, "cpu"))
    save_archive(path, make_archive(TOY, OPTIONS, cells, finished))
    result = json.loads(path.read_bytes())
    del result["digest"]
    result |= change
    path.write_text(json.dumps({**result, "digest": digest_of(result)}))
    with pytest.raises(FileError, match=r"toy\.json: (is not an archive|its cells are not)"):
        select_archived(TOY, {}, path)


def test_events_of_wrong_types_are_passed_over(finished, tmp_path):
    about = {"device": "d", "kind": "cpu", "date": "today", "versions": {"torch": "2"}}
    cell = {**about, "event": "cell", "key": "k", "seconds": 1}
    banks = {**about, "event": "banks", "keys": ["k"], "modules": 1, "work": 1, "seconds": 1}
    wrong = [
        {**cell, "seconds": "1"},
        {**cell, "key": ["k"]},
        {**cell, "versions": []},
        {**cell, "event": ["cell"]},
        {**banks, "keys": []},
        {**banks, "modules": 0},
        {**banks, "work": 10**400},
    ]
    lines = [json.dumps(event) for event in [cell, banks, *wrong]]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, "[" * 10**5]))
    (tmp_path / "b.jsonl").mkdir()
    assert read_records(tmp_path) == [cell, banks]


def test_a_damaged_work_folder_is_dropped(finished, tmp_path, monkeypatch):
    """Of a run that was killed before its bank was kept."""
    store = Store(tmp_path / "store")
    with monkeypatch.context() as patched:
        patched.setattr(Store, "add_bank", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(TOY, OPTIONS, store, device="cpu")
    victim = next((store.path / "work").rglob("bank.json"))
    victim.write_bytes(victim.read_bytes().replace(b"mlp", b"nlp", 1))
    said = []
    run(TOY, OPTIONS, store, device="cpu", say=said.append)
    assert [line for line in said if "bank.json" in line and "trained again" in line]
    assert content(store) == content(finished)
    assert not progress(TOY.plan(OPTIONS, StudyContext(store, "cpu")), store).missing


def test_a_store_whose_note_is_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "store.json")
    with pytest.raises(StudyError, match="is not the note of a store"):
        Store(tmp_path)
