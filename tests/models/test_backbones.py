"""Backbones: their shapes, their parameters, and pictures that they cannot read."""

from typing import Any

import pytest
import torch

from intarsia.errors import ModelError, WiringError
from intarsia.models import build, wiring_of
from intarsia.models.custom.symmetry import check_units
from intarsia.models.wiring import check_wiring

LITE, MOBILE = "efficientnet_lite0", "mobilenet_v2"


@pytest.mark.parametrize(
    ("model", "parameters"),
    # Published: 4.65 and 3.50 million with 1000 outputs.
    [(LITE, 4_652_008), (MOBILE, 3_504_872)],
)
def test_parameters_are_those_of_the_published_networks(model: str, parameters: int) -> None:
    with torch.device("meta"):
        network = build(model, (3, 64, 64), 1000)
    assert sum(p.numel() for p in network.parameters()) == parameters


@pytest.mark.parametrize("model", [LITE, MOBILE])
@pytest.mark.parametrize("shape", [(1, 33, 40), (3, 32, 32)])
def test_pictures_become_logits_at_any_size(model: str, shape: tuple[int, ...]) -> None:
    network = build(model, shape, 3).eval()
    with torch.no_grad():
        assert network(torch.rand(2, *shape)).shape == (2, 3)


def test_size_brings_pictures_to_a_square_first() -> None:
    small, large = build(f"{LITE}(size=32)", (3, 8, 8), 2), build(LITE, (3, 32, 32), 2)
    large.load_state_dict(small.state_dict())
    x = torch.rand(2, 3, 8, 8)
    enlarged = torch.nn.functional.interpolate(x, (32, 32), mode="bilinear")
    with torch.no_grad():
        torch.testing.assert_close(small.eval()(x), large.eval()(enlarged), atol=1e-5, rtol=1e-4)


def test_borders_are_those_of_tensorflow_in_lite_and_even_in_mobilenet() -> None:
    lite, mobile = (build(name, (3, 33, 64), 2).body.stem.border for name in (LITE, MOBILE))
    assert lite == (0, 1, 1, 1)  # left, right, above, below: 64 is even, 33 odd
    assert mobile == (1, 1, 1, 1)


@pytest.mark.parametrize("model", [LITE, MOBILE])
def test_units_may_change_places_as_the_wiring_says(model: str) -> None:
    network = build(model, (3, 32, 32), 3)
    wiring = wiring_of(network, (3, 32, 32))
    check_units(network, wiring, (3, 32, 32))
    torn = dict(wiring) | {"body.blocks.2.depth.norm.weight": wiring["body.stem.norm.weight"]}
    with pytest.raises(WiringError):
        check_wiring(torn, network.state_dict())


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        (LITE, (64,), "reads pictures"),
        (LITE, (2, 64, 64), "reads pictures"),
        (MOBILE, (3, 28, 28), "at least 32 x 32"),
        (f"{MOBILE}(size=9)", (3, 28, 28), "pixels from 32"),
        (f"{MOBILE}(size=32.5)", (3, 28, 28), "pixels from 32"),
    ],
)
def test_what_they_cannot_read_is_refused(model: Any, shape: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build(model, shape, 2)
