"""The vision transformer: its size, what it computes, and how its modules train and join."""

import pytest
import torch

import intarsia as ia
from intarsia.errors import CompositionError, ModelError, WiringError
from intarsia.models import build


def test_it_has_the_parameters_that_its_form_says() -> None:
    width, places, classes = 192, 64, 10
    block = 4 * width + 3 * (width * width + width) + (width * width + width)
    block += 2 * 4 * width * width + 4 * width + width
    expected = 3 * 16 * width + width + places * width + 6 * block + 2 * width
    expected += width * classes + classes
    network = build("vit", (3, 32, 32), classes)
    assert sum(p.numel() for p in network.parameters()) == expected


def test_attention_is_torchs_own() -> None:
    torch.manual_seed(0)
    network = build("vit(width=12, heads=3, depth=1)", (1, 8, 8), 2)
    block = network.blocks[0]
    other = torch.nn.MultiheadAttention(12, 3, batch_first=True)
    with torch.no_grad():
        other.in_proj_weight.copy_(block.reads.weight)
        other.in_proj_bias.copy_(block.reads.bias)
        other.out_proj.weight.copy_(block.gives.weight)
        other.out_proj.bias.copy_(block.gives.bias)
        x = torch.randn(2, 4, 12)
        expected = other(x, x, x, need_weights=False)[0]
        torch.testing.assert_close(block.gives(block._attention(x)), expected, rtol=1e-4, atol=1e-5)


def test_places_tell_patches_apart() -> None:
    torch.manual_seed(0)
    network = build("vit(width=12, heads=3, depth=1)", (1, 8, 8), 2).eval()
    x = torch.randn(1, 1, 8, 8)
    moved = torch.cat([x[..., 4:], x[..., :4]], dim=3)
    with torch.no_grad():
        assert not torch.allclose(network(x), network(moved), atol=1e-4)
        network.places.zero_()
        torch.testing.assert_close(network(x), network(moved), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "shape", "words"),
    [
        ("vit", (64,), "patches of 4 x 4 fill: got the shape"),
        ("vit(patch=5)", (3, 32, 32), "patches of 5 x 5 fill"),
        ("vit(width=10)", (3, 32, 32), "3 heads do not divide a width of 10"),
        ("vit(depth=0)", (3, 32, 32), "depth is 0: expected a whole number from 1"),
        ("vit(depth=True)", (3, 32, 32), "depth is True"),
    ],
)
def test_what_does_not_fit_is_refused(model: str, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        build(model, shape, 3)


@pytest.mark.usefixtures("one_thread")
def test_modules_train_and_join_by_logits_and_weights() -> None:
    digits = ia.load_data("digits", classes=["0", "1"])
    data = ia.load_data(digits.train.x.reshape(-1, 1, 8, 8), digits.train.y)
    model = "vit(patch=4, width=16, depth=1, heads=2)"
    bank = ia.train(
        data, model=model, epochs=4, sparsity=0, learning_rate=1e-2, batch=16, progress=False
    )
    whole = ia.compose(bank, "logits")
    assert ia.evaluate(whole, data.test).accuracy > 0.9
    ia.compose(bank, "mean").remove(bank.names[0])
    with pytest.raises((CompositionError, WiringError)):
        ia.compose(bank, "inlay")
