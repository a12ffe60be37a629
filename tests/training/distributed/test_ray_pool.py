"""Ray: a bank whose chunks are trained by actors, some of them lost, has the bytes of one process.

A minute, for a Ray and processes that import torch; `.ci/run` names it.
"""

import os
import sys
import threading

import pytest
import torch
from torch import nn

import intarsia as ia
from intarsia.errors import RecipeError, TrainingError
from intarsia.training.run_folder import TIME
from watching import descendants, kill_one, title, until

ray = pytest.importorskip("ray", reason="needs ray: pip install 'intarsia[cluster]'")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="finds workers in /proc"),
]
TITLE = "ray::ChunkActor.train"


@pytest.fixture(scope="module")
def cluster():
    """A Ray that the tests here share; runs leave it as they found it."""
    from intarsia.training.distributed.ray_connection import joined

    with joined(None, 2, 1):
        yield


def file_bytes(folder):
    """All but what tells how long it took."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != TIME]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


@pytest.mark.usefixtures("cluster")
def test_a_run_that_loses_a_worker_has_the_bytes_of_one_process(small_data, tmp_path):
    """The network and a pruning are defined here, where no worker could import them."""

    def factory(shape, outputs):
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, outputs)
        )

    @ia.NEGATIVES.register("inverted")
    def inverted(samples, generator, amount=0.25):
        """Images with dark and light exchanged."""
        rows = torch.randint(len(samples), (round(amount * len(samples)),), generator=generator)
        return samples.amax() - samples[rows]

    settings = {"model": factory, "negatives": "inverted", "sparsity": 0.5, "batch": 16}
    settings |= {"rounds": 1, "epochs": 40, "keep_rounds": True, "checkpoint_every": 0.2}
    ia.train(small_data, out=tmp_path / "alone", **settings)
    killed = []
    harm = threading.Thread(
        target=lambda: killed.append(until(lambda: kill_one(TITLE, os.getpid())))
    )
    harm.start()
    bank = ia.train(small_data, out=tmp_path / "spread", engine="ray(single)", **settings)
    harm.join()
    assert all(killed)
    assert bank.report["threads"] == [1]
    assert file_bytes(tmp_path / "spread") == file_bytes(tmp_path / "alone")
    assert ray.is_initialized()
    until(lambda: not any(title(pid).startswith(TITLE) for pid in descendants(os.getpid())))


@pytest.mark.usefixtures("cluster")
def test_what_a_worker_cannot_do_is_told_in_its_words(small_data, tmp_path):
    with pytest.raises(RecipeError, match="trains its modules in step"):
        ia.train(small_data, model="mlp(4)", epochs=1, patience=1, engine="ray(stack)", workers=1)


@pytest.mark.usefixtures("cluster")
def test_a_device_that_the_cluster_has_not(small_data):
    with pytest.raises(TrainingError, match="takes 1 CPUs and 1 GPUs, but the cluster has"):
        ia.train(small_data, model="mlp(4)", epochs=1, engine="ray", device="cuda")
