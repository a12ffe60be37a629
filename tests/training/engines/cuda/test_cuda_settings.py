"""Settings of a run that every engine must follow on a GPU, through `train`; skipped without one.

What is asked is not bits, which engines round their own way, but that all engines come to the same
module within a few steps' rounding, and keep what must not move.
"""

import pytest
import torch

import intarsia as ia

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

QUICK = {
    "preset": "paper",
    "epochs": 2,
    "progress": False,
    "device": "cuda",
    "partition": [["0"], ["1", "2"], ["3"]],
    "negatives": "none",
    "learning_rate": 3e-3,
    "temperature": 1.0,
}
FUSED = [("mlp([48], dropout=0)", "mlp"), ("lenet", "lenet")]
ANY = [
    *FUSED,
    ("mlp([48], dropout=0)", "stack"),
    ("lenet", "stack"),
    ("lenet", "single"),
    ("lenet", "streams"),
]


@pytest.fixture(autouse=True)
def full_float32(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)


def trained(model, engine, **settings):
    return ia.train("digits", model=model, engine=engine, **{**QUICK, **settings})


def apart(ours, oracle):
    flat = [torch.cat([t.double().flatten() for t in m.state.values()]) for m in (ours, oracle)]
    return float((flat[0] - flat[1]).norm() / flat[1].norm())


def base_of(model):
    return ia.train(
        "digits", model=model, preset="paper", epochs=1, sparsity=0, rounds=0, objective="xe",
        partition=[["4", "5"]], device="cuda", progress=False,
    )[0]  # fmt: skip


@pytest.mark.parametrize(("model", "engine"), ANY)
def test_changes_of_a_base_follow_the_plain_loop(model, engine):
    settings = {"base": base_of(model), "sparsity": 0.0, "rounds": 0, "epochs": 1}
    ours, oracle = (trained(model, name, **settings) for name in (engine, "plain"))
    assert [apart(a, b) < 5e-3 for a, b in zip(ours, oracle, strict=True)] == [True] * 3, [
        apart(a, b) for a, b in zip(ours, oracle, strict=True)
    ]


@pytest.mark.parametrize(("model", "engine"), ANY)
def test_what_is_pruned_of_a_change_has_the_bases_very_bits(model, engine):
    for module in trained(model, engine, base=base_of(model), sparsity=0.8, rounds=1):
        assert module.base is not None
        moved = 0
        for name, kept in module.mask.items():
            now, before = module.state[name], module.base.state[name]
            assert torch.equal(now[~kept].view(torch.int32), before[~kept].view(torch.int32))
            moved += int((now != before).sum())
        assert moved > 0
        assert module.density == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize(("model", "engine"), ANY)
@pytest.mark.parametrize("visibility", ["past", "own"])
def test_modules_that_see_a_part(model, engine, visibility):
    data = ia.load_data("digits", scale="none")
    settings = {
        "visibility": visibility,
        "negatives": "noise(0.5) + mixed(0.5)",
        "sparsity": 0.0,
        "rounds": 0,
    }
    ours, oracle = (
        ia.train(data, model=model, engine=name, **{**QUICK, **settings})
        for name in (engine, "plain")
    )
    assert [apart(a, b) < 5e-3 for a, b in zip(ours, oracle, strict=True)] == [True] * 3, [
        apart(a, b) for a, b in zip(ours, oracle, strict=True)
    ]


@pytest.mark.parametrize("engine", ["single", "stack", "streams", "grouped"])
def test_augmented_pictures(engine):
    settings = {"augment": "crop(1) + flip", "sparsity": 0.0, "rounds": 0}
    ours, oracle = (trained("lenet", name, **settings) for name in (engine, "plain"))
    assert [apart(a, b) < 5e-3 for a, b in zip(ours, oracle, strict=True)] == [True] * 3, [
        apart(a, b) for a, b in zip(ours, oracle, strict=True)
    ]


# torch.compile imports what torch itself has deprecated
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")
@pytest.mark.parametrize("engine", ["single", "streams", "grouped", "compiled"])
def test_products_in_bf16(engine):
    """As near the plain loop in bf16 as that is to itself in float32, and near it."""
    settings = {"sparsity": 0.0, "rounds": 0, "augment": "crop(1) + flip"}
    ours, oracle = (
        trained("resnet18(width=8)", name, precision="bf16", **settings)
        for name in (engine, "plain")
    )
    full = trained("resnet18(width=8)", "plain", **settings)
    rounding = [apart(a, b) for a, b in zip(oracle, full, strict=True)]
    distances = [apart(a, b) for a, b in zip(ours, oracle, strict=True)]
    assert max(distances) < 2 * max(rounding) + 1e-3, (distances, rounding)
    again = trained("resnet18(width=8)", engine, precision="bf16", **settings)
    assert [m.digest for m in again] == [m.digest for m in ours]
