"""Ray: a cluster that loses workers gives the bytes of one process."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from slow import SLOW
from store_content import content, events

from intarsia.studies import Store, run
from intarsia.studies.runners.dispatch import run_with
from intarsia.studies.runners.local import RunRequest
from watching import kill_one, until

ray = pytest.importorskip("ray", reason="needs ray: pip install 'intarsia[cluster]'")

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(sys.platform != "linux", reason="finds workers in /proc"),
]
OPTIONS = SLOW.options("small")
LOCAL = """
import sys, torch
sys.path.insert(0, sys.argv[1])
torch.set_num_threads(1)
from slow import SLOW
from intarsia.studies import Store, run
run(SLOW, SLOW.options("small"), Store(sys.argv[2]), device="cpu")
"""


@pytest.mark.slow  # a minute, for Ray and four processes that import torch; .ci/run names it
def test_a_run_that_loses_workers_and_shares_its_store_equals_a_local_one(tmp_path):
    alone, store = Store(tmp_path / "alone"), Store(tmp_path / "cluster")
    run(SLOW, OPTIONS, alone, device="cpu")
    killed, beside = {}, []

    def harm():
        for task in ("ray::train_banks", "ray::measure_cell"):
            killed[task] = until(lambda task=task: kill_one(task, os.getpid()))
            if not beside:  # from now on another process works on the store
                command = [
                    sys.executable,
                    "-c",
                    LOCAL,
                    str(Path(__file__).parents[1]),
                    str(store.path),
                ]
                beside.append(subprocess.Popen(command))

    thread = threading.Thread(target=harm)
    thread.start()
    measured = run_with("ray", RunRequest(SLOW, OPTIONS, store, "cpu", workers=2))
    thread.join()
    assert beside[0].wait(timeout=60) == 0
    assert len(killed) == 2
    assert all(killed.values())
    assert len(measured) == 4
    assert content(store) == content(alone)
    done = [*events(store, "cell"), *events(store, "banks")]
    keys = [key for event in done for key in event.get("keys", [event.get("key")])]
    assert len(keys) == len(set(keys)) == 8
    assert not [*(store.path / "locks").iterdir()]
    assert not ray.is_initialized()
