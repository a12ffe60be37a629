"""Products in bf16 over float32 weights, and pictures that stay bytes until a batch needs them."""

import pytest
import torch
from torch import nn

import intarsia as ia
from intarsia.data import Data, Split
from intarsia.errors import RecipeError
from intarsia.training import job as home
from intarsia.training.settings.recipe import Recipe

SETTINGS = {
    "preset": "paper", "model": "resnet18(width=2)", "epochs": 2, "sparsity": 0.0, "rounds": 0,
    "temperature": 1.0, "learning_rate": 1e-2, "augment": "crop(1) + flip", "progress": False,
}  # fmt: skip


@pytest.fixture
def pictures() -> Data:
    """Colour pictures of two classes, one with bright upper halves, as bytes."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(0, 128, (120, 3, 8, 8), dtype=torch.uint8, generator=draw)
    y = torch.arange(120) % 2
    x[y == 1, :, :4] += 100
    parts = [Split(x[rows], y[rows]) for rows in (slice(80), slice(80, 100), slice(100, 120))]
    return Data.build("halves", ["dark", "bright"], *parts, "signed")


@pytest.mark.parametrize("engine", ["plain", "single", "streams", "grouped"])
def test_products_are_rounded_and_weights_are_not(pictures: Data, engine: str) -> None:
    full, rounded = (
        ia.train(pictures, engine=engine, precision=precision, **SETTINGS)[0]
        for precision in ("float32", "bf16")
    )
    assert all(t.dtype == full.state[n].dtype for n, t in rounded.state.items())
    weights = [module.state["stages.0.0.conv1.weight"] for module in (full, rounded)]
    assert not torch.equal(*weights)
    torch.testing.assert_close(*weights, rtol=0.1, atol=0.05)
    assert not torch.equal(weights[1], weights[1].bfloat16().float())


def test_float32_is_what_a_recipe_means_without_it() -> None:
    assert Recipe(precision="float32").resolve().digest() == Recipe().resolve().digest()
    assert Recipe(precision="bf16").resolve().digest() != Recipe().resolve().digest()


@pytest.mark.parametrize(("value", "engine"), [("half", "auto"), ("bf16", "mlp")])
def test_what_cannot_be_had_is_refused(pictures: Data, value: str, engine: str) -> None:
    with pytest.raises(RecipeError, match="precision"):
        ia.train(pictures, **{**SETTINGS, "augment": "none"}, precision=value, engine=engine)


@pytest.mark.parametrize("engine", ["plain", "single", "stack", "streams", "grouped"])
def test_bytes_are_scaled_batch_by_batch_to_the_same_bits(
    pictures: Data, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pictures that are scaled beforehand."""
    held = []
    asked = home.Job.inputs

    def inputs(job: home.Job, *given: torch.Tensor) -> torch.Tensor:
        held.append(job.x.dtype)
        return asked(job, *given)

    monkeypatch.setattr(home.Job, "inputs", inputs)
    raw = ia.train(pictures, engine=engine, **SETTINGS)
    monkeypatch.setattr(home, "reads_batches", lambda network: False)
    scaled = ia.train(pictures, engine=engine, **SETTINGS)
    assert set(held) == {torch.uint8, torch.float32}
    assert [m.digest for m in raw] == [m.digest for m in scaled]


def test_bytes_are_whole_numbers_to_a_network_that_looks_them_up(pictures: Data) -> None:
    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.fc = nn.Embedding(256, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(self.embed(x.flatten(1)).mean(1))

    raw = Data.build(
        "bytes", pictures.catalogue, pictures.train, pictures.validation, pictures.test, "none"
    )
    settings = {**SETTINGS, "model": lambda shape, outputs: Lookup(), "augment": "none"}
    assert ia.train(raw, engine="single", negatives="none", **settings).names == ("dark", "bright")
