"""The fast network: its first layer makes natural pictures white, and it learns in few steps."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import intarsia as ia
from intarsia.data import load_data
from intarsia.models import build, initialise
from intarsia.models.fastnet import Fastnet, Whitening, cosine_basis, whitening_filters
from intarsia.modules import Architecture

SHAPE = (3, 16, 16)


def natural(rows: int, side: int = 32) -> Tensor:
    """Pictures from 0 to 1 whose power falls as that of photographs, in colours that agree."""
    draw = torch.Generator().manual_seed(0)
    frequency = torch.fft.fftfreq(side)
    radius = (frequency[:, None] ** 2 + frequency[None] ** 2).sqrt().clamp_min(1 / side)
    white = torch.randn(rows, 3, side, side, generator=draw)
    maps = torch.fft.ifft2(torch.fft.fft2(white) / radius**1.6).real
    maps = maps / maps.std()
    colours = cosine_basis(3).float().T * torch.tensor([1.0, 0.35, 0.17])
    return (0.48 + 0.26 * 1.6 * torch.einsum("kc,ncij->nkij", colours, maps)).clamp(0, 1)


def whitened(x: Tensor) -> Tensor:
    """Coefficients x everything else, without the negatives."""
    made = Whitening(x.shape[1])(x)
    return made[:, : made.shape[1] // 2].movedim(1, 0).flatten(1).double()


def test_patches_of_natural_pictures_become_white() -> None:
    made = whitened(natural(200))
    spread = made.std(1)
    assert 0.4 < float(spread.min()) <= float(spread.max()) < 2.5
    assert float((torch.corrcoef(made) - torch.eye(len(made))).abs().max()) < 0.15
    # what they are made of: neighbours that agree, and a patch that is nearly one number
    pixels = F.unfold(natural(200), 2).movedim(1, 0).flatten(1).double()
    assert float(torch.corrcoef(pixels)[0, 1]) > 0.9


def test_patches_of_cifar_become_white() -> None:
    """The set that the spreads were rounded from, where it is at hand."""
    try:
        data = load_data("cifar100", download=False)
    except ia.IntarsiaError:
        pytest.skip("needs cifar100")
    made = whitened(data.scaling(data.train.x[:2000]))
    spread = made.std(1)
    assert 0.5 < float(spread.min()) <= float(spread.max()) < 1.5
    assert float((torch.corrcoef(made) - torch.eye(len(made))).abs().max()) < 0.15


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_filters_are_orthogonal_and_come_with_their_negatives(channels: int) -> None:
    filters = whitening_filters(channels).flatten(1)
    gram = filters @ filters.T
    assert torch.allclose(gram, gram.diag().diag(), atol=1e-9)
    layer = Whitening(channels)
    first, second = layer.filters.chunk(2)
    assert len(first) == 4 * channels
    assert torch.equal(first, -second)
    even = torch.full((1, channels, 4, 4), 0.48)  # a grey picture has nothing to say
    assert float(layer(even).abs().max()) < 1e-4


def test_the_first_layer_is_the_same_for_all_and_not_in_the_state() -> None:
    one, other = (initialise("fastnet(2)", SHAPE, 4, seed) for seed in (0, 1))
    assert torch.equal(one.white.filters, other.white.filters)
    assert not any(name.startswith("white") for name in one.state_dict())
    architecture = Architecture.of("fastnet(2)", SHAPE, 4)
    rebuilt = architecture.network(one.state_dict())
    x = torch.rand(3, *SHAPE)
    assert torch.equal(rebuilt(x), one.eval()(x))
    assert not architecture.skeleton().white.filters.is_meta  # it has no values but these


def test_convolutions_begin_by_passing_on() -> None:
    network = initialise("fastnet(4)", SHAPE, 4, 0)
    assert isinstance(network, Fastnet)
    for conv in network.convs:
        weight = conv.weight.detach()
        first = range(min(conv.in_channels, conv.out_channels))
        passing = torch.zeros_like(weight)
        passing[first, first, 1, 1] = 1
        drawn = weight - passing
        assert float(drawn.abs().max()) <= (9 * conv.in_channels) ** -0.5 + 1e-6
        assert bool((drawn != 0).all())  # so that no unit is cut off when others are pruned


def test_by_hand() -> None:
    """The forward, layer by layer; 16 pixels leave 15, 7, 3 and 1."""
    network = build("fastnet(2, scale=0.5)", SHAPE, 4).eval()
    x = torch.rand(3, *SHAPE)
    hidden = F.gelu(F.conv2d(x, network.white.filters, network.white.offsets))
    for layer, (conv, norm) in enumerate(zip(network.convs, network.norms, strict=True)):
        hidden = conv(hidden)
        hidden = F.gelu(norm(nn.MaxPool2d(2)(hidden) if layer in (0, 2, 4) else hidden))
    assert hidden.shape == (3, 8, 1, 1)
    expected = 0.5 / 8**0.5 * network.fc(hidden.flatten(1))
    torch.testing.assert_close(network(x), expected)
    assert build("fastnet(2)", (1, 8, 8), 4).pools == [True, False, True, False, False, False]


def colours(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Small noisy pictures with a bar, upright or not, red or blue: four classes."""
    draw = np.random.default_rng(0)
    x = draw.integers(0, 160, (rows, 16, 16, 3), dtype=np.uint8)
    y = np.arange(rows) % 4
    for row, label in enumerate(y):
        place = draw.integers(2, 12)
        bar = (slice(None), slice(place, place + 3))
        bar = bar if label % 2 else bar[::-1]
        x[(row, *bar, 0 if label < 2 else 2)] = 230
    return x, y


def test_modules_learn_from_two_hundred_pictures() -> None:
    data = load_data(colours(200), test=0.25, validation=0.2, seed=0)
    bank = ia.train(
        data, model="fastnet(4)", sparsity=0.5, rounds=1, epochs=8, pruning_epochs=4, batch=32,
        learning_rate=0.01, negatives="none", engine="stack",
    )  # fmt: skip
    for operator in ("logits", "inlay"):
        assert ia.evaluate(ia.compose(bank, operator), data.test).accuracy > 0.8
    merged = ia.compose(bank, "sum", samples=data)
    assert merged.report["notes"] == ["BatchNorm statistics were recomputed from 30 samples"]
    for module in bank:
        norms = [name for name in module.mask if "norm" in name]
        assert not norms
        assert module.density == pytest.approx(0.5, abs=0.05)
