"""The runner: what is missing is done once, whatever stops it, and comes out the same."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from store_content import content, events
from toy import TOY

import intarsia as ia
from damage import flip
from intarsia.errors import FileError, HealthWarning, StudyError
from intarsia.files import digest_of
from intarsia.studies import Measured, Store, StudyContext, find_study, progress, run
from intarsia.studies.archive import (
    kept_archive,
    load_archive,
    make_archive,
    own_events,
    restore,
    save_archive,
)
from intarsia.studies.records import Record, read_records
from intarsia.studies.runners.bank_training import train_plans, training_groups
from intarsia.studies.runners.estimate import estimate
from intarsia.studies.runners.local import missing_plans

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("store") / "finished")
    run(TOY, TOY.options("small"), store, device="cpu")
    return store


@pytest.fixture
def store(finished, tmp_path):
    """A copy of the finished store, to be harmed."""
    shutil.copytree(finished.path, tmp_path / "store")
    return Store(tmp_path / "store")


def cells_of(store, **given):
    return TOY.plan(TOY.options("small", **given), StudyContext(store, "cpu"))


def test_all_cells_are_measured_and_nothing_is_left_over(finished):
    found = progress(cells_of(finished), finished)
    assert len(found.measured) == 6
    assert not found.missing
    assert not found.damaged
    assert all(0 < v < 2.31 for m in found.measured for v in m.result["pruned"])
    assert not list((finished.path / "work").glob("*"))
    assert not list((finished.path / "locks").glob("*"))
    assert len(events(finished, "banks")) == 6
    assert len(events(finished, "cell")) == 6


def test_a_finished_study_is_not_done_again(store):
    before = content(store)
    run(TOY, TOY.options("small"), store, device="cpu")
    assert content(store) == before
    assert len(events(store, "banks")) == 6
    assert len(events(store, "cell")) == 6


def test_what_is_missing_is_done_to_the_same_bytes(store):
    before = content(store)
    some = [*(store.path / "cells" / "toy").glob("*")][:3]
    for path in some:
        path.unlink()
    shutil.rmtree(next((store.path / "banks").iterdir()))
    run(TOY, TOY.options("small"), store, device="cpu")
    assert content(store).keys() <= before.keys()
    assert all(before[name] == result for name, result in content(store).items())
    assert len(events(store, "cell")) == 9


def test_banks_are_shared_by_cells_that_differ_in_other_things(store):
    run(TOY, TOY.options("small", scale=2.0), store, device="cpu")
    assert len(events(store, "cell")) == 12
    assert len(events(store, "banks")) == 6


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "json", "swap"])
def test_a_damaged_cell_is_named_and_measured_again(store, harm):
    before = content(store)
    one, two = sorted((store.path / "cells" / "toy").glob("*"))[:2]
    raw = one.read_bytes()
    one.write_bytes(
        {
            "flip": raw.replace(b'"seed":', b'"sead":'),
            "cut": raw[:-20],
            "empty": b"",
            "json": b"[1]",
            "swap": two.read_bytes(),
        }[harm]
    )
    result = progress(cells_of(store), store)
    assert len(result.missing) == 1
    (line,) = result.damaged.values()
    assert one.name in line
    assert "damaged" in line
    said = []
    run(TOY, TOY.options("small"), store, device="cpu", say=said.append)
    assert any(one.name in line and "measured again" in line for line in said)
    assert content(store) == before


def test_a_damaged_bank_is_named_and_trained_again(store):
    before = content(store)
    shutil.rmtree(store.path / "cells")
    victim = next((store.path / "banks").glob("*/round-1/*.safetensors"))
    flip(victim, -3)
    said = []
    run(TOY, TOY.options("small"), store, device="cpu", say=said.append)
    assert any(victim.name in line and "trained again" in line for line in said)
    assert content(store) == before


def test_plans_trained_together_come_out_as_if_alone(store):
    context = StudyContext(store, "cpu")
    plans = [cell.banks["modules"] for cell in cells_of(store)]
    groups = training_groups(plans, torch.device("cuda"))
    assert [len(group) for group in groups] == [3, 3]  # by objective: xe hides labels
    assert [len(group) for group in training_groups(plans, torch.device("cpu"))] == [1] * 6
    before = content(store)
    banks = [train_plans(group, context.data("digits"), context.device) for group in groups]
    shutil.rmtree(store.path / "banks")
    assert len(missing_plans(cells_of(store), store)) == 6
    for group, own in zip(groups, banks, strict=True):
        for plan, bank in zip(group, own, strict=True):
            store.add_bank(plan, bank)
    assert content(store) == before


@pytest.mark.parametrize(("workers", "sizes"), [(1, [3, 3]), (2, [3, 3]), (3, [2, 1, 2, 1])])
def test_several_gpus_share_the_banks(store, workers, sizes):
    """Else the first of several workers would train alone what fits on its GPU."""
    plans = [cell.banks["modules"] for cell in cells_of(store)]
    groups = training_groups(plans, torch.device("cuda"), workers=workers)
    assert [len(group) for group in groups] == sizes
    assert {plan.key for group in groups for plan in group} == {plan.key for plan in plans}
    many = training_groups(plans, torch.device("cuda"), workers=99)
    assert [len(group) for group in many] == [1] * 6


def test_a_study_that_trains_the_unhealthy_on_purpose_warns_of_none(tmp_path):
    store = Store(tmp_path / "store")
    with warnings.catch_warnings():
        warnings.simplefilter("error", HealthWarning)
        run(TOY, TOY.options("small"), store, device="cpu")
    banks = [ia.Bank.load(p.parent, quiet=True) for p in store.path.glob("banks/*/bank.json")]
    assert banks
    assert not all(bank.health.ok for bank in banks)


def test_two_processes_share_the_work_and_repeat_nothing(finished, tmp_path):
    script = (
        "import sys, torch; sys.path.insert(0, sys.argv[1]); torch.set_num_threads(1)\n"
        "from toy import TOY\n"
        "from intarsia.studies import Store, run\n"
        "print('here', flush=True)\n"
        "run(TOY, TOY.options('small'), Store(sys.argv[2]), device='cpu')\n"
    )
    root, store = Path(__file__).resolve().parents[1], Store(tmp_path / "both")
    command = [sys.executable, "-c", script, str(root), str(store.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "here\n"
        run(TOY, TOY.options("small"), store, device="cpu")
        assert other.wait(timeout=120) == 0
    assert content(store) == content(finished)
    trained = [key for event in events(store, "banks") for key in event["keys"]]
    measured = [event["key"] for event in events(store, "cell")]
    assert len(trained) == len(set(trained)) == 6
    assert len(measured) == len(set(measured)) == 6


def test_a_lock_of_a_dead_process_is_free(store):
    script = (  # as Store.lock does, without the seconds that importing studies takes
        "import sys; from intarsia.locks import take_lock\n"
        "lock = take_lock(sys.argv[1]); print(lock is not None, flush=True); sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(store.lock_file("a"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "True\n"
    with store.lock(["a", "b"]) as held:
        assert held == ["b"]
    process.kill()
    process.communicate()
    time.sleep(0.05)
    with store.lock(["a"]) as held:
        assert held == ["a"]


def test_litter_of_a_killed_process_is_swept(store):
    before = content(store)
    (store.path / "banks" / ".00.part").mkdir()
    (store.path / "banks" / ".00.part" / "0.safetensors").write_bytes(b"half")
    (store.path / "cells" / "toy" / ".00.part").write_bytes(b"half")
    next((store.path / "cells" / "toy").glob("*.json")).unlink()
    run(TOY, TOY.options("small"), store, device="cpu")
    assert content(store) == before


def test_a_folder_that_is_no_store_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("dear store")
    with pytest.raises(StudyError, match="not a store"):
        Store(tmp_path)
    with pytest.raises(StudyError, match="no store"):
        Store(tmp_path / "nowhere", make=False)
    (tmp_path / "store.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(StudyError, match=r"store\.json"):
        Store(tmp_path)


def test_an_unknown_option_is_answered_with_the_nearest():
    with pytest.raises(StudyError, match="did you mean 'seeds'"):
        TOY.options("small", seed=3)
    with pytest.raises(StudyError, match="no scale 'large'"):
        TOY.options("large")


def test_an_estimate_goes_by_earlier_runs_where_there_are_any(store, tmp_path):
    empty = Store(tmp_path / "empty")
    guess = estimate(cells_of(empty), empty, StudyContext(empty, "cpu"))
    assert (guess.cells, guess.missing, guess.modules) == (6, 6, 12)
    assert 0 < guess.minutes < 1
    assert "rough" in guess.basis
    more = estimate(cells_of(store, seeds=6), store, StudyContext(store, "cpu"))
    seen = sum(e["seconds"] for e in events(store, "banks"))
    assert (more.cells, more.missing, more.modules) == (12, 6, 12)
    assert more.minutes == pytest.approx(seen / 60, rel=1e-6)
    assert "earlier" in more.basis


def test_a_pack_holds_what_the_store_has(store, tmp_path):
    options = TOY.options("small")
    archived = make_archive(TOY, options, cells_of(store), store)
    save_archive(tmp_path / "toy.json", archived)
    result = load_archive(tmp_path / "toy.json")
    assert result.to_json() == archived.to_json()
    assert result.measured == progress(cells_of(store), store).measured
    assert result.missing == 0
    assert result.runs["modules"] == 12
    assert result.runs["training_seconds"] > 0
    assert result.runs["versions"][0]["torch"]
    assert result.runs["measuring_seconds"] == pytest.approx(
        sum(e["seconds"] for e in events(store, "cell")), abs=0.1
    )
    text = (tmp_path / "toy.json").read_text()
    (tmp_path / "toy.json").write_text(text.replace('"seed":1', '"seed":7', 1))
    with pytest.raises(FileError, match="altered or damaged"):
        load_archive(tmp_path / "toy.json")
    (tmp_path / "toy.json").write_text("{}")
    with pytest.raises(FileError, match="not an archive"):
        load_archive(tmp_path / "toy.json")


def test_a_run_keeps_an_archive_that_outlives_it(finished, tmp_path):
    options, path = TOY.options("small"), tmp_path / "kept.json"
    cells = cells_of(finished)
    store = Store(tmp_path / "store")

    @kept_archive(path, TOY, options, store, every=0.01)
    def work():
        for count, measured in enumerate(progress(cells, finished).measured[:2], start=1):
            store.write(cells[count - 1], dict(measured.result))
            _until(lambda count=count: path.exists() and _archived(path) == count)
        store.write(cells[2], {"pruned": [1.0], "unpruned": [1.0]})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert _archived(path) == 3
    assert load_archive(path).missing == 3
    assert load_archive(path).options == options


def _archived(path):
    return len(load_archive(path).measured)


def _until(holds, seconds=20.0):
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.005)


def test_cells_of_a_pack_are_not_measured_again(store, tmp_path):
    options = TOY.options("small")
    archived = make_archive(TOY, options, cells_of(store), store)
    half = dataclasses.replace(archived, measured=archived.measured[::2])
    other = Store(tmp_path / "other")
    for _ in range(2):
        assert restore(half, other, StudyContext(other, "cpu")) == (3, 0)
    strange = dataclasses.replace(archived, measured=[Measured({}, {}, "0" * 64)])
    assert restore(strange, other, StudyContext(other, "cpu")) == (0, 1)
    run(TOY, options, other, device="cpu")
    cells = {k: v for k, v in content(store).items() if k.startswith("cells")}
    assert {k: v for k, v in content(other).items() if k.startswith("cells")} == cells
    again = make_archive(TOY, options, cells_of(other), other)
    assert again.runs["modules"] == 12
    assert len(events(other, "cell")) == 6 + 3


def test_events_do_not_multiply_as_archives_go_to_and_fro(store, tmp_path):
    """As where a store at home takes over what other machines add to it, again and again."""
    archived = make_archive(TOY, TOY.options("small"), cells_of(store), store)
    for number in range(3):
        away = Store(tmp_path / f"away{number}")
        for there in (away, store):
            restore(archived, there, StudyContext(there, "cpu"))
            archived = make_archive(TOY, TOY.options("small"), cells_of(there), there)
            assert len(archived.events) == 6 + 6
    assert len(events(store, "cell")) == 6


def test_banks_that_were_trained_as_one_share_the_time_by_their_modules(tmp_path):
    store = Store(tmp_path / "store")
    record = Record(store.path / "runs", "toy", torch.device("cpu"))
    record.note(event="banks", keys=["large", "small", "other"], modules=8, work=16.0, seconds=4.0)
    shares = {
        event["keys"][0]: (event["modules"], event["work"], event["seconds"])
        for event in own_events(store, (), {"large": 5, "small": 1})
    }
    assert shares == {"large": (5, 10.0, 2.5), "small": (1, 2.0, 0.5)}


def test_an_estimate_does_not_scale_up_tiny_runs(store):
    long = estimate(
        cells_of(store, seeds=6, recipe={"epochs": 5000}), store, StudyContext(store, "cpu")
    )
    assert "rough" in long.basis


def harm(store, kind):
    one, two = sorted((store.path / "banks").iterdir())[:2]
    if kind == "unpruned lost":
        shutil.rmtree(one / "round-1")
    elif kind == "swapped":
        one.rename(one.with_name("aside"))
        two.rename(one)
        one.with_name("aside").rename(two)
    elif kind == "half dropped":
        (one / "bank.json").unlink()


@pytest.mark.parametrize("kind", ["unpruned lost", "swapped", "half dropped"])
def test_a_bank_that_is_not_what_was_asked_for_is_trained_again(store, kind):
    before = content(store)
    shutil.rmtree(store.path / "cells")
    harm(store, kind)
    run(TOY, TOY.options("small"), store, device="cpu")
    assert content(store) == before


def test_a_bank_of_another_version_is_left_alone(store):
    shutil.rmtree(store.path / "cells")
    listing = next((store.path / "banks").iterdir()) / "bank.json"
    listing.write_text(listing.read_text().replace('"version":1', '"version":2'))
    before = content(store)
    with pytest.raises(StudyError, match="another version"):
        run(TOY, TOY.options("small"), store, device="cpu")
    assert before.items() <= content(store).items()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="a superuser may read all")
def test_a_bank_that_may_not_be_read_is_left_alone(store):
    shutil.rmtree(store.path / "cells")
    listing = next((store.path / "banks").iterdir()) / "bank.json"
    listing.chmod(0)
    with pytest.raises(StudyError, match="Permission denied"):
        run(TOY, TOY.options("small"), store, device="cpu")
    assert listing.exists()


def test_a_cell_of_another_format_is_refused(store):
    path = next((store.path / "cells" / "toy").glob("*"))
    result = json.loads(path.read_text())
    result.pop("digest")
    result["version"] = 99
    path.write_text(json.dumps({**result, "digest": digest_of(result)}))
    with pytest.raises(FileError, match="not a cell that this version reads"):
        progress(cells_of(store), store)


def test_a_finished_study_writes_nothing(store):
    before = {p: p.stat().st_mtime_ns for p in store.path.rglob("*")}
    assert len(run(TOY, TOY.options("small"), store, device="cpu")) == 6
    assert {p: p.stat().st_mtime_ns for p in store.path.rglob("*")} == before


def test_damaged_records_are_passed_over(store):
    count = len(read_records(store.path / "runs"))
    (store.path / "runs" / "0.jsonl").write_text('[1]\n{"event": "cell", "key": "x"}\n{"ev')
    assert len(read_records(store.path / "runs")) == count
    assert make_archive(TOY, TOY.options("small"), cells_of(store), store).runs["modules"] == 12


def test_a_recipe_may_not_set_what_the_study_sets():
    with pytest.raises(StudyError, match="'recipe' has 'seeds'"):
        TOY.options("small", recipe={"seeds": [7]})


def test_locks_are_given_to_one_at_a_time(tmp_path):
    """This process and another fight for one lock; each adds one to a number, and none is lost."""
    script = (  # as Store.lock does, without the seconds that importing studies takes
        "import sys, pathlib; from intarsia.locks import take_lock\n"
        "number, done = pathlib.Path(sys.argv[2]), 0\n"
        "print('here', flush=True)\n"
        "while done < 30:\n"
        "    lock = take_lock(sys.argv[1])\n"
        "    if lock:\n"
        "        number.write_text(str(int(number.read_text()) + 1)); done += 1\n"
        "        lock.release()\n"
    )
    store, number, done = Store(tmp_path / "store"), tmp_path / "number", 0
    number.write_text("0")
    command = [sys.executable, "-c", script, str(store.lock_file("one")), str(number)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "here\n"
        while done < 30:
            with store.lock(["one"]) as held:
                if held:
                    number.write_text(str(int(number.read_text()) + 1))
                    done += 1
        assert other.wait(timeout=120) == 0
    assert number.read_text() == "60"


def test_a_data_file_of_ones_own_goes_all_the_way(tmp_path):
    data = ia.load_data("digits")
    arrays = {
        "x_train": data.train.x.numpy(),
        "y_train": data.train.y.numpy(),
        "x_test": data.test.x.numpy(),
        "y_test": data.test.y.numpy(),
        "classes": np.array(data.catalogue),
    }
    np.savez(tmp_path / "own.npz", **arrays)
    study = find_study("single")
    recipe = {"epochs": 1, "sparsity": 0.5, "rounds": 1}
    given = {"data": [str(tmp_path / "own.npz")], "models": ["mlp(8)"], "recipe": recipe}
    options = study.options("small", seeds=1, **given)
    (measured,) = run(study, options, Store(tmp_path / "store"), device="cpu")
    assert len(measured.result["pruned"]["accuracy"]) == 10
