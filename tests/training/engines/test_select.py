"""Which engine trains a job, and that none is chosen that would pass over a setting."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from intarsia.errors import RecipeError
from intarsia.training.engines import select as home
from intarsia.training.engines.select import choose, chunks, limit_of
from intarsia.training.job import Job

Make = Callable[..., tuple[Job, list]]


@pytest.fixture
def on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the data lay on a GPU, with Triton."""
    monkeypatch.setattr(Job, "device", property(lambda job: torch.device("cuda", 0)))
    monkeypatch.setattr(home, "find_spec", lambda name: object())


@pytest.mark.parametrize(
    ("model", "engine"), [("mlp(24)", "mlp"), ("lenet", "single"), ("resnet18(width=4)", "single")]
)
def test_on_a_cpu(make_job: Make, model: str, engine: str) -> None:
    job, _ = make_job(model)
    assert choose(job, "auto", patience=False).engine == engine
    weighted = replace(job, sample_weight=torch.ones(len(job.y)))
    assert choose(weighted, "auto", patience=False).engine == engine


@pytest.mark.usefixtures("on_cuda")
@pytest.mark.parametrize("model", ["mlp(24)", "lenet"])
def test_fused_kernels_weigh_by_label_only(make_job: Make, model: str) -> None:
    job, _ = make_job(model)
    kind = model.partition("(")[0]
    assert choose(job, "auto", patience=False).engine == kind
    weighted = replace(job, sample_weight=torch.ones(len(job.y)))
    assert choose(weighted, "auto", patience=False).engine == "stack"
    assert choose(weighted, "auto", patience=True).engine == "single"
    with pytest.raises(RecipeError, match=rf"engine '{kind}' needs .*no sample_weight"):
        choose(weighted, kind, patience=False)
    assert choose(job, kind, patience=False).engine == kind


def test_small_modules_are_cut_into_large_pieces(make_job: Make) -> None:
    """Of 4 million parameters together, and ten modules at least."""
    for model, most in (("mlp(8)", 256), ("mlp([256, 256])", 47), ("mlp([2000, 2000])", 10)):
        job, _ = make_job(model)
        tasks = [replace(job.tasks[0], name=str(k)) for k in range(300)]
        limit = limit_of(job, choose(job, "auto", patience=False))
        pieces = chunks(tasks, limit, whole_seeds=False)
        assert [t for piece in pieces for t in piece] == tasks
        size = sum(p.numel() for p in job.network.parameters())
        assert most == max(10, min(256, 4_000_000 // size))
        assert max(map(len, pieces)) == most
